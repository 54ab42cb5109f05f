//! The service that reads bodies.

use std::task::{Context, Poll};

use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

use super::body::BufferedBody;
use super::future::{BufferResponsesFuture, State};
use super::layer::BufferResponsesLayer;
use crate::body_of::BodyOf;
use crate::error::BoxError;

/// The service of [`BufferResponsesLayer`].
#[derive(Debug, Clone)]
pub struct BufferResponses<S> {
    pub(crate) inner: S,
    pub(super) config: BufferResponsesLayer,
}

impl<S, ReqBody, ResBody> Service<Request<ReqBody>> for BufferResponses<S>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>>,
    S::Error: Into<BoxError>,
    ResBody: Body,
    ResBody::Error: Into<BoxError>,
{
    type Response = Response<BufferedBody<ResBody>>;
    type Error = BoxError;
    type Future = BufferResponsesFuture<S::Future, ResBody>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    #[inline]
    fn call(&mut self, request: Request<ReqBody>) -> Self::Future {
        let method = BodyOf::request(&request);
        BufferResponsesFuture {
            state: State::Head(self.inner.call(request)),
            method,
            config: self.config.clone(),
        }
    }
}

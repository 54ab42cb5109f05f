//! The service that wraps response bodies.

use std::task::{Context, Poll};

use http::{Request, Response};
use tower_service::Service;

use super::body::ProgressBody;
use super::future::ProgressBoundFuture;
use super::layer::ProgressBoundLayer;
use super::predicate::AnyBytes;
use crate::body_of::BodyOf;

/// The service of [`ProgressBoundLayer`].
#[derive(Debug, Clone)]
pub struct ProgressBound<S, P = AnyBytes> {
    pub(crate) inner: S,
    pub(super) config: ProgressBoundLayer<P>,
}

impl<S, P> ProgressBound<S, P> {
    pub(crate) fn predicate(&self) -> &P {
        &self.config.predicate
    }
}

impl<S, P, ReqBody, ResBody> Service<Request<ReqBody>> for ProgressBound<S, P>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>>,
    P: Clone,
{
    type Response = Response<ProgressBody<ResBody, P>>;
    type Error = S::Error;
    type Future = ProgressBoundFuture<S::Future, P>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    #[inline]
    fn call(&mut self, request: Request<ReqBody>) -> Self::Future {
        let method = BodyOf::request(&request);
        ProgressBoundFuture {
            inner: self.inner.call(request),
            method,
            config: self.config.clone(),
            looked: false,
        }
    }
}

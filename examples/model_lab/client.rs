//! What both stacks are built around: a pooled hyper-util client.

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tower::util::BoxCloneService;
use tower::{Service, ServiceExt};
use tower_deadline::BoxError;

pub(crate) type Request = hyper::Request<Full<Bytes>>;
pub(crate) type Body = UnsyncBoxBody<Bytes, BoxError>;
pub(crate) type Response = hyper::Response<Body>;
/// A whole stack, whatever it is made of.
pub(crate) type Client = BoxCloneService<Request, Response, BoxError>;

/// The client itself, with no bound on anything.
pub(crate) fn hyper() -> Client {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    boxed(
        hyper_util::client::legacy::Client::builder(TokioExecutor::new())
            .build::<_, Full<Bytes>>(connector),
    )
}

/// Hides what a stack is made of, so that stacks that differ can be treated alike.
pub(crate) fn boxed<S, B>(service: S) -> Client
where
    S: Service<Request, Response = hyper::Response<B>> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
    B: hyper::body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let service = service
        .map_response(|response: S::Response| {
            response.map(|body| body.map_err(Into::into).boxed_unsync())
        })
        .map_err(Into::into);
    BoxCloneService::new(service)
}

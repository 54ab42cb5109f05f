//! The stacks that are compared, around any inner service.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use tower::retry::Policy;
use tower::{BoxError, Layer, Service, ServiceBuilder};
use tower_deadline::{
    AttemptTimeoutLayer, CallPolicy, DeadlineLayer, OneDependency, ProgressBoundLayer, RetryBudget,
    RetryLayer,
};

pub(crate) type Req = Request<Full<Bytes>>;

/// Never reached: what is measured is what a bound costs that does not bind.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);
pub(crate) const ATTEMPT: Duration = Duration::from_secs(10);

/// What people retry with today: by number, errors and 5xx, every request copied.
#[derive(Clone)]
pub(crate) struct ByNumber(u32);

impl<B, E> Policy<Req, Response<B>, E> for ByNumber {
    type Future = std::future::Ready<()>;

    fn retry(&mut self, _: &mut Req, result: &mut Result<Response<B>, E>) -> Option<Self::Future> {
        let failed = match result {
            Ok(response) => response.status().is_server_error(),
            Err(_) => true,
        };
        (failed && self.0 > 0).then(|| {
            self.0 -= 1;
            std::future::ready(())
        })
    }

    fn clone_request(&mut self, request: &Req) -> Option<Req> {
        Some(request.clone())
    }
}

/// What each stack can be put around.
pub(crate) trait Inner:
    Service<Req, Response = Response<Self::Body>, Error = Self::Failure, Future: Send + 'static>
    + Clone
    + Send
    + 'static
{
    type Body: http_body::Body<Data = Bytes, Error = Self::BodyFailure> + Send + 'static;
    type BodyFailure: Into<BoxError>;
    type Failure: Into<BoxError> + std::error::Error + Send + Sync + 'static;
}

impl<S, B> Inner for S
where
    S: Service<Req, Response = Response<B>, Future: Send + 'static> + Clone + Send + 'static,
    S::Error: std::error::Error + Send + Sync + 'static,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Body = B;
    type BodyFailure = B::Error;
    type Failure = S::Error;
}

/// A stack of services that answer with some body.
pub(crate) trait Stack:
    Service<Req, Response = Response<Self::Out>> + Clone + 'static
{
    type Out: http_body::Body;
}

impl<S, B> Stack for S
where
    S: Service<Req, Response = Response<B>> + Clone + 'static,
    B: http_body::Body,
{
    type Out = B;
}

/// tower's `Timeout`, `Retry`, `Timeout`, and tower-http's timeout of the body.
pub(crate) fn tower_three<S: Inner>(inner: S) -> impl Stack<Error = BoxError, Future: Send> {
    ServiceBuilder::new()
        .timeout(DEADLINE)
        .retry(ByNumber(2))
        .timeout(ATTEMPT)
        .layer(tower_http::timeout::ResponseBodyTimeoutLayer::new(ATTEMPT))
        .service(inner)
}

/// tower-resilience's limiter, retry, limiter.
pub(crate) fn resilience_three<S: Inner>(inner: S) -> impl Stack<Future: Send> {
    use tower_resilience_retry::RetryLayer;
    use tower_resilience_timelimiter::TimeLimiterLayer;

    let limited = TimeLimiterLayer::builder()
        .timeout_duration(ATTEMPT)
        .build()
        .layer(inner);
    let retried = RetryLayer::<Req, Response<S::Body>, _>::builder()
        .max_attempts(3)
        .exponential_backoff(Duration::from_millis(100))
        .retry_on_response(|response: &Response<S::Body>| response.status().is_server_error())
        .build()
        .layer(limited);
    TimeLimiterLayer::builder()
        .timeout_duration(DEADLINE)
        .build()
        .layer(retried)
}

/// Ours, like for like: deadline, retry, attempt timeout, gap; no ceiling, no budget, one dependency.
pub(crate) fn alike<S: Inner>(inner: S) -> impl Stack<Error = BoxError, Future: Send> {
    ServiceBuilder::new()
        .layer(DeadlineLayer::new(DEADLINE))
        .layer(
            RetryLayer::http()
                .budget(RetryBudget::none())
                .key(OneDependency),
        )
        .layer(AttemptTimeoutLayer::http(ATTEMPT).key(OneDependency))
        .layer(ProgressBoundLayer::new(ATTEMPT))
        .service(inner)
}

/// Ours with everything on: the whole stack of the preset, with a ceiling that is warm.
pub(crate) fn full<S: Inner>(inner: S) -> impl Stack<Error = BoxError, Future: Send> {
    CallPolicy::http().layer().layer(inner)
}

/// A policy that bounds nothing.
pub(crate) fn none<S: Inner>(inner: S) -> impl Stack<Error = BoxError, Future: Send> {
    CallPolicy::none().layer().layer(inner)
}

pub(crate) fn only_deadline<S: Inner>(inner: S) -> impl Stack<Error = BoxError, Future: Send> {
    DeadlineLayer::new(DEADLINE).layer(inner)
}

pub(crate) fn only_retry<S: Inner>(inner: S) -> impl Stack<Error = BoxError, Future: Send> {
    RetryLayer::http()
        .budget(RetryBudget::none())
        .key(OneDependency)
        .layer(inner)
}

pub(crate) fn only_attempt<S: Inner>(inner: S) -> impl Stack<Error = BoxError, Future: Send> {
    AttemptTimeoutLayer::http(ATTEMPT)
        .key(OneDependency)
        .layer(inner)
}

pub(crate) fn only_progress<S: Inner>(inner: S) -> impl Stack<Future: Send> {
    ProgressBoundLayer::new(ATTEMPT).layer(inner)
}

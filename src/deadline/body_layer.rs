//! The deadline for the body as well.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::Response;
use pin_project::pin_project;
use tower_layer::Layer;
use tower_service::Service;

use super::body::{DeadlineBody, Until};
use crate::call::with_current;
use crate::event::{Listener, Listeners};

/// Bounds the end of the response body by the deadline of the call as well.
///
/// It belongs beneath a [`DeadlineLayer`](crate::DeadlineLayer), whose deadline it takes over at the
/// response head: from the `call` on that layer to the end of the body. A read that is outstanding
/// when the deadline passes fails with [`DeadlineExceeded`](crate::DeadlineExceeded), and the inner
/// body is dropped. Where no deadline is in force the body passes as it is.
///
/// Most calls want [`ProgressBoundLayer`](crate::ProgressBoundLayer) instead, which never cuts a
/// download that keeps arriving. This layer is for answers that are worthless when late.
///
/// ```
/// use std::time::Duration;
/// use http::{Request, Response};
/// use http_body_util::{BodyExt, Full};
/// use tower::{ServiceBuilder, ServiceExt, service_fn};
/// use tower_deadline::{BoxError, DeadlineBodyLayer, DeadlineLayer};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let stack = ServiceBuilder::new()
///     .layer(DeadlineLayer::new(Duration::from_secs(1)))
///     .layer(DeadlineBodyLayer::new())
///     .service(service_fn(|_: Request<()>| async {
///         Ok::<_, BoxError>(Response::new(Full::<bytes::Bytes>::from("whole, or not at all")))
///     }));
/// let response = stack.oneshot(Request::new(())).await.unwrap();
/// assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "whole, or not at all");
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct DeadlineBodyLayer {
    listeners: Listeners,
}

impl DeadlineBodyLayer {
    /// A layer that holds bodies to the deadline in force.
    pub const fn new() -> Self {
        Self {
            listeners: Listeners::NONE,
        }
    }

    /// Tells `listener` when a body outlasts its deadline: `Stalled`, with a
    /// [`DeadlineExceeded`](crate::DeadlineExceeded) as its error. May be called several times.
    pub fn on_event(mut self, listener: impl Listener + 'static) -> Self {
        self.listeners.add(listener);
        self
    }
}

impl Default for DeadlineBodyLayer {
    fn default() -> Self {
        Self::new()
    }
}

impl<S> Layer<S> for DeadlineBodyLayer {
    type Service = DeadlineBodyService<S>;

    fn layer(&self, inner: S) -> DeadlineBodyService<S> {
        DeadlineBodyService {
            inner,
            listeners: self.listeners.clone(),
        }
    }
}

/// The service of [`DeadlineBodyLayer`].
#[derive(Debug, Clone)]
pub struct DeadlineBodyService<S> {
    inner: S,
    listeners: Listeners,
}

impl<S, Request, B> Service<Request> for DeadlineBodyService<S>
where
    S: Service<Request, Response = Response<B>>,
{
    type Response = Response<DeadlineBody<B>>;
    type Error = S::Error;
    type Future = DeadlineBodyFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    #[inline]
    fn call(&mut self, request: Request) -> Self::Future {
        DeadlineBodyFuture {
            inner: self.inner.call(request),
            listeners: self.listeners.clone(),
        }
    }
}

/// The future of [`DeadlineBodyService`].
#[pin_project]
#[must_use = "futures do nothing unless polled"]
pub struct DeadlineBodyFuture<F> {
    #[pin]
    inner: F,
    listeners: Listeners,
}

impl<F> fmt::Debug for DeadlineBodyFuture<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeadlineBodyFuture").finish_non_exhaustive()
    }
}

impl<F, B, E> Future for DeadlineBodyFuture<F>
where
    F: Future<Output = Result<Response<B>, E>>,
{
    type Output = Result<Response<DeadlineBody<B>>, E>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let response = ready!(this.inner.poll(cx))?;
        let bound = with_current(|scope| Until::of(scope));
        let listeners = std::mem::take(this.listeners);
        Poll::Ready(Ok(
            response.map(|body| DeadlineBody::new(body, bound, listeners))
        ))
    }
}

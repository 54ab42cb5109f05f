//! A request's own numbers, from its extensions into the scope.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::Request;
use pin_project::pin_project;
use tower_layer::Layer;
use tower_service::Service;

use super::ambient::overriding;
use super::overrides::CallOverride;

/// Puts the [`CallOverride`] in a request's extensions into force for that call.
///
/// It belongs outermost, above [`DeadlineLayer`](crate::DeadlineLayer), so that the deadline obeys it
/// too. Beneath it only the layers further in do, and calls that the inner service makes while it
/// answers would take it for theirs. For request types other than [`http::Request`], see
/// [`call::with_override`](crate::call::with_override).
///
/// A request without an override passes at the cost of one look into its extensions.
///
/// ```
/// use std::time::Duration;
/// use http::{Request, Response};
/// use tower::{ServiceBuilder, ServiceExt, service_fn};
/// use tower_deadline::{BoxError, CallOverride, DeadlineExceeded, DeadlineLayer, OverrideLayer};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let stack = ServiceBuilder::new()
///     .layer(OverrideLayer::new())
///     .layer(DeadlineLayer::new(Duration::from_secs(30)))
///     .service(service_fn(|_: Request<()>| async {
///         std::future::pending::<Result<Response<()>, BoxError>>().await
///     }));
///
/// let mut request = Request::new(());
/// request.extensions_mut().insert(CallOverride::new().deadline(Duration::from_millis(100)));
/// let error = stack.oneshot(request).await.unwrap_err();
/// let exceeded = DeadlineExceeded::find(&error).unwrap();
/// assert_eq!(exceeded.deadline(), Duration::from_millis(100));
/// # }
/// ```
#[derive(Debug, Clone, Copy, Default)]
#[must_use]
pub struct OverrideLayer(());

impl OverrideLayer {
    /// A layer that has nothing to configure.
    pub const fn new() -> Self {
        Self(())
    }
}

impl<S> Layer<S> for OverrideLayer {
    type Service = Override<S>;

    fn layer(&self, inner: S) -> Override<S> {
        Override { inner }
    }
}

/// The service of [`OverrideLayer`].
#[derive(Debug, Clone)]
pub struct Override<S> {
    pub(crate) inner: S,
}

impl<S, B> Service<Request<B>> for Override<S>
where
    S: Service<Request<B>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = OverrideFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    #[inline]
    fn call(&mut self, request: Request<B>) -> Self::Future {
        let overrides = request.extensions().get::<CallOverride>();
        // The inner future is made in its place, since it can be large.
        match overrides.map(|found| Arc::new(*found)) {
            None => OverrideFuture {
                inner: self.inner.call(request),
                overrides: None,
            },
            Some(overrides) => OverrideFuture {
                inner: {
                    let _overriding = overriding(&overrides);
                    self.inner.call(request)
                },
                overrides: Some(overrides),
            },
        }
    }
}

/// The future of [`Override`].
#[pin_project]
#[must_use = "futures do nothing unless polled"]
pub struct OverrideFuture<F> {
    #[pin]
    inner: F,
    overrides: Option<Arc<CallOverride>>,
}

impl<F> fmt::Debug for OverrideFuture<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OverrideFuture")
            .field("overrides", &self.overrides)
            .finish_non_exhaustive()
    }
}

impl<F: Future> Future for OverrideFuture<F> {
    type Output = F::Output;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let _overriding = this.overrides.as_ref().map(overriding);
        this.inner.poll(cx)
    }
}

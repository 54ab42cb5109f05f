//! How an attempt timeout is configured.

use std::time::Duration;

use tower_layer::Layer;

use super::service::AttemptTimeout;
use crate::classify::{ErrorClassifier, HttpClassifier};
use crate::error::{PolicyError, Problems};
use crate::event::{Listener, Listeners};

/// Bounds one attempt.
///
/// The clock starts at each `call` of this layer and stops at the response head (or the error). The
/// effective ceiling is the smaller of the attempt timeout and the time left on the deadline in
/// force. When it runs out, the inner future is dropped. Where the attempt timeout was the ceiling
/// the attempt fails with [`AttemptTimedOut`](crate::AttemptTimedOut), which
/// [`RetryLayer`](crate::RetryLayer) takes for transient; where the deadline was, the call fails with
/// [`DeadlineExceeded`](crate::DeadlineExceeded).
///
/// A response that is there when the layer looks is returned, however late. A poll that blocks the
/// thread cannot be cut; when it comes back more than a second after the ceiling, the event
/// [`OrphanedWork`](crate::EventKind::OrphanedWork) says so.
///
/// The error type is [`BoxError`](crate::BoxError).
///
/// ```
/// use std::time::Duration;
/// use tower::{ServiceBuilder, ServiceExt, service_fn};
/// use tower_deadline::{AttemptTimedOut, AttemptTimeoutLayer, BoxError};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let stack = ServiceBuilder::new()
///     .layer(AttemptTimeoutLayer::new(Duration::from_secs(2)))
///     .service(service_fn(|()| std::future::pending::<Result<(), BoxError>>()));
///
/// let error = stack.oneshot(()).await.unwrap_err();
/// assert_eq!(AttemptTimedOut::find(&error).unwrap().ceiling(), Duration::from_secs(2));
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct AttemptTimeoutLayer<C = ErrorClassifier> {
    pub(super) timeout: Option<Duration>,
    pub(super) classifier: C,
    pub(super) listeners: Listeners,
}

impl AttemptTimeoutLayer {
    /// An attempt timeout of so long from each `call`, for any request type. Every response counts
    /// as a success in this layer's events.
    ///
    /// A duration that the clock cannot hold, such as [`Duration::MAX`], is no bound.
    pub const fn new(timeout: Duration) -> Self {
        Self {
            timeout: Some(timeout),
            classifier: ErrorClassifier,
            listeners: Listeners::NONE,
        }
    }

    /// No attempt timeout. What an override sets still binds.
    pub const fn unbounded() -> Self {
        Self {
            timeout: None,
            classifier: ErrorClassifier,
            listeners: Listeners::NONE,
        }
    }
}

impl AttemptTimeoutLayer<HttpClassifier> {
    /// An attempt timeout of so long from each `call`, for HTTP: what a response counts as in this
    /// layer's events is up to [`HttpClassifier`].
    pub const fn http(timeout: Duration) -> Self {
        Self {
            timeout: Some(timeout),
            classifier: HttpClassifier,
            listeners: Listeners::NONE,
        }
    }
}

impl<C> AttemptTimeoutLayer<C> {
    /// Judges attempts with `classifier`. It is asked where no retry layer takes part in the call,
    /// since somebody has to say how the call ended; what is cut by this layer is `Transient` without
    /// it being asked.
    pub fn classifier<D>(self, classifier: D) -> AttemptTimeoutLayer<D> {
        AttemptTimeoutLayer {
            timeout: self.timeout,
            classifier,
            listeners: self.listeners,
        }
    }

    /// Tells `listener` of the events of this layer, and of the terminal event of the calls that it
    /// opens. May be called several times.
    pub fn on_event(mut self, listener: impl Listener + 'static) -> Self {
        self.listeners.add(listener);
        self
    }

    /// Whether the configuration can mean what it says.
    ///
    /// # Errors
    ///
    /// An attempt timeout of zero would cut every attempt that is not answered at once.
    pub fn validate(&self) -> Result<(), PolicyError> {
        let mut problems = Problems::default();
        problems.refuse_if(
            self.timeout.is_some_and(|t| t.is_zero()),
            "attempt_timeout",
            &self.timeout.unwrap_or_default(),
            "no attempt could wait for its answer; use `unbounded()` for no bound",
        );
        problems.into_result()
    }
}

impl<S, C: Clone> Layer<S> for AttemptTimeoutLayer<C> {
    type Service = AttemptTimeout<S, C>;

    fn layer(&self, inner: S) -> AttemptTimeout<S, C> {
        AttemptTimeout {
            inner,
            config: self.clone(),
        }
    }
}

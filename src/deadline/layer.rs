//! How a deadline is configured.

use std::time::Duration;

use tower_layer::Layer;

use super::service::Deadline;
use crate::event::{Listener, Listeners};

/// Bounds the whole call: every attempt, every backoff, every wait for readiness in between.
///
/// The clock starts when `call` is invoked on this layer and stops at the response head (or the
/// error). When it runs out, the inner future is dropped and the call fails with
/// [`DeadlineExceeded`](crate::DeadlineExceeded). A response that is there when the layer looks is
/// returned, however late.
///
/// It works with any request type and asks nothing of the inner service. A deadline of
/// [`Duration::ZERO`] has passed already: the inner service is not called. An enclosing call's
/// deadline binds as well; the earlier of the two ends the call.
///
/// The error type is [`BoxError`](crate::BoxError).
///
/// ```
/// use std::time::Duration;
/// use tower::{ServiceBuilder, ServiceExt, service_fn};
/// use tower_deadline::{BoxError, DeadlineExceeded, DeadlineLayer};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let stack = ServiceBuilder::new()
///     .layer(DeadlineLayer::new(Duration::from_secs(1)))
///     .service(service_fn(|wait: Duration| async move {
///         tokio::time::sleep(wait).await;
///         Ok::<_, BoxError>("in time")
///     }));
///
/// assert_eq!(stack.clone().oneshot(Duration::from_millis(900)).await.unwrap(), "in time");
///
/// let error = stack.oneshot(Duration::from_secs(60)).await.unwrap_err();
/// let exceeded = DeadlineExceeded::find(&error).unwrap();
/// assert_eq!(exceeded.deadline(), Duration::from_secs(1));
/// assert_eq!(exceeded.log().len(), 1); // the attempt that was in flight
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct DeadlineLayer {
    pub(super) bound: Option<Duration>,
    pub(super) inherit: bool,
    pub(super) listeners: Listeners,
}

impl DeadlineLayer {
    /// A deadline of so long from `call`. A duration that the clock cannot hold, such as
    /// [`Duration::MAX`], is no bound.
    pub const fn new(deadline: Duration) -> Self {
        Self {
            bound: Some(deadline),
            inherit: false,
            listeners: Listeners::NONE,
        }
    }

    /// No deadline of its own. Enclosing deadlines, inherited ones, and those of overrides still
    /// bind.
    pub const fn unbounded() -> Self {
        Self {
            bound: None,
            inherit: false,
            listeners: Listeners::NONE,
        }
    }

    /// Whether an offered deadline binds too: what [`call::with_deadline`](crate::call::with_deadline)
    /// or the caller of this service said that it would still wait. Off by default.
    ///
    /// It is taken once a call. A call whose inherited deadline has passed fails without its inner
    /// service being called.
    pub const fn inherit(mut self, inherit: bool) -> Self {
        self.inherit = inherit;
        self
    }

    /// Tells `listener` of the events of this layer, and of the terminal event of the calls that it
    /// opens. May be called several times.
    pub fn on_event(mut self, listener: impl Listener + 'static) -> Self {
        self.listeners.add(listener);
        self
    }

    /// Tells these listeners, and no others.
    pub(crate) fn told_to(mut self, listeners: &Listeners) -> Self {
        self.listeners = listeners.clone();
        self
    }
}

impl<S> Layer<S> for DeadlineLayer {
    type Service = Deadline<S>;

    fn layer(&self, inner: S) -> Deadline<S> {
        Deadline {
            inner,
            config: self.clone(),
        }
    }
}

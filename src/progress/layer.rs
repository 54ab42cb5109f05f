//! How the gap is configured.

use std::time::Duration;

use tower_layer::Layer;

use super::predicate::{AnyBytes, Progress};
use super::service::ProgressBound;
use crate::event::{Listener, Listeners};
use crate::policy::{PolicyError, Problems, Value};

/// Bounds the gaps between the reads of a response body.
///
/// A gap is the time that reads of the body have been outstanding since the last progress: a
/// non-empty data frame, or trailers. At the bound the read fails with
/// [`AttemptStalled`](crate::AttemptStalled) and the connection is dropped. The bound is on the gap,
/// not on the total; take the attempt timeout for it unless you know better. Bodies that have ended
/// with their head (of HEAD, of 204 and 304, of an upgrade) are not bounded.
///
/// Progress is looked for in frames. A server that sends a keep-alive comment now and then makes
/// progress by that measure; [`progress_when`](Self::progress_when) tells its comments from its
/// content. A server that sends a byte now and then is never cut: only
/// [`DeadlineBodyLayer`](crate::DeadlineBodyLayer) and
/// [`BufferResponsesLayer`](crate::BufferResponsesLayer) bound the total.
///
/// The service keeps the inner error type; the error type of the body is [`BoxError`](crate::BoxError).
///
/// ```
/// use std::time::Duration;
/// use http::{Request, Response};
/// use http_body_util::{BodyExt, Empty};
/// use tower::{ServiceBuilder, ServiceExt, service_fn};
/// use tower_deadline::{AttemptTimeoutLayer, BoxError, ProgressBoundLayer};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// const INNER: Duration = Duration::from_secs(10);
///
/// let stack = ServiceBuilder::new()
///     .layer(AttemptTimeoutLayer::http(INNER))
///     .layer(ProgressBoundLayer::new(INNER))
///     .service(service_fn(|_: Request<()>| async {
///         Ok::<_, BoxError>(Response::new(Empty::<&[u8]>::new()))
///     }));
/// let response = stack.oneshot(Request::new(())).await.unwrap();
/// assert!(response.into_body().collect().await.unwrap().to_bytes().is_empty());
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct ProgressBoundLayer<P = AnyBytes> {
    pub(super) gap: Option<Duration>,
    /// An override of the attempt timeout sets the gap too (rule 32).
    pub(super) follows_attempt: bool,
    /// The deadline of the call bounds the body's end as well.
    pub(super) by_deadline: bool,
    pub(super) predicate: P,
    pub(super) listeners: Listeners,
}

impl ProgressBoundLayer {
    /// A bound of so long on each gap. A duration that the clock cannot hold, such as
    /// [`Duration::MAX`], is no bound.
    pub const fn new(gap: Duration) -> Self {
        Self {
            gap: Some(gap),
            follows_attempt: true,
            by_deadline: false,
            predicate: AnyBytes,
            listeners: Listeners::NONE,
        }
    }

    /// No bound, unless an override sets one.
    pub const fn unbounded() -> Self {
        Self {
            gap: None,
            follows_attempt: true,
            by_deadline: false,
            predicate: AnyBytes,
            listeners: Listeners::NONE,
        }
    }

    /// No bound, unless an override sets one for the gap itself.
    pub(crate) const fn off() -> Self {
        Self {
            gap: None,
            follows_attempt: false,
            by_deadline: false,
            predicate: AnyBytes,
            listeners: Listeners::NONE,
        }
    }
}

impl<P> ProgressBoundLayer<P> {
    /// Takes as progress only what `predicate` accepts. Each body gets a clone of it.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_deadline::ProgressBoundLayer;
    ///
    /// // Comments of an event stream begin with a colon. (Good enough where the server sends each
    /// // line in a piece.)
    /// let layer = ProgressBoundLayer::new(Duration::from_secs(15))
    ///     .progress_when(|bytes: &[u8]| !bytes.starts_with(b":"));
    /// ```
    pub fn progress_when<Q: Progress + Clone>(self, predicate: Q) -> ProgressBoundLayer<Q> {
        ProgressBoundLayer {
            gap: self.gap,
            follows_attempt: self.follows_attempt,
            by_deadline: self.by_deadline,
            predicate,
            listeners: self.listeners,
        }
    }

    /// Tells `listener` when a body stalls. That is after the call's terminal event, and is none
    /// itself. May be called several times.
    pub fn on_event(mut self, listener: impl Listener + 'static) -> Self {
        self.listeners.add(listener);
        self
    }

    /// Bounds the end of the body by the deadline of the call as well, as
    /// [`DeadlineBodyLayer`](crate::DeadlineBodyLayer) does.
    pub(crate) const fn by_deadline(mut self, on: bool) -> Self {
        self.by_deadline = on;
        self
    }

    /// Tells these listeners, and no others.
    pub(crate) fn told_to(mut self, listeners: &Listeners) -> Self {
        self.listeners = listeners.clone();
        self
    }

    /// Whether the configuration can mean what it says.
    ///
    /// # Errors
    ///
    /// A gap of zero would fail every read that has to wait.
    pub fn validate(&self) -> Result<(), PolicyError> {
        let mut problems = Problems::new();
        if let Some(gap) = self.gap {
            problems.refuse_if(
                gap.is_zero(),
                "progress",
                Value::Duration(gap),
                "no read could wait for its frame; use `unbounded()` for no bound",
            );
        }
        problems.into_result()
    }
}

impl<S, P: Clone> Layer<S> for ProgressBoundLayer<P> {
    type Service = ProgressBound<S, P>;

    fn layer(&self, inner: S) -> ProgressBound<S, P> {
        ProgressBound {
            inner,
            config: self.clone(),
        }
    }
}

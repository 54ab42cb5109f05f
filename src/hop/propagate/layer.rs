//! How propagating is configured.

use std::sync::Arc;

use tower_layer::Layer;

use super::outgoing::Outgoing;
use super::service::Propagate;
use crate::call::tell_of_ceilings;
use crate::event::{Listener, Listeners};
use crate::hop::HopHeaders;
use crate::policy::{PolicyError, Problems, Value};

/// Tells the peer how long an attempt is waited for, how much it matters, and whether it may come again.
///
/// It belongs beneath the [`AttemptTimeoutLayer`](crate::AttemptTimeoutLayer), so that each attempt has
/// headers of its own:
///
/// | header | says |
/// | --- | --- |
/// | `X-Deadline-Ms`, or what [`headers`](Self::headers) names | from the moment it is written until this attempt's effective ceiling: the smallest of attempt timeout, measured ceiling, and time left on the deadline. Whole milliseconds, rounded down, never 0 |
/// | `X-Criticality` | [`call::criticality`](crate::call::criticality) |
/// | `X-NResilience-Retrying: 1` | that the request may be sent again: by a retry layer above, or by the caller of this service ([`call::inside_retry`](crate::call::inside_retry)) |
///
/// - The headers are written when the future of the attempt is first polled, on the instance of the
///   inner service that was readied, and only then is it called: what was spent in a queue above is not
///   promised to the peer.
/// - Where neither a deadline nor an attempt timeout is in force, what was offered is passed on (by
///   [`InheritLayer`](crate::InheritLayer) or [`call::with_deadline`](crate::call::with_deadline)); and
///   where nothing was, no deadline is written.
/// - In a task that was spawned between the attempt timeout and this layer, with
///   [`call::carry`](crate::call::carry), the deadline is what is known, and the attempt timeout is not.
/// - With less than a millisecond left the attempt is not sent; whoever bounds it ends it.
/// - A tighter deadline, or a lower criticality, that the request already names stays.
/// - A gRPC peer that reports that the time was over which it had been told, in the last 5 ms of it, is
///   not listened to: the clock here ends the attempt, with the error that says so. So does one that
///   tonic's channel ends (feature `tonic`). It is one timeout, and is told and counted as one.
///
/// The error type is [`BoxError`](crate::BoxError): that of the inner service, or
/// [`DeadlineExceeded`](crate::DeadlineExceeded) of what was offered, where nobody above holds a clock.
///
/// ```
/// use std::time::Duration;
/// use http::{Request, Response};
/// use tower::{ServiceBuilder, ServiceExt, service_fn};
/// use tower_deadline::{AttemptTimeoutLayer, BoxError, DeadlineLayer, PropagateLayer};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let stack = ServiceBuilder::new()
///     .layer(DeadlineLayer::new(Duration::from_secs(10)))
///     .layer(AttemptTimeoutLayer::http(Duration::from_secs(3)))
///     .layer(PropagateLayer::new())
///     .service(service_fn(|request: Request<()>| async move {
///         assert_eq!(request.headers()["x-deadline-ms"], "3000");
///         assert_eq!(request.headers()["x-criticality"], "Critical");
///         Ok::<_, BoxError>(Response::new(()))
///     }));
/// stack.oneshot(Request::new(())).await.unwrap();
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct PropagateLayer {
    sent: Sent,
    listeners: Listeners,
}

/// What is sent, and in which headers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Sent {
    pub(crate) headers: HopHeaders,
    pub(crate) deadline: bool,
    pub(crate) criticality: bool,
    pub(crate) retry_marker: bool,
}

impl Sent {
    /// Nothing at all.
    pub(crate) const NOTHING: Self = Self {
        headers: HopHeaders::new(),
        deadline: false,
        criticality: false,
        retry_marker: false,
    };

    pub(crate) const fn is_nothing(&self) -> bool {
        !(self.deadline || self.criticality || self.retry_marker)
    }

    /// What is wrong with it.
    pub(crate) const fn problems(&self, problems: &mut Problems) {
        self.headers.problems(problems);
        problems.refuse_if(
            self.deadline && self.headers.carry_no_deadline(),
            "headers.deadline",
            Value::Word("none"),
            "there is no header to send a deadline in",
        );
    }
}

impl PropagateLayer {
    /// All three, with the deadline in `X-Deadline-Ms`.
    pub const fn new() -> Self {
        Self::sending(Sent {
            headers: HopHeaders::new(),
            deadline: true,
            criticality: true,
            retry_marker: true,
        })
    }

    /// All three, with the deadline in `grpc-timeout`.
    pub const fn grpc() -> Self {
        Self::new().headers(HopHeaders::grpc())
    }

    pub(crate) const fn sending(sent: Sent) -> Self {
        Self {
            sent,
            listeners: Listeners::NONE,
        }
    }

    /// The names of the headers.
    pub const fn headers(mut self, headers: HopHeaders) -> Self {
        self.sent.headers = headers;
        self
    }

    /// Whether the deadline is sent.
    pub const fn deadline(mut self, send: bool) -> Self {
        self.sent.deadline = send;
        self
    }

    /// Whether the criticality is sent. Work that has no label is `Critical`, and is sent as that.
    pub const fn criticality(mut self, send: bool) -> Self {
        self.sent.criticality = send;
        self
    }

    /// Whether requests that may be sent again are marked, the first attempt included.
    pub const fn retry_marker(mut self, send: bool) -> Self {
        self.sent.retry_marker = send;
        self
    }

    /// Tells `listener` of a header of this kind that a request had already and that could not be
    /// understood: `HeaderIgnored`. May be called several times.
    pub fn on_event(mut self, listener: impl Listener + 'static) -> Self {
        self.listeners.add(listener);
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
    /// Every problem at once: a name that is no header's, one that is there twice, a deadline that is to
    /// be sent and has no header.
    pub fn validate(&self) -> Result<(), PolicyError> {
        let mut problems = Problems::new();
        self.sent.problems(&mut problems);
        problems.into_result()
    }
}

impl Default for PropagateLayer {
    fn default() -> Self {
        Self::new()
    }
}

impl<S> Layer<S> for PropagateLayer {
    type Service = Propagate<S>;

    fn layer(&self, inner: S) -> Propagate<S> {
        if self.sent.deadline {
            tell_of_ceilings();
        }
        Propagate {
            inner,
            outgoing: Arc::new(Outgoing::of(self.sent, self.listeners.clone())),
        }
    }
}

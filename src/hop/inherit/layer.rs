//! How inheriting is configured.

use std::sync::Arc;
use std::time::Duration;

use tower_layer::Layer;

use super::service::{Inherit, Shared};
use crate::event::{Listener, Listeners};
use crate::hop::HopHeaders;
use crate::policy::{PolicyError, Problems, Value};

/// Listens to what a request's caller says of how long it waits, how much it matters, and whether it may
/// ask again, and puts that in place for the handler and the calls that it makes.
///
/// It belongs at the edge of a server, above everything that queues: the time counts from its `call`,
/// which is the arrival. So it answers ready at once, and waits for the inner service inside its future
/// (`S: Clone`); a limit on concurrency goes beneath it.
///
/// | | default | |
/// | --- | --- | --- |
/// | [`headers`](Self::headers) | [`HopHeaders::any`] | the smallest valid deadline counts |
/// | [`maximum`](Self::maximum) | none | the longest that a caller is believed |
/// | [`default_deadline`](Self::default_deadline) | none | where the caller said nothing |
/// | [`reserve`](Self::reserve) | none; 5 ms for gRPC | kept back of what the caller said, to answer it in time |
/// | [`reject_expired`](Self::reject_expired) | off | answers 504 in place of a handler that nobody waits for |
/// | [`enforce`](Self::enforce) | off | drops the handler at the deadline, and answers 504 |
/// | [`reject_malformed`](Self::reject_malformed) | off | answers 400 to a header that cannot be understood |
/// | [`trust_callers`](Self::trust_callers) | on | off: nothing that a caller says is believed |
///
/// What was inherited is *offered*: it bounds a [`DeadlineLayer`](crate::DeadlineLayer) or a
/// [`CallPolicy`](crate::CallPolicy) with [`inherit(true)`](crate::CallPolicy::inherit), and shows in
/// [`call::remaining`](crate::call::remaining), [`call::criticality`](crate::call::criticality) and
/// [`call::inside_retry`](crate::call::inside_retry). It is in the request's extensions too, as
/// [`Inherited`](crate::Inherited), for handlers that spawn.
///
/// Inside another such layer, or inside what was offered in another way, the earlier deadline holds.
///
/// Values that cannot be understood count as not there, and are told of (`HeaderIgnored`): never as a
/// deadline that has passed, and never as none. `CriticalPlus` from the wire counts as `Critical`.
///
/// The answers are problem documents ([RFC 9457]) for HTTP, and for a gRPC caller a status: 4
/// `DEADLINE_EXCEEDED` (3 `INVALID_ARGUMENT` for what is malformed). See [`Answer`](crate::Answer).
///
/// The deadline ends with the response head; a body that streams on after it is not cut.
///
/// The error type is that of the inner service.
///
/// ```
/// use std::time::Duration;
/// use axum::{Router, routing::get};
/// use tower::ServiceExt;
/// use tower_deadline::{InheritLayer, call};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let app: Router = Router::new()
///     .route("/", get(|| async { format!("{:?}", call::remaining()) }))
///     .layer(InheritLayer::new().maximum(Duration::from_secs(10)).enforce(true));
///
/// let request = http::Request::get("/").header("x-deadline-ms", "200");
/// let response = app.oneshot(request.body(axum::body::Body::empty()).unwrap()).await.unwrap();
/// let body = axum::body::to_bytes(response.into_body(), 100).await.unwrap();
/// assert_eq!(body, "Some(200ms)");
/// # }
/// ```
///
/// [RFC 9457]: https://www.rfc-editor.org/rfc/rfc9457
#[derive(Debug, Clone)]
#[must_use]
pub struct InheritLayer {
    terms: Terms,
    headers: HopHeaders,
    listeners: Listeners,
}

/// What is believed of a caller, and what is done about it.
#[derive(Debug, Clone, Copy)]
#[allow(clippy::struct_excessive_bools)] // switches that have nothing to do with each other
pub(super) struct Terms {
    pub(super) trust: bool,
    pub(super) maximum: Option<Duration>,
    pub(super) default: Option<Duration>,
    /// `None` is what the protocol asks for.
    pub(super) reserve: Option<Duration>,
    pub(super) reject_expired: bool,
    pub(super) reject_malformed: bool,
    pub(super) enforce: bool,
}

impl InheritLayer {
    /// Listens to callers and answers nothing itself.
    pub const fn new() -> Self {
        Self {
            terms: Terms {
                trust: true,
                maximum: None,
                default: None,
                reserve: None,
                reject_expired: false,
                reject_malformed: false,
                enforce: false,
            },
            headers: HopHeaders::any(),
            listeners: Listeners::NONE,
        }
    }

    /// The names of the headers, and which of them carry a deadline: all three of
    /// [`DeadlineHeader`](crate::DeadlineHeader) by default.
    pub const fn headers(mut self, headers: HopHeaders) -> Self {
        self.headers = headers;
        self
    }

    /// The longest time that a caller is believed to wait, from the arrival of its request; a longer one
    /// counts as this.
    pub const fn maximum(mut self, maximum: Duration) -> Self {
        self.terms.maximum = Some(maximum);
        self
    }

    /// How long a caller is taken to wait that did not say, from the arrival of its request. Nothing is kept
    /// back of it.
    pub const fn default_deadline(mut self, deadline: Duration) -> Self {
        self.terms.default = Some(deadline);
        self
    }

    /// What is kept back of the time that a caller said, so that there is some left to answer in. It may
    /// leave nothing: then the request has expired as it arrives.
    ///
    /// To gRPC callers it is 5 ms unless set: tonic's server looks at `grpc-timeout` itself, and would
    /// answer "cancelled" in the same instant.
    pub const fn reserve(mut self, reserve: Duration) -> Self {
        self.terms.reserve = Some(reserve);
        self
    }

    /// Whether a request whose time is over when it arrives, or when its turn comes after a queue
    /// beneath, is answered with 504 and not run. Off by default: it may well be answerable from a cache.
    pub const fn reject_expired(mut self, reject: bool) -> Self {
        self.terms.reject_expired = reject;
        self
    }

    /// Whether a request is answered with 400 that has a header of the hop whose value means nothing, even
    /// one beside others that do.
    pub const fn reject_malformed(mut self, reject: bool) -> Self {
        self.terms.reject_malformed = reject;
        self
    }

    /// Whether the handler is dropped when the time is over, and its caller answered with 504. Bounded is
    /// the time from the arrival to the response head; a request that has expired before is not run.
    ///
    /// A layer beneath that ends the handler with an error in that same instant, a
    /// [`DeadlineLayer`](crate::DeadlineLayer) that inherits say, is heard first: put an
    /// [`AnswerErrorsLayer`](crate::AnswerErrorsLayer) between the two.
    pub const fn enforce(mut self, enforce: bool) -> Self {
        self.terms.enforce = enforce;
        self
    }

    /// Whether to believe what callers say. Where not, for callers from outside say, the headers are not
    /// read but taken out of the request, so that nobody passes them on, and every request has the
    /// [default](Self::default_deadline).
    pub const fn trust_callers(mut self, trust: bool) -> Self {
        self.terms.trust = trust;
        self
    }

    /// Tells `listener` of headers that mean nothing (`HeaderIgnored`), and of requests that were answered
    /// here (`Answered`). May be called several times.
    pub fn on_event(mut self, listener: impl Listener + 'static) -> Self {
        self.listeners.add(listener);
        self
    }

    /// Whether the configuration can mean what it says.
    ///
    /// # Errors
    ///
    /// Every problem at once: a header's name that is none or is there twice; a bound of zero; a default above the
    /// maximum; a maximum of which the reserve leaves nothing; callers that are not believed, and a setting
    /// that is about what they say.
    pub fn validate(&self) -> Result<(), PolicyError> {
        let mut problems = Problems::new();
        self.headers.problems(&mut problems);
        let terms = &self.terms;
        for (field, bound) in [
            ("maximum", terms.maximum),
            ("default_deadline", terms.default),
        ] {
            if let Some(bound) = bound {
                problems.refuse_if(
                    bound.is_zero(),
                    field,
                    Value::Duration(bound),
                    "it would be over before the request is worked on",
                );
            }
        }
        if let (Some(default), Some(maximum)) = (terms.default, terms.maximum) {
            problems.refuse_if(
                default > maximum,
                "default_deadline",
                Value::Duration(default),
                "it is above the maximum, which is what a caller can ask for at most",
            );
        }
        if let (Some(reserve), Some(maximum)) = (terms.reserve, terms.maximum) {
            problems.refuse_if(
                reserve >= maximum,
                "reserve",
                Value::Duration(reserve),
                "it leaves nothing of the maximum, so that every request has expired",
            );
        }
        if let (Some(maximum), false) = (terms.maximum, terms.trust) {
            problems.refuse_if(
                true,
                "maximum",
                Value::Duration(maximum),
                "it has no effect on callers that are not believed",
            );
        }
        if let (Some(reserve), false) = (terms.reserve, terms.trust) {
            problems.refuse_if(
                true,
                "reserve",
                Value::Duration(reserve),
                "it has no effect on callers that are not believed",
            );
        }
        problems.refuse_if(
            terms.reject_malformed && !terms.trust,
            "reject_malformed",
            Value::Flag(true),
            "it has no effect on callers that are not believed",
        );
        problems.into_result()
    }
}

impl Default for InheritLayer {
    fn default() -> Self {
        Self::new()
    }
}

impl<S> Layer<S> for InheritLayer {
    type Service = Inherit<S>;

    fn layer(&self, inner: S) -> Inherit<S> {
        Inherit {
            inner,
            shared: Arc::new(Shared {
                terms: self.terms,
                names: self.headers.resolve(),
                listeners: self.listeners.clone(),
            }),
        }
    }
}

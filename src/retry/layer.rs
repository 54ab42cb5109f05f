//! How retries are configured.

use std::sync::Arc;

use tower_layer::Layer;

use super::backoff::Backoff;
use super::budget::RetryBudget;
use super::copy::CloneRequest;
use super::repeatable::{AnyRequest, ByMethod};
use super::service::Retry;
use crate::classify::{ErrorClassifier, HttpClassifier};
use crate::event::{Listener, Listeners};
use crate::key::{Authority, OneDependency};
use crate::policy::{PolicyError, Problems, Value};

/// Sends a request again when its attempt failed, while that can help and does no harm.
///
/// After an attempt it decides in this order: it succeeded; the deadline ended it; the failure is
/// permanent; the attempts are spent; the request cannot or must not be sent again; delay and attempt
/// do not fit into the time left; the budget refuses. Only then does it sleep. When it stops and the
/// last attempt has a response, the response is returned as it is, whatever the reason.
///
/// | | default |
/// | --- | --- |
/// | attempts, the first included | 3 |
/// | backoff | [`Backoff::exponential`] |
/// | budget | [`RetryBudget::automatic`] |
///
/// - The deadline is that of the call around, see [`DeadlineLayer`](crate::DeadlineLayer). A retry
///   that cannot fit is not begun, and the call ends at once rather than after the sleep: with the
///   last response, or with [`DeadlineExceeded`](crate::DeadlineExceeded) when there is none.
/// - A wait that the peer asks for (`Retry-After`) is never cut short. One above the backoff's cap or
///   the time left ends the call with the response that asked for it. Otherwise the next attempt
///   comes after the longer of it and the ordinary wait, plus, with jitter, up to one throttled base.
/// - An attempt, its response and its error are dropped before the sleep, and no permit of the inner
///   service is held during it. The inner service is readied before each attempt, and the instance
///   that was readied is the one that is called; an error from its readiness ends the call unchanged.
/// - Dropping the future of the call drops everything. A retry that was paid for and not sent gives
///   its token back.
///
/// The error type is [`BoxError`](crate::BoxError): that of the inner service,
/// [`RetryRefused`](crate::RetryRefused) from the budget, or
/// [`DeadlineExceeded`](crate::DeadlineExceeded).
///
/// Beneath a [`Buffer`](https://docs.rs/tower/latest/tower/buffer/) the first attempt is begun by the
/// buffer's worker, which knows nothing of the call: overrides come into force after it.
///
/// ```
/// use std::time::Duration;
/// use http::{Request, Response, StatusCode};
/// use http_body_util::Empty;
/// use tower::{ServiceBuilder, ServiceExt, service_fn};
/// use tower_deadline::{AttemptTimeoutLayer, BoxError, DeadlineLayer, RetryLayer, call};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let stack = ServiceBuilder::new()
///     .layer(DeadlineLayer::new(Duration::from_secs(30)))
///     .layer(RetryLayer::http().attempts(3))
///     .layer(AttemptTimeoutLayer::http(Duration::from_secs(10)))
///     .service(service_fn(|_: Request<Empty<&[u8]>>| async {
///         let status = match call::attempt() {
///             Some(1) => StatusCode::SERVICE_UNAVAILABLE,
///             _ => StatusCode::OK,
///         };
///         Ok::<_, BoxError>(Response::builder().status(status).body(()).unwrap())
///     }));
///
/// let response = stack.oneshot(Request::get("http://example.com/").body(Empty::new()).unwrap());
/// assert_eq!(response.await.unwrap().status(), StatusCode::OK);
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct RetryLayer<C = ErrorClassifier, Y = CloneRequest, K = OneDependency, R = AnyRequest> {
    pub(super) rules: Rules<C, Y>,
    pub(super) key: K,
    pub(super) repeatable: R,
}

/// What a call needs while it is under way.
#[derive(Debug, Clone)]
pub(super) struct Rules<C, Y> {
    pub(super) attempts: u32,
    pub(super) backoff: Backoff,
    pub(super) budget: RetryBudget,
    pub(super) classifier: C,
    pub(super) copy: Y,
    pub(super) retry_unprocessed: bool,
    pub(super) defer_to_caller: bool,
    pub(super) listeners: Listeners,
}

impl<C, Y> Rules<C, Y> {
    fn new(classifier: C, copy: Y) -> Self {
        Self {
            attempts: 3,
            backoff: Backoff::exponential(),
            budget: RetryBudget::automatic(),
            classifier,
            copy,
            retry_unprocessed: false,
            defer_to_caller: false,
            listeners: Listeners::NONE,
        }
    }
}

impl RetryLayer {
    /// For any request type that is `Clone`, to one dependency: every response is a success, errors
    /// are judged by [`ErrorClassifier`], and every request may be sent again.
    pub fn new() -> Self {
        Self {
            rules: Rules::new(ErrorClassifier, CloneRequest),
            key: OneDependency,
            repeatable: AnyRequest,
        }
    }
}

impl Default for RetryLayer {
    fn default() -> Self {
        Self::new()
    }
}

impl RetryLayer<HttpClassifier, CloneRequest, Authority, ByMethod> {
    /// For HTTP requests whose body is `Clone` (for one that is not, such as hyper's `Incoming`, there
    /// is [`copy`](Self::copy) with [`NeverCopy`](crate::NeverCopy)): responses are judged by [`HttpClassifier`], requests
    /// may be sent again as [`ByMethod`] says, and each [`Authority`] has a budget of its own.
    pub fn http() -> Self {
        Self {
            rules: Rules::new(HttpClassifier, CloneRequest),
            key: Authority,
            repeatable: ByMethod::default(),
        }
    }
}

impl<C, Y, K> RetryLayer<C, Y, K, ByMethod> {
    /// Whether POST, PATCH and other methods that are not idempotent may be sent again too. Off by
    /// default: a POST that timed out may have been acted on. For single requests there is
    /// [`CallOverride::retry`](crate::CallOverride::retry).
    pub fn retry_unsafe_methods(mut self, retry: bool) -> Self {
        self.repeatable.unsafe_methods = retry;
        self
    }
}

impl<C, Y, K, R> RetryLayer<C, Y, K, R> {
    /// How often a request is sent at most, the first time included: 3 by default. 0 is refused by
    /// [`validate`](Self::validate) and otherwise means 1.
    pub fn attempts(mut self, attempts: u32) -> Self {
        self.rules.attempts = attempts;
        self
    }

    /// How long to wait before each further attempt.
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.rules.backoff = backoff;
        self
    }

    /// How many retries each dependency gets. Services made from one layer share it, and so do
    /// layers that are given clones of it.
    pub fn budget(mut self, budget: RetryBudget) -> Self {
        self.rules.budget = budget;
        self
    }

    /// The same with another classifier or another copier.
    fn exchange<D, Z>(self, parts: impl FnOnce(C, Y) -> (D, Z)) -> RetryLayer<D, Z, K, R> {
        let (classifier, copy) = parts(self.rules.classifier, self.rules.copy);
        RetryLayer {
            rules: Rules {
                attempts: self.rules.attempts,
                backoff: self.rules.backoff,
                budget: self.rules.budget,
                classifier,
                copy,
                retry_unprocessed: self.rules.retry_unprocessed,
                defer_to_caller: self.rules.defer_to_caller,
                listeners: self.rules.listeners,
            },
            key: self.key,
            repeatable: self.repeatable,
        }
    }

    /// Which results are failures, and of what kind.
    pub fn classifier<D>(self, classifier: D) -> RetryLayer<D, Y, K, R> {
        self.exchange(|_, copy| (classifier, copy))
    }

    /// How a request is copied before it is sent, where a retry could follow.
    pub fn copy<Z>(self, copy: Z) -> RetryLayer<C, Z, K, R> {
        self.exchange(|classifier, _| (classifier, copy))
    }

    /// Which dependency a request goes to, each of which has a budget of its own.
    pub fn key<L>(self, key: L) -> RetryLayer<C, Y, L, R> {
        RetryLayer {
            rules: self.rules,
            key,
            repeatable: self.repeatable,
        }
    }

    /// Which requests may be sent again.
    pub fn repeatable<Q>(self, repeatable: Q) -> RetryLayer<C, Y, K, Q> {
        RetryLayer {
            rules: self.rules,
            key: self.key,
            repeatable,
        }
    }

    /// Whether a request of any method may be sent once more after an error that proves that it was
    /// not acted on, see [`never_left`](crate::never_left). Off by default; where it is on such
    /// requests are copied too. It counts against attempts, budget and time like any retry.
    pub fn retry_unprocessed(mut self, retry: bool) -> Self {
        self.rules.retry_unprocessed = retry;
        self
    }

    /// Whether to make one attempt only when this call is made on behalf of a client that retries
    /// itself, so that retries in a chain do not multiply. Off by default: such a call is reported as
    /// [`NestedRetry`](crate::EventKind::NestedRetry) and nothing else changes.
    pub fn defer_to_caller(mut self, defer: bool) -> Self {
        self.rules.defer_to_caller = defer;
        self
    }

    /// Tells `listener` of the attempts and retries, and of the end of the calls that this layer opens:
    /// beneath a [`DeadlineLayer`](crate::DeadlineLayer) it is that one which opens them, and whose
    /// listeners hear of their end. May be called several times.
    pub fn on_event(mut self, listener: impl Listener + 'static) -> Self {
        self.rules.listeners.add(listener);
        self
    }

    /// The numbers of the budget, see [`RetryBudget::terms`].
    pub(crate) fn budget_terms(&self) -> Option<(f64, u32)> {
        self.rules.budget.terms()
    }

    /// Tells these listeners, and no others.
    pub(crate) fn told_to(mut self, listeners: &Listeners) -> Self {
        self.rules.listeners = listeners.clone();
        self
    }

    /// Whether the configuration can mean what it says.
    ///
    /// # Errors
    ///
    /// Every problem at once: no attempt at all, a backoff whose factor is below 1 or whose cap is
    /// below a base.
    pub fn validate(&self) -> Result<(), PolicyError> {
        let mut problems = Problems::new();
        attempts_problems(self.rules.attempts, &mut problems);
        self.rules.backoff.problems(&mut problems);
        problems.into_result()
    }
}

/// What is wrong with so many attempts.
pub(crate) const fn attempts_problems(attempts: u32, problems: &mut Problems) {
    problems.refuse_if(
        attempts == 0,
        "attempts",
        Value::Count(attempts as u128),
        "the first attempt counts: 1 is a call without a retry",
    );
}

impl<S, C, Y, K, R> Layer<S> for RetryLayer<C, Y, K, R>
where
    C: Clone,
    Y: Clone,
    K: Clone,
    R: Clone,
{
    type Service = Retry<S, C, Y, K, R>;

    fn layer(&self, inner: S) -> Self::Service {
        Retry {
            inner,
            rules: Arc::new(self.rules.clone()),
            key: self.key.clone(),
            repeatable: self.repeatable.clone(),
        }
    }
}

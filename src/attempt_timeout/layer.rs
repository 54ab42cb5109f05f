//! How an attempt timeout is configured.

use std::time::Duration;

use tower_layer::Layer;

use super::attempt_ceiling::AttemptCeiling;
use super::measured::Measured;
use super::service::AttemptTimeout;
use crate::classify::{ErrorClassifier, HttpClassifier};
use crate::event::{Listener, Listeners};
use crate::key::{Authority, OneDependency};
use crate::policy::{PolicyError, Problems, Value};

/// Bounds one attempt.
///
/// The clock starts at each `call` of this layer and stops at the response head (or the error). The
/// effective ceiling is the smallest of the attempt timeout, the time left on the deadline in force,
/// and, with [`ceiling`](Self::ceiling), a multiple of the dependency's recent latency. When it runs
/// out, the inner future is dropped. Where the attempt timeout or the measured ceiling was it, the
/// attempt fails with [`AttemptTimedOut`](crate::AttemptTimedOut), which
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
pub struct AttemptTimeoutLayer<C = ErrorClassifier, K = OneDependency> {
    timeout: Option<Duration>,
    classifier: C,
    key: K,
    ceiling: Option<AttemptCeiling>,
    measured: Option<Measured>,
    listeners: Listeners,
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
            key: OneDependency,
            ceiling: None,
            measured: None,
            listeners: Listeners::NONE,
        }
    }

    /// No attempt timeout. A measured ceiling still binds, and what an override sets.
    pub const fn unbounded() -> Self {
        Self {
            timeout: None,
            classifier: ErrorClassifier,
            key: OneDependency,
            ceiling: None,
            measured: None,
            listeners: Listeners::NONE,
        }
    }
}

impl AttemptTimeoutLayer<HttpClassifier, Authority> {
    /// An attempt timeout of so long from each `call`, for HTTP: responses are judged by
    /// [`HttpClassifier`], and each [`Authority`] is measured for itself.
    pub const fn http(timeout: Duration) -> Self {
        Self {
            timeout: Some(timeout),
            classifier: HttpClassifier,
            key: Authority,
            ceiling: None,
            measured: None,
            listeners: Listeners::NONE,
        }
    }
}

impl<C, K> AttemptTimeoutLayer<C, K> {
    /// Measures the dependency's latency, and cuts attempts that take a multiple of it. Without this,
    /// nothing is measured.
    ///
    /// The estimates belong to this layer, its clones, and the services made from them.
    pub fn ceiling(mut self, ceiling: AttemptCeiling) -> Self {
        self.measured = Some(Measured::new(&ceiling));
        self.ceiling = Some(ceiling);
        self
    }

    /// A handle that reads what was measured; `None` without [`ceiling`](Self::ceiling).
    #[must_use]
    pub fn measured(&self) -> Option<Measured> {
        self.measured.clone()
    }

    /// Which dependency a request goes to, each of which is measured for itself. For a stack that
    /// serves one, [`OneDependency`] costs no look-up.
    pub fn key<L>(self, key: L) -> AttemptTimeoutLayer<C, L> {
        AttemptTimeoutLayer {
            timeout: self.timeout,
            classifier: self.classifier,
            key,
            ceiling: self.ceiling,
            measured: self.measured,
            listeners: self.listeners,
        }
    }

    /// Judges attempts with `classifier`: only what is `Ok` is measured. It is also asked where no
    /// retry layer takes part in the call, since somebody has to say how the call ended. What is cut by
    /// this layer is `Transient` without it being asked.
    pub fn classifier<D>(self, classifier: D) -> AttemptTimeoutLayer<D, K> {
        AttemptTimeoutLayer {
            timeout: self.timeout,
            classifier,
            key: self.key,
            ceiling: self.ceiling,
            measured: self.measured,
            listeners: self.listeners,
        }
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

    /// Whether the configuration can mean what it says.
    ///
    /// # Errors
    ///
    /// Every problem at once: an attempt timeout of zero, which would cut every attempt that is not
    /// answered at once; a ceiling whose multiple is not above 1, whose quantile is not from 0.5 to
    /// 0.99, whose window or minimum of samples is nothing, or whose floor, the default one too, is at or
    /// above the attempt timeout, where the ceiling would do nothing.
    pub fn validate(&self) -> Result<(), PolicyError> {
        let mut problems = Problems::new();
        timeout_problems(self.timeout, &mut problems);
        if let Some(ceiling) = &self.ceiling {
            ceiling.problems(self.timeout, &mut problems);
        }
        problems.into_result()
    }
}

/// What is wrong with an attempt timeout.
pub(crate) const fn timeout_problems(timeout: Option<Duration>, problems: &mut Problems) {
    if let Some(timeout) = timeout {
        problems.refuse_if(
            timeout.is_zero(),
            "attempt_timeout",
            Value::Duration(timeout),
            "no attempt could wait for its answer; an attempt without a bound is another setting",
        );
    }
}

impl<S, C: Clone, K: Clone> Layer<S> for AttemptTimeoutLayer<C, K> {
    type Service = AttemptTimeout<S, C, K>;

    fn layer(&self, inner: S) -> AttemptTimeout<S, C, K> {
        AttemptTimeout {
            inner,
            timeout: self.timeout,
            classifier: self.classifier.clone(),
            key: self.key.clone(),
            measured: self.measured.clone(),
            listeners: self.listeners.clone(),
        }
    }
}

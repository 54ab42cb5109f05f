//! The stack of a policy, for any kind of request.

use std::fmt;

use tower_layer::Layer;

use super::report;
use super::service::Call;
use super::value::{BudgetTerms, CallPolicy};
use crate::attempt_timeout::{AttemptTimeoutLayer, Measured};
use crate::classify::ErrorClassifier;
use crate::deadline::{BoundReadinessLayer, DeadlineLayer};
use crate::event::{Listener, Listeners};
use crate::key::{Noted, Noting, OneDependency};
use crate::retry::{AnyRequest, CloneRequest, RetryBudget, RetryLayer};

/// The layers of a [`CallPolicy`] in their order, for any kind of request: deadline, retry, attempt
/// timeout.
///
/// Made by [`CallPolicy::layer_for`]. For HTTP there is
/// [`HttpCallLayer`](super::HttpCallLayer), which has more to offer.
///
/// What was measured and the retry budgets belong to the layer. Every service that it, or a clone of
/// it, makes shares them; another layer of the same policy has its own. So make the layer once: in one
/// that is made for each request nothing is ever warm, and every budget is full.
///
/// ```
/// use std::time::Duration;
/// use tower::{ServiceBuilder, ServiceExt, service_fn};
/// use tower_deadline::{CallPolicy, CloneRequest, ErrorClassifier};
///
/// const QUERIES: CallPolicy = CallPolicy::new().deadline(Duration::from_secs(2)).checked();
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let database = ServiceBuilder::new()
///     .layer(QUERIES.layer_for(ErrorClassifier, CloneRequest))
///     .service(service_fn(|query: String| async move { std::io::Result::Ok(query.len()) }));
/// assert_eq!(database.oneshot("select 1".to_owned()).await.unwrap(), 8);
/// # }
/// ```
#[derive(Clone)]
#[must_use]
pub struct CallLayer<C = ErrorClassifier, Y = CloneRequest, K = OneDependency, R = AnyRequest> {
    pub(super) policy: CallPolicy,
    pub(super) deadline: DeadlineLayer,
    pub(super) readiness: BoundReadinessLayer,
    pub(super) retry: RetryLayer<C, Y, Noting<K>, R>,
    pub(super) attempt: AttemptTimeoutLayer<C, Noted<K>>,
    pub(super) listeners: Listeners,
    /// The policy asks for nothing, and nobody listens.
    pub(super) idle: bool,
}

impl CallPolicy {
    /// The stack of this policy around a service that is not HTTP: which results are failures is for
    /// `classifier` to say, and how a request is copied for a retry for `copy`.
    ///
    /// What is about bodies and methods has no effect here; where it was written out that is reported
    /// through `tracing`, once. For overrides there is
    /// [`call::with_override`](crate::call::with_override).
    pub fn layer_for<C: Clone, Y>(self, classifier: C, copy: Y) -> CallLayer<C, Y> {
        report::http_only_once(&self);
        let attempt = match self.attempt_timeout {
            Some(timeout) => AttemptTimeoutLayer::new(timeout),
            None => AttemptTimeoutLayer::unbounded(),
        };
        let retry = RetryLayer::new().classifier(classifier.clone()).copy(copy);
        CallLayer::of(&self, retry, attempt.classifier(classifier), OneDependency)
    }
}

impl<C: Clone, Y, K: Clone, R> CallLayer<C, Y, K, R> {
    /// The layers of `policy`, whatever is wrong with it.
    pub(super) fn of(
        policy: &CallPolicy,
        retry: RetryLayer<C, Y, K, R>,
        attempt: AttemptTimeoutLayer<C, K>,
        key: K,
    ) -> Self {
        report::once(policy);
        let deadline = match policy.deadline {
            Some(deadline) => DeadlineLayer::new(deadline),
            None => DeadlineLayer::unbounded(),
        };
        let budget = match policy.budget {
            Some(terms) => RetryBudget::with_terms(terms.fraction, terms.minimum_per_second),
            None => RetryBudget::none(),
        };
        Self {
            policy: *policy,
            deadline: deadline.inherit(policy.inherit),
            readiness: BoundReadinessLayer::when(policy.bound_readiness),
            retry: retry
                .key(Noting(key.clone()))
                .attempts(policy.attempts)
                .backoff(policy.backoff)
                .budget(budget)
                .retry_unprocessed(policy.retry_unprocessed)
                .defer_to_caller(policy.defer_to_caller),
            attempt: match policy.ceiling_in_force() {
                Some(ceiling) => attempt.key(Noted(key)).ceiling(ceiling),
                None => attempt.key(Noted(key)),
            },
            listeners: Listeners::NONE,
            idle: policy.is_idle(),
        }
    }
}

impl<C, Y, K, R> CallLayer<C, Y, K, R> {
    /// Which dependency a request goes to: each has a budget and an estimate of its own. With
    /// [`OneDependency`], the default here, all requests share one, and no look-up is made.
    pub fn key<L: Clone>(self, key: L) -> CallLayer<C, Y, L, R> {
        CallLayer {
            policy: self.policy,
            deadline: self.deadline,
            readiness: self.readiness,
            retry: self.retry.key(Noting(key.clone())),
            attempt: self.attempt.key(Noted(key)),
            listeners: self.listeners,
            idle: self.idle,
        }
    }

    /// Which results are failures, and of what kind.
    pub fn classifier<D: Clone>(self, classifier: D) -> CallLayer<D, Y, K, R> {
        CallLayer {
            policy: self.policy,
            deadline: self.deadline,
            readiness: self.readiness,
            retry: self.retry.classifier(classifier.clone()),
            attempt: self.attempt.classifier(classifier),
            listeners: self.listeners,
            idle: self.idle,
        }
    }

    /// How a request is copied before it is sent, where a retry could follow.
    pub fn copy<Z>(self, copy: Z) -> CallLayer<C, Z, K, R> {
        CallLayer {
            policy: self.policy,
            deadline: self.deadline,
            readiness: self.readiness,
            retry: self.retry.copy(copy),
            attempt: self.attempt,
            listeners: self.listeners,
            idle: self.idle,
        }
    }

    /// Which requests may be sent again.
    pub fn repeatable<Q>(self, repeatable: Q) -> CallLayer<C, Y, K, Q> {
        CallLayer {
            policy: self.policy,
            deadline: self.deadline,
            readiness: self.readiness,
            retry: self.retry.repeatable(repeatable),
            attempt: self.attempt,
            listeners: self.listeners,
            idle: self.idle,
        }
    }

    /// A budget that this stack shares with others, in place of one with the numbers of the policy.
    pub fn budget(mut self, budget: RetryBudget) -> Self {
        self.retry = self.retry.budget(budget);
        self
    }

    /// Tells `listener` of every event of the stack, once each. May be called several times.
    pub fn on_event(mut self, listener: impl Listener + 'static) -> Self {
        self.listeners.add(listener);
        self.deadline = self.deadline.told_to(&self.listeners);
        self.retry = self.retry.told_to(&self.listeners);
        self.attempt = self.attempt.told_to(&self.listeners);
        self.idle = false;
        self
    }

    /// A handle that reads what was measured; `None` where the policy has no measured ceiling.
    #[must_use]
    pub fn measured(&self) -> Option<Measured> {
        self.attempt.measured()
    }

    /// The numbers of the budget in use; `None` without one.
    pub(super) fn budget_terms(&self) -> Option<BudgetTerms> {
        let (fraction, minimum_per_second) = self.retry.budget_terms()?;
        Some(BudgetTerms {
            fraction,
            minimum_per_second,
        })
    }

    /// The policy whose numbers these are.
    pub fn policy(&self) -> CallPolicy {
        self.policy
    }
}

impl<C, Y, K, R> fmt::Debug for CallLayer<C, Y, K, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallLayer")
            .field("policy", &self.policy)
            .finish_non_exhaustive()
    }
}

impl<S, C, Y, K, R> Layer<S> for CallLayer<C, Y, K, R>
where
    C: Clone,
    Y: Clone,
    K: Clone,
    R: Clone,
{
    type Service = Call<S, C, Y, K, R>;

    fn layer(&self, inner: S) -> Self::Service {
        let inner = self.attempt.layer(inner);
        let inner = self.readiness.layer(self.retry.layer(inner));
        Call {
            stack: self.deadline.layer(inner),
            idle: self.idle,
        }
    }
}

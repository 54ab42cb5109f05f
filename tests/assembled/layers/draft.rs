//! The draft of a stack: the numbers of the layers that a test composes it of, until there is a service
//! to put them around.

use std::marker::PhantomData;
use std::time::Duration;

use tower::Layer;
use tower_deadline::policy::{Call, CallLayer, HttpCall, HttpCallLayer};
use tower_deadline::{
    AnyBytes, AnyRequest, Authority, ByMethod, CallPolicy, CloneRequest, ErrorClassifier,
    HttpClassifier, OneDependency, Progress, RetryBudget,
};

use super::heard::Heard;
use super::slot::{Kept, Slot};

/// Requests are those of HTTP: the stack is that of [`CallPolicy::layer`].
#[derive(Clone, Copy)]
pub(crate) struct Http;

/// Requests are of any kind: the stack is that of [`CallPolicy::layer_for`].
#[derive(Clone, Copy)]
pub(crate) struct Any;

/// Where a layer is in a policy's stack, from the outside in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    Override,
    Deadline,
    Readiness,
    Body,
    Retry,
    Attempt,
    Buffer,
    Progress,
}

/// What a retry layer was given that is no number, if there is one.
#[derive(Clone, Copy, Default)]
pub(crate) struct Judging<C = Kept, Y = Kept, K = Kept, R = Kept> {
    pub(super) classifier: C,
    pub(super) copy: Y,
    pub(super) key: K,
    pub(super) repeatable: R,
}

/// What the layers so far say, for requests of the kind `F`.
#[derive(Clone)]
pub(crate) struct Draft<F = Http, J = Judging, P = Kept> {
    pub(super) policy: CallPolicy,
    /// A policy has one number for these two.
    pub(super) attempt: Option<Duration>,
    pub(super) gap: Option<Duration>,
    pub(super) budget: Option<RetryBudget>,
    pub(super) judging: J,
    pub(super) predicate: P,
    pub(super) heard: Heard,
    innermost: Option<Place>,
    requests: PhantomData<F>,
}

impl Draft {
    pub(super) fn new() -> Self {
        Self {
            policy: CallPolicy::none(),
            attempt: None,
            gap: None,
            budget: None,
            judging: Judging::default(),
            predicate: Kept,
            heard: Heard::default(),
            innermost: None,
            requests: PhantomData,
        }
    }
}

impl<F, J, P> Draft<F, J, P> {
    /// The same after a layer that belongs at `place`, whose listeners are these.
    ///
    /// Panics where a policy's stack has another order: such a test is one for composing by hand.
    pub(super) fn after(mut self, place: Place, heard: &Heard) -> Self {
        assert!(
            self.innermost < Some(place),
            "in a policy's stack {place:?} is not beneath {:?}",
            self.innermost
        );
        self.innermost = Some(place);
        self.heard = self.heard.and(heard.clone());
        self
    }

    pub(super) fn for_requests_of<G>(self) -> Draft<G, J, P> {
        self.with(|judging, predicate| (judging, predicate))
    }

    /// The same with other parts.
    pub(super) fn with<G, I, Q>(self, parts: impl FnOnce(J, P) -> (I, Q)) -> Draft<G, I, Q> {
        let (judging, predicate) = parts(self.judging, self.predicate);
        Draft {
            policy: self.policy,
            attempt: self.attempt,
            gap: self.gap,
            budget: self.budget,
            judging,
            predicate,
            heard: self.heard,
            innermost: self.innermost,
            requests: PhantomData,
        }
    }

    /// What the layers say, in numbers.
    fn policy(&self) -> CallPolicy {
        if let (Some(attempt), Some(gap)) = (self.attempt, self.gap) {
            assert_eq!(attempt, gap, "a policy has one number for both");
        }
        match self.attempt.or(self.gap) {
            Some(timeout) => self.policy.attempt_timeout(timeout),
            None => self.policy,
        }
    }
}

/// A draft that can become a stack around `S`.
pub(crate) trait Assemble<S> {
    type Service;

    fn around(self, inner: S) -> Self::Service;
}

impl<S, C, Y, K, R, P> Assemble<S> for Draft<Http, Judging<C, Y, K, R>, P>
where
    C: Slot<HttpClassifier>,
    Y: Slot<CloneRequest>,
    K: Slot<Authority>,
    R: Slot<ByMethod>,
    P: Slot<AnyBytes, Part: Progress>,
{
    type Service = HttpCall<S, C::Part, Y::Part, K::Part, R::Part, P::Part>;

    fn around(self, inner: S) -> Self::Service {
        let layer = self.policy().layer();
        let judging = self.judging;
        let layer = judging.classifier.classifier(layer);
        let layer = judging.copy.copy(layer);
        let layer = judging.key.key(layer);
        let layer = judging.repeatable.repeatable(layer);
        let layer = self.predicate.predicate(layer);
        let layer = match self.budget {
            Some(budget) => layer.budget(budget),
            None => layer,
        };
        self.heard.told(layer, HttpCallLayer::on_event).layer(inner)
    }
}

impl<S, C, Y, K, R> Assemble<S> for Draft<Any, Judging<C, Y, K, R>>
where
    C: Slot<ErrorClassifier>,
    Y: Slot<CloneRequest>,
    K: Slot<OneDependency>,
    R: Slot<AnyRequest>,
{
    type Service = Call<S, C::Part, Y::Part, K::Part, R::Part>;

    fn around(self, inner: S) -> Self::Service {
        let policy = self.policy();
        let judging = self.judging;
        let classifier = judging.classifier.or(ErrorClassifier);
        let layer = policy.layer_for(classifier, judging.copy.or(CloneRequest));
        let layer = judging.key.key_of_any(layer);
        let layer = judging.repeatable.repeatable_of_any(layer);
        let layer = match self.budget {
            Some(budget) => layer.budget(budget),
            None => layer,
        };
        self.heard.told(layer, CallLayer::on_event).layer(inner)
    }
}

//! The stand-in for the retry layer.

use std::marker::PhantomData;

use tower::Layer;
use tower_deadline::{Backoff, CallPolicy, Listener, PolicyError, RetryBudget};

use super::draft::{Any, Assemble, Draft, Http, Judging, Place};
use super::heard::Heard;
use super::parts::{Part, alone};
use super::slot::{Given, Kept};

/// Its numbers are those of a policy already.
#[derive(Clone)]
pub(crate) struct RetryLayer<C = Kept, Y = Kept, K = Kept, R = Kept, F = Http> {
    numbers: Numbers,
    judging: Judging<C, Y, K, R>,
    requests: PhantomData<F>,
}

#[derive(Clone)]
struct Numbers {
    attempts: u32,
    backoff: Backoff,
    /// One of the test's own; otherwise that of the policy, with the numbers of the default.
    budget: Option<RetryBudget>,
    unsafe_methods: bool,
    unprocessed: bool,
    defer_to_caller: bool,
    heard: Heard,
}

impl RetryLayer {
    pub(crate) fn http() -> Self {
        Self::with_defaults()
    }
}

impl RetryLayer<Kept, Kept, Kept, Kept, Any> {
    pub(crate) fn new() -> Self {
        Self::with_defaults()
    }
}

impl<F> RetryLayer<Kept, Kept, Kept, Kept, F> {
    fn with_defaults() -> Self {
        Self {
            numbers: Numbers {
                attempts: 3,
                backoff: Backoff::exponential(),
                budget: None,
                unsafe_methods: false,
                unprocessed: false,
                defer_to_caller: false,
                heard: Heard::default(),
            },
            judging: Judging::default(),
            requests: PhantomData,
        }
    }
}

impl<C, Y, K, R, F> RetryLayer<C, Y, K, R, F> {
    pub(crate) fn attempts(mut self, attempts: u32) -> Self {
        self.numbers.attempts = attempts;
        self
    }

    pub(crate) fn backoff(mut self, backoff: Backoff) -> Self {
        self.numbers.backoff = backoff;
        self
    }

    pub(crate) fn budget(mut self, budget: RetryBudget) -> Self {
        self.numbers.budget = Some(budget);
        self
    }

    pub(crate) fn retry_unsafe_methods(mut self, retry: bool) -> Self {
        self.numbers.unsafe_methods = retry;
        self
    }

    pub(crate) fn retry_unprocessed(mut self, retry: bool) -> Self {
        self.numbers.unprocessed = retry;
        self
    }

    pub(crate) fn defer_to_caller(mut self, defer: bool) -> Self {
        self.numbers.defer_to_caller = defer;
        self
    }

    pub(crate) fn on_event(mut self, listener: impl Listener + 'static) -> Self {
        self.numbers.heard.add(listener);
        self
    }

    pub(crate) fn classifier<D>(self, classifier: D) -> RetryLayer<Given<D>, Y, K, R, F> {
        self.exchange(|judging| Judging {
            classifier: Given(classifier),
            copy: judging.copy,
            key: judging.key,
            repeatable: judging.repeatable,
        })
    }

    pub(crate) fn copy<Z>(self, copy: Z) -> RetryLayer<C, Given<Z>, K, R, F> {
        self.exchange(|judging| Judging {
            classifier: judging.classifier,
            copy: Given(copy),
            key: judging.key,
            repeatable: judging.repeatable,
        })
    }

    pub(crate) fn key<L>(self, key: L) -> RetryLayer<C, Y, Given<L>, R, F> {
        self.exchange(|judging| Judging {
            classifier: judging.classifier,
            copy: judging.copy,
            key: Given(key),
            repeatable: judging.repeatable,
        })
    }

    fn exchange<D, Z, L, Q>(
        self,
        parts: impl FnOnce(Judging<C, Y, K, R>) -> Judging<D, Z, L, Q>,
    ) -> RetryLayer<D, Z, L, Q, F> {
        RetryLayer {
            numbers: self.numbers,
            judging: parts(self.judging),
            requests: PhantomData,
        }
    }

    pub(crate) fn validate(&self) -> Result<(), PolicyError> {
        self.numbers.set(CallPolicy::none()).validate()
    }
}

impl Numbers {
    fn set(&self, policy: CallPolicy) -> CallPolicy {
        policy
            .attempts(self.attempts)
            .backoff(self.backoff)
            .budget(0.1, 3)
            .retry_unsafe_methods(self.unsafe_methods)
            .retry_unprocessed(self.unprocessed)
            .defer_to_caller(self.defer_to_caller)
    }
}

impl<C, Y, K, R, F, G, P> Part<Draft<G, Judging, P>> for RetryLayer<C, Y, K, R, F> {
    type Draft = Draft<F, Judging<C, Y, K, R>, P>;

    fn add_to(self, draft: Draft<G, Judging, P>) -> Self::Draft {
        let mut draft = draft.after(Place::Retry, &self.numbers.heard);
        draft.policy = self.numbers.set(draft.policy);
        draft.budget = self.numbers.budget;
        draft.with(|_, predicate| (self.judging, predicate))
    }
}

alone!(RetryLayer<C, Y, K, R, F>);

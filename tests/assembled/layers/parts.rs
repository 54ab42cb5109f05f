//! Stand-ins for the layers, which note down what they are given.

use std::marker::PhantomData;
use std::time::Duration;

use tower::Layer;
use tower_deadline::{AttemptCeiling, Listener};

use super::draft::{Any, Assemble, Draft, Http, Place};
use super::heard::Heard;
use super::slot::{Given, Kept};

/// A stand-in, which adds to a draft what it has noted down.
pub(crate) trait Part<D> {
    type Draft;

    fn add_to(self, draft: D) -> Self::Draft;
}

/// A stand-in alone is a stack as well.
macro_rules! alone {
    ($($part:ident $(<$($of:ident),+>)?),+ $(,)?) => {
        $(impl<S $($(, $of)+)?> Layer<S> for $part $(<$($of),+>)?
        where
            Self: Part<Draft, Draft: Assemble<S>> + Clone,
        {
            type Service = <<Self as Part<Draft>>::Draft as Assemble<S>>::Service;

            fn layer(&self, inner: S) -> Self::Service {
                self.clone().add_to(Draft::new()).around(inner)
            }
        })+
    };
}
pub(super) use alone;

alone!(
    OverrideLayer,
    DeadlineLayer<F>,
    BoundReadinessLayer,
    DeadlineBodyLayer,
    AttemptTimeoutLayer<F>,
    BufferResponsesLayer,
    ProgressBoundLayer<P>,
);

/// What is common to those that have listeners.
macro_rules! listens {
    ($($part:ident $(<$of:ident>)?),+) => {
        $(impl $(<$of>)? $part $(<$of>)? {
            pub(crate) fn on_event(mut self, listener: impl Listener + 'static) -> Self {
                self.heard.add(listener);
                self
            }
        })+
    };
}

listens!(
    DeadlineLayer<F>,
    DeadlineBodyLayer,
    AttemptTimeoutLayer<F>,
    BufferResponsesLayer,
    ProgressBoundLayer<P>
);

/// Every stack of a policy has one, so there is nothing to note down.
#[derive(Clone)]
pub(crate) struct OverrideLayer;

impl OverrideLayer {
    pub(crate) const fn new() -> Self {
        Self
    }
}

impl<F, J, P> Part<Draft<F, J, P>> for OverrideLayer {
    type Draft = Draft<F, J, P>;

    fn add_to(self, draft: Draft<F, J, P>) -> Self::Draft {
        draft.after(Place::Override, &Heard::default())
    }
}

#[derive(Clone)]
pub(crate) struct DeadlineLayer<F> {
    bound: Option<Duration>,
    inherit: bool,
    heard: Heard,
    requests: PhantomData<F>,
}

impl<F> DeadlineLayer<F> {
    pub(crate) fn new(deadline: Duration) -> Self {
        Self {
            bound: Some(deadline),
            ..Self::unbounded()
        }
    }

    pub(crate) fn unbounded() -> Self {
        Self {
            bound: None,
            inherit: false,
            heard: Heard::default(),
            requests: PhantomData,
        }
    }

    pub(crate) fn inherit(mut self, inherit: bool) -> Self {
        self.inherit = inherit;
        self
    }
}

impl<F, G, J, P> Part<Draft<G, J, P>> for DeadlineLayer<F> {
    type Draft = Draft<F, J, P>;

    fn add_to(self, draft: Draft<G, J, P>) -> Self::Draft {
        let mut draft = draft.after(Place::Deadline, &self.heard);
        if let Some(deadline) = self.bound {
            draft.policy = draft.policy.deadline(deadline);
        }
        draft.policy = draft.policy.inherit(self.inherit);
        draft.for_requests_of()
    }
}

#[derive(Clone)]
pub(crate) struct BoundReadinessLayer;

impl BoundReadinessLayer {
    pub(crate) const fn new() -> Self {
        Self
    }
}

impl<F, J, P> Part<Draft<F, J, P>> for BoundReadinessLayer {
    type Draft = Draft<F, J, P>;

    fn add_to(self, draft: Draft<F, J, P>) -> Self::Draft {
        let mut draft = draft.after(Place::Readiness, &Heard::default());
        draft.policy = draft.policy.bound_readiness(true);
        draft
    }
}

#[derive(Clone, Default)]
pub(crate) struct DeadlineBodyLayer {
    heard: Heard,
}

impl DeadlineBodyLayer {
    pub(crate) fn new() -> Self {
        Self::default()
    }
}

impl<J, P> Part<Draft<Http, J, P>> for DeadlineBodyLayer {
    type Draft = Draft<Http, J, P>;

    fn add_to(self, draft: Draft<Http, J, P>) -> Self::Draft {
        let mut draft = draft.after(Place::Body, &self.heard);
        draft.policy = draft.policy.bound_body(true);
        draft
    }
}

/// Its classifier is that of the retry layer, and its key too.
#[derive(Clone)]
pub(crate) struct AttemptTimeoutLayer<F = Http> {
    timeout: Duration,
    ceiling: Option<AttemptCeiling>,
    heard: Heard,
    requests: PhantomData<F>,
}

impl AttemptTimeoutLayer<Http> {
    pub(crate) fn http(timeout: Duration) -> Self {
        Self::of(timeout)
    }
}

impl AttemptTimeoutLayer<Any> {
    pub(crate) fn new(timeout: Duration) -> Self {
        Self::of(timeout)
    }
}

impl<F> AttemptTimeoutLayer<F> {
    fn of(timeout: Duration) -> Self {
        Self {
            timeout,
            ceiling: None,
            heard: Heard::default(),
            requests: PhantomData,
        }
    }

    pub(crate) fn ceiling(mut self, ceiling: AttemptCeiling) -> Self {
        self.ceiling = Some(ceiling);
        self
    }
}

impl<F, G, J, P> Part<Draft<G, J, P>> for AttemptTimeoutLayer<F> {
    type Draft = Draft<F, J, P>;

    fn add_to(self, draft: Draft<G, J, P>) -> Self::Draft {
        let mut draft = draft.after(Place::Attempt, &self.heard);
        draft.attempt = Some(self.timeout);
        if let Some(ceiling) = self.ceiling {
            draft.policy = draft.policy.ceiling(ceiling);
        }
        draft.for_requests_of()
    }
}

#[derive(Clone)]
pub(crate) struct BufferResponsesLayer {
    max_bytes: Option<usize>,
    heard: Heard,
}

impl BufferResponsesLayer {
    pub(crate) fn new() -> Self {
        Self::on_request().max_bytes(2 * 1024 * 1024)
    }

    pub(crate) fn on_request() -> Self {
        Self {
            max_bytes: None,
            heard: Heard::default(),
        }
    }

    pub(crate) fn max_bytes(mut self, max_bytes: usize) -> Self {
        self.max_bytes = Some(max_bytes);
        self
    }
}

impl<J, P> Part<Draft<Http, J, P>> for BufferResponsesLayer {
    type Draft = Draft<Http, J, P>;

    fn add_to(self, draft: Draft<Http, J, P>) -> Self::Draft {
        let mut draft = draft.after(Place::Buffer, &self.heard);
        draft.policy = match self.max_bytes {
            Some(max_bytes) => draft.policy.buffer_responses(max_bytes),
            None => draft.policy.no_buffering(),
        };
        draft
    }
}

#[derive(Clone)]
pub(crate) struct ProgressBoundLayer<P = Kept> {
    gap: Option<Duration>,
    predicate: P,
    heard: Heard,
}

impl ProgressBoundLayer {
    pub(crate) fn new(gap: Duration) -> Self {
        Self {
            gap: Some(gap),
            ..Self::unbounded()
        }
    }

    pub(crate) fn unbounded() -> Self {
        Self {
            gap: None,
            predicate: Kept,
            heard: Heard::default(),
        }
    }

    pub(crate) fn progress_when<Q>(self, predicate: Q) -> ProgressBoundLayer<Given<Q>> {
        ProgressBoundLayer {
            gap: self.gap,
            predicate: Given(predicate),
            heard: self.heard,
        }
    }
}

impl<J, P> Part<Draft<Http, J>> for ProgressBoundLayer<P> {
    type Draft = Draft<Http, J, P>;

    fn add_to(self, draft: Draft<Http, J>) -> Self::Draft {
        let mut draft = draft.after(Place::Progress, &self.heard);
        draft.policy = draft.policy.bound_progress(true);
        draft.gap = self.gap;
        draft.with(|judging, _| (judging, self.predicate))
    }
}

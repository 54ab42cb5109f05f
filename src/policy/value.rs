//! The numbers of a call as one value.

use std::time::Duration;

use crate::attempt_timeout::AttemptCeiling;
use crate::hop::{HopHeaders, Sent};
use crate::retry::Backoff;

/// Everything that bounds a call, as one value that is checked when it compiles, that builds the whole
/// stack of layers in their one right order, and that can say how long a call takes at most.
///
/// | number | preset | |
/// | --- | --- | --- |
/// | [`deadline`](Self::deadline) | 30 s | the whole call, backoff included |
/// | [`attempt_timeout`](Self::attempt_timeout) | 10 s | one attempt, and one gap in the body that it returned |
/// | [`attempts`](Self::attempts) | 3 | the first included |
/// | [`backoff`](Self::backoff) | [`Backoff::exponential`] | 100 ms, 1 s after a throttled attempt; doubled; 30 s at most; full jitter |
/// | [`ceiling`](Self::ceiling) | [`AttemptCeiling::above(3.0)`](AttemptCeiling::above) | 3 × p95 of 5 minutes, from 20 samples, at least 50 ms |
/// | [`bound_progress`](Self::bound_progress) | on | bounds the gaps in the body by the attempt timeout |
/// | [`buffer_responses`](Self::buffer_responses) | off | reads the body inside the attempt |
/// | [`budget`](Self::budget) | 0.1 and 3/s | retries for each call that succeeds, and for each second |
/// | [`inherit`](Self::inherit) | off | a deadline that is offered binds too |
/// | [`bound_readiness`](Self::bound_readiness) | off | queueing counts against the deadline |
/// | [`bound_body`](Self::bound_body) | off | the deadline bounds the end of the body as well |
/// | [`retry_unsafe_methods`](Self::retry_unsafe_methods), [`retry_unprocessed`](Self::retry_unprocessed), [`defer_to_caller`](Self::defer_to_caller) | off | as on [`RetryLayer`](crate::RetryLayer) |
/// | [`mark_retries`](Self::mark_retries) | on | requests that may be sent again say so |
/// | [`propagate_deadline`](Self::propagate_deadline) | off; on for gRPC | each attempt says how long it is waited for |
/// | [`propagate_criticality`](Self::propagate_criticality) | off | each attempt says how much it matters |
/// | [`hop_headers`](Self::hop_headers) | [`HopHeaders::new`], [`HopHeaders::grpc`] | in which headers |
///
/// [`http`](Self::http) and [`grpc`](Self::grpc) are presets with these numbers, [`new`](Self::new) is the
/// one for any other kind of request, and [`none`](Self::none) bounds nothing. A policy is `Copy`: derive one from another by setting what differs.
///
/// ```
/// use std::time::Duration;
/// use tower_deadline::CallPolicy;
///
/// const API: CallPolicy = CallPolicy::http()
///     .deadline(Duration::from_secs(5))
///     .attempt_timeout(Duration::from_secs(2))
///     .checked();
/// const REPORTS: CallPolicy = API.deadline(Duration::from_secs(60)).checked();
///
/// println!("{}", REPORTS.explain());
/// let layer = API.layer(); // around a hyper-util client, say
/// # let _ = tower_layer::Layer::layer(&layer, ());
/// ```
///
/// # A number that is written out, and one of a preset
///
/// What is written out has to mean something, or the policy is refused. A preset's own number steps
/// aside instead, so that bounding a call more tightly, or not at all, never breaks a policy: with a
/// deadline of 5 s the preset's attempt timeout of 10 s does nothing for an attempt; with an attempt
/// timeout of 40 ms the preset's ceiling, whose floor is 50 ms, does nothing; without an attempt timeout
/// there is neither a measured ceiling nor a bound on the gaps. What is written out does not step aside for
/// a preset: an attempt timeout of a minute never ends an attempt within the preset's 30 s.
///
/// # Errors
///
/// [`checked`](Self::checked) makes a policy that is refused a compile error, and one whose attempt timeout
/// was written out above its deadline as well; [`validate`](Self::validate) returns what is refused at run
/// time, for a policy that comes from a file. [`layer`](Self::layer) takes any
/// policy: what is refused of it is reported through `tracing` as an error, once, and it is as harmless
/// as each of its layers.
#[derive(Debug, Clone, Copy, PartialEq)]
#[must_use]
#[allow(clippy::struct_excessive_bools)] // switches that have nothing to do with each other
pub struct CallPolicy {
    pub(super) deadline: Option<Duration>,
    pub(super) attempt_timeout: Option<Duration>,
    pub(super) attempts: u32,
    pub(super) backoff: Backoff,
    /// As configured; see [`ceiling_in_force`](Self::ceiling_in_force).
    ceiling: Option<AttemptCeiling>,
    bound_progress: bool,
    pub(super) buffering: Option<usize>,
    pub(super) budget: Option<BudgetTerms>,
    pub(super) inherit: bool,
    pub(super) bound_readiness: bool,
    pub(super) bound_body: bool,
    pub(super) retry_unsafe_methods: bool,
    pub(super) retry_unprocessed: bool,
    pub(super) defer_to_caller: bool,
    pub(super) sent: Sent,
    pub(super) written: Written,
}

/// The numbers of a retry budget, see [`RetryBudget`](crate::RetryBudget).
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct BudgetTerms {
    /// What a call that succeeds is worth, in retries.
    pub fraction: f64,
    /// What a second is worth, in retries.
    pub minimum_per_second: u32,
}

/// Which settings were written out, of those that can have no effect.
#[derive(Debug, Clone, Copy, PartialEq)]
#[allow(clippy::struct_excessive_bools)] // one for each setting
pub(super) struct Written {
    pub(super) attempt_timeout: bool,
    pub(super) backoff: bool,
    pub(super) ceiling: bool,
    pub(super) bound_progress: bool,
    pub(super) budget: bool,
    pub(super) mark_retries: bool,
    pub(super) hop_headers: bool,
}

impl CallPolicy {
    /// The preset, for any kind of request.
    pub const fn new() -> Self {
        Self {
            deadline: Some(Duration::from_secs(30)),
            attempt_timeout: Some(Duration::from_secs(10)),
            attempts: 3,
            backoff: Backoff::exponential(),
            ceiling: Some(AttemptCeiling::above(3.0)),
            bound_progress: true,
            buffering: None,
            budget: Some(BudgetTerms {
                fraction: 0.1,
                minimum_per_second: 3,
            }),
            inherit: false,
            bound_readiness: false,
            bound_body: false,
            retry_unsafe_methods: false,
            retry_unprocessed: false,
            defer_to_caller: false,
            sent: Sent::NOTHING,
            written: Written {
                attempt_timeout: false,
                backoff: false,
                ceiling: false,
                bound_progress: false,
                budget: false,
                mark_retries: false,
                hop_headers: false,
            },
        }
    }

    /// The preset for HTTP.
    pub const fn http() -> Self {
        let mut policy = Self::new();
        policy.sent.retry_marker = true;
        policy
    }

    /// The preset for gRPC: the deadline is sent, in `grpc-timeout`. See [`grpc_layer`](Self::grpc_layer)
    /// for the stack.
    pub const fn grpc() -> Self {
        let mut policy = Self::http();
        policy.sent.deadline = true;
        policy.sent.headers = HopHeaders::grpc();
        policy
    }

    /// Bounds nothing, repeats nothing, measures nothing, and costs next to nothing: a stack made
    /// from it hands each request straight to the inner service, unless a
    /// [`CallOverride`](crate::CallOverride) asks for something when it is called: one in the request's
    /// extensions, or one around the call. (One that is put around the future of a call that has been
    /// made, as it happens beneath a buffer, finds nothing in place that could obey it, which is reported.)
    pub const fn none() -> Self {
        Self {
            deadline: None,
            attempt_timeout: None,
            attempts: 1,
            ceiling: None,
            bound_progress: false,
            budget: None,
            ..Self::new()
        }
    }

    /// The bound on the whole call, from its `call` to the response head: every attempt, every
    /// backoff, every wait for readiness between attempts.
    pub const fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// No bound on the whole call. Enclosing deadlines, and with [`inherit`](Self::inherit) those that
    /// are offered, bind all the same.
    pub const fn no_deadline(mut self) -> Self {
        self.deadline = None;
        self
    }

    /// The bound on one attempt, from its `call` to the response head, and, with
    /// [`bound_progress`](Self::bound_progress), on each gap in the body.
    ///
    /// One that is longer than the deadline can never end an attempt. That is legal, is warned of
    /// once through `tracing`, and is refused by [`checked`](Self::checked).
    pub const fn attempt_timeout(mut self, timeout: Duration) -> Self {
        self.attempt_timeout = Some(timeout);
        self.written.attempt_timeout = true;
        self
    }

    /// No bound on one attempt but the deadline, nor on the gaps in the body. A measured ceiling that
    /// was written out binds all the same; that of a preset does not.
    pub const fn no_attempt_timeout(mut self) -> Self {
        self.attempt_timeout = None;
        self.written.attempt_timeout = false;
        self
    }

    /// How often a request is sent at most, the first time included.
    pub const fn attempts(mut self, attempts: u32) -> Self {
        self.attempts = attempts;
        self
    }

    /// How long to wait before each further attempt.
    pub const fn backoff(mut self, backoff: Backoff) -> Self {
        self.backoff = backoff;
        self.written.backoff = true;
        self
    }

    /// The ceiling on attempts that is measured from the dependency's own latency.
    pub const fn ceiling(mut self, ceiling: AttemptCeiling) -> Self {
        self.ceiling = Some(ceiling);
        self.written.ceiling = true;
        self
    }

    /// Nothing is measured: the attempt timeout is the bound, always.
    pub const fn no_ceiling(mut self) -> Self {
        self.ceiling = None;
        self.written.ceiling = false;
        self
    }

    /// Whether the gaps in a response body are bounded, by the attempt timeout; the measured ceiling
    /// has nothing to say of them.
    pub const fn bound_progress(mut self, bound: bool) -> Self {
        self.bound_progress = bound;
        self.written.bound_progress = bound;
        self
    }

    /// Reads response bodies of up to so many bytes inside the attempt, so that one that stalls or
    /// breaks off is a failed attempt; see [`BufferResponsesLayer`](crate::BufferResponsesLayer).
    pub const fn buffer_responses(mut self, max_bytes: usize) -> Self {
        self.buffering = Some(max_bytes);
        self
    }

    /// Hands response bodies over live.
    pub const fn no_buffering(mut self) -> Self {
        self.buffering = None;
        self
    }

    /// How many retries each dependency gets: `fraction` of the calls that succeed, in (0, 1], and
    /// `minimum_per_second` whatever happens. A budget that several stacks share is given to their
    /// layers instead.
    pub const fn budget(mut self, fraction: f64, minimum_per_second: u32) -> Self {
        self.budget = Some(BudgetTerms {
            fraction,
            minimum_per_second,
        });
        self.written.budget = true;
        self
    }

    /// No budget: a dependency that is down gets its load multiplied by the attempts.
    pub const fn no_budget(mut self) -> Self {
        self.budget = None;
        self.written.budget = false;
        self
    }

    /// Whether an offered deadline binds too: what [`call::with_deadline`](crate::call::with_deadline)
    /// or the caller of this service said that it would still wait.
    pub const fn inherit(mut self, inherit: bool) -> Self {
        self.inherit = inherit;
        self
    }

    /// Whether the wait for the inner service's readiness counts against the deadline, at the price of
    /// back-pressure; see [`BoundReadinessLayer`](crate::BoundReadinessLayer).
    pub const fn bound_readiness(mut self, bound: bool) -> Self {
        self.bound_readiness = bound;
        self
    }

    /// Whether the deadline bounds the end of the response body as well; see
    /// [`DeadlineBodyLayer`](crate::DeadlineBodyLayer).
    pub const fn bound_body(mut self, bound: bool) -> Self {
        self.bound_body = bound;
        self
    }

    /// Whether POST, PATCH and other methods that are not idempotent may be sent again too.
    pub const fn retry_unsafe_methods(mut self, retry: bool) -> Self {
        self.retry_unsafe_methods = retry;
        self
    }

    /// Whether a request of any method may be sent once more after an error that proves that it was
    /// not acted on.
    pub const fn retry_unprocessed(mut self, retry: bool) -> Self {
        self.retry_unprocessed = retry;
        self
    }

    /// Whether to make one attempt only inside a client that retries itself.
    pub const fn defer_to_caller(mut self, defer: bool) -> Self {
        self.defer_to_caller = defer;
        self
    }

    /// Whether each attempt tells the peer how long it is waited for; see
    /// [`PropagateLayer`](crate::PropagateLayer).
    pub const fn propagate_deadline(mut self, propagate: bool) -> Self {
        self.sent.deadline = propagate;
        self
    }

    /// Whether each attempt tells the peer how much it matters: [`call::criticality`](crate::call::criticality).
    pub const fn propagate_criticality(mut self, propagate: bool) -> Self {
        self.sent.criticality = propagate;
        self
    }

    /// Whether requests that may be sent again are marked as such, the first attempt included, so that
    /// a client further down can leave the retrying to this one.
    pub const fn mark_retries(mut self, mark: bool) -> Self {
        self.sent.retry_marker = mark;
        self.written.mark_retries = mark;
        self
    }

    /// The names of the headers in which all of that is sent.
    pub const fn hop_headers(mut self, headers: HopHeaders) -> Self {
        self.sent.headers = headers;
        self.written.hop_headers = true;
        self
    }

    /// The measured ceiling that applies: a preset's does not where there is no attempt timeout for it
    /// to lower (rule 14).
    pub(super) const fn ceiling_in_force(&self) -> Option<AttemptCeiling> {
        if self.attempt_timeout.is_none() && !self.written.ceiling {
            return None;
        }
        self.ceiling
    }

    /// The bound on a gap in the body: the attempt timeout as configured (rule 32).
    pub(super) const fn gap(&self) -> Option<Duration> {
        if self.bound_progress {
            self.attempt_timeout
        } else {
            None
        }
    }

    /// Whether the gaps are bounded as soon as there is an attempt timeout, by an override say.
    pub(super) const fn bounds_progress(&self) -> bool {
        self.bound_progress
    }

    /// Whether a stack of it has nothing to do.
    pub(super) const fn is_idle(&self) -> bool {
        self.deadline.is_none()
            && !self.inherit
            && self.attempt_timeout.is_none()
            && self.ceiling_in_force().is_none()
            && self.attempts <= 1
            && self.buffering.is_none()
            && !self.bound_readiness
            && !self.bound_body
            && self.sent.is_nothing()
    }
}

impl Default for CallPolicy {
    fn default() -> Self {
        Self::new()
    }
}

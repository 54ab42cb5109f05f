//! What the layers of one call know of each other.
//!
//! The scope has to work with any request type, so it travels beside the request: it is a
//! task-local, which a layer puts in place for the length of each poll of its inner future and of
//! its inner `call`, and takes back afterwards (see `pooled.rs`). Taking it back is why it is not a
//! `tokio::task_local!`: that one drops the value at the end of each poll.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::criticality::Criticality;
use super::host::Host;
use super::log::{Attempt, AttemptLog, Bound, DeadlineOrigin, Phase};
use super::overrides::CallOverride;
use super::pooled::with_current;
use crate::classify::Verdict;
use crate::error::{BoxError, DeadlineExceeded};
use crate::event::{EventKind, StopReason};
use crate::key::Key;

/// The facts of one call, and what is offered to the calls that begin beneath it.
#[derive(Debug)]
#[allow(clippy::struct_excessive_bools)] // facts that have nothing to do with each other
pub(crate) struct Scope {
    /// Whether a layer opened this scope for a call; without one only offers are in it.
    pub(crate) call: bool,

    /// The instant until which whoever asked for this work still waits.
    pub(crate) offered: Option<Instant>,
    /// Overrides for the next call that begins beneath.
    pub(crate) offered_overrides: Option<Arc<CallOverride>>,
    /// Whether this work was asked for by a client that retries.
    pub(crate) inside_retry: bool,

    /// How much this work matters.
    pub(crate) criticality: Criticality,

    /// Overrides for this call.
    pub(crate) overrides: Option<Arc<CallOverride>>,
    /// When the opener's `call` was invoked.
    pub(crate) started: Option<Instant>,
    /// The instant at which the call ends at the latest.
    pub(crate) deadline: Option<Instant>,
    pub(crate) origin: DeadlineOrigin,
    /// Whether a layer above, in this very task, will cut what is beneath at the deadline.
    pub(crate) enforced: bool,
    /// The instant until which an attempt timeout above waits for what is polled, where anybody asks
    /// for it; see `waiting.rs`.
    pub(crate) waited_until: Option<Instant>,

    /// The dependency that the call goes to, where a layer has noted it.
    pub(crate) key: Option<Key>,

    /// The attempt under way or last begun; 0 before the first.
    pub(crate) attempt: u32,
    pub(crate) attempt_started: Option<Instant>,
    /// The backoff before this attempt.
    pub(crate) delay: Duration,
    /// The effective ceiling of this attempt, once it has been computed.
    pub(crate) ceiling: Option<Ceiling>,
    /// The recent median latency of the dependency, where it is measured and warm.
    pub(crate) normal: Option<Duration>,
    pub(crate) phase: Phase,
    /// `attempt_started` was read in the chain of `call`s that is still running, so that a layer
    /// beneath need not read the clock again.
    pub(crate) fresh: bool,

    /// Whether a retry layer takes part in this call.
    pub(crate) retry: RetryPart,
    /// What is being polled is an attempt of a retry layer, and may be sent again.
    pub(crate) retrying: bool,
    /// An attempt timeout takes part in this call.
    pub(crate) attempt_bound: bool,
    /// This attempt's response was too large to buffer and is being handed over live.
    pub(crate) spilled: bool,
    /// The body is being read inside the attempt.
    pub(crate) buffering: bool,
    /// The opener has ended the call itself: what is dropped now was not abandoned by the caller.
    pub(crate) ended: bool,
    /// How the retry layer that took part last has ended.
    pub(crate) ending: Option<Ending>,
    /// Nothing, until an attempt fails.
    pub(crate) failures: Option<Box<Failures>>,

    /// The deadline's timer, for whoever is polled beneath it.
    pub(crate) host: Host,
}

/// Whether a retry layer takes part in a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RetryPart {
    None,
    /// One is at work.
    Active,
    /// One was, and has ended. Another one may join.
    Over,
}

/// How a retry layer ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ending {
    pub(crate) kind: EventKind,
    pub(crate) reason: StopReason,
    /// What it said of the last attempt, by a classifier of its own.
    pub(crate) verdict: Verdict,
    pub(crate) status: Option<u16>,
    /// It ended with an error.
    pub(crate) failed: bool,
    /// The call has gone on since.
    pub(crate) went_on: bool,
}

/// The effective ceiling of an attempt.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ceiling {
    pub(crate) value: (Duration, Bound),
    /// When the attempt timeout began that it is of.
    pub(crate) since: Instant,
}

/// What failed attempts leave behind.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    pub(crate) log: AttemptLog,
    /// The error of the last attempt that failed; none when it failed with a response.
    pub(crate) last_error: Option<BoxError>,
}

impl Scope {
    pub(crate) const EMPTY: Self = Self {
        call: false,
        offered: None,
        offered_overrides: None,
        inside_retry: false,
        criticality: Criticality::Critical,
        overrides: None,
        started: None,
        deadline: None,
        origin: DeadlineOrigin::Own,
        enforced: false,
        waited_until: None,
        key: None,
        attempt: 0,
        attempt_started: None,
        delay: Duration::ZERO,
        ceiling: None,
        normal: None,
        phase: Phase::Start,
        fresh: false,
        retry: RetryPart::None,
        retrying: false,
        attempt_bound: false,
        spilled: false,
        buffering: false,
        ended: false,
        ending: None,
        failures: None,
        host: Host::NONE,
    };

    /// Makes this the scope of a call that begins at `started`, inside nothing.
    #[inline]
    pub(super) fn begin(&mut self, started: Instant) {
        *self = Self {
            call: true,
            started: Some(started),
            attempt: 1,
            attempt_started: Some(started),
            phase: Phase::Attempt,
            ..Self::EMPTY
        };
    }

    /// Takes over what applies to a call inside `outer`.
    pub(crate) fn adopt(&mut self, outer: &Self) {
        self.offered = outer.offered;
        self.inside_retry = outer.inside_retry || outer.retrying;
        self.criticality = outer.criticality;
        self.overrides.clone_from(&outer.offered_overrides);
        self.deadline = outer.deadline;
        self.origin = DeadlineOrigin::Enclosing;
        self.enforced = outer.enforced;
        self.waited_until = outer.waited_until;
    }

    /// What a future takes with it into another task: the facts, and none of what belongs to the
    /// task it leaves.
    pub(crate) fn carried(&self) -> Self {
        Self {
            call: self.call,
            offered: self.offered,
            offered_overrides: self.offered_overrides.clone(),
            inside_retry: self.inside_retry,
            criticality: self.criticality,
            overrides: self.overrides.clone(),
            started: self.started,
            deadline: self.deadline,
            origin: self.origin,
            enforced: false,
            attempt: self.attempt,
            attempt_started: self.attempt_started,
            delay: self.delay,
            ceiling: self.ceiling,
            phase: self.phase,
            retry: self.retry,
            retrying: self.retrying,
            attempt_bound: self.attempt_bound,
            ..Self::EMPTY
        }
    }

    /// Whether there is nothing in it that a call beneath would have to know.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        !self.call
            && self.offered.is_none()
            && self.offered_overrides.is_none()
            && self.deadline.is_none()
            && !self.inside_retry
            && self.criticality == Criticality::Critical
    }

    /// Whether the deadline had passed before the call began.
    #[inline]
    pub(crate) fn never_begins(&self) -> bool {
        self.deadline.is_some() && self.deadline <= self.started
    }

    /// What is called now is called by the layers of this call themselves, in one go, and not by the code
    /// at their bottom.
    #[inline]
    pub(crate) fn in_stack(&self) -> bool {
        self.call && self.fresh
    }

    /// Drops what it holds of others.
    #[inline]
    pub(super) fn let_go(&mut self) {
        self.offered_overrides = None;
        self.overrides = None;
        self.failures = None;
    }

    /// A retry layer joins, where none is at work here, and finds nothing left of one before it.
    #[inline]
    pub(crate) fn join_as_retry(&mut self) -> bool {
        match self.retry {
            RetryPart::Active => return false,
            RetryPart::None => {}
            RetryPart::Over => {
                self.attempt = 0;
                self.ending = None;
                if let Some(failures) = &mut self.failures {
                    // Its error went with its end: see `Sending::end`.
                    failures.log = AttemptLog::default();
                }
            }
        }
        self.retry = RetryPart::Active;
        true
    }

    /// How the retry layer ended, where that is the end of a call that `failed` or did not: not when the
    /// call went on after it, nor when something above turned its result round.
    pub(crate) fn ending_of(&self, failed: bool) -> Option<Ending> {
        self.ending
            .filter(|ending| !ending.went_on && ending.failed == failed)
    }

    /// An attempt timeout shows its ceiling: the outermost of an attempt counts, which is the one that
    /// began first, and of several that began together the smallest.
    pub(crate) fn show_ceiling(&mut self, shown: Ceiling) {
        let order = |c: &Ceiling| (c.since, c.value.0);
        if self
            .ceiling
            .is_none_or(|before| order(&shown) < order(&before))
        {
            self.ceiling = Some(shown);
        }
    }

    /// Notes that an attempt has begun.
    #[inline]
    pub(crate) fn begin_attempt(&mut self, number: u32, now: Instant, delay: Duration) {
        self.attempt = number;
        self.attempt_started = Some(now);
        self.delay = delay;
        self.ceiling = None;
        self.phase = Phase::Attempt;
        self.spilled = false;
    }

    /// What is known of the attempt under way.
    pub(crate) fn attempt_entry(
        &self,
        verdict: Verdict,
        status: Option<u16>,
        now: Instant,
    ) -> Attempt {
        let started = self.attempt_started.unwrap_or(now);
        Attempt {
            number: self.attempt,
            verdict,
            duration: now.saturating_duration_since(started),
            delay: self.delay,
            ceiling: self.ceiling.map(|c| c.value),
            status,
        }
    }

    /// The error of a call that its deadline ended at `now`, with an attempt in flight as the last
    /// entry of its log.
    pub(crate) fn deadline_exceeded(&mut self, now: Instant) -> DeadlineExceeded {
        let started = self.started.unwrap_or(now);
        let mut failures = self.failures.take().map(|f| *f).unwrap_or_default();
        // Where the retry layer is done, and what is above it was not: the last attempt is no longer in
        // flight. One that succeeded at once was not worth an entry then.
        let noted = self.ending.is_some()
            && failures.log.last().map(|last| last.number) == Some(self.attempt);
        if self.phase == Phase::Attempt && self.attempt > 0 && !noted {
            let verdict = match self.ending {
                Some(ending) if ending.verdict == Verdict::Ok => Verdict::Ok,
                _ => Verdict::Transient,
            };
            failures
                .log
                .extend([self.attempt_entry(verdict, None, now)]);
        }
        DeadlineExceeded {
            deadline: self
                .deadline
                .map_or(Duration::MAX, |d| d.saturating_duration_since(started)),
            origin: self.origin,
            elapsed: now.saturating_duration_since(started),
            phase: self.phase,
            log: failures.log,
            source: failures.last_error,
        }
    }
}

/// Changes the scope of the call that this code runs in, if it runs in one. The same holds for `f` as
/// in [`with_current`].
pub(crate) fn with_call(f: impl FnOnce(&mut Scope)) {
    with_current(|scope| {
        if scope.call {
            f(scope);
        }
    });
}

/// The error of the call that this code runs in, which its deadline ended at `now`.
pub(crate) fn exceeded(now: Instant) -> DeadlineExceeded {
    with_current(|scope| Some(scope.deadline_exceeded(now))).unwrap_or_else(|| {
        let mut nothing_known = Scope::EMPTY;
        nothing_known.deadline_exceeded(now)
    })
}

/// A part of the current scope is exchanged, until this is dropped.
#[must_use = "the part is exchanged for as long as this lives"]
pub(crate) struct Refined<T>(T, fn(&mut Scope, &mut T));

impl<T> Drop for Refined<T> {
    fn drop(&mut self) {
        let Self(value, exchange) = self;
        with_current(|scope| exchange(scope, value));
    }
}

/// Exchanges a part of the current scope for `value`, for as long as the guard lives.
///
/// `exchange` swaps that part with its argument; it is called at both ends.
pub(crate) fn refine<T>(value: T, exchange: fn(&mut Scope, &mut T)) -> Refined<T> {
    let mut refined = Refined(value, exchange);
    with_current(|scope| exchange(scope, &mut refined.0));
    refined
}

//! A call's scope as the layer holds it that opened it, and the events that are its to raise.

use std::cell::RefCell;
use std::error::Error;
use std::mem;

use tokio::time::Instant;

use super::log::{AttemptLog, Phase};
use super::pooled::{Entered, Pooled, with_current};
use super::scope::{RetryPart, Scope, exceeded};
use crate::classify::Verdict;
use crate::error::{AttemptTimedOut, DeadlineExceeded, Ours, outermost};
use crate::event::{Event, EventKind, Listeners, StopReason};

thread_local! {
    static LAST_LOG: RefCell<Option<AttemptLog>> = const { RefCell::new(None) };
}

/// See [`crate::call::last_log`].
pub(super) fn last_log() -> Option<AttemptLog> {
    LAST_LOG
        .try_with(|last| last.borrow().clone())
        .unwrap_or_default()
}

pub(crate) fn keep_last_log(log: Option<AttemptLog>) {
    let _ = LAST_LOG.try_with(|last| {
        let mut last = last.borrow_mut();
        if log.is_some() || last.is_some() {
            *last = log;
        }
    });
}

/// The scope of a call, held by its opener between polls.
///
/// Dropped before the call has ended, it raises `Cancelled`.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) scope: Pooled,
    listeners: Listeners,
    finished: bool,
    /// What is around in `call` need not be what is around when the future is polled: a buffer above
    /// runs `call` on its worker, and a future can be made first and wrapped in an offer or an override
    /// afterwards. So the first poll looks again.
    polled: bool,
    /// There was no call to join in `call`; at the first poll there may be.
    may_join: bool,
}

/// What the opener of a call can say of its result when no retry layer has said more.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Judged<'a> {
    pub(crate) verdict: Verdict,
    pub(crate) status: Option<u16>,
    pub(crate) error: Option<&'a (dyn Error + 'static)>,
}

impl Opened {
    /// Opens a scope for a call that begins at `started`, inside whatever is around.
    #[inline]
    pub(crate) fn open(listeners: Listeners, started: Instant) -> Self {
        let mut scope = Pooled::any();
        scope.begin(started);
        with_current(|outer| {
            if !outer.is_empty() {
                scope.adopt(outer);
            }
        });
        Self {
            scope,
            listeners,
            finished: false,
            polled: false,
            may_join: false,
        }
    }

    /// To be called at each poll: takes over what is around at the first, and says whether it did.
    #[inline]
    pub(crate) fn settle(&mut self) -> bool {
        !mem::replace(&mut self.polled, true)
            && with_current(|outer| {
                if outer.is_empty() {
                    return false;
                }
                self.scope.adopt(outer);
                true
            })
    }

    /// The deadline was taken over from a call around. Its layer cuts what is beneath it only while
    /// this is polled there: a future can be moved to another task, or into another call.
    fn look_who_enforces(&mut self) {
        let scope = &mut self.scope;
        scope.enforced = scope.deadline.is_some()
            && with_current(|outer| outer.enforced && outer.deadline == scope.deadline);
    }

    #[inline]
    pub(crate) fn enter(&mut self) -> Entered<'_> {
        self.scope.enter()
    }

    /// Runs a drop of what is beneath. Where a call around has ended itself, this one ends with it.
    pub(crate) fn enter_drop(&mut self, f: impl FnOnce()) {
        self.scope.ended |= with_current(|outer| outer.ended);
        let _entered = self.scope.enter();
        f();
    }

    /// The inner future is pending: if a retry layer has ended beneath, the call goes on without it.
    #[inline]
    pub(crate) fn goes_on(&mut self) {
        if let Some(ending) = &mut self.scope.ending {
            ending.went_on = true;
        }
    }

    #[inline]
    pub(crate) fn is_finished(&self) -> bool {
        self.finished
    }

    /// Enters for a `call` of the inner service, whose layers may use the clock reading of this one.
    #[inline]
    pub(crate) fn enter_call(&mut self) -> (FreshClock, Entered<'_>) {
        let entered = self.scope.enter();
        (FreshClock::begin(), entered)
    }

    /// The inner future came to an end, and with it the call.
    #[inline]
    pub(crate) fn conclude(&mut self, judged: Judged<'_>) {
        self.finished = true;
        if judged.error.is_none() && self.listeners.is_empty() {
            keep_last_log(None);
            return;
        }
        self.conclude_aloud(judged);
    }

    /// Somebody listens, or there is an error to tell of.
    fn conclude_aloud(&mut self, judged: Judged<'_>) {
        let scope = &mut self.scope;
        let now = Instant::now();
        let mut log = scope.failures.take().unwrap_or_default().log;
        let ending = scope.ending_of(judged.error.is_some());
        // The retry layer has its own classifier, and knows better than whoever opened the call.
        let judged = ending.map_or(judged, |ending| Judged {
            verdict: ending.verdict,
            status: ending.status,
            ..judged
        });
        let (kind, stop) = match (ending, judged.error.and_then(outermost)) {
            (Some(ending), _) => (ending.kind, Some(ending.reason)),
            (None, Some(Ours::Exceeded(_))) => (EventKind::DeadlineExceeded, None),
            (None, _) if judged.verdict == Verdict::Ok => (EventKind::Succeeded, None),
            (None, _) if scope.phase == Phase::Readiness => {
                (EventKind::NotRetried, Some(StopReason::Readiness))
            }
            (None, _) => (EventKind::NotRetried, Some(StopReason::NoRetryLayer)),
        };
        // Where a retry layer takes part, an attempt that it did not end was cut above it: its event is
        // the retry layer's to raise, when it is dropped.
        if scope.phase == Phase::Attempt && scope.ending.is_none() {
            let entry = scope.attempt_entry(judged.verdict, judged.status, now);
            if scope.retry == RetryPart::None {
                self.listeners.raise(|| Event {
                    error: judged.error,
                    ..Event::attempt(&entry)
                });
            }
            log.extend([entry]);
        }
        // An error that ended the call inside its retry layer took the log along.
        let carried = match judged.error.and_then(outermost) {
            Some(Ours::Exceeded(e)) if scope.retry != RetryPart::None => Some(&e.log),
            Some(Ours::Refused(e)) if scope.retry != RetryPart::None => Some(&e.log),
            _ => None,
        };
        let log = carried.filter(|_| log.is_empty()).unwrap_or(&log);
        self.finish_with(kind, stop, judged, log, now);
    }

    /// The deadline is over: the error that says so, and the events that go with it.
    ///
    /// The inner future has been dropped, inside the scope, with `scope.ended` set.
    pub(crate) fn conclude_exceeded(&mut self, now: Instant) -> DeadlineExceeded {
        self.finished = true;
        let in_flight = self.scope.phase == Phase::Attempt && self.scope.retry == RetryPart::None;
        let stop = self.scope.ending_of(true).map(|ending| ending.reason);
        let error = self.scope.deadline_exceeded(now);
        if in_flight {
            if let Some(entry) = error.log.last() {
                self.listeners.raise(|| Event::attempt(entry));
            }
        }
        let judged = Judged {
            verdict: Verdict::Transient,
            status: None,
            error: Some(&error),
        };
        self.finish_with(EventKind::DeadlineExceeded, stop, judged, error.log(), now);
        error
    }

    fn finish_with(
        &self,
        kind: EventKind,
        stop: Option<StopReason>,
        judged: Judged<'_>,
        log: &AttemptLog,
        now: Instant,
    ) {
        if let Some(timed_out) = judged.error.and_then(|e| AttemptTimedOut::find(e)) {
            timed_out.attach(log);
        }
        keep_last_log(judged.error.map(|_| log.clone()));
        let scope = &self.scope;
        self.listeners.raise(|| Event {
            attempt: scope.attempt,
            verdict: Some(judged.verdict),
            status: judged.status,
            duration: scope.started.map(|s| now.saturating_duration_since(s)),
            stop,
            error: judged.error,
            log: Some(log),
            ..Event::new(kind)
        });
    }
}

impl Drop for Opened {
    #[inline]
    fn drop(&mut self) {
        if !self.finished && !self.listeners.is_empty() {
            self.abandoned();
        }
    }
}

impl Opened {
    /// It is dropped before the call has ended, and somebody listens.
    #[cold]
    fn abandoned(&self) {
        // Begun by a buffer's worker, and dropped before its first poll with the call that it would have
        // joined there: that one says what there is to say.
        if self.may_join && !self.polled && with_current(|outer| outer.call) {
            return;
        }
        // An enclosing call that ended itself drops what is beneath it. Where its deadline was this one's
        // too, that is no cancellation.
        let over = self.scope.deadline.is_some_and(|at| at <= Instant::now());
        let kind = if over && with_current(|outer| outer.ended) {
            EventKind::DeadlineExceeded
        } else {
            EventKind::Cancelled
        };
        let scope = &self.scope;
        let log = scope.failures.as_ref().map(|f| &f.log);
        self.listeners.raise(|| Event {
            attempt: scope.attempt,
            duration: scope
                .started
                .map(|s| Instant::now().saturating_duration_since(s)),
            log: Some(log.unwrap_or(AttemptLog::EMPTY)),
            ..Event::new(kind)
        });
    }
}

/// A `call` is being made, whose layers may use the clock reading of the one that makes it. A retry layer
/// among them may have marked what is called as an attempt; that ends with it.
#[derive(Debug)]
#[must_use = "the reading is fresh for as long as this lives"]
pub(crate) struct FreshClock {
    /// What is called was an attempt before, of a retry layer above.
    retrying: bool,
}

impl FreshClock {
    #[inline]
    pub(crate) fn begin() -> Self {
        Self {
            retrying: with_current(|scope| {
                scope.fresh = true;
                scope.retrying
            }),
        }
    }
}

/// Also when the call panics, and somebody above catches that.
impl Drop for FreshClock {
    #[inline]
    fn drop(&mut self) {
        with_current(|scope| {
            scope.fresh = false;
            scope.retrying = self.retrying;
        });
    }
}

/// How a layer that need not be the opener takes part in a call.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // boxing it would cost a layer that works alone an allocation a call
pub(crate) enum Membership {
    /// In a scope that a layer above has opened.
    Joined,
    /// In a scope of its own, since there was none that it could join.
    Own(Opened),
}

impl Membership {
    /// Opens a call, where there was none to take part in (then it may turn up later), or none that could
    /// be joined.
    pub(crate) fn open(listeners: &Listeners, started: Instant, may_join: bool) -> Self {
        let mut opened = Opened::open(listeners.clone(), started);
        opened.may_join = may_join;
        Self::Own(opened)
    }

    /// Looks, at each poll, whether the membership still is what it was in `call`: a buffer above
    /// runs `call` outside the scope, and a future may be polled in another task. Says whether it
    /// changed.
    #[inline]
    pub(crate) fn settle(
        &mut self,
        listeners: &Listeners,
        started: Instant,
        joins: impl FnOnce(&mut Scope) -> bool,
    ) -> bool {
        match self {
            Self::Joined if with_current(|scope| scope.call) => false,
            Self::Joined => {
                *self = Self::Own(Opened::open(listeners.clone(), started));
                true
            }
            Self::Own(opened) if opened.polled => {
                opened.look_who_enforces();
                false
            }
            Self::Own(opened) => {
                let own = &opened.scope;
                let joined = with_current(|scope| {
                    // What is beneath may have joined this scope in `call`, and goes along; but not
                    // beside another retry layer.
                    let both = own.retry == RetryPart::Active && scope.retry == RetryPart::Active;
                    let fits = scope.call && !both;
                    if !fits || !joins(scope) {
                        return false;
                    }
                    if own.retry != RetryPart::None {
                        scope.retry = own.retry;
                    }
                    true
                });
                if joined {
                    // Nothing has happened in it yet, so nothing is said of it.
                    opened.finished = true;
                    *self = Self::Joined;
                    true
                } else {
                    opened.settle()
                }
            }
        }
    }

    /// Looks at or changes the scope of the call. The same holds for `f` as in [`with_current`].
    #[inline]
    pub(crate) fn with<R: Default>(&mut self, f: impl FnOnce(&mut Scope) -> R) -> R {
        match self {
            Self::Joined => with_current(f),
            Self::Own(opened) => f(&mut opened.scope),
        }
    }

    /// Enters the scope of the call.
    #[inline]
    pub(crate) fn enter(&mut self) -> Option<Entered<'_>> {
        match self {
            Self::Joined => None,
            Self::Own(opened) => Some(opened.enter()),
        }
    }

    /// Runs a drop of what is beneath inside the scope of the call.
    pub(crate) fn enter_drop(&mut self, f: impl FnOnce()) {
        match self {
            Self::Joined => f(),
            Self::Own(opened) => opened.enter_drop(f),
        }
    }

    /// The error of a call that its deadline has ended, and the events that are this member's to
    /// raise.
    pub(crate) fn exceeded(&mut self, now: Instant) -> DeadlineExceeded {
        match self {
            Self::Own(opened) => opened.conclude_exceeded(now),
            Self::Joined => exceeded(now),
        }
    }
}

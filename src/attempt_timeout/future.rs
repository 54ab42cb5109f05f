//! The future that watches the clock of an attempt.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pin_project::{pin_project, pinned_drop};
use tokio::time::Instant;

use super::ceiling::{Effective, effective};
use crate::call::{
    self, Bound, Guest, Judged, Membership, Scope, Setting, refine, told_of_ceilings, waiting_until,
};
use crate::classify::{Classify, Verdict, verdict_of};
use crate::error::{AttemptStalled, AttemptTimedOut, BoxError};
use crate::event::{Event, EventKind, Listeners};
use crate::latency::{Estimate, Generation};
use crate::timer::Timer;

/// How long after its ceiling an attempt must come back to be called orphaned (rule 12).
const ORPHANED_AFTER: Duration = Duration::from_secs(1);

/// The future of [`AttemptTimeout`](super::AttemptTimeout).
#[pin_project(PinnedDrop, project = Projected)]
#[must_use = "futures do nothing unless polled"]
pub struct AttemptTimeoutFuture<F, C> {
    /// Gone once the attempt has ended.
    #[pin]
    pub(super) inner: Option<F>,
    /// Made at the first poll that ends pending, where no deadline above has one that serves.
    pub(super) timer: Timer,
    pub(super) guest: Guest,
    pub(super) started: Instant,
    /// Computed at the first poll that ends pending: an attempt that is answered at once needs none. Before
    /// that where peers are told of it.
    pub(super) ceiling: Ceiling,
    pub(super) call: Membership,
    pub(super) terms: Terms<C>,
}

/// What the future needs of its layer.
pub(super) struct Terms<C> {
    pub(super) timeout: Option<Duration>,
    pub(super) classifier: C,
    pub(super) listeners: Listeners,
    /// The estimate of the dependency, and the life of it that the attempt was begun under.
    pub(super) measuring: Option<(Generation, Arc<Estimate>)>,
}

impl<C> Terms<C> {
    /// Takes part in a call, which may have been told already by an attempt timeout above.
    pub(super) fn join(scope: &mut Scope, bounds: bool) -> bool {
        scope.attempt_bound |= bounds;
        true
    }

    fn bounds(&self) -> bool {
        self.timeout.is_some() || self.measuring.is_some()
    }
}

/// The effective ceiling of the attempt.
#[derive(Debug, Clone, Copy)]
pub(super) enum Ceiling {
    NotYet,
    Computed {
        /// `None` is no bound at all.
        found: Option<Effective>,
        /// The deadline that was in force then. An attempt that several calls share, or that goes
        /// from one to another, comes under another one.
        under: Option<Instant>,
        /// What the measured ceiling was then.
        measured: Option<Duration>,
    },
}

impl<F, C> fmt::Debug for AttemptTimeoutFuture<F, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AttemptTimeoutFuture")
            .field("started", &self.started)
            .field("ceiling", &self.ceiling)
            .finish_non_exhaustive()
    }
}

/// What is beneath is dropped inside the call that it belongs to, also when the caller leaves.
#[pinned_drop]
impl<F, C> PinnedDrop for AttemptTimeoutFuture<F, C> {
    fn drop(self: Pin<&mut Self>) {
        let mut this = self.project();
        if this.inner.is_some() {
            this.call.enter_drop(|| this.inner.set(None));
        }
    }
}

impl<F, C, Res, E> Future for AttemptTimeoutFuture<F, C>
where
    F: Future<Output = Result<Res, E>>,
    E: Into<BoxError>,
    C: Classify<Res>,
{
    type Output = Result<Res, BoxError>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        if this.inner.is_none() {
            return Poll::Pending;
        }
        let listeners = &this.terms.listeners;
        let bounds = this.terms.bounds();
        let joins = |scope: &mut Scope| Terms::<C>::join(scope, bounds);
        if this.call.settle(listeners, *this.started, joins) {
            if let Membership::Own(opened) = this.call {
                joins(&mut opened.scope);
            }
            *this.ceiling = Ceiling::NotYet;
        }

        // Who is beneath may have to tell the peer how long it is waited for (rule 37).
        let told = told_of_ceilings();
        let until = if told { this.until() } else { None };

        // Inner first, then the clock (rule 9).
        let entered = this.call.enter();
        let waiting = told.then(|| waiting_until(until));
        let polled = match this.inner.as_mut().as_pin_mut() {
            Some(inner) => inner.poll(cx),
            None => Poll::Pending, // never: see above
        };
        drop((waiting, entered));
        match polled {
            Poll::Pending => {}
            // A response is large: looked at where it is, and moved once.
            Poll::Ready(Ok(ref response)) => {
                this.ended(Ok(response));
                return polled.map_err(Into::into);
            }
            Poll::Ready(Err(error)) => {
                let error = error.into();
                if let Some(ceiling) = this.timed_out_by_a_stall(&error) {
                    return Poll::Ready(Err(this.timed_out(ceiling)));
                }
                this.ended(Err(&error));
                return Poll::Ready(Err(error));
            }
        }

        if let Membership::Own(opened) = this.call {
            opened.goes_on();
        }
        let (ceiling, enforced) = this.look();
        let Some(ceiling) = ceiling else {
            return Poll::Pending;
        };
        if ceiling.bound == Bound::Deadline && enforced {
            // The deadline's own layer ends the call, and has a better error to end it with. It does
            // so in this very poll when the time is over, so nothing is reported twice.
            if !this.terms.listeners.is_empty() {
                this.report_if_orphaned(Some(ceiling), Instant::now());
            }
            return Poll::Pending;
        }
        ready!(this.timer.poll_until_hosted(this.guest, ceiling.at, cx));
        Poll::Ready(Err(this.timed_out(ceiling)))
    }
}

impl<F, C> Projected<'_, F, C> {
    /// The inner future is ready with `result`.
    #[inline]
    fn ended<Res>(&mut self, result: Result<&Res, &BoxError>)
    where
        C: Classify<Res>,
    {
        let entered = self.call.enter();
        self.inner.set(None);
        drop(entered);
        self.timer.clear();
        self.guest.sign_off();
        if !self.terms.listeners.is_empty() || self.terms.measuring.is_some() {
            let now = Instant::now();
            // Most are so quick that it need not be known how long they might have taken.
            let ceiling = if self.terms.listeners.is_empty() && self.surely_in_time(now) {
                None
            } else {
                self.ceiling()
            };
            self.report_if_orphaned(ceiling, now);
            self.measure(result, ceiling, now);
        }
        if let Membership::Own(opened) = self.call {
            opened.conclude(judge(&self.terms.classifier, result));
        }
    }

    /// Whether the attempt has ended below any ceiling it can have: the smaller of the attempt timeout and
    /// the floor of the measured one, and before the deadline.
    fn surely_in_time(&mut self, now: Instant) -> bool {
        let latency = now.saturating_duration_since(*self.started);
        let measuring = self.terms.measuring.as_ref();
        let floor = measuring.map_or(Duration::MAX, |(_, estimate)| estimate.floor());
        latency < floor
            && self.terms.timeout.is_none_or(|timeout| latency < timeout)
            && self
                .call
                .with(|scope| scope.overrides.is_none() && scope.deadline.is_none_or(|at| now < at))
    }

    fn measure<Res>(
        &mut self,
        result: Result<&Res, &BoxError>,
        ceiling: Option<Effective>,
        now: Instant,
    ) where
        C: Classify<Res>,
    {
        let Some((generation, estimate)) = &self.terms.measuring else {
            return;
        };
        let ok = verdict_of(&self.terms.classifier, result) == Verdict::Ok;
        // What came after its ceiling is returned, and is no sample (rule 9).
        if ok && ceiling.is_none_or(|ceiling| now <= ceiling.at) {
            let latency = now.saturating_duration_since(*self.started);
            estimate.record(latency, *generation, now);
        } else {
            estimate.record_other();
        }
        if !ok {
            self.call.with(|scope| scope.normal = estimate.median(now));
        }
    }

    /// The ceiling of an attempt whose buffered body stalled when the attempt's own time was over as
    /// well: with equal bounds it is the attempt that timed out (rule 34).
    fn timed_out_by_a_stall(&mut self, error: &BoxError) -> Option<Effective> {
        let stalled = error.is::<AttemptStalled>();
        let ceiling = stalled.then(|| self.ceiling()).flatten()?;
        (ceiling.bound != Bound::Deadline && Instant::now() >= ceiling.at).then_some(ceiling)
    }

    /// The ceiling has been reached.
    fn timed_out(&mut self, ceiling: Effective) -> BoxError {
        let now = Instant::now();
        // What is beneath is cut, and not abandoned by its caller. The call around goes on.
        let exchange =
            |scope: &mut Scope, ended: &mut bool| std::mem::swap(&mut scope.ended, ended);
        let entered = self.call.enter();
        let ended = refine(true, exchange);
        self.inner.set(None);
        drop((ended, entered));
        self.timer.clear();
        self.report_if_orphaned(Some(ceiling), now);
        self.measure_cut(ceiling, now);

        if ceiling.bound == Bound::Deadline {
            // Nobody above in this task would end it: this one was carried here.
            return self.call.exceeded(now).into();
        }
        let timed_out: BoxError = Box::new(AttemptTimedOut {
            ceiling: ceiling.ceiling,
            bound: ceiling.bound,
            elapsed: now.saturating_duration_since(*self.started),
            log: OnceLock::new(),
        });
        if let Membership::Own(opened) = self.call {
            opened.conclude(Judged {
                verdict: Verdict::Transient,
                status: None,
                error: Some(&*timed_out),
            });
        }
        timed_out
    }

    fn measure_cut(&mut self, ceiling: Effective, now: Instant) {
        let Some((generation, estimate)) = &self.terms.measuring else {
            return;
        };
        if ceiling.bound != Bound::Measured {
            estimate.record_other();
        } else if estimate.record_cut(*generation, now) {
            let attempt = self.call.with(|scope| scope.attempt);
            self.terms.listeners.raise(|| Event {
                attempt,
                ceiling: Some((ceiling.ceiling, ceiling.bound)),
                ..Event::new(EventKind::CeilingSuspended)
            });
        }
        self.call.with(|scope| scope.normal = estimate.median(now));
    }

    fn ceiling(&mut self) -> Option<Effective> {
        self.look().0
    }

    /// When the attempt ends at the latest.
    #[cold]
    fn until(&mut self) -> Option<Instant> {
        self.ceiling().map(|ceiling| ceiling.at)
    }

    /// The effective ceiling, computed once for each deadline that the attempt comes under, and shown
    /// to the other layers of the call; and whether a layer above enforces that deadline.
    fn look(&mut self) -> (Option<Effective>, bool) {
        let (terms, started, before) = (&self.terms, *self.started, *self.ceiling);
        let measured = match before {
            Ceiling::NotYet => {
                let measured = terms.measuring.as_ref();
                measured.and_then(|(_, estimate)| estimate.ceiling(started))
            }
            Ceiling::Computed { measured, .. } => measured,
        };
        let (found, under, enforced) = self.call.with(|scope| {
            let deadline = scope.deadline;
            match before {
                Ceiling::Computed { found, under, .. } if under == deadline => {
                    return (found, deadline, scope.enforced);
                }
                Ceiling::Computed { .. } | Ceiling::NotYet => {}
            }
            let overriding = scope
                .overrides
                .as_ref()
                .map_or(Setting::Inherit, |o| o.attempt_timeout);
            let timeout = overriding.over(terms.timeout);
            // A call that says how long its attempts may take is not one of those that were measured.
            let measured = measured.filter(|_| overriding == Setting::Inherit);
            let found = effective(started, timeout, measured, deadline);
            if let Some(e) = found {
                scope.show_ceiling(call::Ceiling {
                    value: (e.ceiling, e.bound),
                    since: started,
                });
            }
            (found, deadline, scope.enforced)
        });
        *self.ceiling = Ceiling::Computed {
            found,
            under,
            measured,
        };
        (found, enforced)
    }

    fn report_if_orphaned(&mut self, ceiling: Option<Effective>, now: Instant) {
        let Some(ceiling) = ceiling else { return };
        if now.saturating_duration_since(ceiling.at) > ORPHANED_AFTER {
            let attempt = self.call.with(|scope| scope.attempt);
            let started = *self.started;
            self.terms.listeners.raise(|| Event {
                attempt,
                duration: Some(now.saturating_duration_since(started)),
                ceiling: Some((ceiling.ceiling, ceiling.bound)),
                ..Event::new(EventKind::OrphanedWork)
            });
        }
    }
}

fn judge<'a, Res>(
    classifier: &impl Classify<Res>,
    result: Result<&'a Res, &'a BoxError>,
) -> Judged<'a> {
    Judged {
        verdict: verdict_of(classifier, result),
        status: result.ok().and_then(|r| classifier.status(r)),
        error: result.err().map(|e| &**e as _),
    }
}

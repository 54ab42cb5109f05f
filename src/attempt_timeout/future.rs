//! The future that watches the clock of an attempt.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use pin_project::pin_project;
use tokio::time::{Instant, Sleep};

use super::ceiling::{Effective, effective};
use crate::call::{Bound, Claim, Judged, Membership};
use crate::classify::{Classify, Verdict, verdict_of};
use crate::error::{AttemptTimedOut, BoxError};
use crate::event::{Event, EventKind, Listeners};
use crate::latency::{Estimate, Generation};
use crate::timer;

/// How long after its ceiling an attempt must come back to be called orphaned (rule 12).
const ORPHANED_AFTER: Duration = Duration::from_secs(1);

/// The future of [`AttemptTimeout`](super::AttemptTimeout).
#[pin_project]
#[must_use = "futures do nothing unless polled"]
pub struct AttemptTimeoutFuture<F, C> {
    /// Gone once the attempt has ended.
    #[pin]
    inner: Option<F>,
    /// Made at the first poll that ends pending.
    #[pin]
    timer: Option<Sleep>,
    claim: Claim,
    started: Instant,
    /// Computed at the first poll that ends pending: an attempt that is answered at once needs none.
    ceiling: Ceiling,
    call: Membership,
    terms: Terms<C>,
}

/// What the future needs of its layer.
pub(super) struct Terms<C> {
    pub(super) timeout: Option<Duration>,
    pub(super) classifier: C,
    pub(super) listeners: Listeners,
    /// The estimate of the dependency, and the life of it that the attempt was begun under.
    pub(super) measuring: Option<(Generation, Arc<Estimate>)>,
}

/// The effective ceiling of the attempt.
#[derive(Debug, Clone, Copy)]
enum Ceiling {
    NotYet,
    /// `None` is no bound at all.
    Computed(Option<Effective>),
}

impl<F, C> AttemptTimeoutFuture<F, C> {
    pub(super) fn new(inner: F, call: Membership, started: Instant, terms: Terms<C>) -> Self {
        Self {
            inner: Some(inner),
            timer: None,
            claim: Claim::default(),
            started,
            ceiling: Ceiling::NotYet,
            call,
            terms,
        }
    }
}

impl<F, C> fmt::Debug for AttemptTimeoutFuture<F, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AttemptTimeoutFuture")
            .field("started", &self.started)
            .field("ceiling", &self.ceiling)
            .finish_non_exhaustive()
    }
}

impl<F, C, Res, E> Future for AttemptTimeoutFuture<F, C>
where
    F: Future<Output = Result<Res, E>>,
    E: Into<BoxError>,
    C: Classify<Res>,
{
    type Output = Result<Res, BoxError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let listeners = &this.terms.listeners;
        let Some(inner) = this.inner.as_mut().as_pin_mut() else {
            return Poll::Pending;
        };
        if this.call.settle(listeners, *this.started, |_| true) {
            *this.ceiling = Ceiling::NotYet;
        }

        // Inner first, then the clock (rule 9).
        let polled = this.call.enter(|| inner.poll(cx));
        if let Poll::Ready(result) = polled {
            this.claim.withdraw();
            this.call.enter(|| this.inner.set(None));
            this.timer.set(None);
            let result = result.map_err(Into::into);
            if !listeners.is_empty() || this.terms.measuring.is_some() {
                let now = Instant::now();
                let ceiling = ceiling_of(this.ceiling, this.call, *this.started, this.terms);
                report_if_orphaned(listeners, this.call, *this.started, ceiling, now);
                if let Some((generation, estimate)) = &this.terms.measuring {
                    let verdict = verdict_of(&this.terms.classifier, &result);
                    let in_time = ceiling.is_none_or(|ceiling| now <= ceiling.at);
                    if verdict == Verdict::Ok && in_time {
                        let latency = now.saturating_duration_since(*this.started);
                        estimate.record(latency, *generation, now);
                    } else {
                        estimate.record_other();
                    }
                    if verdict != Verdict::Ok {
                        this.call.with(|scope| scope.normal = estimate.median(now));
                    }
                }
            }
            if let Membership::Own(opened) = this.call {
                opened.conclude(judge(&this.terms.classifier, &result));
            }
            return Poll::Ready(result);
        }

        let Some(ceiling) = ceiling_of(this.ceiling, this.call, *this.started, this.terms) else {
            return Poll::Pending;
        };
        if ceiling.bound == Bound::Deadline && this.call.with(|scope| scope.enforced) {
            // The deadline's own layer ends the call, and has a better error to end it with.
            return Poll::Pending;
        }
        if timer::poll_until(this.timer.as_mut(), ceiling.at, cx).is_pending() {
            this.claim.make();
            return Poll::Pending;
        }

        let now = Instant::now();
        this.claim.withdraw();
        if let Membership::Own(opened) = this.call {
            opened.scope.ended = true;
        }
        this.call.enter(|| this.inner.set(None));
        this.timer.set(None);
        report_if_orphaned(listeners, this.call, *this.started, Some(ceiling), now);
        if let Some((generation, estimate)) = &this.terms.measuring {
            if ceiling.bound != Bound::Measured {
                estimate.record_other();
            } else if estimate.record_cut(*generation, now) {
                let attempt = this.call.with(|scope| scope.attempt);
                listeners.raise(|| Event {
                    attempt,
                    ceiling: Some((ceiling.ceiling, ceiling.bound)),
                    ..Event::new(EventKind::CeilingSuspended)
                });
            }
            this.call.with(|scope| scope.normal = estimate.median(now));
        }

        if ceiling.bound == Bound::Deadline {
            // Nobody above in this task would end it: this one was carried here.
            return Poll::Ready(Err(this.call.exceeded(now).into()));
        }
        let timed_out: BoxError = Box::new(AttemptTimedOut {
            ceiling: ceiling.ceiling,
            bound: ceiling.bound,
            elapsed: now.saturating_duration_since(*this.started),
            log: OnceLock::new(),
        });
        if let Membership::Own(opened) = this.call {
            opened.conclude(Judged {
                verdict: Verdict::Transient,
                status: None,
                error: Some(&*timed_out),
            });
        }
        Poll::Ready(Err(timed_out))
    }
}

/// The effective ceiling, computed once and shown to the other layers of the call.
fn ceiling_of<C>(
    known: &mut Ceiling,
    call: &mut Membership,
    started: Instant,
    terms: &Terms<C>,
) -> Option<Effective> {
    if let Ceiling::Computed(known) = *known {
        return known;
    }
    let measured = terms.measuring.as_ref();
    let measured = measured.and_then(|(_, estimate)| estimate.ceiling(started));
    let found = call.with(|scope| {
        let timeout = match &scope.overrides {
            None => terms.timeout,
            Some(overrides) => overrides.attempt_timeout.over(terms.timeout),
        };
        let found = effective(started, timeout, measured, scope.deadline);
        scope.ceiling = found.map(|e| (e.ceiling, e.bound));
        found
    });
    *known = Ceiling::Computed(found);
    found
}

fn report_if_orphaned(
    listeners: &Listeners,
    call: &mut Membership,
    started: Instant,
    ceiling: Option<Effective>,
    now: Instant,
) {
    let Some(ceiling) = ceiling else { return };
    if now.saturating_duration_since(ceiling.at) > ORPHANED_AFTER {
        let attempt = call.with(|scope| scope.attempt);
        listeners.raise(|| Event {
            attempt,
            duration: Some(now.saturating_duration_since(started)),
            ceiling: Some((ceiling.ceiling, ceiling.bound)),
            ..Event::new(EventKind::OrphanedWork)
        });
    }
}

fn judge<'a, Res>(
    classifier: &impl Classify<Res>,
    result: &'a Result<Res, BoxError>,
) -> Judged<'a> {
    Judged {
        verdict: verdict_of(classifier, result),
        status: result.as_ref().ok().and_then(|r| classifier.status(r)),
        error: result.as_ref().err().map(|e| &**e as _),
    }
}

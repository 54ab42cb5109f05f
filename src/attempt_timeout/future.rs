//! The future that watches the clock of an attempt.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::OnceLock;
use std::task::{Context, Poll};
use std::time::Duration;

use pin_project::pin_project;
use tokio::time::{Instant, Sleep};

use super::ceiling::{Effective, effective};
use super::layer::AttemptTimeoutLayer;
use crate::call::{Bound, Claim, Judged, Membership};
use crate::classify::{Classify, Verdict, verdict_of};
use crate::error::{AttemptTimedOut, BoxError};
use crate::event::{Event, EventKind, Listeners};
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
    config: AttemptTimeoutLayer<C>,
}

/// The effective ceiling of the attempt.
#[derive(Debug, Clone, Copy)]
enum Ceiling {
    NotYet,
    /// `None` is no bound at all.
    Computed(Option<Effective>),
}

impl<F, C> AttemptTimeoutFuture<F, C> {
    pub(super) fn new(
        inner: F,
        call: Membership,
        started: Instant,
        config: AttemptTimeoutLayer<C>,
    ) -> Self {
        Self {
            inner: Some(inner),
            timer: None,
            claim: Claim::default(),
            started,
            ceiling: Ceiling::NotYet,
            call,
            config,
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
        let listeners = &this.config.listeners;
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
            if !listeners.is_empty() {
                let ceiling = ceiling_of(this.ceiling, this.call, *this.started, this.config);
                report_if_orphaned(listeners, this.call, *this.started, ceiling, Instant::now());
            }
            if let Membership::Own(opened) = this.call {
                opened.conclude(judge(&this.config.classifier, &result));
            }
            return Poll::Ready(result);
        }

        let Some(ceiling) = ceiling_of(this.ceiling, this.call, *this.started, this.config) else {
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
    config: &AttemptTimeoutLayer<C>,
) -> Option<Effective> {
    if let Ceiling::Computed(known) = *known {
        return known;
    }
    let found = call.with(|scope| {
        let timeout = match &scope.overrides {
            None => config.timeout,
            Some(overrides) => overrides.attempt_timeout.over(config.timeout),
        };
        let found = effective(started, timeout, scope.deadline);
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

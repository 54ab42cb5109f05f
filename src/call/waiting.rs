//! How long an answer is waited for, for a layer that tells the peer.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::time::Instant;

use super::log::{DeadlineOrigin, Phase};
use super::pooled::with_current;
use super::scope::{Refined, Scope, exceeded, refine};
use crate::deadline::earlier;
use crate::error::DeadlineExceeded;

/// Whether any service of this process tells its peers how long they are waited for. Until one does,
/// attempt timeouts have nothing to say, and a call that is answered at once needs no ceiling.
static TOLD: AtomicBool = AtomicBool::new(false);

/// A service has been made that tells its peers.
pub(crate) fn tell_of_ceilings() {
    TOLD.store(true, Ordering::Relaxed);
}

/// Whether there is one.
#[inline]
pub(crate) fn told_of_ceilings() -> bool {
    TOLD.load(Ordering::Relaxed)
}

/// Says that what is polled is waited for until `at` and no longer, for as long as the guard lives.
pub(crate) fn waiting_until(at: Option<Instant>) -> Refined<Option<Instant>> {
    let at = with_current(|scope| earlier(scope.waited_until, at));
    refine(at, |scope, at| std::mem::swap(&mut scope.waited_until, at))
}

/// Until when an answer is waited for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Waited {
    pub(crate) until: Instant,
    /// Nobody here cuts it: it is what was offered.
    pub(crate) offered: bool,
}

/// Until when an answer to what is sent now is waited for: the effective ceiling of the attempt, where
/// there is one, else what is offered.
pub(crate) fn waited_for() -> Option<Waited> {
    with_current(|scope| {
        let own = earlier(scope.waited_until, scope.deadline);
        own.or(scope.offered).map(|until| Waited {
            until,
            offered: own.is_none(),
        })
    })
}

impl Waited {
    /// Whether a layer above, in this very poll, holds a clock that ends it by then.
    pub(crate) fn is_watched_above(self) -> bool {
        with_current(|scope| {
            let deadline = scope.deadline.filter(|_| scope.enforced);
            earlier(scope.waited_until, deadline).is_some_and(|at| at <= self.until)
        })
    }

    /// The error of a call that was not sent, or not waited for any longer, at `now`, where no layer
    /// above has ended it.
    pub(crate) fn exceeded(self, now: Instant) -> DeadlineExceeded {
        if self.offered {
            let mut of_offer = Scope::EMPTY;
            of_offer.started = Some(now);
            of_offer.deadline = Some(self.until);
            of_offer.origin = DeadlineOrigin::Inherited;
            of_offer.phase = Phase::Start;
            return of_offer.deadline_exceeded(now);
        }
        exceeded(now)
    }
}

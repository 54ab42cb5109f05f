//! "I hold a timer no later than the deadline."
//!
//! One timer serves both clocks while an attempt runs. A future beneath the deadline that returns
//! pending, with its own timer registered under the waker of that poll, claims so in the scope; the
//! deadline then needs none of its own. The deadline clears the claim before it polls inward, so it
//! is made anew in each poll, and a child that was not polled has made none.
//!
//! A claim must not outlive the future that made it. Futures are dropped anywhere, also under
//! another scope than the one they were polled in, so a withdrawal does not look for its claim: it
//! moves a counter of the thread, and a claim counts only while the counter stands where it stood
//! when the claim was made. That can only err on the safe side, a timer too many.

use std::cell::Cell;

use super::scope::with_call;

thread_local! {
    static WITHDRAWALS: Cell<u64> = const { Cell::new(1) };
}

/// Where the counter stood when a claim was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark(u64);

impl Mark {
    pub(crate) const NONE: Self = Self(0);

    /// Whether there is a claim and nothing has been withdrawn since.
    pub(crate) fn holds(self) -> bool {
        self == now()
    }
}

fn now() -> Mark {
    // A `Cell` of an integer has no destructor: the thread-local is there as long as the thread.
    Mark(WITHDRAWALS.with(Cell::get))
}

/// A future's claim. Dropping it withdraws it.
#[derive(Debug, Default)]
pub(crate) struct Claim {
    made: bool,
}

impl Claim {
    /// Claims for the poll under way.
    pub(crate) fn make(&mut self) {
        self.made = true;
        with_call(|scope| scope.claim = now());
    }

    pub(crate) fn withdraw(&mut self) {
        if self.made {
            self.made = false;
            WITHDRAWALS.with(|w| w.set(w.get().wrapping_add(1).max(1)));
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.withdraw();
    }
}

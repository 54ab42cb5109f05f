//! One timer for both clocks.
//!
//! While a call with a deadline is under way, its deadline holds a timer in any case. A future beneath
//! that has an earlier instant to wait for asks the deadline to set that timer to it, rather than
//! register one of its own: the task is woken all the same.
//!
//! That holds only where "the task" is the same. A combinator such as `FuturesUnordered` hands a waker
//! of its own to its children and polls a child only when that one was called, and a future may be
//! moved to another task; so the deadline notes which waker it was polled with, and only a future that
//! is polled with that very waker may ask. What was asked for stays set until it has come, also when
//! the future that asked is not polled again or is dropped: the worst that can happen is a wake-up too
//! many, and the deadline itself never depends on anybody.

use std::task::Waker;

use tokio::time::Instant;

/// Which waker a poll was made with. An address, not a pointer: it is only compared, and only while
/// the poll, and with it the waker, lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct WakerId {
    data: usize,
    vtable: usize,
}

impl WakerId {
    fn of(waker: &Waker) -> Self {
        Self {
            data: waker.data().addr(),
            vtable: std::ptr::from_ref(waker.vtable()).addr(),
        }
    }
}

/// What passes between a deadline and the futures beneath it, in one poll.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Host {
    waker: Option<WakerId>,
    asked: Option<Instant>,
    /// The clock, as the last that asked read it.
    read: Option<Instant>,
}

impl Host {
    /// Nobody who could be asked.
    pub(crate) const NONE: Self = Self {
        waker: None,
        asked: None,
        read: None,
    };

    /// A deadline that is being polled with `waker`.
    pub(crate) fn polled_with(waker: &Waker) -> Self {
        Self {
            waker: Some(WakerId::of(waker)),
            ..Self::NONE
        }
    }

    /// Asks for a wake-up at `at`, for a future that is polled with `waker` at `now`. Whether it was
    /// granted; otherwise the future needs a timer of its own.
    pub(crate) fn ask(&mut self, waker: &Waker, at: Instant, now: Instant) -> bool {
        if self.waker != Some(WakerId::of(waker)) {
            return false;
        }
        self.asked = Some(self.asked.map_or(at, |asked| asked.min(at)));
        self.read = Some(now);
        true
    }

    /// The earliest instant that was asked for.
    pub(crate) fn asked(&self) -> Option<Instant> {
        self.asked
    }

    /// The clock: as somebody has just read it, or read now.
    pub(crate) fn now(&self) -> Instant {
        self.read.unwrap_or_else(Instant::now)
    }
}

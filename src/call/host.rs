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
//! the future that asked is not polled again: the worst that can happen is a wake-up too many, and the
//! deadline itself never depends on anybody.
//!
//! And it holds only while the deadline is there. A future that asked and lives on elsewhere in the task
//! when the call ends, or is dropped, has to be polled again, to find another timer. So the deadline
//! counts those that asked, they sign off when they end, and if one is left the task is woken. An
//! error in that count, from a future that signs off somewhere else, is a wake-up too many again.

use std::cell::Cell;
use std::task::Waker;

use tokio::time::Instant;

use super::pooled::with_current;

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

/// Tells one deadline from another on a thread. 0 is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct HostId(u64);

impl HostId {
    fn next() -> Self {
        thread_local! {
            static LAST: Cell<u64> = const { Cell::new(0) };
        }
        Self(LAST.with(|last| {
            last.set(last.get().wrapping_add(1).max(1));
            last.get()
        }))
    }
}

/// What passes between a deadline and the futures beneath it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Host {
    /// What the poll under way was made with; nothing between polls.
    waker: Option<WakerId>,
    /// The earliest instant that was asked for in it.
    asked: Option<Instant>,
    /// The clock, as the last that asked read it.
    read: Option<Instant>,
    id: HostId,
    /// How many have asked and not signed off.
    guests: u32,
}

impl Host {
    /// Nobody who could be asked.
    pub(crate) const NONE: Self = Self {
        waker: None,
        asked: None,
        read: None,
        id: HostId(0),
        guests: 0,
    };

    /// A deadline is going to be polled with `waker`.
    #[inline]
    pub(crate) fn open(&mut self, waker: &Waker) {
        self.waker = Some(WakerId::of(waker));
        self.asked = None;
        self.read = None;
    }

    /// The poll is over. Gives the earliest instant that was asked for in it, and the clock, as somebody
    /// has just read it or read now.
    pub(crate) fn close(&mut self) -> (Option<Instant>, Instant) {
        self.waker = None;
        (
            self.asked.take(),
            self.read.take().unwrap_or_else(Instant::now),
        )
    }

    /// Whether somebody who asked may live on.
    #[inline]
    pub(crate) fn has_guests(&self) -> bool {
        self.guests > 0
    }
}

/// A future's side of it. Dropping it signs off.
#[derive(Debug, Default)]
pub(crate) struct Guest {
    host: HostId,
}

impl Guest {
    /// Asks the deadline around for a wake-up at `at`, for a future that is polled with `waker` at `now`.
    /// Whether it was granted; otherwise the future needs a timer of its own.
    pub(crate) fn ask(&mut self, waker: &Waker, at: Instant, now: Instant) -> bool {
        with_current(|scope| {
            let host = &mut scope.host;
            // `None` first: outside a call nobody looks at a waker.
            if host.waker.is_none() || host.waker != Some(WakerId::of(waker)) {
                return false;
            }
            if host.id == HostId(0) {
                host.id = HostId::next();
            }
            if self.host != host.id {
                self.host = host.id;
                host.guests = host.guests.saturating_add(1);
            }
            host.asked = Some(host.asked.map_or(at, |asked| asked.min(at)));
            host.read = Some(now);
            true
        })
    }

    /// It has ended, or holds a timer of its own.
    #[inline]
    pub(crate) fn sign_off(&mut self) {
        let id = std::mem::take(&mut self.host);
        if id != HostId(0) {
            with_current(|scope| {
                if scope.host.id == id {
                    scope.host.guests = scope.host.guests.saturating_sub(1);
                }
            });
        }
    }
}

impl Drop for Guest {
    #[inline]
    fn drop(&mut self) {
        self.sign_off();
    }
}

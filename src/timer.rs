//! Waiting until an instant, with a timer that is made only when it is needed.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::time::{Instant, Sleep, sleep_until};

use crate::call::Guest;

/// How many places a thread keeps for its next timers.
const KEPT: usize = 64;

type Place = Pin<Box<Option<Sleep>>>;

thread_local! {
    /// Places of timers that are no longer needed, empty.
    static KEPT_ONES: RefCell<Vec<Place>> = const { RefCell::new(Vec::new()) };
}

/// A timer, or none yet.
///
/// A `Sleep` is large, and most calls that have one never need it, or need one of several; so it lies in a
/// place of its own, which is taken only when something has to wait, from those that the thread has kept.
#[derive(Debug, Default)]
pub(crate) struct Timer(Option<Place>);

impl Timer {
    /// Ready once `until` has come; otherwise the task is woken when it does.
    ///
    /// The clock decides, not the timer: beside a busy future tokio's cooperative budget can leave a
    /// timer pending for ever (rule 9).
    pub(crate) fn poll_until(&mut self, until: Instant, cx: &mut Context<'_>) -> Poll<()> {
        if Instant::now() >= until {
            return Poll::Ready(());
        }
        self.arm(until, cx)
    }

    /// The same, beneath a deadline: its timer serves this wait too, where it can.
    pub(crate) fn poll_until_hosted(
        &mut self,
        guest: &mut Guest,
        until: Instant,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        let now = Instant::now();
        if now >= until {
            guest.sign_off();
            return Poll::Ready(());
        }
        if guest.ask(cx.waker(), until, now) {
            self.clear();
            return Poll::Pending;
        }
        guest.sign_off();
        self.arm(until, cx)
    }

    /// Sets the timer to `until`, and has it wake the task.
    pub(crate) fn arm(&mut self, until: Instant, cx: &mut Context<'_>) -> Poll<()> {
        let mut place = self.0.get_or_insert_with(kept).as_mut();
        match place.as_mut().as_pin_mut() {
            None => place.set(Some(sleep_until(until))),
            Some(sleep) if sleep.deadline() != until => sleep.reset(until),
            Some(_) => {}
        }
        match place.as_pin_mut() {
            Some(sleep) => sleep.poll(cx),
            None => Poll::Pending, // it has just been set
        }
    }

    /// The instant that it is set to.
    pub(crate) fn standing(&self) -> Option<Instant> {
        let place = self.0.as_ref()?;
        place.as_ref().as_pin_ref().map(|sleep| sleep.deadline())
    }

    /// Lets the timer go.
    #[inline]
    pub(crate) fn clear(&mut self) {
        if let Some(place) = self.0.take() {
            keep(place);
        }
    }
}

impl Drop for Timer {
    #[inline]
    fn drop(&mut self) {
        self.clear();
    }
}

fn kept() -> Place {
    let kept = KEPT_ONES.try_with(|kept| kept.try_borrow_mut().ok()?.pop());
    kept.ok().flatten().unwrap_or_else(|| Box::pin(None))
}

fn keep(mut place: Place) {
    // The timer belongs to a runtime, which may end before the thread does: it goes now.
    place.set(None);
    // A thread that is being torn down keeps nothing.
    let _ = KEPT_ONES.try_with(|kept| {
        if let Ok(mut kept) = kept.try_borrow_mut() {
            if kept.len() < KEPT {
                kept.push(place);
            }
        }
    });
}

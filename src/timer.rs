//! Waiting until an instant, with a timer that is made only when it is needed.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::time::{Instant, Sleep, sleep_until};

use crate::call::Guest;

/// Ready once `until` has come; otherwise the task is woken when it does.
///
/// The clock decides, not the timer: beside a busy future tokio's cooperative budget can leave a
/// timer pending for ever (rule 9).
pub(crate) fn poll_until(
    timer: Pin<&mut Option<Sleep>>,
    until: Instant,
    cx: &mut Context<'_>,
) -> Poll<()> {
    if Instant::now() >= until {
        return Poll::Ready(());
    }
    arm(timer, until, cx)
}

/// The same, beneath a deadline: its timer serves this wait too, where it can.
pub(crate) fn poll_until_hosted(
    mut timer: Pin<&mut Option<Sleep>>,
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
        timer.set(None);
        return Poll::Pending;
    }
    guest.sign_off();
    arm(timer, until, cx)
}

/// Sets the timer to `until`, and has it wake the task.
pub(crate) fn arm(
    mut timer: Pin<&mut Option<Sleep>>,
    until: Instant,
    cx: &mut Context<'_>,
) -> Poll<()> {
    match timer.as_mut().as_pin_mut() {
        None => timer.set(Some(sleep_until(until))),
        Some(sleep) if sleep.deadline() != until => sleep.reset(until),
        Some(_) => {}
    }
    match timer.as_pin_mut() {
        Some(sleep) => sleep.poll(cx),
        None => Poll::Pending, // it has just been set
    }
}

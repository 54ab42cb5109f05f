//! The future that watches the clock.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use pin_project::{pin_project, pinned_drop};
use tokio::time::Instant;

use super::bound::earlier;
use super::service::Config;
use crate::call::{Judged, Opened, Phase};
use crate::classify::{Verdict, verdict_of_error};
use crate::error::BoxError;
use crate::timer::Timer;

/// The future of [`Deadline`](super::Deadline).
#[pin_project(PinnedDrop)]
#[must_use = "futures do nothing unless polled"]
pub struct DeadlineFuture<F> {
    /// Gone once the call has ended; never there when the deadline had passed before it began.
    #[pin]
    pub(super) inner: Option<F>,
    /// Made when a poll ends pending. It stands at the deadline, or at what somebody beneath asked for.
    pub(super) timer: Timer,
    pub(super) alarm: Alarm,
    pub(super) call: Opened,
    pub(super) config: Config,
}

impl<F> fmt::Debug for DeadlineFuture<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeadlineFuture")
            .field("deadline", &self.call.scope.deadline)
            .finish_non_exhaustive()
    }
}

/// What is beneath is dropped inside the call that it belongs to, also when the caller leaves.
#[pinned_drop]
impl<F> PinnedDrop for DeadlineFuture<F> {
    fn drop(self: Pin<&mut Self>) {
        let mut this = self.project();
        if this.inner.is_some() {
            this.call.enter_drop(|| this.inner.set(None));
            if this.call.scope.host.has_guests() {
                if let Some(waker) = this.alarm.waker.take() {
                    waker.wake();
                }
            }
        }
    }
}

impl<F, Res, E> Future for DeadlineFuture<F>
where
    F: Future<Output = Result<Res, E>>,
    E: Into<BoxError>,
{
    type Output = Result<Res, BoxError>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let call = this.call;
        if call.is_finished() {
            // Polled again after it was ready: nothing more will come.
            return Poll::Pending;
        }
        if call.settle() {
            this.config.apply(call);
            // What turned up may have been over before the call began: then nothing is contacted
            // (rule 39), although a buffer above has called already.
            if call.scope.never_begins() {
                call.scope.ended = true;
                let _entered = call.enter();
                this.inner.set(None);
            }
        }
        if this.inner.is_none() {
            call.scope.attempt = 0;
            call.scope.phase = Phase::Start;
            return Poll::Ready(Err(call.conclude_exceeded(Instant::now()).into()));
        }

        // Inner first, then the clock (rule 9).
        if call.scope.deadline.is_some() {
            call.scope.host.open(cx.waker());
        }
        let entered = call.enter();
        let polled = match this.inner.as_mut().as_pin_mut() {
            Some(inner) => inner.poll(cx),
            None => Poll::Pending,
        };
        if polled.is_ready() {
            this.inner.set(None);
        }
        drop(entered);
        match polled {
            Poll::Pending => {}
            // A response is large: looked at where it is, and moved once.
            Poll::Ready(Ok(_)) => {
                this.timer.clear();
                wake_guests(call, cx);
                call.conclude(Judged {
                    verdict: Verdict::Ok,
                    status: None,
                    error: None,
                });
                return polled.map_err(Into::into);
            }
            Poll::Ready(Err(error)) => {
                this.timer.clear();
                wake_guests(call, cx);
                let error = error.into();
                call.conclude(Judged {
                    verdict: verdict_of_error(&*error),
                    status: None,
                    error: Some(&*error),
                });
                return Poll::Ready(Err(error));
            }
        }
        call.goes_on();
        let Some(deadline) = call.scope.deadline else {
            return Poll::Pending;
        };
        let (asked, now) = call.scope.host.close();
        let alarm = this.alarm.next(asked, now, deadline, cx);
        if now < deadline {
            ready!(this.timer.arm(alarm, cx));
            if alarm < deadline {
                // It came between the two looks at the clock: whoever asked is to be polled.
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
        call.scope.ended = true;
        let entered = call.enter();
        this.inner.set(None);
        drop(entered);
        this.timer.clear();
        wake_guests(call, cx);
        Poll::Ready(Err(call.conclude_exceeded(Instant::now()).into()))
    }
}

/// What was asked of the timer.
#[derive(Debug, Default)]
pub(super) struct Alarm {
    /// The earliest instant that somebody beneath asked to be woken at, until it has come.
    asked: Option<Instant>,
    /// Who is to be woken when this is dropped, and somebody who asked is not.
    waker: Option<Waker>,
}

impl Alarm {
    /// When the timer is to go off, after a poll in which `asked` was asked for.
    fn next(
        &mut self,
        asked: Option<Instant>,
        now: Instant,
        deadline: Instant,
        cx: &Context<'_>,
    ) -> Instant {
        self.asked = earlier(self.asked.filter(|at| *at > now), asked);
        if asked.is_some() && !self.waker.as_ref().is_some_and(|w| w.will_wake(cx.waker())) {
            self.waker = Some(cx.waker().clone());
        }
        self.asked.map_or(deadline, |at| at.min(deadline))
    }
}

/// Whoever asked for this timer and lives on elsewhere in the task has to find another.
fn wake_guests(call: &Opened, cx: &Context<'_>) {
    if call.scope.host.has_guests() {
        cx.waker().wake_by_ref();
    }
}

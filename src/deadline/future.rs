//! The future that watches the clock.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project::{pin_project, pinned_drop};
use tokio::time::{Instant, Sleep};

use super::bound::earlier;
use super::service::Config;
use crate::call::{Host, Judged, Opened, Phase};
use crate::classify::{Verdict, verdict_of_error};
use crate::error::BoxError;
use crate::timer;

/// The future of [`Deadline`](super::Deadline).
#[pin_project(PinnedDrop)]
#[must_use = "futures do nothing unless polled"]
pub struct DeadlineFuture<F> {
    /// Gone once the call has ended; never there when the deadline had passed before it began.
    #[pin]
    inner: Option<F>,
    /// Made when a poll ends pending. It stands at the deadline, or at what somebody beneath asked for.
    #[pin]
    timer: Option<Sleep>,
    /// The earliest instant that somebody beneath asked to be woken at, until it has come.
    asked: Option<Instant>,
    call: Opened,
    config: Config,
}

impl<F> DeadlineFuture<F> {
    pub(super) fn new(inner: Option<F>, mut call: Opened, config: Config) -> Self {
        if inner.is_none() {
            call.scope.attempt = 0;
            call.scope.phase = Phase::Start;
        }
        Self {
            inner,
            timer: None,
            asked: None,
            call,
            config,
        }
    }
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
        }
    }
}

impl<F, Res, E> Future for DeadlineFuture<F>
where
    F: Future<Output = Result<Res, E>>,
    E: Into<BoxError>,
{
    type Output = Result<Res, BoxError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let call = this.call;
        if call.settle() {
            this.config.apply(call);
            // What turned up may have been over before the call began: then nothing is contacted
            // (rule 39), although a buffer above has called already.
            if call.scope.deadline.is_some() && call.scope.deadline <= call.scope.started {
                call.scope.ended = true;
                call.enter(|| this.inner.set(None));
                call.scope.attempt = 0;
                call.scope.phase = Phase::Start;
            }
        }

        // Inner first, then the clock (rule 9).
        if let Some(inner) = this.inner.as_mut().as_pin_mut() {
            call.scope.host = match call.scope.deadline {
                Some(_) => Host::polled_with(cx.waker()),
                None => Host::NONE,
            };
            if let Poll::Ready(result) = call.enter(|| inner.poll(cx)) {
                call.enter(|| this.inner.set(None));
                this.timer.set(None);
                if call.scope.host.asked().is_some() {
                    // Somebody asked in this very poll, and may live on elsewhere in this task: it has
                    // to be polled again, to find a timer of its own.
                    cx.waker().wake_by_ref();
                }
                return Poll::Ready(conclude(call, result.map_err(Into::into)));
            }
            call.goes_on();
            let Some(deadline) = call.scope.deadline else {
                return Poll::Pending;
            };
            let host = std::mem::replace(&mut call.scope.host, Host::NONE);
            let now = host.now();
            if now < deadline {
                *this.asked = earlier(this.asked.filter(|at| *at > now), host.asked());
                let alarm = this.asked.map_or(deadline, |at| at.min(deadline));
                ready!(timer::arm(this.timer.as_mut(), alarm, cx));
                if alarm < deadline {
                    // It came between the two looks at the clock: whoever asked is to be polled.
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
            }
            call.scope.ended = true;
            call.enter(|| this.inner.set(None));
            this.timer.set(None);
        } else if call.is_finished() {
            // Polled again after it was ready: nothing more will come.
            return Poll::Pending;
        }

        Poll::Ready(Err(call.conclude_exceeded(Instant::now()).into()))
    }
}

fn conclude<Res>(call: &mut Opened, result: Result<Res, BoxError>) -> Result<Res, BoxError> {
    match &result {
        Ok(_) => call.conclude(Judged {
            verdict: Verdict::Ok,
            status: None,
            error: None,
        }),
        Err(error) => call.conclude(Judged {
            verdict: verdict_of_error(&**error),
            status: None,
            error: Some(&**error),
        }),
    }
    result
}

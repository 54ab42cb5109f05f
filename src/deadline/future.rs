//! The future that watches the clock.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project::pin_project;
use tokio::time::{Instant, Sleep};

use super::service::Config;
use crate::call::{ClaimMark, Judged, Opened, Phase};
use crate::classify::{Verdict, verdict_of_error};
use crate::error::BoxError;
use crate::timer;

/// The future of [`Deadline`](super::Deadline).
#[pin_project]
#[must_use = "futures do nothing unless polled"]
pub struct DeadlineFuture<F> {
    /// Gone once the call has ended; never there when the deadline had passed before it began.
    #[pin]
    inner: Option<F>,
    /// Made when a poll ends pending and nothing beneath holds a timer no later than the deadline.
    #[pin]
    timer: Option<Sleep>,
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
        }

        // Inner first, then the clock (rule 9).
        if let Some(inner) = this.inner.as_mut().as_pin_mut() {
            call.scope.claim = ClaimMark::NONE;
            if let Poll::Ready(result) = call.enter(|| inner.poll(cx)) {
                call.enter(|| this.inner.set(None));
                this.timer.set(None);
                return Poll::Ready(conclude(call, result.map_err(Into::into)));
            }
            let Some(deadline) = call.scope.deadline else {
                return Poll::Pending;
            };
            if call.scope.claim.holds() {
                // Whoever claimed has compared the clock with a bound no later than the deadline.
                return Poll::Pending;
            }
            ready!(timer::poll_until(this.timer.as_mut(), deadline, cx));
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

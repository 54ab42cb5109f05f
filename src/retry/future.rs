//! The future that makes the attempts.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use pin_project::{pin_project, pinned_drop};
use tokio::time::Instant;
use tower_service::Service;

use super::copy::CopyRequest;
use super::layer::Rules;
use super::outcome::{Judgement, Step};
use super::sending::Sending;
use crate::call::{FreshClock, Guest, Phase, Scope};
use crate::classify::Classify;
use crate::error::BoxError;
use crate::event::Event;
use crate::timer::Timer;

/// How many attempts are begun in one poll before the task is given back.
const ATTEMPTS_A_POLL: u32 = 16;

/// The future of [`Retry`](super::Retry).
#[pin_project(PinnedDrop)]
#[must_use = "futures do nothing unless polled"]
pub struct RetryFuture<S: Service<Request>, Request, C, Y> {
    #[pin]
    pub(super) state: State<S::Future>,
    /// What the next attempt is sent with, where there can be one. It is not ready, and holds no
    /// permit, while an attempt runs or a backoff is slept.
    pub(super) service: Option<S>,
    /// The request for the next attempt, made before this one was sent.
    pub(super) copy: Option<Request>,
    pub(super) sending: Sending,
    pub(super) rules: Arc<Rules<C, Y>>,
}

#[pin_project(project = StateProj)]
pub(super) enum State<F> {
    /// Polling the future of an attempt.
    Attempt(#[pin] F),
    /// Sleeping until the next attempt is due; `None` is never. The last attempt has been dropped.
    Backoff {
        until: Option<Instant>,
        timer: Timer,
        guest: Guest,
    },
    /// Polling the readiness of the service for the next attempt.
    Readying,
    /// The call has ended.
    Done,
}

impl<S: Service<Request>, Request, C, Y> fmt::Debug for RetryFuture<S, Request, C, Y> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RetryFuture")
            .field("attempt", &self.sending.attempt)
            .finish_non_exhaustive()
    }
}

/// A layer that ends a call itself drops what is beneath it inside a scope that it has marked as ended.
/// An attempt that was in flight then has been cut, and its event is still to be raised.
#[pinned_drop]
impl<S: Service<Request>, Request, C, Y> PinnedDrop for RetryFuture<S, Request, C, Y> {
    fn drop(self: Pin<&mut Self>) {
        let mut this = self.project();
        let listeners = &this.rules.listeners;
        if !matches!(*this.state, State::Attempt(_)) {
            if !matches!(*this.state, State::Done) {
                this.sending.leave();
            }
            return;
        }
        if !listeners.is_empty() {
            if let Some(cut) = this.sending.cut() {
                listeners.raise(|| Event::attempt(&cut));
            }
        }
        // Inside the call that it belongs to, also when the caller leaves.
        let state = &mut this.state;
        this.sending.call.enter_drop(|| state.set(State::Done));
        this.sending.leave();
    }
}

impl<S, Request, C, Y> Future for RetryFuture<S, Request, C, Y>
where
    S: Service<Request>,
    S::Error: Into<BoxError>,
    C: Classify<S::Response>,
    Y: CopyRequest<Request>,
{
    type Output = Result<S::Response, BoxError>;

    #[inline]
    #[allow(clippy::too_many_lines)] // each state once, in order
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let rules = &**this.rules;
        let sending = this.sending;
        let started = sending.started;
        if sending
            .call
            .settle(&rules.listeners, started, Scope::join_as_retry)
        {
            sending.begin(rules);
        }
        let mut begun = 0;
        loop {
            match this.state.as_mut().project() {
                StateProj::Done => return Poll::Pending,
                StateProj::Attempt(attempt) => {
                    let in_attempt = sending.enter_attempt();
                    let polled = attempt.poll(cx);
                    drop(in_attempt);
                    if polled.is_pending() {
                        return Poll::Pending;
                    }
                    // The attempt is dropped before anything else is done (rule 11).
                    let entered = sending.call.enter();
                    this.state.set(State::Done);
                    drop(entered);
                    let (judged, result) = match polled {
                        Poll::Pending => return Poll::Pending,
                        // A response is large: looked at where it is, and moved once.
                        Poll::Ready(Ok(ref response)) => {
                            let judged = Judgement::of(&rules.classifier, Ok(response));
                            if sending.end_plainly(rules, judged) {
                                return polled.map_err(Into::into);
                            }
                            (judged, ready!(polled).map_err(Into::into))
                        }
                        Poll::Ready(Err(error)) => {
                            let error = error.into();
                            let judged = Judgement::of(&rules.classifier, Err(&error));
                            (judged, Err(error))
                        }
                    };
                    let has_copy = this.copy.is_some();
                    match sending.after_attempt(rules, judged, result, has_copy) {
                        Step::Return(result) => return Poll::Ready(result),
                        Step::Wait { delay, .. } if delay.is_zero() => {
                            this.state.set(State::Readying);
                        }
                        Step::Wait { delay, now } => {
                            sending.call.with(|scope| scope.phase = Phase::Backoff);
                            this.state.set(State::Backoff {
                                until: now.checked_add(delay),
                                timer: Timer::default(),
                                guest: Guest::default(),
                            });
                        }
                    }
                }
                StateProj::Backoff {
                    until,
                    timer,
                    guest,
                } => {
                    let Some(until) = *until else {
                        return Poll::Pending;
                    };
                    ready!(timer.poll_until_hosted(guest, until, cx));
                    this.state.set(State::Readying);
                }
                StateProj::Readying => {
                    // There is a service wherever there is a copy, and no retry without one.
                    let Some(service) = this.service.as_mut() else {
                        return Poll::Pending;
                    };
                    sending.call.with(|scope| scope.phase = Phase::Readiness);
                    let entered = sending.call.enter();
                    let readied = ready!(service.poll_ready(cx));
                    drop(entered);
                    if let Err(error) = readied {
                        this.state.set(State::Done);
                        return Poll::Ready(sending.readiness_failed(error.into()));
                    }
                    // A service that fails at once, without a backoff: give the task back now and then,
                    // so that the clocks above are looked at and others get their turn.
                    if begun == ATTEMPTS_A_POLL {
                        cx.waker().wake_by_ref();
                        return Poll::Pending;
                    }
                    begun += 1;
                    // A task that was polled late finds its backoff over, and the deadline as well:
                    // nothing is sent that nobody waits for.
                    let now = Instant::now();
                    let (deadline, enforced) =
                        sending.call.with(|scope| (scope.deadline, scope.enforced));
                    if deadline.is_some_and(|at| at <= now) {
                        if enforced {
                            return Poll::Pending; // its layer ends the call, in this very poll
                        }
                        this.state.set(State::Done);
                        return Poll::Ready(Err(sending.call.exceeded(now).into()));
                    }
                    let Some(request) = this.copy.take() else {
                        return Poll::Pending; // see above
                    };
                    if sending.next_attempt(rules, now) {
                        *this.copy = rules.copy.copy(&request);
                    }
                    // This instance was readied: it is the one that is called (rule 27).
                    let in_attempt = sending.enter_attempt();
                    let fresh = FreshClock::begin();
                    let attempt = service.call(request);
                    drop((fresh, in_attempt));
                    this.state.set(State::Attempt(attempt));
                }
            }
        }
    }
}

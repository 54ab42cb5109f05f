//! The future that makes the attempts.

use std::fmt;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pin_project::{pin_project, pinned_drop};
use tokio::time::{Instant, Sleep};
use tower_service::Service;

use super::budget::Token;
use super::copy::CopyRequest;
use super::decision::{Failure, Next, Plan, next, terminal};
use super::layer::Rules;
use super::repeatable::Repeat;
use crate::call::{
    Attempt, Claim, Failures, Judged, Membership, Phase, Scope, Setting, with_current,
};
use crate::classify::{Classify, Verdict, never_left, verdict_of};
use crate::error::{BoxError, Ours, RetryRefused, outermost};
use crate::event::{Event, EventKind, StopReason};
use crate::key::Key;
use crate::timer;

/// The future of [`Retry`](super::Retry).
#[pin_project(PinnedDrop)]
#[must_use = "futures do nothing unless polled"]
pub struct RetryFuture<S: Service<Request>, Request, C, Y> {
    #[pin]
    state: State<S::Future>,
    /// What the next attempt is sent with, where there can be one. It is not ready, and holds no
    /// permit, while an attempt runs or a backoff is slept.
    service: Option<S>,
    sending: Sending<Request>,
    claim: Claim,
    rules: Arc<Rules<C, Y>>,
}

#[pin_project(project = StateProj)]
enum State<F> {
    /// Polling the future of an attempt.
    Attempt(#[pin] F),
    /// Sleeping until the next attempt is due; `None` is never. The last attempt has been dropped.
    Backoff {
        until: Option<Instant>,
        #[pin]
        timer: Option<Sleep>,
    },
    /// Polling the readiness of the service for the next attempt.
    Readying,
    /// The call has ended.
    Done,
}

/// What is known of the call, apart from the futures in it.
pub(super) struct Sending<Request> {
    pub(super) call: Membership,
    pub(super) started: Instant,
    pub(super) key: Key,
    /// What the request itself says; an override may say otherwise.
    pub(super) by_request: Repeat,
    /// The one retry of a request that never left has been made.
    pub(super) unprocessed_spent: bool,
    pub(super) attempt: u32,
    pub(super) attempt_started: Instant,
    /// The backoff before this attempt, or before the next one while it is slept.
    pub(super) delay: Duration,
    /// The request for the next attempt, made before this one was sent.
    pub(super) copy: Option<Request>,
    /// What the next attempt costs; taken when it was decided on.
    pub(super) token: Option<Token>,
}

impl<Request> Sending<Request> {
    /// A scope is joined by one retry layer; a second one in it is a call of its own.
    pub(super) fn joins(scope: &mut Scope) -> bool {
        !mem::replace(&mut scope.joined_by_retry, true)
    }

    /// What the call allows, overrides included.
    pub(super) fn plan<C, Y>(&mut self, rules: &Rules<C, Y>) -> Plan {
        let (attempts, retry, nested) = self.call.with(|scope| {
            let (attempts, retry) = scope
                .overrides
                .as_ref()
                .map_or((Setting::Inherit, Setting::Inherit), |o| {
                    (o.attempts, o.retry)
                });
            (
                Setting::over(attempts, Some(rules.attempts)),
                retry,
                scope.inside_retry,
            )
        });
        let repeat = match retry {
            Setting::Inherit => self.by_request,
            Setting::Off => Repeat::Never,
            Setting::Set(()) => Repeat::Always,
        };
        Plan {
            attempts: if rules.defer_to_caller && nested {
                1
            } else {
                attempts.unwrap_or(1).max(1)
            },
            repeat,
            unprocessed: rules.retry_unprocessed
                && !self.unprocessed_spent
                && retry != Setting::Off,
        }
    }

    /// Puts what is known of the attempt into the scope of the call.
    pub(super) fn begin<C, Y>(&mut self, rules: &Rules<C, Y>) {
        let (attempt, started, delay) = (self.attempt, self.attempt_started, self.delay);
        let retrying = self.plan(rules).may_follow(1);
        let nested = self.call.with(|scope| {
            scope.joined_by_retry = true;
            scope.retrying = retrying;
            if scope.attempt != attempt || scope.attempt_started != Some(started) {
                scope.begin_attempt(attempt, started, delay);
            }
            scope.inside_retry
        });
        if nested && rules.attempts > 1 && attempt == 1 {
            rules.listeners.raise(|| Event {
                attempt,
                ..Event::new(EventKind::NestedRetry)
            });
        }
    }

    /// The next attempt begins now, with `request`.
    fn next_attempt<C, Y>(&mut self, rules: &Rules<C, Y>, request: &Request)
    where
        Y: CopyRequest<Request>,
    {
        self.attempt = self.attempt.saturating_add(1);
        self.attempt_started = Instant::now();
        if self.plan(rules).may_follow(self.attempt) {
            self.copy = rules.copy.copy(request);
        }
        let (attempt, started, delay) = (self.attempt, self.attempt_started, self.delay);
        self.call
            .with(|scope| scope.begin_attempt(attempt, started, delay));
        if let Some(token) = self.token.take() {
            token.spend();
        }
    }

    /// The call ends here, with `result`.
    fn end<Res>(
        &mut self,
        kind: EventKind,
        reason: StopReason,
        verdict: Verdict,
        status: Option<u16>,
        result: Result<Res, BoxError>,
    ) -> Step<Res> {
        self.call.with(|scope| scope.ending = Some((kind, reason)));
        if let Membership::Own(opened) = &mut self.call {
            opened.conclude(Judged {
                verdict,
                status,
                error: result.as_ref().err().map(|e| &**e as _),
            });
        }
        Step::Return(result)
    }

    /// What comes after an attempt.
    fn after_attempt<Res, C, Y>(
        &mut self,
        rules: &Rules<C, Y>,
        result: Result<Res, BoxError>,
    ) -> Step<Res>
    where
        C: Classify<Res>,
    {
        let verdict = verdict_of(&rules.classifier, &result);
        let status = result
            .as_ref()
            .ok()
            .and_then(|response| rules.classifier.status(response));
        if verdict == Verdict::Ok {
            rules.budget.deposit(self.key);
            let retried = self.call.with(|scope| scope.failures.is_some());
            if retried || !rules.listeners.is_empty() {
                let entry = self.note_attempt(rules, verdict, status, &result, Instant::now());
                if retried {
                    self.keep(entry);
                }
            }
            return self.end(
                EventKind::Succeeded,
                StopReason::Success,
                verdict,
                status,
                result,
            );
        }

        let now = Instant::now();
        let entry = self.note_attempt(rules, verdict, status, &result, now);
        let error = result.as_ref().err().map(|e| &**e as _);
        let cut_by_deadline = matches!(error.and_then(outermost), Some(Ours::Exceeded(_)));
        let plan = self.plan(rules);
        let failure = Failure {
            verdict,
            status,
            never_left: plan.repeat != Repeat::Always && error.is_some_and(never_left),
            asked: (verdict == Verdict::Throttled)
                .then(|| {
                    rules
                        .classifier
                        .wait(result.as_ref().map_err(|e| &**e as _))
                })
                .flatten(),
            spilled: self.call.with(|scope| scope.spilled),
            cut_by_deadline,
        };
        let left = self
            .call
            .with(|scope| scope.deadline)
            .map(|at| at.saturating_duration_since(now));
        let has_copy = self.copy.is_some();

        let reason = match next(plan, &rules.backoff, failure, self.attempt, has_copy, left) {
            Next::Stop(reason) => reason,
            Next::Wait(delay) => match rules.budget.withdraw(self.key, now) {
                Ok(token) => {
                    self.token = Some(token);
                    self.unprocessed_spent |= plan.repeat == Repeat::Never;
                    self.keep(entry);
                    self.keep_error(result.err());
                    let attempt = self.attempt;
                    rules.listeners.raise(|| Event {
                        attempt,
                        verdict: Some(verdict),
                        status,
                        delay: Some(delay),
                        ..Event::new(EventKind::Retrying)
                    });
                    self.delay = delay;
                    return Step::Wait { delay, now };
                }
                Err(retry_after) => {
                    self.keep(entry);
                    let result = result.map_err(|error| -> BoxError {
                        let log = self
                            .call
                            .with(|scope| scope.failures.as_ref().map(|f| f.log.clone()));
                        Box::new(RetryRefused {
                            retry_after,
                            log: log.unwrap_or_default(),
                            source: Some(error),
                        })
                    });
                    let kind = EventKind::RejectedByBudget;
                    return self.end(kind, StopReason::Budget, verdict, status, result);
                }
            },
        };
        match (reason, result) {
            // Rule 2: no response to give, and no time for another attempt.
            (StopReason::DeadlineTooNear, Err(error)) => {
                self.keep(entry);
                self.keep_error(Some(error));
                self.call.with(|scope| {
                    scope.phase = Phase::Backoff;
                    scope.ending = Some((EventKind::DeadlineExceeded, reason));
                });
                Step::Return(Err(self.call.exceeded(now).into()))
            }
            (_, result) => {
                self.keep(entry);
                let kind = if cut_by_deadline {
                    EventKind::DeadlineExceeded
                } else {
                    terminal(reason)
                };
                self.end(kind, reason, verdict, status, result)
            }
        }
    }

    /// Tells the listeners of an attempt that ended, and gives its entry for the log.
    fn note_attempt<Res, C, Y>(
        &mut self,
        rules: &Rules<C, Y>,
        verdict: Verdict,
        status: Option<u16>,
        result: &Result<Res, BoxError>,
        now: Instant,
    ) -> Option<Attempt> {
        let entry = self
            .call
            .with(|scope| Some(scope.attempt_entry(verdict, status, now)))?;
        rules.listeners.raise(|| Event {
            error: result.as_ref().err().map(|e| &**e as _),
            ..Event::attempt(&entry)
        });
        Some(entry)
    }

    /// Keeps the entry of an attempt in the log of the call.
    fn keep(&mut self, entry: Option<Attempt>) {
        self.call.with(|scope| {
            let failures: &mut Failures = scope.failures.get_or_insert_default();
            failures.log.extend(entry);
        });
    }

    /// Keeps the error of an attempt, or that it had none, in place of that of the one before.
    fn keep_error(&mut self, error: Option<BoxError>) {
        // The error that is replaced is somebody else's: it must not be dropped in the closure.
        let mut error = error;
        self.call.with(|scope| {
            let failures: &mut Failures = scope.failures.get_or_insert_default();
            mem::swap(&mut error, &mut failures.last_error);
        });
    }
}

/// What the future does next.
enum Step<Res> {
    Return(Result<Res, BoxError>),
    Wait { delay: Duration, now: Instant },
}

impl<S: Service<Request>, Request, C, Y> RetryFuture<S, Request, C, Y> {
    pub(super) fn new(
        first: S::Future,
        service: Option<S>,
        sending: Sending<Request>,
        rules: Arc<Rules<C, Y>>,
    ) -> Self {
        Self {
            state: State::Attempt(first),
            service,
            sending,
            claim: Claim::default(),
            rules,
        }
    }
}

impl<S: Service<Request>, Request, C, Y> fmt::Debug for RetryFuture<S, Request, C, Y> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RetryFuture")
            .field("attempt", &self.sending.attempt)
            .finish_non_exhaustive()
    }
}

/// The deadline drops what is beneath it, inside the scope of the call that it has ended. An attempt
/// that was in flight then has been cut, and its event is still to be raised.
#[pinned_drop]
impl<S: Service<Request>, Request, C, Y> PinnedDrop for RetryFuture<S, Request, C, Y> {
    fn drop(self: Pin<&mut Self>) {
        let this = self.project();
        if !matches!(*this.state, State::Attempt(_)) || this.rules.listeners.is_empty() {
            return;
        }
        if let Membership::Joined = this.sending.call {
            let cut = with_current(|scope| {
                scope
                    .ended
                    .then(|| scope.attempt_entry(Verdict::Transient, None, Instant::now()))
            });
            if let Some(entry) = cut {
                this.rules.listeners.raise(|| Event::attempt(&entry));
            }
        }
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

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let rules = &**this.rules;
        let sending = this.sending;
        let started = sending.started;
        let joins = Sending::<Request>::joins;
        if sending.call.settle(&rules.listeners, started, joins) {
            sending.begin(rules);
        }
        loop {
            match this.state.as_mut().project() {
                StateProj::Done => return Poll::Pending,
                StateProj::Attempt(attempt) => {
                    let result = ready!(sending.call.enter(|| attempt.poll(cx)));
                    // The attempt is dropped before anything else is done (rule 11).
                    sending.call.enter(|| this.state.set(State::Done));
                    match sending.after_attempt(rules, result.map_err(Into::into)) {
                        Step::Return(result) => return Poll::Ready(result),
                        Step::Wait { delay, .. } if delay.is_zero() => {
                            this.state.set(State::Readying);
                        }
                        Step::Wait { delay, now } => {
                            sending.call.with(|scope| scope.phase = Phase::Backoff);
                            this.state.set(State::Backoff {
                                until: now.checked_add(delay),
                                timer: None,
                            });
                        }
                    }
                }
                StateProj::Backoff { until, timer } => {
                    let Some(until) = *until else {
                        return Poll::Pending;
                    };
                    if timer::poll_until(timer, until, cx).is_pending() {
                        // A delay that does not end before the deadline is never begun.
                        this.claim.make();
                        return Poll::Pending;
                    }
                    this.claim.withdraw();
                    this.state.set(State::Readying);
                }
                StateProj::Readying => {
                    // There is a service wherever there is a copy, and no retry without one.
                    let Some(service) = this.service.as_mut() else {
                        return Poll::Pending;
                    };
                    sending.call.with(|scope| scope.phase = Phase::Readiness);
                    if let Err(error) = ready!(sending.call.enter(|| service.poll_ready(cx))) {
                        this.state.set(State::Done);
                        let error: BoxError = error.into();
                        let verdict = Verdict::Permanent;
                        let kind = EventKind::NotRetried;
                        let reason = StopReason::Readiness;
                        return match sending.end(kind, reason, verdict, None, Err(error)) {
                            Step::Return(result) => Poll::Ready(result),
                            Step::Wait { .. } => Poll::Pending, // `end` never waits
                        };
                    }
                    let Some(request) = sending.copy.take() else {
                        return Poll::Pending; // see above
                    };
                    sending.next_attempt(rules, &request);
                    // This instance was readied: it is the one that is called (rule 27).
                    let attempt = sending.call.enter_call(|| service.call(request));
                    this.state.set(State::Attempt(attempt));
                }
            }
        }
    }
}

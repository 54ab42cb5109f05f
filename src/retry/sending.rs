//! What is known of a call while its attempts are made, and what comes after each of them.

use std::error::Error;
use std::mem;
use std::time::Duration;

use tokio::time::Instant;

use super::budget::Token;
use super::copy::CopyRequest;
use super::decision::{Failure, Next, Plan, next, terminal};
use super::layer::Rules;
use super::repeatable::Repeat;
use crate::call::{
    Attempt, AttemptLog, Failures, Judged, Membership, Phase, Scope, Setting, refined, with_current,
};
use crate::classify::{AttemptError, Classify, Verdict, never_left, verdict_of};
use crate::error::{AttemptTimedOut, BoxError, Ours, RetryRefused, outermost};
use crate::event::{Event, EventKind, StopReason};
use crate::key::Key;

/// What is known of the call, apart from the futures in it.
pub(super) struct Sending<Request> {
    pub(super) call: Membership,
    pub(super) started: Instant,
    key: Key,
    /// What the request itself says; an override may say otherwise.
    by_request: Repeat,
    /// The one retry of a request that never left has been made.
    unprocessed_spent: bool,
    /// The request may be sent again, so that a client that retries beneath is nested in this one.
    retrying: bool,
    /// `NestedRetry` has been raised.
    told_of_nesting: bool,
    pub(super) attempt: u32,
    attempt_started: Instant,
    /// The backoff before this attempt, or before the next one while it is slept.
    delay: Duration,
    /// The request for the next attempt, made before this one was sent.
    pub(super) copy: Option<Request>,
    /// What the next attempt costs; taken when it was decided on.
    token: Option<Token>,
}

/// What the future does next.
pub(super) enum Step<Res> {
    Return(Result<Res, BoxError>),
    Wait { delay: Duration, now: Instant },
}

/// What the classifier says of an attempt.
#[derive(Clone, Copy)]
struct Judgement {
    verdict: Verdict,
    status: Option<u16>,
}

fn error_of<Res>(result: &Result<Res, BoxError>) -> Option<&(dyn Error + 'static)> {
    result.as_ref().err().map(|e| &**e as _)
}

impl<Request> Sending<Request> {
    pub(super) fn new(call: Membership, started: Instant, key: Key, by_request: Repeat) -> Self {
        Self {
            call,
            started,
            key,
            by_request,
            unprocessed_spent: false,
            retrying: false,
            told_of_nesting: false,
            attempt: 1,
            attempt_started: started,
            delay: Duration::ZERO,
            copy: None,
            token: None,
        }
    }

    /// Polls or calls an attempt, inside the scope of the call.
    pub(super) fn in_attempt<R>(&mut self, f: impl FnOnce() -> R) -> R {
        let retrying = self.retrying;
        let f = || {
            let exchange = |scope: &mut Scope, retrying: &mut bool| {
                mem::swap(&mut scope.retrying, retrying);
            };
            refined(retrying, exchange, f)
        };
        self.call.enter(f)
    }

    /// Whether another attempt could follow the first, so that the request has to be copied.
    pub(super) fn may_repeat(&self) -> bool {
        self.retrying
    }

    /// What the call allows, overrides included.
    fn plan<C, Y>(&mut self, rules: &Rules<C, Y>) -> Plan {
        let (attempts, retry, nested) = self.call.with(|scope| {
            let (attempts, retry) = scope
                .overrides
                .as_ref()
                .map_or((Setting::Inherit, Setting::Inherit), |o| {
                    (o.attempts, o.retry)
                });
            (
                attempts.over(Some(rules.attempts)),
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
        self.retrying = self.plan(rules).may_follow(1);
        let nested = self.call.with(|scope| {
            scope.joined_by_retry = true;
            scope.retry_active = true;
            if scope.attempt != attempt || scope.attempt_started != Some(started) {
                scope.begin_attempt(attempt, started, delay);
            }
            scope.inside_retry
        });
        if nested && rules.attempts > 1 && !mem::replace(&mut self.told_of_nesting, true) {
            rules.listeners.raise(|| Event {
                attempt,
                ..Event::new(EventKind::NestedRetry)
            });
        }
    }

    /// The next attempt begins now, with `request`.
    pub(super) fn next_attempt<C, Y>(
        &mut self,
        rules: &Rules<C, Y>,
        request: &Request,
        now: Instant,
    ) where
        Y: CopyRequest<Request>,
    {
        self.attempt = self.attempt.saturating_add(1);
        self.attempt_started = now;
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

    /// What comes after an attempt.
    pub(super) fn after_attempt<Res, C, Y>(
        &mut self,
        rules: &Rules<C, Y>,
        result: Result<Res, BoxError>,
    ) -> Step<Res>
    where
        C: Classify<Res>,
    {
        let judged = Judgement {
            verdict: verdict_of(&rules.classifier, &result),
            status: result
                .as_ref()
                .ok()
                .and_then(|response| rules.classifier.status(response)),
        };
        if judged.verdict == Verdict::Ok {
            rules.budget.deposit(self.key);
            let retried = self.call.with(|scope| scope.failures.is_some());
            if retried || !rules.listeners.is_empty() {
                let entry = self.note_attempt(rules, judged, &result, Instant::now());
                if retried {
                    self.keep(entry);
                }
            }
            Step::Return(self.end(EventKind::Succeeded, StopReason::Success, judged, result))
        } else {
            self.after_failure(rules, judged, result)
        }
    }

    fn after_failure<Res, C, Y>(
        &mut self,
        rules: &Rules<C, Y>,
        judged: Judgement,
        result: Result<Res, BoxError>,
    ) -> Step<Res>
    where
        C: Classify<Res>,
    {
        let now = Instant::now();
        let entry = self.note_attempt(rules, judged, &result, now);
        let plan = self.plan(rules);
        let failure = self.look_at(rules, plan, judged, &result);
        let (deadline, normal, criticality) = self
            .call
            .with(|scope| (scope.deadline, scope.normal, scope.criticality));
        let left = deadline.map(|at| at.saturating_duration_since(now));
        let has_copy = self.copy.is_some();
        self.keep(entry);

        let attempt = self.attempt;
        let next = next(
            plan,
            &rules.backoff,
            failure,
            attempt,
            has_copy,
            left,
            normal,
        );
        let reason = match next {
            Next::Stop(reason) => reason,
            // Charged last (rule 19).
            Next::Wait(delay) => match rules.budget.withdraw(self.key, criticality, now) {
                Ok(token) => {
                    self.token = Some(token);
                    self.delay = delay;
                    self.unprocessed_spent |= plan.repeat == Repeat::Never;
                    self.keep_error(result.err());
                    rules.listeners.raise(|| Event {
                        attempt,
                        verdict: Some(judged.verdict),
                        status: judged.status,
                        delay: Some(delay),
                        ..Event::new(EventKind::Retrying)
                    });
                    return Step::Wait { delay, now };
                }
                Err(retry_after) => {
                    let result = result.map_err(|error| self.refused(retry_after, error));
                    let (kind, reason) = (EventKind::RejectedByBudget, StopReason::Budget);
                    return Step::Return(self.end(kind, reason, judged, result));
                }
            },
        };
        Step::Return(match (reason, result) {
            // Rule 2: no response to give, and no time for another attempt.
            (StopReason::DeadlineTooNear, Err(error)) => {
                self.keep_error(Some(error));
                self.call.with(|scope| {
                    scope.phase = Phase::Backoff;
                    scope.ending = Some((EventKind::DeadlineExceeded, reason));
                    scope.retry_failed = true;
                    scope.retry_active = false;
                });
                Err(self.call.exceeded(now).into())
            }
            (_, result) if failure.cut_by_deadline => {
                self.end(EventKind::DeadlineExceeded, reason, judged, result)
            }
            (_, result) => self.end(terminal(reason), reason, judged, result),
        })
    }

    /// What a failed attempt says of another one.
    fn look_at<Res, C, Y>(
        &mut self,
        rules: &Rules<C, Y>,
        plan: Plan,
        judged: Judgement,
        result: &Result<Res, BoxError>,
    ) -> Failure
    where
        C: Classify<Res>,
    {
        let error = error_of(result);
        Failure {
            verdict: judged.verdict,
            status: judged.status,
            // Looking is not free, and only asked for where it matters.
            never_left: plan.repeat != Repeat::Always && error.is_some_and(never_left),
            asked: match judged.verdict {
                Verdict::Throttled => rules
                    .classifier
                    .wait(result.as_ref().map_err(|e| AttemptError::new(&**e))),
                _ => None,
            },
            spilled: self.call.with(|scope| scope.spilled),
            cut_by_deadline: matches!(error.and_then(outermost), Some(Ours::Exceeded(_))),
        }
    }

    fn refused(&mut self, retry_after: Option<Duration>, source: BoxError) -> BoxError {
        Box::new(RetryRefused {
            retry_after,
            log: self.log(),
            source: Some(source),
        })
    }

    /// The attempts so far, if any failed.
    fn log(&mut self) -> AttemptLog {
        self.call
            .with(|scope| scope.failures.as_ref().map(|f| f.log.clone()))
            .unwrap_or_default()
    }

    /// The inner service failed when it was asked whether it is ready: that ends the call unchanged.
    pub(super) fn readiness_failed<Res>(&mut self, error: BoxError) -> Result<Res, BoxError> {
        let judged = Judgement {
            verdict: Verdict::Permanent,
            status: None,
        };
        let (kind, reason) = (EventKind::NotRetried, StopReason::Readiness);
        self.end(kind, reason, judged, Err(error))
    }

    /// The call ends here, with `result`.
    fn end<Res>(
        &mut self,
        kind: EventKind,
        reason: StopReason,
        judged: Judgement,
        result: Result<Res, BoxError>,
    ) -> Result<Res, BoxError> {
        let failed = result.is_err();
        let has_failures = self.call.with(|scope| {
            scope.ending = Some((kind, reason));
            scope.last_judged = Some((judged.verdict, judged.status));
            scope.retry_failed = failed;
            scope.retry_active = false;
            scope.failures.is_some()
        });
        if has_failures {
            if let Some(timed_out) = error_of(&result).and_then(|e| AttemptTimedOut::find(e)) {
                timed_out.attach(&self.log());
            }
            self.keep_error(None);
        }
        if let Membership::Own(opened) = &mut self.call {
            opened.conclude(Judged {
                verdict: judged.verdict,
                status: judged.status,
                error: error_of(&result),
            });
        }
        result
    }

    /// Tells the listeners of an attempt that ended, and gives its entry for the log.
    fn note_attempt<Res, C, Y>(
        &mut self,
        rules: &Rules<C, Y>,
        judged: Judgement,
        result: &Result<Res, BoxError>,
        now: Instant,
    ) -> Option<Attempt> {
        let entry = self
            .call
            .with(|scope| Some(scope.attempt_entry(judged.verdict, judged.status, now)))?;
        rules.listeners.raise(|| Event {
            error: error_of(result),
            ..Event::attempt(&entry)
        });
        Some(entry)
    }

    /// It is dropped before it ended: where that is in the scope of its call, another may join it.
    pub(super) fn leave(&mut self) {
        let started = self.attempt_started;
        if let Membership::Joined = self.call {
            with_current(|scope| {
                if scope.attempt_started == Some(started) {
                    scope.retry_active = false;
                }
            });
        }
    }

    /// The attempt in flight, where the scope around has been ended: its own call's, or that of a call
    /// around it.
    pub(super) fn cut(&self) -> Option<Attempt> {
        let started = self.attempt_started;
        let (ended, ceiling) = with_current(|scope| {
            let own = scope.attempt_started == Some(started) && scope.attempt == self.attempt;
            (scope.ended, scope.ceiling.filter(|_| own))
        });
        ended.then(|| Attempt {
            number: self.attempt,
            verdict: Verdict::Transient,
            duration: Instant::now().saturating_duration_since(started),
            delay: self.delay,
            ceiling,
            status: None,
        })
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

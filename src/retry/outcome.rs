//! What comes after an attempt: the end of the call, or a wait and another attempt.

use std::error::Error;
use std::mem;
use std::time::Duration;

use tokio::time::Instant;

use super::decision::{Failure, Next, Plan, next, terminal};
use super::layer::Rules;
use super::repeatable::Repeat;
use super::sending::Sending;
use crate::call::{Attempt, AttemptLog, Ending, Failures, Judged, Membership, Phase, RetryPart};
use crate::classify::{AttemptError, Classify, Verdict, never_left, verdict_of};
use crate::error::{AttemptTimedOut, BoxError, Ours, RetryRefused, outermost};
use crate::event::{Event, EventKind, StopReason};

/// What the future does next.
pub(super) enum Step<Res> {
    Return(Result<Res, BoxError>),
    Wait { delay: Duration, now: Instant },
}

/// What the classifier says of an attempt.
#[derive(Clone, Copy)]
pub(super) struct Judgement {
    verdict: Verdict,
    status: Option<u16>,
}

impl Judgement {
    #[inline]
    pub(super) fn of<Res>(
        classifier: &impl Classify<Res>,
        result: Result<&Res, &BoxError>,
    ) -> Self {
        Self {
            verdict: verdict_of(classifier, result),
            status: result.ok().and_then(|r| classifier.status(r)),
        }
    }
}

fn error_of<Res>(result: &Result<Res, BoxError>) -> Option<&(dyn Error + 'static)> {
    result.as_ref().err().map(|e| &**e as _)
}

impl Sending {
    /// Ends a call whose attempt has succeeded, where there is nothing to tell of it: none has failed, and
    /// nobody listens. Whether that is so.
    #[inline]
    pub(super) fn end_plainly<C, Y>(&mut self, rules: &Rules<C, Y>, judged: Judgement) -> bool {
        if judged.verdict != Verdict::Ok || !rules.listeners.is_empty() {
            return false;
        }
        let ending = Ending {
            kind: EventKind::Succeeded,
            reason: StopReason::Success,
            verdict: judged.verdict,
            status: judged.status,
            failed: false,
            went_on: false,
        };
        let plain = self.call.with(|scope| {
            if scope.failures.is_some() {
                return false;
            }
            scope.ending = Some(ending);
            scope.retry = RetryPart::Over;
            true
        });
        if !plain {
            return false;
        }
        rules.budget.deposit(self.key);
        if let Membership::Own(opened) = &mut self.call {
            opened.conclude(Judged {
                verdict: judged.verdict,
                status: judged.status,
                error: None,
            });
        }
        true
    }

    /// What comes after an attempt.
    pub(super) fn after_attempt<Res, C, Y>(
        &mut self,
        rules: &Rules<C, Y>,
        judged: Judgement,
        result: Result<Res, BoxError>,
        has_copy: bool,
    ) -> Step<Res>
    where
        C: Classify<Res>,
    {
        if judged.verdict == Verdict::Ok {
            rules.budget.deposit(self.key);
            let retried = self.call.with(|scope| scope.failures.is_some());
            let entry = self.note_attempt(rules, judged, &result, Instant::now());
            if retried {
                self.keep(entry);
            }
            Step::Return(self.end(EventKind::Succeeded, StopReason::Success, judged, result))
        } else {
            self.after_failure(rules, judged, result, has_copy)
        }
    }

    fn after_failure<Res, C, Y>(
        &mut self,
        rules: &Rules<C, Y>,
        judged: Judgement,
        result: Result<Res, BoxError>,
        has_copy: bool,
    ) -> Step<Res>
    where
        C: Classify<Res>,
    {
        let now = Instant::now();
        let entry = self.note_attempt(rules, judged, &result, now);
        let plan = self.plan(rules);
        let failure = self.look_at(rules, plan, judged, &result);
        let failure = Failure {
            took: entry.as_ref().map_or(Duration::ZERO, |e| e.duration),
            ..failure
        };
        let (deadline, normal, criticality) = self
            .call
            .with(|scope| (scope.deadline, scope.normal, scope.criticality));
        let left = deadline.map(|at| at.saturating_duration_since(now));
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
                self.call.with(|scope| scope.phase = Phase::Backoff);
                self.leave_with(EventKind::DeadlineExceeded, reason, judged, true);
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
            took: Duration::ZERO,
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
        if self.leave_with(kind, reason, judged, result.is_err()) {
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

    /// Leaves word in the scope of how this ended. Whether attempts have failed.
    fn leave_with(
        &mut self,
        kind: EventKind,
        reason: StopReason,
        judged: Judgement,
        failed: bool,
    ) -> bool {
        self.call.with(|scope| {
            scope.ending = Some(Ending {
                kind,
                reason,
                verdict: judged.verdict,
                status: judged.status,
                failed,
                went_on: false,
            });
            scope.retry = RetryPart::Over;
            scope.failures.is_some()
        })
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

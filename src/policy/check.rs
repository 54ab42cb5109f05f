//! What is wrong with a policy.

use std::time::Duration;

use super::validation::{PolicyError, Problem, Problems, Value};
use super::value::CallPolicy;
use crate::attempt_timeout::timeout_problems;
use crate::retry::{attempts_problems, fraction_problems};

impl CallPolicy {
    /// Whether the policy can mean what it says.
    ///
    /// Refused are bounds of zero, attempts of 0, numbers of the backoff, the ceiling and the budget
    /// that are out of their range, and what was written out and has no effect: retries that are
    /// configured where one attempt is made, a bound on the gaps without an attempt timeout, a base
    /// of the backoff that is measured where nothing is. A
    /// [`CallOverride`](crate::CallOverride) could give it one for a single call; derive a policy for
    /// those calls instead.
    ///
    /// # Errors
    ///
    /// Every problem at once, each with the setting, its value and the reason.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_deadline::{AttemptCeiling, CallPolicy};
    ///
    /// let error = CallPolicy::http()
    ///     .attempts(0)
    ///     .ceiling(AttemptCeiling::above(1.0).floor(Duration::from_secs(10)))
    ///     .validate()
    ///     .unwrap_err();
    /// let fields: Vec<_> = error.problems().iter().map(|p| p.field()).collect();
    /// assert_eq!(fields, ["attempts", "ceiling.multiple", "ceiling.floor"]);
    /// assert!(error.to_string().contains("ceiling.floor = 10s: it is not below the 10s"));
    /// ```
    pub fn validate(&self) -> Result<(), PolicyError> {
        self.problems().into_result()
    }

    /// The policy itself, if it can mean what it says; in a constant, a compile error that lists every
    /// problem if it cannot.
    ///
    /// Beside what [`validate`](Self::validate) refuses, an attempt timeout that was written out above
    /// the deadline is refused too: no attempt could ever reach it.
    ///
    /// ```compile_fail
    /// use std::time::Duration;
    /// use tower_deadline::CallPolicy;
    ///
    /// // evaluation panicked: 1 problem in this policy:
    /// // - attempt_timeout = 60s: it is above the deadline of 30s, which ends every attempt before it
    /// const API: CallPolicy = CallPolicy::http().attempt_timeout(Duration::from_secs(60)).checked();
    /// # let _ = API;
    /// ```
    ///
    /// # Panics
    ///
    /// Outside a constant, where the policy is refused. For a policy that is not one of a constant
    /// there is [`validate`](Self::validate).
    #[track_caller]
    pub const fn checked(self) -> Self {
        let mut problems = self.problems();
        self.unreachable_problems(&mut problems);
        assert!(problems.is_empty(), "{}", problems.text().as_str());
        self
    }

    /// The attempt timeout that was written out and that the deadline makes unreachable.
    pub(super) fn warning(&self) -> Option<Problem> {
        let mut problems = Problems::new();
        self.unreachable_problems(&mut problems);
        problems.into_problems().pop()
    }

    const fn unreachable_problems(&self, problems: &mut Problems) {
        if let (Some(timeout), Some(deadline)) = (self.attempt_timeout, self.deadline) {
            problems.refuse_against(
                self.written.attempt_timeout && is_above(timeout, deadline),
                ("attempt_timeout", Value::Duration(timeout)),
                "it is above the deadline of ",
                Value::Duration(deadline),
                ", which ends every attempt before it",
            );
        }
    }

    pub(super) const fn problems(&self) -> Problems {
        let mut problems = Problems::new();
        if let Some(deadline) = self.deadline {
            problems.refuse_if(
                deadline.is_zero(),
                "deadline",
                Value::Duration(deadline),
                "it would be over before the first attempt; use `no_deadline()` for no bound",
            );
        }
        timeout_problems(self.attempt_timeout, &mut problems);
        attempts_problems(self.attempts, &mut problems);
        self.retry_problems(&mut problems);
        if let (Some(ceiling), true) = (self.ceiling_in_force(), self.written.ceiling) {
            let bound = smaller(self.attempt_timeout, self.deadline);
            ceiling.problems(bound, &mut problems);
        }
        problems.refuse_if(
            self.written.bound_progress && self.gap().is_none(),
            "bound_progress",
            Value::Flag(true),
            "it has no effect without an attempt timeout, which is what it bounds the gaps by",
        );
        if let Some(max_bytes) = self.buffering {
            problems.refuse_if(
                max_bytes == 0,
                "buffer_responses",
                Value::Count(0),
                "no body fits into it; use `no_buffering()` to hand bodies over live",
            );
        }
        let deadline = self.deadline.is_some() || self.inherit;
        problems.refuse_if(
            self.bound_readiness && !deadline,
            "bound_readiness",
            Value::Flag(true),
            "it has no effect without a deadline, against which readiness would count",
        );
        problems.refuse_if(
            self.bound_body && !deadline,
            "bound_body",
            Value::Flag(true),
            "it has no effect without a deadline, which would bound the body",
        );
        self.sent.problems(&mut problems);
        problems.refuse_if(
            self.written.hop_headers && self.sent.is_nothing(),
            "hop_headers",
            Value::Word("(written out)"),
            "they have no effect where nothing is sent in them",
        );
        problems
    }

    const fn retry_problems(&self, problems: &mut Problems) {
        const UNUSED: &str = "it has no effect where one attempt is made";
        let written = self.written;
        if self.attempts == 1 {
            let own = Value::Word("(written out)");
            let waits = written.backoff && !self.backoff.is_none();
            problems.refuse_if(waits, "backoff", own, UNUSED);
            problems.refuse_if(written.budget, "budget", own, UNUSED);
            let on = Value::Flag(true);
            problems.refuse_if(
                self.retry_unsafe_methods,
                "retry_unsafe_methods",
                on,
                UNUSED,
            );
            problems.refuse_if(self.retry_unprocessed, "retry_unprocessed", on, UNUSED);
            problems.refuse_if(self.defer_to_caller, "defer_to_caller", on, UNUSED);
        }
        self.backoff.problems(problems);
        if let Some(multiple) = self.backoff.measured_multiple() {
            problems.refuse_if(
                self.attempts > 1 && self.ceiling_in_force().is_none(),
                "backoff.measured",
                Value::Number(multiple),
                "it has no effect without a measured ceiling, since nothing is measured",
            );
        }
        if let Some(deadline) = self.deadline {
            let least = self.backoff.least();
            problems.refuse_against(
                written.backoff && self.attempts > 1 && !is_above(deadline, least),
                ("backoff", Value::Duration(least)),
                "no wait is shorter, and none fits into the deadline of ",
                Value::Duration(deadline),
                ", so that there can be no second attempt",
            );
        }
        if let Some(budget) = self.budget {
            fraction_problems(budget.fraction, problems);
        }
    }
}

const fn is_above(a: Duration, b: Duration) -> bool {
    a.as_nanos() > b.as_nanos()
}

const fn smaller(a: Option<Duration>, b: Option<Duration>) -> Option<Duration> {
    match (a, b) {
        (Some(one), Some(other)) => Some(if is_above(one, other) { other } else { one }),
        (one, None) | (None, one) => one,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attempt_timeout::AttemptCeiling;
    use crate::retry::Backoff;

    const fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    const fn secs(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[allow(clippy::large_types_passed_by_value)] // as its users do
    fn refused(policy: CallPolicy) -> Vec<&'static str> {
        let problems = policy.problems().into_problems();
        problems.iter().map(Problem::field).collect()
    }

    #[test]
    fn the_presets_are_accepted() {
        const _: CallPolicy = CallPolicy::new().checked();
        const _: CallPolicy = CallPolicy::http().checked();
        const _: CallPolicy = CallPolicy::none().checked();
    }

    #[test]
    #[allow(clippy::too_many_lines)] // a table
    fn each_problem_is_found_and_one_step_away_there_is_none() {
        let http = CallPolicy::http();
        let above = AttemptCeiling::above;
        for (wrong, right, field) in [
            (http.deadline(ms(0)), http.deadline(ms(1)), "deadline"),
            (
                http.attempt_timeout(ms(0)),
                http.attempt_timeout(ms(1)),
                "attempt_timeout",
            ),
            (http.attempts(0), http.attempts(1), "attempts"),
            (
                http.attempts(1).backoff(Backoff::constant(ms(1))),
                http.attempts(1).backoff(Backoff::none()),
                "backoff",
            ),
            (
                http.attempts(1).budget(0.2, 1),
                http.attempts(2).budget(0.2, 1),
                "budget",
            ),
            (
                http.attempts(1).retry_unsafe_methods(true),
                http.attempts(2).retry_unsafe_methods(true),
                "retry_unsafe_methods",
            ),
            (
                http.attempts(1).retry_unprocessed(true),
                http.attempts(2).retry_unprocessed(true),
                "retry_unprocessed",
            ),
            (
                http.attempts(1).defer_to_caller(true),
                http.attempts(2).defer_to_caller(true),
                "defer_to_caller",
            ),
            (
                http.backoff(Backoff::exponential().base(ms(11)).cap(ms(10))),
                http.backoff(Backoff::exponential().base(ms(10)).cap(ms(10))),
                "backoff.cap",
            ),
            (
                http.no_ceiling().backoff(Backoff::measured(2.0)),
                http.backoff(Backoff::measured(2.0)),
                "backoff.measured",
            ),
            (
                http.ceiling(above(1.0)),
                http.ceiling(above(1.01)),
                "ceiling.multiple",
            ),
            (
                http.ceiling(above(f64::NAN)),
                http.no_ceiling(),
                "ceiling.multiple",
            ),
            (
                http.ceiling(above(3.0).quantile(0.49)),
                http.ceiling(above(3.0).quantile(0.5)),
                "ceiling.quantile",
            ),
            (
                http.ceiling(above(3.0).quantile(0.991)),
                http.ceiling(above(3.0).quantile(0.99)),
                "ceiling.quantile",
            ),
            (
                http.ceiling(above(3.0).window(ms(9))),
                http.ceiling(above(3.0).window(ms(10))),
                "ceiling.window",
            ),
            (
                http.ceiling(above(3.0).minimum_samples(0)),
                http.ceiling(above(3.0).minimum_samples(1)),
                "ceiling.minimum_samples",
            ),
            (
                http.ceiling(above(3.0).floor(secs(10))),
                http.ceiling(above(3.0).floor(secs(9))),
                "ceiling.floor",
            ),
            (
                http.no_attempt_timeout()
                    .ceiling(above(3.0).floor(secs(30))),
                http.no_attempt_timeout()
                    .ceiling(above(3.0).floor(secs(29))),
                "ceiling.floor",
            ),
            (
                http.attempt_timeout(ms(50)).ceiling(above(3.0)),
                http.attempt_timeout(ms(51)).ceiling(above(3.0)),
                "ceiling.floor",
            ),
            (
                http.deadline(secs(5)).backoff(Backoff::constant(secs(5))),
                http.deadline(secs(5)).backoff(Backoff::constant(ms(4999))),
                "backoff",
            ),
            (http.budget(0.0, 3), http.budget(0.01, 3), "budget.fraction"),
            (http.budget(1.1, 3), http.budget(1.0, 3), "budget.fraction"),
            (
                http.no_attempt_timeout().bound_progress(true),
                http.attempt_timeout(ms(1)).bound_progress(true),
                "bound_progress",
            ),
            (
                http.buffer_responses(0),
                http.buffer_responses(1),
                "buffer_responses",
            ),
            (
                http.no_deadline().bound_readiness(true),
                http.bound_readiness(true),
                "bound_readiness",
            ),
            (
                http.no_deadline().bound_body(true),
                http.no_deadline().inherit(true).bound_body(true),
                "bound_body",
            ),
        ] {
            assert_eq!(refused(wrong), [field]);
            assert_eq!(refused(right), [""; 0], "{field}");
        }
    }

    #[test]
    fn every_problem_is_told_at_once_and_names_both_numbers() {
        let policy = CallPolicy::http()
            .deadline(ms(0))
            .attempt_timeout(ms(250))
            .attempts(0)
            .ceiling(AttemptCeiling::above(0.5).floor(ms(1500)))
            .budget(2.0, 1);
        let fields = [
            "deadline",
            "attempts",
            "budget.fraction",
            "ceiling.multiple",
            "ceiling.floor",
        ];
        assert_eq!(refused(policy), fields);
        let error = policy.validate().unwrap_err();
        let floor = error.problems().last().unwrap();
        assert_eq!(floor.value(), "1.5s");
        let runtime = error.to_string();
        let compiler = policy.problems().text();
        for problem in error.problems() {
            assert!(compiler.as_str().contains(problem.reason()), "{problem}");
            assert!(runtime.contains(&problem.to_string()));
        }
    }

    #[test]
    fn one_number_changed_never_breaks_a_preset() {
        let http = CallPolicy::http();
        for policy in [
            http.deadline(ms(1)),
            http.deadline(secs(5)),
            http.no_deadline(),
            http.attempt_timeout(ms(40)),
            http.no_attempt_timeout(),
            http.attempts(1),
            http.attempts(u32::MAX),
            http.backoff(Backoff::exponential().cap(ms(10))),
            http.backoff(Backoff::exponential().base(secs(60))),
            http.backoff(Backoff::constant(secs(29))),
            http.no_ceiling(),
            http.no_budget(),
            http.bound_progress(false),
            http.bound_progress(true),
        ] {
            assert_eq!(policy.checked(), policy);
        }
    }

    #[test]
    fn an_unreachable_attempt_timeout_is_legal_and_refused_by_checked() {
        let policy = CallPolicy::http().attempt_timeout(secs(60));
        assert_eq!(policy.validate(), Ok(()));
        let told = policy.warning().unwrap().to_string();
        assert!(told.contains("60s") && told.contains("30s"), "{told}");
        let refused = std::panic::catch_unwind(|| policy.checked()).unwrap_err();
        let message = refused.downcast_ref::<String>().unwrap();
        assert!(message.contains(&told), "{message}");
        // Just before: as long as the deadline, and not written out.
        let same = CallPolicy::http().attempt_timeout(secs(30));
        assert_eq!(same.checked(), same);
        assert_eq!(CallPolicy::http().deadline(secs(5)).warning(), None);
    }
}

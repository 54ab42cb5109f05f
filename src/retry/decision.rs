//! Whether another attempt is made, and when.

use std::time::Duration;

use super::backoff::{Backoff, part_of};
use super::repeatable::Repeat;
use crate::classify::Verdict;
use crate::event::{EventKind, StopReason};

/// What is known after an attempt that did not succeed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Failure {
    pub(super) verdict: Verdict,
    pub(super) status: Option<u16>,
    /// The error proves that the request was not acted on.
    pub(super) never_left: bool,
    /// How long the peer asked to wait.
    pub(super) asked: Option<Duration>,
    /// The response is being handed over live.
    pub(super) spilled: bool,
    /// The call's deadline is what ended the attempt.
    pub(super) cut_by_deadline: bool,
    /// How long the attempt took.
    pub(super) took: Duration,
}

/// What the call allows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plan {
    pub(super) attempts: u32,
    pub(super) repeat: Repeat,
    /// One more attempt may be made after an error that proves that the request was not acted on.
    pub(super) unprocessed: bool,
}

impl Plan {
    /// Whether another attempt can follow attempt `number`, so that the request has to be copied.
    pub(super) fn may_follow(self, number: u32) -> bool {
        number < self.attempts && (self.repeat != Repeat::Never || self.unprocessed)
    }

    fn allows(self, failure: Failure) -> bool {
        match self.repeat {
            Repeat::Always => true,
            Repeat::IfNotActedOn => {
                failure.verdict == Verdict::Throttled
                    || matches!(failure.status, Some(429 | 503))
                    || failure.never_left
            }
            Repeat::Never => self.unprocessed && failure.never_left,
        }
    }
}

/// What comes after a failed attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// Another attempt after so long, if the budget allows it.
    Wait(Duration),
    Stop(StopReason),
}

/// Decides, in the order of rule 19, all but the budget.
///
/// `attempt` is the number of the one that failed, `has_copy` whether the request can be sent again,
/// `left` the time left on the deadline, `normal` how long an attempt takes when all is well (zero when
/// nobody knows).
pub(super) fn next(
    plan: Plan,
    backoff: &Backoff,
    failure: Failure,
    attempt: u32,
    has_copy: bool,
    left: Option<Duration>,
    normal: Option<Duration>,
) -> Next {
    if failure.cut_by_deadline || failure.verdict == Verdict::Permanent {
        return Next::Stop(StopReason::Permanent);
    }
    if attempt >= plan.attempts {
        return Next::Stop(StopReason::AttemptsSpent);
    }
    if !plan.allows(failure) {
        return Next::Stop(StopReason::NotRepeatable);
    }
    if failure.spilled {
        return Next::Stop(StopReason::Spilled);
    }
    if !has_copy {
        return Next::Stop(StopReason::NotReplayable);
    }
    let throttled = failure.verdict == Verdict::Throttled;
    let wait = backoff.measured_wait(attempt.saturating_add(1), throttled, normal);
    let ordinary = backoff.jittered(wait);
    // Rule 2: the wait and a normal attempt have to fit.
    let left = left.map(|left| left.saturating_sub(normal.unwrap_or_default()));
    let is_too_long = |wait: Duration| left.is_some_and(|left| slept(wait) >= left);
    match failure.asked.filter(|asked| !asked.is_zero()) {
        None if is_too_long(ordinary) => Next::Stop(StopReason::DeadlineTooNear),
        None => Next::Wait(ordinary),
        // The longest duration there is says "never".
        Some(asked)
            if asked == Duration::MAX || asked > backoff.longest() || is_too_long(asked) =>
        {
            Next::Stop(StopReason::RetryAfterTooLong)
        }
        Some(asked) => {
            let wait = asked.max(ordinary);
            if is_too_long(wait) {
                return Next::Stop(StopReason::DeadlineTooNear);
            }
            // Never earlier than asked, and not all at once. The spread is drawn from what fits,
            // rather than cut to it, so that a crowd with the same deadline stays spread.
            // What the next attempt will need is not the spread's to take: where nobody knows what is
            // normal, as long as this one took.
            let needed = match normal {
                Some(_) => Duration::ZERO, // it is not in `left` any more
                None => failure.took,
            };
            let room = left.map_or(Duration::MAX, |left| {
                left.saturating_sub(slept(wait))
                    .saturating_sub(TICK)
                    .saturating_sub(needed)
            });
            let spread = part_of(backoff.spread().min(room), fastrand::f64());
            Next::Wait(wait.saturating_add(spread))
        }
    }
}

/// Timers go off at whole milliseconds.
const TICK: Duration = Duration::from_millis(1);

/// How long a wait is slept: a timer goes off at the next tick. One that would go off at the deadline
/// is not begun, since what follows it would not be sent.
pub(crate) fn slept(wait: Duration) -> Duration {
    match wait.subsec_nanos() % 1_000_000 {
        0 => wait,
        over => wait.saturating_add(Duration::from_nanos(u64::from(1_000_000 - over))),
    }
}

/// The terminal event for a reason to stop, where the call ends with a response (or an error of the
/// inner service).
pub(super) fn terminal(reason: StopReason) -> EventKind {
    match reason {
        StopReason::Success => EventKind::Succeeded,
        StopReason::AttemptsSpent => EventKind::Exhausted,
        StopReason::Budget => EventKind::RejectedByBudget,
        _ => EventKind::NotRetried,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::retry::Jitter;
    use proptest::prelude::*;

    const PLAN: Plan = Plan {
        attempts: 3,
        repeat: Repeat::Always,
        unprocessed: false,
    };

    const FAILURE: Failure = Failure {
        verdict: Verdict::Transient,
        status: None,
        never_left: false,
        asked: None,
        spilled: false,
        cut_by_deadline: false,
        took: Duration::ZERO,
    };

    #[test]
    fn the_spread_leaves_the_next_attempt_as_long_as_this_one_took() {
        let failure = Failure {
            verdict: Verdict::Throttled,
            asked: Some(secs(1)),
            took: ms(200),
            ..FAILURE
        };
        let backoff = Backoff::exponential().base(ms(1)).throttled_base(secs(1));
        let found = |took, normal| {
            let failure = Failure { took, ..failure };
            match next(PLAN, &backoff, failure, 1, true, Some(ms(1800)), normal) {
                Next::Wait(wait) => wait,
                Next::Stop(reason) => panic!("{reason}"),
            }
        };
        for _ in 0..200 {
            assert!(found(ms(200), None) <= ms(1600));
            // Where there is none to spare, there is no spread.
            assert_eq!(found(secs(5), None), secs(1));
            assert!(found(secs(5), Some(ms(300))) <= ms(1500));
        }
        assert!((0..200).any(|_| found(ms(0), None) > ms(1600)));
    }

    fn exact() -> Backoff {
        Backoff::exponential().jitter(Jitter::None)
    }

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    fn secs(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[test]
    fn the_reasons_come_in_their_order() {
        // Each entry undoes what stopped the one before, so that the next reason shows.
        let plan = Plan {
            attempts: 1,
            repeat: Repeat::Never,
            ..PLAN
        };
        let worst = Failure {
            verdict: Verdict::Permanent,
            spilled: true,
            ..FAILURE
        };
        let left = Some(ms(50));
        let stop = |plan, failure, copy, left| next(plan, &exact(), failure, 1, copy, left, None);
        assert_eq!(
            stop(plan, worst, false, left),
            Next::Stop(StopReason::Permanent)
        );
        let worst = Failure {
            verdict: Verdict::Transient,
            ..worst
        };
        assert_eq!(
            stop(plan, worst, false, left),
            Next::Stop(StopReason::AttemptsSpent)
        );
        let plan = Plan {
            attempts: 2,
            ..plan
        };
        assert_eq!(
            stop(plan, worst, false, left),
            Next::Stop(StopReason::NotRepeatable)
        );
        let plan = Plan {
            repeat: Repeat::Always,
            ..plan
        };
        assert_eq!(
            stop(plan, worst, false, left),
            Next::Stop(StopReason::Spilled)
        );
        let worst = Failure {
            spilled: false,
            ..worst
        };
        assert_eq!(
            stop(plan, worst, false, left),
            Next::Stop(StopReason::NotReplayable)
        );
        assert_eq!(
            stop(plan, worst, true, left),
            Next::Stop(StopReason::DeadlineTooNear)
        );
        assert_eq!(stop(plan, worst, true, None), Next::Wait(ms(100)));
    }

    #[test]
    fn a_delay_has_to_be_shorter_than_what_is_left() {
        let found = |left| next(PLAN, &exact(), FAILURE, 1, true, Some(left), None);
        assert_eq!(found(ms(100)), Next::Stop(StopReason::DeadlineTooNear));
        assert_eq!(found(Duration::from_micros(100_001)), Next::Wait(ms(100)));
    }

    #[test]
    fn a_normal_attempt_has_to_fit_after_the_delay() {
        let found = |left, normal| {
            next(
                PLAN,
                &exact(),
                FAILURE,
                1,
                true,
                Some(ms(left)),
                Some(ms(normal)),
            )
        };
        let doomed = Next::Stop(StopReason::DeadlineTooNear);
        assert_eq!(found(140, 40), doomed);
        assert_eq!(found(141, 40), Next::Wait(ms(100)));
        assert_eq!(found(141, 1000), doomed);
    }

    #[test]
    fn a_write_with_a_precondition_is_repeated_only_when_it_was_not_acted_on() {
        let plan = Plan {
            repeat: Repeat::IfNotActedOn,
            ..PLAN
        };
        let allowed = |failure| plan.allows(failure);
        assert!(!allowed(FAILURE));
        for status in [500, 502, 504, 408] {
            let failure = Failure {
                status: Some(status),
                ..FAILURE
            };
            assert!(!allowed(failure), "{status}");
        }
        for status in [429, 503] {
            let failure = Failure {
                status: Some(status),
                ..FAILURE
            };
            assert!(allowed(failure), "{status}");
        }
        assert!(allowed(Failure {
            never_left: true,
            ..FAILURE
        }));
    }

    #[test]
    fn what_never_left_is_repeated_once_where_it_was_asked_for() {
        let never_left = Failure {
            never_left: true,
            ..FAILURE
        };
        let post = Plan {
            repeat: Repeat::Never,
            ..PLAN
        };
        assert!(!post.may_follow(1) && !post.allows(never_left));
        let asked_for = Plan {
            unprocessed: true,
            ..post
        };
        assert!(asked_for.may_follow(1) && asked_for.allows(never_left));
        assert!(!asked_for.allows(FAILURE));
    }

    fn after(asked: u64, left: Option<u64>, backoff: &Backoff) -> Next {
        let failure = Failure {
            verdict: Verdict::Throttled,
            asked: Some(secs(asked)),
            ..FAILURE
        };
        next(PLAN, backoff, failure, 1, true, left.map(secs), None)
    }

    #[test]
    fn what_the_peer_asks_for_is_honoured_up_to_the_cap_and_never_undercut() {
        let cap_60 = exact().cap(secs(60));
        for (asked, expected) in [
            (59, Next::Wait(secs(59))),
            (60, Next::Wait(secs(60))),
            (61, Next::Stop(StopReason::RetryAfterTooLong)),
            (0, Next::Wait(secs(1))),
        ] {
            assert_eq!(after(asked, None, &cap_60), expected, "{asked}");
        }
        for curve in [Backoff::constant(ms(5)), Backoff::none(), exact()] {
            assert_eq!(after(30, None, &curve), Next::Wait(secs(30)));
            let too_long = Next::Stop(StopReason::RetryAfterTooLong);
            assert_eq!(after(31, None, &curve), too_long);
            assert_eq!(after(20, Some(20), &curve), too_long);
            assert_eq!(after(20, Some(21), &curve), Next::Wait(secs(20)));
        }
    }

    #[test]
    fn without_a_deadline_no_wait_is_too_long_for_it() {
        let endless = exact().base(Duration::MAX).cap(Duration::MAX);
        let found = next(PLAN, &endless, FAILURE, 1, true, None, None);
        assert_eq!(found, Next::Wait(Duration::MAX));
    }

    #[test]
    fn never_is_never_whatever_the_cap() {
        let failure = Failure {
            verdict: Verdict::Throttled,
            asked: Some(Duration::MAX),
            ..FAILURE
        };
        let patient = exact().cap(Duration::MAX);
        assert_eq!(
            next(PLAN, &patient, failure, 1, true, None, None),
            Next::Stop(StopReason::RetryAfterTooLong)
        );
    }

    proptest! {
        #[test]
        fn a_wait_fits_and_is_never_earlier_than_asked(
            asked in 0..40_u64,
            left in 1..60_000_u64,
            attempt in 1..3_u32,
        ) {
            let failure = Failure {
                verdict: Verdict::Throttled,
                asked: Some(secs(asked)),
                ..FAILURE
            };
            let backoff = Backoff::exponential();
            let left = ms(left);
            let found = next(PLAN, &backoff, failure, attempt, true, Some(left), None);
            if let Next::Wait(wait) = found {
                prop_assert!(wait < left);
                prop_assert!(wait >= secs(asked));
                prop_assert!(wait <= secs(asked).max(backoff.wait(attempt + 1, true)) + secs(1));
            }
        }
    }
}

//! What a policy says of itself, in numbers and in words.

use std::time::Duration;

use tower_deadline::policy::{AttemptStep, End, Explanation, FirstBound, Step};
use tower_deadline::{AttemptCeiling, Backoff, Bound, CallPolicy, Jitter};

use crate::support::{ms, secs};

const HTTP: CallPolicy = CallPolicy::http();

fn attempts(explanation: &Explanation) -> Vec<AttemptStep> {
    let attempts = explanation.transient.steps.iter().filter_map(|s| match s {
        Step::Attempt(attempt) => Some(*attempt),
        _ => None,
    });
    attempts.collect()
}

fn spans(explanation: &Explanation) -> Vec<(Duration, Duration)> {
    let attempts = attempts(explanation);
    attempts.iter().map(|a| (a.start, a.end.unwrap())).collect()
}

fn first_line(explanation: &Explanation) -> String {
    explanation.to_string().lines().next().unwrap().to_owned()
}

#[test]
fn the_preset_leaves_its_third_attempt_97_percent() {
    for policy in [HTTP, CallPolicy::new()] {
        let explanation = policy.explain();
        let FirstBound::Deadline {
            attempt,
            clamped_to,
            share,
            never_started,
            ..
        } = explanation.first
        else {
            panic!("{explanation}");
        };
        assert_eq!((attempt, clamped_to, never_started), (3, ms(9700), 0));
        assert!((share.unwrap() - 0.97).abs() < 1e-9);
        let spans = spans(&explanation);
        assert_eq!(
            spans,
            [
                (secs(0), secs(10)),
                (ms(10_100), ms(20_100)),
                (ms(20_300), secs(30))
            ]
        );
        let left: Vec<_> = attempts(&explanation).iter().map(|a| a.left).collect();
        assert_eq!(left, [Some(secs(30)), Some(ms(19_900)), Some(ms(9700))]);
        assert_eq!(explanation.longest, Some(secs(30)));

        let text = explanation.to_string();
        for part in [
            "the deadline: attempt 3 is clamped to 9.70s, 97% of the 10s attempt timeout",
            "0.00s -> 10.00s",
            "min(10s attempt timeout, 30.00s left)",
            "+0s to 100ms",
            "exponential, x2 from 100ms, full jitter, at most 30s",
            "10.10s -> 20.10s",
            "min(10s attempt timeout, 19.90s left)",
            "+0s to 200ms",
            "20.30s -> 30.00s",
            "min(10s attempt timeout, 9.70s left)",
            "30.00s    DeadlineExceeded",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        assert!(!text.contains("never start"), "{text}");
    }
}

#[test]
fn a_deadline_below_the_attempt_timeout_leaves_one_attempt() {
    let explanation = HTTP.deadline(secs(5)).explain();
    assert_eq!(
        explanation.transient.end,
        End::Deadline {
            attempt: 1,
            never_started: 2
        }
    );
    assert_eq!(spans(&explanation), [(secs(0), secs(5))]);
    let line = first_line(&explanation);
    assert!(line.contains("attempt 1 is clamped to 5.00s"), "{line}");
    assert!(line.contains("attempts 2 and 3 never start"), "{line}");
    let one = HTTP.deadline(secs(5)).attempts(2).explain();
    assert!(first_line(&one).contains("attempt 2 never starts"));
}

#[test]
fn short_attempts_leave_most_of_the_deadline_unused() {
    let policy = HTTP.attempts(2).attempt_timeout(secs(1));
    let explanation = policy.explain();
    assert_eq!(
        explanation.first,
        FirstBound::Attempts {
            at: ms(2100),
            unused: Some(ms(27_900))
        }
    );
    assert_eq!(explanation.transient.end, End::Attempts);
    assert_eq!(explanation.transient.at, Some(ms(2100)));
    let line = first_line(&explanation);
    assert!(
        line.contains("2 attempts are spent at 2.10s, 27.90s of the 30s deadline unused"),
        "{line}"
    );
    // A peer that asks to wait makes it longer, up to the deadline.
    assert_eq!(explanation.longest, Some(secs(30)));
    let patient = policy.deadline(secs(60)).explain();
    assert_eq!(patient.throttled.at, Some(secs(1 + 30 + 1 + 1)));
    assert_eq!(patient.longest, Some(secs(33)));
    assert!(patient.to_string().contains("asked for, up to 30s, spread"));
}

#[test]
fn the_readme_shows_what_is_printed() {
    let readme = include_str!("../../README.md");
    let printed = HTTP.attempt_timeout(secs(2)).explain().to_string();
    assert!(readme.contains(&printed), "{printed}");
}

#[test]
fn on_a_tie_it_is_the_deadline() {
    let tie = HTTP.attempt_timeout(secs(30)).explain();
    assert_eq!(attempts(&tie)[0].bound, Some(Bound::Deadline));
    let below = HTTP.attempt_timeout(secs(29)).explain();
    assert_eq!(attempts(&below)[0].bound, Some(Bound::AttemptTimeout));
}

#[test]
fn what_is_unbounded_is_said_first() {
    let no_deadline = HTTP.no_deadline().explain();
    assert_eq!(no_deadline.longest, Some(secs(92)));
    let line = first_line(&no_deadline);
    assert!(line.starts_with("Unbounded"), "{line}");
    assert!(
        line.contains("92.00s") && line.contains("readiness"),
        "{line}"
    );

    for nothing in [
        CallPolicy::none(),
        HTTP.no_deadline().no_attempt_timeout(),
        HTTP.no_deadline()
            .no_attempt_timeout()
            .ceiling(AttemptCeiling::above(3.0)),
    ] {
        let nothing = nothing.explain();
        assert_eq!(nothing.longest, None);
        assert_eq!(nothing.first, FirstBound::Nothing);
        let line = first_line(&nothing);
        assert!(line.starts_with("Unbounded") && line.contains("for ever"));
        let cold = line.contains("while nothing is measured");
        assert_eq!(cold, nothing.measured.is_some(), "{line}");
    }

    let bounded = HTTP.no_attempt_timeout().explain();
    assert_eq!(bounded.longest, Some(secs(30)));
    assert!(first_line(&bounded).contains("attempt 1 is clamped to 30.00s"));
    assert!(
        bounded.measured.is_none(),
        "the preset's ceiling steps aside"
    );
}

#[test]
fn a_wait_that_does_not_fit_is_said_and_what_comes_of_failing_sooner() {
    let policy = HTTP
        .deadline(secs(10))
        .attempt_timeout(secs(9))
        .backoff(Backoff::constant(secs(2)));
    let explanation = policy.explain();
    assert_eq!(
        explanation.first,
        FirstBound::NoRoom {
            after: 1,
            at: secs(9),
            wait: secs(2),
            left: secs(1)
        }
    );
    assert_eq!(explanation.transient.at, Some(secs(10)));
    let text = explanation.to_string();
    assert!(text.contains("a wait of 2s does not fit into the 1.00s left"));
    assert!(text.contains("where an attempt fails sooner"), "{text}");
    // Where no wait fits however soon it fails, it is the attempt's end.
    let never = policy.backoff(Backoff::constant(secs(10)).cap(secs(10)));
    assert_eq!(never.explain().longest, Some(secs(9)));
    let just = policy.backoff(Backoff::constant(ms(9999)).cap(secs(10)));
    assert_eq!(just.explain().longest, Some(secs(10)));
}

#[test]
fn waits_between_which_nothing_lies_are_not_filled() {
    // 100 ms after a failure, a second at least when throttled: the second attempt begins at 100 or
    // 101 ms and not later, since a second does not fit.
    let policy = HTTP
        .attempts(2)
        .deadline(ms(500))
        .attempt_timeout(ms(1))
        .backoff(Backoff::exponential().jitter(Jitter::None));
    assert_eq!(policy.explain().longest, Some(ms(102)));
}

#[test]
fn many_attempts_are_elided_and_still_reckoned() {
    let explanation = HTTP.attempts(1000).no_deadline().explain();
    assert!(
        explanation.to_string().lines().count() < 45,
        "{explanation}"
    );
    let elided = explanation.transient.steps.iter().find_map(|s| match s {
        Step::Elided { attempts } => Some(*attempts),
        _ => None,
    });
    assert_eq!(elided, Some(994));
    // Nine waits of the curve (0.1 s to 25.6 s), and 30 s from then on.
    let waits = ms(51_100) + secs(30) * (999 - 9);
    assert_eq!(explanation.transient.at, Some(secs(10) * 1000 + waits));

    for attempts in [9_999, 10_000, 10_001, 20_000, 1_000_000, u32::MAX] {
        let explanation = HTTP.attempts(attempts).no_deadline().explain();
        let waits = ms(51_100) + secs(30) * (attempts - 10);
        assert_eq!(
            explanation.transient.at,
            Some(secs(10) * attempts + waits),
            "{attempts}"
        );
        let bounded = HTTP.attempts(attempts).deadline(secs(900_000)).explain();
        let FirstBound::Deadline { never_started, .. } = bounded.first else {
            continue;
        };
        // 40 s for each but the first ten.
        let begun = attempts - never_started;
        assert!((22_500..22_515).contains(&begun), "{begun}");
        assert_eq!(bounded.longest, Some(secs(900_000)));
    }
}

#[test]
fn a_curve_of_the_users_own_is_not_run() {
    let policy = HTTP.backoff(Backoff::custom(|_| panic!("it was run")));
    let explanation = policy.explain();
    assert_eq!(explanation.longest, Some(secs(30)));
    assert!(explanation.to_string().contains("a curve of your own"));
}

#[test]
fn a_policy_that_is_refused_is_explained_too() {
    let policy = HTTP
        .deadline(ms(0))
        .attempts(0)
        .attempt_timeout(Duration::MAX)
        .backoff(Backoff::exponential().factor(f64::NAN).base(Duration::MAX))
        .ceiling(AttemptCeiling::above(f64::NAN).quantile(7.0))
        .budget(f64::INFINITY, u32::MAX);
    let explanation = policy.explain();
    assert_eq!(explanation.problems.len(), 7, "{explanation}");
    assert!(explanation.to_string().contains("attempts = 0"));
    for policy in [policy.no_deadline(), policy.deadline(Duration::MAX)] {
        for attempts in [0, 1, 7, u32::MAX] {
            let text = policy.attempts(attempts).explain().to_string();
            assert!(text.contains("Refused"), "{text}");
        }
    }
}

#[test]
fn the_load_is_said_with_what_the_budget_sustains() {
    let load = HTTP.explain().load;
    assert_eq!((load.multiplier, load.reserve), (3, 30));
    let text = HTTP.budget(0.25, 0).explain().to_string();
    assert!(text.contains("up to 3 requests a call"), "{text}");
    assert!(text.contains("0.25 retries for each call that succeeds"));
    assert!(text.contains("0 a second, with 1 in reserve"), "{text}");
    let none = HTTP.no_budget().explain();
    assert!(none.load.budget.is_none());
    assert!(none.to_string().contains("no budget"));
}

#[test]
fn short_policies_are_shown_in_short_units() {
    let explanation = HTTP.deadline(ms(300)).attempt_timeout(ms(80)).explain();
    let text = explanation.to_string();
    assert!(text.contains("0.0ms -> 80.0ms"), "{text}");
}

#[test]
fn readiness_that_is_bounded_comes_on_top_and_is_said() {
    let policy = HTTP.attempts(1).deadline(secs(10)).attempt_timeout(secs(2));
    let said = |policy: CallPolicy| policy.explain().to_string();
    assert!(!said(policy).contains("readiness"), "{}", said(policy));
    let bounded = said(policy.bound_readiness(true));
    assert!(bounded.contains("2.00s; the wait for readiness comes on top"));
    let patient = policy.deadline(secs(60)).attempts(2);
    assert!(said(patient).contains("between attempts"));
    // The deadline is the end already.
    assert!(!said(HTTP.bound_readiness(true)).contains("readiness"));
}

#[test]
fn what_no_clock_can_hold_is_explained_as_no_bound() {
    let forever = HTTP.deadline(Duration::MAX).explain();
    assert_eq!((forever.deadline, forever.longest), (None, Some(secs(92))));
    let forever = HTTP.attempt_timeout(Duration::MAX).explain();
    assert_eq!((forever.attempt_timeout, forever.gap), (None, None));
    assert_eq!(forever.longest, Some(secs(30)));
}

#[test]
fn a_ceiling_that_can_do_nothing_is_said_to_do_nothing() {
    let idle = HTTP.attempt_timeout(ms(50)).explain();
    assert!(idle.measured.unwrap().idle);
    assert!(idle.to_string().contains("without effect, since"), "{idle}");
    let cold = HTTP.attempt_timeout(ms(51)).explain();
    assert!(!cold.measured.unwrap().idle);
    assert!(cold.to_string().contains("cold"), "{cold}");
}

#[test]
fn very_many_tiny_attempts_are_explained_at_a_stroke() {
    let base = Backoff::exponential().base(ms(0)).throttled_base(secs(30));
    let policy = HTTP.backoff(base.jitter(Jitter::None));
    for attempts in [100_000_000, u32::MAX] {
        for timeout in [0, 1, 1000] {
            let timeout = Duration::from_nanos(timeout);
            let explanation = policy.attempts(attempts).attempt_timeout(timeout).explain();
            let expected = (timeout * attempts).min(secs(30));
            assert_eq!(explanation.transient.at, Some(expected), "{explanation}");
        }
    }
}

#[test]
fn many_attempts_of_which_one_fits_are_one() {
    for attempts in [2, 10_000, 10_001, u32::MAX] {
        let policy = HTTP
            .attempts(attempts)
            .deadline(secs(10))
            .attempt_timeout(secs(1));
        let never = policy.backoff(Backoff::constant(secs(10)).cap(secs(10)));
        assert_eq!(never.explain().longest, Some(secs(1)), "{attempts}");
    }
}

//! The scenarios themselves, in the order in which they are reported.

use std::time::Duration;

use crate::measured::{HANGS, Measured, SLOWS};
use crate::ours::{Call, Ours};
use crate::scenario::{Promise, Scenario, Stack};
use crate::server::{Answer, TOKENS};
use crate::today::Today;

/// One request, the whole answer, at 40 s.
const ANSWERED: Promise = Promise {
    requests: 1,
    generated: TOKENS,
    received: TOKENS,
    outcome: "complete",
    ended: (40.0, 40.0),
};

/// 100 tokens in 6 s, and 15 s without another.
const STALLED: Promise = Promise {
    generated: 100,
    received: 100,
    outcome: "AttemptStalled",
    ended: (21.0, 21.0),
    ..ANSWERED
};

/// Turned away at once, with nothing.
const THROTTLED: Promise = Promise {
    generated: 0,
    received: 0,
    outcome: "429",
    ended: (0.0, 0.0),
    ..ANSWERED
};

const STALLING: &[Answer] = &[Answer::StallingEvents { keep_alive: false }];
const STALLING_KEPT_ALIVE: &[Answer] = &[Answer::StallingEvents { keep_alive: true }];
const STALLING_ONCE: &[Answer] = &[Answer::StallingEvents { keep_alive: false }, Answer::Events];
const THROTTLING: &[Answer] = &[Answer::TooManyRequests { retry_after: None }];
const THROTTLING_20_S: &[Answer] = &[Answer::TooManyRequests {
    retry_after: Some(Duration::from_secs(20)),
}];

pub(crate) static SCENARIOS: &[Scenario] = &[
    Scenario::today(
        "long-answer",
        "30 s in all, 10 s an attempt",
        &[Answer::AtTheEnd],
        Today::DEFAULTS,
    ),
    Scenario::ours(
        "long-answer",
        "deadline 180 s, attempt 90 s",
        &[Answer::AtTheEnd],
        Ours::FOR_THE_MODEL,
        ANSWERED,
    ),
    Scenario::today(
        "retries-off",
        "no retries",
        &[Answer::AtTheEnd],
        Today {
            retries: 0,
            ..Today::DEFAULTS
        },
    ),
    Scenario::today(
        "total-raised",
        "60 s in all",
        &[Answer::AtTheEnd],
        Today {
            total: Some(Duration::from_secs(60)),
            ..Today::DEFAULTS
        },
    ),
    Scenario::today(
        "nested-stacks",
        "a 90 s stack inside the defaults",
        &[Answer::AtTheEnd],
        Today {
            inside: Some(&Today {
                total: Some(Duration::from_secs(180)),
                attempt: Duration::from_secs(90),
                ..Today::DEFAULTS
            }),
            ..Today::DEFAULTS
        },
    ),
    Scenario::ours(
        "nested-stacks",
        "the call overrides the defaults",
        &[Answer::AtTheEnd],
        Ours {
            call: Call::Sized {
                deadline: Duration::from_secs(180),
                attempt: Duration::from_secs(90),
            },
            ..Ours::DEFAULTS
        },
        ANSWERED,
    ),
    Scenario::today(
        "streaming",
        "the defaults",
        &[Answer::Events],
        Today::DEFAULTS,
    ),
    Scenario::ours(
        "streaming",
        "gap 15 s",
        &[Answer::Events],
        Ours::FOR_A_STREAM,
        ANSWERED,
    ),
    Scenario::today(
        "head-first",
        "the defaults",
        &[Answer::HeadFirst],
        Today::DEFAULTS,
    ),
    // Between head and body lies the whole generation: the gap has to be that of an attempt.
    Scenario::ours(
        "head-first",
        "gap 90 s",
        &[Answer::HeadFirst],
        Ours::FOR_THE_MODEL,
        ANSWERED,
    ),
    Scenario::today(
        "stalled-stream",
        "nothing bounds the body",
        STALLING,
        Today::DEFAULTS,
    ),
    Scenario::ours(
        "stalled-stream",
        "gap 15 s",
        STALLING,
        Ours::FOR_A_STREAM,
        STALLED,
    ),
    Scenario::today(
        "stalled-keepalive",
        "nothing bounds the body",
        STALLING_KEPT_ALIVE,
        Today::DEFAULTS,
    ),
    // A comment is a byte that arrived: without a predicate this is no stall, and nothing else here
    // bounds the body.
    Scenario::ours(
        "stalled-keepalive",
        "gap 15 s, comments count",
        STALLING_KEPT_ALIVE,
        Ours::FOR_A_STREAM,
        Promise {
            outcome: "watchdog",
            ended: (120.0, 120.0),
            ..STALLED
        },
    ),
    Scenario::ours(
        "stalled-keepalive-progress-when",
        "gap 15 s, only data counts",
        STALLING_KEPT_ALIVE,
        Ours {
            content_only: true,
            ..Ours::FOR_A_STREAM
        },
        STALLED,
    ),
    Scenario::ours(
        "stalled-buffered",
        "gap 15 s, buffered, retry allowed",
        STALLING_ONCE,
        Ours {
            buffered: true,
            call: Call::MayBeRepeated,
            ..Ours::FOR_A_STREAM
        },
        // The stall, up to 100 ms of backoff, the answer.
        Promise {
            requests: 2,
            generated: 100 + TOKENS,
            ended: (61.0, 61.1),
            ..ANSWERED
        },
    ),
    Scenario::today("429-post", "POST retried", THROTTLING, Today::DEFAULTS),
    Scenario::ours(
        "429-post",
        "POST not retried",
        THROTTLING,
        Ours::FOR_THE_MODEL,
        THROTTLED,
    ),
    Scenario::today(
        "429-retry-allowed",
        "POST retried",
        THROTTLING,
        Today::DEFAULTS,
    ),
    Scenario::ours(
        "429-retry-allowed",
        "deadline 30 s, retry allowed",
        THROTTLING,
        Ours {
            retry_unsafe_methods: true,
            ..Ours::DEFAULTS
        },
        // Up to 1 s of backoff, then up to 2 s.
        Promise {
            requests: 3,
            ended: (0.0, 3.0),
            ..THROTTLED
        },
    ),
    Scenario::today(
        "429-retry-after",
        "POST retried",
        THROTTLING_20_S,
        Today::DEFAULTS,
    ),
    Scenario::ours(
        "429-retry-after",
        "deadline 30 s, retry allowed",
        THROTTLING_20_S,
        Ours {
            retry_unsafe_methods: true,
            ..Ours::DEFAULTS
        },
        // What was asked for, and a spread of up to 1 s. Another 20 s would not fit.
        Promise {
            requests: 2,
            ended: (20.0, 21.0),
            ..THROTTLED
        },
    ),
    Scenario {
        method: "GET",
        ..Scenario::today(
            "ninety-second-bug",
            "one timeout of 30 s, 3 attempts",
            &[Answer::Never],
            Today {
                total: None,
                attempt: Duration::from_secs(30),
                retries: 2,
                backoff: Duration::ZERO,
                inside: None,
            },
        )
    },
    Scenario {
        method: "GET",
        ..Scenario::ours(
            "ninety-second-bug",
            "deadline 30 s, attempts of 2 s",
            &[Answer::Never],
            Ours {
                attempt: Duration::from_secs(2),
                ..Ours::DEFAULTS
            },
            // Three attempts, with up to 100 ms and up to 200 ms of backoff between them.
            Promise {
                requests: 3,
                outcome: "AttemptTimedOut",
                ended: (6.0, 6.3),
                ..THROTTLED
            },
        )
    },
    measured(
        "tight-sla",
        "3 s, attempts of 10 s",
        &HANGS,
        Measured::TightSla { ceiling: false },
        // The first attempt takes everything.
        Promise {
            requests: 1,
            outcome: "DeadlineExceeded",
            ended: (3.0, 3.0),
            ..THROTTLED
        },
    ),
    measured(
        "tight-sla",
        "the same, at most 3 x p95",
        &HANGS,
        Measured::TightSla { ceiling: true },
        // Three times 120 ms, with up to 100 ms and up to 200 ms of backoff between them.
        Promise {
            requests: 3,
            outcome: "AttemptTimedOut",
            ended: (0.36, 0.66),
            ..THROTTLED
        },
    ),
    measured(
        "latency-step",
        "40 ms become 400 ms",
        &SLOWS,
        Measured::Step,
        // Five times 120 ms, and then all the others at once.
        Promise {
            requests: 30,
            outcome: "5 cut, 25 answered",
            ended: (1.0, 1.0),
            ..THROTTLED
        },
    ),
];

/// A GET to a quick dependency, in real time.
const fn measured(
    name: &'static str,
    setting: &'static str,
    answers: &'static [Answer],
    what: Measured,
    promise: Promise,
) -> Scenario {
    Scenario {
        name,
        setting,
        method: "GET",
        answers,
        stack: Stack::Measured(what, promise),
    }
}

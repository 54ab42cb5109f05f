//! What the keys of a file set.

use super::raw::Raw;
use super::table::{Problems, Table};
use crate::attempt_timeout::AttemptCeiling;
use crate::call::Setting;
use crate::policy::CallPolicy;
use crate::retry::{Backoff, Jitter};

type Setter = fn(CallPolicy, bool) -> CallPolicy;

const SWITCHES: [(&str, Setter); 10] = [
    ("bound_progress", CallPolicy::bound_progress),
    ("inherit", CallPolicy::inherit),
    ("bound_readiness", CallPolicy::bound_readiness),
    ("bound_body", CallPolicy::bound_body),
    ("retry_unsafe_methods", CallPolicy::retry_unsafe_methods),
    ("retry_unprocessed", CallPolicy::retry_unprocessed),
    ("defer_to_caller", CallPolicy::defer_to_caller),
    ("mark_retries", CallPolicy::mark_retries),
    ("propagate_deadline", CallPolicy::propagate_deadline),
    ("propagate_criticality", CallPolicy::propagate_criticality),
];

const NUMBERS: [&str; 8] = [
    "preset",
    "deadline",
    "attempt_timeout",
    "attempts",
    "backoff",
    "ceiling",
    "buffer_responses",
    "budget",
];

/// The policy with what the file sets, and what is wrong with the file.
pub(super) fn apply(mut policy: CallPolicy, raw: Raw) -> (CallPolicy, Problems) {
    let mut problems = Problems::new();
    let Raw::Table(entries) = raw else {
        problems.push(format!("{raw}: a policy is a table of settings"));
        return (policy, problems);
    };
    let known: Vec<_> = NUMBERS
        .into_iter()
        .chain(SWITCHES.iter().map(|(name, _)| *name))
        .collect();
    let mut table = Table::new("", entries, &known, &mut problems);
    let presets = [
        ("http", CallPolicy::http()),
        ("grpc", CallPolicy::grpc()),
        ("new", CallPolicy::new()),
        ("none", CallPolicy::none()),
    ];
    if let Some(preset) = table.word("preset", &presets) {
        policy = preset;
    }
    match table.duration_or_none("deadline") {
        Setting::Inherit => {}
        Setting::Off => policy = policy.no_deadline(),
        Setting::Set(deadline) => policy = policy.deadline(deadline),
    }
    match table.duration_or_none("attempt_timeout") {
        Setting::Inherit => {}
        Setting::Off => policy = policy.no_attempt_timeout(),
        Setting::Set(timeout) => policy = policy.attempt_timeout(timeout),
    }
    if let Some(attempts) = table.integer("attempts") {
        policy = policy.attempts(attempts);
    }
    match table.table_or_none("backoff") {
        Setting::Inherit => {}
        Setting::Off => policy = policy.backoff(Backoff::none()),
        Setting::Set(entries) => {
            policy = policy.backoff(backoff(policy.backoff, entries, table.problems()));
        }
    }
    match table.table_or_none("ceiling") {
        Setting::Inherit => {}
        Setting::Off => policy = policy.no_ceiling(),
        Setting::Set(entries) => {
            let before = policy.ceiling_in_force();
            let before = before.unwrap_or(AttemptCeiling::above(3.0));
            policy = policy.ceiling(ceiling(before, entries, table.problems()));
        }
    }
    match table.bytes_or_none("buffer_responses") {
        Setting::Inherit => {}
        Setting::Off => policy = policy.no_buffering(),
        Setting::Set(max_bytes) => policy = policy.buffer_responses(max_bytes),
    }
    match table.table_or_none("budget") {
        Setting::Inherit => {}
        Setting::Off => policy = policy.no_budget(),
        Setting::Set(entries) => {
            let known = ["fraction", "minimum_per_second"];
            let mut table = Table::new("budget.", entries, &known, table.problems());
            let before = policy.budget.or(CallPolicy::http().budget);
            let (fraction, minimum) =
                before.map_or((0.1, 3), |b| (b.fraction, b.minimum_per_second));
            policy = policy.budget(
                table.number("fraction").unwrap_or(fraction),
                table.integer("minimum_per_second").unwrap_or(minimum),
            );
        }
    }
    for (name, set) in SWITCHES {
        if let Some(on) = table.switch(name) {
            policy = set(policy, on);
        }
    }
    (policy, problems)
}

fn backoff(before: Backoff, entries: Vec<(String, Raw)>, problems: &mut Problems) -> Backoff {
    #[derive(Clone, Copy, PartialEq)]
    enum Curve {
        Exponential,
        Constant,
        Measured,
    }

    let known = [
        "curve",
        "base",
        "throttled_base",
        "factor",
        "cap",
        "jitter",
        "multiple",
    ];
    let mut table = Table::new("backoff.", entries, &known, problems);
    let curves = [
        ("exponential", Curve::Exponential),
        ("constant", Curve::Constant),
        ("measured", Curve::Measured),
    ];
    let curve = table.word("curve", &curves);
    let needs = |table: &mut Table<'_>, key: &str, what: &str| {
        if !table.has(key) {
            table
                .problems()
                .push(format!("backoff.{key} is missing: {what}"));
        }
    };
    let mut backoff = match curve {
        // The base of a constant curve is all of its waits.
        None if before.is_constant() && table.has("base") => {
            before.waiting(table.duration("base").unwrap_or_default())
        }
        None if before.measured_multiple().is_some() && table.has("multiple") => {
            before.measuring(table.number("multiple").unwrap_or(1.0))
        }
        None => before,
        Some(Curve::Exponential) => Backoff::exponential(),
        Some(Curve::Constant) => {
            needs(&mut table, "base", "it is the wait of a constant curve");
            Backoff::constant(table.duration("base").unwrap_or_default())
        }
        Some(Curve::Measured) => {
            needs(
                &mut table,
                "multiple",
                "the base is so many times the median",
            );
            Backoff::measured(table.number("multiple").unwrap_or(1.0))
        }
    };
    if table.has("multiple") {
        table
            .problems()
            .push("backoff.multiple has no effect without curve = \"measured\"".to_owned());
    }
    if let Some(base) = table.duration("base") {
        backoff = backoff.base(base);
    }
    if let Some(base) = table.duration("throttled_base") {
        backoff = backoff.throttled_base(base);
    }
    if let Some(factor) = table.number("factor") {
        backoff = backoff.factor(factor);
    }
    if let Some(cap) = table.duration("cap") {
        backoff = backoff.cap(cap);
    }
    let jitters = [
        ("full", Jitter::Full),
        ("equal", Jitter::Equal),
        ("none", Jitter::None),
    ];
    if let Some(jitter) = table.word("jitter", &jitters) {
        backoff = backoff.jitter(jitter);
    }
    backoff
}

fn ceiling(
    mut ceiling: AttemptCeiling,
    entries: Vec<(String, Raw)>,
    problems: &mut Problems,
) -> AttemptCeiling {
    let known = ["multiple", "quantile", "window", "minimum_samples", "floor"];
    let mut table = Table::new("ceiling.", entries, &known, problems);
    if let Some(multiple) = table.number("multiple") {
        ceiling = ceiling.multiple(multiple);
    }
    if let Some(quantile) = table.number("quantile") {
        ceiling = ceiling.quantile(quantile);
    }
    if let Some(window) = table.duration("window") {
        ceiling = ceiling.window(window);
    }
    if let Some(samples) = table.integer("minimum_samples") {
        ceiling = ceiling.minimum_samples(samples);
    }
    if let Some(floor) = table.duration("floor") {
        ceiling = ceiling.floor(floor);
    }
    ceiling
}

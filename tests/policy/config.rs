//! A policy from a file.

use std::time::Duration;

use serde::de::value::{Error, MapDeserializer};
use serde::de::{Deserialize, DeserializeSeed, IntoDeserializer};
use tower_deadline::{AttemptCeiling, Backoff, CallPolicy, Jitter};

use crate::support::{ms, secs};

fn toml(text: &str) -> Result<CallPolicy, String> {
    toml::from_str(text).map_err(|error| error.to_string())
}

fn json(value: serde_json::Value) -> Result<CallPolicy, String> {
    serde_json::from_value(value).map_err(|error| error.to_string())
}

/// Both formats, the same text of settings.
fn refused(text: &str) -> String {
    let told = toml(text).unwrap_err();
    let value: serde_json::Value = toml::from_str(text).unwrap();
    let lines = |told: &str| {
        let lines = told.lines().filter(|line| line.starts_with("- "));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let mut both = [lines(&told), lines(&json(value).unwrap_err())];
    for lines in &mut both {
        lines.sort();
    }
    assert_eq!(both[0], both[1]);
    told
}

#[test]
fn an_empty_file_is_the_preset() {
    assert_eq!(toml("").unwrap(), CallPolicy::http());
    assert_eq!(toml("preset = 'none'").unwrap(), CallPolicy::none());
    assert_eq!(toml("preset = 'grpc'").unwrap(), CallPolicy::grpc());
    assert_eq!(toml("preset = 'new'").unwrap(), CallPolicy::new());
}

#[test]
fn every_setting_can_be_set() {
    let all = r#"
        deadline = "10s"
        attempt_timeout = "1.5s"
        attempts = 4
        bound_progress = true
        buffer_responses = 65536
        inherit = true
        bound_readiness = true
        bound_body = true
        retry_unsafe_methods = true
        retry_unprocessed = true
        defer_to_caller = true
        mark_retries = false
        propagate_deadline = true
        propagate_criticality = true

        [backoff]
        base = "50ms"
        throttled_base = "500ms"
        factor = 3
        cap = "1m"
        jitter = "equal"

        [ceiling]
        multiple = 2.5
        quantile = 0.9
        window = "1m 30s"
        minimum_samples = 50
        floor = "20ms"

        [budget]
        fraction = 0.2
        minimum_per_second = 10
    "#;
    let backoff = Backoff::exponential()
        .base(ms(50))
        .throttled_base(ms(500))
        .factor(3.0)
        .cap(secs(60))
        .jitter(Jitter::Equal);
    let ceiling = AttemptCeiling::above(2.5)
        .quantile(0.9)
        .window(secs(90))
        .minimum_samples(50)
        .floor(ms(20));
    let expected = CallPolicy::http()
        .deadline(secs(10))
        .attempt_timeout(ms(1500))
        .attempts(4)
        .bound_progress(true)
        .buffer_responses(65_536)
        .inherit(true)
        .bound_readiness(true)
        .bound_body(true)
        .retry_unsafe_methods(true)
        .retry_unprocessed(true)
        .defer_to_caller(true)
        .mark_retries(false)
        .propagate_deadline(true)
        .propagate_criticality(true)
        .backoff(backoff)
        .ceiling(ceiling)
        .budget(0.2, 10);
    assert_eq!(toml(all).unwrap(), expected);
    let value: serde_json::Value = toml::from_str(all).unwrap();
    assert_eq!(json(value).unwrap(), expected);
}

#[test]
fn everything_that_can_be_off_can_be_written_off() {
    let off = r#"
        deadline = "none"
        attempt_timeout = "none"
        backoff = "none"
        ceiling = "none"
        buffer_responses = "none"
        budget = "none"
    "#;
    let expected = CallPolicy::http()
        .no_deadline()
        .no_attempt_timeout()
        .backoff(Backoff::none())
        .no_ceiling()
        .no_buffering()
        .no_budget();
    assert_eq!(toml(off).unwrap(), expected);
}

#[test]
fn a_part_of_a_table_leaves_the_rest_of_it_as_it_was() {
    let http = CallPolicy::http();
    assert_eq!(
        toml("[ceiling]\nfloor = '1s'").unwrap(),
        http.ceiling(AttemptCeiling::above(3.0).floor(secs(1)))
    );
    assert_eq!(toml("[budget]\nfraction = 1").unwrap(), http.budget(1.0, 3));
    assert_eq!(
        toml("[backoff]\ncurve = 'constant'\nbase = '1s'").unwrap(),
        http.backoff(Backoff::constant(secs(1)))
    );
    assert_eq!(
        toml("[backoff]\ncurve = 'measured'\nmultiple = 2").unwrap(),
        http.backoff(Backoff::measured(2.0))
    );
}

#[test]
fn a_policy_of_the_code_is_what_a_file_builds_on() {
    const BASE: CallPolicy = CallPolicy::none().deadline(secs(3)).attempts(2);
    let file = toml::Deserializer::parse("attempts = 5").unwrap();
    assert_eq!(BASE.deserialize(file).unwrap(), BASE.attempts(5));
}

#[test]
fn an_unknown_key_is_refused_with_the_nearest_known_one() {
    for (key, meant) in [
        ("deadlin", "deadline"),
        ("dead_line", "deadline"),
        ("timeout", "attempt_timeout"),
        ("attemptTimeout", "attempt_timeout"),
        ("attempt-timeout", "attempt_timeout"),
        ("attemps", "attempts"),
        ("buffer_response", "buffer_responses"),
    ] {
        let told = refused(&format!("{key} = '1s'"));
        let expected = format!("{key} = \"1s\": there is no such setting; did you mean `{meant}`?");
        assert!(told.contains(&expected), "{told}");
    }
    let told = refused("zzzzzzz = 1");
    assert!(told.contains("there are preset, deadline,"), "{told}");
    let told = refused("[backoff]\nbase_throttled = '1s'\nbse = '2s'");
    assert!(told.contains("backoff.bse = \"2s\": there is no such setting; did you mean `base`?"));
}

#[test]
fn every_problem_is_listed_with_those_of_the_numbers_and_the_policy_is_explained() {
    let told = refused(
        r#"
        deadline = 10
        attempt_timeout = "2"
        attempts = -1
        inherit = "yes"
        preset = "soap"
        buffer_responses = "2MiB"
        budget = 3

        [ceiling]
        multiple = 0.5
        floor = "soon"

        [backoff]
        curve = "linear"
        jitter = "some"
        base = "1s"
        cap = "10ms"
        multiple = 3
        "#,
    );
    for part in [
        "13 problems in the configuration of a policy",
        "deadline = 10: write a duration with its unit, such as \"250ms\" or \"10s\", or \"none\"",
        "attempt_timeout = \"2\": write a duration",
        "attempts = -1: write a whole number",
        "inherit = \"yes\": write true or false",
        "preset = \"soap\": write one of \"http\", \"grpc\", \"new\", \"none\"",
        "buffer_responses = \"2MiB\": write a number of bytes, or \"none\"",
        "budget = 3: write a table, or \"none\"",
        "ceiling.floor = \"soon\": write a duration",
        "backoff.curve = \"linear\": write one of",
        "backoff.jitter = \"some\": write one of",
        "backoff.multiple has no effect",
        "ceiling.multiple = 0.5: it has to be above 1",
        "backoff.cap = 10ms: it is below the base of 1s",
    ] {
        assert!(told.contains(part), "{part}\n{told}");
    }
    assert!(
        !told.contains("Bound first by"),
        "not all could be read: {told}"
    );

    let told = refused("deadline = '5s'\nattempts = 0");
    assert!(told.contains("As it is written, it would mean:"), "{told}");
    assert!(told.contains("attempt 1 is clamped to 5.00s"), "{told}");
}

#[test]
fn what_a_curve_needs_is_asked_for() {
    let told = refused("[backoff]\ncurve = 'constant'");
    assert!(told.contains("backoff.base is missing"), "{told}");
    let told = refused("[backoff]\ncurve = 'measured'");
    assert!(told.contains("backoff.multiple is missing"), "{told}");
}

#[test]
fn what_is_no_table_of_settings_is_refused() {
    for odd in [
        serde_json::json!(null),
        serde_json::json!([1, 2]),
        serde_json::json!("10s"),
        serde_json::json!({"deadline": null}),
        serde_json::json!({"attempts": [3]}),
        serde_json::json!({"attempts": 1e300}),
        serde_json::json!({"attempts": {"most": 3}}),
        serde_json::json!({"deadline": "99999999999999999999999s"}),
    ] {
        let told = json(odd.clone()).unwrap_err();
        assert!(told.contains("1 problem in"), "{odd}: {told}");
    }
    let twice = r#"{"attempts": 2, "attempts": 3}"#;
    let told = serde_json::from_str::<CallPolicy>(twice).unwrap_err();
    assert!(told.to_string().contains("it has been set before"));
    assert!(serde_json::from_str::<CallPolicy>("{").is_err());
}

#[test]
fn our_own_way_of_writing_durations_is_read_back() {
    for duration in [
        secs(10),
        ms(1500),
        ms(250),
        Duration::from_micros(1),
        Duration::from_nanos(1_000_000_001),
    ] {
        let shown = written(duration);
        let read = toml(&format!("attempt_timeout = '{shown}'")).unwrap();
        assert_eq!(read, CallPolicy::http().attempt_timeout(duration));
    }
}

/// A duration as our messages write it.
fn written(duration: Duration) -> String {
    let policy = CallPolicy::http()
        .attempt_timeout(duration + secs(60))
        .deadline(duration);
    let warning = policy.explain().warning.unwrap();
    let reason = warning.reason();
    let shown = reason.strip_prefix("it is above the deadline of ").unwrap();
    shown.split(',').next().unwrap().to_owned()
}

#[test]
fn a_file_over_a_policy_of_the_code_changes_what_it_says_and_no_more() {
    let over = |base: CallPolicy, file: &str| {
        let file = toml::Deserializer::parse(file).unwrap();
        base.deserialize(file).map_err(|error| error.to_string())
    };
    let http = CallPolicy::http();
    assert_eq!(
        over(
            http.backoff(Backoff::constant(ms(100))),
            "backoff.base = '200ms'"
        ),
        Ok(http.backoff(Backoff::constant(ms(200))))
    );
    assert_eq!(
        over(http.backoff(Backoff::measured(2.0)), "backoff.multiple = 3"),
        Ok(http.backoff(Backoff::measured(3.0)))
    );
    let own = http.backoff(Backoff::constant(ms(100))).budget(0.5, 1);
    assert!(over(own, "attempts = 1").unwrap_err().contains("backoff"));
    let one = over(own, "attempts = 1\nbackoff = 'none'\nbudget = 'none'");
    assert_eq!(
        one,
        Ok(own.attempts(1).backoff(Backoff::none()).no_budget())
    );
}

fn from_entry<'de, V>(key: &'static str, value: V) -> Result<CallPolicy, Error>
where
    V: IntoDeserializer<'de, Error>,
{
    let map = MapDeserializer::new([(key, value)].into_iter());
    <CallPolicy as Deserialize>::deserialize(map)
}

#[test]
fn numbers_of_any_kind_are_read() {
    let http = CallPolicy::http();
    assert_eq!(from_entry("attempts", 3_u128), Ok(http.attempts(3)));
    // As `serde_json` hands numbers over with its feature `arbitrary_precision`.
    let disguised = |number: &'static str| {
        let number = [("$serde_json::private::Number", number)];
        from_entry("attempts", MapDeserializer::new(number.into_iter()))
    };
    assert_eq!(disguised("4"), Ok(http.attempts(4)));
    let told = disguised("4.5").unwrap_err().to_string();
    assert!(
        told.contains("attempts = 4.5: write a whole number"),
        "{told}"
    );
}

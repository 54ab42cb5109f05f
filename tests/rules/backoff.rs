//! How long it is until the next attempt.

use std::time::Duration;

use tower::{Layer, ServiceExt};
use tower_deadline::{Backoff, EventKind, Jitter, RetryBudget};

use crate::layers::{DeadlineLayer, RetryLayer, ServiceBuilder};
use crate::support::*;

fn exact() -> Backoff {
    Backoff::exponential().jitter(Jitter::None)
}

/// The waits between the attempts that get these statuses.
async fn waits(backoff: Backoff, statuses: &[u16]) -> Vec<u128> {
    let (service, shared) = Scripted::status(statuses.iter().copied());
    let stack = RetryLayer::http()
        .attempts(u32::try_from(statuses.len()).unwrap())
        .budget(RetryBudget::none())
        .backoff(backoff)
        .layer(service);
    stack.oneshot(get()).await.unwrap();
    shared
        .times()
        .windows(2)
        .map(|pair| pair[1] - pair[0])
        .collect()
}

#[tokio::test(start_paused = true)]
async fn the_waits_grow_up_to_the_cap() {
    let found = waits(exact().cap(secs(1)), &[503; 8]).await;
    assert_eq!(found, [100, 200, 400, 800, 1000, 1000, 1000]);
    let found = waits(exact().base(ms(10)).factor(3.0), &[503; 5]).await;
    assert_eq!(found, [10, 30, 90, 270]);
    let default_cap = waits(exact(), &[503; 12]).await;
    assert_eq!(default_cap[8..], [25_600, 30_000, 30_000]);
}

#[tokio::test(start_paused = true)]
async fn each_wait_has_the_base_of_the_failure_before_it() {
    let found = waits(exact(), &[503, 429, 503, 429, 200]).await;
    assert_eq!(found, [100, 2000, 400, 8000]);
    let found = waits(Backoff::constant(ms(7)), &[503, 429, 503, 200]).await;
    assert_eq!(found, [7, 7, 7]);
    assert_eq!(
        waits(Backoff::none(), &[503, 429, 503, 200]).await,
        [0, 0, 0]
    );
}

#[tokio::test(start_paused = true)]
async fn a_curve_of_ones_own_is_given_the_number_of_the_coming_attempt() {
    let curve = |number: u32| Duration::from_millis(u64::from(number) * 10);
    let found = waits(
        Backoff::custom(curve).jitter(Jitter::None),
        &[503, 429, 503, 200],
    )
    .await;
    assert_eq!(found, [20, 30, 40]);
}

#[tokio::test(start_paused = true)]
async fn no_factor_and_no_number_of_attempts_panics_or_goes_above_the_cap() {
    for factor in [0.0, 1.0, 1e308, f64::INFINITY, f64::NAN, -2.0] {
        for base in [Duration::from_nanos(1), ms(1), secs(3600), Duration::MAX] {
            let backoff = exact().base(base).factor(factor).cap(ms(10));
            let found = waits(backoff, &[503; 90]).await;
            assert!(
                found.iter().all(|wait| *wait <= 10),
                "{factor} {base:?} {found:?}"
            );
        }
    }
}

/// The wait that was told before the second attempt, in a call with this deadline, and whether the
/// attempt was made after it.
async fn told(backoff: Backoff, deadline: Duration) -> Option<Duration> {
    let recorder = Recorder::default();
    let (service, shared) = Scripted::always(|| Reply::status(503));
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(deadline))
        .layer(
            RetryLayer::http()
                .attempts(2)
                .backoff(backoff)
                .on_event(recorder.clone()),
        )
        .service(service);
    let clock = Clock::start();
    assert_eq!(stack.oneshot(get()).await.unwrap().status(), 503);
    let told = recorder
        .all()
        .into_iter()
        .find(|t| t.kind == EventKind::Retrying);
    let Some(delay) = told.map(|t| t.delay.unwrap()) else {
        // It could not fit: nothing was waited for.
        assert_eq!((clock.ms(), shared.calls()), (0, 1));
        return None;
    };
    // Timers come to the next millisecond.
    let slept = u64::try_from(shared.times()[1]).unwrap();
    assert!(
        ms(slept) >= delay && ms(slept) <= delay + ms(1),
        "{slept} for {delay:?}"
    );
    Some(delay)
}

#[tokio::test(start_paused = true)]
async fn jitter_spreads_over_its_range_and_is_no_multiple_of_anything() {
    for (jitter, least, low, high) in [(Jitter::Full, 0, 25, 75), (Jitter::Equal, 50, 62, 88)] {
        let mut found = Vec::new();
        for _ in 0..200 {
            let backoff = Backoff::exponential().jitter(jitter);
            found.push(told(backoff, secs(9)).await.unwrap());
        }
        assert!(
            found
                .iter()
                .all(|wait| (ms(least)..=ms(100)).contains(wait))
        );
        assert!(found.iter().any(|wait| *wait < ms(low)));
        assert!(found.iter().any(|wait| *wait > ms(high)));
        let fine = found
            .iter()
            .filter(|wait| wait.subsec_nanos() % 1_000_000 != 0);
        assert!(fine.count() > 190);
        found.sort_unstable();
        found.dedup();
        assert!(found.len() > 190);
    }
}

#[tokio::test(start_paused = true)]
async fn the_wait_that_was_looked_at_is_the_wait_that_is_slept() {
    // Half of what is drawn fits: it is slept as it is, and the other half is not begun.
    let (mut fits, mut does_not) = (0, 0);
    for _ in 0..300 {
        match told(Backoff::exponential(), ms(50)).await {
            Some(delay) => {
                assert!(delay < ms(50), "{delay:?}");
                fits += 1;
            }
            None => does_not += 1,
        }
    }
    assert!(fits > 80 && does_not > 80, "{fits} {does_not}");
}

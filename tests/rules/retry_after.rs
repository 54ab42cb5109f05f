//! A peer that says when to come back.

use tower::{Layer, ServiceExt};
use tower_deadline::{Backoff, EventKind, Jitter, RetryBudget, StopReason};

use crate::layers::{DeadlineLayer, RetryLayer, ServiceBuilder};
use crate::support::*;

fn exact() -> Backoff {
    Backoff::exponential().jitter(Jitter::None)
}

#[tokio::test(start_paused = true)]
async fn the_wait_that_was_asked_for_is_waited() {
    for status in [429, 503] {
        let (service, shared) =
            Scripted::new([Reply::retry_after(status, "7"), Reply::status(200)]);
        let stack = RetryLayer::http().backoff(exact()).layer(service);
        assert_eq!(stack.oneshot(get()).await.unwrap().status(), 200);
        assert_eq!(shared.times(), [0, 7000]);
    }
}

#[tokio::test(start_paused = true)]
async fn on_other_statuses_it_is_not_read() {
    let (service, shared) = Scripted::new([Reply::retry_after(500, "7"), Reply::status(200)]);
    let stack = RetryLayer::http().backoff(exact()).layer(service);
    stack.oneshot(get()).await.unwrap();
    assert_eq!(shared.times(), [0, 100]);
}

#[tokio::test(start_paused = true)]
async fn every_curve_is_overridden_and_none_is_undercut() {
    for (curve, first) in [
        (Backoff::none(), 2000),
        (Backoff::constant(ms(5)), 2000),
        (Backoff::constant(ms(3000)), 3000),
        (exact(), 2000),
    ] {
        let (service, shared) = Scripted::new([Reply::retry_after(429, "2"), Reply::status(200)]);
        let stack = RetryLayer::http().backoff(curve).layer(service);
        stack.oneshot(get()).await.unwrap();
        assert_eq!(shared.times(), [0, first]);
    }
}

#[tokio::test(start_paused = true)]
async fn with_jitter_a_crowd_does_not_come_back_in_one_instant() {
    let mut waits = std::collections::BTreeSet::new();
    for _ in 0..50 {
        let (service, shared) = Scripted::new([Reply::retry_after(429, "10"), Reply::status(200)]);
        let stack = RetryLayer::http().layer(service);
        stack.oneshot(get()).await.unwrap();
        let wait = shared.times()[1];
        assert!((10_000..=11_001).contains(&wait), "{wait}");
        waits.insert(wait);
    }
    assert!(waits.len() > 20, "{waits:?}");
}

#[tokio::test(start_paused = true)]
async fn zero_and_invalid_values_are_an_ordinary_wait() {
    for (status, value, wait) in [
        (429, "0", 1000),
        (503, "0", 1000),
        (503, "Sun, 06 Nov 1994 08:49:37 GMT", 1000),
        (503, "soon", 100),
        (429, "soon", 1000),
        (503, "5, 60", 100),
    ] {
        let (service, shared) =
            Scripted::new([Reply::retry_after(status, value), Reply::status(200)]);
        let stack = RetryLayer::http().backoff(exact()).layer(service);
        stack.oneshot(get()).await.unwrap();
        assert_eq!(shared.times(), [0, wait], "{status} {value}");
    }
}

#[tokio::test(start_paused = true)]
async fn above_the_cap_the_response_comes_back_at_once_and_unpaid() {
    for (value, retried) in [("59", true), ("60", true), ("61", false)] {
        let recorder = Recorder::default();
        let budget = RetryBudget::of(0.1, 1).unwrap();
        let (service, shared) = Scripted::new([Reply::retry_after(429, value), Reply::status(200)]);
        let stack = RetryLayer::http()
            .backoff(exact().cap(secs(60)))
            .key(tower_deadline::OneDependency)
            .budget(budget.clone())
            .on_event(recorder.clone())
            .layer(service);
        let clock = Clock::start();
        let response = stack.oneshot(get()).await.unwrap();
        if retried {
            assert_eq!(response.status(), 200);
            assert!(clock.ms() >= 59_000);
        } else {
            assert_eq!(
                (response.status().as_u16(), clock.ms(), shared.calls()),
                (429, 0, 1)
            );
            assert_eq!(response.headers()["retry-after"], value);
            assert_eq!(recorder.terminal().kind, EventKind::NotRetried);
            assert_eq!(
                recorder.terminal().stop,
                Some(StopReason::RetryAfterTooLong)
            );
            assert_eq!(budget.utilisation(tower_deadline::Key::SHARED), Some(0.0));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_does_not_fit_into_the_deadline_is_not_waited_for() {
    for (deadline, calls) in [(20_000, 1), (20_001, 2)] {
        let (service, shared) =
            Scripted::new([Reply::retry_after(429, "20"), Reply::retry_after(429, "20")]);
        let stack = ServiceBuilder::new()
            .layer(DeadlineLayer::new(ms(deadline)))
            .layer(RetryLayer::http())
            .service(service);
        let clock = Clock::start();
        assert_eq!(stack.oneshot(get()).await.unwrap().status(), 429);
        assert_eq!(shared.calls(), calls);
        assert!(calls == 2 || clock.ms() == 0);
    }
}

#[tokio::test(start_paused = true)]
async fn never_is_never() {
    let (service, shared) = Scripted::new([Reply::retry_after(
        503,
        "1234567890123456789012345678901234567890",
    )]);
    let stack = RetryLayer::http()
        .backoff(exact().cap(std::time::Duration::MAX))
        .layer(service);
    assert_eq!(stack.oneshot(get()).await.unwrap().status(), 503);
    assert_eq!(shared.calls(), 1);
}

/// The wait before the second attempt, after a response with these headers.
async fn wait(status: u16, headers: Vec<(&'static str, &'static str)>) -> u128 {
    let throttled = Reply::Head(ms(0), status, headers, Script::empty());
    let (service, shared) = Scripted::new([throttled, Reply::status(200)]);
    let stack = RetryLayer::http().backoff(exact()).layer(service);
    assert_eq!(stack.oneshot(get()).await.unwrap().status(), 200);
    shared.times()[1]
}

#[tokio::test(start_paused = true)]
async fn a_date_is_taken_against_the_clock_of_its_sender() {
    let sent = ("date", "Sun, 06 Nov 1994 08:49:37 GMT");
    for (until, expected) in [
        ("Sun, 06 Nov 1994 08:49:57 GMT", 20_000),
        ("Sunday, 06-Nov-94 08:49:57 GMT", 20_000),
        ("Sun Nov  6 08:49:57 1994", 20_000),
        ("Sun, 06 Nov 1994 08:49:17 GMT", 1000),
    ] {
        for status in [429, 503] {
            let found = wait(status, vec![sent, ("retry-after", until)]).await;
            assert_eq!(found, expected, "{status} {until}");
        }
    }
    // Without one it is long past.
    let past = ("retry-after", "Sun, 06 Nov 1994 08:49:57 GMT");
    assert_eq!(wait(429, vec![past]).await, 1000);
}

#[tokio::test(start_paused = true)]
async fn of_several_headers_the_longest_that_is_one_is_waited_for() {
    let asked = |values: &[&'static str]| values.iter().map(|v| ("retry-after", *v)).collect();
    assert_eq!(wait(429, asked(&["5", "20"])).await, 20_000);
    assert_eq!(wait(503, asked(&["soon", "20", "-1"])).await, 20_000);
    assert_eq!(wait(503, asked(&["soon", "-1", "5, 20"])).await, 100);
    assert_eq!(wait(503, asked(&["1.5"])).await, 2000);
}

#[tokio::test(start_paused = true)]
async fn a_wait_for_each_attempt_is_asked_for_anew() {
    let replies = ["3", "1", "2"].map(|v| Reply::retry_after(503, v));
    let (service, shared) = Scripted::new(replies.into_iter().chain([Reply::status(200)]));
    let stack = RetryLayer::http()
        .attempts(4)
        .backoff(Backoff::none())
        .layer(service);
    assert_eq!(stack.oneshot(get()).await.unwrap().status(), 200);
    assert_eq!(shared.times(), [0, 3000, 4000, 6000]);
}

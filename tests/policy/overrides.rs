//! A request's own numbers, through the assembled stack.

use http_body_util::BodyExt;
use tokio::time::sleep;
use tower::{Layer, ServiceExt};
use tower_deadline::{
    AttemptStalled, AttemptTimedOut, Backoff, CallOverride, CallPolicy, DeadlineExceeded,
    DeadlineOrigin, call,
};

use crate::support::*;

const POLICY: CallPolicy = CallPolicy::http()
    .deadline(secs(1))
    .attempt_timeout(ms(300))
    .backoff(Backoff::constant(ms(50)))
    .no_budget()
    .checked();

fn overriding(overrides: CallOverride) -> Req {
    let mut request = get();
    request.extensions_mut().insert(overrides);
    request
}

/// How long a call that hangs takes, and how many attempts it makes.
async fn hang(policy: CallPolicy, request: Req) -> (u128, usize) {
    let (service, shared) = Scripted::always(|| Reply::Hang);
    let stack = policy.layer().layer(service);
    let clock = Clock::start();
    let day = tokio::time::timeout(secs(86_400), stack.oneshot(request));
    let _ = day.await;
    shared.check();
    (clock.ms(), shared.calls())
}

#[tokio::test(start_paused = true)]
async fn each_of_deadline_attempt_timeout_and_attempts_is_inherited_off_or_set() {
    let own = CallOverride::new;
    for (overrides, expected) in [
        // 300, 50, 300, 50, 300: the deadline is at the end of it.
        (own(), (1000, 3)),
        (own().deadline(ms(500)), (500, 2)),
        (own().deadline(secs(60)), (1000, 3)),
        (own().no_deadline(), (1000, 3)),
        (own().attempt_timeout(ms(100)), (400, 3)),
        (own().attempt_timeout(secs(60)), (1000, 1)),
        (own().no_attempt_timeout(), (1000, 1)),
        (
            own().attempt_timeout(secs(60)).deadline(secs(90)),
            (90_000, 2),
        ),
        (own().attempts(1), (300, 1)),
        (own().attempts(2), (650, 2)),
        (own().attempts(9).no_deadline(), (9 * 300 + 8 * 50, 9)),
        (own().no_retry(), (300, 1)),
        (own().no_deadline().no_attempt_timeout(), (86_400_000, 1)),
    ] {
        let found = hang(POLICY, overriding(overrides)).await;
        assert_eq!(found, expected, "{overrides:?}");
        // The same for a request type that has no extensions.
        let beside = call::with_override(overrides, hang(POLICY, get())).await;
        assert_eq!(beside, expected, "{overrides:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_policy_that_bounds_nothing_can_be_bounded_for_one_call() {
    let none = CallPolicy::none();
    let deadline = CallOverride::new().deadline(ms(70));
    assert_eq!(hang(none, overriding(deadline)).await, (70, 1));
    let attempts = CallOverride::new().attempt_timeout(ms(70)).attempts(2);
    let (took, calls) = hang(none, overriding(attempts)).await;
    assert!((140..=240).contains(&took) && calls == 2, "{took} {calls}");
    assert_eq!(hang(none, get()).await, (86_400_000, 1));
}

#[tokio::test(start_paused = true)]
async fn a_post_is_sent_again_where_its_request_says_so() {
    for (overrides, calls) in [
        (CallOverride::new(), 1),
        (CallOverride::new().retry(), 3),
        (CallOverride::new().no_retry(), 1),
    ] {
        let (service, shared) = Scripted::status([503, 503, 503]);
        let mut request = post();
        request.extensions_mut().insert(overrides);
        let _ = POLICY.layer().layer(service).oneshot(request).await;
        assert_eq!(shared.calls(), calls);
        // Every attempt has it, and is the same request otherwise.
        for (_, received) in &*shared.received.lock().unwrap() {
            assert_eq!(received.extensions().get(), Some(&overrides));
        }
    }
}

/// The gap after which a body stalls, in milliseconds; `None` where it does not within a day.
async fn gap(policy: CallPolicy, overrides: CallOverride) -> Option<u128> {
    let (service, _) = Scripted::new([Reply::body(Script::new([Step::Silence]))]);
    let stack = policy.layer().layer(service);
    let response = stack.oneshot(overriding(overrides)).await.unwrap();
    let read = response.into_body().collect();
    let read = tokio::time::timeout(secs(86_400), read).await.ok()?;
    let error = read.unwrap_err();
    Some(AttemptStalled::find(&error).unwrap().gap().as_millis())
}

#[tokio::test(start_paused = true)]
async fn the_gap_is_inherited_off_or_set_and_follows_the_attempt_timeout() {
    let own = CallOverride::new;
    for (overrides, expected) in [
        (own(), Some(300)),
        (own().progress(ms(20)), Some(20)),
        (own().progress(secs(60)), Some(60_000)),
        (own().no_progress(), None),
        (own().attempt_timeout(ms(80)), Some(80)),
        (own().attempt_timeout(ms(80)).progress(ms(20)), Some(20)),
        (own().attempt_timeout(ms(80)).no_progress(), None),
        (own().no_attempt_timeout(), None),
    ] {
        assert_eq!(gap(POLICY, overrides).await, expected, "{overrides:?}");
    }
    // Where the policy bounds no gaps, only their own setting does.
    let off = POLICY.bound_progress(false);
    for (overrides, expected) in [
        (own(), None),
        (own().attempt_timeout(ms(80)), None),
        (own().progress(ms(20)), Some(20)),
    ] {
        assert_eq!(gap(off, overrides).await, expected, "{overrides:?}");
    }
    // Where it would if there were an attempt timeout, both do.
    let unbounded = CallPolicy::http().no_attempt_timeout();
    assert_eq!(gap(unbounded, own()).await, None);
    assert_eq!(
        gap(unbounded, own().attempt_timeout(ms(80))).await,
        Some(80)
    );
}

#[tokio::test(start_paused = true)]
async fn buffering_is_inherited_off_or_set() {
    let buffered = POLICY.buffer_responses(1024);
    let own = CallOverride::new;
    for (policy, overrides, calls) in [
        (POLICY, own(), 1),
        (POLICY, own().buffering(1024), 2),
        (buffered, own(), 2),
        (buffered, own().no_buffering(), 1),
        (buffered, own().buffering(2), 1),
    ] {
        let breaks = Script::new([Step::Data("many bytes"), Step::Error(reset)]);
        let (service, shared) = Scripted::new([Reply::body(breaks), Reply::status(200)]);
        let stack = policy.layer().layer(service);
        let response = stack.oneshot(overriding(overrides)).await.unwrap();
        let read = response.into_body().collect().await;
        assert_eq!(shared.calls(), calls, "{overrides:?}");
        assert_eq!(read.is_ok(), calls == 2);
    }
}

#[tokio::test(start_paused = true)]
async fn an_override_never_outlasts_an_inherited_deadline_unless_the_call_is_detached() {
    let inheriting = POLICY.inherit(true);
    let long = || {
        overriding(
            CallOverride::new()
                .deadline(secs(60))
                .attempt_timeout(secs(50)),
        )
    };
    for request in [long(), overriding(CallOverride::new().no_deadline())] {
        let (service, _) = Scripted::always(|| Reply::Hang);
        let stack = inheriting.layer().layer(service);
        let clock = Clock::start();
        let error = call::with_deadline(ms(200), stack.oneshot(request)).await;
        let error = error.err().unwrap();
        assert_eq!(clock.ms(), 200);
        let exceeded = DeadlineExceeded::find(&error).unwrap();
        assert_eq!(exceeded.origin(), DeadlineOrigin::Inherited);
    }
    let (service, _) = Scripted::always(|| Reply::Hang);
    let stack = inheriting.layer().layer(service);
    let clock = Clock::start();
    let detached = call::with_deadline(ms(200), call::detach(stack.oneshot(long())));
    assert!(detached.await.is_err());
    assert_eq!(clock.ms(), 60_000);
}

#[tokio::test(start_paused = true)]
async fn every_attempt_sees_the_override() {
    let (service, shared) = Scripted::always(|| Reply::Hang);
    let stack = POLICY.layer().layer(service);
    let overrides = CallOverride::new()
        .attempt_timeout(ms(40))
        .deadline(secs(9))
        .attempts(5);
    let error = stack.oneshot(overriding(overrides)).await.err().unwrap();
    let timed_out = AttemptTimedOut::find(&error).unwrap();
    assert_eq!(timed_out.ceiling(), ms(40));
    let durations: Vec<_> = timed_out.log().iter().map(|a| a.duration).collect();
    assert_eq!(durations, [ms(40); 5]);
    assert_eq!(shared.times(), [0, 90, 180, 270, 360]);
}

#[tokio::test(start_paused = true)]
async fn one_calls_override_is_not_the_next_ones() {
    let (service, _) = Scripted::always(|| Reply::Hang);
    let stack = POLICY.layer().layer(service);
    let short = overriding(CallOverride::new().deadline(ms(10)));
    let (clock, slow) = (Clock::start(), stack.clone().oneshot(get()));
    let slow = tokio::spawn(slow);
    sleep(ms(1)).await;
    assert!(stack.clone().oneshot(short).await.is_err());
    assert_eq!(clock.ms(), 11);
    assert!(slow.await.unwrap().is_err());
    assert_eq!(clock.ms(), 1000);
}

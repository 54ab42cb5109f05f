//! The outer clock, for the body too; and where the clocks begin.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http_body::{Body, SizeHint};
use http_body_util::BodyExt;
use tokio::time::{advance, sleep};
use tower::{Layer, Service, ServiceExt};
use tower_deadline::{
    CallOverride, DeadlineExceeded, DeadlineOrigin, EventKind, Phase, is_timeout,
};

use crate::layers::{
    AttemptTimeoutLayer, DeadlineBodyLayer, DeadlineLayer, OverrideLayer, ServiceBuilder,
};
use crate::support::*;

#[tokio::test(start_paused = true)]
async fn the_clocks_run_from_the_call_and_not_from_the_first_poll() {
    for (deadline, attempt) in [(100, 9000), (9000, 100)] {
        for (takes, succeeds) in [(39, true), (41, false)] {
            let (service, _) = Scripted::new([Reply::after(ms(takes), 200)]);
            let mut stack = ServiceBuilder::new()
                .layer(DeadlineLayer::new(ms(deadline)))
                .layer(AttemptTimeoutLayer::http(ms(attempt)))
                .service(service);
            let clock = Clock::start();
            let call = stack.ready().await.unwrap().call(get());
            // Its timers are not made yet, and nobody is woken meanwhile.
            advance(ms(60)).await;
            let result = call.await;
            assert_eq!(result.is_ok(), succeeds);
            let ended = if succeeds { 60 + takes } else { 100 };
            assert_eq!(clock.ms(), u128::from(ended));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_clone_of_an_old_layer_ends_each_call_to_the_millisecond() {
    let layer = DeadlineLayer::new(secs(1));
    let (service, _) = Scripted::always(|| Reply::Hang);
    let stack = layer.clone().layer(service);
    for pause in [0, 5, 3600] {
        sleep(secs(pause)).await;
        let clock = Clock::start();
        assert!(stack.clone().oneshot(get()).await.is_err());
        assert_eq!(clock.ms(), 1000);
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_was_cut_is_gone_and_has_ended() {
    let drops = Arc::new(AtomicUsize::new(0));
    let recorder = Recorder::default();
    let script = Script::new([Step::Data("x"), Step::Silence]).counting_drops(&drops);
    let (service, _) = Scripted::new([Reply::body(script)]);
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(ms(100)).on_event(recorder.clone()))
        .layer(DeadlineBodyLayer::new().on_event(recorder.clone()))
        .service(service);
    let clock = Clock::start();
    let mut body = stack.oneshot(get()).await.unwrap().into_body();
    assert!(body.frame().await.unwrap().is_ok());
    let error = body.frame().await.unwrap().unwrap_err();
    assert_eq!(clock.ms(), 100);
    let exceeded = DeadlineExceeded::find(&error).unwrap();
    let found = (exceeded.phase(), exceeded.origin(), exceeded.elapsed());
    assert_eq!(found, (Phase::Body, DeadlineOrigin::Own, ms(100)));
    assert!(exceeded.log().is_empty() && is_timeout(&error));
    assert_eq!(drops.load(Ordering::SeqCst), 1);
    assert!(body.is_end_stream() && body.frame().await.is_none());
    assert_eq!(body.size_hint().exact(), Some(0));
    let expected = [EventKind::Attempt, EventKind::Succeeded, EventKind::Stalled];
    assert_eq!(recorder.kinds(), expected);
}

#[tokio::test(start_paused = true)]
async fn what_a_body_says_of_itself_is_forwarded() {
    let mut script = Script::new([Step::Data("12345")]);
    script.hint = SizeHint::with_exact(5);
    let (service, _) = Scripted::new([Reply::body(script), Reply::body(Script::empty())]);
    let mut stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(ms(100)))
        .layer(DeadlineBodyLayer::new())
        .service(service);
    let body = stack.ready().await.unwrap().call(get()).await.unwrap();
    assert_eq!(body.body().size_hint().exact(), Some(5));
    assert!(!body.body().is_end_stream());
    let empty = stack.ready().await.unwrap().call(get()).await.unwrap();
    assert!(empty.body().is_end_stream());
}

#[tokio::test(start_paused = true)]
async fn without_a_deadline_in_force_a_body_may_take_for_ever() {
    let long = || {
        let steps = [Step::Wait(secs(86_400)), Step::Data("x")];
        Scripted::new([Reply::body(Script::new(steps))]).0
    };
    let alone = DeadlineBodyLayer::new().layer(long());
    let unbounded = ServiceBuilder::new()
        .layer(DeadlineLayer::unbounded())
        .layer(DeadlineBodyLayer::new())
        .service(long());
    let overridden = ServiceBuilder::new()
        .layer(OverrideLayer::new())
        .layer(DeadlineLayer::new(ms(100)))
        .layer(DeadlineBodyLayer::new())
        .service(long());
    let mut request = get();
    let patient = CallOverride::new().no_deadline();
    request.extensions_mut().insert(patient);
    for response in [
        alone.oneshot(get()).await.unwrap(),
        unbounded.oneshot(get()).await.unwrap(),
        overridden.oneshot(request).await.unwrap(),
    ] {
        let body = response.into_body().collect().await.unwrap();
        assert_eq!(body.to_bytes(), "x");
    }
}

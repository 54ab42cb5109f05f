//! The outer clock.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use tokio::time::{Instant, sleep};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_deadline::{
    AttemptTimedOut, Backoff, Bound, BoxError, DeadlineExceeded, DeadlineOrigin, Phase, Verdict,
    call, is_timeout,
};

use crate::layers::{
    AttemptTimeoutLayer, DeadlineBodyLayer, DeadlineLayer, ProgressBoundLayer, RetryLayer,
    ServiceBuilder,
};
use crate::support::*;

#[tokio::test(start_paused = true)]
async fn a_call_ends_at_its_deadline_and_not_just_before() {
    for (takes, ends) in [(999, Ok(999)), (1001, Err(1000)), (60_000, Err(1000))] {
        let (service, shared) = Scripted::new([Reply::after(ms(takes), 200)]);
        let stack = ServiceBuilder::new()
            .layer(DeadlineLayer::new(secs(1)))
            .service(service);
        let clock = Clock::start();
        let result = stack.oneshot(get()).await;
        assert_eq!(result.map(|_| clock.ms()).map_err(|_| clock.ms()), ends);
        assert_eq!(shared.live(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn the_error_says_what_happened() {
    let (service, _) = Scripted::new([Reply::Hang]);
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(ms(100)))
        .service(service);
    let error = stack.oneshot(get()).await.err().unwrap();
    let exceeded = DeadlineExceeded::find(&error).unwrap();
    assert_eq!(exceeded.deadline(), ms(100));
    assert_eq!(exceeded.elapsed(), ms(100));
    assert_eq!(exceeded.origin(), DeadlineOrigin::Own);
    assert_eq!(exceeded.phase(), Phase::Attempt);
    let [attempt] = exceeded.log().iter().collect::<Vec<_>>()[..] else {
        panic!("{exceeded:?}")
    };
    assert_eq!((attempt.number, attempt.verdict), (1, Verdict::Transient));
    assert_eq!(attempt.duration, ms(100));
    assert!(is_timeout(&error));
    assert!(std::error::Error::source(exceeded).is_none());
}

#[tokio::test(start_paused = true)]
async fn a_deadline_of_zero_has_passed_and_nothing_is_called() {
    let (service, shared) = Scripted::new([]);
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(Duration::ZERO))
        .service(service);
    let error = stack.oneshot(get()).await.err().unwrap();
    let exceeded = DeadlineExceeded::find(&error).unwrap();
    assert_eq!((exceeded.deadline(), exceeded.elapsed()), (ms(0), ms(0)));
    assert_eq!((exceeded.phase(), exceeded.log().len()), (Phase::Start, 0));
    assert_eq!(shared.calls(), 0);
}

#[tokio::test(start_paused = true)]
async fn what_the_clock_cannot_hold_is_no_bound_and_no_panic() {
    let century = Duration::from_secs(100 * 366 * 86_400);
    for forever in [Duration::MAX, Duration::from_secs(u64::MAX), century] {
        let (service, _) = Scripted::new([Reply::after(secs(100_000), 200)]);
        let stack = ServiceBuilder::new()
            .layer(DeadlineLayer::new(forever))
            .layer(RetryLayer::http().backoff(Backoff::constant(forever).cap(forever)))
            .layer(AttemptTimeoutLayer::http(forever))
            .layer(ProgressBoundLayer::new(forever))
            .service(service);
        assert!(stack.oneshot(get()).await.is_ok());
    }
}

#[tokio::test(start_paused = true)]
async fn each_call_has_its_whole_deadline_however_old_the_layer_is() {
    let (service, _) = Scripted::always(|| Reply::after(ms(999), 200));
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(secs(1)))
        .service(service);
    for pause in [0, 5, 3600] {
        sleep(secs(pause)).await;
        assert!(stack.clone().oneshot(get()).await.is_ok());
    }
}

#[tokio::test(start_paused = true)]
async fn the_smaller_of_two_nested_deadlines_wins_either_way_round() {
    for (outer, inner, origin) in [
        (1000, 100, DeadlineOrigin::Own),
        (100, 1000, DeadlineOrigin::Enclosing),
    ] {
        let (service, _) = Scripted::new([Reply::Hang]);
        let inner = DeadlineLayer::new(ms(inner)).layer(service);
        let stack = DeadlineLayer::new(ms(outer)).layer(inner);
        let clock = Clock::start();
        let error = stack.oneshot(get()).await.err().unwrap();
        assert_eq!(clock.ms(), 100);
        assert_eq!(DeadlineExceeded::find(&error).unwrap().origin(), origin);
    }
}

#[tokio::test(start_paused = true)]
async fn an_offer_binds_only_a_layer_that_inherits() {
    let run = async |inherit| {
        let (service, _) = Scripted::new([Reply::after(ms(500), 200)]);
        let stack = ServiceBuilder::new()
            .layer(DeadlineLayer::new(secs(1)).inherit(inherit))
            .service(service);
        call::with_deadline(ms(200), stack.oneshot(get())).await
    };
    assert!(run(false).await.is_ok());
    let error = run(true).await.err().unwrap();
    let exceeded = DeadlineExceeded::find(&error).unwrap();
    assert_eq!(exceeded.deadline(), ms(200));
    assert_eq!(exceeded.origin(), DeadlineOrigin::Inherited);
}

#[tokio::test(start_paused = true)]
async fn an_offer_that_is_over_fails_the_call_without_contact() {
    let (service, shared) = Scripted::new([]);
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::unbounded().inherit(true))
        .service(service);
    let late = async {
        sleep(ms(300)).await;
        stack.oneshot(get()).await
    };
    let error = call::with_deadline(ms(200), late).await.err().unwrap();
    let exceeded = DeadlineExceeded::find(&error).unwrap();
    assert_eq!((exceeded.deadline(), exceeded.log().len()), (ms(0), 0));
    assert_eq!(shared.calls(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_deadline_wins_on_the_last_permitted_attempt_too() {
    let (service, shared) = Scripted::always(|| Reply::Hang);
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(ms(250)))
        .layer(RetryLayer::http().attempts(3).backoff(Backoff::none()))
        .layer(AttemptTimeoutLayer::http(ms(100)))
        .service(service);
    let clock = Clock::start();
    let error = stack.oneshot(get()).await.err().unwrap();
    assert_eq!(clock.ms(), 250);
    let exceeded = DeadlineExceeded::find(&error).unwrap();
    let ceilings: Vec<_> = exceeded.log().iter().map(|a| a.ceiling.unwrap()).collect();
    assert_eq!(
        ceilings,
        [
            (ms(100), Bound::AttemptTimeout),
            (ms(100), Bound::AttemptTimeout),
            (ms(50), Bound::Deadline)
        ]
    );
    let source = std::error::Error::source(exceeded).unwrap();
    assert!(AttemptTimedOut::find(source).is_some());
    assert_eq!(shared.calls(), 3);
    shared.check();
}

#[tokio::test(start_paused = true)]
async fn after_a_response_the_error_has_no_source() {
    let (service, _) = Scripted::new([Reply::status(503), Reply::Hang]);
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(ms(250)))
        .layer(RetryLayer::http().backoff(Backoff::none()))
        .service(service);
    let error = stack.oneshot(get()).await.err().unwrap();
    let exceeded = DeadlineExceeded::find(&error).unwrap();
    assert!(std::error::Error::source(exceeded).is_none());
    let statuses: Vec<_> = exceeded.log().iter().map(|a| a.status).collect();
    assert_eq!(statuses, [Some(503), None]);
}

#[tokio::test(start_paused = true)]
async fn no_timeout_comes_out_of_poll_ready() {
    let (service, shared) = Scripted::new([Reply::status(200)]);
    shared.readiness.lock().unwrap().push_back(Ok(secs(3600)));
    let mut stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(ms(100)))
        .layer(AttemptTimeoutLayer::http(ms(100)))
        .service(service);
    let clock = Clock::start();
    stack.ready().await.unwrap().call(get()).await.unwrap();
    assert_eq!(clock.ms(), 3_600_000);
}

#[tokio::test(start_paused = true)]
async fn the_body_outlives_the_deadline_and_the_attempt_timeout() {
    let steps = (0..20).flat_map(|_| [Step::Wait(ms(100)), Step::Data("x")]);
    let (service, _) = Scripted::new([Reply::Head(ms(10), 200, vec![], Script::new(steps))]);
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(ms(500)))
        .layer(RetryLayer::http())
        .layer(AttemptTimeoutLayer::http(ms(250)))
        .layer(ProgressBoundLayer::new(ms(250)))
        .service(service);
    let body = stack.oneshot(get()).await.unwrap().into_body();
    assert_eq!(body.collect().await.unwrap().to_bytes().len(), 20);
}

#[tokio::test(start_paused = true)]
async fn a_bounded_body_ends_by_the_deadline() {
    for (deadline, whole) in [(2050, true), (1950, false)] {
        let steps = (0..20).flat_map(|_| [Step::Wait(ms(100)), Step::Data("x")]);
        let (service, _) = Scripted::new([Reply::body(Script::new(steps))]);
        let stack = ServiceBuilder::new()
            .layer(DeadlineLayer::new(ms(deadline)))
            .layer(DeadlineBodyLayer::new())
            .service(service);
        let clock = Clock::start();
        let mut body = stack.oneshot(get()).await.unwrap().into_body();
        let mut bytes = 0;
        let mut failure = None;
        while let Some(frame) = body.frame().await {
            match frame {
                Ok(frame) => bytes += frame.into_data().unwrap().len(),
                Err(error) => failure = Some(error),
            }
        }
        if whole {
            assert_eq!((bytes, clock.ms()), (20, 2000));
            assert!(failure.is_none());
        } else {
            assert_eq!((bytes, clock.ms()), (19, 1950));
            let failure = failure.unwrap();
            let exceeded = DeadlineExceeded::find(&failure).unwrap();
            assert_eq!(exceeded.phase(), Phase::Body);
            assert_eq!(exceeded.deadline(), ms(1950));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_frame_that_is_there_is_delivered_after_the_deadline() {
    let body = Script::new([Step::Wait(ms(50)), Step::Data("x"), Step::Data("y")]);
    let (service, _) = Scripted::new([Reply::body(body)]);
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(ms(100)))
        .layer(DeadlineBodyLayer::new())
        .service(service);
    let mut body = stack.oneshot(get()).await.unwrap().into_body();
    assert!(futures_util::poll!(std::pin::pin!(body.frame())).is_pending());
    sleep(secs(10)).await;
    assert_eq!(
        body.collect().await.unwrap().to_bytes(),
        Bytes::from_static(b"xy")
    );
}

#[tokio::test(start_paused = true)]
async fn a_response_that_is_there_is_returned_however_late() {
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(ms(100)))
        .layer(AttemptTimeoutLayer::new(ms(50)))
        .service(service_fn(|()| async {
            sleep(ms(10)).await;
            Ok::<_, BoxError>("late")
        }));
    let mut future = std::pin::pin!(stack.oneshot(()));
    assert!(futures_util::poll!(future.as_mut()).is_pending());
    // Whoever should have polled was busy elsewhere.
    tokio::time::advance(secs(1)).await;
    assert_eq!(future.await.unwrap(), "late");
}

#[test]
fn layers_are_built_and_services_made_outside_a_runtime() {
    let (service, _) = Scripted::new([Reply::after(ms(10), 200)]);
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(secs(1)))
        .layer(RetryLayer::http())
        .layer(AttemptTimeoutLayer::http(secs(1)))
        .layer(ProgressBoundLayer::new(secs(1)))
        .service(service);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    assert!(runtime.block_on(stack.oneshot(get())).is_ok());
}

#[tokio::test(start_paused = true)]
async fn an_unbounded_layer_around_bounded_ones_bounds_nothing() {
    let (service, _) = Scripted::new([Reply::after(secs(86_400), 200)]);
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::unbounded())
        .service(service);
    let begun = Instant::now();
    assert!(stack.oneshot(get()).await.is_ok());
    assert_eq!(Instant::now() - begun, secs(86_400));
}

//! Queueing that counts.

use tower::buffer::BufferLayer;
use tower::limit::ConcurrencyLimitLayer;
use tower::{Layer, Service, ServiceExt};
use tower_deadline::{DeadlineExceeded, Phase};

use crate::layers::{
    AttemptTimeoutLayer, BoundReadinessLayer, DeadlineLayer, RetryLayer, ServiceBuilder,
};
use crate::support::*;

#[tokio::test(start_paused = true)]
async fn a_service_that_is_never_ready_fails_at_the_deadline() {
    let stack = || {
        let (service, shared) = Scripted::new([]);
        shared.readiness.lock().unwrap().push_back(Ok(secs(3600)));
        ServiceBuilder::new()
            .layer(DeadlineLayer::new(ms(100)))
            .layer(BoundReadinessLayer::new())
            .layer(RetryLayer::http())
            .layer(AttemptTimeoutLayer::http(ms(50)))
            .service(service)
    };
    let check = |error: tower_deadline::BoxError| {
        let exceeded = DeadlineExceeded::find(&error).unwrap();
        assert_eq!(
            (exceeded.phase(), exceeded.log().len()),
            (Phase::Readiness, 0)
        );
    };
    let clock = Clock::start();
    check(stack().oneshot(get()).await.err().unwrap());
    assert_eq!(clock.ms(), 100);
    let mut stack = stack();
    check(
        stack
            .ready()
            .await
            .unwrap()
            .call(get())
            .await
            .err()
            .unwrap(),
    );
    assert_eq!(clock.ms(), 200);
}

#[tokio::test(start_paused = true)]
async fn one_that_is_ready_just_in_time_is_called() {
    let (service, shared) = Scripted::new([Reply::after(ms(9), 200)]);
    shared.readiness.lock().unwrap().push_back(Ok(ms(90)));
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(ms(100)))
        .layer(BoundReadinessLayer::new())
        .layer(AttemptTimeoutLayer::http(ms(10)))
        .service(service);
    assert!(stack.oneshot(get()).await.is_ok());
    shared.check();
}

#[tokio::test(start_paused = true)]
async fn a_buffer_above_survives_a_call_that_was_never_ready() {
    let (service, shared) = Scripted::new([Reply::status(200)]);
    shared.readiness.lock().unwrap().push_back(Ok(ms(200)));
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(ms(100)))
        .layer(BoundReadinessLayer::new())
        .service(service);
    let mut stack = BufferLayer::new(8).layer(stack);
    let error = stack
        .ready()
        .await
        .unwrap()
        .call(get())
        .await
        .err()
        .unwrap();
    assert!(DeadlineExceeded::find(&error).is_some());
    tokio::time::sleep(ms(200)).await;
    assert!(stack.ready().await.unwrap().call(get()).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_stack_that_was_readied_and_dropped_gives_its_permit_back() {
    let (service, _) = Scripted::new([Reply::status(200)]);
    let limited = ConcurrencyLimitLayer::new(1).layer(service);
    let mut stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(secs(1)))
        .layer(RetryLayer::http())
        .layer(AttemptTimeoutLayer::http(secs(1)))
        .service(limited.clone());
    stack.ready().await.unwrap();
    drop(stack);
    assert!(limited.oneshot(get()).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_call_that_was_over_before_it_began_leaves_its_permit_to_the_next() {
    let (service, _) = Scripted::new([Reply::status(200)]);
    let limited = ConcurrencyLimitLayer::new(1).layer(service);
    let mut expired = ServiceBuilder::new()
        .layer(DeadlineLayer::new(std::time::Duration::ZERO))
        .service(limited.clone());
    for _ in 0..3 {
        assert!(expired.ready().await.unwrap().call(get()).await.is_err());
    }
    drop(expired);
    assert!(limited.oneshot(get()).await.is_ok());
}

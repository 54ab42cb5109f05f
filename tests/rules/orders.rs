//! Layers in orders that no policy has: several deadlines, readiness beneath the retries, upside down.

use tower::{Layer, ServiceBuilder, ServiceExt};
use tower_deadline::{
    AttemptTimedOut, AttemptTimeoutLayer, Backoff, BoundReadinessLayer, BufferResponsesLayer,
    DeadlineBodyLayer, DeadlineExceeded, DeadlineLayer, EventKind, Phase, RetryLayer, StopReason,
};

use crate::support::*;

#[tokio::test(start_paused = true)]
async fn the_error_of_an_enclosing_deadline_passes_outer_layers_unchanged() {
    let (service, shared) = Scripted::always(|| Reply::Hang);
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(secs(5)))
        .layer(DeadlineLayer::new(ms(100)))
        .layer(RetryLayer::http())
        .layer(DeadlineLayer::new(secs(5)))
        .layer(AttemptTimeoutLayer::http(secs(1)))
        .service(service);
    let error = stack.oneshot(get()).await.err().unwrap();
    let exceeded = error.downcast_ref::<DeadlineExceeded>().unwrap();
    assert_eq!(
        (exceeded.deadline(), exceeded.phase()),
        (ms(100), Phase::Attempt)
    );
    assert_eq!(exceeded.log().len(), 1);
    assert_eq!(shared.calls(), 1);
}

#[tokio::test(start_paused = true)]
async fn beneath_a_retry_layer_the_queue_is_part_of_the_attempt() {
    let (service, shared) = Scripted::new([]);
    shared.readiness.lock().unwrap().push_back(Ok(secs(3600)));
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(ms(100)))
        .layer(RetryLayer::http())
        .layer(BoundReadinessLayer::new())
        .service(service);
    let error = stack.oneshot(get()).await.err().unwrap();
    let exceeded = DeadlineExceeded::find(&error).unwrap();
    assert_eq!(
        (exceeded.phase(), exceeded.log().len()),
        (Phase::Attempt, 1)
    );
}

#[tokio::test(start_paused = true)]
async fn a_bounded_body_that_is_buffered_ends_as_the_call_does() {
    let recorder = Recorder::default();
    let (service, _) =
        Scripted::always(|| Reply::body(Script::new([Step::Data("x"), Step::Silence])));
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(secs(1)).on_event(recorder.clone()))
        .layer(RetryLayer::http().on_event(recorder.clone()))
        .layer(BufferResponsesLayer::new())
        .layer(DeadlineBodyLayer::new().on_event(recorder.clone()))
        .service(service);
    let error = stack.oneshot(get()).await.err().unwrap();
    let exceeded = DeadlineExceeded::find(&error).unwrap();
    assert_eq!(
        (recorder.kinds(), exceeded.log().iter().count()),
        (vec![EventKind::Attempt, EventKind::DeadlineExceeded], 1),
        "{}",
        recorder.sequence()
    );
}

#[tokio::test(start_paused = true)]
async fn any_order_of_layers_works_as_far_as_it_means_something() {
    // A deadline inside a retry bounds each attempt, and what it ends is not retried.
    let (service, shared) = Scripted::always(|| Reply::Hang);
    let stack = ServiceBuilder::new()
        .layer(RetryLayer::http())
        .layer(DeadlineLayer::new(ms(100)))
        .service(service);
    let error = stack.oneshot(get()).await.err().unwrap();
    assert!(DeadlineExceeded::find(&error).is_some());
    assert_eq!(shared.calls(), 1);

    // An attempt timeout outside a retry bounds the call.
    let (service, shared) = Scripted::always(|| Reply::status(503));
    let stack = ServiceBuilder::new()
        .layer(AttemptTimeoutLayer::http(ms(150)))
        .layer(
            RetryLayer::http()
                .attempts(9)
                .backoff(Backoff::constant(ms(100))),
        )
        .service(service);
    let clock = Clock::start();
    let error = stack.oneshot(get()).await.err().unwrap();
    let timed_out = tower_deadline::AttemptTimedOut::find(&error).unwrap();
    assert_eq!((clock.ms(), timed_out.log().len()), (150, 2));
    assert_eq!(shared.calls(), 2);
}

/// An attempt timeout of 300 ms above a retry layer; what its listener and that of the call are told.
async fn upside_down(
    deadline: bool,
    backoff: Backoff,
    replies: Vec<Reply>,
) -> (Recorder, Recorder, usize) {
    let (opener, retry) = (Recorder::default(), Recorder::default());
    let (service, shared) = Scripted::new(replies);
    let above = AttemptTimeoutLayer::http(ms(300));
    let above = if deadline {
        above
    } else {
        above.on_event(opener.clone())
    };
    let stack = above.layer(
        RetryLayer::http()
            .backoff(backoff)
            .on_event(retry.clone())
            .layer(service),
    );
    let result = if deadline {
        DeadlineLayer::new(secs(9))
            .on_event(opener.clone())
            .layer(stack)
            .oneshot(get())
            .await
    } else {
        stack.oneshot(get()).await
    };
    assert!(AttemptTimedOut::find(&result.err().unwrap()).is_some());
    (opener, retry, shared.calls())
}

#[tokio::test(start_paused = true)]
async fn upside_down_each_attempt_is_told_of() {
    for deadline in [false, true] {
        let replies = vec![Reply::error(reset), Reply::Hang];
        let (opener, retry, calls) = upside_down(deadline, Backoff::none(), replies).await;
        assert_eq!(
            retry.count(EventKind::Attempt),
            calls,
            "deadline {deadline}: {}",
            retry.sequence()
        );
        assert_eq!(
            opener.terminal().log.len(),
            calls,
            "deadline {deadline}: {}",
            opener.sequence()
        );
    }
}

#[tokio::test(start_paused = true)]
async fn upside_down_a_backoff_that_was_cut_is_no_readiness() {
    for deadline in [false, true] {
        let replies = vec![Reply::error(reset)];
        let (opener, _, _) = upside_down(deadline, Backoff::constant(secs(1)), replies).await;
        assert_ne!(
            opener.terminal().stop,
            Some(StopReason::Readiness),
            "deadline {deadline}: {}",
            opener.sequence()
        );
    }
}

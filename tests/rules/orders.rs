//! Layers in orders and numbers that no policy has: two deadlines, two retry layers, upside down.

use std::error::Error;

use tower::{Layer, ServiceBuilder, ServiceExt};
use tower_deadline::{
    AttemptTimedOut, AttemptTimeoutLayer, Backoff, BoundReadinessLayer, BoxError,
    BufferResponsesLayer, DeadlineBodyLayer, DeadlineExceeded, DeadlineLayer, DeadlineOrigin,
    EventKind, Phase, RetryBudget, RetryLayer, RetryRefused, StopReason, is_timeout,
};

use crate::support::*;

#[tokio::test(start_paused = true)]
async fn the_smaller_of_two_nested_deadlines_wins_either_way_round() {
    for (outer, inner, origin) in [
        (1000, 100, DeadlineOrigin::Own),
        (100, 1000, DeadlineOrigin::Enclosing),
    ] {
        let (service, _) = Scripted::new([Reply::Hang]);
        let stack = ServiceBuilder::new()
            .layer(DeadlineLayer::new(ms(outer)))
            .layer(DeadlineLayer::new(ms(inner)))
            .service(service);
        let clock = Clock::start();
        let error = stack.oneshot(get()).await.err().unwrap();
        assert_eq!(clock.ms(), 100);
        assert_eq!(DeadlineExceeded::find(&error).unwrap().origin(), origin);
    }
}

#[tokio::test(start_paused = true)]
async fn two_retry_layers_multiply_unless_the_inner_one_defers() {
    for (defer, calls) in [(false, 12), (true, 4)] {
        let (service, shared) = Scripted::always(|| Reply::status(503));
        let recorder = Recorder::default();
        let stack = ServiceBuilder::new()
            .layer(RetryLayer::http().attempts(4).budget(RetryBudget::none()))
            .layer(
                RetryLayer::http()
                    .attempts(3)
                    .budget(RetryBudget::none())
                    .defer_to_caller(defer)
                    .on_event(recorder.clone()),
            )
            .service(service);
        assert_eq!(stack.oneshot(get()).await.unwrap().status(), 503);
        assert_eq!(shared.calls(), calls);
        assert_eq!(recorder.count(EventKind::NestedRetry), 4);
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_has_the_failure_for_its_cause_and_is_final_further_out() {
    let (service, shared) = Scripted::always(|| Reply::error(reset));
    let inner = RetryLayer::http()
        .backoff(Backoff::none())
        .budget(RetryBudget::of(0.1, 0).unwrap())
        .layer(service);
    // Whoever wraps it: what is outermost of ours decides, not the broken connection beneath.
    let stack = ServiceBuilder::new()
        .layer(RetryLayer::http().attempts(5).backoff(Backoff::none()))
        .map_err(|error: BoxError| -> BoxError { Box::new(std::io::Error::other(error)) })
        .service(inner);
    let error = stack.oneshot(get()).await.err().unwrap();
    let refused = RetryRefused::find(&error).unwrap();
    assert!(refused.source().unwrap().is::<std::io::Error>());
    assert!(!is_timeout(&error));
    assert_eq!(shared.calls(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_deadline_further_in_is_final_further_out() {
    let (service, shared) = Scripted::new([Reply::error(reset), Reply::Hang]);
    let inner = ServiceBuilder::new()
        .layer(DeadlineLayer::new(ms(100)))
        .layer(RetryLayer::http().backoff(Backoff::none()))
        .service(service);
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(secs(10)))
        .layer(RetryLayer::http().attempts(5))
        .map_err(|error: BoxError| -> BoxError { Box::new(std::io::Error::other(error)) })
        .service(inner);
    let error = stack.oneshot(get()).await.err().unwrap();
    let exceeded = DeadlineExceeded::find(&error).unwrap();
    assert_eq!((exceeded.deadline(), exceeded.log().len()), (ms(100), 2));
    assert!(exceeded.source().unwrap().is::<std::io::Error>());
    assert_eq!(shared.calls(), 2);
}

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

//! What the caller gets in the end, and whether what is told of it is true.

use std::error::Error;

use bytes::Bytes;
use http_body_util::BodyExt;
use tower::util::MapErr;
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_deadline::{
    Backoff, BoxError, CallOverride, DeadlineExceeded, EventKind, Jitter, Key, OneDependency,
    Phase, RetryBudget, RetryRefused, StopReason, call, is_timeout,
};

use crate::layers::{
    AttemptTimeoutLayer, BoundReadinessLayer, BufferResponsesLayer, DeadlineBodyLayer,
    DeadlineLayer, OverrideLayer, ProgressBoundLayer, RetryLayer, ServiceBuilder,
};
use crate::support::*;

/// A 503 with a body and headers, as the last response.
fn last_word(headers: Vec<(&'static str, &'static str)>) -> Reply {
    let mut headers = headers;
    headers.push(("x-reason", "overload"));
    let body = Script::new([Step::Data("come "), Step::Wait(ms(20)), Step::Data("back")]);
    Reply::Head(ms(0), 503, headers, body)
}

#[tokio::test(start_paused = true)]
async fn the_last_response_is_intact_whatever_stopped_the_retrying() {
    let one = || RetryBudget::of(0.1, 0).unwrap();
    let none = RetryBudget::none;
    for (attempts, budget, deadline, asked, replies, stop) in [
        (2, none(), 10_000, None, 2, StopReason::AttemptsSpent),
        (9, one(), 10_000, None, 2, StopReason::Budget),
        (9, none(), 150, None, 2, StopReason::DeadlineTooNear),
        (9, none(), 99, None, 1, StopReason::DeadlineTooNear),
        (
            9,
            none(),
            90_000,
            Some("31"),
            1,
            StopReason::RetryAfterTooLong,
        ),
        (
            9,
            none(),
            9_000,
            Some("9"),
            1,
            StopReason::RetryAfterTooLong,
        ),
    ] {
        let recorder = Recorder::default();
        let headers: Vec<_> = asked
            .map(|value| ("retry-after", value))
            .into_iter()
            .collect();
        let (service, shared) = Scripted::new((0..replies).map(|_| last_word(headers.clone())));
        let stack = ServiceBuilder::new()
            .layer(DeadlineLayer::new(ms(deadline)).on_event(recorder.clone()))
            .layer(
                RetryLayer::http()
                    .attempts(attempts)
                    .backoff(Backoff::constant(ms(100)))
                    .budget(budget),
            )
            .layer(AttemptTimeoutLayer::http(secs(5)))
            .service(service);
        let response = stack.oneshot(get()).await.unwrap();
        assert_eq!(recorder.terminal().stop, Some(stop));
        assert_eq!(shared.calls(), replies);
        assert_eq!(response.status(), 503);
        assert_eq!(response.headers()["x-reason"], "overload");
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(body, Bytes::from_static(b"come back"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_response_before_the_last_attempt_is_not_kept() {
    let (service, _) = Scripted::new([last_word(vec![]), Reply::error(reset)]);
    let stack = RetryLayer::http()
        .attempts(2)
        .backoff(Backoff::none())
        .layer(service);
    assert!(
        stack
            .oneshot(get())
            .await
            .err()
            .unwrap()
            .is::<std::io::Error>()
    );
}

#[tokio::test(start_paused = true)]
async fn where_no_retry_is_begun_nothing_is_paid() {
    let refused_stack = |attempts, deadline| {
        let budget = RetryBudget::of(0.1, 0).unwrap();
        let layer = ServiceBuilder::new()
            .layer(DeadlineLayer::new(deadline))
            .layer(
                RetryLayer::http()
                    .attempts(attempts)
                    .key(OneDependency)
                    .backoff(Backoff::constant(ms(100)).cap(secs(1000)))
                    .budget(budget.clone()),
            );
        (budget, layer)
    };
    type Case = (u32, u64, Req, fn() -> Reply);
    let cases: [Case; 5] = [
        (1, 60, get(), || Reply::status(503)),
        (3, 60, post(), || Reply::status(503)),
        (3, 60, get(), || Reply::error(|| std::fmt::Error.into())),
        // Asked to come back after the deadline: not a moment is waited.
        (3, 30, get(), || Reply::retry_after(429, "100")),
        (3, 0, get(), || Reply::status(503)),
    ];
    for (attempts, deadline, request, reply) in cases {
        let (service, shared) = Scripted::new([reply()]);
        let deadline = if deadline == 0 {
            ms(100)
        } else {
            secs(deadline)
        };
        let (budget, layer) = refused_stack(attempts, deadline);
        let clock = Clock::start();
        let _ = layer.service(service).oneshot(request).await;
        assert_eq!((clock.ms(), shared.calls()), (0, 1));
        assert_eq!(budget.utilisation(Key::SHARED), Some(0.0));
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_passes_as_the_same_box() {
    let (told, asked) = std::sync::mpsc::channel();
    let stack = ServiceBuilder::new()
        .layer(OverrideLayer::new())
        .layer(DeadlineLayer::new(secs(1)))
        .layer(BoundReadinessLayer::new())
        .layer(DeadlineBodyLayer::new())
        .layer(RetryLayer::http())
        .layer(AttemptTimeoutLayer::http(secs(1)))
        .layer(BufferResponsesLayer::new())
        .layer(ProgressBoundLayer::new(secs(1)))
        .service(service_fn(move |_: Req| {
            let error: BoxError = Box::new(Own(7));
            told.send(std::ptr::from_ref(&*error).addr()).unwrap();
            std::future::ready(Err::<Res, _>(error))
        }));
    let error = stack.oneshot(get()).await.err().unwrap();
    assert_eq!(error.downcast_ref::<Own>().unwrap().0, 7);
    assert_eq!(std::ptr::from_ref(&*error).addr(), asked.recv().unwrap());
}

#[tokio::test(start_paused = true)]
async fn what_an_inner_error_cannot_carry_is_in_the_event_and_afterwards() {
    let recorder = Recorder::default();
    let (service, _) = Scripted::new([Reply::status(503), Reply::error(|| Box::new(Own(2)))]);
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(secs(9)).on_event(recorder.clone()))
        .layer(RetryLayer::http().backoff(Backoff::exponential().jitter(Jitter::None)))
        .service(service);
    let error = stack.oneshot(get()).await.err().unwrap();
    assert!(error.is::<Own>());
    let terminal = recorder.terminal();
    assert_eq!(
        (terminal.kind, terminal.stop),
        (EventKind::NotRetried, Some(StopReason::Permanent))
    );
    assert_eq!(terminal.log.len(), 2);
    assert_eq!(terminal.error.as_deref(), Some("own 2"));
    let after: Vec<_> = call::last_log().unwrap().iter().cloned().collect();
    assert_eq!(after, terminal.log);
}

#[tokio::test(start_paused = true)]
async fn an_override_of_nothing_at_all_is_a_deadline_that_has_passed() {
    let (service, shared) = Scripted::new([]);
    let stack = ServiceBuilder::new()
        .layer(OverrideLayer::new())
        .layer(DeadlineLayer::new(secs(5)))
        .layer(RetryLayer::http())
        .service(service);
    let mut request = get();
    request
        .extensions_mut()
        .insert(CallOverride::new().deadline(std::time::Duration::ZERO));
    let error = stack.oneshot(request).await.err().unwrap();
    let exceeded = DeadlineExceeded::find(&error).unwrap();
    assert_eq!((exceeded.phase(), exceeded.log().len()), (Phase::Start, 0));
    assert_eq!((exceeded.elapsed(), shared.calls()), (ms(0), 0));
}

/// The same with each error in another, as those do who say where it came from.
fn wrapping_errors<S: Service<Req, Error = BoxError> + Clone>(
    inner: S,
) -> impl Service<Req, Response = S::Response, Error = BoxError> + Clone {
    MapErr::new(inner, |error: BoxError| -> BoxError {
        Box::new(std::io::Error::other(error))
    })
}

#[tokio::test(start_paused = true)]
async fn a_refusal_has_the_failure_for_its_cause_and_is_final_further_out() {
    let (service, shared) = Scripted::always(|| Reply::error(reset));
    let inner = RetryLayer::http()
        .backoff(Backoff::none())
        .budget(RetryBudget::of(0.1, 0).unwrap())
        .layer(service);
    // Whoever wraps it: what is outermost of ours decides, not the broken connection beneath.
    let outer = RetryLayer::http().attempts(5).backoff(Backoff::none());
    let stack = outer.layer(wrapping_errors(inner));
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
        .service(wrapping_errors(inner));
    let error = stack.oneshot(get()).await.err().unwrap();
    let exceeded = DeadlineExceeded::find(&error).unwrap();
    assert_eq!((exceeded.deadline(), exceeded.log().len()), (ms(100), 2));
    assert!(exceeded.source().unwrap().is::<std::io::Error>());
    assert_eq!(shared.calls(), 2);
}

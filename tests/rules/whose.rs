//! Whose a scope is: clients in a handler, fallbacks, calls beside and after one another.

use std::future::pending;

use futures_util::future::BoxFuture;
use tower::{Layer, ServiceExt, service_fn};
use tower_deadline::{BoxError, DeadlineExceeded, EventKind, Verdict, call};

use crate::layers::{AttemptTimeoutLayer, DeadlineLayer, RetryLayer, ServiceBuilder, any};
use crate::support::*;

fn nested(recorder: &Recorder) -> BoxFuture<'static, Result<(), BoxError>> {
    let stack = any::DeadlineLayer::unbounded()
        .on_event(recorder.clone())
        .layer(service_fn(|()| pending::<Result<(), BoxError>>()));
    Box::pin(stack.oneshot(()))
}

#[tokio::test(start_paused = true)]
async fn a_fallback_that_answers_is_a_success_of_the_call() {
    let recorder = Recorder::default();
    let stack = ServiceBuilder::new()
        .layer(any::DeadlineLayer::new(secs(30)).on_event(recorder.clone()))
        .service(service_fn(|()| async {
            let (primary, _) = Scripted::always(|| Reply::error(reset));
            let primary = RetryLayer::http().attempts(2).layer(primary);
            match primary.oneshot(get()).await {
                Ok(response) => Ok::<_, BoxError>(response.status().as_u16()),
                Err(_) => Ok(200), // from a cache
            }
        }));
    assert_eq!(stack.oneshot(()).await.unwrap(), 200);
    assert_eq!(
        recorder.terminal().kind,
        EventKind::Succeeded,
        "{}",
        recorder.sequence()
    );
}

#[tokio::test(start_paused = true)]
async fn a_second_call_after_the_first_is_not_nested_in_it() {
    let recorder = Recorder::default();
    let told = recorder.clone();
    let stack = ServiceBuilder::new()
        .layer(any::DeadlineLayer::new(secs(30)))
        .service(service_fn(move |()| {
            let told = told.clone();
            async move {
                let (first, _) = Scripted::status([200]);
                RetryLayer::http().layer(first).oneshot(get()).await?;
                let (second, shared) = Scripted::status([503, 200]);
                let second = RetryLayer::http()
                    .defer_to_caller(true)
                    .on_event(told)
                    .layer(second);
                let response = second.oneshot(get()).await?;
                Ok::<_, BoxError>((response.status().as_u16(), shared.calls()))
            }
        }));
    let got = stack.oneshot(()).await.unwrap();
    assert_eq!(
        (got, recorder.count(EventKind::NestedRetry)),
        ((200, 2), 0),
        "{}",
        recorder.sequence()
    );
}

#[tokio::test(start_paused = true)]
async fn a_call_beside_another_is_not_nested_in_it() {
    let recorder = Recorder::default();
    let told = recorder.clone();
    let stack = ServiceBuilder::new()
        .layer(any::DeadlineLayer::new(secs(30)))
        .service(service_fn(move |()| {
            let told = told.clone();
            async move {
                let (first, _) = Scripted::new([Reply::after(ms(500), 200)]);
                let (second, shared) = Scripted::status([503, 200]);
                let second = RetryLayer::http()
                    .defer_to_caller(true)
                    .on_event(told)
                    .layer(second);
                let (_, response) = tokio::join!(
                    RetryLayer::http().layer(first).oneshot(get()),
                    second.oneshot(get()),
                );
                Ok::<_, BoxError>((response?.status().as_u16(), shared.calls()))
            }
        }));
    let got = stack.oneshot(()).await.unwrap();
    assert_eq!(
        (got, recorder.count(EventKind::NestedRetry)),
        ((200, 2), 0),
        "{}",
        recorder.sequence()
    );
}

#[tokio::test(start_paused = true)]
async fn the_attempt_in_flight_of_a_second_call_is_in_the_log() {
    let stack = ServiceBuilder::new()
        .layer(any::DeadlineLayer::new(secs(5)))
        .service(service_fn(|()| async {
            let (first, _) = Scripted::status([200]);
            RetryLayer::http().layer(first).oneshot(get()).await?;
            let (second, _) = Scripted::always(|| Reply::Hang);
            RetryLayer::http().layer(second).oneshot(get()).await
        }));
    let error = stack.oneshot(()).await.err().unwrap();
    let exceeded = DeadlineExceeded::find(&error).unwrap();
    let last = exceeded.log().last().unwrap();
    assert_eq!(last.verdict, Verdict::Transient, "{last:?}");
}

#[tokio::test(start_paused = true)]
async fn a_call_in_an_attempt_that_was_cut_is_told_alike_whoever_opened_the_scope() {
    let (alone, beneath) = (Recorder::default(), Recorder::default());
    let told = alone.clone();
    let _ = AttemptTimeoutLayer::new(ms(100))
        .layer(service_fn(move |()| nested(&told)))
        .oneshot(())
        .await;
    let told = beneath.clone();
    let _ = ServiceBuilder::new()
        .layer(DeadlineLayer::new(secs(1)))
        .layer(AttemptTimeoutLayer::new(ms(100)))
        .service(service_fn(move |()| nested(&told)))
        .oneshot(())
        .await;
    assert_eq!(alone.kinds(), beneath.kinds());
}

#[tokio::test(start_paused = true)]
async fn a_detached_call_does_not_end_by_a_deadline_that_it_does_not_have() {
    let recorder = Recorder::default();
    let told = recorder.clone();
    let _ = any::DeadlineLayer::new(ms(100))
        .layer(service_fn(move |()| call::detach(nested(&told))))
        .oneshot(())
        .await;
    assert_eq!(
        recorder.kinds(),
        [EventKind::Cancelled],
        "{}",
        recorder.sequence()
    );
}

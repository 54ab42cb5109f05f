//! Some of the layers without the others. A policy's stack always has a retry layer, which says why a
//! call ended, and a deadline layer, which keeps the call apart from the one around it; here there is
//! neither, and a layer can be asked for what it alone knows.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::Response;
use tokio::time::sleep;
use tower::{Layer, Service, ServiceBuilder, ServiceExt, service_fn};
use tower_deadline::{
    AttemptCeiling, AttemptTimedOut, AttemptTimeoutLayer, Backoff, BoundReadinessLayer, BoxError,
    DeadlineBodyLayer, DeadlineExceeded, DeadlineLayer, EventKind, Jitter, Key, OverrideLayer,
    ProgressBoundLayer, RetryLayer,
};

use crate::support::*;

use EventKind::{Attempt, DeadlineExceeded as Exceeded, Exhausted, NotRetried, Succeeded};

type Outcome = Result<(), BoxError>;

/// An attempt of so long that hangs.
fn attempt(timeout: u64) -> BoxFuture<'static, Outcome> {
    let hanging = service_fn(|()| pending::<Outcome>());
    let stack = AttemptTimeoutLayer::new(ms(timeout)).layer(hanging);
    Box::pin(stack.oneshot(()))
}

#[tokio::test(start_paused = true)]
async fn each_layer_alone_opens_a_call_and_ends_it() {
    let run = async |reply: Reply, which: u8| {
        let recorder = Recorder::default();
        let (service, _) = Scripted::new([reply]);
        let _ = match which {
            0 => {
                DeadlineLayer::new(ms(100))
                    .on_event(recorder.clone())
                    .layer(service)
                    .oneshot(get())
                    .await
            }
            1 => {
                AttemptTimeoutLayer::http(ms(100))
                    .on_event(recorder.clone())
                    .layer(service)
                    .oneshot(get())
                    .await
            }
            _ => {
                RetryLayer::http()
                    .attempts(1)
                    .on_event(recorder.clone())
                    .layer(service)
                    .oneshot(get())
                    .await
            }
        };
        recorder.kinds()
    };
    for which in 0..3 {
        assert_eq!(run(Reply::status(200), which).await, [Attempt, Succeeded]);
    }
    assert_eq!(run(Reply::Hang, 0).await, [Attempt, Exceeded]);
    assert_eq!(run(Reply::Hang, 1).await, [Attempt, NotRetried]);
    assert_eq!(run(Reply::status(503), 1).await, [Attempt, NotRetried]);
    assert_eq!(run(Reply::status(503), 2).await, [Attempt, Exhausted]);
    assert_eq!(run(Reply::error(reset), 0).await, [Attempt, NotRetried]);
}

#[test]
fn layers_that_raise_no_error_keep_the_inner_one() {
    fn error_of<S: Service<Req, Error = Own>>(_: &S) {}
    let inner = || service_fn(|_: Req| async { Ok::<_, Own>(Response::new(Script::empty())) });
    error_of(&ProgressBoundLayer::new(secs(1)).layer(inner()));
    error_of(&OverrideLayer::new().layer(inner()));
    error_of(&BoundReadinessLayer::new().layer(inner()));
    error_of(&DeadlineBodyLayer::new().layer(inner()));
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_two_calls_share_is_not_cut_by_the_deadline_of_the_one_that_left() {
    for second in [DeadlineLayer::new(secs(60)), DeadlineLayer::unbounded()] {
        let shared = attempt(500).map(Arc::new).shared();
        let clock = Clock::start();
        let first = DeadlineLayer::new(ms(100)).layer(service_fn(|()| async {
            shared.clone().await;
            Ok::<_, BoxError>(())
        }));
        let second = second.layer(service_fn(|()| async {
            let outcome = shared.clone().await;
            let error = outcome.as_ref().as_ref().unwrap_err();
            assert!(AttemptTimedOut::find(&**error).is_some(), "{error}");
            Ok::<_, BoxError>(())
        }));
        let both = futures_util::future::join(first.oneshot(()), second.oneshot(()));
        let (first, second) = tokio::time::timeout(secs(600), both).await.expect("hangs");
        assert!(DeadlineExceeded::find(&first.unwrap_err()).is_some());
        assert!(second.is_ok());
        assert_eq!(clock.ms(), 500);
    }
}

#[tokio::test(start_paused = true)]
async fn one_attempt_after_another_ends_with_the_call_that_they_are_part_of() {
    async fn attempts() -> Outcome {
        for _ in 0..10 {
            let _ = attempt(40).await;
        }
        unreachable!()
    }
    let stack = DeadlineLayer::new(ms(300)).layer(service_fn(|()| attempts()));
    let clock = Clock::start();
    let error = stack.oneshot(()).await.unwrap_err();
    assert!(DeadlineExceeded::find(&error).is_some(), "{error}");
    assert_eq!(clock.ms(), 300);
}

#[tokio::test(start_paused = true)]
async fn a_deadline_during_the_fallback_does_not_say_that_attempts_were_spent() {
    let recorder = Recorder::default();
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(secs(5)).on_event(recorder.clone()))
        .service(service_fn(|()| async {
            let (primary, _) = Scripted::always(|| Reply::error(reset));
            let primary = RetryLayer::http()
                .attempts(2)
                .backoff(Backoff::exponential().jitter(Jitter::None))
                .layer(primary);
            let _ = primary.oneshot(get()).await;
            let (secondary, _) = Scripted::always(|| Reply::Hang);
            let secondary = RetryLayer::http().layer(secondary);
            secondary.oneshot(get()).await
        }));
    let error = stack.oneshot(()).await.err().unwrap();
    assert!(DeadlineExceeded::find(&error).is_some());
    let terminal = recorder.terminal();
    assert_eq!(
        (terminal.kind, terminal.stop),
        (EventKind::DeadlineExceeded, None),
        "{}",
        recorder.sequence()
    );
}

#[tokio::test(start_paused = true)]
async fn a_short_window_is_forgotten_after_any_pause() {
    let layer = AttemptTimeoutLayer::new(secs(5)).ceiling(
        AttemptCeiling::above(3.0)
            .window(ms(10))
            .minimum_samples(1)
            .floor(ms(1)),
    );
    layer.validate().unwrap();
    let measured = layer.measured().unwrap();
    let stack = layer.layer(service_fn(|wait: Duration| async move {
        sleep(wait).await;
        Ok::<_, BoxError>(())
    }));
    stack.clone().oneshot(ms(2)).await.unwrap();
    assert!(measured.ceiling(Key::SHARED).is_some());
    // More than half of 2^32 slices of a millisecond.
    tokio::time::advance(secs(30 * 86_400)).await;
    assert_eq!(measured.ceiling(Key::SHARED), None);
    let after = stack.oneshot(ms(500)).await;
    assert!(after.is_ok(), "{:?}", after.err());
}

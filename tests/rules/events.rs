//! What is told, when, and how often.

use std::sync::Arc;

use http::Response;
use http_body::Body;
use tokio::time::timeout;
use tower::{Layer, Service, ServiceExt};
use tower_deadline::{Backoff, BoxError, Event, EventKind, RetryBudget, Verdict};

use crate::layers::{
    AttemptTimeoutLayer, BoundReadinessLayer, DeadlineLayer, RetryLayer, ServiceBuilder, any,
};
use crate::support::*;

use EventKind::{
    Attempt, Cancelled, DeadlineExceeded, Exhausted, NotRetried, RejectedByBudget, Retrying,
    Succeeded,
};

/// Deadline 1 s, three attempts of 300 ms, 100 ms apart; everybody tells the recorder.
fn stack(
    service: Scripted,
    budget: RetryBudget,
    recorder: &Recorder,
) -> impl Service<Req, Response = Response<impl Body>, Error = BoxError> + Clone {
    ServiceBuilder::new()
        .layer(DeadlineLayer::new(secs(1)).on_event(recorder.clone()))
        .layer(
            RetryLayer::http()
                .backoff(Backoff::constant(ms(100)))
                .budget(budget)
                .on_event(recorder.clone()),
        )
        .layer(AttemptTimeoutLayer::http(ms(300)).on_event(recorder.clone()))
        .service(service)
}

fn free(
    service: Scripted,
    recorder: &Recorder,
) -> impl Service<Req, Response = Response<impl Body>, Error = BoxError> + Clone {
    stack(service, RetryBudget::none(), recorder)
}

async fn kinds(replies: Vec<Reply>) -> Vec<EventKind> {
    let recorder = Recorder::default();
    let (service, _) = Scripted::new(replies);
    let _ = free(service, &recorder).oneshot(get()).await;
    recorder.terminal();
    recorder.kinds()
}

#[tokio::test(start_paused = true)]
async fn the_sequences_are_what_happened() {
    let ok = || Reply::status(200);
    let failed = || Reply::status(503);
    assert_eq!(kinds(vec![ok()]).await, [Attempt, Succeeded]);
    assert_eq!(
        kinds(vec![failed(), Reply::Hang, ok()]).await,
        [Attempt, Retrying, Attempt, Retrying, Attempt, Succeeded]
    );
    assert_eq!(
        kinds(vec![Reply::error(|| std::fmt::Error.into())]).await,
        [Attempt, NotRetried]
    );
    assert_eq!(
        kinds(vec![failed(), failed(), failed()]).await,
        [Attempt, Retrying, Attempt, Retrying, Attempt, Exhausted]
    );
    // 300, 100, 300, 100, and 200 ms of the third attempt.
    assert_eq!(
        kinds(vec![Reply::Hang, Reply::Hang, Reply::Hang]).await,
        [
            Attempt,
            Retrying,
            Attempt,
            Retrying,
            Attempt,
            DeadlineExceeded
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn retrying_comes_before_the_sleep_and_says_how_long() {
    let recorder = Recorder::default();
    let (service, _) = Scripted::status([503, 200]);
    let mut call = std::pin::pin!(free(service, &recorder).oneshot(get()));
    assert!(futures_util::poll!(call.as_mut()).is_pending());
    let told = recorder.all();
    assert_eq!((told[1].kind, told[1].delay), (Retrying, Some(ms(100))));
    call.await.unwrap();
    assert_eq!(recorder.terminal().duration, Some(ms(100)));
}

#[tokio::test(start_paused = true)]
async fn a_deadline_before_the_first_attempt_and_in_readiness() {
    let recorder = Recorder::default();
    let (service, _) = Scripted::new([]);
    let stack = DeadlineLayer::new(std::time::Duration::ZERO)
        .on_event(recorder.clone())
        .layer(service);
    assert!(stack.oneshot(get()).await.is_err());
    assert_eq!(recorder.kinds(), [DeadlineExceeded]);

    let recorder = Recorder::default();
    let (service, shared) = Scripted::new([]);
    shared.readiness.lock().unwrap().push_back(Ok(secs(9)));
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(ms(10)).on_event(recorder.clone()))
        .layer(BoundReadinessLayer::new())
        .service(service);
    assert!(stack.oneshot(get()).await.is_err());
    assert_eq!(recorder.kinds(), [DeadlineExceeded]);
}

#[tokio::test(start_paused = true)]
async fn a_budget_that_is_spent() {
    let recorder = Recorder::default();
    let (service, _) = Scripted::status([503, 503]);
    let budget = RetryBudget::of(0.1, 0).unwrap();
    assert!(
        stack(service, budget, &recorder)
            .oneshot(get())
            .await
            .is_ok()
    );
    assert_eq!(
        recorder.kinds(),
        [Attempt, Retrying, Attempt, RejectedByBudget]
    );
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_leaves_is_told_once_and_is_no_failure() {
    for at in [50, 350] {
        let recorder = Recorder::default();
        let (service, shared) = Scripted::always(|| Reply::Hang);
        let call = free(service, &recorder).oneshot(get());
        assert!(timeout(ms(at), call).await.is_err());
        assert_eq!(recorder.count(Cancelled), 1);
        assert!(
            !recorder.kinds().iter().any(|k| k.is_terminal()),
            "{}",
            recorder.sequence()
        );
        let told = recorder.all().pop().unwrap();
        assert_eq!((told.kind, told.duration), (Cancelled, Some(ms(at))));
        assert_eq!(shared.live(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_dropped_inside_a_call_that_ended_was_not_abandoned() {
    let recorder = Recorder::default();
    let inner = recorder.clone();
    let outer = ServiceBuilder::new()
        .layer(any::DeadlineLayer::new(ms(100)))
        .service(tower::service_fn(move |()| {
            let inner = inner.clone();
            async move {
                let (service, _) = Scripted::new([Reply::Hang]);
                let mut calls = futures_util::stream::FuturesUnordered::new();
                calls.push(free(service, &inner).oneshot(get()));
                futures_util::StreamExt::next(&mut calls)
                    .await
                    .unwrap()
                    .map(drop)
            }
        }));
    assert!(outer.oneshot(()).await.is_err());
    assert_eq!(
        recorder.kinds(),
        [Attempt, DeadlineExceeded],
        "{}",
        recorder.sequence()
    );
}

#[tokio::test(start_paused = true)]
async fn a_call_that_was_kept_unpolled_in_a_call_that_ended_is_told_of_all_the_same() {
    let recorder = Recorder::default();
    let inner = recorder.clone();
    let outer = ServiceBuilder::new()
        .layer(any::DeadlineLayer::new(ms(100)))
        .service(tower::service_fn(move |()| {
            let inner = inner.clone();
            async move {
                let (service, _) = Scripted::new([Reply::Hang]);
                let mut kept = Box::pin(free(service, &inner).oneshot(get()));
                assert!(futures_util::poll!(kept.as_mut()).is_pending());
                std::future::pending::<()>().await;
                kept.await.map(drop)
            }
        }));
    assert!(outer.oneshot(()).await.is_err());
    assert_eq!(
        recorder.kinds(),
        [Attempt, DeadlineExceeded],
        "{}",
        recorder.sequence()
    );
}

#[tokio::test(start_paused = true)]
async fn a_listener_that_panics_breaks_nothing() {
    let recorder = Recorder::default();
    let (service, _) = Scripted::status([503, 200]);
    let stack = ServiceBuilder::new()
        .layer(
            DeadlineLayer::new(secs(1))
                .on_event(|_: &Event<'_>| panic!("on purpose"))
                .on_event(recorder.clone()),
        )
        .layer(
            RetryLayer::http()
                .on_event(|_: &Event<'_>| panic!("on purpose"))
                .on_event(recorder.clone()),
        )
        .service(service);
    assert_eq!(stack.oneshot(get()).await.unwrap().status(), 200);
    assert_eq!(recorder.kinds(), [Attempt, Retrying, Attempt, Succeeded]);
}

#[tokio::test(start_paused = true)]
async fn an_attempt_event_says_what_the_attempt_was() {
    let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
    let seeing = Arc::clone(&seen);
    let (service, _) = Scripted::new([Reply::after(ms(20), 503), Reply::Hang]);
    let stack = ServiceBuilder::new()
        .layer(
            RetryLayer::http()
                .attempts(2)
                .backoff(Backoff::constant(ms(7)))
                .on_event(move |event: &Event<'_>| {
                    if event.kind == Attempt {
                        let row = (
                            event.attempt,
                            event.verdict,
                            event.status,
                            event.duration,
                            event.delay,
                        );
                        seeing.lock().unwrap().push(row);
                    }
                }),
        )
        .layer(AttemptTimeoutLayer::http(ms(300)))
        .service(service);
    assert!(stack.oneshot(get()).await.is_err());
    let transient = Some(Verdict::Transient);
    assert_eq!(
        *seen.lock().unwrap(),
        [
            (1, transient, Some(503), Some(ms(20)), Some(ms(0))),
            (2, transient, None, Some(ms(300)), Some(ms(7)))
        ]
    );
}

/// Random scripts with random drops: exactly one end each.
#[tokio::test(start_paused = true)]
async fn every_call_ends_once_whatever_happens() {
    for seed in 0..3000 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let recorder = Recorder::default();
        let replies: Vec<_> = (0..3)
            .map(|_| {
                let wait = ms(rng.u64(0..400));
                match rng.u8(0..6) {
                    0 => Reply::Hang,
                    1 => Reply::Error(wait, reset),
                    2 => Reply::Error(wait, || std::fmt::Error.into()),
                    3 => Reply::after(wait, 503),
                    4 => Reply::retry_after(429, ["0", "1", "7", "soon"][rng.usize(0..4)]),
                    _ => Reply::after(wait, 200),
                }
            })
            .collect();
        let (service, shared) = Scripted::new(replies);
        shared
            .readiness
            .lock()
            .unwrap()
            .extend((0..3).map(|_| Ok(ms(rng.u64(0..30)))));
        let call = free(service, &recorder).oneshot(get());
        let left = timeout(ms(rng.u64(0..1500)), call).await.is_err();
        let terminal = recorder.kinds().iter().filter(|k| k.is_terminal()).count();
        let cancelled = recorder.count(Cancelled);
        // A call that was dropped while its readiness was awaited never began.
        let began = shared.calls() > 0;
        let ends = (usize::from(began && !left), usize::from(began && left));
        assert_eq!(
            (terminal, cancelled),
            ends,
            "seed {seed}\n{}",
            recorder.sequence()
        );
        // One event an attempt, but for the one that was under way when its caller left.
        let told = recorder.count(Attempt);
        assert!(told <= shared.calls() && told + cancelled >= shared.calls());
        assert_eq!(shared.live(), 0);
        shared.check();
    }
}

#[tokio::test(start_paused = true)]
async fn the_end_is_told_with_the_verdict_and_status_that_the_retry_layer_gave() {
    for (status, verdict) in [(503, Verdict::Transient), (404, Verdict::Ok)] {
        let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
        let seeing = Arc::clone(&seen);
        let (service, _) = Scripted::status([status]);
        let stack = ServiceBuilder::new()
            .layer(
                DeadlineLayer::new(secs(1)).on_event(move |event: &Event<'_>| {
                    if event.kind.is_terminal() {
                        seeing.lock().unwrap().push((event.verdict, event.status));
                    }
                }),
            )
            .layer(RetryLayer::http().attempts(1))
            .service(service);
        stack.oneshot(get()).await.unwrap();
        assert_eq!(*seen.lock().unwrap(), [(Some(verdict), Some(status))]);
    }
}

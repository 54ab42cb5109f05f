//! What was found by trying to break it: late polls, shared futures, odd bodies, long pauses.

use std::future::{Future, pending, ready};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::{HeaderMap, HeaderName, HeaderValue, Response};
use http_body::{Body, Frame};
use tokio::time::sleep;
use tower::buffer::BufferLayer;
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_deadline::{AttemptCeiling, AttemptTimedOut, Backoff, BoxError, BufferedTrailers, call};

use crate::layers::{
    AttemptTimeoutLayer, BoundReadinessLayer, BufferResponsesLayer, DeadlineLayer, RetryLayer,
    ServiceBuilder, any,
};
use crate::support::*;

/// Polls `call` once, jumps, and polls on.
async fn jumping<F: Future>(call: F, by: Duration) -> F::Output {
    let mut call = Box::pin(call);
    assert!(futures_util::poll!(&mut call).is_pending());
    tokio::time::advance(by).await;
    call.await
}

/// A future that two places of one task poll.
#[derive(Clone)]
struct Both(Arc<Mutex<BoxFuture<'static, Result<(), BoxError>>>>);

impl Future for Both {
    type Output = Result<(), BoxError>;
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.lock().unwrap().as_mut().poll(cx)
    }
}

/// Trailers again and again, each with names of its own.
struct Trailing(u32, u32);

impl Body for Trailing {
    type Data = Bytes;
    type Error = BoxError;
    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.0 == self.1 {
            return Poll::Ready(None);
        }
        self.0 += 1;
        let mut trailers = HeaderMap::new();
        for n in 0..1000 {
            let name = HeaderName::from_bytes(format!("x-{}-{n}", self.0).as_bytes()).unwrap();
            trailers.insert(
                name,
                HeaderValue::from_static("a value of some length, so that it adds up"),
            );
        }
        Poll::Ready(Some(Ok(Frame::trailers(trailers))))
    }
}

async fn trailing(frames: u32) -> Result<Response<impl Body>, BoxError> {
    ServiceBuilder::new()
        .layer(DeadlineLayer::new(secs(1)))
        .layer(BufferResponsesLayer::new().max_bytes(1024))
        .service(service_fn(move |_: Req| async move {
            Ok::<_, BoxError>(Response::new(Trailing(0, frames)))
        }))
        .oneshot(get())
        .await
}

#[tokio::test(start_paused = true)]
async fn a_retry_is_not_sent_after_the_deadline_when_its_backoff_is_found_over_late() {
    let (service, shared) = Scripted::status([503, 200]);
    let recorder = Recorder::default();
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(secs(1)).on_event(recorder.clone()))
        .layer(RetryLayer::http().backoff(Backoff::constant(ms(900))))
        .service(service);
    let result = jumping(stack.oneshot(get()), secs(2)).await;
    assert_eq!(
        shared.calls(),
        1,
        "sent at {:?}, ended {:?}; {}",
        shared.times(),
        result.map(|r| r.status()),
        recorder.sequence()
    );
}

#[tokio::test(start_paused = true)]
async fn a_retry_is_not_sent_after_the_deadline_when_its_readiness_comes_late() {
    let (service, shared) = Scripted::status([503, 200]);
    shared
        .readiness
        .lock()
        .unwrap()
        .extend([Ok(ms(0)), Ok(ms(900))]);
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(secs(1)))
        .layer(RetryLayer::http().backoff(Backoff::none()))
        .service(service);
    let call = async {
        let mut stack = stack;
        let call = stack.ready().await.unwrap().call(get());
        jumping(call, secs(2)).await
    };
    let result = call.await;
    assert_eq!(
        shared.calls(),
        1,
        "sent at {:?}, ended {:?}",
        shared.times(),
        result.map(|r| r.status())
    );
}

#[tokio::test(start_paused = true)]
async fn a_first_attempt_is_not_sent_after_the_deadline_when_readiness_comes_late() {
    let (service, shared) = Scripted::status([200]);
    shared.readiness.lock().unwrap().extend([Ok(ms(900))]);
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(secs(1)))
        .layer(BoundReadinessLayer::new())
        .layer(RetryLayer::http())
        .service(service);
    let result = jumping(stack.oneshot(get()), secs(2)).await;
    assert_eq!(shared.calls(), 0, "ended {:?}", result.map(|r| r.status()));
}

#[tokio::test(start_paused = true)]
async fn an_offer_that_is_over_is_honoured_beneath_a_buffer() {
    let contacts = Arc::new(AtomicUsize::new(0));
    let contacted = Arc::clone(&contacts);
    let stack = ServiceBuilder::new()
        .layer(any::DeadlineLayer::new(secs(1)).inherit(true))
        .service(service_fn(move |()| {
            let contacted = Arc::clone(&contacted);
            async move {
                contacted.fetch_add(1, Ordering::SeqCst); // the first thing that leaves
                Ok::<_, BoxError>(())
            }
        }));
    let stack = BufferLayer::new(4).layer(stack);
    let result = call::with_deadline(Duration::ZERO, stack.oneshot(())).await;
    assert!(result.is_err(), "the call was made");
    assert_eq!(contacts.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn an_attempt_is_woken_though_the_deadline_that_polled_it_last_has_gone() {
    let hanging =
        AttemptTimeoutLayer::new(ms(100)).layer(service_fn(|()| pending::<Result<(), BoxError>>()));
    let both = Both(Arc::new(Mutex::new(Box::pin(hanging.oneshot(())))));
    let inside = both.clone();
    let beneath = any::DeadlineLayer::new(secs(1)).layer(service_fn(move |()| {
        let mut inside = inside.clone();
        async move {
            tokio::select! {
                biased;
                _ = &mut inside => unreachable!(),
                () = ready(()) => Ok::<_, BoxError>(()),
            }
        }
    }));
    let clock = Clock::start();
    let ended = tokio::time::timeout(secs(60), async {
        tokio::join!(biased; both, beneath.oneshot(()))
    })
    .await;
    assert!(ended.is_ok(), "the attempt was never cut");
    assert_eq!(clock.ms(), 100);
}

#[tokio::test(start_paused = true)]
async fn an_attempt_after_a_panic_that_was_caught_has_its_whole_time() {
    let stack = any::DeadlineLayer::new(secs(30)).layer(service_fn(|()| async {
        let broken = AttemptTimeoutLayer::new(secs(1)).layer(service_fn(
            |()| -> std::future::Ready<Result<(), BoxError>> { panic!("call") },
        ));
        let caught = std::panic::AssertUnwindSafe(broken.oneshot(()))
            .catch_unwind()
            .await;
        assert!(caught.is_err());
        sleep(secs(5)).await;
        AttemptTimeoutLayer::new(secs(1))
            .layer(service_fn(|()| async {
                sleep(ms(500)).await;
                Ok::<_, BoxError>(())
            }))
            .oneshot(())
            .await
    }));
    let result = stack.oneshot(()).await;
    assert!(result.is_ok(), "{:?}", result.err());
}

#[tokio::test(start_paused = true)]
async fn trailers_without_end_do_not_panic() {
    let ended = std::panic::AssertUnwindSafe(trailing(40))
        .catch_unwind()
        .await;
    assert!(ended.is_ok(), "panicked");
}

#[tokio::test(start_paused = true)]
async fn trailers_count_towards_the_limit() {
    let response = trailing(20).await.unwrap();
    let held = response
        .extensions()
        .get::<BufferedTrailers>()
        .map_or(0, |t| t.len());
    assert!(
        held * 40 <= 1024,
        "{held} trailers held under a limit of 1024 bytes"
    );
}

#[tokio::test(start_paused = true)]
async fn a_step_costs_few_attempts_though_some_fail_in_another_way() {
    let layer = AttemptTimeoutLayer::new(secs(5)).ceiling(AttemptCeiling::above(3.0));
    let stack = layer.layer(service_fn(|wait: Option<u64>| async move {
        match wait {
            Some(wait) => {
                sleep(ms(wait)).await;
                Ok::<_, BoxError>(())
            }
            None => Err(reset()),
        }
    }));
    for _ in 0..2000 {
        stack.clone().oneshot(Some(40)).await.unwrap();
    }
    // From 40 ms to 400 ms, and each fifth attempt meets a connection that was closed.
    let mut cut = 0;
    for n in 1..1000 {
        let call = (n % 5 != 0).then_some(400);
        let result = stack.clone().oneshot(call).await;
        cut += usize::from(
            result
                .err()
                .is_some_and(|e| AttemptTimedOut::find(&e).is_some()),
        );
    }
    assert!((1..=20).contains(&cut), "{cut} attempts were cut");
}

/// Polls `both` inside a call of a second, once, and gives that call.
fn hosting(both: &Both, ends_after: Option<Duration>) -> BoxFuture<'static, Result<(), BoxError>> {
    let both = both.clone();
    let beneath = any::DeadlineLayer::new(secs(1)).layer(service_fn(move |()| {
        let mut both = both.clone();
        async move {
            assert!(futures_util::poll!(&mut both).is_pending());
            drop(both);
            match ends_after {
                Some(wait) => sleep(wait).await,
                None => pending().await,
            }
            Ok::<_, BoxError>(())
        }
    }));
    Box::pin(beneath.oneshot(()))
}

/// An attempt of 100 ms that hangs.
fn attempt_of_100() -> Both {
    let hanging =
        AttemptTimeoutLayer::new(ms(100)).layer(service_fn(|()| pending::<Result<(), BoxError>>()));
    Both(Arc::new(Mutex::new(Box::pin(hanging.oneshot(())))))
}

#[tokio::test(start_paused = true)]
async fn an_attempt_is_woken_though_the_deadline_that_polled_it_ends_later() {
    let both = attempt_of_100();
    let mut hosting = hosting(&both, Some(ms(30)));
    let clock = Clock::start();
    let mut both = both;
    let mut hosted = false;
    let task = std::future::poll_fn(|cx| {
        if hosted {
            return Pin::new(&mut both).poll(cx);
        }
        hosted = hosting.as_mut().poll(cx).is_ready();
        // Nothing else will poll the attempt, but for a wake-up.
        Poll::Pending
    });
    let ended = tokio::time::timeout(secs(60), task).await;
    assert!(ended.is_ok(), "the attempt was never cut");
    assert_eq!(clock.ms(), 100);
}

#[tokio::test(start_paused = true)]
async fn an_attempt_is_woken_though_the_deadline_that_polled_it_is_dropped() {
    let both = attempt_of_100();
    let mut beneath = Some(hosting(&both, None));
    let clock = Clock::start();
    let mut both = both;
    let (left, leaves) = tokio::sync::oneshot::channel::<()>();
    tokio::spawn(async move {
        sleep(ms(30)).await;
        drop(left);
    });
    let mut leaves = Box::pin(leaves);
    let task = std::future::poll_fn(|cx| {
        let Some(call) = &mut beneath else {
            return Pin::new(&mut both).poll(cx);
        };
        assert!(call.as_mut().poll(cx).is_pending());
        if leaves.as_mut().poll(cx).is_ready() {
            // Its caller leaves. Nothing else will poll the attempt, but for a wake-up.
            beneath = None;
        }
        Poll::Pending
    });
    let ended = tokio::time::timeout(secs(60), task).await;
    assert!(ended.is_ok(), "the attempt was never cut");
    assert_eq!(clock.ms(), 100);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_ends_as_usual_wakes_nobody() {
    let mut stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(secs(1)))
        .layer(RetryLayer::new())
        .layer(AttemptTimeoutLayer::new(ms(500)))
        .service(service_fn(|()| async {
            sleep(ms(20)).await;
            Ok::<_, BoxError>(())
        }));
    let mut call = tokio_test::task::spawn(stack.ready().await.unwrap().call(()));
    assert!(call.poll().is_pending());
    tokio::time::advance(ms(21)).await;
    assert!(call.is_woken());
    assert!(call.poll().is_ready());
    assert!(!call.is_woken(), "woken for nothing");
}

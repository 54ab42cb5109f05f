//! Services, bodies, numbers and listeners that mean no good.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use http::{HeaderMap, HeaderValue, Response};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_deadline::{
    AttemptResult, AttemptTimedOut, Backoff, BoxError, CallOverride, DeadlineExceeded, Event,
    RetryBudget, Verdict, call,
};

use crate::layers::{
    AttemptTimeoutLayer, Attempted, BufferResponsesLayer, DeadlineBodyLayer, DeadlineLayer,
    OverrideLayer, ProgressBoundLayer, RetryLayer, ServiceBuilder, any, can_have,
};
use crate::support::*;

fn no_scope() {
    assert_eq!((call::remaining(), call::attempt()), (None, None));
}

#[tokio::test(start_paused = true)]
async fn a_service_that_always_fails_at_once_does_not_keep_the_task() {
    let (service, shared) = Scripted::always(|| Reply::error(reset));
    let mut stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(ms(100)))
        .layer(
            RetryLayer::http()
                .attempts(u32::MAX)
                .backoff(Backoff::none())
                .budget(RetryBudget::none()),
        )
        .service(service);
    let mut call = Box::pin(stack.ready().await.unwrap().call(get()));
    for polls in 1..10 {
        assert!(futures_util::poll!(call.as_mut()).is_pending());
        assert!(shared.calls() <= 1 + polls * 16, "{}", shared.calls());
    }
    tokio::time::advance(ms(101)).await;
    let error = call.await.err().unwrap();
    assert!(DeadlineExceeded::find(&error).is_some());
}

#[tokio::test(start_paused = true)]
async fn whatever_panics_leaves_no_scope_behind() {
    let panics = |call: Pin<Box<dyn Future<Output = ()>>>| async move {
        assert!(AssertUnwindSafe(call).catch_unwind().await.is_err());
        no_scope();
    };
    let judges = |_: AttemptResult<'_, Attempted>| -> Verdict { panic!("classifier") };
    let stack = |service| {
        ServiceBuilder::new()
            .layer(OverrideLayer::new())
            .layer(DeadlineLayer::new(secs(1)))
            .layer(RetryLayer::http().classifier(judges))
            .layer(AttemptTimeoutLayer::http(secs(1)))
            .service(service)
    };
    let (service, _) = Scripted::status([200]);
    let mut request = get();
    request.extensions_mut().insert(CallOverride::new());
    let call = stack(service).oneshot(request);
    panics(Box::pin(async { drop(call.await) })).await;

    let (service, _) = Scripted::status([200]);
    let copying = ServiceBuilder::new()
        .layer(DeadlineLayer::new(secs(1)))
        .layer(RetryLayer::http().copy(|_: &Req| -> Option<Req> { panic!("copy") }))
        .service(service);
    panics(Box::pin(async { drop(copying.oneshot(get()).await) })).await;

    let (service, _) = Scripted::new([Reply::body(Script::new([Step::Data("x")]))]);
    let buffering = ServiceBuilder::new()
        .layer(DeadlineLayer::new(secs(1)))
        .layer(BufferResponsesLayer::new())
        .layer(
            ProgressBoundLayer::new(ms(1))
                .progress_when(|_: &[u8]| -> bool { panic!("predicate") }),
        )
        .service(service);
    panics(Box::pin(async { drop(buffering.oneshot(get()).await) })).await;

    let calling = ServiceBuilder::new()
        .layer(DeadlineLayer::new(secs(1)))
        .layer(AttemptTimeoutLayer::new(secs(1)))
        .service(service_fn(
            |()| -> std::future::Ready<Result<(), BoxError>> { panic!("call") },
        ));
    panics(Box::pin(async { drop(calling.oneshot(()).await) })).await;
}

#[tokio::test(start_paused = true)]
async fn a_listener_may_look_at_the_call_and_make_one() {
    let seen = Arc::new(AtomicUsize::new(0));
    let seeing = Arc::clone(&seen);
    let listener = move |_: &Event<'_>| {
        let _ = (call::attempt(), call::remaining(), call::last_log());
        let mut inner = any::DeadlineLayer::new(secs(1))
            .layer(service_fn(|()| std::future::ready(Ok::<_, BoxError>(()))));
        assert!(inner.call(()).now_or_never().unwrap().is_ok());
        seeing.fetch_add(1, Ordering::SeqCst);
    };
    let (service, _) = Scripted::new([Reply::error(reset), Reply::Hang, Reply::status(200)]);
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(secs(5)).on_event(listener.clone()))
        .layer(RetryLayer::http().on_event(listener.clone()))
        .layer(AttemptTimeoutLayer::http(secs(1)).on_event(listener))
        .service(service);
    stack.oneshot(get()).await.unwrap();
    assert_eq!(seen.load(Ordering::SeqCst), 6);
}

#[tokio::test(start_paused = true)]
async fn an_error_that_looks_at_the_call_when_it_is_dropped_is_let() {
    #[derive(Debug)]
    struct Nosy(std::io::Error);
    impl std::fmt::Display for Nosy {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("nosy")
        }
    }
    impl std::error::Error for Nosy {
        fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
            Some(&self.0)
        }
    }
    impl Drop for Nosy {
        fn drop(&mut self) {
            let _ = (call::attempt(), call::remaining(), call::criticality());
        }
    }
    let nosy: fn() -> BoxError = || Box::new(Nosy(std::io::ErrorKind::ConnectionReset.into()));
    let (service, shared) = Scripted::new([
        Reply::Error(ms(1), nosy),
        Reply::Error(ms(1), nosy),
        Reply::status(200),
    ]);
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(secs(9)))
        .layer(RetryLayer::http())
        .service(service);
    stack.oneshot(get()).await.unwrap();
    assert_eq!(shared.calls(), 3);
}

/// Says of itself what it likes.
struct Liar {
    frames: Vec<Frame<Bytes>>,
    ended: bool,
    hint: SizeHint,
}

impl Body for Liar {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Poll::Ready(self.frames.pop().map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        self.ended
    }

    fn size_hint(&self) -> SizeHint {
        self.hint
    }
}

fn trailers(value: &'static str) -> Frame<Bytes> {
    let mut trailers = HeaderMap::new();
    trailers.insert("x-end", HeaderValue::from_static(value));
    Frame::trailers(trailers)
}

#[tokio::test(start_paused = true)]
async fn bodies_that_lie_pass_whole_and_end() {
    let run = async |make: fn() -> Liar, max_bytes: usize| {
        let stack = ServiceBuilder::new()
            .layer(DeadlineLayer::new(secs(1)))
            .layer(DeadlineBodyLayer::new())
            .layer(AttemptTimeoutLayer::http(secs(1)))
            .layer(BufferResponsesLayer::new().max_bytes(max_bytes))
            .layer(ProgressBoundLayer::new(secs(1)))
            .service(service_fn(move |_: Req| async move {
                Ok::<_, BoxError>(Response::new(make()))
            }));
        let collected = stack
            .oneshot(get())
            .await
            .unwrap()
            .into_body()
            .collect()
            .await
            .unwrap();
        (collected.trailers().is_some(), collected.to_bytes())
    };
    // Trailers first, data after them, trailers again.
    let disorder: fn() -> Liar = || Liar {
        frames: vec![
            trailers("2"),
            Frame::data(Bytes::from_static(b"after")),
            trailers("1"),
            Frame::data(Bytes::from_static(b"before ")),
        ],
        ended: false,
        hint: SizeHint::with_exact(1),
    };
    for max_bytes in [0, 3, 100] {
        assert_eq!(
            run(disorder, max_bytes).await,
            (true, Bytes::from_static(b"before after"))
        );
    }
    // Never admits that it has ended, and promises more than there is memory for.
    let huge: fn() -> Liar = || Liar {
        frames: vec![Frame::data(Bytes::from_static(b"x"))],
        ended: false,
        hint: SizeHint::with_exact(u64::MAX),
    };
    for max_bytes in [0, 100] {
        assert_eq!(run(huge, max_bytes).await.1, Bytes::from_static(b"x"));
    }
}

#[tokio::test(start_paused = true)]
async fn no_number_panics_or_hangs() {
    let odd = [
        Duration::ZERO,
        Duration::from_nanos(1),
        ms(1),
        Duration::from_secs(100 * 366 * 86_400),
        Duration::from_secs(u64::MAX),
        Duration::MAX,
    ];
    for deadline in odd {
        for attempt in odd {
            for gap in odd.into_iter().filter(|gap| can_have(attempt, *gap)) {
                let overrides = CallOverride::new()
                    .deadline(deadline)
                    .attempt_timeout(attempt)
                    .progress(gap)
                    .attempts(u32::MAX)
                    .buffering(usize::MAX);
                for overridden in [false, true] {
                    let (service, _) = Scripted::always(|| {
                        Reply::body(Script::new([
                            Step::Data("x"),
                            Step::Wait(ms(5)),
                            Step::Data("y"),
                        ]))
                    });
                    let stack = ServiceBuilder::new()
                        .layer(OverrideLayer::new())
                        .layer(DeadlineLayer::new(if overridden {
                            secs(1)
                        } else {
                            deadline
                        }))
                        .layer(DeadlineBodyLayer::new())
                        .layer(RetryLayer::http().backoff(Backoff::constant(attempt).cap(gap)))
                        .layer(AttemptTimeoutLayer::http(if overridden {
                            secs(1)
                        } else {
                            attempt
                        }))
                        .layer(BufferResponsesLayer::on_request())
                        .layer(ProgressBoundLayer::new(if overridden {
                            secs(1)
                        } else {
                            gap
                        }))
                        .service(service);
                    let mut request = get();
                    if overridden {
                        request.extensions_mut().insert(overrides);
                    }
                    let call = async {
                        if let Ok(response) = stack.oneshot(request).await {
                            let _ = response.into_body().collect().await;
                        }
                    };
                    // Paused time: a wait of centuries would be over at once, one for ever is not.
                    let ended = tokio::time::timeout(secs(86_400), call).await;
                    assert!(
                        ended.is_ok(),
                        "{deadline:?} {attempt:?} {gap:?} {overridden}"
                    );
                }
            }
        }
    }
    assert!(futures_util::poll!(Box::pin(call::with_deadline(Duration::MAX, async {}))).is_ready());
}

#[tokio::test(start_paused = true)]
async fn a_whole_stack_in_a_task_of_its_own_is_bounded_by_what_it_carries() {
    let outer = ServiceBuilder::new()
        .layer(any::DeadlineLayer::new(ms(300)))
        .service(service_fn(|()| async {
            let (service, shared) = Scripted::always(|| Reply::Hang);
            let inner = ServiceBuilder::new()
                .layer(DeadlineLayer::new(secs(60)))
                .layer(RetryLayer::http().backoff(Backoff::none()))
                .layer(AttemptTimeoutLayer::http(ms(120)))
                .service(service);
            let clock = Clock::start();
            // Nobody waits for it here.
            let task = tokio::spawn(call::carry(inner.oneshot(get())));
            let watcher = tokio::spawn(async move {
                let error = task.await.unwrap().err().unwrap();
                assert!(DeadlineExceeded::find(&error).is_some());
                assert_eq!((clock.ms(), shared.calls(), shared.live()), (300, 3, 0));
            });
            Ok::<_, BoxError>(watcher)
        }));
    outer.oneshot(()).await.unwrap().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_timeout_of_somebody_elses_call_is_this_ones_failure_and_is_retried() {
    // The inner service is itself a client, and its own last attempt timed out.
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(secs(9)))
        .layer(RetryLayer::new().attempts(2).backoff(Backoff::none()))
        .service(service_fn(move |()| {
            counted.fetch_add(1, Ordering::SeqCst);
            let inner = AttemptTimeoutLayer::new(ms(10)).layer(service_fn(|()| {
                std::future::pending::<Result<(), BoxError>>()
            }));
            inner.oneshot(())
        }));
    let error = stack.oneshot(()).await.unwrap_err();
    assert!(AttemptTimedOut::find(&error).is_some());
    assert_eq!(calls.load(Ordering::SeqCst), 2);
}

/// The compiler has to see that this can be sent to another thread.
#[tokio::test(start_paused = true)]
async fn a_stack_with_closures_can_be_used_in_a_spawned_task() {
    let (service, shared) = Scripted::status([503, 200]);
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(secs(1)))
        .layer(
            RetryLayer::http()
                .classifier(|result: AttemptResult<'_, Attempted>| match result {
                    Ok(response) if response.status() == 200 => Verdict::Ok,
                    Err(error) if error.is::<std::fmt::Error>() => Verdict::Permanent,
                    Ok(_) | Err(_) => Verdict::Transient,
                })
                .copy(|request: &Req| Some(request.clone()))
                .key(|request: &Req| tower_deadline::Key::of(request.uri().path())),
        )
        .layer(AttemptTimeoutLayer::http(secs(1)))
        .service(service);
    let task = tokio::spawn(async move {
        let mut stack = stack;
        let status = stack.ready().await?.call(get()).await?.status();
        Ok::<_, BoxError>(status)
    });
    assert_eq!(task.await.unwrap().unwrap(), 200);
    assert_eq!(shared.calls(), 2);
}

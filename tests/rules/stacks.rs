//! Each layer alone, all together, and in odd orders.

use std::cell::Cell;
use std::marker::PhantomData;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use tokio::time::advance;
use tower::limit::ConcurrencyLimitLayer;
use tower::{Layer, Service, ServiceBuilder, ServiceExt, service_fn};
use tower_deadline::{
    AttemptCeiling, AttemptStalled, AttemptTimedOut, AttemptTimeoutLayer, Backoff,
    BoundReadinessLayer, BoxError, BufferResponsesLayer, CallOverride, CallPolicy,
    DeadlineBodyLayer, DeadlineExceeded, DeadlineLayer, EventKind, OverrideLayer,
    ProgressBoundLayer, RetryBudget, RetryLayer,
};

use crate::support::*;

/// A policy with everything on.
const EVERYTHING: CallPolicy = CallPolicy::http()
    .inherit(true)
    .bound_readiness(true)
    .bound_body(true)
    .buffer_responses(1024)
    .checked();

/// Runs `$check` with each layer alone, with all of them in their order, and with those of policies.
macro_rules! each_alone {
    ($check:ident) => {
        $check!(OverrideLayer::new());
        $check!(DeadlineLayer::new(secs(1)));
        $check!(BoundReadinessLayer::new());
        $check!(DeadlineBodyLayer::new());
        $check!(RetryLayer::http());
        $check!(AttemptTimeoutLayer::http(secs(1)));
        $check!(BufferResponsesLayer::new());
        $check!(ProgressBoundLayer::new(secs(1)));
        $check!(
            ServiceBuilder::new()
                .layer(OverrideLayer::new())
                .layer(DeadlineLayer::new(secs(1)))
                .layer(BoundReadinessLayer::new())
                .layer(DeadlineBodyLayer::new())
                .layer(RetryLayer::http())
                .layer(AttemptTimeoutLayer::http(secs(1)))
                .layer(BufferResponsesLayer::new())
                .layer(ProgressBoundLayer::new(secs(1)))
                .into_inner()
        );
        $check!(CallPolicy::none().layer());
        $check!(CallPolicy::http().layer());
        $check!(EVERYTHING.layer());
    };
}

#[tokio::test(start_paused = true)]
async fn every_layer_calls_the_instance_that_it_readied() {
    macro_rules! check {
        ($layer:expr) => {
            let (service, shared) = Scripted::always(|| {
                let steps = [Step::Data("a"), Step::Wait(ms(1)), Step::Data("b")];
                Reply::body(Script::new(steps))
            });
            let waits = (0..9).map(|_| Ok(ms(10)));
            shared.readiness.lock().unwrap().extend(waits);
            let stack = $layer.layer(service);
            // The same instance again and again, and a clone that has never been readied.
            let mut again = stack.clone();
            for _ in 0..2 {
                let response = again.ready().await.unwrap().call(get()).await.unwrap();
                let body = response.into_body().collect().await.unwrap();
                assert_eq!(body.to_bytes(), Bytes::from_static(b"ab"));
            }
            assert!(stack.oneshot(get()).await.is_ok());
            assert_eq!(shared.calls(), 3);
            shared.check();
        };
    }
    each_alone!(check);
}

#[tokio::test(start_paused = true)]
async fn every_layer_passes_an_error_of_readiness() {
    macro_rules! check {
        ($layer:expr) => {
            let (service, shared) = Scripted::new([]);
            let broken: Readiness = Err(|| std::fmt::Error.into());
            shared.readiness.lock().unwrap().push_back(broken);
            let error = $layer.layer(service).oneshot(get()).await.err().unwrap();
            assert!(error.is::<std::fmt::Error>());
            assert_eq!(shared.calls(), 0);
        };
    }
    each_alone!(check);
}

#[tokio::test(start_paused = true)]
async fn every_layer_can_be_left_after_any_number_of_polls() {
    macro_rules! check {
        ($layer:expr) => {
            for polls in 0..8 {
                let (service, shared) =
                    Scripted::new([Reply::after(ms(25), 503), Reply::after(ms(25), 200)]);
                let mut limited = ConcurrencyLimitLayer::new(1).layer(service);
                let mut stack = $layer.layer(limited.clone());
                {
                    let mut call = pin!(stack.ready().await.unwrap().call(get()));
                    for _ in 0..polls {
                        if futures_util::poll!(call.as_mut()).is_ready() {
                            break;
                        }
                        advance(ms(10)).await;
                    }
                }
                drop(stack);
                assert_eq!(shared.live(), 0);
                shared.check();
                let free = futures_util::poll!(pin!(limited.ready())).is_ready();
                assert!(free, "{polls} polls");
            }
        };
    }
    each_alone!(check);
}

/// A body that cannot be shared between threads, only sent.
#[derive(Clone)]
struct Unshared(Full<Bytes>, PhantomData<Cell<()>>);

impl Body for Unshared {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Pin::new(&mut self.0).poll_frame(cx)
    }
}

#[tokio::test(start_paused = true)]
async fn bodies_need_not_be_sync_for_a_call_to_be_spawned() {
    let stack = ServiceBuilder::new()
        .layer(OverrideLayer::new())
        .layer(DeadlineLayer::new(secs(1)))
        .layer(BoundReadinessLayer::new())
        .layer(DeadlineBodyLayer::new())
        .layer(RetryLayer::http())
        .layer(AttemptTimeoutLayer::http(secs(1)))
        .layer(BufferResponsesLayer::new().max_bytes(1))
        .layer(ProgressBoundLayer::new(secs(1)))
        .service(service_fn(|request: Request<Unshared>| async move {
            let body = request.into_body().map_err(|never| match never {});
            let body: UnsyncBoxBody<Bytes, BoxError> = body.boxed_unsync();
            Ok::<_, std::io::Error>(Response::new(body))
        }));
    let body = Unshared(Full::new(Bytes::from_static(b"echo")), PhantomData);
    let call = tokio::spawn(stack.oneshot(Request::new(body)));
    let response = call.await.unwrap().unwrap();
    let read = tokio::spawn(response.into_body().collect());
    assert_eq!(read.await.unwrap().unwrap().to_bytes(), "echo");
}

#[test]
fn everything_up_to_the_future_is_made_outside_a_runtime() {
    let layer = ServiceBuilder::new()
        .layer(OverrideLayer::new())
        .layer(DeadlineLayer::new(secs(1)))
        .layer(BoundReadinessLayer::new())
        .layer(DeadlineBodyLayer::new())
        .layer(RetryLayer::http().budget(RetryBudget::automatic()))
        .layer(AttemptTimeoutLayer::http(secs(1)).ceiling(AttemptCeiling::above(3.0)))
        .layer(BufferResponsesLayer::new())
        .layer(ProgressBoundLayer::new(secs(1)));
    let (service, shared) = Scripted::new([
        Reply::after(ms(10), 503),
        Reply::body(Script::new([Step::Wait(ms(10)), Step::Data("x")])),
    ]);
    let mut stack = layer.service(service);
    // `BoundReadiness` is always ready.
    let call = stack.call(get());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    let body = runtime.block_on(async { call.await.unwrap().into_body().collect().await });
    assert_eq!(body.unwrap().to_bytes(), "x");
    shared.check();
}

#[tokio::test(start_paused = true)]
async fn buffering_outside_the_retries_is_not_retried() {
    let recorder = Recorder::default();
    let silent = Reply::body(Script::new([Step::Silence]));
    let (service, shared) = Scripted::new([Reply::status(503), silent]);
    let retry = RetryLayer::http().backoff(Backoff::none());
    let stack = ServiceBuilder::new()
        .layer(BufferResponsesLayer::new())
        .layer(ProgressBoundLayer::new(ms(100)))
        .layer(retry.on_event(recorder.clone()))
        .service(service);
    let error = stack.oneshot(get()).await.err().unwrap();
    assert!(AttemptStalled::find(&error).is_some());
    assert_eq!(shared.calls(), 2);
    assert_eq!(recorder.terminal().kind, EventKind::Succeeded);
}

#[tokio::test(start_paused = true)]
async fn a_deadline_inside_an_attempt_is_final() {
    let recorder = Recorder::default();
    let (service, shared) = Scripted::always(|| Reply::Hang);
    let stack = ServiceBuilder::new()
        .layer(AttemptTimeoutLayer::http(secs(2)).on_event(recorder.clone()))
        .layer(RetryLayer::http().on_event(recorder.clone()))
        .layer(DeadlineLayer::new(ms(100)))
        .service(service);
    let clock = Clock::start();
    let error = stack.oneshot(get()).await.err().unwrap();
    assert!(DeadlineExceeded::find(&error).is_some());
    assert_eq!((clock.ms(), shared.calls()), (100, 1));
    let expected = [EventKind::Attempt, EventKind::DeadlineExceeded];
    assert_eq!(recorder.kinds(), expected);
}

#[tokio::test(start_paused = true)]
async fn an_attempt_timeout_outside_the_retries_bounds_them_all() {
    let recorder = Recorder::default();
    let (service, shared) = Scripted::always(|| Reply::Hang);
    let retry = RetryLayer::http().backoff(Backoff::none());
    let stack = ServiceBuilder::new()
        .layer(AttemptTimeoutLayer::http(ms(150)).on_event(recorder.clone()))
        .layer(retry.on_event(recorder.clone()))
        .layer(AttemptTimeoutLayer::http(ms(100)))
        .layer(DeadlineLayer::new(secs(9)))
        .service(service);
    let clock = Clock::start();
    let error = stack.oneshot(get()).await.err().unwrap();
    assert!(AttemptTimedOut::find(&error).is_some());
    let found = (clock.ms(), shared.calls(), shared.live());
    assert_eq!(found, (150, 2, 0));
    let attempts = recorder.count(EventKind::Attempt);
    assert_eq!(attempts, 2, "{}", recorder.sequence());
    assert_eq!(recorder.terminal().kind, EventKind::NotRetried);
}

#[tokio::test(start_paused = true)]
async fn an_override_comes_too_late_for_what_is_outside_it() {
    let (service, _) = Scripted::always(|| Reply::Hang);
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(ms(100)))
        .layer(OverrideLayer::new())
        .service(service);
    let mut request = get();
    let patient = CallOverride::new().no_deadline();
    request.extensions_mut().insert(patient);
    let clock = Clock::start();
    assert!(stack.oneshot(request).await.is_err());
    assert_eq!(clock.ms(), 100);
}

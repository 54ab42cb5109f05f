//! What is sent again is what was sent.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Empty, Full};
use proptest::prelude::*;
use tokio::time::{Sleep, sleep};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_deadline::{Backoff, BoxError, CallOverride, EventKind, StopReason, call};

use crate::layers::{
    AttemptTimeoutLayer, DeadlineLayer, OverrideLayer, RetryLayer, ServiceBuilder,
};
use crate::support::*;

/// A request body that arrives a frame each 50 ms; a clone is all of it again.
#[derive(Default)]
struct Slow {
    frames: VecDeque<Bytes>,
    trailers: Option<HeaderMap>,
    waiting: Option<Pin<Box<Sleep>>>,
}

impl Clone for Slow {
    fn clone(&self) -> Self {
        assert!(self.waiting.is_none(), "copied after it was read from");
        Self {
            frames: self.frames.clone(),
            trailers: self.trailers.clone(),
            waiting: None,
        }
    }
}

impl Body for Slow {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(sleep(ms(50))));
        std::task::ready!(waiting.as_mut().poll(cx));
        self.waiting = None;
        Poll::Ready(match self.frames.pop_front() {
            Some(data) => Some(Ok(Frame::data(data))),
            None => self.trailers.take().map(|t| Ok(Frame::trailers(t))),
        })
    }
}

fn empty() -> Empty<Bytes> {
    Empty::new()
}

/// Sends `request` to a peer that reads so many frames of it and fails, `failures` times; then reads
/// it whole. What was read whole, and how often there were trailers.
async fn sent_again(request: Request<Slow>, frames: usize, failures: u32) -> (Vec<u8>, usize) {
    let whole = Arc::new(Mutex::new((Vec::new(), 0)));
    let seen = Arc::clone(&whole);
    let stack = ServiceBuilder::new()
        .layer(
            RetryLayer::http()
                .attempts(failures + 1)
                .backoff(Backoff::constant(ms(10))),
        )
        .layer(AttemptTimeoutLayer::http(secs(60)))
        .service(service_fn(move |request: Request<Slow>| {
            let seen = Arc::clone(&seen);
            async move {
                let mut body = request.into_body();
                if call::attempt() <= Some(failures) {
                    sleep(ms(10)).await;
                    for _ in 0..frames {
                        body.frame().await;
                    }
                    // Broken in one way and in another.
                    return match call::attempt() {
                        Some(1) => Ok(Response::builder().status(500).body(empty()).unwrap()),
                        _ => Err(reset()),
                    };
                }
                while let Some(frame) = body.frame().await {
                    let mut seen = seen.lock().unwrap();
                    match frame.unwrap().into_data() {
                        Ok(data) => seen.0.extend_from_slice(&data),
                        Err(_) => seen.1 += 1,
                    }
                }
                Ok(Response::new(empty()))
            }
        }));
    assert_eq!(stack.oneshot(request).await.unwrap().status(), 200);
    let whole = whole.lock().unwrap();
    whole.clone()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_body_is_sent_whole_and_once_wherever_the_first_attempt_stopped_reading(
        sizes in proptest::collection::vec(0..5_usize, 0..6),
        read in 0..8_usize,
        failures in 1..3_u32,
        with_trailers in any::<bool>(),
    ) {
        let frames: VecDeque<_> = (b'a'..).zip(&sizes).map(|(b, size)| vec![b; *size].into()).collect();
        let expected = frames.iter().flat_map(|f: &Bytes| f.to_vec()).collect::<Vec<_>>();
        let trailers = with_trailers.then(|| {
            let mut trailers = HeaderMap::new();
            trailers.insert("x-end", HeaderValue::from_static("1"));
            trailers
        });
        let body = Slow { frames, trailers, waiting: None };
        let request = Request::put("http://example.com/").body(body).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time().start_paused(true).build().unwrap();
        let (bytes, times) = runtime.block_on(sent_again(request, read, failures));
        prop_assert_eq!(bytes, expected);
        prop_assert_eq!(times, usize::from(with_trailers));
    }
}

fn with_method(method: &str) -> Req {
    let method = Method::from_bytes(method.as_bytes()).unwrap();
    Request::builder()
        .method(method)
        .uri("http://example.com/")
        .body(Full::new(Bytes::from_static(b"abc")))
        .unwrap()
}

async fn calls<L, B>(layer: L, request: Req) -> usize
where
    L: Layer<Scripted, Service: Service<Req, Response = Response<B>, Error = BoxError>>,
{
    let (service, shared) = Scripted::status([503, 200]);
    layer.layer(service).oneshot(request).await.unwrap();
    shared.calls()
}

#[tokio::test(start_paused = true)]
async fn what_is_idempotent_is_sent_again_and_nothing_else() {
    for method in ["GET", "HEAD", "PUT", "DELETE", "OPTIONS", "TRACE"] {
        assert_eq!(
            calls(RetryLayer::http(), with_method(method)).await,
            2,
            "{method}"
        );
    }
    for method in ["POST", "PATCH", "PURGE"] {
        let mut request = with_method(method);
        assert_eq!(
            calls(RetryLayer::http(), request.clone()).await,
            1,
            "{method}"
        );
        let key = HeaderValue::from_static("7f3c");
        request.headers_mut().insert("idempotency-key", key);
        assert_eq!(
            calls(RetryLayer::http(), request.clone()).await,
            1,
            "{method}"
        );
        let all = RetryLayer::http().retry_unsafe_methods(true);
        assert_eq!(calls(all, request.clone()).await, 2, "{method}");
        request.extensions_mut().insert(CallOverride::new().retry());
        let by_request = tower::layer::layer_fn(|service| {
            ServiceBuilder::new()
                .layer(OverrideLayer::new())
                .layer(RetryLayer::http())
                .service(service)
        });
        assert_eq!(calls(by_request, request).await, 2, "{method}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_not_sent_again_says_why() {
    let stop = async |layer: RetryLayer<_, _, _, _>, request: Req, reply: Reply| {
        let recorder = Recorder::default();
        let (service, shared) = Scripted::new([reply]);
        let stack = ServiceBuilder::new()
            .layer(DeadlineLayer::new(secs(9)).on_event(recorder.clone()))
            .layer(layer)
            .service(service);
        let _ = stack.oneshot(request).await;
        assert_eq!(shared.calls(), 1);
        let terminal = recorder.terminal();
        (terminal.kind, terminal.stop.unwrap())
    };
    let http = RetryLayer::http;
    let failed = || Reply::status(503);
    let not_retried = |why| (EventKind::NotRetried, why);
    // In the order of the decisions: what comes first is what is said.
    let final_error = || Reply::error(|| std::fmt::Error.into());
    assert_eq!(
        stop(http().attempts(1), post(), final_error()).await,
        not_retried(StopReason::Permanent)
    );
    assert_eq!(
        stop(http().attempts(1), post(), failed()).await,
        (EventKind::Exhausted, StopReason::AttemptsSpent)
    );
    assert_eq!(
        stop(http(), post(), failed()).await,
        not_retried(StopReason::NotRepeatable)
    );
    assert_eq!(
        stop(http(), get(), Reply::after(ms(9000), 503)).await.1,
        StopReason::DeadlineTooNear
    );
}

#[tokio::test(start_paused = true)]
async fn a_request_that_was_shut_out_of_retrying_is_not_copied_for_what_never_left() {
    // `no_retry` is the caller's word, and stands above the layer's.
    let (service, shared) = Scripted::always(|| Reply::error(refused));
    let stack = ServiceBuilder::new()
        .layer(OverrideLayer::new())
        .layer(
            RetryLayer::http()
                .retry_unprocessed(true)
                .copy(|_: &Req| -> Option<Req> { panic!("copied") }),
        )
        .service(service);
    let mut request = post();
    request
        .extensions_mut()
        .insert(CallOverride::new().no_retry());
    assert!(stack.oneshot(request).await.is_err());
    assert_eq!(shared.calls(), 1);
}

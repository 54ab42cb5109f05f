//! The body, read inside the attempt.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Full, StreamBody};
use proptest::prelude::*;
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_deadline::{
    AttemptResult, AttemptStalled, AttemptTimedOut, Backoff, BoxError, BufferedTrailers,
    CallOverride, DeadlineExceeded, EventKind, StopReason, Verdict,
};

use crate::layers::{
    AttemptTimeoutLayer, BufferResponsesLayer, DeadlineLayer, OverrideLayer, ProgressBoundLayer,
    RetryLayer, ServiceBuilder, can_have,
};
use crate::support::*;

fn trailers() -> HeaderMap {
    let mut trailers = HeaderMap::new();
    trailers.insert("x-end", HeaderValue::from_static("1"));
    trailers
}

const ATTEMPT: Duration = Duration::from_millis(200);

/// The bounds on the gaps that a stack with such attempts can have: a shorter one, and the same.
fn gaps() -> impl Iterator<Item = Duration> {
    let gaps = [ms(100), ATTEMPT];
    gaps.into_iter().filter(|gap| can_have(ATTEMPT, *gap))
}

/// One attempt, with bodies of up to 10 bytes buffered.
fn once(
    recorder: &Recorder,
    gap: Duration,
    service: Scripted,
) -> impl Service<Req, Response = Response<impl Bytewise>, Error = BoxError> {
    ServiceBuilder::new()
        .layer(AttemptTimeoutLayer::http(ATTEMPT))
        .layer(
            BufferResponsesLayer::new()
                .max_bytes(10)
                .on_event(recorder.clone()),
        )
        .layer(ProgressBoundLayer::new(gap).on_event(recorder.clone()))
        .service(service)
}

/// The same, beneath a retry layer.
fn retrying(
    recorder: &Recorder,
    gap: Duration,
    service: Scripted,
) -> impl Service<Req, Response = Response<impl Bytewise>, Error = BoxError> {
    ServiceBuilder::new()
        .layer(
            RetryLayer::http()
                .backoff(Backoff::none())
                .on_event(recorder.clone()),
        )
        .layer(AttemptTimeoutLayer::http(ATTEMPT))
        .layer(
            BufferResponsesLayer::new()
                .max_bytes(10)
                .on_event(recorder.clone()),
        )
        .layer(ProgressBoundLayer::new(gap).on_event(recorder.clone()))
        .service(service)
}

#[tokio::test(start_paused = true)]
async fn a_stall_is_a_failed_attempt_and_the_caller_sees_one_attempts_bytes() {
    for gap in gaps() {
        let recorder = Recorder::default();
        let (service, shared) = Scripted::new([
            Reply::body(Script::new([Step::Data("ab"), Step::Silence])),
            Reply::body(Script::new([
                Step::Data("cd"),
                Step::Wait(ms(50)),
                Step::Data("ef"),
            ])),
        ]);
        let clock = Clock::start();
        let response = retrying(&recorder, gap, service)
            .oneshot(get())
            .await
            .unwrap();
        assert_eq!(clock.ms(), gap.as_millis() + 50);
        assert_eq!(
            response.into_body().collect().await.unwrap().to_bytes(),
            "cdef"
        );
        assert_eq!(shared.calls(), 2);
        // It is that attempt's failure, and no stall of a body that somebody was given.
        assert_eq!(recorder.count(EventKind::Stalled), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_breaks_off_is_a_failed_attempt() {
    let recorder = Recorder::default();
    let (service, _) = Scripted::new([
        Reply::body(Script::new([Step::Data("ab"), Step::Error(reset)])),
        Reply::body(Script::new([Step::Data("whole")])),
    ]);
    let stack = retrying(&recorder, ATTEMPT, service);
    let response = stack.oneshot(get()).await.unwrap();
    assert_eq!(
        response.into_body().collect().await.unwrap().to_bytes(),
        "whole"
    );
}

#[tokio::test(start_paused = true)]
async fn attempt_timeout_and_deadline_bound_head_and_body_together() {
    let drip = || {
        Reply::body(Script::new(
            (0..10).flat_map(|_| [Step::Wait(ms(50)), Step::Data("x")]),
        ))
    };
    let recorder = Recorder::default();
    let (service, _) = Scripted::new([drip()]);
    let clock = Clock::start();
    let stack = once(&recorder, ATTEMPT, service);
    let error = stack.oneshot(get()).await.err().unwrap();
    assert!(AttemptTimedOut::find(&error).is_some());
    assert_eq!(clock.ms(), 200);

    let (service, _) = Scripted::new([drip()]);
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(ms(120)))
        .layer(AttemptTimeoutLayer::http(ATTEMPT))
        .layer(BufferResponsesLayer::new().max_bytes(10))
        .layer(ProgressBoundLayer::new(ATTEMPT))
        .service(service);
    let error = stack.oneshot(get()).await.err().unwrap();
    assert!(DeadlineExceeded::find(&error).is_some());
    assert_eq!(clock.ms(), 320);
}

#[tokio::test(start_paused = true)]
async fn with_equal_bounds_it_is_the_attempt_that_timed_out() {
    let (service, _) = Scripted::new([Reply::body(Script::new([Step::Silence]))]);
    let stack = ServiceBuilder::new()
        .layer(AttemptTimeoutLayer::http(ms(100)))
        .layer(BufferResponsesLayer::new())
        .layer(ProgressBoundLayer::new(ms(100)))
        .service(service);
    let error = stack.oneshot(get()).await.err().unwrap();
    assert!(AttemptTimedOut::find(&error).is_some());
    assert!(AttemptStalled::find(&error).is_none());
}

#[tokio::test(start_paused = true)]
async fn a_body_as_large_as_the_limit_is_buffered_and_a_larger_one_is_live() {
    for (parts, live) in [(["12345", "67890"], false), (["12345", "678901"], true)] {
        let recorder = Recorder::default();
        let steps = [
            Step::Data(parts[0]),
            Step::Data(parts[1]),
            Step::Wait(ms(50)),
            Step::Data(""),
        ];
        let (service, _) = Scripted::new([Reply::body(Script::new(steps))]);
        let clock = Clock::start();
        let stack = once(&recorder, ATTEMPT, service);
        let response = stack.oneshot(get()).await.unwrap();
        assert_eq!(clock.ms(), if live { 0 } else { 50 });
        assert_eq!(recorder.count(EventKind::BufferSpilled), usize::from(live));
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(body, parts.concat().as_bytes());
    }
}

#[tokio::test(start_paused = true)]
async fn a_live_body_keeps_its_gap_bound_and_stalls_as_a_body_does() {
    for gap in gaps() {
        let recorder = Recorder::default();
        let script = Script::new([Step::Data("12345678901"), Step::Silence]);
        let (service, _) = Scripted::new([Reply::body(script)]);
        let stack = retrying(&recorder, gap, service);
        let response = stack.oneshot(get()).await.unwrap();
        let clock = Clock::start();
        let error = response.into_body().collect().await.map(drop).unwrap_err();
        assert_eq!(clock.ms(), gap.as_millis());
        assert_eq!(AttemptStalled::find(&error).unwrap().bytes(), 11);
        assert_eq!(recorder.count(EventKind::Stalled), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_response_that_is_live_is_not_retried() {
    let recorder = Recorder::default();
    let large = Script::new([Step::Data("12345678901")]);
    let (service, shared) = Scripted::new([Reply::Head(ms(0), 503, vec![], large)]);
    let stack = retrying(&recorder, ATTEMPT, service);
    let response = stack.oneshot(get()).await.unwrap();
    assert_eq!(response.status(), 503);
    assert_eq!(
        response.into_body().collect().await.unwrap().to_bytes(),
        "12345678901"
    );
    assert_eq!(shared.calls(), 1);
    assert_eq!(recorder.terminal().stop, Some(StopReason::Spilled));
}

#[tokio::test(start_paused = true)]
async fn a_spill_does_not_outlive_its_attempt() {
    // The first is small and fails, the second is small and fails, the third is good.
    let (service, shared) = Scripted::status([503, 503, 200]);
    let stack = ServiceBuilder::new()
        .layer(RetryLayer::http().backoff(Backoff::none()))
        .layer(AttemptTimeoutLayer::http(ATTEMPT))
        .layer(BufferResponsesLayer::new().max_bytes(1))
        .service(service);
    let response = stack.oneshot(get()).await.unwrap();
    assert_eq!((response.status().as_u16(), shared.calls()), (200, 3));
}

#[tokio::test(start_paused = true)]
async fn trailers_are_in_the_body_and_where_a_classifier_looks() {
    let script = Script::new([Step::Data("12345"), Step::Trailers(trailers())]);
    let (service, _) = Scripted::new([Reply::body(script)]);
    let stack = BufferResponsesLayer::new().layer(service);
    let response = stack.oneshot(get()).await.unwrap();
    let seen = response.extensions().get::<BufferedTrailers>().unwrap();
    assert_eq!(seen["x-end"], "1");
    let mut body = response.into_body();
    // HTTP/1 would cut them from a body that knows its size.
    assert_eq!(body.size_hint().exact(), None);
    assert_eq!(body.size_hint().lower(), 5);
    assert_eq!(
        body.frame().await.unwrap().unwrap().into_data().unwrap(),
        "12345"
    );
    assert!(!body.is_end_stream());
    let last = body
        .frame()
        .await
        .unwrap()
        .unwrap()
        .into_trailers()
        .unwrap();
    assert_eq!(last["x-end"], "1");
    assert!(body.is_end_stream());
    assert!(body.frame().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_classifier_can_judge_by_trailers() {
    let (service, shared) = Scripted::new([
        Reply::body(Script::new([Step::Trailers(trailers())])),
        Reply::body(Script::new([Step::Data("ok")])),
    ]);
    fn by_trailers<B>(result: AttemptResult<'_, Response<B>>) -> Verdict {
        let failed = result.is_ok_and(|r| r.extensions().get::<BufferedTrailers>().is_some());
        if failed {
            Verdict::Transient
        } else {
            Verdict::Ok
        }
    }
    let stack = ServiceBuilder::new()
        .layer(RetryLayer::http().classifier(by_trailers))
        .layer(BufferResponsesLayer::new())
        .service(service);
    stack.oneshot(get()).await.unwrap();
    assert_eq!(shared.calls(), 2);
}

#[tokio::test(start_paused = true)]
async fn without_trailers_the_size_is_known() {
    let script = Script::new([Step::Data("123"), Step::Wait(ms(1)), Step::Data("45")]);
    let (service, _) = Scripted::new([Reply::body(script)]);
    let body = BufferResponsesLayer::new()
        .layer(service)
        .oneshot(get())
        .await
        .unwrap();
    assert_eq!(body.body().size_hint().exact(), Some(5));
}

#[tokio::test(start_paused = true)]
async fn what_has_no_body_returns_at_once_with_its_headers() {
    for (method, status) in [(Method::HEAD, 200), (Method::GET, 204), (Method::GET, 304)] {
        let never = Script::new([Step::Silence]);
        let length = vec![("content-length", "1000000000")];
        let (service, shared) = Scripted::new([Reply::Head(ms(0), status, length, never)]);
        let stack = ServiceBuilder::new()
            .layer(RetryLayer::http())
            .layer(AttemptTimeoutLayer::http(ms(100)))
            .layer(BufferResponsesLayer::new())
            .service(service);
        let request = Request::builder()
            .method(method)
            .body(Full::default())
            .unwrap();
        let clock = Clock::start();
        let response = stack.oneshot(request).await.unwrap();
        assert_eq!((clock.ms(), shared.calls()), (0, 1));
        assert_eq!(response.headers()["content-length"], "1000000000");
    }
}

#[tokio::test(start_paused = true)]
async fn an_override_turns_it_off_and_on() {
    let slow = || Reply::body(Script::new([Step::Wait(ms(500)), Step::Data("x")]));
    for (layer, overrides, at) in [
        (BufferResponsesLayer::new(), None, 500),
        (
            BufferResponsesLayer::new(),
            Some(CallOverride::new().no_buffering()),
            0,
        ),
        (BufferResponsesLayer::on_request(), None, 0),
        (
            BufferResponsesLayer::on_request(),
            Some(CallOverride::new().buffering(9)),
            500,
        ),
    ] {
        let (service, _) = Scripted::new([slow()]);
        let stack = ServiceBuilder::new()
            .layer(OverrideLayer::new())
            .layer(DeadlineLayer::new(secs(1)))
            .layer(layer)
            .service(service);
        let mut request = get();
        request.extensions_mut().extend(
            overrides
                .map(|o| {
                    let mut extensions = http::Extensions::new();
                    extensions.insert(o);
                    extensions
                })
                .unwrap_or_default(),
        );
        let clock = Clock::start();
        stack.oneshot(request).await.unwrap();
        assert_eq!(clock.ms(), at, "{overrides:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_of_endless_empty_frames_does_not_hold_the_clock_up() {
    let stack = ServiceBuilder::new()
        .layer(AttemptTimeoutLayer::http(ms(100)))
        .layer(BufferResponsesLayer::new())
        .service(service_fn(|_: Req| async {
            let frames =
                futures_util::stream::repeat_with(|| Ok::<_, BoxError>(Frame::data(Bytes::new())));
            Ok::<_, BoxError>(Response::new(StreamBody::<_>::new(frames)))
        }));
    let call = stack.oneshot(get());
    // Time is moved by hand: a task that is always ready leaves paused time where it is.
    let mut call = std::pin::pin!(call);
    assert!(futures_util::poll!(call.as_mut()).is_pending());
    tokio::time::advance(ms(101)).await;
    let polled = futures_util::poll!(call.as_mut());
    assert!(matches!(polled, std::task::Poll::Ready(Err(_))));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_bytes_are_those_of_one_attempt(
        sizes in proptest::collection::vec(0..5_usize, 0..8),
        fail_after in 0..8_usize,
        max_bytes in 0..20_usize,
    ) {
        const LETTERS: &str = "abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJ";
        let pieces = |from: usize| {
            let mut at = from;
            sizes.iter().map(move |size| {
                let piece = &LETTERS[at..at + size];
                at += size;
                Step::Data(piece)
            }).collect::<Vec<_>>()
        };
        let mut first = pieces(0);
        first.truncate(fail_after);
        let read: usize = sizes.iter().take(fail_after).sum();
        first.push(Step::Error(reset));
        let total: usize = sizes.iter().sum();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let (service, shared) = Scripted::new([
                Reply::body(Script::new(first)),
                Reply::body(Script::new(pieces(7))),
            ]);
            let stack = ServiceBuilder::new()
                .layer(RetryLayer::http())
                .layer(AttemptTimeoutLayer::http(Duration::from_secs(1)))
                .layer(BufferResponsesLayer::new().max_bytes(max_bytes))
                .service(service);
            let response = stack.oneshot(get()).await.unwrap();
            let body = response.into_body().collect().await;
            if read > max_bytes {
                // Too large by then: it was handed over live, and breaks where it broke.
                assert!(body.is_err());
                assert_eq!(shared.calls(), 1);
            } else {
                let bytes = body.unwrap().to_bytes();
                assert_eq!(bytes, &LETTERS[7..7 + total]);
                assert_eq!(shared.calls(), 2);
            }
        });
    }
}

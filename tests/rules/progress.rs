//! The gap between two reads.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::{HeaderMap, HeaderValue, Method, Request, Response};
use http_body::Body;
use http_body_util::{BodyExt, Full};
use tokio::time::sleep;
use tower::{Layer, Service, ServiceExt};
use tower_deadline::{AttemptStalled, BoxError, CallOverride, EventKind, is_timeout};

use crate::layers::{
    AttemptTimeoutLayer, DeadlineLayer, OverrideLayer, ProgressBoundLayer, RetryLayer,
    ServiceBuilder,
};
use crate::support::*;

const GAP: Duration = Duration::from_millis(100);

fn wait(n: u64) -> Step {
    Step::Wait(ms(n))
}

/// This body, as a stack returns it whose only bound is that on the gaps.
async fn bounded(script: Script) -> impl Bytewise + Unpin {
    bounded_by(ProgressBoundLayer::new(GAP), script).await
}

async fn bounded_by<L, B>(layer: L, script: Script) -> B
where
    L: Layer<Scripted, Service: Service<Req, Response = Response<B>, Error = BoxError>>,
{
    let (service, _) = Scripted::new([Reply::body(script)]);
    let response = layer.layer(service).oneshot(get()).await;
    response.unwrap().into_body()
}

/// Reads to the end; the bytes, and the error if there is one.
async fn read(body: impl Bytewise) -> (String, Option<BoxError>) {
    let mut body = std::pin::pin!(body);
    let mut text = String::new();
    while let Some(frame) = body.frame().await {
        match frame {
            Ok(frame) => {
                if let Ok(data) = frame.into_data() {
                    text.push_str(std::str::from_utf8(&data).unwrap());
                }
            }
            Err(error) => {
                assert!(
                    body.frame().await.is_none(),
                    "something came after the error"
                );
                return (text, Some(error));
            }
        }
    }
    (text, None)
}

#[tokio::test(start_paused = true)]
async fn a_gap_below_the_bound_is_none_and_one_above_is_a_stall() {
    for (gap, stalls) in [(99, false), (101, true)] {
        let script = Script::new([Step::Data("a"), wait(gap), Step::Data("b")]);
        let clock = Clock::start();
        let (text, error) = read(bounded(script).await).await;
        if stalls {
            let error = error.unwrap();
            let stalled = AttemptStalled::find(&error).unwrap();
            assert_eq!(
                (stalled.gap(), stalled.bytes(), stalled.frames()),
                (GAP, 1, 1)
            );
            assert!(stalled.log().is_empty() && is_timeout(&error));
            assert_eq!((text.as_str(), clock.ms()), ("a", 100));
        } else {
            assert!(error.is_none());
            assert_eq!((text.as_str(), clock.ms()), ("ab", 99));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_never_wakes_anybody_stalls_at_the_bound() {
    let clock = Clock::start();
    let (_, error) = read(bounded(Script::new([Step::Silence])).await).await;
    assert!(AttemptStalled::find(&error.unwrap()).is_some());
    assert_eq!(clock.ms(), 100);
}

#[tokio::test(start_paused = true)]
async fn a_long_body_that_keeps_arriving_is_never_cut() {
    let steps = (0..1000).flat_map(|_| [wait(99), Step::Data("x")]);
    let (text, error) = read(bounded(Script::new(steps)).await).await;
    assert_eq!((text.len(), error.is_none()), (1000, true));
}

#[tokio::test(start_paused = true)]
async fn a_paused_reader_is_never_blamed() {
    let script = Script::new((0..50).map(|_| Step::Data("x")));
    let mut body = bounded(script).await;
    for _ in 0..50 {
        assert!(body.frame().await.unwrap().is_ok());
        sleep(GAP * 10).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_pauses_in_the_middle_of_a_read_gets_the_frame_that_came() {
    let script = Script::new([wait(50), Step::Data("x")]);
    let mut body = bounded(script).await;
    assert!(futures_util::poll!(std::pin::pin!(body.frame())).is_pending());
    sleep(GAP * 3).await;
    assert!(body.frame().await.unwrap().is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_read_found_pending_after_the_bound_is_a_stall_though_nobody_polled() {
    let mut body = bounded(Script::new([Step::Silence])).await;
    assert!(futures_util::poll!(std::pin::pin!(body.frame())).is_pending());
    sleep(GAP * 3).await;
    let error = body.frame().await.unwrap().unwrap_err();
    assert!(AttemptStalled::find(&error).is_some());
}

#[tokio::test(start_paused = true)]
async fn a_body_that_nobody_polls_never_stalls() {
    let body = bounded(Script::new([wait(1), Step::Data("x")])).await;
    sleep(GAP * 100).await;
    assert_eq!(read(body).await.0, "x");
}

#[tokio::test(start_paused = true)]
async fn an_empty_frame_pauses_the_sum_and_does_not_clear_it() {
    let empties = |last| Script::new([wait(60), Step::Data(""), wait(last), Step::Data("x")]);
    assert!(read(bounded(empties(39)).await).await.1.is_none());
    let clock = Clock::start();
    assert!(read(bounded(empties(41)).await).await.1.is_some());
    assert_eq!(clock.ms(), 100);
}

#[tokio::test(start_paused = true)]
async fn time_between_reads_is_not_in_the_sum() {
    let script = Script::new([wait(60), Step::Data(""), wait(39), Step::Data("x")]);
    let mut body = bounded(script).await;
    assert!(body.frame().await.unwrap().is_ok());
    sleep(secs(10)).await;
    assert!(body.frame().await.unwrap().is_ok());
}

#[tokio::test(start_paused = true)]
async fn keep_alives_are_progress_unless_a_predicate_says_otherwise() {
    let script = || Script::new((0..40).flat_map(|_| [wait(50), Step::Data(": keep-alive\n\n")]));
    assert!(read(bounded(script()).await).await.1.is_none());
    let content = ProgressBoundLayer::new(GAP).progress_when(|b: &[u8]| !b.starts_with(b":"));
    let body = bounded_by(content, script()).await;
    let clock = Clock::start();
    let error = read(body).await.1.unwrap();
    // Two comments have arrived by then, and count as frames.
    assert_eq!(AttemptStalled::find(&error).unwrap().frames(), 2);
    assert_eq!(clock.ms(), 100);
}

#[tokio::test(start_paused = true)]
async fn trailers_are_progress_and_pass() {
    let mut trailers = HeaderMap::new();
    trailers.insert("x-end", HeaderValue::from_static("1"));
    let script = Script::new([wait(90), Step::Trailers(trailers), wait(90)]);
    let collected = bounded(script).await.collect().await.unwrap();
    assert_eq!(collected.trailers().unwrap()["x-end"], "1");
}

#[tokio::test(start_paused = true)]
async fn the_inner_body_is_dropped_at_the_stall() {
    let drops = Arc::new(AtomicUsize::new(0));
    let script = Script::new([Step::Silence]).counting_drops(&drops);
    let mut body = bounded(script).await;
    assert!(body.frame().await.unwrap().is_err());
    assert_eq!(drops.load(Ordering::SeqCst), 1);
    assert!(body.is_end_stream());
    assert_eq!(body.size_hint().exact(), Some(0));
}

#[tokio::test(start_paused = true)]
async fn an_error_of_the_body_passes_unchanged() {
    let script = Script::new([Step::Data("a"), Step::Error(reset)]);
    let (text, error) = read(bounded(script).await).await;
    assert_eq!(text, "a");
    assert!(error.unwrap().is::<std::io::Error>());
}

#[tokio::test(start_paused = true)]
async fn what_has_no_body_is_not_bounded() {
    let layer = ProgressBoundLayer::new(GAP);
    for (method, status, bounded) in [
        (Method::GET, 200, true),
        (Method::HEAD, 200, false),
        (Method::GET, 204, false),
        (Method::GET, 304, false),
        (Method::GET, 101, false),
        (Method::CONNECT, 200, false),
        (Method::CONNECT, 407, true),
    ] {
        let body = Script::new([wait(500), Step::Data("x")]);
        let (service, _) = Scripted::new([Reply::Head(ms(0), status, vec![], body)]);
        let request = Request::builder()
            .method(method.clone())
            .body(Full::default())
            .unwrap();
        let response = layer.layer(service).oneshot(request).await.unwrap();
        let stalls = read(response.into_body()).await.1.is_some();
        assert_eq!(stalls, bounded, "{method} {status}");
    }
}

#[tokio::test(start_paused = true)]
async fn one_stall_is_told_after_the_call_has_ended() {
    let recorder = Recorder::default();
    let body = Script::new([Step::Data("x"), Step::Silence]);
    let (service, _) = Scripted::new([Reply::body(body)]);
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(secs(1)).on_event(recorder.clone()))
        .layer(RetryLayer::http().on_event(recorder.clone()))
        .layer(ProgressBoundLayer::new(GAP).on_event(recorder.clone()))
        .service(service);
    let response = stack.oneshot(get()).await.unwrap();
    assert!(read(response.into_body()).await.1.is_some());
    assert_eq!(
        recorder.kinds(),
        [EventKind::Attempt, EventKind::Succeeded, EventKind::Stalled],
    );
    assert!(!EventKind::Stalled.is_terminal());
}

#[tokio::test(start_paused = true)]
async fn each_request_can_have_its_own_gap() {
    let long = CallOverride::new().no_progress();
    let own = CallOverride::new().progress(ms(300));
    let by_attempt = CallOverride::new().attempt_timeout(ms(300));
    let none = CallOverride::new().no_attempt_timeout();
    let both = CallOverride::new()
        .attempt_timeout(secs(9))
        .progress(ms(300));
    for (overrides, silence, stalls) in [
        (None, 101, true),
        (Some(own), 299, false),
        (Some(own), 301, true),
        (Some(by_attempt), 299, false),
        (Some(by_attempt), 301, true),
        (Some(both), 301, true),
        (Some(long), 300_000, false),
        (Some(none), 300_000, false),
    ] {
        let body = Script::new([wait(silence), Step::Data("x")]);
        let (service, _) = Scripted::new([Reply::body(body)]);
        let stack = ServiceBuilder::new()
            .layer(OverrideLayer::new())
            .layer(DeadlineLayer::new(secs(1)))
            .layer(ProgressBoundLayer::new(GAP))
            .service(service);
        let mut request = get();
        if let Some(overrides) = overrides {
            request.extensions_mut().insert(overrides);
        }
        let response = stack.oneshot(request).await.unwrap();
        let stalled = read(response.into_body()).await.1.is_some();
        assert_eq!(stalled, stalls, "{overrides:?} {silence}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_gaps_of_a_stack_that_does_not_bound_them_are_no_matter_of_its_attempt_timeout() {
    for overrides in [
        CallOverride::new(),
        CallOverride::new().attempt_timeout(ms(50)),
    ] {
        let body = Script::new([wait(300_000), Step::Data("x")]);
        let (service, _) = Scripted::new([Reply::body(body)]);
        let stack = ServiceBuilder::new()
            .layer(OverrideLayer::new())
            .layer(AttemptTimeoutLayer::http(GAP))
            .service(service);
        let mut request = get();
        request.extensions_mut().insert(overrides);
        let body = stack.oneshot(request).await.unwrap().into_body();
        assert_eq!(body.collect().await.unwrap().to_bytes(), "x");
    }
}

#[tokio::test(start_paused = true)]
async fn a_bound_on_the_gaps_that_has_no_number_is_given_one_by_an_override() {
    let by_attempt = CallOverride::new().attempt_timeout(GAP);
    for (overrides, stalls) in [(None, false), (Some(by_attempt), true)] {
        let body = Script::new([wait(101), Step::Data("x")]);
        let (service, _) = Scripted::new([Reply::body(body)]);
        let stack = ServiceBuilder::new()
            .layer(OverrideLayer::new())
            .layer(DeadlineLayer::new(secs(1)))
            .layer(ProgressBoundLayer::unbounded())
            .service(service);
        let mut request = get();
        if let Some(overrides) = overrides {
            request.extensions_mut().insert(overrides);
        }
        let response = stack.oneshot(request).await.unwrap();
        let stalled = read(response.into_body()).await.1.is_some();
        assert_eq!(stalled, stalls, "{overrides:?}");
    }
}

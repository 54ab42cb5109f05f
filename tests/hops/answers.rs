//! What a caller is told of an error.

use std::error::Error;
use std::fmt;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body::Body as _;
use http_body_util::{BodyExt, Full};
use tower::{Layer, Service, ServiceBuilder, ServiceExt, service_fn};
use tower_deadline::{
    Answer, AnswerErrorsLayer, AttemptTimeoutLayer, Backoff, BoxError, DeadlineLayer,
    OneDependency, ProgressBoundLayer, Protocol, RetryBudget, RetryLayer,
};

use crate::support::*;

async fn exceeded() -> BoxError {
    let (service, _) = Scripted::always(|| Reply::Hang);
    let stack = DeadlineLayer::new(ms(10)).layer(service);
    stack.oneshot(get()).await.err().unwrap()
}

async fn timed_out() -> BoxError {
    let (service, _) = Scripted::always(|| Reply::Hang);
    let stack = AttemptTimeoutLayer::http(ms(10)).layer(service);
    stack.oneshot(get()).await.err().unwrap()
}

async fn stalled() -> BoxError {
    let (service, _) = Scripted::new([Reply::body(Script::new([Step::Silence]))]);
    let stack = ProgressBoundLayer::new(ms(10)).layer(service);
    let body = stack.oneshot(get()).await.unwrap().into_body();
    body.collect().await.err().unwrap()
}

async fn refused_by_budget() -> BoxError {
    let (service, _) = Scripted::always(|| Reply::error(reset));
    let budget = RetryBudget::of(0.1, 0).unwrap();
    let retry = RetryLayer::http().attempts(9).backoff(Backoff::none());
    let stack = retry.key(OneDependency).budget(budget).layer(service);
    stack.oneshot(get()).await.err().unwrap()
}

fn shed() -> BoxError {
    tower::load_shed::error::Overloaded::new().into()
}

/// An error of somebody else's around one.
#[derive(Debug)]
struct Around(BoxError);

impl fmt::Display for Around {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("around")
    }
}

impl Error for Around {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.0)
    }
}

#[tokio::test(start_paused = true)]
async fn each_error_has_its_status() {
    let own = || Own(1).into();
    for (make, http, grpc) in [
        (exceeded().await, 504_u16, "4"),
        (timed_out().await, 504, "4"),
        (stalled().await, 504, "4"),
        (refused_by_budget().await, 503, "14"),
        (shed(), 503, "14"),
        (reset(), 502, "14"),
        (own(), 500, "13"),
    ] {
        let wrapped: BoxError = Around(make).into();
        let told = wrapped.source().unwrap().to_string();
        let answer = Answer::from(wrapped);
        let (head, body) = answer.into_parts(Protocol::Http);
        assert_eq!(head.status, http, "{told}");
        assert_eq!(head.headers["content-type"], "application/problem+json");
        assert_eq!(
            head.headers.contains_key("retry-after"),
            http == 503,
            "{told}"
        );
        let problem: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(problem["status"], http, "{told}");
        // Nothing of what went on inside.
        assert!(!String::from_utf8_lossy(&body).contains(&told));

        let (head, body) = answer.into_parts(Protocol::Grpc);
        assert_eq!(
            (
                head.status.as_u16(),
                head.headers["grpc-status"].to_str().unwrap()
            ),
            (200, grpc)
        );
        assert_eq!(
            head.headers.contains_key("grpc-retry-pushback-ms"),
            http == 503
        );
        assert!(body.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn of_several_errors_of_ours_the_outermost_decides() {
    let (service, _) = Scripted::always(|| Reply::Hang);
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(ms(100)))
        .layer(
            RetryLayer::http()
                .backoff(Backoff::none())
                .budget(RetryBudget::none()),
        )
        .layer(AttemptTimeoutLayer::http(ms(60)))
        .service(service);
    let error = stack.oneshot(get()).await.err().unwrap();
    assert_eq!(Answer::of(&error).unwrap().status(), 504);
    assert!(Answer::of(&reset()).is_none());
}

#[test]
fn the_wait_is_in_whole_seconds_rounded_up_and_at_least_one() {
    for (wait, seconds, millis) in [
        (None, "1", "1000"),
        (Some(Duration::ZERO), "1", "1000"),
        (Some(ms(1)), "1", "1000"),
        (Some(ms(1000)), "1", "1000"),
        (Some(Duration::from_micros(1_000_001)), "2", "1001"),
        (Some(ms(59_001)), "60", "59001"),
    ] {
        let answer = Answer::shed(wait);
        let (head, _) = answer.into_parts(Protocol::Http);
        assert_eq!(head.headers["retry-after"], seconds, "{wait:?}");
        let (head, _) = answer.into_parts(Protocol::Grpc);
        assert_eq!(head.headers["grpc-retry-pushback-ms"], millis, "{wait:?}");
    }
    let (head, _) = Answer::shed(Some(Duration::MAX)).into_parts(Protocol::Http);
    assert_eq!(head.headers["retry-after"], u64::MAX.to_string());
}

#[tokio::test(start_paused = true)]
async fn a_layer_answers_errors_of_calls_and_of_readiness() {
    let answered = |grpc: bool| async move {
        let (service, shared) = Scripted::always(|| Reply::Error(ms(5), || Own(3).into()));
        let broken: Readiness = Err(|| Own(4).into());
        shared.readiness.lock().unwrap().push_back(broken);
        let stack = AnswerErrorsLayer::new().layer(service);
        let mut heads = Vec::new();
        for _ in 0..2 {
            let mut request = get();
            if grpc {
                let kind = http::HeaderValue::from_static("application/grpc");
                request.headers_mut().insert("content-type", kind);
            }
            let response = stack.clone().oneshot(request).await.unwrap();
            heads.push((response.status().as_u16(), status_of(response.headers())));
        }
        heads
    };
    assert_eq!(answered(false).await, [(500, None), (500, None)]);
    assert_eq!(answered(true).await, [(200, Some(13)), (200, Some(13))]);
}

fn status_of(headers: &HeaderMap) -> Option<u16> {
    Some(
        headers
            .get("grpc-status")?
            .to_str()
            .unwrap()
            .parse()
            .unwrap(),
    )
}

#[tokio::test(start_paused = true)]
async fn what_is_answered_beneath_passes_untouched() {
    let service = service_fn(|_: Req| async {
        let body = Full::new(Bytes::from_static(b"hello"));
        Ok::<_, BoxError>(
            Response::builder()
                .status(418)
                .header("x", "y")
                .body(body)
                .unwrap(),
        )
    });
    let stack = AnswerErrorsLayer::new().layer(service);
    let response = stack.oneshot(get()).await.unwrap();
    assert_eq!(
        (response.status().as_u16(), &response.headers()["x"]),
        (418, &"y".parse().unwrap())
    );
    let body = response.into_body();
    assert_eq!(body.size_hint().exact(), Some(5));
    assert_eq!(body.collect().await.unwrap().to_bytes(), "hello");
}

#[test]
fn the_body_of_an_answer_says_how_long_it_is() {
    let response: Response<tower_deadline::AnswerBody<Full<Bytes>>> =
        Answer::shed(None).into_response(Protocol::Http);
    let length = response.body().size_hint().exact().unwrap();
    assert!(length > 0 && !response.body().is_end_stream());
    let response: Response<tower_deadline::AnswerBody<Full<Bytes>>> =
        Answer::shed(None).into_response(Protocol::Grpc);
    assert!(response.body().is_end_stream());
    assert_eq!(response.body().size_hint().exact(), Some(0));
}

/// Fails to become ready for ever, without an error.
#[derive(Clone)]
struct NeverReady;

impl Service<Req> for NeverReady {
    type Response = Response<Full<Bytes>>;
    type Error = BoxError;
    type Future = std::future::Pending<Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Pending
    }

    fn call(&mut self, _: Req) -> Self::Future {
        unreachable!("it is never ready")
    }
}

#[tokio::test(start_paused = true)]
async fn a_deadline_above_a_service_that_is_never_ready_is_answered() {
    let stack = ServiceBuilder::new()
        .layer(AnswerErrorsLayer::new())
        .layer(DeadlineLayer::new(ms(30)))
        .layer(tower_deadline::BoundReadinessLayer::new())
        .service(NeverReady);
    let clock = Clock::start();
    let response = stack.oneshot(Request::new(Full::default())).await.unwrap();
    assert_eq!((response.status().as_u16(), clock.ms()), (504, 30));
}

//! What is sent again: all of it, or nothing.

use std::sync::{Arc, Mutex};

use axum::Router;
use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode, Uri, Version};
use http_body::Frame;
use http_body_util::BodyExt;
use tokio::net::TcpListener;
use tower::{ServiceBuilder, ServiceExt};
use tower_deadline::{
    AttemptTimeoutLayer, Backoff, BoxError, CallOverride, DeadlineLayer, EventKind, OverrideLayer,
    RetryLayer, StopReason,
};

use crate::support::{Body, LONG, Recorder, Task, client, client_of, lock, request, text, uri};

/// A server of axum's that fails the first request and takes the others, and all it was sent.
async fn failing_first() -> (Uri, Arc<Mutex<Vec<Received>>>, Task) {
    let received = Arc::new(Mutex::new(Vec::new()));
    let kept = received.clone();
    let app = Router::new().fallback(move |request: axum::extract::Request| async move {
        let (head, body) = request.into_parts();
        let body = body.collect().await.unwrap();
        let mut received = lock(&kept);
        received.push(Received {
            method: head.method,
            uri: head.uri,
            version: head.version,
            headers: head.headers,
            trailers: body.trailers().cloned(),
            body: body.to_bytes(),
        });
        if received.len() == 1 {
            (StatusCode::INTERNAL_SERVER_ERROR, "the first one fails")
        } else {
            (StatusCode::OK, "taken")
        }
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let uri = uri(listener.local_addr().unwrap());
    let task = Task::spawn(async move { axum::serve(listener, app).await.unwrap() });
    (uri, received, task)
}

/// All that a server can tell of a request.
#[derive(Debug, Clone, PartialEq)]
struct Received {
    method: Method,
    uri: Uri,
    version: Version,
    headers: HeaderMap,
    body: Bytes,
    trailers: Option<HeaderMap>,
}

#[derive(Debug, Clone, PartialEq)]
struct InProcess(&'static str);

fn letter(uri: &Uri) -> Request<Body> {
    let mut request = request(Method::PUT, uri.clone(), "the whole letter");
    *request.uri_mut() = format!("{uri}path?query").parse().unwrap();
    let headers = request.headers_mut();
    headers.append("x-twice", "one".parse().unwrap());
    headers.append("x-twice", "two".parse().unwrap());
    request.extensions_mut().insert(InProcess("kept"));
    request
        .extensions_mut()
        .insert(CallOverride::new().attempts(2));
    request
}

#[tokio::test]
async fn a_put_is_sent_again_exactly_as_it_was() {
    let (uri, received, _server) = failing_first().await;
    let extensions = Arc::new(Mutex::new(Vec::new()));
    let seen = extensions.clone();
    let stack = ServiceBuilder::new()
        .layer(OverrideLayer::new())
        .layer(DeadlineLayer::new(LONG))
        .layer(RetryLayer::http().attempts(1).backoff(Backoff::none()))
        .layer(AttemptTimeoutLayer::http(LONG))
        .map_request(move |request: Request<Body>| {
            let extensions = request.extensions();
            let pair = (
                extensions.get::<InProcess>().cloned(),
                extensions.get::<CallOverride>().copied(),
            );
            lock(&seen).push(pair);
            request
        })
        .service(client());

    let response = stack.oneshot(letter(&uri)).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(text(response.into_body()).await, "taken");

    let received = lock(&received).clone();
    assert_eq!(received.len(), 2);
    assert_eq!(received[0], received[1]);
    assert_eq!(received[1].body, "the whole letter");
    assert_eq!(received[1].uri.path_and_query().unwrap(), "/path?query");
    let twice: Vec<_> = received[1].headers.get_all("x-twice").iter().collect();
    assert_eq!(twice, ["one", "two"]);
    let extensions = lock(&extensions).clone();
    assert_eq!(extensions.len(), 2);
    assert_eq!(extensions[0], extensions[1]);
    assert_eq!(extensions[1].0, Some(InProcess("kept")));
    assert!(extensions[1].1.is_some());
}

#[tokio::test]
async fn what_cannot_be_copied_is_sent_once_and_its_failure_returned() {
    let (uri, received, _server) = failing_first().await;
    let recorder = Recorder::default();
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(LONG).on_event(recorder.listener()))
        .layer(
            RetryLayer::http()
                .copy(|_: &Request<Body>| None)
                .backoff(Backoff::none())
                .on_event(recorder.listener()),
        )
        .layer(AttemptTimeoutLayer::http(LONG))
        .service(client());

    let response = stack.oneshot(letter(&uri)).await.unwrap();
    assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(text(response.into_body()).await, "the first one fails");
    assert_eq!(lock(&received).len(), 1);
    assert_eq!(lock(&received)[0].body, "the whole letter");
    assert_eq!(
        recorder.kinds(),
        [EventKind::Attempt, EventKind::NotRetried]
    );
    assert_eq!(recorder.terminal().stop, Some(StopReason::NotReplayable));
}

/// Data and trailers.
#[derive(Debug, Clone)]
pub(crate) struct WithTrailers(pub(crate) Vec<Frames>);

#[derive(Debug, Clone)]
pub(crate) enum Frames {
    Data(&'static str),
    Trailers(HeaderMap),
}

impl http_body::Body for WithTrailers {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let next = (!self.0.is_empty()).then(|| self.0.remove(0));
        std::task::Poll::Ready(next.map(|frame| {
            Ok(match frame {
                Frames::Data(data) => Frame::data(Bytes::from_static(data.as_bytes())),
                Frames::Trailers(trailers) => Frame::trailers(trailers),
            })
        }))
    }
}

#[tokio::test]
async fn the_trailers_of_a_request_are_sent_again_too() {
    let (uri, received, _server) = failing_first().await;
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(LONG))
        .layer(RetryLayer::http().backoff(Backoff::none()))
        .layer(AttemptTimeoutLayer::http(LONG))
        .service(client_of::<WithTrailers>());

    let mut trailers = HeaderMap::new();
    trailers.insert("x-sum", "42".parse().unwrap());
    let body = WithTrailers(vec![
        Frames::Data("one "),
        Frames::Data("two"),
        Frames::Trailers(trailers.clone()),
    ]);
    let request = Request::put(uri).header("trailer", "x-sum").body(body);
    let response = stack.oneshot(request.unwrap()).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    let received = lock(&received).clone();
    assert_eq!(received.len(), 2);
    assert_eq!(received[0], received[1]);
    assert_eq!(received[1].body, "one two");
    assert_eq!(received[1].trailers.as_ref(), Some(&trailers));
}

//! What went wrong, found behind what real clients and servers wrap it in.

use std::error::Error;
use std::io;

use futures_util::StreamExt;
use http::Request;
use http_body_util::{BodyDataStream, BodyExt};
use tokio::io::AsyncReadExt;
use tokio_util::io::StreamReader;
use tower::{ServiceBuilder, ServiceExt};
use tower_deadline::{
    AttemptError, AttemptStalled, AttemptTimedOut, AttemptTimeoutLayer, Backoff, BoxError,
    Classify, DeadlineBodyLayer, DeadlineExceeded, DeadlineLayer, ErrorClassifier,
    ProgressBoundLayer, RetryLayer, Verdict, is_timeout,
};

use crate::support::{
    Connection, LONG, RawServer, Refusing, client, client_of, ended, get, ms, post, uri,
};

/// Half of a body, and then nothing.
async fn half(mut connection: Connection) {
    while connection.request().await.is_some() {
        connection
            .write("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n12345")
            .await;
        connection.silence().await;
    }
}

async fn mute(mut connection: Connection) {
    connection.request().await;
    connection.silence().await;
}

/// A body that stalls.
async fn stalling(
    server: &RawServer,
) -> impl http_body::Body<Data = bytes::Bytes, Error = BoxError> + use<> {
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(LONG))
        .layer(AttemptTimeoutLayer::http(LONG))
        .layer(ProgressBoundLayer::new(ms(100)))
        .service(client());
    stack.oneshot(get(server.uri())).await.unwrap().into_body()
}

fn assert_stalled(error: &(dyn Error + 'static)) {
    let stalled = AttemptStalled::find(error).unwrap();
    assert_eq!((stalled.gap(), stalled.bytes()), (ms(100), 5));
    assert!(is_timeout(error));
    assert!(DeadlineExceeded::find(error).is_none());
    assert!(AttemptTimedOut::find(error).is_none());
    assert_eq!(verdict(error), Verdict::Transient);
}

fn verdict(error: &(dyn Error + 'static)) -> Verdict {
    Classify::<()>::classify(&ErrorClassifier, Err(AttemptError::new(error)))
}

#[tokio::test]
async fn a_stall_is_found_in_an_error_of_axum() {
    let server = RawServer::start(half).await;
    let body = axum::body::Body::new(stalling(&server).await);
    let error = ended(axum::body::to_bytes(body, usize::MAX))
        .await
        .unwrap_err();
    assert_stalled(&error);
}

#[tokio::test]
async fn a_stall_is_found_in_an_error_of_a_reader() {
    let server = RawServer::start(half).await;
    let stream = BodyDataStream::new(stalling(&server).await);
    let mut reader = StreamReader::new(Box::pin(stream.map(|data| data.map_err(io::Error::other))));
    let mut read = Vec::new();
    let error = ended(reader.read_to_end(&mut read)).await.unwrap_err();
    assert_eq!(read, b"12345");
    assert_stalled(&error);
    // And once more wrapped, as adapters of adapters do.
    assert_stalled(&io::Error::other(error));
}

#[tokio::test]
async fn a_stall_is_found_in_the_error_of_a_client_that_uploads_the_body() {
    let (from, to) = (RawServer::start(half).await, RawServer::start(mute).await);
    let body = stalling(&from).await.boxed();
    let upload = Request::put(to.uri()).body(body).unwrap();
    let error = ended(client_of().request(upload)).await.unwrap_err();
    assert_stalled(&error);
}

#[tokio::test]
async fn a_deadline_of_a_body_is_found_in_an_error_of_axum() {
    let server = RawServer::start(half).await;
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(ms(400)))
        .layer(DeadlineBodyLayer::new())
        .layer(AttemptTimeoutLayer::http(ms(400)))
        .service(client());
    let response = stack.oneshot(get(server.uri())).await.unwrap();
    let body = axum::body::Body::new(response.into_body());
    let error = ended(axum::body::to_bytes(body, usize::MAX))
        .await
        .unwrap_err();
    let error: &(dyn Error + 'static) = &error;
    let exceeded = DeadlineExceeded::find(error).unwrap();
    assert!(exceeded.elapsed() >= ms(400));
    assert!(is_timeout(error));
    assert_eq!(verdict(error), Verdict::Permanent);
}

#[tokio::test]
async fn a_deadline_keeps_the_error_of_the_last_attempt_as_its_cause() {
    // The first attempt is refused, and the next one would not fit.
    let nobody = Refusing::new();
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(ms(900)))
        .layer(RetryLayer::http().backoff(Backoff::constant(LONG)))
        .layer(AttemptTimeoutLayer::http(LONG))
        .service(client());
    let error = stack.oneshot(get(uri(nobody.address))).await.unwrap_err();
    let exceeded = DeadlineExceeded::find(&error).unwrap();
    assert!(exceeded.elapsed() < ms(900), "it did not wait for its end");
    assert_eq!(exceeded.log().len(), 1);
    assert!(is_timeout(&error));

    let mut chain = Vec::new();
    let mut next = Error::source(exceeded);
    while let Some(error) = next {
        chain.push(error);
        next = error.source();
    }
    assert!(chain[0].is::<hyper_util::client::legacy::Error>());
    let io = chain
        .iter()
        .find_map(|error| error.downcast_ref::<io::Error>());
    assert_eq!(io.unwrap().kind(), io::ErrorKind::ConnectionRefused);
}

#[tokio::test]
async fn a_client_s_own_error_comes_out_unchanged() {
    let nobody = Refusing::new();
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(LONG))
        .layer(RetryLayer::http().backoff(Backoff::none()))
        .layer(AttemptTimeoutLayer::http(LONG))
        .layer(ProgressBoundLayer::new(LONG))
        .service(client());
    let error = stack.oneshot(get(uri(nobody.address))).await.unwrap_err();
    let own = error.downcast_ref::<hyper_util::client::legacy::Error>();
    assert!(own.unwrap().is_connect());
    assert!(!is_timeout(&error));
}

#[tokio::test]
async fn the_outermost_of_two_timeouts_is_the_one_that_is_found() {
    // Two attempts time out, and their deadline has them as its cause.
    let server = RawServer::start(mute).await;
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(ms(390)))
        .layer(RetryLayer::http().backoff(Backoff::none()))
        .layer(AttemptTimeoutLayer::http(ms(200)))
        .service(client());
    let error = stack.oneshot(get(server.uri())).await.unwrap_err();
    let error = io::Error::other(error);
    let error: &(dyn Error + 'static) = &error;
    assert!(DeadlineExceeded::find(error).is_some());
    assert!(AttemptTimedOut::find(error).is_none());
    let cause = DeadlineExceeded::find(error).unwrap().source().unwrap();
    assert!(AttemptTimedOut::find(cause).is_some());
    assert_eq!(verdict(error), Verdict::Permanent);
}

#[tokio::test]
async fn a_timeout_of_an_inner_client_ends_the_call_of_an_outer_one_as_it_is() {
    let server = RawServer::start(mute).await;
    let inner = ServiceBuilder::new()
        .layer(DeadlineLayer::new(LONG))
        .layer(RetryLayer::http().backoff(Backoff::none()))
        .layer(AttemptTimeoutLayer::http(ms(150)))
        .service(client());
    let outer = ServiceBuilder::new()
        .layer(DeadlineLayer::new(LONG))
        .layer(RetryLayer::http().backoff(Backoff::none()))
        .layer(AttemptTimeoutLayer::http(LONG))
        .map_err(|error: BoxError| -> BoxError { Box::new(axum::Error::new(error)) })
        .service(inner);
    let error = outer.oneshot(post(server.uri())).await.unwrap_err();
    assert!(error.is::<axum::Error>());
    let timed_out = AttemptTimedOut::find(&error).unwrap();
    assert_eq!(timed_out.ceiling(), ms(150));
    assert_eq!(timed_out.log().len(), 1);
    assert!(is_timeout(&error));
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn a_request_that_the_client_itself_refuses_is_not_sent_for_again() {
    let client = plain_client();
    let verdict = |error: &BoxError| {
        tower_deadline::Classify::<()>::classify(
            &tower_deadline::ErrorClassifier,
            Err(AttemptError::new(&**error)),
        )
    };
    let relative = http::Request::get("/nowhere")
        .body(http_body_util::Full::default())
        .unwrap();
    let error: BoxError = client.request(relative).await.unwrap_err().into();
    assert_eq!(
        verdict(&error),
        tower_deadline::Verdict::Permanent,
        "{error:?}"
    );
    // What it could not connect to is another matter.
    let nobody = http::Request::get("http://127.0.0.1:1/")
        .body(http_body_util::Full::default())
        .unwrap();
    let error: BoxError = client.request(nobody).await.unwrap_err().into();
    assert_eq!(
        verdict(&error),
        tower_deadline::Verdict::Transient,
        "{error:?}"
    );
}

fn plain_client() -> hyper_util::client::legacy::Client<
    hyper_util::client::legacy::connect::HttpConnector,
    http_body_util::Full<bytes::Bytes>,
> {
    hyper_util::client::legacy::Client::builder(hyper_util::rt::TokioExecutor::new()).build_http()
}

#[tokio::test]
async fn an_answer_that_is_no_http_is_not_sent_for_again() {
    let server = RawServer::start(|mut connection: Connection| async move {
        connection.request().await;
        connection
            .write("this is not what was asked for\r\n\r\n")
            .await;
    })
    .await;
    let stack = ServiceBuilder::new()
        .layer(RetryLayer::http())
        .service(client());
    let error = stack.oneshot(get(server.uri())).await.unwrap_err();
    // hyper's own error says so, beneath that of the client, which alone would be the transport's.
    let mut link: Option<&dyn Error> = Some(&*error);
    let mut parse = false;
    while let Some(error) = link {
        parse |= error.downcast_ref().is_some_and(hyper::Error::is_parse);
        link = error.source();
    }
    assert!(parse, "{error:?}");
    assert_eq!(server.requests().len(), 1);
}

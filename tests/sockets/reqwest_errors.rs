//! The errors of reqwest, as its client makes them.

use std::time::Duration;

use reqwest::{Client, Method, Request};
use tower::{ServiceBuilder, ServiceExt};
use tower_deadline::{
    AttemptTimedOut, AttemptTimeoutLayer, Backoff, BoxError, BufferResponsesLayer, DeadlineLayer,
    EventKind, ProgressBoundLayer, RetryLayer, Verdict, is_timeout, never_left,
};

use crate::support::{Connection, LONG, RawServer, Recorder, Refusing, answer, ms, text, uri};

/// Reads JSON inside the attempt, and makes up to three of them. The error, and the verdict on each
/// attempt.
async fn failure(client: Client, url: impl ToString) -> (BoxError, Vec<Verdict>) {
    failure_within(LONG, client, url).await
}

/// The same, with this attempt timeout.
async fn failure_within(
    attempt: Duration,
    client: Client,
    url: impl ToString,
) -> (BoxError, Vec<Verdict>) {
    let recorder = Recorder::default();
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(LONG))
        .layer(
            RetryLayer::new()
                .attempts(3)
                .copy(Request::try_clone)
                .backoff(Backoff::none())
                .on_event(recorder.listener()),
        )
        .layer(AttemptTimeoutLayer::new(attempt))
        .service_fn(move |request: Request| {
            let client = client.clone();
            async move {
                client
                    .execute(request)
                    .await?
                    .json::<serde_json::Value>()
                    .await
            }
        });
    let request = Request::new(Method::GET, url.to_string().parse().unwrap());
    let error = stack.oneshot(request).await.unwrap_err();
    let attempts = recorder.of(EventKind::Attempt);
    (error, attempts.iter().filter_map(|a| a.verdict).collect())
}

fn client() -> Client {
    Client::builder().no_proxy().build().unwrap()
}

fn own(error: &BoxError) -> &reqwest::Error {
    error.downcast_ref().unwrap()
}

/// Answers every request with these bytes.
async fn always(bytes: String) -> RawServer {
    RawServer::start(move |mut connection: Connection| {
        let bytes = bytes.clone();
        async move {
            while connection.request().await.is_some() {
                connection.write(&bytes).await;
            }
        }
    })
    .await
}

#[tokio::test]
async fn a_refused_connection_is_transient_and_never_left() {
    let nobody = Refusing::new();
    let (error, verdicts) = failure(client(), uri(nobody.address)).await;
    assert!(own(&error).is_connect() && never_left(&*error));
    assert_eq!(verdicts, [Verdict::Transient; 3]);
}

#[tokio::test]
async fn a_connection_that_closes_without_an_answer_is_transient() {
    let server = RawServer::start(|mut connection: Connection| async move {
        connection.request().await;
    })
    .await;
    let (error, verdicts) = failure(client(), server.uri()).await;
    assert!(own(&error).is_request() && !never_left(&*error));
    assert_eq!(verdicts, [Verdict::Transient; 3]);
    assert_eq!(server.requests().len(), 3);
}

#[tokio::test]
async fn a_redirect_loop_is_permanent() {
    let answer = "HTTP/1.1 302 Found\r\nlocation: /\r\ncontent-length: 0\r\n\r\n";
    let server = always(answer.into()).await;
    let (error, verdicts) = failure(client(), server.uri()).await;
    assert!(own(&error).is_redirect());
    assert_eq!(verdicts, [Verdict::Permanent]);
}

#[tokio::test]
async fn a_body_that_makes_no_sense_is_permanent() {
    let server = always(answer("200 OK", "{ no json")).await;
    let (error, verdicts) = failure(client(), server.uri()).await;
    assert!(own(&error).is_decode());
    assert_eq!(verdicts, [Verdict::Permanent]);
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn a_request_that_cannot_be_sent_is_permanent() {
    let (error, verdicts) = failure(client(), "data:text/plain,nowhere").await;
    assert!(own(&error).is_builder());
    assert_eq!(verdicts, [Verdict::Permanent]);
}

#[tokio::test]
async fn a_body_that_breaks_off_is_transient_though_reqwest_calls_it_a_decode_error() {
    let server = RawServer::start(|mut connection: Connection| async move {
        connection.request().await;
        let half = "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n[1,2,";
        connection.write(half).await;
    })
    .await;
    let (error, verdicts) = failure(client(), server.uri()).await;
    // What is beneath it says what it was.
    assert!(own(&error).is_decode());
    assert_eq!(verdicts, [Verdict::Transient; 3]);
    assert_eq!(server.requests().len(), 3);
}

#[tokio::test]
async fn a_body_that_breaks_off_beneath_buffering_is_sent_for_again() {
    let server = RawServer::start(|mut connection: Connection| async move {
        connection.request().await;
        if connection.number == 1 {
            let half = "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n12345";
            connection.write(half).await;
        } else {
            connection.write(answer("200 OK", "abcdefghij")).await;
            connection.silence().await;
        }
    })
    .await;
    let client = client();
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(LONG))
        .layer(RetryLayer::http().backoff(Backoff::none()))
        .layer(AttemptTimeoutLayer::http(LONG))
        .layer(BufferResponsesLayer::new())
        .layer(ProgressBoundLayer::new(LONG))
        .service_fn(move |request: http::Request<&'static str>| {
            let client = client.clone();
            async move {
                let response = client.execute(request.try_into()?).await?;
                Ok::<_, reqwest::Error>(http::Response::<reqwest::Body>::from(response))
            }
        });
    let request = http::Request::get(server.uri()).body("").unwrap();
    let response = stack.oneshot(request).await.unwrap();
    assert_eq!(text(response.into_body()).await, "abcdefghij");
    assert_eq!(server.requests().len(), 2);
}

#[tokio::test]
async fn a_timeout_of_its_own_is_transient_and_none_of_ours() {
    let server = RawServer::start(|mut connection: Connection| async move {
        connection.request().await;
        connection.silence().await;
    })
    .await;
    let client = Client::builder().no_proxy().timeout(ms(100));
    let (error, verdicts) = failure(client.build().unwrap(), server.uri()).await;
    assert!(own(&error).is_timeout());
    assert!(!is_timeout(&error));
    assert_eq!(verdicts, [Verdict::Transient; 3]);
}

#[tokio::test]
async fn our_timeout_around_it_is_ours() {
    let server = RawServer::start(|mut connection: Connection| async move {
        connection.request().await;
        connection.silence().await;
    })
    .await;
    let (error, verdicts) = failure_within(ms(200), client(), server.uri()).await;
    assert_eq!(AttemptTimedOut::find(&error).unwrap().log().len(), 3);
    assert_eq!(verdicts, [Verdict::Transient; 3]);
    assert_eq!(server.requests().len(), 3);
}

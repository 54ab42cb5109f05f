//! Bodies that are read inside the attempt, and bodies that are not there.

use http::{Method, StatusCode};
use http_body::Body as _;
use http_body_util::BodyExt;
use tower::{ServiceBuilder, ServiceExt};
use tower_deadline::{
    AttemptTimeoutLayer, Backoff, BufferResponsesLayer, BufferedTrailers, DeadlineLayer, EventKind,
    ProgressBoundLayer, RetryLayer, StopReason, Verdict, is_timeout,
};

use crate::support::{
    Connection, LONG, RawServer, Recorder, answer, broken, client, get, ms, post, request, text,
};

/// A length of ten and five bytes, from its first connection; from others all ten.
async fn cut_in_the_middle(mut connection: Connection) {
    while connection.request().await.is_some() {
        if connection.number == 1 {
            connection
                .write("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n12345")
                .await;
            return;
        }
        connection.write(answer("200 OK", "abcdefghij")).await;
    }
}

#[tokio::test]
async fn a_buffered_body_that_breaks_off_is_sent_for_again_and_not_spliced() {
    let server = RawServer::start(cut_in_the_middle).await;
    let recorder = Recorder::default();
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(LONG))
        .layer(
            RetryLayer::http()
                .backoff(Backoff::none())
                .on_event(recorder.listener()),
        )
        .layer(AttemptTimeoutLayer::http(LONG))
        .layer(BufferResponsesLayer::new())
        .layer(ProgressBoundLayer::new(LONG))
        .service(client());

    let response = stack.oneshot(get(server.uri())).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(response.body().size_hint().exact(), Some(10));
    assert_eq!(text(response.into_body()).await, "abcdefghij");
    assert_eq!(server.requests().len(), 2);
    let attempts = recorder.of(EventKind::Attempt);
    assert_eq!(attempts[0].verdict, Some(Verdict::Transient));
    assert!(!attempts[0].timeout);
}

#[tokio::test]
async fn a_live_body_that_breaks_off_is_an_error_of_the_body() {
    let server = RawServer::start(cut_in_the_middle).await;
    let recorder = Recorder::default();
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(LONG).on_event(recorder.listener()))
        .layer(RetryLayer::http().backoff(Backoff::none()))
        .layer(AttemptTimeoutLayer::http(LONG))
        .layer(ProgressBoundLayer::new(LONG))
        .service(client());

    let response = stack.oneshot(get(server.uri())).await.unwrap();
    let mut body = response.into_body();
    let first = body.frame().await.unwrap().unwrap();
    assert_eq!(first.into_data().unwrap(), "12345");
    let error = broken(body).await;
    assert!(!is_timeout(&error));
    assert_eq!(server.requests().len(), 1);
    assert_eq!(recorder.kinds(), [EventKind::Succeeded]);
}

#[tokio::test]
async fn a_buffered_post_that_breaks_off_is_not_sent_again() {
    let server = RawServer::start(cut_in_the_middle).await;
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(LONG))
        .layer(
            RetryLayer::http()
                .backoff(Backoff::none())
                .retry_unprocessed(true),
        )
        .layer(AttemptTimeoutLayer::http(LONG))
        .layer(BufferResponsesLayer::new())
        .service(client());

    let error = stack.oneshot(post(server.uri())).await.unwrap_err();
    assert!(!is_timeout(&error));
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn a_reset_in_mid_body_is_not_spliced() {
    let server = RawServer::start(|mut connection| async move {
        let number = connection.number;
        if number == 1 {
            // To close with something unread is to reset.
            connection.stream.readable().await.unwrap();
        } else {
            connection.request().await;
        }
        connection
            .write("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
            .await;
        for chunk in 0..4 {
            connection.write(format!("2\r\n{number}{chunk}\r\n")).await;
            tokio::time::sleep(ms(20)).await;
            if number == 1 && chunk == 2 {
                return;
            }
        }
        connection.write("0\r\n\r\n").await;
        connection.silence().await;
    })
    .await;
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(LONG))
        .layer(RetryLayer::http().backoff(Backoff::none()))
        .layer(AttemptTimeoutLayer::http(LONG))
        .layer(BufferResponsesLayer::new())
        .layer(ProgressBoundLayer::new(LONG))
        .service(client());

    let response = stack.oneshot(get(server.uri())).await.unwrap();
    assert_eq!(text(response.into_body()).await, "20212223");
    assert_eq!(server.connections(), 2);
}

#[tokio::test]
async fn a_body_too_large_to_buffer_is_handed_over_live_and_its_break_is_not_mended() {
    let server = RawServer::start(cut_in_the_middle).await;
    let recorder = Recorder::default();
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(LONG).on_event(recorder.listener()))
        .layer(RetryLayer::http().backoff(Backoff::none()))
        .layer(AttemptTimeoutLayer::http(LONG))
        .layer(
            BufferResponsesLayer::new()
                .max_bytes(4)
                .on_event(recorder.listener()),
        )
        .layer(ProgressBoundLayer::new(LONG))
        .service(client());

    let response = stack.oneshot(get(server.uri())).await.unwrap();
    assert_eq!(response.body().size_hint().exact(), Some(10));
    let mut body = response.into_body();
    let first = body.frame().await.unwrap().unwrap();
    assert_eq!(first.into_data().unwrap(), "12345");
    broken(body).await;
    assert_eq!(server.requests().len(), 1);
    assert_eq!(
        recorder.kinds(),
        [EventKind::BufferSpilled, EventKind::Succeeded]
    );
}

#[tokio::test]
async fn a_failure_too_large_to_buffer_is_returned_and_not_sent_for_again() {
    let server = RawServer::start(|mut connection| async move {
        while connection.request().await.is_some() {
            connection
                .write(answer("503 Service Unavailable", "a long excuse"))
                .await;
        }
    })
    .await;
    let recorder = Recorder::default();
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(LONG).on_event(recorder.listener()))
        .layer(RetryLayer::http().backoff(Backoff::none()))
        .layer(AttemptTimeoutLayer::http(LONG))
        .layer(BufferResponsesLayer::new().max_bytes(4))
        .service(client());

    let response = stack.oneshot(get(server.uri())).await.unwrap();
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(text(response.into_body()).await, "a long excuse");
    assert_eq!(server.requests().len(), 1);
    assert_eq!(recorder.terminal().stop, Some(StopReason::Spilled));
}

#[tokio::test]
async fn buffered_trailers_are_in_the_body_and_in_the_extensions() {
    let server = RawServer::start(|mut connection| async move {
        while connection.request().await.is_some() {
            connection
                .write(
                    "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x-sum\r\n\r\n\
                     5\r\nhello\r\n0\r\nx-sum: 42\r\n\r\n",
                )
                .await;
        }
    })
    .await;
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(LONG))
        .layer(AttemptTimeoutLayer::http(LONG))
        .layer(BufferResponsesLayer::new())
        .service(client());

    let response = stack.oneshot(get(server.uri())).await.unwrap();
    let trailers = response.extensions().get::<BufferedTrailers>().unwrap();
    assert_eq!(trailers["x-sum"], "42");
    let body = response.into_body();
    assert_eq!(body.size_hint().exact(), None);
    let body = body.collect().await.unwrap();
    assert_eq!(body.trailers().unwrap()["x-sum"], "42");
    assert_eq!(body.to_bytes(), "hello");
}

/// Answers with this head, and says nothing after it.
fn only_a_head(
    head: &'static str,
) -> impl Fn(Connection) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send>> {
    move |mut connection| {
        Box::pin(async move {
            while connection.request().await.is_some() {
                connection.write(head).await;
            }
        })
    }
}

/// Makes a call that is answered with `head` and no body, with and without buffering.
async fn there_is_no_body(method: Method, head: &'static str, length: &str) {
    let server = RawServer::start(only_a_head(head)).await;
    let recorder = Recorder::default();
    // What waited for the body would be cut, and sent for again.
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(LONG).on_event(recorder.listener()))
        .layer(RetryLayer::http().backoff(Backoff::none()))
        .layer(AttemptTimeoutLayer::http(ms(900)));
    let buffered = stack
        .clone()
        .layer(BufferResponsesLayer::new())
        .layer(ProgressBoundLayer::new(ms(900)))
        .service(client());
    let live = stack
        .layer(ProgressBoundLayer::new(ms(900)))
        .service(client());

    let request = || request(method.clone(), server.uri(), "");
    let response = buffered.oneshot(request()).await.unwrap();
    assert_eq!(response.headers()["content-length"], length);
    assert!(response.body().is_end_stream());
    assert_eq!(text(response.into_body()).await, "");
    let response = live.oneshot(request()).await.unwrap();
    assert_eq!(response.headers()["content-length"], length);
    assert!(response.body().is_end_stream());
    assert_eq!(text(response.into_body()).await, "");

    assert_eq!(server.requests().len(), 2);
    assert_eq!(
        recorder.kinds(),
        [EventKind::Succeeded, EventKind::Succeeded]
    );
}

#[tokio::test]
async fn nobody_waits_for_the_body_that_a_head_request_announces() {
    let head = "HTTP/1.1 200 OK\r\ncontent-length: 1000000000\r\n\r\n";
    there_is_no_body(Method::HEAD, head, "1000000000").await;
}

#[tokio::test]
async fn nobody_waits_for_the_body_of_a_204() {
    let head = "HTTP/1.1 204 No Content\r\ncontent-length: 10\r\n\r\n";
    there_is_no_body(Method::GET, head, "10").await;
}

#[tokio::test]
async fn nobody_waits_for_the_body_of_a_304() {
    let head = "HTTP/1.1 304 Not Modified\r\ncontent-length: 10\r\n\r\n";
    there_is_no_body(Method::GET, head, "10").await;
}

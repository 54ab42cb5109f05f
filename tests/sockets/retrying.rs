//! Another attempt: whether it is made, and when.

use http::StatusCode;
use tokio::time::Instant;
use tower::{ServiceBuilder, ServiceExt};
use tower_deadline::{
    AttemptTimeoutLayer, Backoff, CallOverride, DeadlineLayer, EventKind, OverrideLayer,
    RetryLayer, StopReason, Verdict,
};

use crate::support::{LONG, RawServer, Recorder, answer, client, get, ms, post, text};

#[tokio::test]
async fn a_post_is_not_sent_again_after_a_503_unless_that_call_says_so() {
    let server = RawServer::start(|mut connection| async move {
        while connection.request().await.is_some() {
            connection
                .write(answer("503 Service Unavailable", "no"))
                .await;
        }
    })
    .await;
    let stack = ServiceBuilder::new()
        .layer(OverrideLayer::new())
        .layer(DeadlineLayer::new(LONG))
        .layer(
            RetryLayer::http()
                .attempts(3)
                .backoff(Backoff::none())
                .retry_unprocessed(true),
        )
        .layer(AttemptTimeoutLayer::http(LONG))
        .service(client());

    let response = stack.clone().oneshot(post(server.uri())).await.unwrap();
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(text(response.into_body()).await, "no");
    assert_eq!(server.requests().len(), 1);

    let mut may = post(server.uri());
    may.extensions_mut().insert(CallOverride::new().retry());
    let response = stack.oneshot(may).await.unwrap();
    assert_eq!(text(response.into_body()).await, "no");
    assert_eq!(server.requests().len(), 1 + 3);
    assert!(server.requests().iter().all(|r| r.body == b"once"));
}

#[tokio::test]
async fn a_retry_after_that_is_a_date_counts_from_the_date_of_the_response() {
    let server = RawServer::start(|mut connection| async move {
        while let Some(number) = connection.request().await {
            if number == 1 {
                connection
                    .write(
                        "HTTP/1.1 503 Service Unavailable\r\n\
                         date: Sun, 06 Nov 1994 08:49:37 GMT\r\n\
                         retry-after: Sun, 06 Nov 1994 08:49:38 GMT\r\n\
                         content-length: 0\r\n\r\n",
                    )
                    .await;
            } else {
                connection.write(answer("200 OK", "good")).await;
            }
        }
    })
    .await;
    let recorder = Recorder::default();
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(LONG))
        .layer(
            RetryLayer::http()
                .backoff(Backoff::none())
                .on_event(recorder.listener()),
        )
        .layer(AttemptTimeoutLayer::http(LONG))
        .service(client());

    let started = Instant::now();
    let response = stack.oneshot(get(server.uri())).await.unwrap();
    assert!(Instant::now() - started >= ms(1000));
    assert_eq!(text(response.into_body()).await, "good");
    assert_eq!(server.requests().len(), 2);
    let retrying = recorder.of(EventKind::Retrying);
    assert_eq!(retrying[0].verdict, Some(Verdict::Throttled));
    assert_eq!(retrying[0].delay, Some(ms(1000)));
}

#[tokio::test]
async fn a_wait_that_does_not_fit_gives_the_response_that_asked_for_it_at_once() {
    let server = RawServer::start(|mut connection| async move {
        while connection.request().await.is_some() {
            connection
                .write(
                    "HTTP/1.1 429 Too Many Requests\r\n\
                     retry-after: 25\r\ncontent-length: 4\r\n\r\nlate",
                )
                .await;
        }
    })
    .await;
    let recorder = Recorder::default();
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(ms(20_000)).on_event(recorder.listener()))
        .layer(RetryLayer::http().on_event(recorder.listener()))
        .layer(AttemptTimeoutLayer::http(LONG))
        .service(client());

    let started = Instant::now();
    let response = stack.oneshot(get(server.uri())).await.unwrap();
    assert!(Instant::now() - started < ms(20_000));
    assert_eq!(response.headers()["retry-after"], "25");
    assert_eq!(text(response.into_body()).await, "late");
    assert_eq!(server.requests().len(), 1);
    assert_eq!(
        recorder.of(EventKind::Attempt)[0].verdict,
        Some(Verdict::Throttled)
    );
    assert_eq!(
        recorder.kinds(),
        [EventKind::Attempt, EventKind::NotRetried]
    );
    let stop = recorder.terminal().stop;
    assert_eq!(stop, Some(StopReason::RetryAfterTooLong));
}

//! The two clocks and the gap, against servers that make one wait.

use http::StatusCode;
use http_body_util::BodyExt;
use tokio::time::{Instant, sleep};
use tower::{ServiceBuilder, ServiceExt};
use tower_deadline::{
    AttemptStalled, AttemptTimedOut, AttemptTimeoutLayer, Backoff, Bound, BufferResponsesLayer,
    DeadlineBodyLayer, DeadlineExceeded, DeadlineLayer, EventKind, Phase, ProgressBoundLayer,
    RetryLayer, is_timeout,
};

use crate::support::{
    Connection, LONG, RawServer, Recorder, answer, broken, chunk, client, ended, eventually, get,
    ms, post, text,
};

/// A head at once, and then a frame now and then: 20 in a second.
async fn download(mut connection: Connection) {
    while connection.request().await.is_some() {
        connection
            .write("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
            .await;
        for _ in 0..20 {
            sleep(ms(50)).await;
            connection.write(chunk("frame")).await;
        }
        connection.write("0\r\n\r\n").await;
    }
}

#[tokio::test]
async fn a_healthy_download_outlives_the_deadline_and_the_attempt_timeout() {
    let server = RawServer::start(download).await;
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(ms(700)))
        .layer(RetryLayer::http())
        .layer(AttemptTimeoutLayer::http(ms(600)))
        .layer(ProgressBoundLayer::new(ms(600)))
        .service(client());

    let started = Instant::now();
    let response = stack.oneshot(get(server.uri())).await.unwrap();
    assert_eq!(text(response.into_body()).await, "frame".repeat(20));
    assert!(Instant::now() - started >= ms(1000));
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn an_absolute_end_cuts_the_same_download_at_the_deadline() {
    let server = RawServer::start(download).await;
    let recorder = Recorder::default();
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(ms(500)).on_event(recorder.listener()))
        .layer(DeadlineBodyLayer::new().on_event(recorder.listener()))
        .layer(RetryLayer::http())
        .layer(AttemptTimeoutLayer::http(ms(500)))
        .layer(ProgressBoundLayer::new(ms(500)))
        .service(client());

    let started = Instant::now();
    let response = stack.oneshot(get(server.uri())).await.unwrap();
    let error = broken(response.into_body()).await;
    assert!(Instant::now() - started >= ms(500));
    let exceeded = DeadlineExceeded::find(&error).unwrap();
    assert_eq!(exceeded.deadline(), ms(500));
    assert_eq!(exceeded.phase(), Phase::Body);
    let kinds = recorder.kinds();
    assert_eq!(kinds.last(), Some(&EventKind::Stalled), "{kinds:?}");
    assert_eq!(recorder.terminal().kind, EventKind::Succeeded);
}

/// Takes a request and never answers it.
async fn mute(mut connection: Connection) {
    connection.request().await;
    connection.silence().await;
}

#[tokio::test]
async fn a_server_that_never_answers_gets_three_attempts_within_one_deadline() {
    let server = RawServer::start(mute).await;
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(ms(590)))
        .layer(RetryLayer::http().attempts(3).backoff(Backoff::none()))
        .layer(AttemptTimeoutLayer::http(ms(200)))
        .service(client());

    let started = Instant::now();
    let error = stack.oneshot(get(server.uri())).await.unwrap_err();
    assert!(Instant::now() - started >= ms(590));

    let exceeded = DeadlineExceeded::find(&error).unwrap();
    assert_eq!(exceeded.phase(), Phase::Attempt);
    let attempts: Vec<_> = exceeded.log().iter().collect();
    assert_eq!(attempts.len(), 3);
    for attempt in &attempts[..2] {
        assert_eq!(attempt.ceiling, Some((ms(200), Bound::AttemptTimeout)));
        assert!(attempt.duration >= ms(200));
    }
    let (ceiling, bound) = attempts[2].ceiling.unwrap();
    assert!(ceiling <= ms(190) && bound == Bound::Deadline);
    let cause = std::error::Error::source(exceeded).unwrap();
    assert!(AttemptTimedOut::find(cause).is_some());

    assert_eq!(server.requests().len(), 3);
    eventually("no connection is left behind", || server.closed() == 3).await;
}

#[tokio::test]
async fn a_post_that_is_never_answered_is_sent_once() {
    let server = RawServer::start(mute).await;
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(LONG))
        .layer(RetryLayer::http().attempts(3).backoff(Backoff::none()))
        .layer(AttemptTimeoutLayer::http(ms(150)))
        .service(client());

    let error = stack.oneshot(post(server.uri())).await.unwrap_err();
    let timed_out = AttemptTimedOut::find(&error).unwrap();
    assert_eq!(timed_out.ceiling(), ms(150));
    assert!(timed_out.elapsed() >= ms(150));
    assert_eq!(timed_out.log().len(), 1);
    assert_eq!(server.requests().len(), 1);
    assert_eq!(server.requests()[0].body, b"once");
    eventually("the connection is dropped", || server.closed() == 1).await;
}

#[tokio::test]
async fn a_head_that_drips_does_not_hold_the_attempt_open() {
    let server = RawServer::start(|mut connection| async move {
        connection.request().await;
        let whole = answer("200 OK", "second");
        if connection.number == 1 {
            connection.drip(whole, ms(50)).await;
        } else {
            connection.write(whole).await;
            connection.silence().await;
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
        .layer(AttemptTimeoutLayer::http(ms(400)))
        .service(client());

    let started = Instant::now();
    let response = stack.oneshot(get(server.uri())).await.unwrap();
    assert!(Instant::now() - started >= ms(400));
    assert_eq!(text(response.into_body()).await, "second");
    assert_eq!(server.requests().len(), 2);
    let attempts = recorder.of(EventKind::Attempt);
    assert!(attempts[0].timeout && !attempts[1].timeout);
}

/// A body that takes a second, byte by byte, from the first connection; from others at once.
async fn dripping_first(mut connection: Connection) {
    while connection.request().await.is_some() {
        let body = format!("{:020}", connection.number);
        connection
            .write("HTTP/1.1 200 OK\r\ncontent-length: 20\r\n\r\n")
            .await;
        if connection.number == 1 {
            connection.drip(body, ms(50)).await;
        } else {
            connection.write(body).await;
        }
    }
}

#[tokio::test]
async fn a_body_that_drips_is_no_stall() {
    let server = RawServer::start(dripping_first).await;
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(ms(600)))
        .layer(RetryLayer::http())
        .layer(AttemptTimeoutLayer::http(ms(600)))
        .layer(ProgressBoundLayer::new(ms(600)))
        .service(client());

    let started = Instant::now();
    let response = stack.oneshot(get(server.uri())).await.unwrap();
    assert_eq!(text(response.into_body()).await, format!("{:020}", 1));
    assert!(Instant::now() - started >= ms(900));
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn a_buffered_body_that_drips_is_cut_and_sent_for_again() {
    let server = RawServer::start(dripping_first).await;
    let recorder = Recorder::default();
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(LONG))
        .layer(
            RetryLayer::http()
                .backoff(Backoff::none())
                .on_event(recorder.listener()),
        )
        .layer(AttemptTimeoutLayer::http(ms(400)))
        .layer(BufferResponsesLayer::new())
        .layer(ProgressBoundLayer::new(ms(400)))
        .service(client());

    let started = Instant::now();
    let response = stack.oneshot(get(server.uri())).await.unwrap();
    assert!(Instant::now() - started >= ms(400));
    assert_eq!(text(response.into_body()).await, format!("{:020}", 2));
    assert_eq!(server.requests().len(), 2);
    let attempts = recorder.of(EventKind::Attempt);
    assert_eq!(attempts.len(), 2);
    assert!(attempts[0].timeout && attempts[0].status.is_none());
}

/// A head, half of the body, and then nothing; from other connections than the first the whole.
async fn silent_in_the_middle(mut connection: Connection) {
    while connection.request().await.is_some() {
        if connection.number == 1 {
            connection
                .write("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n12345")
                .await;
            connection.silence().await;
        } else {
            connection.write(answer("200 OK", "abcdefghij")).await;
        }
    }
}

#[tokio::test]
async fn a_body_that_falls_silent_stalls_at_the_gap() {
    let server = RawServer::start(silent_in_the_middle).await;
    let recorder = Recorder::default();
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(LONG).on_event(recorder.listener()))
        .layer(RetryLayer::http())
        .layer(AttemptTimeoutLayer::http(LONG))
        .layer(ProgressBoundLayer::new(ms(200)).on_event(recorder.listener()))
        .service(client());

    let response = stack.clone().oneshot(get(server.uri())).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    let mut body = response.into_body();
    let first = body.frame().await.unwrap().unwrap();
    assert_eq!(first.into_data().unwrap(), "12345");

    let started = Instant::now();
    let error = ended(body.frame()).await.unwrap().unwrap_err();
    assert!(Instant::now() - started >= ms(200));
    let stalled = AttemptStalled::find(&error).unwrap();
    assert_eq!(stalled.gap(), ms(200));
    assert_eq!((stalled.bytes(), stalled.frames()), (5, 1));
    assert!(is_timeout(&error));
    assert!(body.frame().await.is_none());
    assert_eq!(recorder.kinds(), [EventKind::Succeeded, EventKind::Stalled]);
    assert_eq!(server.requests().len(), 1);

    // The inner body is gone, although this one is held.
    eventually("the connection is dropped", || server.closed() == 1).await;
    drop((body, stack));
}

#[tokio::test]
async fn a_buffered_body_that_falls_silent_is_one_more_failed_attempt() {
    // The second connection is served when the first one has been closed.
    let server = RawServer::one_at_a_time(silent_in_the_middle).await;
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
        .layer(ProgressBoundLayer::new(ms(300)))
        .service(client());

    let response = stack.oneshot(get(server.uri())).await.unwrap();
    assert_eq!(text(response.into_body()).await, "abcdefghij");
    assert_eq!(server.requests().len(), 2);
    let attempts = recorder.of(EventKind::Attempt);
    assert!(attempts[0].timeout && attempts.len() == 2);
}

#[tokio::test]
async fn a_stall_inside_an_attempt_is_told_as_an_attempt_only() {
    let server = RawServer::start(silent_in_the_middle).await;
    let recorder = Recorder::default();
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(LONG).on_event(recorder.listener()))
        .layer(
            RetryLayer::http()
                .backoff(Backoff::none())
                .on_event(recorder.listener()),
        )
        .layer(AttemptTimeoutLayer::http(LONG))
        .layer(BufferResponsesLayer::new())
        .layer(ProgressBoundLayer::new(ms(300)).on_event(recorder.listener()))
        .service(client());

    let response = stack.oneshot(get(server.uri())).await.unwrap();
    assert_eq!(text(response.into_body()).await, "abcdefghij");
    assert_eq!(
        recorder.kinds(),
        [
            EventKind::Attempt,
            EventKind::Retrying,
            EventKind::Attempt,
            EventKind::Succeeded
        ]
    );
}

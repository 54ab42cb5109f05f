//! Connections that are refused, lost, reused and given back.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use http::Request;
use http_body::Frame;
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tower::{ServiceBuilder, ServiceExt};
use tower_deadline::{
    AttemptTimeoutLayer, Backoff, BoxError, DeadlineLayer, Event, EventKind, RetryLayer, Verdict,
};

use crate::support::{
    Body, Connection, Counter, LONG, RawServer, Recorder, Refusing, answer, chunk, client, ended,
    eventually, get, lock, ms, post, text, uri,
};

/// Serves the first request of its first connection, and takes the second one without a word.
async fn hangs_up_on_the_second(mut connection: Connection) {
    while let Some(number) = connection.request().await {
        if number == 2 {
            return;
        }
        connection.write(answer("200 OK", "served")).await;
    }
}

#[tokio::test]
async fn a_get_that_meets_a_closing_connection_is_sent_again() {
    let server = RawServer::start(hangs_up_on_the_second).await;
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

    for _ in 0..2 {
        let response = stack.clone().oneshot(get(server.uri())).await.unwrap();
        assert_eq!(text(response.into_body()).await, "served");
    }
    let connections: Vec<_> = server.requests().iter().map(|r| r.connection).collect();
    assert_eq!(connections, [1, 1, 2]);
    assert_eq!(recorder.of(EventKind::Retrying).len(), 1);
}

#[tokio::test]
async fn a_post_that_meets_a_closing_connection_is_not_since_it_may_have_been_acted_on() {
    for unprocessed in [false, true] {
        let server = RawServer::start(hangs_up_on_the_second).await;
        let stack = ServiceBuilder::new()
            .layer(DeadlineLayer::new(LONG))
            .layer(
                RetryLayer::http()
                    .backoff(Backoff::none())
                    .retry_unprocessed(unprocessed),
            )
            .layer(AttemptTimeoutLayer::http(LONG))
            .service(client());

        let response = stack.clone().oneshot(post(server.uri())).await.unwrap();
        assert_eq!(text(response.into_body()).await, "served");
        let error = stack.oneshot(post(server.uri())).await.unwrap_err();
        assert!(!tower_deadline::is_timeout(&error));
        assert!(!tower_deadline::never_left(&*error));
        let requests = server.requests();
        assert_eq!(requests.len(), 2);
        assert!(requests.iter().all(|r| r.connection == 1));
    }
}

/// What became of a request to an address that refuses connections: attempts, and the events.
async fn refused(request: Request<Body>, unprocessed: bool) -> (usize, Recorder) {
    let (counter, recorder) = (Counter::default(), Recorder::default());
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(LONG))
        .layer(
            RetryLayer::http()
                .attempts(3)
                .backoff(Backoff::none())
                .retry_unprocessed(unprocessed)
                .on_event(recorder.listener()),
        )
        .layer(AttemptTimeoutLayer::http(LONG))
        .map_request(counter.counting())
        .service(client());
    let error = stack.oneshot(request).await.unwrap_err();
    assert!(tower_deadline::never_left(&*error));
    assert!(!tower_deadline::is_timeout(&error));
    (counter.count(), recorder)
}

#[tokio::test]
async fn a_refused_connection_is_transient() {
    let nobody = Refusing::new();
    let (sent, recorder) = refused(get(uri(nobody.address)), false).await;
    assert_eq!(sent, 3);
    let attempts = recorder.of(EventKind::Attempt);
    assert_eq!(attempts.len(), 3);
    for attempt in attempts {
        assert_eq!(attempt.verdict, Some(Verdict::Transient));
    }
}

#[tokio::test]
async fn a_refused_connection_is_transient_without_http_too() {
    let nobody = Refusing::new();
    let recorder = Recorder::default();
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(LONG))
        .layer(
            RetryLayer::new()
                .attempts(3)
                .backoff(Backoff::none())
                .on_event(recorder.listener()),
        )
        .layer(AttemptTimeoutLayer::new(LONG))
        .service_fn(TcpStream::connect::<SocketAddr>);
    let error = stack.oneshot(nobody.address).await.unwrap_err();
    let error = error.downcast::<io::Error>().unwrap();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    assert_eq!(recorder.of(EventKind::Attempt).len(), 3);
}

#[tokio::test]
async fn a_post_to_a_refused_connection_is_sent_again_only_where_asked_for_and_once() {
    let nobody = Refusing::new();
    let (sent, _) = refused(post(uri(nobody.address)), false).await;
    assert_eq!(sent, 1);
    let (sent, _) = refused(post(uri(nobody.address)), true).await;
    assert_eq!(sent, 2);
}

#[tokio::test]
async fn a_post_that_was_refused_arrives_once_and_whole() {
    let refusing = Refusing::new();
    let address = refusing.address;
    let (refusing, server) = (Mutex::new(Some(refusing)), Arc::new(Mutex::new(None)));
    let kept = server.clone();
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(LONG))
        .layer(
            RetryLayer::http()
                .backoff(Backoff::constant(ms(20)))
                .retry_unprocessed(true)
                .on_event(move |event: &Event<'_>| {
                    if event.kind == EventKind::Retrying {
                        let listener = lock(&refusing).take().unwrap().listen();
                        let script = |mut connection: Connection| async move {
                            while connection.request().await.is_some() {
                                connection.write(answer("200 OK", "taken")).await;
                            }
                        };
                        *lock(&kept) = Some(RawServer::on(listener, script, false));
                    }
                }),
        )
        .layer(AttemptTimeoutLayer::http(LONG))
        .service(client());

    let response = stack.oneshot(post(uri(address))).await.unwrap();
    assert_eq!(text(response.into_body()).await, "taken");
    let requests = lock(&server).as_ref().unwrap().requests();
    assert_eq!(requests.len(), 1);
    assert!(requests[0].head.starts_with("POST / "));
    assert_eq!(requests[0].body, b"once");
}

#[tokio::test]
async fn the_connection_of_a_small_failed_response_serves_the_retry() {
    let server = RawServer::start(|mut connection| async move {
        while let Some(number) = connection.request().await {
            let whole = match number {
                1 => answer("503 Service Unavailable", "small"),
                _ => answer("200 OK", "good"),
            };
            connection.write(whole).await;
        }
    })
    .await;
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(LONG))
        .layer(RetryLayer::http().backoff(Backoff::constant(ms(100))))
        .layer(AttemptTimeoutLayer::http(LONG))
        .service(client());

    let response = stack.oneshot(get(server.uri())).await.unwrap();
    assert_eq!(text(response.into_body()).await, "good");
    assert_eq!(server.requests().len(), 2);
    assert_eq!(server.connections(), 1);
}

/// Fails the first request with a body that never ends, and answers the others.
async fn endless_failure(mut connection: Connection) {
    while let Some(number) = connection.request().await {
        if number == 1 {
            connection
                .write("HTTP/1.1 503 Service Unavailable\r\ntransfer-encoding: chunked\r\n\r\n")
                .await;
            connection.write(chunk("and so on")).await;
            connection.silence().await;
        } else {
            connection.write(answer("200 OK", "good")).await;
        }
    }
}

#[tokio::test]
async fn a_server_of_one_connection_gets_it_back_before_the_retry() {
    let server = RawServer::one_at_a_time(endless_failure).await;
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(LONG))
        .layer(RetryLayer::http().backoff(Backoff::constant(ms(20))))
        .layer(AttemptTimeoutLayer::http(LONG))
        .service(client());

    let response = stack.oneshot(get(server.uri())).await.unwrap();
    assert_eq!(text(response.into_body()).await, "good");
    assert_eq!(server.requests().len(), 2);
    assert_eq!(server.connections(), 2);
}

/// A body that holds a place in the pool.
#[derive(Debug)]
struct Holding<B>(B, #[allow(dead_code)] OwnedSemaphorePermit);

impl<B: http_body::Body + Unpin> http_body::Body for Holding<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        std::pin::Pin::new(&mut self.0).poll_frame(cx)
    }
}

#[tokio::test]
async fn a_pool_of_one_connection_is_free_while_the_backoff_is_slept() {
    let server = RawServer::start(endless_failure).await;
    let pool = Arc::new(Semaphore::new(1));
    let (places, free) = (pool.clone(), Arc::new(Mutex::new(Vec::new())));
    let noted = free.clone();
    let looked_at = pool.clone();
    let client = client();
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(LONG))
        .layer(
            RetryLayer::http()
                .backoff(Backoff::constant(ms(20)))
                .on_event(move |event: &Event<'_>| {
                    if event.kind == EventKind::Retrying {
                        lock(&noted).push(looked_at.available_permits());
                    }
                }),
        )
        .layer(AttemptTimeoutLayer::http(LONG))
        .service_fn(move |request: Request<Body>| {
            let (places, client) = (places.clone(), client.clone());
            async move {
                let place = places.acquire_owned().await?;
                let response = client.request(request).await?;
                Ok::<_, BoxError>(response.map(|body| Holding(body, place)))
            }
        });

    let response = ended(stack.oneshot(get(server.uri()))).await.unwrap();
    assert_eq!(pool.available_permits(), 0);
    assert_eq!(text(response.into_body()).await, "good");
    assert_eq!(*lock(&free), [1]);
    eventually("the place is given back", || pool.available_permits() == 1).await;
}

//! Another attempt: where it is made, with what, and when.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri, Version};
use http_body::Frame;
use http_body_util::BodyExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tower::buffer::BufferLayer;
use tower::{ServiceBuilder, ServiceExt};
use tower_deadline::{
    AttemptTimeoutLayer, Backoff, BoxError, CallOverride, DeadlineLayer, Event, EventKind,
    OverrideLayer, RetryLayer, StopReason, Verdict,
};

use crate::support::{
    Body, Connection, Counter, LONG, RawServer, Recorder, Refusing, Task, answer, chunk, client,
    client_of, ended, eventually, get, lock, ms, post, request, text, uri,
};

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

/// Silent to the first request, and prompt with the others.
async fn silent_first(mut connection: Connection) {
    while let Some(number) = connection.request().await {
        if number == 1 {
            connection.silence().await;
        } else {
            connection.write(answer("200 OK", "good")).await;
        }
    }
}

/// What others wrap errors in.
#[derive(Debug)]
struct Wrapped(BoxError);

impl std::fmt::Display for Wrapped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("wrapped")
    }
}

impl std::error::Error for Wrapped {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&*self.0)
    }
}

type Answered = Response<hyper::body::Incoming>;

/// Makes a call whose first attempt times out beneath what `$between` puts between the layers.
macro_rules! attempt_timeout_through {
    ($name:ident, |$builder:ident| $between:expr) => {
        #[tokio::test]
        async fn $name() {
            let server = RawServer::start(silent_first).await;
            let recorder = Recorder::default();
            let $builder = ServiceBuilder::new().layer(DeadlineLayer::new(LONG)).layer(
                RetryLayer::http()
                    .backoff(Backoff::none())
                    .on_event(recorder.listener()),
            );
            let stack = $between
                .layer(AttemptTimeoutLayer::http(ms(400)))
                .service(client());

            let response = stack.oneshot(get(server.uri())).await.unwrap();
            assert_eq!(text(response.into_body()).await, "good");
            assert_eq!(server.requests().len(), 2);
            let attempts = recorder.of(EventKind::Attempt);
            assert_eq!(attempts[0].verdict, Some(Verdict::Transient));
            assert!(attempts[0].timeout && !attempts[1].timeout);
            assert_eq!(attempts[1].attempt, 2);
        }
    };
}

attempt_timeout_through!(an_attempt_timeout_is_recognised_through_a_buffer, |stack| {
    stack.layer(BufferLayer::<Request<Body>>::new(4))
});

attempt_timeout_through!(
    an_attempt_timeout_is_recognised_through_a_mapped_error,
    |stack| stack.map_err(Into::<BoxError>::into)
);

attempt_timeout_through!(
    an_attempt_timeout_is_recognised_inside_another_error,
    |stack| stack.map_err(Wrapped)
);

attempt_timeout_through!(
    an_attempt_timeout_is_recognised_inside_an_io_error,
    |stack| stack.map_err(std::io::Error::other)
);

attempt_timeout_through!(
    an_attempt_timeout_is_recognised_through_a_boxed_service,
    |stack| {
        stack.layer(tower::layer::layer_fn(|inner| {
            tower::util::BoxCloneService::<Request<Body>, Answered, BoxError>::new(inner)
        }))
    }
);

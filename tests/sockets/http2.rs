//! What an HTTP/2 peer says of the streams it did not process.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use h2::Reason;
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tower::{ServiceBuilder, ServiceExt};
use tower_deadline::{
    AttemptTimeoutLayer, Backoff, BoxError, DeadlineLayer, EventKind, RetryLayer, StopReason,
    Verdict, is_timeout, never_left,
};

use crate::support::{
    Body, LONG, Recorder, Task, client_http2, get, lock, post, request, text, uri,
};

/// What an [`H2Server`] does with a stream.
#[derive(Debug, Clone, Copy)]
enum Answer {
    /// Resets it, having read nothing of its body.
    Reset(Reason),
    /// Reads it and answers with this status.
    Status(u16),
    /// Reads it, and then goes away, this stream not excepted from what it processed.
    GoAway(Reason),
}

/// A stream as the server saw it; its body, where it was read.
#[derive(Debug, Clone)]
struct Stream {
    method: Method,
    headers: HeaderMap,
    body: Option<Vec<u8>>,
}

/// An HTTP/2 server that resets streams.
struct H2Server {
    address: SocketAddr,
    streams: Arc<Mutex<Vec<Stream>>>,
    _task: Task,
}

impl H2Server {
    /// Does with the n-th stream, counted from 1 over all connections, what `answer` says.
    async fn start(answer: fn(usize) -> Answer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let streams = Arc::new(Mutex::new(Vec::new()));
        let seen = streams.clone();
        let task = Task::spawn(async move {
            let mut connections = Vec::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let serving = serve(stream, answer, seen.clone());
                connections.push(Task::spawn(serving));
            }
        });
        Self {
            address,
            streams,
            _task: task,
        }
    }

    fn uri(&self) -> Uri {
        uri(self.address)
    }

    fn streams(&self) -> Vec<Stream> {
        lock(&self.streams).clone()
    }
}

async fn serve(stream: TcpStream, answer: fn(usize) -> Answer, seen: Arc<Mutex<Vec<Stream>>>) {
    let mut connection = h2::server::handshake(stream).await.unwrap();
    let (go_away, mut going_away) = tokio::sync::mpsc::unbounded_channel();
    let mut answers = Vec::new();
    let mut unanswered = Vec::new();
    loop {
        let accepted = tokio::select! {
            accepted = connection.accept() => accepted,
            Some((reason, respond)) = going_away.recv() => {
                unanswered.push(respond); // dropped, it would reset its stream
                connection.abrupt_shutdown(reason);
                continue;
            }
        };
        let Some(Ok((request, mut respond))) = accepted else {
            break;
        };
        let (head, mut body) = request.into_parts();
        let number = {
            let mut seen = lock(&seen);
            seen.push(Stream {
                method: head.method,
                headers: head.headers,
                body: None,
            });
            seen.len()
        };
        if let Answer::Reset(reason) = answer(number) {
            respond.send_reset(reason);
            continue;
        }
        let (seen, go_away) = (seen.clone(), go_away.clone());
        answers.push(Task::spawn(async move {
            let mut read = Vec::new();
            while let Some(data) = body.data().await {
                let data = data.unwrap();
                read.extend_from_slice(&data);
                body.flow_control().release_capacity(data.len()).unwrap();
            }
            lock(&seen)[number - 1].body = Some(read);
            match answer(number) {
                Answer::GoAway(reason) => go_away.send((reason, respond)).unwrap(),
                Answer::Status(status) => {
                    let response = Response::builder().status(status).body(()).unwrap();
                    let mut body = respond.send_response(response, false).unwrap();
                    body.send_data(Bytes::from_static(b"taken"), true).unwrap();
                }
                Answer::Reset(_) => {}
            }
        }));
    }
}

/// The result of a call, and the events of its retries.
async fn call(
    request: Request<Body>,
    unprocessed: bool,
) -> (Result<Response<hyper::body::Incoming>, BoxError>, Recorder) {
    let recorder = Recorder::default();
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(LONG).on_event(recorder.listener()))
        .layer(
            RetryLayer::http()
                .attempts(5)
                .backoff(Backoff::none())
                .retry_unprocessed(unprocessed)
                .on_event(recorder.listener()),
        )
        .layer(AttemptTimeoutLayer::http(LONG))
        .service(client_http2());
    (stack.oneshot(request).await, recorder)
}

#[tokio::test]
async fn a_post_on_a_refused_stream_is_sent_once_more_where_asked_for() {
    let server = H2Server::start(|_| Answer::Reset(Reason::REFUSED_STREAM)).await;
    let (result, recorder) = call(post(server.uri()), true).await;
    let error = result.unwrap_err();
    assert!(never_left(&*error) && !is_timeout(&error));
    assert_eq!(server.streams().len(), 2);
    assert_eq!(recorder.of(EventKind::Retrying).len(), 1);
    assert_eq!(recorder.terminal().stop, Some(StopReason::NotRepeatable));
}

#[tokio::test]
async fn a_post_on_a_refused_stream_is_sent_once_where_nothing_was_asked_for() {
    let server = H2Server::start(|_| Answer::Reset(Reason::REFUSED_STREAM)).await;
    let (result, recorder) = call(post(server.uri()), false).await;
    assert!(never_left(&*result.unwrap_err()));
    assert_eq!(server.streams().len(), 1);
    assert!(recorder.of(EventKind::Retrying).is_empty());
}

#[tokio::test]
async fn a_refused_post_is_taken_whole_by_the_second_stream() {
    let server = H2Server::start(|number| match number {
        1 => Answer::Reset(Reason::REFUSED_STREAM),
        _ => Answer::Status(200),
    })
    .await;
    let mut request = post(server.uri());
    let headers = request.headers_mut();
    headers.append("x-twice", "one".parse().unwrap());
    headers.append("x-twice", "two".parse().unwrap());
    let (result, _) = call(request, true).await;
    assert_eq!(text(result.unwrap().into_body()).await, "taken");
    let streams = server.streams();
    assert_eq!(streams.len(), 2);
    assert_eq!(streams[0].method, Method::POST);
    assert_eq!(streams[0].method, streams[1].method);
    assert_eq!(streams[0].headers, streams[1].headers);
    let twice: Vec<_> = streams[1].headers.get_all("x-twice").iter().collect();
    assert_eq!(twice, ["one", "two"]);
    assert_eq!(streams[1].body.as_deref(), Some(&b"once"[..]));
}

#[tokio::test]
async fn the_one_retry_of_a_refused_post_is_the_only_one() {
    // Refused, and then a failure after which only what is safe to repeat may follow.
    let server = H2Server::start(|number| match number {
        1 => Answer::Reset(Reason::REFUSED_STREAM),
        _ => Answer::Status(503),
    })
    .await;
    let (result, _) = call(post(server.uri()), true).await;
    assert_eq!(result.unwrap().status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(server.streams().len(), 2);
}

#[tokio::test]
async fn a_get_on_a_refused_stream_is_sent_until_its_attempts_are_spent() {
    let server = H2Server::start(|_| Answer::Reset(Reason::REFUSED_STREAM)).await;
    let (result, recorder) = call(get(server.uri()), false).await;
    result.unwrap_err();
    assert_eq!(server.streams().len(), 5);
    for attempt in recorder.of(EventKind::Attempt) {
        assert_eq!(attempt.verdict, Some(Verdict::Transient));
    }
    assert_eq!(recorder.terminal().stop, Some(StopReason::AttemptsSpent));
}

#[tokio::test]
async fn being_told_to_calm_down_does_not_let_a_post_be_sent_again() {
    let server = H2Server::start(|_| Answer::Reset(Reason::ENHANCE_YOUR_CALM)).await;
    let (result, _) = call(post(server.uri()), true).await;
    assert!(!never_left(&*result.unwrap_err()));
    assert_eq!(server.streams().len(), 1);
}

#[tokio::test]
async fn being_told_to_calm_down_is_transient_for_a_put() {
    let server = H2Server::start(|number| match number {
        1 => Answer::Reset(Reason::ENHANCE_YOUR_CALM),
        _ => Answer::Status(200),
    })
    .await;
    let put = request(Method::PUT, server.uri(), "whole");
    let (result, recorder) = call(put, false).await;
    assert_eq!(text(result.unwrap().into_body()).await, "taken");
    assert_eq!(server.streams().len(), 2);
    assert_eq!(server.streams()[1].body.as_deref(), Some(&b"whole"[..]));
    let attempts = recorder.of(EventKind::Attempt);
    assert_eq!(attempts[0].verdict, Some(Verdict::Transient));
}

#[tokio::test]
async fn a_post_that_a_leaving_peer_has_taken_in_is_not_sent_again() {
    // The peer goes away in good order, and says that it has processed this very stream.
    let server = H2Server::start(|_| Answer::GoAway(Reason::NO_ERROR)).await;
    let (result, _) = call(post(server.uri()), true).await;
    assert!(!never_left(&*result.unwrap_err()));
    assert_eq!(server.streams().len(), 1);
    assert_eq!(server.streams()[0].body.as_deref(), Some(&b"once"[..]));
}

/// A peer that goes away at the first stream of each of its first `leaves` connections, saying that
/// it has processed none, and serves the others.
async fn leaving(reason: Reason, leaves: usize) -> (SocketAddr, Arc<Mutex<usize>>, Task) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let connections = Arc::new(Mutex::new(0));
    let counted = connections.clone();
    let task = Task::spawn(async move {
        let mut serving = Vec::new();
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let number = {
                let mut connections = lock(&counted);
                *connections += 1;
                *connections
            };
            serving.push(if number <= leaves {
                Task::spawn(leave(stream, reason))
            } else {
                let served = Arc::new(Mutex::new(Vec::new()));
                Task::spawn(serve(stream, |_| Answer::Status(200), served))
            });
        }
    });
    (address, connections, task)
}

/// Reads up to the first HEADERS frame, and answers with GOAWAY, byte by byte as RFC 9113 has them.
async fn leave(mut stream: TcpStream, reason: Reason) {
    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    const HEADERS: u8 = 1;
    const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];

    stream.write_all(&SETTINGS).await.unwrap();
    let mut preface = vec![0; PREFACE.len()];
    stream.read_exact(&mut preface).await.unwrap();
    assert_eq!(preface, PREFACE);
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await.unwrap();
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; length as usize];
        stream.read_exact(&mut payload).await.unwrap();
        if head[3] == HEADERS {
            break;
        }
    }
    let mut go_away = vec![0, 0, 8, 7, 0, 0, 0, 0, 0]; // length 8, type GOAWAY, stream 0
    go_away.extend_from_slice(&0_u32.to_be_bytes()); // the last stream that was processed: none
    go_away.extend_from_slice(&u32::from(reason).to_be_bytes());
    stream.write_all(&go_away).await.unwrap();
    // Reads on, so that what is still on its way is not answered with a reset.
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest).await;
}

#[tokio::test]
async fn a_post_that_a_leaving_peer_has_not_taken_in_is_sent_once_more_where_asked_for() {
    let (address, connections, _server) = leaving(Reason::NO_ERROR, usize::MAX).await;
    let (result, recorder) = call(post(uri(address)), true).await;
    assert!(never_left(&*result.unwrap_err()));
    assert_eq!(*lock(&connections), 2);
    assert_eq!(recorder.of(EventKind::Retrying).len(), 1);
}

#[tokio::test]
async fn a_post_that_a_leaving_peer_has_not_taken_in_reaches_its_successor() {
    let (address, connections, _server) = leaving(Reason::NO_ERROR, 1).await;
    let (result, _) = call(post(uri(address)), true).await;
    assert_eq!(text(result.unwrap().into_body()).await, "taken");
    assert_eq!(*lock(&connections), 2);
}

#[tokio::test]
async fn a_post_that_a_leaving_peer_has_not_taken_in_is_sent_once_where_nothing_was_asked_for() {
    let (address, connections, _server) = leaving(Reason::NO_ERROR, usize::MAX).await;
    let (result, _) = call(post(uri(address)), false).await;
    assert!(never_left(&*result.unwrap_err()));
    assert_eq!(*lock(&connections), 1);
}

#[tokio::test]
async fn a_peer_that_leaves_because_it_is_overloaded_proves_nothing() {
    let (address, connections, _server) = leaving(Reason::ENHANCE_YOUR_CALM, usize::MAX).await;
    let (result, _) = call(post(uri(address)), true).await;
    assert!(!never_left(&*result.unwrap_err()));
    assert_eq!(*lock(&connections), 1);
}

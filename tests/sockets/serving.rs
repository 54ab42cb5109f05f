//! Responses that came through the layers, served out again: what is on the wire then.

use std::convert::Infallible;

use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{Request, Response, Uri};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tower::{Service, ServiceBuilder, ServiceExt};
use tower_deadline::{
    AttemptTimeoutLayer, Backoff, BoxError, BufferResponsesLayer, DeadlineBodyLayer, DeadlineLayer,
    OverrideLayer, ProgressBoundLayer, RetryLayer,
};

use crate::support::{Connection, LONG, RawServer, Task, chunk, client_of, ended, find, uri};

/// A server of hyper's that passes on what `stack` brings from `upstream`. Of what is said of one
/// hop nothing is passed on, and with `forget_length` the length is not either, so that hyper has to
/// find out from the body.
async fn proxy<S, B>(stack: S, upstream: Uri, forget_length: bool) -> (Uri, Task)
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = BoxError>,
    S: Clone + Send + Sync + 'static,
    S::Future: Send,
    B: http_body::Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let here = uri(listener.local_addr().unwrap());
    let task = Task::spawn(async move {
        let mut serving = Vec::new();
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let (stack, upstream) = (stack.clone(), upstream.clone());
            let service = service_fn(move |mut request: Request<Incoming>| {
                *request.uri_mut() = upstream.clone();
                request.headers_mut().remove("te");
                request.headers_mut().remove("connection");
                request.headers_mut().remove("host");
                let stack = stack.clone();
                async move {
                    let mut response = stack.oneshot(request).await.unwrap();
                    response.headers_mut().remove(TRANSFER_ENCODING);
                    if forget_length {
                        response.headers_mut().remove(CONTENT_LENGTH);
                    }
                    Ok::<_, Infallible>(response.map(|body| body.map_err(Into::into)))
                }
            });
            serving.push(Task::spawn(async move {
                let connection = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service);
                let _ = connection.await;
            }));
        }
    });
    (here, task)
}

/// The whole stack but for its innermost layers.
macro_rules! outer {
    () => {
        ServiceBuilder::new()
            .layer(OverrideLayer::new())
            .layer(DeadlineLayer::new(LONG))
            .layer(DeadlineBodyLayer::new())
            .layer(
                RetryLayer::http()
                    .copy(|_: &Request<Incoming>| None)
                    .backoff(Backoff::none()),
            )
            .layer(AttemptTimeoutLayer::http(LONG))
    };
}

/// What a server sends, head and body, to a client that is content with trailers and closes.
async fn bytes_of(method: &str, uri: &Uri) -> (String, String) {
    let authority = uri.authority().unwrap();
    let mut stream = TcpStream::connect(authority.as_str()).await.unwrap();
    let request = format!(
        "{method} / HTTP/1.1\r\nhost: {authority}\r\nte: trailers\r\nconnection: close, te\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut bytes = Vec::new();
    ended(stream.read_to_end(&mut bytes)).await.unwrap();
    let body = bytes.split_off(find(&bytes, b"\r\n\r\n").unwrap() + 4);
    let head = String::from_utf8(bytes).unwrap().to_ascii_lowercase();
    (head, String::from_utf8(body).unwrap())
}

/// What is in the chunks of a body, and the trailers.
fn dechunked(mut body: &str) -> (String, &str) {
    let mut data = String::new();
    loop {
        let (size, rest) = body.split_once("\r\n").unwrap();
        let size = usize::from_str_radix(size, 16).unwrap();
        if size == 0 {
            return (data, rest);
        }
        data.push_str(&rest[..size]);
        body = rest[size..].strip_prefix("\r\n").unwrap();
    }
}

async fn known_length(mut connection: Connection) {
    while connection.request().await.is_some() {
        connection
            .write("HTTP/1.1 200 OK\r\ncontent-length: 11\r\n\r\nhello")
            .await;
        connection.write(" world").await;
    }
}

async fn streamed(mut connection: Connection) {
    while connection.request().await.is_some() {
        connection
            .write("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
            .await;
        connection.write(chunk("hello")).await;
        connection.write(chunk(" world")).await;
        connection.write("0\r\n\r\n").await;
    }
}

async fn with_trailers(mut connection: Connection) {
    while connection.request().await.is_some() {
        connection
            .write("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x-sum\r\n\r\n")
            .await;
        connection.write(chunk("hello")).await;
        connection.write("0\r\nx-sum: 42\r\n\r\n").await;
    }
}

/// Asserts that a response has exactly this length on the wire, and is not chunked.
fn assert_length(head: &str, body: &str) {
    assert!(head.starts_with("http/1.1 200 ok\r\n"), "{head}");
    assert!(head.contains("\r\ncontent-length: 11\r\n"), "{head}");
    assert!(!head.contains("transfer-encoding"), "{head}");
    assert_eq!(body, "hello world");
}

/// Asserts that a response is chunked on the wire, and has no length.
fn assert_chunked(head: &str, body: &str) {
    assert!(head.starts_with("http/1.1 200 ok\r\n"), "{head}");
    assert!(
        head.contains("\r\ntransfer-encoding: chunked\r\n"),
        "{head}"
    );
    assert!(!head.contains("content-length"), "{head}");
    assert_eq!(dechunked(body).0, "hello world");
}

#[tokio::test]
async fn a_response_of_known_length_keeps_it_through_the_whole_stack() {
    let server = RawServer::start(known_length).await;
    let live = outer!()
        .layer(ProgressBoundLayer::new(LONG))
        .service(client_of());
    for forget_length in [false, true] {
        let (proxy, _task) = proxy(live.clone(), server.uri(), forget_length).await;
        let (head, body) = bytes_of("GET", &proxy).await;
        assert_length(&head, &body);
    }
}

#[tokio::test]
async fn a_buffered_response_of_known_length_keeps_it_through_the_whole_stack() {
    let server = RawServer::start(known_length).await;
    // Read whole, at the limit, and too large.
    for max_bytes in [1000, 11, 10, 0] {
        let stack = outer!()
            .layer(BufferResponsesLayer::new().max_bytes(max_bytes))
            .layer(ProgressBoundLayer::new(LONG))
            .service(client_of());
        for forget_length in [false, true] {
            let (proxy, _task) = proxy(stack.clone(), server.uri(), forget_length).await;
            let (head, body) = bytes_of("GET", &proxy).await;
            assert_length(&head, &body);
        }
    }
}

#[tokio::test]
async fn a_streamed_response_stays_chunked_through_the_whole_stack() {
    let server = RawServer::start(streamed).await;
    let live = outer!()
        .layer(ProgressBoundLayer::new(LONG))
        .service(client_of());
    let (proxy, _task) = proxy(live, server.uri(), false).await;
    let (head, body) = bytes_of("GET", &proxy).await;
    assert_chunked(&head, &body);
}

#[tokio::test]
async fn a_streamed_response_has_a_length_once_it_is_buffered_and_none_when_it_is_too_large() {
    let server = RawServer::start(streamed).await;
    for (max_bytes, fits) in [(1000, true), (11, true), (10, false), (0, false)] {
        let stack = outer!()
            .layer(BufferResponsesLayer::new().max_bytes(max_bytes))
            .layer(ProgressBoundLayer::new(LONG))
            .service(client_of());
        let (proxy, _task) = proxy(stack, server.uri(), false).await;
        let (head, body) = bytes_of("GET", &proxy).await;
        if fits {
            assert_length(&head, &body);
        } else {
            assert_chunked(&head, &body);
        }
    }
}

#[tokio::test]
async fn trailers_arrive_behind_the_data_buffered_or_not() {
    let server = RawServer::start(with_trailers).await;
    let expected = ("hello".to_owned(), "x-sum: 42\r\n\r\n");
    let live = outer!()
        .layer(ProgressBoundLayer::new(LONG))
        .service(client_of());
    let (live, _task) = proxy(live, server.uri(), false).await;
    let (_, body) = bytes_of("GET", &live).await;
    assert_eq!(dechunked(&body), expected);

    for max_bytes in [1000, 5, 4] {
        let stack = outer!()
            .layer(BufferResponsesLayer::new().max_bytes(max_bytes))
            .layer(ProgressBoundLayer::new(LONG))
            .service(client_of());
        let (buffered, _task) = proxy(stack, server.uri(), false).await;
        let (head, body) = bytes_of("GET", &buffered).await;
        assert!(!head.contains("content-length"), "{head}");
        assert_eq!(dechunked(&body), expected);
    }
}

#[tokio::test]
async fn the_length_that_a_head_request_asks_for_is_passed_on() {
    let server = RawServer::start(|mut connection| async move {
        while connection.request().await.is_some() {
            connection
                .write("HTTP/1.1 200 OK\r\ncontent-length: 1000000000\r\n\r\n")
                .await;
        }
    })
    .await;
    let stack = outer!()
        .layer(BufferResponsesLayer::new())
        .layer(ProgressBoundLayer::new(LONG))
        .service(client_of());
    let (proxy, _task) = proxy(stack, server.uri(), false).await;
    let (head, body) = bytes_of("HEAD", &proxy).await;
    assert!(
        head.contains("\r\ncontent-length: 1000000000\r\n"),
        "{head}"
    );
    assert_eq!(body, "");
}

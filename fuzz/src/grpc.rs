//! Responses with a status of gRPC.

use std::convert::Infallible;
use std::future::ready;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Full};
use tower::{ServiceBuilder, ServiceExt, service_fn};
use tower_deadline::{BufferResponsesLayer, Classify, GrpcClassifier, Verdict};

use crate::{headers, poll};

/// A response with these fields: in its head, and in its trailers.
///
/// # Panics
///
/// When the verdict on it is not one that the bytes allow of.
pub fn grpc(data: &[u8]) {
    let fields = headers(data);
    let mut head = Response::new(());
    head.headers_mut().clone_from(&fields);
    let in_head = judged(&head);
    check(&fields, in_head);

    let in_trailers = judged(&read(&fields));
    check(&fields, in_trailers);
    if fields.contains_key("grpc-status") {
        assert_eq!(in_head, in_trailers);
    } else {
        assert_eq!(in_head.0, Verdict::Ok);
        assert_eq!(in_trailers.0, Verdict::Permanent);
    }

    for status in [204, 404, 429, 500, 503] {
        let mut head = Response::builder().status(status).body(()).unwrap();
        head.headers_mut().clone_from(&fields);
        let judged = judged(&head);
        if fields.contains_key("grpc-status") {
            assert_eq!(judged, in_head);
        } else {
            assert_ne!(judged.0, Verdict::Ok);
        }
    }
}

type Judged = (Verdict, Option<Duration>, Option<u16>);

fn judged<B>(response: &Response<B>) -> Judged {
    (
        GrpcClassifier.classify(Ok(response)),
        GrpcClassifier.wait(Ok(response)),
        GrpcClassifier.status(response),
    )
}

/// The response to a call that has these trailers, when it has been read.
fn read(fields: &HeaderMap) -> Response<impl Sized> {
    let stack = ServiceBuilder::new()
        .layer(BufferResponsesLayer::new())
        .service(service_fn(|_: Request<()>| {
            let body = Full::new(Bytes::from_static(b"\0\0\0\0\0"));
            let body = body.with_trailers(ready(Some(Ok(fields.clone()))));
            ready(Ok::<_, Infallible>(Response::new(body)))
        }));
    match poll(stack.oneshot(Request::new(()))) {
        Poll::Ready(Ok(response)) => response,
        Poll::Ready(Err(error)) => panic!("{error}"),
        Poll::Pending => panic!("all of it is there"),
    }
}

fn check(fields: &HeaderMap, (verdict, wait, status): Judged) {
    if matches!(verdict, Verdict::Transient | Verdict::Throttled) {
        assert!(matches!(status, Some(8 | 14)), "{status:?}");
    }
    if let Some(status) = status {
        assert!(status <= 16, "{status}");
    }
    let mut asked = fields.get_all("grpc-retry-pushback-ms").iter().peekable();
    assert_eq!(wait.is_some(), asked.peek().is_some());
    for value in asked {
        let value = value.as_bytes().trim_ascii();
        let wait = wait.unwrap();
        if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
            assert_eq!(wait, Duration::MAX, "not again");
        }
        // Never sooner than asked.
        let digits = std::str::from_utf8(value).ok();
        if let Some(ms) = digits.and_then(|digits| digits.parse().ok()) {
            assert!(wait >= Duration::from_millis(ms));
        }
    }
}

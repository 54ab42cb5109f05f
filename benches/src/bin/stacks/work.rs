//! What is called: a service that answers at once, or after one wait; and the requests.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use tower::Service;

use crate::stacks::Req;

/// How an inner service answers.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Answers {
    AtOnce,
    /// After it has been pending once; the task is woken at once.
    PendingOnce,
    Never,
}

#[derive(Clone)]
pub(crate) struct Answering(pub(crate) Answers);

impl Service<Req> for Answering {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Answer;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Req) -> Answer {
        drop(request);
        Answer(self.0)
    }
}

pub(crate) struct Answer(Answers);

impl Future for Answer {
    type Output = Result<Response<Full<Bytes>>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.0 {
            Answers::AtOnce => Poll::Ready(Ok(Response::new(Full::new(Bytes::from_static(b"ok"))))),
            Answers::PendingOnce => {
                self.0 = Answers::AtOnce;
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            Answers::Never => Poll::Pending,
        }
    }
}

/// No headers, no body.
pub(crate) fn small(method: http::Method) -> Req {
    Request::builder()
        .method(method)
        .uri("http://example.com/things/7")
        .body(Full::default())
        .expect("a request")
}

/// Six headers and 256 bytes.
pub(crate) fn typical(method: http::Method) -> Req {
    Request::builder()
        .method(method)
        .uri("http://example.com/things/7")
        .header("accept", "application/json")
        .header("accept-encoding", "gzip, br")
        .header("authorization", "Bearer 0123456789abcdef0123456789abcdef")
        .header("content-type", "application/json")
        .header("user-agent", "bench/1.0")
        .header("x-request-id", "8a1f9ec2-50f1-4be4-9c5c-5f4e2f1c3b4a")
        .body(Full::new(Bytes::from(vec![b'x'; 256])))
        .expect("a request")
}

//! What the happy path allocates: nothing of its own.

#![allow(clippy::unwrap_used)]

use std::convert::Infallible;
use std::future::{Future, Ready, ready};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use allocation_counter::measure;
use bytes::Bytes;
use http::{Method, Request, Response};
use http_body::{Body, Frame};
use http_body_util::Full;
use tower::{Layer, Service, ServiceBuilder};
use tower_deadline::{
    AttemptTimeoutLayer, BoundReadinessLayer, BoxError, BufferResponsesLayer, DeadlineBodyLayer,
    DeadlineLayer, OverrideLayer, ProgressBody, ProgressBoundLayer, RetryLayer,
};

const SECOND: Duration = Duration::from_secs(1);

type Req = Request<Full<Bytes>>;
type Res = Response<Full<Bytes>>;

/// Answers at once, and allocates nothing.
#[derive(Clone)]
struct Immediate;

impl Service<Req> for Immediate {
    type Response = Res;
    type Error = BoxError;
    type Future = Ready<Result<Res, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Req) -> Self::Future {
        ready(Ok(Response::new(Full::new(Bytes::from_static(b"answer")))))
    }
}

fn request(method: Method) -> Req {
    let mut request = Request::new(Full::new(Bytes::from_static(b"question")));
    *request.method_mut() = method;
    *request.uri_mut() = "http://example.com/path".parse().unwrap();
    request
}

/// Allocations of one call that is ready at once, after one to warm up.
fn allocations<S>(mut stack: S, method: &Method) -> u64
where
    S: Service<Req, Error = BoxError>,
{
    let mut cx = Context::from_waker(Waker::noop());
    let mut counted = 0;
    for _ in 0..2 {
        let request = request(method.clone());
        counted = measure(|| {
            assert!(stack.poll_ready(&mut cx).is_ready());
            let future = pin!(stack.call(request));
            assert!(matches!(future.poll(&mut cx), Poll::Ready(Ok(_))));
        })
        .count_total;
    }
    counted
}

fn whole_stack<S>(inner: S) -> impl Service<Req, Error = BoxError>
where
    S: Service<Req, Response = Res, Error = BoxError> + Clone,
{
    ServiceBuilder::new()
        .layer(OverrideLayer::new())
        .layer(DeadlineLayer::new(30 * SECOND))
        .layer(DeadlineBodyLayer::new())
        .layer(RetryLayer::http())
        .layer(AttemptTimeoutLayer::http(10 * SECOND))
        .layer(ProgressBoundLayer::new(10 * SECOND))
        .service(inner)
}

#[test]
fn a_call_that_succeeds_at_once_and_may_not_be_retried_allocates_nothing() {
    assert_eq!(allocations(whole_stack(Immediate), &Method::POST), 0);
}

#[test]
fn a_call_that_may_be_retried_allocates_no_more_than_its_copy() {
    let copy = measure(|| drop(request(Method::GET))).count_total;
    let cloned = measure(|| {
        let request = request(Method::GET);
        drop(request.clone());
    })
    .count_total;
    assert!(allocations(whole_stack(Immediate), &Method::GET) <= cloned - copy);
}

#[test]
fn each_layer_alone_allocates_nothing() {
    let get = &Method::GET;
    let post = &Method::POST;
    assert_eq!(
        allocations(DeadlineLayer::new(SECOND).layer(Immediate), get),
        0
    );
    assert_eq!(
        allocations(BoundReadinessLayer::new().layer(Immediate), get),
        0
    );
    assert_eq!(
        allocations(DeadlineBodyLayer::new().layer(Immediate), get),
        0
    );
    assert_eq!(allocations(OverrideLayer::new().layer(Immediate), get), 0);
    assert_eq!(allocations(RetryLayer::http().layer(Immediate), post), 0);
    assert_eq!(
        allocations(AttemptTimeoutLayer::http(SECOND).layer(Immediate), get),
        0
    );
    assert_eq!(
        allocations(ProgressBoundLayer::new(SECOND).layer(Immediate), get),
        0
    );
    let on_request = BufferResponsesLayer::on_request();
    assert_eq!(allocations(on_request.layer(Immediate), get), 0);
}

/// Gives frames without end, each ready at once or after one pending poll.
struct Frames {
    pending: bool,
    was_pending: bool,
}

impl Body for Frames {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.pending && !self.was_pending {
            self.was_pending = true;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.was_pending = false;
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"frame")))))
    }
}

fn read(body: &mut ProgressBody<Frames>, frames: u32) {
    let mut cx = Context::from_waker(Waker::noop());
    for _ in 0..frames {
        while Pin::new(&mut *body).poll_frame(&mut cx).is_pending() {}
    }
}

#[test]
fn a_frame_that_is_ready_allocates_nothing() {
    let inner = Frames {
        pending: false,
        was_pending: false,
    };
    let mut body = ProgressBody::new(inner, SECOND);
    assert_eq!(measure(|| read(&mut body, 1000)).count_total, 0);
}

#[test]
fn a_body_that_waits_allocates_its_timer_once() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let _entered = runtime.enter();
    let waiting = || {
        let inner = Frames {
            pending: true,
            was_pending: false,
        };
        ProgressBody::new(inner, SECOND)
    };
    read(&mut waiting(), 1); // and the thread keeps the place of its timer
    let mut body = waiting();
    assert_eq!(measure(|| read(&mut body, 1)).count_total, 1);
    assert_eq!(measure(|| read(&mut body, 1000)).count_total, 0);
}

#[test]
fn a_call_that_has_to_wait_allocates_nothing() {
    /// Ready at the second poll.
    struct Second(bool);

    impl Future for Second {
        type Output = Result<Res, BoxError>;

        fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
            if std::mem::replace(&mut self.0, true) {
                Poll::Ready(Ok(Response::new(Full::default())))
            } else {
                Poll::Pending
            }
        }
    }

    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let _entered = runtime.enter();
    let mut cx = Context::from_waker(Waker::noop());
    let mut stack = whole_stack(tower::service_fn(|_: Req| Second(false)));
    for warm in [false, true] {
        let request = request(Method::POST);
        let counted = measure(|| {
            assert!(stack.poll_ready(&mut cx).is_ready());
            let mut future = pin!(stack.call(request));
            assert!(future.as_mut().poll(&mut cx).is_pending());
            assert!(future.as_mut().poll(&mut cx).is_ready());
        });
        assert!(!warm || counted.count_total == 0);
    }
}

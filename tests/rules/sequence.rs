//! Who is asked what, in which order, step by step.

use std::task::Poll;

use tokio_test::{assert_pending, assert_ready, task};
use tower::{Layer, Service};
use tower_deadline::{AttemptTimedOut, Backoff, BoxError, DeadlineExceeded, Verdict};

use crate::layers::{AttemptTimeoutLayer, DeadlineLayer, RetryLayer, ServiceBuilder};
use tower_test::mock::{Handle, Mock, pair};

use crate::support::ms;

type Inner = Mock<u32, &'static str>;

/// Anything but "ok" is a failure.
fn failing() -> impl tower_deadline::Classify<&'static str> + Clone {
    |result: tower_deadline::AttemptResult<'_, &'static str>| match result {
        Ok(&"ok") => Verdict::Ok,
        _ => Verdict::Transient,
    }
}

fn mock() -> (Inner, Handle<u32, &'static str>) {
    let (mock, mut handle) = pair();
    handle.allow(0);
    (mock, handle)
}

/// Answers the request that is there.
fn answer(handle: &mut Handle<u32, &'static str>, with: &'static str) -> u32 {
    let mut next = task::spawn(handle.next_request());
    let Poll::Ready(Some((request, respond))) = next.poll() else {
        panic!("no request was sent");
    };
    respond.send_response(with);
    request
}

fn nothing_sent(handle: &mut Handle<u32, &'static str>) {
    assert!(task::spawn(handle.next_request()).poll().is_pending());
}

#[tokio::test(start_paused = true)]
async fn a_retry_waits_for_readiness_of_its_own() {
    let (mock, mut handle) = mock();
    let mut stack = RetryLayer::new()
        .classifier(failing())
        .backoff(Backoff::constant(ms(100)))
        .layer(mock);

    let mut ready = task::spawn(());
    let mut poll = |stack: &mut _| ready.enter(|cx, _| Service::<u32>::poll_ready(stack, cx));
    assert_pending!(poll(&mut stack));
    handle.allow(1);
    assert!(assert_ready!(poll(&mut stack)).is_ok());

    let mut call = task::spawn(stack.call(7));
    assert_pending!(call.poll());
    assert_eq!(answer(&mut handle, "failed"), 7);
    assert_pending!(call.poll());
    nothing_sent(&mut handle);

    // The backoff is over, and nobody is ready yet.
    tokio::time::advance(ms(101)).await;
    assert_pending!(call.poll());
    nothing_sent(&mut handle);

    handle.allow(1);
    assert!(call.is_woken());
    assert_pending!(call.poll());
    assert_eq!(answer(&mut handle, "ok"), 7);
    assert_eq!(assert_ready!(call.poll()).unwrap(), "ok");
}

#[tokio::test(start_paused = true)]
async fn an_inner_service_that_fails_while_it_is_awaited_ends_the_call_as_it_is() {
    let (mock, mut handle) = mock();
    let mut stack = RetryLayer::new()
        .classifier(failing())
        .backoff(Backoff::none())
        .layer(mock);
    handle.allow(1);
    let mut ready = task::spawn(());
    let polled = ready.enter(|cx, _| Service::<u32>::poll_ready(&mut stack, cx));
    assert!(assert_ready!(polled).is_ok());
    let mut call = task::spawn(stack.call(7));
    assert_pending!(call.poll());
    answer(&mut handle, "failed");
    assert_pending!(call.poll());
    handle.send_error("gone");
    let error: BoxError = assert_ready!(call.poll()).unwrap_err();
    assert!(error.to_string().contains("gone"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn the_clocks_run_from_the_call_and_wake_the_task_themselves() {
    let (mock, mut handle) = mock();
    let mut stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(ms(150)))
        .layer(
            RetryLayer::new()
                .classifier(failing())
                .backoff(Backoff::none()),
        )
        .layer(AttemptTimeoutLayer::new(ms(100)))
        .service(mock);
    handle.allow(9);
    let mut ready = task::spawn(());
    let polled = ready.enter(|cx, _| Service::<u32>::poll_ready(&mut stack, cx));
    assert!(assert_ready!(polled).is_ok());
    tokio::time::advance(ms(1000)).await;

    let mut call = task::spawn(stack.call(7));
    assert_pending!(call.poll());
    tokio::time::advance(ms(99)).await;
    assert!(!call.is_woken());
    tokio::time::advance(ms(2)).await;
    assert!(call.is_woken(), "the attempt timeout wakes nobody");
    assert_pending!(call.poll());
    // Both attempts were sent; nothing was left on the second but the deadline.
    let kept: Vec<_> = (0..2)
        .map(|_| assert_ready!(task::spawn(handle.next_request()).poll()).unwrap())
        .collect();
    assert_eq!((kept[0].0, kept[1].0), (7, 7));
    tokio::time::advance(ms(50)).await;
    assert!(call.is_woken(), "the deadline wakes nobody");
    let error = assert_ready!(call.poll()).unwrap_err();
    let exceeded = DeadlineExceeded::find(&error).unwrap();
    let source = std::error::Error::source(exceeded).unwrap();
    assert!(AttemptTimedOut::find(source).is_some());
}

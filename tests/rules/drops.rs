//! The future of a call, dropped anywhere, and polled after its end.

use std::future::Future;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use tokio::time::{advance, timeout};
use tower::limit::ConcurrencyLimitLayer;
use tower::{Layer, Service, ServiceExt};
use tower_deadline::{Backoff, BoxError, Event, EventKind, Key, OneDependency, RetryBudget};

use crate::layers::{
    AttemptTimeoutLayer, BoundReadinessLayer, BufferResponsesLayer, DeadlineBodyLayer,
    DeadlineLayer, OverrideLayer, ProgressBoundLayer, RetryLayer, ServiceBuilder, can_have,
};
use crate::support::*;

type Replies = fn() -> Vec<Reply>;

const SCRIPTS: [Replies; 5] = [
    || vec![Reply::after(ms(50), 200)],
    || vec![Reply::after(ms(50), 503), Reply::after(ms(50), 200)],
    || vec![Reply::Hang, Reply::Hang, Reply::Hang],
    || {
        vec![
            Reply::Error(ms(10), reset),
            Reply::after(ms(10), 503),
            Reply::status(200),
        ]
    },
    || {
        let slow = Script::new([Step::Data("a"), Step::Wait(ms(90)), Step::Data("b")]);
        vec![Reply::body(slow), Reply::status(200)]
    },
];

#[tokio::test(start_paused = true)]
async fn dropped_after_any_number_of_polls_everything_is_given_back() {
    let gaps = [ms(80), ms(100)];
    for gap in gaps.into_iter().filter(|gap| can_have(ms(100), *gap)) {
        for polls in 0..40 {
            for script in SCRIPTS {
                left_after(polls, script, gap).await;
            }
        }
    }
}

async fn left_after(polls: u32, script: Replies, gap: Duration) {
    let budget = RetryBudget::of(0.1, 0).unwrap();
    let (service, shared) = Scripted::new(script());
    let limited = ConcurrencyLimitLayer::new(1).layer(service);
    let mut stack = ServiceBuilder::new()
        .layer(OverrideLayer::new())
        .layer(DeadlineLayer::new(ms(350)))
        .layer(BoundReadinessLayer::new())
        .layer(DeadlineBodyLayer::new())
        .layer(
            RetryLayer::http()
                .backoff(Backoff::constant(ms(20)))
                .key(OneDependency)
                .budget(budget.clone()),
        )
        .layer(AttemptTimeoutLayer::http(ms(100)))
        .layer(BufferResponsesLayer::new())
        .layer(ProgressBoundLayer::new(gap))
        .service(limited.clone());
    {
        let mut call = pin!(stack.ready().await.unwrap().call(get()));
        for _ in 0..polls {
            if futures_util::poll!(call.as_mut()).is_ready() {
                // Once more: no panic.
                let _ = futures_util::poll!(call.as_mut());
                break;
            }
            advance(ms(10)).await;
        }
    }
    assert_eq!(shared.live(), 0);
    shared.check();
    // Paid for is what was sent, and nothing else.
    let spent = budget.utilisation(Key::SHARED).unwrap();
    let retries = shared.calls().saturating_sub(1);
    let expected = if retries == 0 { 0.0 } else { 1.0 };
    assert!(
        (spent - expected).abs() < 0.2,
        "{polls} polls: {spent} for {retries}"
    );
    drop(stack);
    let mut limited = limited;
    let ready = pin!(limited.ready());
    assert!(matches!(
        ready.poll(&mut std::task::Context::from_waker(std::task::Waker::noop())),
        Poll::Ready(Ok(_))
    ));
}

#[tokio::test(start_paused = true)]
async fn a_future_polled_after_its_end_does_not_panic() {
    for script in SCRIPTS {
        let (service, _) = Scripted::new(script());
        let mut stack = ServiceBuilder::new()
            .layer(DeadlineLayer::new(ms(350)))
            .layer(RetryLayer::http())
            .layer(AttemptTimeoutLayer::http(ms(100)))
            .layer(BufferResponsesLayer::new())
            .service(service);
        let mut call = pin!(stack.ready().await.unwrap().call(get()));
        let _ = call.as_mut().await;
        assert!(futures_util::poll!(call.as_mut()).is_pending());
    }
    let (service, _) = Scripted::new([]);
    let mut expired = ServiceBuilder::new()
        .layer(DeadlineLayer::new(std::time::Duration::ZERO))
        .service(service);
    let mut call = pin!(expired.ready().await.unwrap().call(get()));
    assert!(call.as_mut().await.is_err());
    assert!(futures_util::poll!(call.as_mut()).is_pending());
}

#[tokio::test(start_paused = true)]
async fn a_call_that_was_never_polled_costs_nothing() {
    let budget = RetryBudget::of(0.1, 0).unwrap();
    let (service, shared) = Scripted::new([Reply::status(200)]);
    let mut stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(secs(1)))
        .layer(RetryLayer::http().budget(budget.clone()))
        .service(service);
    drop(stack.ready().await.unwrap().call(get()));
    assert_eq!(
        (shared.live(), budget.utilisation(Key::SHARED)),
        (0, Some(0.0))
    );
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_leaves_in_the_backoff_pays_for_no_retry() {
    // 20 ms of the first attempt, 100 ms of backoff, and then the second.
    for (at, paid, calls) in [(119, 0.0, 1), (121, 1.0, 2)] {
        let recorder = Recorder::default();
        let budget = RetryBudget::of(0.1, 0).unwrap();
        let (service, shared) = Scripted::new([Reply::after(ms(20), 503), Reply::Hang]);
        let stack = RetryLayer::http()
            .backoff(Backoff::constant(ms(100)))
            .key(OneDependency)
            .budget(budget.clone())
            .on_event(recorder.clone())
            .layer(service);
        assert!(timeout(ms(at), stack.oneshot(get())).await.is_err());
        assert_eq!(
            recorder.kinds(),
            [
                EventKind::Attempt,
                EventKind::Retrying,
                EventKind::Cancelled
            ]
        );
        assert_eq!(shared.calls(), calls);
        assert_eq!(budget.utilisation(Key::SHARED), Some(paid));
    }
}

#[tokio::test(start_paused = true)]
async fn a_listener_that_panics_in_a_drop_breaks_nothing_either() {
    let panics = |_: &Event<'_>| panic!("on purpose");
    let recorder = Recorder::default();
    let stack = |service| {
        ServiceBuilder::new()
            .layer(
                DeadlineLayer::new(secs(1))
                    .on_event(panics)
                    .on_event(recorder.clone()),
            )
            .layer(RetryLayer::http().on_event(panics))
            .layer(AttemptTimeoutLayer::http(ms(300)).on_event(panics))
            .service(service)
    };
    // The caller leaves.
    let (service, shared) = Scripted::always(|| Reply::Hang);
    let left = timeout(ms(50), stack(service).oneshot(get())).await;
    assert!(left.is_err());
    assert_eq!(
        (recorder.kinds(), shared.live()),
        (vec![EventKind::Cancelled], 0)
    );
    // The inner service panics, and the listener while that unwinds.
    let breaks: fn() -> BoxError = || panic!("in the service");
    let (service, shared) = Scripted::new([Reply::Error(ms(10), breaks)]);
    let call = tokio::spawn(stack(service).oneshot(get()));
    assert!(call.await.err().unwrap().is_panic());
    let expected = vec![EventKind::Cancelled; 2];
    assert_eq!((recorder.kinds(), shared.live()), (expected, 0));
}

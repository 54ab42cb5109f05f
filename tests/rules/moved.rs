//! Futures that change hands: begun in one call or task, and polled on in another.

use std::future::{Future, pending};
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tower::buffer::BufferLayer;
use tower::{Layer, Service, ServiceBuilder, ServiceExt, service_fn};
use tower_deadline::{
    AttemptTimedOut, AttemptTimeoutLayer, Backoff, BoxError, DeadlineExceeded, DeadlineLayer,
    EventKind, RetryLayer,
};

use crate::support::*;

type Outcome = Result<(), BoxError>;

fn hanging() -> impl Service<(), Response = (), Error = BoxError, Future: Send> + Clone + Send {
    service_fn(|()| pending::<Outcome>())
}

/// Runs `f` inside a call with a deadline of so long.
async fn within<F, Fut>(deadline: DeadlineLayer, f: F) -> Outcome
where
    F: Fn() -> Fut,
    Fut: Future<Output = Outcome>,
{
    deadline.layer(service_fn(|()| f())).oneshot(()).await
}

/// A retry layer inside another's attempt: it is a call of its own, with the deadline around.
fn call_of_its_own() -> BoxFuture<'static, Outcome> {
    let stack = ServiceBuilder::new()
        .layer(RetryLayer::new().attempts(1))
        .layer(AttemptTimeoutLayer::new(ms(500)))
        .service(hanging());
    Box::pin(stack.oneshot(()))
}

#[tokio::test(start_paused = true)]
async fn a_call_that_left_its_deadline_behind_in_another_task_ends_all_the_same() {
    let clock = Clock::start();
    let moved = Arc::new(std::sync::Mutex::new(None));
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(ms(300)))
        .layer(RetryLayer::new().attempts(1))
        .service(service_fn({
            let moved = Arc::clone(&moved);
            move |()| {
                let moved = Arc::clone(&moved);
                async move {
                    let mut inner = call_of_its_own();
                    assert!(futures_util::poll!(inner.as_mut()).is_pending());
                    *moved.lock().unwrap() = Some(tokio::spawn(inner));
                    Ok::<_, BoxError>(())
                }
            }
        }));
    stack.oneshot(()).await.unwrap();
    let elsewhere = moved.lock().unwrap().take().unwrap();
    let ended = tokio::time::timeout(secs(60), elsewhere).await;
    let error = ended.expect("hangs").unwrap().unwrap_err();
    assert!(DeadlineExceeded::find(&error).is_some(), "{error}");
    assert_eq!(clock.ms(), 300);
}

/// What several calls wait for, such as one look-up for all who ask meanwhile.
fn shared_attempt(timeout: u64) -> impl Future<Output = Arc<Outcome>> + Clone {
    let stack = AttemptTimeoutLayer::new(ms(timeout)).layer(hanging());
    stack.oneshot(()).map(Arc::new).shared()
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_two_calls_share_is_not_cut_by_the_deadline_of_the_one_that_left() {
    for second in [DeadlineLayer::new(secs(60)), DeadlineLayer::unbounded()] {
        let shared = shared_attempt(500);
        let clock = Clock::start();
        let first = within(DeadlineLayer::new(ms(100)), || async {
            shared.clone().await;
            Ok(())
        });
        let second = within(second, || async {
            let outcome = shared.clone().await;
            let error = outcome.as_ref().as_ref().unwrap_err();
            assert!(AttemptTimedOut::find(&**error).is_some(), "{error}");
            Ok(())
        });
        let both = futures_util::future::join(first, second);
        let (first, second) = tokio::time::timeout(secs(600), both).await.expect("hangs");
        assert!(DeadlineExceeded::find(&first.unwrap_err()).is_some());
        assert!(second.is_ok());
        assert_eq!(clock.ms(), 500);
    }
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_comes_under_an_earlier_deadline_ends_by_it() {
    let shared = shared_attempt(500);
    let clock = Clock::start();
    let patient = within(DeadlineLayer::new(secs(60)), || async {
        assert!(futures_util::poll!(shared.clone()).is_pending());
        Ok(())
    });
    patient.await.unwrap();
    let hasty = within(DeadlineLayer::new(ms(100)), || async {
        shared.clone().await;
        Ok(())
    });
    let error = hasty.await.unwrap_err();
    assert!(DeadlineExceeded::find(&error).is_some());
    assert_eq!(clock.ms(), 100);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_leaves_while_a_buffer_has_the_answer_is_told_once() {
    let recorder = Recorder::default();
    let (service, shared) = Scripted::always(|| Reply::Hang);
    let mut stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(secs(1)).on_event(recorder.clone()))
        .layer(BufferLayer::new(4))
        .layer(
            RetryLayer::http()
                .backoff(Backoff::none())
                .on_event(recorder.clone()),
        )
        .layer(AttemptTimeoutLayer::http(ms(300)).on_event(recorder.clone()))
        .service(service);
    let mut call = Box::pin(stack.ready().await.unwrap().call(get()));
    assert!(futures_util::poll!(call.as_mut()).is_pending());
    // The worker calls, and has the future ready that nobody has polled yet.
    while shared.calls() == 0 {
        tokio::task::yield_now().await;
    }
    drop(call);
    assert_eq!(
        recorder.kinds(),
        [EventKind::Cancelled],
        "{}",
        recorder.sequence()
    );
}

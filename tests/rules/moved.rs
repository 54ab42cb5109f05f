//! Futures that change hands: begun in one call or task, and polled on in another.

use std::future::{Future, pending};
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_deadline::{BoxError, DeadlineExceeded};

use crate::layers::{AttemptTimeoutLayer, RetryLayer, ServiceBuilder, any};
use crate::support::*;

type Outcome = Result<(), BoxError>;

fn hanging() -> impl Service<(), Response = (), Error = BoxError, Future: Send> + Clone + Send {
    service_fn(|()| pending::<Outcome>())
}

/// Runs `f` inside a call with a deadline of so long.
async fn within<F, Fut>(deadline: any::DeadlineLayer, f: F) -> Outcome
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
        .layer(any::DeadlineLayer::new(ms(300)))
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
async fn an_attempt_that_comes_under_an_earlier_deadline_ends_by_it() {
    let shared = shared_attempt(500);
    let clock = Clock::start();
    let patient = within(any::DeadlineLayer::new(secs(60)), || async {
        assert!(futures_util::poll!(shared.clone()).is_pending());
        Ok(())
    });
    patient.await.unwrap();
    let hasty = within(any::DeadlineLayer::new(ms(100)), || async {
        shared.clone().await;
        Ok(())
    });
    let error = hasty.await.unwrap_err();
    assert!(DeadlineExceeded::find(&error).is_some());
    assert_eq!(clock.ms(), 100);
}

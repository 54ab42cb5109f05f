//! One timer serves both clocks while an attempt runs, whatever stands between them.

use std::future::{Future, pending};
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use http_body_util::BodyExt;
use tokio::time::sleep;
use tower::buffer::BufferLayer;
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_deadline::{
    AttemptStalled, AttemptTimedOut, Backoff, BoxError, DeadlineExceeded, ProgressBody, call,
};

use crate::layers::{AttemptTimeoutLayer, DeadlineLayer, RetryLayer, ServiceBuilder, any};
use crate::support::*;

/// An attempt of so long that hangs.
fn hanging(timeout: u64) -> BoxFuture<'static, Result<(), BoxError>> {
    let stack = ServiceBuilder::new()
        .layer(AttemptTimeoutLayer::new(ms(timeout)))
        .service(service_fn(|()| pending::<Result<(), BoxError>>()));
    Box::pin(stack.oneshot(()))
}

/// Ends at its deadline of 300 ms, exactly.
async fn ends_at_300<F, Fut>(inner: F)
where
    F: Fn() -> Fut + Clone,
    Fut: Future<Output = Result<(), BoxError>>,
{
    let stack = ServiceBuilder::new()
        .layer(any::DeadlineLayer::new(ms(300)))
        .service(service_fn(move |()| inner()));
    let clock = Clock::start();
    let error = stack.oneshot(()).await.unwrap_err();
    assert!(DeadlineExceeded::find(&error).is_some(), "{error}");
    assert_eq!(clock.ms(), 300);
}

#[tokio::test(start_paused = true)]
async fn under_join() {
    ends_at_300(|| async {
        // The first attempt ends, and takes its timer with it; the rest goes on.
        let _ = tokio::join!(hanging(100), hanging(200), pending::<()>());
        Ok(())
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn under_select_when_the_branch_that_armed_is_dropped_in_the_same_poll() {
    ends_at_300(|| async {
        tokio::select! {
            biased;
            _ = hanging(100) => unreachable!(),
            () = std::future::ready(()) => {}
        }
        pending::<()>().await;
        Ok(())
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn when_a_branch_is_dropped_outside_the_scope_it_armed_in() {
    ends_at_300(|| async {
        let mut armed = Box::pin(hanging(100));
        std::future::poll_fn(|cx| {
            assert!(armed.as_mut().poll(cx).is_pending());
            Poll::Ready(())
        })
        .await;
        // The same poll goes on, and drops it where the scope is another.
        call::detach(async move { drop(armed) }).await;
        pending::<()>().await;
        Ok(())
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn under_futures_unordered() {
    ends_at_300(|| async {
        let mut attempts: FuturesUnordered<_> = [100, 150, 200].map(hanging).into_iter().collect();
        let mut ended = 0;
        while let Some(result) = attempts.next().await {
            assert!(AttemptTimedOut::find(&result.unwrap_err()).is_some());
            ended += 1;
        }
        assert_eq!(ended, 3);
        pending::<()>().await;
        Ok(())
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn with_the_inner_work_in_a_task_of_its_own() {
    ends_at_300(|| async {
        let task = tokio::spawn(call::carry(async {
            let _ = hanging(100).await;
            pending::<()>().await;
        }));
        task.await.unwrap();
        Ok(())
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn when_the_attempt_goes_to_another_task_after_its_first_poll() {
    ends_at_300(|| async {
        let mut attempt = Box::pin(hanging(100));
        assert!(futures_util::poll!(attempt.as_mut()).is_pending());
        let elsewhere = tokio::spawn(async move {
            let _ = attempt.await;
            pending::<()>().await;
        });
        elsewhere.await.unwrap();
        Ok(())
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn when_the_attempt_is_kept_and_not_polled_again() {
    ends_at_300(|| async {
        let mut attempt = Box::pin(hanging(1000));
        assert!(futures_util::poll!(attempt.as_mut()).is_pending());
        sleep(ms(50)).await;
        pending::<()>().await;
        drop(attempt);
        Ok(())
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn when_it_is_dropped_unpolled_after_the_poll_that_armed_it() {
    ends_at_300(|| async {
        let mut attempt = Box::pin(hanging(100));
        assert!(futures_util::poll!(attempt.as_mut()).is_pending());
        tokio::task::yield_now().await;
        drop(attempt);
        pending::<()>().await;
        Ok(())
    })
    .await;
}

/// Ready whenever it is polled, and never gives the task back: tokio's cooperative budget is always
/// spent when a timer beside it is looked at.
async fn busy() {
    let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
    loop {
        sender.send(()).unwrap();
        receiver.recv().await;
    }
}

/// Real time, since paused time stands still while a task is ready.
#[tokio::test]
async fn beside_a_future_that_spends_the_cooperative_budget() {
    let limit = secs(20);
    let deadline = ServiceBuilder::new()
        .layer(any::DeadlineLayer::new(ms(50)))
        .service(service_fn(|()| async {
            busy().await;
            Ok::<(), BoxError>(())
        }));
    let error = tokio::spawn(tokio::time::timeout(limit, deadline.oneshot(())));
    let error = error.await.unwrap().unwrap().unwrap_err();
    assert!(DeadlineExceeded::find(&error).is_some());

    let attempt = ServiceBuilder::new()
        .layer(DeadlineLayer::new(secs(30)))
        .layer(AttemptTimeoutLayer::new(ms(50)))
        .service(service_fn(|()| async {
            busy().await;
            Ok::<(), BoxError>(())
        }));
    let error = tokio::time::timeout(limit, attempt.oneshot(()))
        .await
        .unwrap()
        .unwrap_err();
    assert!(AttemptTimedOut::find(&error).is_some());

    struct Busy(Pin<Box<dyn Future<Output = ()> + Send>>);
    impl http_body::Body for Busy {
        type Data = bytes::Bytes;
        type Error = BoxError;
        fn poll_frame(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
        ) -> Poll<Option<Result<http_body::Frame<bytes::Bytes>, BoxError>>> {
            self.0.as_mut().poll(cx).map(|()| None)
        }
    }
    let mut body = ProgressBody::new(Busy(Box::pin(busy())), ms(50));
    let frame = tokio::time::timeout(limit, body.frame()).await.unwrap();
    let error = frame.unwrap().unwrap_err();
    assert!(AttemptStalled::find(&error).is_some());
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_is_ready_late_by_no_fault_of_its_own_is_returned() {
    let mut stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(ms(100)))
        .layer(AttemptTimeoutLayer::new(ms(50)))
        .service(service_fn(|()| async {
            sleep(ms(10)).await;
            Ok::<_, BoxError>("there")
        }));
    let mut call = Box::pin(stack.ready().await.unwrap().call(()));
    assert!(futures_util::poll!(call.as_mut()).is_pending());
    tokio::time::advance(secs(5)).await;
    assert_eq!(call.await.unwrap(), "there");
}

/// Real time and several threads: whatever runs where, every call ends, and by its bound.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn on_several_threads_every_call_ends() {
    let begun = tokio::time::Instant::now();
    let calls: Vec<_> = (0..200_u64)
        .map(|i| {
            let stack = ServiceBuilder::new()
                .layer(any::DeadlineLayer::new(ms(100 + i % 50)))
                .service(BufferLayer::new(4).layer(service_fn(move |()| async move {
                    let mut attempts: FuturesUnordered<_> =
                        (1..5).map(|n| hanging(n * 10 + i % 7)).collect();
                    let elsewhere = tokio::spawn(call::carry(hanging(15)));
                    let _ = tokio::join!(hanging(20), elsewhere);
                    while attempts.next().await.is_some() {}
                    pending::<Result<(), BoxError>>().await
                })));
            tokio::spawn(stack.oneshot(()))
        })
        .collect();
    for call in calls {
        let error = call.await.unwrap().unwrap_err();
        assert!(DeadlineExceeded::find(&error).is_some(), "{error}");
    }
    assert!(tokio::time::Instant::now() - begun >= ms(100));
}

/// Runs `inner` in a call with a far deadline.
async fn in_a_call<F, Fut>(inner: F)
where
    F: Fn() -> Fut + Clone,
    Fut: Future<Output = ()>,
{
    let stack = ServiceBuilder::new()
        .layer(any::DeadlineLayer::new(secs(60)))
        .service(service_fn(move |()| {
            let inner = inner();
            async move {
                inner.await;
                Ok::<_, BoxError>(())
            }
        }));
    stack.oneshot(()).await.unwrap();
}

/// When an attempt of so long ended, by its own timeout.
async fn cut(timeout: u64) -> u128 {
    let clock = Clock::start();
    let error = hanging(timeout).await.unwrap_err();
    assert!(AttemptTimedOut::find(&error).is_some());
    clock.ms()
}

#[tokio::test(start_paused = true)]
async fn attempts_side_by_side_each_end_on_time() {
    in_a_call(|| async {
        let ended = tokio::join!(cut(300), cut(100), cut(200), cut(100));
        assert_eq!(ended, (300, 100, 200, 100));
    })
    .await;
    in_a_call(|| async {
        let clock = Clock::start();
        // The earlier is dropped before its time; the later one still has its own.
        let later = async {
            tokio::select! {
                biased;
                _ = cut(100) => unreachable!(),
                () = sleep(ms(50)) => {}
            }
            cut(30).await
        };
        assert_eq!(tokio::join!(cut(200), later), (200, 30));
        assert_eq!(clock.ms(), 200);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn attempts_with_wakers_of_their_own_each_end_on_time() {
    in_a_call(|| async {
        let attempts = [300, 100, 200].map(|timeout| async move { (timeout, cut(timeout).await) });
        let mut attempts: FuturesUnordered<_> = attempts.into_iter().collect();
        let mut order = Vec::new();
        while let Some((timeout, ended)) = attempts.next().await {
            assert_eq!(ended, u128::from(timeout));
            order.push(timeout);
        }
        assert_eq!(order, [100, 200, 300]);
    })
    .await;
    in_a_call(|| async {
        let elsewhere = tokio::spawn(call::carry(cut(100)));
        assert_eq!(elsewhere.await.unwrap(), 100);
        let elsewhere = tokio::spawn(cut(100));
        assert_eq!(elsewhere.await.unwrap(), 100);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_waits_again_beneath_another_waker_ends_on_time() {
    in_a_call(|| async {
        // First with the waker of the task, which the deadline's timer wakes; then with another.
        let mut attempt = Box::pin(cut(100));
        assert!(futures_util::poll!(attempt.as_mut()).is_pending());
        let mut attempts: FuturesUnordered<_> = [attempt].into_iter().collect();
        assert_eq!(attempts.next().await, Some(100));
        // And the other way round.
        let mut attempts: FuturesUnordered<_> = [Box::pin(cut(100))].into_iter().collect();
        assert!(futures_util::poll!(attempts.next()).is_pending());
        let attempt = std::mem::take(&mut attempts).into_iter().next().unwrap();
        assert_eq!(attempt.await, 100);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn backoffs_end_on_time_whoever_polls_them() {
    let retrying = || {
        let (service, shared) = Scripted::status([503, 503, 200]);
        let stack = ServiceBuilder::new()
            .layer(RetryLayer::http().backoff(Backoff::constant(ms(70))))
            .layer(AttemptTimeoutLayer::http(secs(5)))
            .service(service);
        async move {
            stack.oneshot(get()).await.unwrap();
            shared.times()
        }
    };
    let expected = vec![0, 70, 140];
    in_a_call(|| async {
        assert_eq!(retrying().await, expected);
        let both = tokio::join!(retrying(), retrying());
        assert_eq!(both, (expected.clone(), expected.clone()));
        let mut apart: FuturesUnordered<_> = [(); 3].map(|()| retrying()).into_iter().collect();
        while let Some(times) = apart.next().await {
            assert_eq!(times, expected);
        }
        assert_eq!(
            tokio::spawn(call::carry(retrying())).await.unwrap(),
            expected
        );
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_is_left_out_of_a_poll_is_still_woken_for() {
    in_a_call(|| {
        let mut attempt = Box::pin(cut(100));
        let mut other = Box::pin(sleep(ms(50)));
        let mut polls = 0;
        // The second poll, at 50 ms, is for the other alone.
        let both = std::future::poll_fn(move |cx| {
            polls += 1;
            if polls == 2 {
                return Poll::Pending;
            }
            let _ = other.as_mut().poll(cx);
            attempt.as_mut().poll(cx)
        });
        async move { assert_eq!(both.await, 100) }
    })
    .await;
}

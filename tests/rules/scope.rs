//! What the code inside a call can ask of it.

use tokio::time::sleep;
use tower::{ServiceExt, service_fn};
use tower_deadline::{
    Backoff, BoxError, Criticality, DeadlineExceeded, DeadlineOrigin, Phase, call,
};

use crate::layers::{AttemptTimeoutLayer, DeadlineLayer, RetryLayer, ServiceBuilder, any};
use crate::support::*;

#[tokio::test(start_paused = true)]
async fn outside_a_call_there_is_nothing() {
    assert_eq!(call::remaining(), None);
    assert_eq!(call::attempt(), None);
    assert!(!call::inside_retry());
    assert_eq!(call::criticality(), Criticality::Critical);
}

#[tokio::test(start_paused = true)]
async fn a_call_inside_a_call_is_bounded_by_it_and_counts_for_itself() {
    let outer = ServiceBuilder::new()
        .layer(DeadlineLayer::new(ms(300)))
        .layer(RetryLayer::new().attempts(1))
        .service(service_fn(|()| async {
            sleep(ms(100)).await;
            let (service, _) = Scripted::new([Reply::status(503), Reply::Hang]);
            let inner = ServiceBuilder::new()
                .layer(DeadlineLayer::new(secs(10)))
                .layer(RetryLayer::http().backoff(Backoff::none()))
                .service(service);
            inner.oneshot(get()).await.map(drop)
        }));
    let clock = Clock::start();
    let error = outer.oneshot(()).await.unwrap_err();
    assert_eq!(clock.ms(), 300);
    let exceeded = DeadlineExceeded::find(&error).unwrap();
    // The inner call ran into the outer one's deadline, and says so of itself.
    assert_eq!(exceeded.origin(), DeadlineOrigin::Enclosing);
    assert_eq!(exceeded.deadline(), ms(200));
    assert_eq!(exceeded.log().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn two_calls_side_by_side_in_one_call_do_not_mix() {
    let outer = ServiceBuilder::new()
        .layer(any::DeadlineLayer::new(secs(5)))
        .service(service_fn(|()| async {
            // Neither has a deadline layer of its own: the first could join the scope around.
            let (a, of_a) = Scripted::new([Reply::after(ms(10), 503), Reply::after(ms(10), 200)]);
            let (b, of_b) = Scripted::always(|| Reply::error(reset));
            let retry = RetryLayer::http().backoff(Backoff::constant(ms(7)));
            let (a, b) = tokio::join!(
                ServiceBuilder::new()
                    .layer(retry.clone())
                    .service(a)
                    .oneshot(get()),
                ServiceBuilder::new().layer(retry).service(b).oneshot(get()),
            );
            assert_eq!(a.unwrap().status(), 200);
            assert!(b.err().unwrap().is::<std::io::Error>());
            assert_eq!((of_a.calls(), of_b.calls()), (2, 3));
            Ok::<_, BoxError>(())
        }));
    outer.oneshot(()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn detached_work_knows_nothing_of_the_call() {
    let stack = ServiceBuilder::new()
        .layer(any::DeadlineLayer::new(secs(1)))
        .service(service_fn(|()| async {
            assert!(call::remaining().is_some());
            let inside = call::detach(async { (call::remaining(), call::attempt()) }).await;
            assert_eq!(inside, (None, None));
            assert!(call::remaining().is_some());
            Ok::<_, BoxError>(())
        }));
    stack.oneshot(()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn carried_work_is_bounded_in_its_own_task() {
    let stack = ServiceBuilder::new()
        .layer(any::DeadlineLayer::new(ms(300)))
        .service(service_fn(|()| async {
            let lost = tokio::spawn(async { call::remaining() }).await.unwrap();
            assert_eq!(lost, None);
            let (service, _) = Scripted::new([Reply::Hang]);
            // An attempt timeout alone: it has to end the attempt at the deadline itself.
            let bare = ServiceBuilder::new()
                .layer(AttemptTimeoutLayer::http(secs(10)))
                .service(service);
            let carried = tokio::spawn(call::carry(bare.oneshot(get())));
            let error = call::detach(carried).await.unwrap().err().unwrap();
            assert!(DeadlineExceeded::find(&error).is_some());
            Ok::<_, BoxError>(())
        }));
    // The deadline of the outer call is at the same instant, and either may come first.
    let _ = stack.oneshot(()).await;
}

#[tokio::test(start_paused = true)]
async fn the_log_of_an_error_that_cannot_carry_it_is_there_afterwards() {
    let (service, _) = Scripted::always(|| Reply::error(reset));
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(secs(1)))
        .layer(RetryLayer::http().backoff(Backoff::constant(ms(5))))
        .service(service);
    let error = stack.clone().oneshot(get()).await.err().unwrap();
    assert!(error.is::<std::io::Error>());
    let log = call::last_log().unwrap();
    assert_eq!(log.len(), 3);
    assert_eq!(
        log.to_string(),
        "1 transient 0ns, 2 transient 0ns (after 5ms), 3 transient 0ns (after 5ms)"
    );
    let (service, _) = Scripted::status([200]);
    ServiceBuilder::new()
        .layer(DeadlineLayer::new(secs(1)))
        .service(service)
        .oneshot(get())
        .await
        .unwrap();
    assert!(call::last_log().is_none());
}

#[tokio::test(start_paused = true)]
async fn the_smaller_of_two_offers_holds() {
    call::with_deadline(
        secs(5),
        call::with_deadline(secs(1), async {
            assert_eq!(call::remaining(), Some(secs(1)));
        }),
    )
    .await;
    call::with_deadline(
        secs(1),
        call::with_deadline(secs(5), async {
            assert_eq!(call::remaining(), Some(secs(1)));
            call::with_deadline(std::time::Duration::MAX, async {
                assert_eq!(call::remaining(), Some(secs(1)));
            })
            .await;
        }),
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_inner_service_that_panics_leaves_no_scope_behind() {
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(secs(1)))
        .layer(RetryLayer::new())
        .layer(AttemptTimeoutLayer::new(secs(1)))
        .service(service_fn(|()| async {
            assert!(call::attempt().is_none(), "on purpose");
            Ok::<(), BoxError>(())
        }));
    let call = std::panic::AssertUnwindSafe(stack.oneshot(()));
    assert!(futures_util::FutureExt::catch_unwind(call).await.is_err());
    assert_eq!((call::remaining(), call::attempt()), (None, None));
}

#[tokio::test(start_paused = true)]
async fn the_phase_is_told_right() {
    let (service, _) = Scripted::status([503, 503]);
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(ms(250)))
        .layer(RetryLayer::http().backoff(Backoff::constant(ms(200))))
        .service(Hook { inner: service });
    // The second attempt begins at 200 and hangs in a layer of the user's own.
    let error = stack.oneshot(get()).await.err().unwrap();
    let exceeded = DeadlineExceeded::find(&error).unwrap();
    assert_eq!(exceeded.phase(), Phase::Attempt);
    assert_eq!(exceeded.log().len(), 2);
    assert_eq!(exceeded.log().last().unwrap().delay, ms(200));
}

/// A hook before each attempt, which hangs before the second.
#[derive(Clone)]
struct Hook {
    inner: Scripted,
}

impl tower::Service<Req> for Hook {
    type Response = Res;
    type Error = BoxError;
    type Future = futures_util::future::BoxFuture<'static, Result<Res, BoxError>>;

    fn poll_ready(
        &mut self,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Req) -> Self::Future {
        if call::attempt() == Some(2) {
            return Box::pin(std::future::pending());
        }
        Box::pin(self.inner.call(request))
    }
}

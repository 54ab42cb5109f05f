//! One call's own numbers.

use http::Response;
use http_body::Body;
use tokio::time::sleep;
use tower::{Service, ServiceExt};
use tower_deadline::{
    AttemptTimedOut, Backoff, BoxError, CallOverride, DeadlineExceeded, DeadlineOrigin, call,
};

use crate::layers::{
    AttemptTimeoutLayer, DeadlineLayer, OverrideLayer, RetryLayer, ServiceBuilder, any,
};
use crate::support::*;

/// A deadline of 200 ms, attempts of 100 ms, two of them.
fn stack(
    service: Scripted,
) -> impl Service<Req, Response = Response<impl Body>, Error = BoxError> + Clone {
    ServiceBuilder::new()
        .layer(OverrideLayer::new())
        .layer(DeadlineLayer::new(ms(200)).inherit(true))
        .layer(RetryLayer::http().attempts(2).backoff(Backoff::none()))
        .layer(AttemptTimeoutLayer::http(ms(100)))
        .service(service)
}

/// When the call ended, after how many attempts, with what.
async fn run(overrides: CallOverride, request: Req) -> (u128, usize, &'static str) {
    let (service, shared) = Scripted::always(|| Reply::after(ms(1000), 200));
    let mut request = request;
    request.extensions_mut().insert(overrides);
    let clock = Clock::start();
    let outcome = match stack(service).oneshot(request).await {
        Ok(_) => "ok",
        Err(e) if DeadlineExceeded::find(&e).is_some() => "deadline",
        Err(e) if AttemptTimedOut::find(&e).is_some() => "attempt",
        Err(_) => "other",
    };
    (clock.ms(), shared.calls(), outcome)
}

#[tokio::test(start_paused = true)]
async fn a_number_can_be_shortened_lengthened_and_removed() {
    let own = CallOverride::new;
    assert_eq!(run(own(), get()).await, (200, 2, "deadline"));
    assert_eq!(
        run(own().deadline(ms(150)), get()).await,
        (150, 2, "deadline")
    );
    assert_eq!(
        run(own().deadline(ms(900)), get()).await,
        (200, 2, "attempt")
    );
    assert_eq!(run(own().no_deadline(), get()).await, (200, 2, "attempt"));
    assert_eq!(
        run(own().attempt_timeout(ms(30)), get()).await,
        (60, 2, "attempt")
    );
    assert_eq!(
        run(own().attempt_timeout(ms(900)), get()).await,
        (200, 1, "deadline")
    );
    assert_eq!(
        run(own().no_attempt_timeout(), get()).await,
        (200, 1, "deadline")
    );
    let unbounded = own().no_deadline().no_attempt_timeout();
    assert_eq!(run(unbounded, get()).await, (1000, 1, "ok"));
}

#[tokio::test(start_paused = true)]
async fn attempts_and_whether_to_repeat_are_the_calls_own() {
    let free = CallOverride::new().no_deadline();
    assert_eq!(run(free.attempts(5), get()).await, (500, 5, "attempt"));
    assert_eq!(run(free.attempts(1), get()).await, (100, 1, "attempt"));
    assert_eq!(run(free.attempts(0), get()).await, (100, 1, "attempt"));
    assert_eq!(run(free.no_retry(), get()).await, (100, 1, "attempt"));
    assert_eq!(run(free, post()).await, (100, 1, "attempt"));
    assert_eq!(run(free.retry(), post()).await, (200, 2, "attempt"));
}

#[tokio::test(start_paused = true)]
async fn a_duration_without_end_is_no_bound_and_no_panic() {
    let max = std::time::Duration::MAX;
    let all = CallOverride::new()
        .deadline(max)
        .attempt_timeout(max)
        .progress(max);
    assert_eq!(run(all, get()).await, (1000, 1, "ok"));
}

#[tokio::test(start_paused = true)]
async fn an_inherited_deadline_binds_whatever_the_override_says_unless_detached() {
    let patient = CallOverride::new().no_deadline().no_attempt_timeout();
    call::with_deadline(ms(300), async {
        assert_eq!(run(patient, get()).await, (300, 1, "deadline"));
    })
    .await;
    call::with_deadline(
        ms(300),
        call::detach(async {
            assert_eq!(run(patient, get()).await, (1000, 1, "ok"));
        }),
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_error_says_that_it_was_an_override() {
    let (service, _) = Scripted::new([Reply::Hang]);
    let mut request = get();
    request
        .extensions_mut()
        .insert(CallOverride::new().deadline(std::time::Duration::from_nanos(1)));
    let error = stack(service).oneshot(request).await.err().unwrap();
    let exceeded = DeadlineExceeded::find(&error).unwrap();
    assert_eq!(exceeded.origin(), DeadlineOrigin::Override);
}

#[tokio::test(start_paused = true)]
async fn a_future_that_was_made_before_it_was_wrapped_obeys_all_the_same() {
    // At top level, and inside a call of somebody else's.
    let run = async || {
        let (service, _) = Scripted::new([Reply::after(ms(150), 200)]);
        let mut stack = stack(service);
        let made = stack.ready().await.unwrap().call(get());
        let patient = CallOverride::new().no_attempt_timeout();
        call::with_override(patient, made).await.is_ok()
    };
    assert!(run().await);
    let outer = ServiceBuilder::new()
        .layer(any::DeadlineLayer::new(secs(10)))
        .service(tower::service_fn(|()| async {
            Ok::<_, BoxError>(run().await)
        }));
    assert!(outer.oneshot(()).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn an_override_ends_with_its_call() {
    let (service, shared) = Scripted::always(|| Reply::after(ms(150), 200));
    let stack = stack(service);
    let mut request = get();
    request
        .extensions_mut()
        .insert(CallOverride::new().no_attempt_timeout());
    assert!(stack.clone().oneshot(request).await.is_ok());
    assert!(stack.oneshot(get()).await.is_err());
    assert_eq!(shared.calls(), 3);
}

#[tokio::test(start_paused = true)]
async fn it_applies_to_every_attempt() {
    let (service, shared) = Scripted::new([
        Reply::after(ms(140), 503),
        Reply::after(ms(140), 503),
        Reply::after(ms(140), 200),
    ]);
    let overrides = CallOverride::new()
        .no_deadline()
        .attempt_timeout(ms(150))
        .attempts(3);
    let mut request = get();
    request.extensions_mut().insert(overrides);
    assert!(stack(service).oneshot(request).await.is_ok());
    assert_eq!(shared.calls(), 3);
    sleep(ms(1)).await;
}

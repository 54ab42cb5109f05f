//! The measured ceiling, through the layer, under paused time.

#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full, StreamBody};
use tokio::time::{Instant, sleep, timeout};
use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
use tower_deadline::{
    AttemptCeiling, AttemptTimedOut, AttemptTimeoutLayer, Authority, Backoff, Bound, BoxError,
    BufferResponsesLayer, DeadlineExceeded, DeadlineLayer, Event, EventKind, Jitter, Key, KeyOf,
    Measured, RetryLayer,
};

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

const TIMEOUT: Duration = Duration::from_secs(5);

/// Answers after as long as it is asked to take.
fn taking() -> impl Service<Duration, Response = (), Error = BoxError, Future: Send> + Clone {
    service_fn(|wait: Duration| async move {
        sleep(wait).await;
        Ok::<_, BoxError>(())
    })
}

fn measuring() -> (AttemptTimeoutLayer, Measured) {
    let layer = AttemptTimeoutLayer::new(TIMEOUT).ceiling(AttemptCeiling::above(3.0));
    let measured = layer.measured().unwrap();
    (layer, measured)
}

async fn calls<S>(stack: &S, count: u32, each: Duration) -> Vec<Result<(), BoxError>>
where
    S: Service<Duration, Response = (), Error = BoxError> + Clone,
{
    let mut results = Vec::new();
    for _ in 0..count {
        results.push(stack.clone().oneshot(each).await);
    }
    results
}

fn all_ok(results: &[Result<(), BoxError>]) -> bool {
    results.iter().all(Result::is_ok)
}

#[tokio::test(start_paused = true)]
async fn a_cold_estimate_leaves_the_attempt_timeout_alone() {
    let (layer, measured) = measuring();
    let stack = ServiceBuilder::new().layer(layer).service(taking());
    assert!(all_ok(&calls(&stack, 19, ms(40)).await));
    assert_eq!(measured.ceiling(Key::SHARED), None);

    let error = stack.clone().oneshot(TIMEOUT * 2).await.unwrap_err();
    let timed_out = AttemptTimedOut::find(&error).unwrap();
    assert_eq!(
        (timed_out.ceiling(), timed_out.bound()),
        (TIMEOUT, Bound::AttemptTimeout)
    );

    // The one that was cut is no sample: the next good one is the twentieth.
    assert!(all_ok(&calls(&stack, 1, ms(40)).await));
    assert_eq!(measured.ceiling(Key::SHARED), Some(ms(120)));
}

#[tokio::test(start_paused = true)]
async fn a_warm_estimate_cuts_at_its_multiple_and_says_so() {
    let (layer, _) = measuring();
    let stack = ServiceBuilder::new().layer(layer).service(taking());
    assert!(all_ok(&calls(&stack, 100, ms(40)).await));

    assert!(all_ok(&calls(&stack, 1, ms(119)).await));
    let begun = Instant::now();
    let error = stack.clone().oneshot(ms(130)).await.unwrap_err();
    assert_eq!(Instant::now() - begun, ms(120));
    let timed_out = AttemptTimedOut::find(&error).unwrap();
    assert_eq!(
        (timed_out.ceiling(), timed_out.bound()),
        (ms(120), Bound::Measured)
    );
}

#[tokio::test(start_paused = true)]
async fn it_only_lowers_the_attempt_timeout() {
    let layer = AttemptTimeoutLayer::new(ms(100)).ceiling(AttemptCeiling::above(3.0));
    let measured = layer.measured().unwrap();
    let stack = ServiceBuilder::new().layer(layer).service(taking());
    assert!(all_ok(&calls(&stack, 50, ms(40)).await));
    // The handle shows what was measured, before it is clamped.
    assert_eq!(measured.ceiling(Key::SHARED), Some(ms(120)));
    let error = stack.clone().oneshot(ms(110)).await.unwrap_err();
    let timed_out = AttemptTimedOut::find(&error).unwrap();
    assert_eq!(
        (timed_out.ceiling(), timed_out.bound()),
        (ms(100), Bound::AttemptTimeout)
    );
}

#[tokio::test(start_paused = true)]
async fn written_out_beside_no_attempt_timeout_it_is_honoured() {
    let layer = AttemptTimeoutLayer::unbounded().ceiling(AttemptCeiling::above(3.0));
    let stack = ServiceBuilder::new().layer(layer).service(taking());
    assert!(all_ok(&calls(&stack, 20, ms(40)).await));
    let error = stack.clone().oneshot(ms(121)).await.unwrap_err();
    assert_eq!(
        AttemptTimedOut::find(&error).unwrap().bound(),
        Bound::Measured
    );
}

#[tokio::test(start_paused = true)]
async fn the_deadline_still_clamps_it() {
    let (layer, _) = measuring();
    let warm = ServiceBuilder::new().layer(layer.clone()).service(taking());
    assert!(all_ok(&calls(&warm, 20, ms(40)).await));
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(ms(100)))
        .layer(layer)
        .service(taking());
    let error = stack.clone().oneshot(ms(110)).await.unwrap_err();
    let exceeded = DeadlineExceeded::find(&error).unwrap();
    assert_eq!(
        exceeded.log().last().unwrap().ceiling,
        Some((ms(100), Bound::Deadline))
    );
}

#[tokio::test(start_paused = true)]
async fn a_window_without_calls_forgets_everything() {
    let (layer, measured) = measuring();
    let stack = ServiceBuilder::new().layer(layer).service(taking());
    assert!(all_ok(&calls(&stack, 100, ms(40)).await));
    sleep(Duration::from_secs(240)).await;
    assert_eq!(measured.ceiling(Key::SHARED), Some(ms(120)));
    sleep(Duration::from_secs(60)).await;
    assert_eq!(measured.ceiling(Key::SHARED), None);
    assert!(all_ok(&calls(&stack, 1, ms(4000)).await));
}

#[tokio::test(start_paused = true)]
async fn a_step_costs_five_attempts_and_then_none() {
    let suspensions = Arc::new(Mutex::new(0));
    let (layer, measured) = measuring();
    let layer = layer.on_event({
        let suspensions = Arc::clone(&suspensions);
        move |event: &Event<'_>| {
            if event.kind == EventKind::CeilingSuspended {
                *suspensions.lock().unwrap() += 1;
            }
        }
    });
    let stack = ServiceBuilder::new().layer(layer).service(taking());
    assert!(all_ok(&calls(&stack, 1000, ms(40)).await));
    let after = calls(&stack, 200, ms(400)).await;
    let cut: Vec<_> = (0..200).filter(|i| after[*i].is_err()).collect();
    assert_eq!(cut, [0, 1, 2, 3, 4]);
    assert_eq!(*suspensions.lock().unwrap(), 1);
    assert_eq!(measured.ceiling(Key::SHARED), Some(ms(1200)));
    assert!(!measured.is_suspended(Key::SHARED));
}

#[tokio::test(start_paused = true)]
async fn a_step_under_load_costs_five_and_those_in_flight() {
    let (layer, measured) = measuring();
    let stack = ServiceBuilder::new().layer(layer).service(taking());
    assert!(all_ok(&calls(&stack, 100, ms(40)).await));
    let in_flight: Vec<_> = (0..50)
        .map(|_| tokio::spawn(stack.clone().oneshot(ms(400))))
        .collect();
    for call in in_flight {
        assert!(call.await.unwrap().is_err());
    }
    // Those that were cut after the suspension neither count again nor keep it from getting warm.
    assert!(measured.is_suspended(Key::SHARED));
    assert!(all_ok(&calls(&stack, 20, ms(400)).await));
    assert_eq!(measured.ceiling(Key::SHARED), Some(ms(1200)));
}

#[tokio::test(start_paused = true)]
async fn only_what_is_judged_ok_is_sampled() {
    let layer = AttemptTimeoutLayer::http(TIMEOUT).ceiling(AttemptCeiling::above(3.0));
    let measured = layer.measured().unwrap();
    let stack = ServiceBuilder::new().layer(layer).service(service_fn(
        |request: Request<u16>| async move {
            sleep(ms(40)).await;
            let status = *request.body();
            Ok::<_, BoxError>(Response::builder().status(status).body(()).unwrap())
        },
    ));
    let send = |status: u16| stack.clone().oneshot(Request::new(status));
    for _ in 0..30 {
        send(503).await.unwrap();
        send(429).await.unwrap();
    }
    assert_eq!(measured.samples(Key::SHARED), 0);
    for _ in 0..30 {
        send(200).await.unwrap();
        // A caller that leaves is no sample either.
        timeout(ms(10), send(200)).await.unwrap_err();
    }
    send(404).await.unwrap();
    sleep(Duration::from_secs(2)).await;
    send(200).await.unwrap();
    assert_eq!(measured.samples(Key::SHARED), 32);
}

#[tokio::test(start_paused = true)]
async fn each_dependency_is_measured_for_itself() {
    let layer = AttemptTimeoutLayer::http(TIMEOUT).ceiling(AttemptCeiling::above(3.0));
    let measured = layer.measured().unwrap();
    let stack = ServiceBuilder::new().layer(layer).service(service_fn(
        |request: Request<Duration>| async move {
            sleep(*request.body()).await;
            Ok::<_, BoxError>(Response::new(()))
        },
    ));
    let get = |uri: &str, wait| Request::get(uri).body(wait).unwrap();
    for _ in 0..20 {
        let fast = get("http://fast/a", ms(40));
        stack.clone().oneshot(fast).await.unwrap();
        let slow = Request::post("http://SLOW:80/b").body(ms(400)).unwrap();
        stack.clone().oneshot(slow).await.unwrap();
    }
    let key = |uri| Authority.key_of(&Request::get(uri).body(()).unwrap());
    assert_eq!(measured.ceiling(key("http://fast/")), Some(ms(120)));
    assert_eq!(measured.ceiling(key("http://slow/")), Some(ms(1200)));
    assert_eq!(measured.ceiling(key("http://other/")), None);
    assert_eq!(measured.ceiling(Key::SHARED), None);
}

#[tokio::test(start_paused = true)]
async fn a_hundred_thousand_authorities_are_no_trouble() {
    let layer = AttemptTimeoutLayer::http(TIMEOUT).ceiling(AttemptCeiling::above(3.0));
    let mut stack =
        ServiceBuilder::new()
            .layer(layer)
            .service(service_fn(|_: Request<()>| async {
                Ok::<_, BoxError>(Response::new(()))
            }));
    for i in 0..100_000 {
        let request = Request::get(format!("http://host-{i}/")).body(()).unwrap();
        stack.ready().await.unwrap().call(request).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_retry_that_a_normal_attempt_does_not_fit_behind_is_not_begun() {
    let run = async |deadline: u64| {
        let (layer, _) = measuring();
        let warm = ServiceBuilder::new().layer(layer.clone()).service(taking());
        assert!(all_ok(&calls(&warm, 20, ms(40)).await));
        let sent = Arc::new(Mutex::new(0));
        let counted = Arc::clone(&sent);
        let stack = ServiceBuilder::new()
            .layer(DeadlineLayer::new(ms(deadline)))
            .layer(RetryLayer::new().backoff(Backoff::constant(ms(100))))
            .layer(layer)
            .service(service_fn(move |_: Duration| {
                *counted.lock().unwrap() += 1;
                std::future::ready(Err::<(), BoxError>(
                    std::io::Error::from(std::io::ErrorKind::ConnectionReset).into(),
                ))
            }));
        let begun = Instant::now();
        let error = stack.oneshot(ms(0)).await.unwrap_err();
        let doomed = DeadlineExceeded::find(&error).is_some();
        (*sent.lock().unwrap(), doomed, Instant::now() - begun)
    };
    // 100 ms of delay and 40 ms of a normal attempt.
    assert_eq!(run(140).await, (1, true, ms(0)));
    assert_eq!(run(145).await, (2, true, ms(100)));
}

#[tokio::test(start_paused = true)]
async fn a_backoff_can_follow_the_median() {
    let (layer, _) = measuring();
    let warm = ServiceBuilder::new().layer(layer.clone()).service(taking());
    assert!(all_ok(&calls(&warm, 20, ms(40)).await));
    let script = Arc::new(Mutex::new(VecDeque::from([false, false, true])));
    let stack = ServiceBuilder::new()
        .layer(RetryLayer::new().backoff(Backoff::measured(2.0).jitter(Jitter::None)))
        .layer(layer)
        .service(service_fn(move |_: Duration| {
            let ok = script.lock().unwrap().pop_front().unwrap();
            std::future::ready(if ok {
                Ok::<_, BoxError>(())
            } else {
                Err(std::io::Error::from(std::io::ErrorKind::ConnectionReset).into())
            })
        }));
    let begun = Instant::now();
    stack.oneshot(ms(0)).await.unwrap();
    assert_eq!(Instant::now() - begun, ms(80 + 160));
}

#[tokio::test(start_paused = true)]
async fn under_buffering_a_sample_ends_with_the_body() {
    let layer = AttemptTimeoutLayer::http(TIMEOUT).ceiling(AttemptCeiling::above(3.0));
    let measured = layer.measured().unwrap();
    let stack = ServiceBuilder::new()
        .layer(layer)
        .layer(BufferResponsesLayer::new())
        .service(service_fn(|_: Request<Full<Bytes>>| async {
            sleep(ms(10)).await;
            let body = StreamBody::new(Box::pin(futures_util::stream::once(async {
                sleep(ms(30)).await;
                Ok::<_, BoxError>(http_body::Frame::data(Bytes::from_static(b"late")))
            })));
            Ok::<_, BoxError>(Response::new(body))
        }));
    for _ in 0..20 {
        let response = stack
            .clone()
            .oneshot(Request::new(Full::default()))
            .await
            .unwrap();
        assert_eq!(
            response.into_body().collect().await.unwrap().to_bytes(),
            "late"
        );
    }
    assert_eq!(measured.median(Key::SHARED), Some(ms(40)));
}

#[test]
fn what_cannot_be_measured_is_refused_with_every_reason() {
    let layer = AttemptTimeoutLayer::new(ms(50)).ceiling(
        AttemptCeiling::above(1.0)
            .quantile(0.999)
            .window(Duration::ZERO)
            .minimum_samples(0)
            .floor(ms(50)),
    );
    let error = layer.validate().unwrap_err();
    let fields: Vec<_> = error
        .problems()
        .iter()
        .map(tower_deadline::Problem::field)
        .collect();
    assert_eq!(
        fields,
        [
            "ceiling.multiple",
            "ceiling.quantile",
            "ceiling.window",
            "ceiling.minimum_samples",
            "ceiling.floor"
        ]
    );
    for multiple in [f64::NAN, f64::INFINITY, 0.0, -3.0] {
        let layer = AttemptTimeoutLayer::new(TIMEOUT).ceiling(AttemptCeiling::above(multiple));
        assert!(layer.validate().is_err(), "{multiple}");
    }
    for quantile in [0.5, 0.99] {
        let ceiling = AttemptCeiling::above(3.0).quantile(quantile);
        assert!(
            AttemptTimeoutLayer::new(TIMEOUT)
                .ceiling(ceiling)
                .validate()
                .is_ok()
        );
    }
}

#[test]
fn a_ceiling_whose_floor_leaves_it_nothing_to_do_is_refused_the_default_floor_too() {
    let default = AttemptCeiling::above(3.0);
    for (ceiling, floor) in [(default, ms(50)), (default.floor(ms(30)), ms(30))] {
        let same = AttemptTimeoutLayer::new(floor).ceiling(ceiling);
        let error = same.validate().unwrap_err();
        assert_eq!(error.problems().len(), 1, "{error}");
        assert_eq!(error.problems()[0].field(), "ceiling.floor");
        let above = AttemptTimeoutLayer::new(floor + ms(1)).ceiling(ceiling);
        assert_eq!(above.validate(), Ok(()));
    }
}

/// What nobody validated does no harm: it never cuts what is normal.
#[tokio::test(start_paused = true)]
async fn a_configuration_that_nobody_validated_cuts_nothing_normal() {
    for multiple in [0.0, 0.5, 1.0, -1.0, f64::NAN] {
        let ceiling = AttemptCeiling::above(multiple)
            .quantile(f64::NAN)
            .window(Duration::ZERO)
            .minimum_samples(0)
            .floor(Duration::ZERO);
        let layer = AttemptTimeoutLayer::new(TIMEOUT).ceiling(ceiling);
        let stack = ServiceBuilder::new().layer(layer).service(taking());
        assert!(all_ok(&calls(&stack, 100, ms(40)).await), "{multiple}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_with_an_attempt_timeout_of_its_own_is_not_held_to_what_was_measured() {
    let (layer, _) = measuring();
    let stack = ServiceBuilder::new().layer(layer).service(taking());
    assert!(all_ok(&calls(&stack, 25, ms(10)).await));
    let slow = || stack.clone().oneshot(ms(800));
    let own = tower_deadline::CallOverride::new;
    assert!(slow().await.is_err());
    for overrides in [own().attempt_timeout(ms(900)), own().no_attempt_timeout()] {
        assert!(
            tower_deadline::call::with_override(overrides, slow())
                .await
                .is_ok()
        );
    }
    let shorter = own().attempt_timeout(ms(700));
    assert!(
        tower_deadline::call::with_override(shorter, slow())
            .await
            .is_err()
    );
}

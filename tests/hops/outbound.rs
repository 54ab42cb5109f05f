//! What a client tells its peers.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::Full;
use tokio::time::sleep;
use tower::buffer::BufferLayer;
use tower::{Layer, Service, ServiceBuilder, ServiceExt, service_fn};
use tower_deadline::{
    AttemptTimeoutLayer, Backoff, BoxError, CallOverride, CallPolicy, Criticality,
    DeadlineExceeded, DeadlineHeader, DeadlineLayer, DeadlineOrigin, EventKind, HopHeaders,
    PropagateLayer, RetryLayer, call,
};

use crate::support::*;

const MS: &str = "x-deadline-ms";

/// The values of a header over the attempts.
fn values(shared: &Shared, name: &str) -> Vec<Option<String>> {
    let received = shared.received.lock().unwrap();
    let each = received.iter().map(|(_, request)| request.headers());
    each.map(|headers| one(headers, name)).collect()
}

fn one(headers: &HeaderMap, name: &str) -> Option<String> {
    let all: Vec<_> = headers.get_all(name).iter().collect();
    assert!(all.len() <= 1, "{all:?}");
    all.first().map(|value| value.to_str().unwrap().to_owned())
}

fn some<const N: usize>(values: [&str; N]) -> Vec<Option<String>> {
    values
        .into_iter()
        .map(|value| Some(value.to_owned()))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn each_attempt_says_what_is_left_when_it_is_sent() {
    // Each attempt costs 2 s of 10 s, and nothing else bounds it.
    let policy = CallPolicy::http()
        .deadline(secs(10))
        .no_attempt_timeout()
        .attempts(3)
        .backoff(Backoff::none())
        .propagate_deadline(true);
    let (service, shared) = Scripted::always(|| Reply::after(secs(2), 503));
    let response = policy.layer().layer(service).oneshot(get()).await.unwrap();
    assert_eq!(response.status(), 503);
    assert_eq!(values(&shared, MS), some(["10000", "8000", "6000"]));
}

#[tokio::test(start_paused = true)]
async fn it_is_the_smaller_of_attempt_timeout_and_what_is_left_in_every_form() {
    for (backoff, last) in [(0, "50"), (20, "10")] {
        let (service, shared) = Scripted::always(|| Reply::Hang);
        let policy = CallPolicy::http()
            .deadline(ms(250))
            .attempt_timeout(ms(100))
            .backoff(match backoff {
                0 => Backoff::none(),
                n => Backoff::constant(ms(n)),
            })
            .propagate_deadline(true)
            .hop_headers(HopHeaders::any());
        let clock = Clock::start();
        let error = policy
            .layer()
            .layer(service)
            .oneshot(get())
            .await
            .err()
            .unwrap();
        assert!(DeadlineExceeded::find(&error).is_some());
        assert_eq!(clock.ms(), 250);
        assert_eq!(values(&shared, MS), some(["100", "100", last]));
        assert_eq!(
            values(&shared, "x-envoy-expected-rq-timeout-ms"),
            some(["100", "100", last])
        );
        let grpc = some(["100m", "100m", &format!("{last}m")]);
        assert_eq!(values(&shared, "grpc-timeout"), grpc);
        shared.check();
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_bound_nothing_is_said() {
    let (service, shared) = Scripted::always(|| Reply::status(200));
    let stack = PropagateLayer::new()
        .headers(HopHeaders::any())
        .layer(service.clone());
    stack.oneshot(get()).await.unwrap();
    let unbounded = CallPolicy::none().propagate_deadline(true).layer();
    unbounded.layer(service).oneshot(get()).await.unwrap();
    for name in [MS, "grpc-timeout", "x-envoy-expected-rq-timeout-ms"] {
        assert_eq!(values(&shared, name), [None, None]);
    }
}

#[tokio::test(start_paused = true)]
async fn long_waits_fit_into_eight_digits_and_promise_no_more_than_there_is() {
    // 27.8 hours and a little, 30 days.
    for (left, expected) in [
        (Duration::from_micros(99_999_999_900), "99999999m"),
        (Duration::from_millis(100_079_999), "100079S"),
        (secs(30 * 86_400), "2592000S"),
        (Duration::MAX, ""),
    ] {
        let (service, shared) = Scripted::always(|| Reply::status(200));
        let stack = ServiceBuilder::new()
            .layer(DeadlineLayer::new(left))
            .layer(PropagateLayer::grpc())
            .service(service);
        stack.oneshot(get()).await.unwrap();
        let expected = (!expected.is_empty()).then(|| expected.to_owned());
        assert_eq!(values(&shared, "grpc-timeout"), [expected]);
    }
}

#[tokio::test(start_paused = true)]
async fn with_less_than_a_millisecond_left_nothing_is_sent() {
    for (left, calls) in [(999, 0), (1000, 1)] {
        let (service, shared) = Scripted::always(|| Reply::Hang);
        let events = Recorder::default();
        let policy = CallPolicy::http()
            .deadline(Duration::from_micros(left))
            .propagate_deadline(true)
            .hop_headers(HopHeaders::any());
        let layer = policy.layer().on_event(events.clone());
        let error = layer.layer(service).oneshot(get()).await.err().unwrap();
        let exceeded = DeadlineExceeded::find(&error).unwrap();
        assert_eq!(exceeded.origin(), DeadlineOrigin::Own);
        assert_eq!(shared.calls(), calls, "{left} us");
        assert_eq!(events.terminal().kind, EventKind::DeadlineExceeded);
    }
}

#[tokio::test(start_paused = true)]
async fn an_attempt_timeout_below_a_millisecond_sends_nothing_either() {
    let (service, shared) = Scripted::always(|| Reply::Hang);
    let stack = ServiceBuilder::new()
        .layer(AttemptTimeoutLayer::http(Duration::from_micros(800)))
        .layer(PropagateLayer::new())
        .service(service);
    let error = stack.oneshot(get()).await.err().unwrap();
    assert!(tower_deadline::AttemptTimedOut::find(&error).is_some());
    assert_eq!(shared.calls(), 0);
}

#[tokio::test(start_paused = true)]
async fn what_was_spent_on_the_way_down_is_not_promised() {
    // In a buffer's queue, and in a hook before the attempt that is inside its timeout.
    let (service, shared) = Scripted::always(|| Reply::status(200));
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(secs(1)))
        .layer(tower::layer::layer_fn(|inner: BufferedPropagate| {
            service_fn(move |request: Req| {
                let mut inner = inner.clone();
                async move {
                    sleep(ms(100)).await;
                    inner.ready().await?.call(request).await
                }
            })
        }))
        .layer(BufferLayer::new(4))
        .layer(PropagateLayer::new())
        .service(service);
    stack.oneshot(get()).await.unwrap();
    assert_eq!(values(&shared, MS), some(["900"]));
    shared.check();
}

type BufferedPropagate =
    tower::buffer::Buffer<Req, <tower_deadline::hop::Propagate<Scripted> as Service<Req>>::Future>;

#[tokio::test(start_paused = true)]
async fn a_tighter_value_of_the_request_itself_stays() {
    for (own, expected) in [
        ("300", "300"),
        ("1000", "1000"),
        ("1001", "1000"),
        ("86400000", "1000"),
        ("99999999999999999999999", "1000"),
        ("soon", "1000"),
        ("-1", "1000"),
        ("", "1000"),
        ("0", "0"),
    ] {
        let (service, shared) = Scripted::always(|| Reply::status(200));
        let events = Recorder::default();
        let stack = ServiceBuilder::new()
            .layer(DeadlineLayer::new(secs(1)))
            .layer(PropagateLayer::new().on_event(events.clone()))
            .service(service);
        let mut request = get();
        request
            .headers_mut()
            .insert(MS, HeaderValue::from_static(own));
        stack.oneshot(request).await.unwrap();
        assert_eq!(values(&shared, MS), some([expected]), "{own:?}");
        let told = events.count(EventKind::HeaderIgnored);
        assert_eq!(
            told,
            usize::from(["soon", "-1", ""].contains(&own)),
            "{own:?}"
        );
    }
    // Whichever of its forms it is in.
    let (service, shared) = Scripted::always(|| Reply::status(200));
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(secs(1)))
        .layer(PropagateLayer::new().headers(HopHeaders::any()))
        .service(service);
    let mut request = get();
    request
        .headers_mut()
        .insert("grpc-timeout", HeaderValue::from_static("70m"));
    stack.oneshot(request).await.unwrap();
    assert_eq!(values(&shared, MS), some(["70"]));
    assert_eq!(
        values(&shared, "x-envoy-expected-rq-timeout-ms"),
        some(["70"])
    );
    assert_eq!(values(&shared, "grpc-timeout"), some(["70m"]));
}

#[tokio::test(start_paused = true)]
async fn a_request_that_says_itself_that_it_is_over_says_so_in_every_form() {
    for (own, expected) in [
        (&[(MS, "0")][..], ["0", "1m", "1"]),
        (&[(MS, "0"), ("grpc-timeout", "5S")], ["0", "1m", "1"]),
        (&[(MS, "0"), (MS, "700")], ["1", "1m", "1"]),
        (&[(MS, "x"), ("grpc-timeout", "3u")], ["1", "3u", "1"]),
    ] {
        let (service, shared) = Scripted::always(|| Reply::status(200));
        let stack = ServiceBuilder::new()
            .layer(DeadlineLayer::new(secs(3)))
            .layer(PropagateLayer::new().headers(HopHeaders::any()))
            .service(service);
        let mut request = get();
        for (name, value) in own {
            let value = HeaderValue::from_static(value);
            request.headers_mut().append(*name, value);
        }
        stack.oneshot(request).await.unwrap();
        let names = [MS, "grpc-timeout", "x-envoy-expected-rq-timeout-ms"];
        for (name, expected) in names.into_iter().zip(expected) {
            assert_eq!(values(&shared, name), some([expected]), "{own:?} {name}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn criticality_is_sent_when_asked_for_and_only_falls() {
    let name = "x-criticality";
    let policy = CallPolicy::http().propagate_criticality(true);
    let (service, shared) = Scripted::always(|| Reply::status(200));
    let stack = policy.layer().layer(service);
    stack.clone().oneshot(get()).await.unwrap();
    let sheddable = stack.clone().oneshot(get());
    call::with_criticality(Criticality::Sheddable, sheddable)
        .await
        .unwrap();
    let top = stack.clone().oneshot(get());
    call::with_criticality(Criticality::CriticalPlus, top)
        .await
        .unwrap();
    let mut labelled = get();
    labelled
        .headers_mut()
        .insert(name, HeaderValue::from_static("SheddablePlus"));
    stack.clone().oneshot(labelled.clone()).await.unwrap();
    let lower = stack.oneshot(labelled);
    call::with_criticality(Criticality::Sheddable, lower)
        .await
        .unwrap();
    let mut top = get();
    top.headers_mut()
        .insert(name, HeaderValue::from_static("CriticalPlus"));
    let (peer, told) = Scripted::always(|| Reply::status(200));
    let call = policy.layer().layer(peer).oneshot(top);
    call::with_criticality(Criticality::CriticalPlus, call)
        .await
        .unwrap();
    assert_eq!(values(&told, name), some(["CriticalPlus"]));
    assert_eq!(
        values(&shared, name),
        some([
            "Critical",
            "Sheddable",
            "CriticalPlus",
            "SheddablePlus",
            "Sheddable"
        ])
    );
    // Not unless asked for.
    let (service, shared) = Scripted::always(|| Reply::status(200));
    CallPolicy::http()
        .layer()
        .layer(service)
        .oneshot(get())
        .await
        .unwrap();
    assert_eq!(values(&shared, name), [None]);
}

#[tokio::test(start_paused = true)]
async fn requests_that_may_come_again_are_marked_from_the_first_attempt_on() {
    let name = "x-nresilience-retrying";
    let marks = async |policy: CallPolicy, request: Req| {
        let (service, shared) = Scripted::always(|| Reply::status(503));
        let stack = policy.backoff(Backoff::none()).layer().layer(service);
        stack.oneshot(request).await.unwrap();
        values(&shared, name)
    };
    let http = CallPolicy::http();
    assert_eq!(marks(http, get()).await, some(["1", "1", "1"]));
    assert_eq!(
        marks(http.propagate_deadline(true), get()).await,
        some(["1", "1", "1"])
    );
    assert_eq!(marks(http, post()).await, [None]);
    assert_eq!(
        marks(http.mark_retries(false), get()).await,
        [None, None, None]
    );
    let mut once = get();
    once.extensions_mut().insert(CallOverride::new().no_retry());
    assert_eq!(marks(http, once).await, [None]);
    let mut again = post();
    again.extensions_mut().insert(CallOverride::new().retry());
    assert_eq!(marks(http, again).await, some(["1", "1", "1"]));
    // One attempt, and nobody above who would make another.
    let (service, shared) = Scripted::always(|| Reply::status(503));
    let one_attempt = CallPolicy::none().mark_retries(true).layer().layer(service);
    one_attempt.clone().oneshot(get()).await.unwrap();
    assert_eq!(values(&shared, name), [None]);
    // It is the caller's retry too.
    let above = RetryLayer::http().attempts(2).backoff(Backoff::none());
    above.layer(one_attempt).oneshot(get()).await.unwrap();
    assert_eq!(values(&shared, name)[1..], some(["1", "1"]));
}

#[tokio::test(start_paused = true)]
async fn the_names_can_be_others() {
    const OURS: HopHeaders = HopHeaders::new()
        .deadline(&[DeadlineHeader::millis("x-time-left")])
        .criticality("x-weight")
        .retry_marker("x-again");
    let (service, shared) = Scripted::always(|| Reply::status(200));
    let policy = CallPolicy::http()
        .deadline(secs(2))
        .propagate_deadline(true)
        .propagate_criticality(true)
        .hop_headers(OURS)
        .checked();
    policy.layer().layer(service).oneshot(get()).await.unwrap();
    assert_eq!(values(&shared, "x-time-left"), some(["2000"]));
    assert_eq!(values(&shared, "x-weight"), some(["Critical"]));
    assert_eq!(values(&shared, "x-again"), some(["1"]));
    assert_eq!(shared.received.lock().unwrap()[0].1.headers().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn what_is_offered_is_passed_on_and_cut_by_whoever_offered_it() {
    let (service, shared) = Scripted::always(|| Reply::status(200));
    let stack = PropagateLayer::new().layer(service);
    call::with_deadline(ms(200), async {
        sleep(ms(50)).await;
        stack.clone().oneshot(get()).await.unwrap();
        sleep(ms(150)).await;
        let error = stack.oneshot(get()).await.err().unwrap();
        let exceeded = DeadlineExceeded::find(&error).unwrap();
        assert_eq!(exceeded.origin(), DeadlineOrigin::Inherited);
    })
    .await;
    assert_eq!(values(&shared, MS), some(["150"]));
}

#[tokio::test(start_paused = true)]
async fn a_measured_ceiling_is_what_is_sent() {
    let policy = CallPolicy::http()
        .attempt_timeout(secs(10))
        .ceiling(tower_deadline::AttemptCeiling::above(3.0).minimum_samples(5))
        .propagate_deadline(true);
    let (service, shared) = Scripted::always(|| Reply::after(ms(100), 200));
    let stack = policy.layer().layer(service);
    for _ in 0..10 {
        stack.clone().oneshot(get()).await.unwrap();
    }
    let values = values(&shared, MS);
    assert_eq!(values[0].as_deref(), Some("10000"));
    let last: u64 = values[9].as_ref().unwrap().parse().unwrap();
    assert!((250..=350).contains(&last), "{last}");
}

#[test]
fn what_cannot_be_sent_is_refused() {
    let fields = |policy: CallPolicy| -> Vec<&'static str> {
        let error = policy.validate().err();
        error
            .iter()
            .flat_map(tower_deadline::PolicyError::problems)
            .map(tower_deadline::Problem::field)
            .collect()
    };
    let http = CallPolicy::http();
    const NONE: HopHeaders = HopHeaders::new().deadline(&[]);
    assert_eq!(
        fields(http.hop_headers(NONE).propagate_deadline(true)),
        ["headers.deadline"]
    );
    assert!(fields(http.hop_headers(NONE)).is_empty());
    assert_eq!(
        fields(CallPolicy::none().hop_headers(NONE)),
        ["hop_headers"]
    );
    const TWICE: HopHeaders = HopHeaders::new().criticality("x-deadline-ms");
    assert_eq!(fields(http.hop_headers(TWICE)), ["headers.deadline"]);
    assert!(PropagateLayer::new().headers(TWICE).validate().is_err());
    assert!(fields(CallPolicy::grpc()).is_empty());
}

#[tokio::test(start_paused = true)]
async fn no_header_of_the_request_is_lost() {
    let (service, shared) = Scripted::always(|| Reply::status(503));
    let policy = CallPolicy::http()
        .propagate_deadline(true)
        .propagate_criticality(true)
        .backoff(Backoff::none());
    let mut request = get();
    for value in ["a", "b"] {
        request
            .headers_mut()
            .append("x-twice", HeaderValue::from_static(value));
    }
    let before = request.headers().clone();
    policy
        .layer()
        .layer(service)
        .oneshot(request)
        .await
        .unwrap();
    for (_, sent) in shared.received.lock().unwrap().iter() {
        let mut headers = sent.headers().clone();
        for own in [MS, "x-criticality", "x-nresilience-retrying"] {
            assert!(headers.remove(own).is_some(), "{own}");
        }
        assert_eq!(headers, before);
    }
}

#[tokio::test(start_paused = true)]
async fn a_probe_without_clones_is_called_as_it_was_readied() {
    let (service, shared) = Scripted::always(|| Reply::after(ms(5), 503));
    shared
        .readiness
        .lock()
        .unwrap()
        .extend((0..3).map(|_| Ok(ms(10))));
    let policy = CallPolicy::grpc()
        .backoff(Backoff::none())
        .deadline(secs(1));
    let stack = policy.layer().layer(service);
    let _: Response<_> = stack.oneshot(get()).await.unwrap();
    shared.check();
    // The first wait for readiness is above the deadline's clock.
    assert_eq!(
        values(&shared, "grpc-timeout"),
        some(["1000m", "985m", "970m"])
    );
}

/// A request and its future can be sent to another thread, and a body need only be that.
#[allow(dead_code)]
fn its_future_is_send(channel: Scripted) -> impl Send {
    let mut stack = CallPolicy::grpc().grpc_layer().layer(channel);
    stack.call(Request::new(Full::<Bytes>::default()))
}

#[allow(dead_code)]
fn errors_are_boxes(
    layer: &PropagateLayer,
    inner: Scripted,
) -> impl Service<Req, Error = BoxError> {
    layer.layer(inner)
}

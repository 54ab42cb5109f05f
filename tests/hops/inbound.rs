//! What a server believes of its callers.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, Response};
use http_body_util::{BodyExt, Full};
use tokio::time::sleep;
use tower::limit::ConcurrencyLimitLayer;
use tower::{Layer, Service, ServiceBuilder, ServiceExt, service_fn};
use tower_deadline::{
    AnswerBody, BoxError, Criticality, DeadlineHeader, Event, EventKind, HopHeaders, InheritLayer,
    Inherited, call,
};

use crate::support::*;

type Headers<'a> = &'a [(&'a str, &'a [u8])];

type Answered = Response<AnswerBody<Full<Bytes>>>;

/// What a handler finds.
#[derive(Debug, Clone, PartialEq)]
struct Found {
    remaining: Option<Duration>,
    criticality: Criticality,
    inside_retry: bool,
}

/// Sends these headers through `layer`; what the handler found, if it ran, what was answered, and which
/// headers were told of.
async fn sent(
    layer: InheritLayer,
    headers: &[(&str, &[u8])],
) -> (Option<Found>, Answered, Vec<String>) {
    let found = Arc::new(Mutex::new(None));
    let ignored = Arc::new(Mutex::new(Vec::new()));
    let (finds, tells) = (Arc::clone(&found), Arc::clone(&ignored));
    let layer = layer.on_event(move |event: &Event<'_>| {
        if event.kind == EventKind::HeaderIgnored {
            tells.lock().unwrap().push(event.header.unwrap().to_owned());
        }
    });
    assert_eq!(layer.validate(), Ok(()));
    let service = layer.layer(service_fn(move |request: Req| {
        let here = Found {
            remaining: call::remaining(),
            criticality: call::criticality(),
            inside_retry: call::inside_retry(),
        };
        // The same is in the extensions, for those who spawn.
        let carried = request.extensions().get::<Inherited>().unwrap();
        assert_eq!(carried.remaining(), here.remaining);
        assert_eq!(carried.criticality(), here.criticality);
        assert_eq!(carried.inside_retry(), here.inside_retry);
        *finds.lock().unwrap() = Some(here);
        async { Ok::<_, BoxError>(Response::new(Full::<Bytes>::default())) }
    }));
    let mut request = get();
    for (name, value) in headers {
        let name = http::HeaderName::from_bytes(name.as_bytes()).unwrap();
        let value = HeaderValue::from_bytes(value).unwrap();
        request.headers_mut().append(name, value);
    }
    let response = service.oneshot(request).await.unwrap();
    let found = found.lock().unwrap().clone();
    let ignored = ignored.lock().unwrap().clone();
    (found, response, ignored)
}

const CAP: Duration = secs(3600 * 24);

enum Must {
    /// The handler has so long.
    Have(Duration),
    /// 504, before the handler.
    Expire,
    /// Not there, and told of.
    Malformed,
    /// Not there, and nobody is told.
    Absent,
}
use Must::{Absent, Expire, Have, Malformed};

const MS: &str = "x-deadline-ms";
const GRPC: &str = "grpc-timeout";
const ENVOY: &str = "x-envoy-expected-rq-timeout-ms";

/// Table G of the public reports, inbound.
const TABLE: &[(&str, &[u8], Must)] = &[
    (MS, b"100", Have(ms(100))),
    (MS, b" 100 ", Have(ms(100))),
    (MS, b"\t100", Have(ms(100))),
    (MS, b"0", Expire),
    (MS, b"000", Expire),
    (MS, b"-1", Malformed),
    (MS, b"-0", Malformed),
    (MS, b"+5", Malformed),
    (MS, b"1.5", Malformed),
    (MS, b"1e3", Malformed),
    (MS, b"100ms", Malformed),
    (MS, b"0x64", Malformed),
    (MS, b"1_000", Malformed),
    (MS, "١٠".as_bytes(), Malformed),
    (MS, b"", Malformed),
    (MS, b" ", Malformed),
    (MS, b"\xff", Malformed),
    (MS, b"100, 500", Malformed),
    (MS, b"99999999999999999999", Have(CAP)),
    (MS, b"18446744073709551615", Have(CAP)),
    (GRPC, b"1H", Have(secs(3600))),
    (GRPC, b"1M", Have(secs(60))),
    (GRPC, b"1S", Have(secs(1))),
    (GRPC, b"1m", Have(ms(1))),
    (GRPC, b"1u", Have(Duration::from_micros(1))),
    (GRPC, b"1n", Have(Duration::from_nanos(1))),
    (GRPC, b"00000001n", Have(Duration::from_nanos(1))),
    (GRPC, b"99999999H", Have(CAP)),
    (GRPC, b"100000000S", Malformed),
    (GRPC, b"1", Malformed),
    (GRPC, b"S", Malformed),
    (GRPC, b"1s", Malformed),
    (GRPC, b"1 S", Malformed),
    (GRPC, b"1S1m", Malformed),
    (GRPC, b"-1S", Malformed),
    (GRPC, b"+5S", Malformed),
    (GRPC, b"0S", Malformed),
    (GRPC, b"", Malformed),
    (GRPC, b"\xff", Malformed),
    (ENVOY, b"250", Have(ms(250))),
    (ENVOY, b"0", Absent),
    (ENVOY, b"-1", Malformed),
    (ENVOY, b"abc", Malformed),
];

#[tokio::test(start_paused = true)]
async fn each_value_of_a_deadline_header_means_one_thing() {
    let layer = InheritLayer::new().maximum(CAP).reject_expired(true);
    for (name, value, must) in TABLE {
        let shown = format!("{name}: {:?}", String::from_utf8_lossy(value));
        let (found, response, ignored) = sent(layer.clone(), &[(name, value)]).await;
        let remaining = found.map(|found| found.remaining);
        let (expected, told) = match must {
            Have(time) => (Some(Some(*time)), false),
            Expire => (None, false),
            Malformed => (Some(None), true),
            Absent => (Some(None), false),
        };
        assert_eq!(remaining, expected, "{shown}");
        assert_eq!(ignored.len(), usize::from(told), "{shown}");
        let status = if matches!(must, Expire) { 504 } else { 200 };
        assert_eq!(response.status(), status, "{shown}");

        // What is malformed is refused where that is asked for, and nothing else is.
        let strict = layer.clone().reject_malformed(true);
        let (_, response, _) = sent(strict, &[(name, value)]).await;
        let status = if told { 400 } else { status };
        assert_eq!(response.status(), status, "strict: {shown}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_smallest_valid_deadline_counts() {
    let layer = InheritLayer::new().maximum(CAP);
    let cases: [(Headers<'_>, Option<u64>, usize); 6] = [
        (
            &[(MS, b"300"), (GRPC, b"200m"), (ENVOY, b"100")],
            Some(100),
            0,
        ),
        (
            &[(MS, b"100"), (GRPC, b"200m"), (ENVOY, b"300")],
            Some(100),
            0,
        ),
        (&[(MS, b"100"), (MS, b"500")], Some(100), 0),
        (&[(MS, b"500"), (MS, b"100"), (MS, b"x")], Some(100), 1),
        (
            &[(ENVOY, b"abc"), (GRPC, b"200m"), (MS, b"-1")],
            Some(200),
            2,
        ),
        (&[(ENVOY, b"0"), (MS, b"70")], Some(70), 0),
    ];
    for (headers, expected, told) in cases {
        let (found, _, ignored) = sent(layer.clone(), headers).await;
        assert_eq!(found.unwrap().remaining, expected.map(ms), "{headers:?}");
        assert_eq!(ignored.len(), told, "{headers:?}");
    }
    // Of those that are listened to.
    const LEFT: HopHeaders = HopHeaders::new().deadline(&[DeadlineHeader::millis("x-left")]);
    let only = layer.headers(LEFT);
    let (found, ..) = sent(only, &[(MS, b"100"), ("x-left", b"300")]).await;
    assert_eq!(found.unwrap().remaining, Some(ms(300)));
}

#[tokio::test(start_paused = true)]
async fn a_caller_cannot_raise_the_limits_of_a_server() {
    let layer = InheritLayer::new()
        .maximum(secs(10))
        .default_deadline(secs(2));
    for (value, expected) in [
        (Some("3600000"), secs(10)),
        (Some("18446744073709551615"), secs(10)),
        (Some("10001"), secs(10)),
        (Some("9999"), ms(9999)),
        (Some("soon"), secs(2)),
        (None, secs(2)),
    ] {
        let header = value.map(|value| (MS, value.as_bytes()));
        let (found, ..) = sent(layer.clone(), header.as_slice()).await;
        assert_eq!(found.unwrap().remaining, Some(expected), "{value:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_kept_back_may_leave_nothing_and_never_no_bound() {
    for (reserve, left) in [(49, Some(1)), (50, None), (60, None)] {
        let layer = InheritLayer::new()
            .reserve(ms(reserve))
            .reject_expired(true);
        let (found, response, _) = sent(layer, &[(MS, b"50")]).await;
        assert_eq!(
            found.map(|found| found.remaining),
            left.map(|n| Some(ms(n)))
        );
        let status = if left.is_some() { 200 } else { 504 };
        assert_eq!(response.status(), status, "reserve {reserve}");
    }
    // To a gRPC caller some is kept back unless another amount is.
    let kind: (&str, &[u8]) = ("content-type", b"application/grpc");
    let (found, ..) = sent(InheritLayer::new(), &[kind, (GRPC, b"50m")]).await;
    assert_eq!(found.unwrap().remaining, Some(ms(45)));
    let exact = InheritLayer::new().reserve(Duration::ZERO);
    let (found, ..) = sent(exact, &[kind, (GRPC, b"50m")]).await;
    assert_eq!(found.unwrap().remaining, Some(ms(50)));
}

#[tokio::test(start_paused = true)]
async fn an_expired_request_runs_unless_it_is_to_be_refused() {
    let (found, response, _) = sent(InheritLayer::new(), &[(MS, b"0")]).await;
    assert_eq!(found.unwrap().remaining, Some(Duration::ZERO));
    assert_eq!(response.status(), 200);
    for layer in [
        InheritLayer::new().reject_expired(true),
        InheritLayer::new().enforce(true),
    ] {
        let (found, response, _) = sent(layer.clone(), &[(MS, b"0")]).await;
        assert_eq!(found, None);
        assert_eq!(response.status(), 504);
        assert_eq!(
            response.headers()["content-type"],
            "application/problem+json"
        );
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let problem: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(
            (&problem["status"], &problem["type"]),
            (&504.into(), &"about:blank".into())
        );
        // Just before.
        let (found, ..) = sent(layer, &[(MS, b"1")]).await;
        assert_eq!(found.unwrap().remaining, Some(ms(1)));
    }
}

#[tokio::test(start_paused = true)]
async fn how_much_it_matters_and_whether_it_comes_again_is_published() {
    let cases: [(Headers<'_>, Criticality, bool, usize); 10] = [
        (&[], Criticality::Critical, false, 0),
        (
            &[("x-criticality", b"Sheddable")],
            Criticality::Sheddable,
            false,
            0,
        ),
        (
            &[("x-criticality", b" sheddableplus")],
            Criticality::SheddablePlus,
            false,
            0,
        ),
        (
            &[("x-criticality", b"Critical")],
            Criticality::Critical,
            false,
            0,
        ),
        // Nobody gets above `Critical` from outside.
        (
            &[("x-criticality", b"CriticalPlus")],
            Criticality::Critical,
            false,
            0,
        ),
        (
            &[("x-criticality", b"\xff")],
            Criticality::Critical,
            false,
            1,
        ),
        (
            &[
                ("x-criticality", b"CriticalPlus"),
                ("x-criticality", b"Sheddable"),
            ],
            Criticality::Sheddable,
            false,
            0,
        ),
        (
            &[("x-nresilience-retrying", b"1")],
            Criticality::Critical,
            true,
            0,
        ),
        (
            &[("x-nresilience-retrying", b"true")],
            Criticality::Critical,
            false,
            1,
        ),
        (
            &[
                ("x-nresilience-retrying", b"0"),
                ("x-nresilience-retrying", b"1"),
            ],
            Criticality::Critical,
            true,
            1,
        ),
    ];
    for (headers, criticality, inside_retry, told) in cases {
        let (found, _, ignored) = sent(InheritLayer::new(), headers).await;
        let expected = Found {
            remaining: None,
            criticality,
            inside_retry,
        };
        assert_eq!(found.unwrap(), expected, "{headers:?}");
        assert_eq!(ignored.len(), told, "{headers:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_is_not_trusted_says_nothing() {
    let layer = InheritLayer::new()
        .trust_callers(false)
        .default_deadline(secs(2));
    let headers: [(&str, &[u8]); 5] = [
        (MS, b"999999"),
        (GRPC, b"0S"),
        (ENVOY, b"5"),
        ("x-criticality", b"Sheddable"),
        ("x-nresilience-retrying", b"1"),
    ];
    let (found, _, ignored) = sent(layer.clone(), &headers).await;
    let expected = Found {
        remaining: Some(secs(2)),
        criticality: Criticality::Critical,
        inside_retry: false,
    };
    assert_eq!(found.unwrap(), expected);
    assert!(ignored.is_empty());
    // Nor do its words go further.
    let service = layer.layer(service_fn(|request: Req| async move {
        assert!(request.headers().keys().all(|name| name == "x-other"));
        Ok::<_, BoxError>(Response::new(Full::<Bytes>::default()))
    }));
    let mut request = get();
    for (name, value) in headers.into_iter().chain([("x-other", &b"stays"[..])]) {
        let value = HeaderValue::from_bytes(value).unwrap();
        request.headers_mut().append(name, value);
    }
    service.oneshot(request).await.unwrap();
}

/// A service that works so long, counts those who began and those who were dropped in the middle.
fn working(
    work: Duration,
) -> (
    impl Service<Req, Response = Response<Full<Bytes>>, Error = BoxError, Future: Send> + Clone,
    Arc<AtomicUsize>,
    Arc<AtomicUsize>,
) {
    struct Guard(Arc<AtomicUsize>);
    impl Guard {
        fn done(self) {
            self.0.fetch_sub(1, Ordering::SeqCst); // its drop adds one
        }
    }
    impl Drop for Guard {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let (began, dropped) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (begins, drops) = (Arc::clone(&began), Arc::clone(&dropped));
    let service = service_fn(move |_: Req| {
        begins.fetch_add(1, Ordering::SeqCst);
        let guard = Guard(Arc::clone(&drops));
        async move {
            sleep(work).await;
            guard.done();
            Ok::<_, BoxError>(Response::new(Full::<Bytes>::default()))
        }
    });
    (service, began, dropped)
}

fn within(ms: &'static str) -> Req {
    let mut request = get();
    request
        .headers_mut()
        .insert(MS, HeaderValue::from_static(ms));
    request
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_nobody_waits_for_is_dropped_at_the_deadline() {
    let (service, began, dropped) = working(secs(1));
    let enforced = InheritLayer::new().enforce(true).layer(service.clone());
    let clock = Clock::start();
    let response = enforced.clone().oneshot(within("100")).await.unwrap();
    assert_eq!((response.status().as_u16(), clock.ms()), (504, 100));
    assert_eq!(
        (began.load(Ordering::SeqCst), dropped.load(Ordering::SeqCst)),
        (1, 1)
    );
    // One that is as quick as that is answered, and one that is not enforced too.
    let response = enforced.oneshot(within("1000")).await.unwrap();
    assert_eq!(response.status(), 200);
    let lax = InheritLayer::new().reject_expired(true).layer(service);
    assert_eq!(lax.oneshot(within("100")).await.unwrap().status(), 200);
    assert_eq!(dropped.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn to_a_grpc_caller_the_end_is_a_status() {
    let (service, ..) = working(secs(1));
    let events = Recorder::default();
    let layer = InheritLayer::new()
        .enforce(true)
        .reserve(ms(10))
        .on_event(events.clone());
    let mut request = Request::post("http://example.com/a.B/C");
    request = request
        .header("content-type", "application/grpc+proto")
        .header(GRPC, "100m");
    let clock = Clock::start();
    let call = layer
        .layer(service)
        .oneshot(request.body(Full::default()).unwrap());
    let response = call.await.unwrap();
    assert_eq!((response.status().as_u16(), clock.ms()), (200, 90));
    assert_eq!(response.headers()["grpc-status"], "4");
    assert_eq!(response.headers()["content-type"], "application/grpc");
    assert!(http_body::Body::is_end_stream(response.body()));
    let told = &events.all()[0];
    assert_eq!(
        (told.kind, told.status, told.duration),
        (EventKind::Answered, Some(504), Some(ms(90)))
    );
}

#[tokio::test(start_paused = true)]
async fn the_wait_in_a_queue_behind_it_counts() {
    for enforce in [true, false] {
        let (service, began, _) = working(ms(150));
        let layer = InheritLayer::new().enforce(enforce).reject_expired(true);
        let server = ServiceBuilder::new()
            .layer(layer)
            .layer(ConcurrencyLimitLayer::new(1))
            .service(service);
        let clock = Clock::start();
        let timed = |request: Req| {
            let answered = server.clone().oneshot(request);
            let clock = &clock;
            async move { (answered.await.unwrap().status().as_u16(), clock.ms()) }
        };
        let answered = futures_util::future::join(timed(within("100")), timed(within("100")));
        let (first, second) = answered.await;
        // The handler of the second never runs, whichever way it is answered.
        if enforce {
            assert_eq!((first, second), ((504, 100), (504, 100)));
        } else {
            assert_eq!((first, second), ((200, 150), (504, 150)));
        }
        assert_eq!(began.load(Ordering::SeqCst), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn one_inside_another_believes_no_more_than_that_one() {
    const INNER: HopHeaders = HopHeaders::grpc().criticality("x-b").retry_marker("x-c");
    let seen = Arc::new(Mutex::new(None));
    let notes = Arc::clone(&seen);
    let handler = service_fn(move |request: Req| {
        let carried = *request.extensions().get::<Inherited>().unwrap();
        let published = (call::remaining(), call::criticality(), call::inside_retry());
        let extension = (
            carried.remaining(),
            carried.criticality(),
            carried.inside_retry(),
        );
        *notes.lock().unwrap() = Some((published, extension));
        async {
            sleep(secs(1)).await;
            Ok::<_, BoxError>(Response::new(Full::<Bytes>::default()))
        }
    });
    let server = ServiceBuilder::new()
        .layer(InheritLayer::new().maximum(ms(100)))
        .layer(InheritLayer::new().headers(INNER).enforce(true))
        .service(handler);
    let mut request = within("10000");
    for (name, value) in [
        (GRPC, "5S"),
        ("x-criticality", "Sheddable"),
        ("x-nresilience-retrying", "1"),
    ] {
        let value = HeaderValue::from_static(value);
        request.headers_mut().insert(name, value);
    }
    let clock = Clock::start();
    let response = server.oneshot(request).await.unwrap();
    assert_eq!((response.status().as_u16(), clock.ms()), (504, 100));
    let expected = (Some(ms(100)), Criticality::Sheddable, true);
    assert_eq!(*seen.lock().unwrap(), Some((expected, expected)));
}

#[tokio::test(start_paused = true)]
async fn what_has_no_label_has_that_of_whoever_asks_beneath_a_buffer_too() {
    let handler = service_fn(|_: Req| async {
        assert_eq!(call::criticality(), Criticality::Sheddable);
        Ok::<_, BoxError>(Response::new(Full::<Bytes>::default()))
    });
    let server = ServiceBuilder::new()
        .buffer(4)
        .layer(InheritLayer::new())
        .service(handler);
    let asked = server.oneshot(get());
    let response = call::with_criticality(Criticality::Sheddable, asked).await;
    assert_eq!(response.unwrap().status(), 200);
}

#[tokio::test(start_paused = true)]
async fn an_error_of_readiness_is_the_inner_services_own() {
    let (service, shared) = Scripted::new([]);
    let broken: Readiness = Err(|| Own(7).into());
    shared.readiness.lock().unwrap().push_back(broken);
    let error = InheritLayer::new()
        .layer(service)
        .oneshot(get())
        .await
        .err()
        .unwrap();
    assert!(error.is::<Own>());
}

#[test]
fn what_cannot_mean_what_it_says_is_refused() {
    let fields = |layer: InheritLayer| -> Vec<&'static str> {
        let error = layer.validate().err();
        error
            .iter()
            .flat_map(tower_deadline::PolicyError::problems)
            .map(tower_deadline::Problem::field)
            .collect()
    };
    let base = InheritLayer::new();
    assert!(fields(base.clone()).is_empty());
    let nothing = base.clone().maximum(Duration::ZERO);
    assert_eq!(
        fields(nothing.default_deadline(Duration::ZERO)),
        ["maximum", "default_deadline"]
    );
    assert_eq!(
        fields(
            base.clone()
                .maximum(secs(1))
                .default_deadline(secs(2))
                .reserve(secs(1))
        ),
        ["default_deadline", "reserve"]
    );
    assert_eq!(
        fields(
            base.clone()
                .trust_callers(false)
                .maximum(secs(1))
                .reject_malformed(true)
        ),
        ["maximum", "reject_malformed"]
    );
    const ODD: HopHeaders = HopHeaders::new()
        .deadline(&[
            DeadlineHeader::millis("a b"),
            DeadlineHeader::millis("X-Retry"),
        ])
        .criticality("")
        .retry_marker("x-retry");
    assert_eq!(
        fields(base.headers(ODD)),
        [
            "headers.deadline",
            "headers.deadline",
            "headers.criticality"
        ]
    );
}

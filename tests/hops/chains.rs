//! What a hop does to the calls that its handlers make.

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Response};
use http_body_util::Full;
use tokio::time::sleep;
use tower::util::BoxCloneSyncService;
use tower::{Layer, ServiceExt, service_fn};
use tower_deadline::{
    Answer, Backoff, BoxError, CallPolicy, Criticality, DeadlineExceeded, DeadlineOrigin,
    EventKind, InheritLayer, Inherited, OneDependency, Protocol, RetryBudget, call,
};

use crate::support::*;

type Reply200 = Response<Full<Bytes>>;
type Peer = BoxCloneSyncService<Req, Reply200, Infallible>;

fn ok() -> Reply200 {
    Response::new(Full::default())
}

/// A peer that hangs, and writes down what it was told.
fn hanging() -> (Peer, Arc<Mutex<Vec<Option<String>>>>) {
    let told = Arc::new(Mutex::new(Vec::new()));
    let tells = Arc::clone(&told);
    let peer = service_fn(move |request: Req| {
        let left = request.headers().get("x-deadline-ms");
        let left = left.map(|value| value.to_str().unwrap().to_owned());
        tells.lock().unwrap().push(left);
        std::future::pending::<Result<Reply200, Infallible>>()
    });
    (BoxCloneSyncService::new(peer), told)
}

const OUT: CallPolicy = CallPolicy::http()
    .deadline(secs(10))
    .inherit(true)
    .propagate_deadline(true)
    .checked();

fn within(ms: &'static str) -> Req {
    let mut request = get();
    request
        .headers_mut()
        .insert("x-deadline-ms", HeaderValue::from_static(ms));
    request
}

#[tokio::test(start_paused = true)]
async fn a_call_of_a_handler_has_what_the_caller_still_waits() {
    let (peer, told) = hanging();
    let handler = service_fn(move |_: Req| {
        let stack = OUT.layer().layer(peer.clone());
        async move {
            sleep(ms(50)).await;
            let error = stack.oneshot(get()).await.err().unwrap();
            let exceeded = DeadlineExceeded::find(&error).unwrap();
            assert_eq!(exceeded.origin(), DeadlineOrigin::Inherited);
            assert_eq!(exceeded.deadline(), ms(150));
            Ok::<_, BoxError>(ok())
        }
    });
    let clock = Clock::start();
    InheritLayer::new()
        .layer(handler)
        .oneshot(within("200"))
        .await
        .unwrap();
    assert_eq!(clock.ms(), 200);
    assert_eq!(*told.lock().unwrap(), [Some("150".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn one_that_does_not_inherit_or_is_detached_has_its_own_time() {
    let (peer, told) = hanging();
    let handler = service_fn(move |_: Req| {
        let inherits = OUT.layer().layer(peer.clone());
        let stubborn = OUT.inherit(false).layer().layer(peer.clone());
        async move {
            let clock = Clock::start();
            let error = call::detach(inherits.oneshot(get())).await.err().unwrap();
            assert_eq!(
                DeadlineExceeded::find(&error).unwrap().origin(),
                DeadlineOrigin::Own
            );
            assert_eq!(clock.ms(), 10_000);
            stubborn.oneshot(get()).await.err().unwrap();
            assert_eq!(clock.ms(), 20_000);
            Ok::<_, BoxError>(ok())
        }
    });
    InheritLayer::new()
        .layer(handler)
        .oneshot(within("200"))
        .await
        .unwrap();
    assert_eq!(
        *told.lock().unwrap(),
        [Some("10000".to_owned()), Some("10000".to_owned())]
    );
}

#[tokio::test(start_paused = true)]
async fn it_is_carried_into_a_spawned_task_by_either_way() {
    let handler = service_fn(|request: Req| async move {
        let caller = *request.extensions().get::<Inherited>().unwrap();
        let seen = || (call::remaining(), call::criticality(), call::inside_retry());
        let expected = (Some(ms(200)), Criticality::Sheddable, true);
        assert_eq!(seen(), expected);
        assert_eq!(
            tokio::spawn(call::carry(async move { seen() }))
                .await
                .unwrap(),
            expected
        );
        let offered = caller.offer_to(async move { seen() });
        assert_eq!(tokio::spawn(offered).await.unwrap(), expected);
        let bare = tokio::spawn(async move { seen() }).await.unwrap();
        assert_eq!(bare, (None, Criticality::Critical, false));
        Ok::<_, BoxError>(ok())
    });
    let mut request = within("200");
    for (name, value) in [
        ("x-criticality", "Sheddable"),
        ("x-nresilience-retrying", "1"),
    ] {
        request
            .headers_mut()
            .insert(name, HeaderValue::from_static(value));
    }
    InheritLayer::new()
        .layer(handler)
        .oneshot(request)
        .await
        .unwrap();
    // Nothing of it is left behind.
    assert_eq!((call::remaining(), call::inside_retry()), (None, false));
}

#[tokio::test(start_paused = true)]
async fn code_that_is_no_handler_publishes_in_the_same_way() {
    let (peer, told) = hanging();
    let work = call::with_deadline(ms(300), OUT.layer().layer(peer).oneshot(get()));
    let clock = Clock::start();
    call::with_criticality(Criticality::Sheddable, work)
        .await
        .err()
        .unwrap();
    assert_eq!(clock.ms(), 300);
    assert_eq!(*told.lock().unwrap(), [Some("300".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn an_inherited_deadline_that_has_passed_asks_nobody() {
    let (peer, told) = hanging();
    let handler = service_fn(move |_: Req| {
        let stack = OUT.layer().layer(peer.clone());
        async move {
            let error = stack.oneshot(get()).await.err().unwrap();
            assert!(DeadlineExceeded::find(&error).is_some());
            Ok::<_, BoxError>(ok())
        }
    });
    let clock = Clock::start();
    InheritLayer::new()
        .layer(handler)
        .oneshot(within("0"))
        .await
        .unwrap();
    assert_eq!(clock.ms(), 0);
    assert!(told.lock().unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn sheddable_work_leaves_half_of_the_budget_behind() {
    for (label, retries) in [("Sheddable", 5), ("SheddablePlus", 10), ("Critical", 10)] {
        let calls = Arc::new(AtomicUsize::new(0));
        let counts = Arc::clone(&calls);
        let peer = service_fn(move |_: Req| {
            counts.fetch_add(1, Ordering::SeqCst);
            let down = http::Response::builder()
                .status(503)
                .body(Full::<Bytes>::default());
            async { Ok::<_, BoxError>(down.unwrap()) }
        });
        let layer = CallPolicy::http()
            .attempts(2)
            .backoff(Backoff::none())
            .layer();
        let budget = RetryBudget::of(0.1, 1).unwrap();
        let stack = layer.key(OneDependency).budget(budget).layer(peer);
        let handler = service_fn(move |_: Req| {
            let stack = stack.clone();
            async move {
                for _ in 0..30 {
                    stack.clone().oneshot(get()).await.unwrap();
                }
                Ok::<_, BoxError>(ok())
            }
        });
        let mut request = get();
        request
            .headers_mut()
            .insert("x-criticality", HeaderValue::from_static(label));
        InheritLayer::new()
            .layer(handler)
            .oneshot(request)
            .await
            .unwrap();
        assert_eq!(calls.load(Ordering::SeqCst), 30 + retries, "{label}");
    }
}

/// `hops` services that ask each other, the last of which is down, and a client of the first. The
/// requests that reach the last for one call, and how often a retry inside a retry was told of.
async fn storm(
    hops: u32,
    policies: impl Fn(u32) -> CallPolicy,
    inherit: InheritLayer,
) -> (usize, usize) {
    let reached = Arc::new(AtomicUsize::new(0));
    let counts = Arc::clone(&reached);
    let events = Recorder::default();
    let mut peer: Peer = BoxCloneSyncService::new(service_fn(move |_: Req| {
        counts.fetch_add(1, Ordering::SeqCst);
        let down = Response::builder()
            .status(503)
            .body(Full::<Bytes>::default());
        async { Ok::<_, Infallible>(down.unwrap()) }
    }));
    for hop in (1..=hops).rev() {
        let client = policies(hop).layer().on_event(events.clone()).layer(peer);
        if hop == 1 {
            assert_eq!(client.oneshot(get()).await.unwrap().status(), 503);
            break;
        }
        // A service whose handler asks the next one, and passes its status on. Tasks do not share a scope.
        let handler = service_fn(move |_: Req| {
            let client = client.clone();
            async move {
                let status = client
                    .oneshot(get())
                    .await
                    .map(|response| response.status());
                let status = status.unwrap_or_else(|error| Answer::from(error).status());
                let response = Response::builder().status(status);
                Ok::<_, Infallible>(response.body(Full::<Bytes>::default()).unwrap())
            }
        });
        let server = inherit.layer(handler);
        peer = BoxCloneSyncService::new(service_fn(move |request: Req| {
            let answered = call::detach(server.clone().oneshot(request));
            async {
                Ok(tokio::spawn(answered)
                    .await
                    .unwrap()?
                    .map(|_| Full::default()))
            }
        }));
    }
    (
        reached.load(Ordering::SeqCst),
        events.count(EventKind::NestedRetry),
    )
}

#[tokio::test(start_paused = true)]
async fn retries_multiply_unless_all_but_the_outermost_client_defer() {
    let plain = CallPolicy::http()
        .backoff(Backoff::constant(ms(1)))
        .no_budget();
    for hops in 1..=4 {
        let inherit = InheritLayer::new();
        let (reached, nested) = storm(hops, |_| plain, inherit.clone()).await;
        assert_eq!(reached, 3_usize.pow(hops), "{hops} hops");
        assert_eq!(nested > 0, hops > 1);
        let deferring = |_| plain.defer_to_caller(true);
        let (reached, nested) = storm(hops, deferring, inherit.clone()).await;
        assert_eq!(reached, 3, "{hops} hops");
        assert_eq!(nested > 0, hops > 1);
        // The mark goes through a hop that makes one attempt only.
        let single = |hop| {
            if hop == 2 {
                plain.attempts(1)
            } else {
                plain.defer_to_caller(true)
            }
        };
        assert_eq!(storm(hops, single, inherit).await.0, 3);
    }
}

#[tokio::test(start_paused = true)]
async fn a_mark_can_lower_the_attempts_and_never_raise_them() {
    let policy = CallPolicy::http().backoff(Backoff::none()).no_budget();
    for (mark, defer, attempts) in [
        (None, false, 3),
        (None, true, 3),
        (Some("1"), false, 3),
        (Some("1"), true, 1),
        (Some("2"), true, 3),
        (Some("yes"), true, 3),
    ] {
        let (peer, shared) = Scripted::always(|| Reply::status(503));
        let stack = policy.defer_to_caller(defer).layer().layer(peer);
        let handler = service_fn(move |_: Req| {
            let stack = stack.clone();
            async move { stack.oneshot(get()).await.map(|_| ok()) }
        });
        let mut request = get();
        if let Some(mark) = mark {
            let mark = HeaderValue::from_static(mark);
            request.headers_mut().insert("x-nresilience-retrying", mark);
        }
        InheritLayer::new()
            .layer(handler)
            .oneshot(request)
            .await
            .unwrap();
        assert_eq!(shared.calls(), attempts, "{mark:?} {defer}");
    }
}

#[tokio::test(start_paused = true)]
async fn time_only_falls_from_hop_to_hop() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let mut peer: Peer =
        BoxCloneSyncService::new(service_fn(|_: Req| async { Ok::<_, Infallible>(ok()) }));
    for _ in 0..4 {
        let client = OUT.layer().layer(peer);
        let notes = Arc::clone(&seen);
        let handler = service_fn(move |_: Req| {
            let (client, notes) = (client.clone(), Arc::clone(&notes));
            async move {
                notes.lock().unwrap().push(call::remaining().unwrap());
                sleep(ms(30)).await;
                client
                    .oneshot(get())
                    .await
                    .map(|response| response.map(|_| Full::<Bytes>::default()))
            }
        });
        let server = InheritLayer::new().reserve(ms(5)).layer(handler);
        peer = BoxCloneSyncService::new(service_fn(move |request: Req| {
            let answered = call::detach(server.clone().oneshot(request));
            async { Ok(answered.await.unwrap().map(|_| Full::default())) }
        }));
    }
    OUT.deadline(secs(1))
        .layer()
        .layer(peer)
        .oneshot(get())
        .await
        .unwrap();
    let expected: Vec<Duration> = [995, 960, 925, 890].map(ms).into();
    assert_eq!(*seen.lock().unwrap(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_handler_answers_in_the_words_of_its_caller() {
    let (peer, _) = hanging();
    let stack = OUT.layer().layer(peer);
    let handler = service_fn(move |request: Req| {
        let (stack, protocol) = (stack.clone(), Protocol::of(request.headers()));
        async move {
            let error = stack.oneshot(get()).await.err().unwrap();
            Ok::<_, BoxError>(Answer::from(error).into_response::<Full<Bytes>>(protocol))
        }
    });
    let response = InheritLayer::new()
        .layer(handler)
        .oneshot(within("100"))
        .await
        .unwrap();
    assert_eq!(response.status(), 504);
}

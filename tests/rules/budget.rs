//! How many retries a dependency gets.

use std::time::Duration;

use http::Request;
use http_body_util::Full;
use tower::{Layer, Service, ServiceExt};
use tower_deadline::{
    Backoff, Criticality, EventKind, Key, OneDependency, RetryBudget, RetryRefused, StopReason,
    call,
};

use crate::layers::{AttemptTimeoutLayer, DeadlineLayer, RetryLayer, ServiceBuilder};
use crate::support::*;

#[tokio::test(start_paused = true)]
async fn the_default_stack_does_not_multiply_an_outage() {
    let (service, shared) = Scripted::always(|| Reply::status(503));
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(secs(30)))
        .layer(RetryLayer::http())
        .layer(AttemptTimeoutLayer::http(secs(10)))
        .service(service);
    let calls: Vec<_> = (0..1000)
        .map(|_| tokio::spawn(stack.clone().oneshot(get())))
        .collect();
    for call in calls {
        assert_eq!(call.await.unwrap().unwrap().status(), 503);
    }
    // The reserve of 30, and 3 a second for the less than one that this takes.
    assert!(shared.calls() <= 1000 + 30 + 3, "{}", shared.calls());
    assert!(shared.calls() >= 1030, "{}", shared.calls());
}

#[tokio::test(start_paused = true)]
async fn each_authority_has_a_budget_of_its_own() {
    let (service, shared) = Scripted::always(|| Reply::status(503));
    let stack = RetryLayer::http()
        .attempts(2)
        .backoff(Backoff::none())
        .budget(RetryBudget::of(0.1, 1).unwrap())
        .layer(service);
    for host in ["a", "b", "A", "a:80"] {
        for _ in 0..20 {
            let request = Request::get(format!("http://{host}/"))
                .body(Full::default())
                .unwrap();
            stack.clone().oneshot(request).await.unwrap();
        }
    }
    // Ten retries for each of two hosts.
    assert_eq!(shared.calls(), 80 + 20);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_returns_the_response_where_there_is_one() {
    let recorder = Recorder::default();
    let (service, shared) = Scripted::always(|| Reply::status(503));
    let stack = RetryLayer::http()
        .budget(RetryBudget::of(0.1, 0).unwrap())
        .on_event(recorder.clone())
        .layer(service);
    assert_eq!(stack.oneshot(get()).await.unwrap().status(), 503);
    assert_eq!(shared.calls(), 2);
    assert_eq!(recorder.terminal().kind, EventKind::RejectedByBudget);
    assert_eq!(recorder.terminal().stop, Some(StopReason::Budget));
}

#[tokio::test(start_paused = true)]
async fn and_says_when_to_come_back_where_there_is_none() {
    let (service, _) = Scripted::always(|| Reply::error(reset));
    let stack = RetryLayer::http()
        .attempts(100)
        .backoff(Backoff::none())
        .budget(RetryBudget::of(0.1, 2).unwrap())
        .layer(service);
    let error = stack.oneshot(get()).await.err().unwrap();
    let refused = RetryRefused::find(&error).unwrap();
    let wait = refused.retry_after().unwrap();
    assert!(wait <= ms(500) && wait > Duration::ZERO, "{wait:?}");
    assert_eq!(refused.log().len(), 21);
    let source = std::error::Error::source(refused).unwrap();
    assert!(source.is::<std::io::Error>());
    assert!(!tower_deadline::is_timeout(&error));
}

#[tokio::test(start_paused = true)]
async fn a_success_pays_for_a_fraction_of_a_retry() {
    let budget = RetryBudget::of(0.5, 0).unwrap();
    let layer = RetryLayer::http()
        .budget(budget)
        .backoff(Backoff::none())
        .attempts(2);
    let run = async |statuses: &[u16]| {
        let (service, shared) = Scripted::status(statuses.iter().copied());
        layer.layer(service).oneshot(get()).await.unwrap();
        shared.calls()
    };
    assert_eq!(run(&[503, 503]).await, 2); // the one token there was
    assert_eq!(run(&[503]).await, 1);
    run(&[200]).await;
    assert_eq!(run(&[503]).await, 1);
    run(&[200]).await;
    assert_eq!(run(&[503, 503]).await, 2);
}

#[tokio::test(start_paused = true)]
async fn work_that_can_be_shed_leaves_half_behind() {
    let layer = RetryLayer::http()
        .attempts(2)
        .backoff(Backoff::none())
        .budget(RetryBudget::of(0.1, 1).unwrap());
    let (service, shared) = Scripted::always(|| Reply::status(503));
    let stack = layer.layer(service);
    for _ in 0..20 {
        let call = stack.clone().oneshot(get());
        call::with_criticality(Criticality::Sheddable, call)
            .await
            .unwrap();
    }
    assert_eq!(shared.calls(), 20 + 5);
    for _ in 0..20 {
        stack.clone().oneshot(get()).await.unwrap();
    }
    assert_eq!(shared.calls(), 40 + 10);
}

#[tokio::test(start_paused = true)]
async fn any_fraction_holds_to_within_one() {
    for fraction in [0.01, 0.1, 0.3, 0.51, 0.6, 0.66, 0.75, 0.9, 0.99, 1.0] {
        let layer = RetryLayer::http()
            .attempts(2)
            .backoff(Backoff::none())
            .key(OneDependency)
            .budget(RetryBudget::of(fraction, 0).unwrap());
        let mut retries = 0;
        for successes in 1..=300 {
            let (ok, _) = Scripted::status([200]);
            layer.layer(ok).oneshot(get()).await.unwrap();
            let (failing, shared) = Scripted::always(|| Reply::status(503));
            layer.layer(failing).oneshot(get()).await.unwrap();
            retries += shared.calls() - 1;
            // One token was there at the start.
            let earned = f64::from(successes) * fraction + 1.0;
            let paid = f64::from(u32::try_from(retries).unwrap());
            assert!(paid <= earned + 1e-6, "{fraction}: {paid} of {earned}");
            assert!(paid >= earned - 2.0, "{fraction}: {paid} of {earned}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_hundred_thousand_authorities_leave_bounded_memory_behind() {
    const HOSTS: u32 = 100_000;
    let key = |request: &Req| Key::of(request.uri().host().unwrap());
    let budget = RetryBudget::of(0.1, 0).unwrap();
    let layer = RetryLayer::http()
        .attempts(2)
        .backoff(Backoff::none())
        .key(key)
        .budget(budget.clone());
    let (service, shared) = Scripted::always(|| Reply::status(503));
    let mut stack = layer.layer(service);
    for host in 0..HOSTS {
        let uri = format!("http://{host}.example/");
        let request = Request::get(uri).body(Full::default()).unwrap();
        stack.ready().await.unwrap().call(request).await.unwrap();
        shared.received.lock().unwrap().clear();
    }
    // Each had a whole bucket, and nearly all buckets are gone again.
    assert_eq!(shared.calls(), 2 * HOSTS as usize);
    let remembered = (0..HOSTS).rev().filter(|host| {
        let host = format!("{host}.example");
        budget.utilisation(Key::of(host.as_str())).unwrap() > 0.0
    });
    let remembered = remembered.count();
    assert!((1..=1024).contains(&remembered), "{remembered}");
}

#[tokio::test(start_paused = true)]
async fn one_budget_can_serve_several_stacks() {
    let budget = RetryBudget::of(0.1, 0).unwrap();
    let run = async |budget: RetryBudget| {
        let (service, shared) = Scripted::always(|| Reply::status(503));
        let layer = RetryLayer::http().attempts(2).backoff(Backoff::none());
        let stack = layer.budget(budget).layer(service);
        stack.oneshot(get()).await.unwrap();
        shared.calls()
    };
    assert_eq!(run(budget.clone()).await, 2);
    assert_eq!(run(budget).await, 1);
    assert_eq!(run(RetryBudget::of(0.1, 0).unwrap()).await, 2);
}

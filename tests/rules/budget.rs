//! How many retries a dependency gets.

use std::time::Duration;

use http::Request;
use http_body_util::Full;
use tower::{Layer, ServiceBuilder, ServiceExt};
use tower_deadline::{
    AttemptTimeoutLayer, Backoff, Criticality, DeadlineLayer, EventKind, RetryBudget, RetryLayer,
    RetryRefused, StopReason, call,
};

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

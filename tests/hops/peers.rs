//! A gRPC peer that keeps the time it was told.

use std::pin::pin;

use http::Response;
use tokio::time::advance;
use tower::{Layer, ServiceBuilder, ServiceExt};
use tower_deadline::{
    AttemptTimedOut, Backoff, BoxError, CallOverride, CallPolicy, DeadlineExceeded, DeadlineLayer,
    EventKind, GrpcClassifier, PropagateLayer, Verdict, is_timeout,
};

use crate::support::*;

fn expired(after: u64, status: &'static str) -> Reply {
    Reply::Head(
        ms(after),
        200,
        vec![("grpc-status", status)],
        Script::empty(),
    )
}

const PEER: CallPolicy = CallPolicy::grpc()
    .deadline(ms(250))
    .attempt_timeout(ms(100))
    .backoff(Backoff::none())
    .checked();

#[tokio::test(start_paused = true)]
async fn a_peer_that_ends_the_time_it_was_told_is_our_own_timeout() {
    // Its clock is a little fast, and it says so with one status or the other.
    for status in ["4", "1"] {
        let (peer, shared) = Scripted::new([
            expired(96, status),
            expired(97, status),
            expired(47, status),
        ]);
        let events = Recorder::default();
        let layer = PEER.grpc_layer().on_event(events.clone());
        let clock = Clock::start();
        let error = layer.layer(peer).oneshot(post()).await.err().unwrap();
        let exceeded = DeadlineExceeded::find(&error).unwrap();
        assert_eq!((exceeded.log().len(), clock.ms()), (3, 250));
        assert_eq!(shared.calls(), 3);
        assert_eq!(events.terminal().kind, EventKind::DeadlineExceeded);
        // Transient each, as if it had hung.
        assert!(
            exceeded
                .log()
                .iter()
                .all(|attempt| attempt.verdict == Verdict::Transient)
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_poll_that_comes_late_takes_nothing_from_the_clocks_above() {
    // Before the peer has said so, and after.
    for at in [105, 97] {
        let (peer, shared) = Scripted::new([expired(96, "4"), Reply::status(200)]);
        let policy = PEER.deadline(secs(10));
        let mut call = pin!(policy.grpc_layer().layer(peer).oneshot(post()));
        assert!(futures_util::poll!(call.as_mut()).is_pending());
        advance(ms(at)).await;
        if at == 97 {
            assert!(futures_util::poll!(call.as_mut()).is_pending());
            advance(ms(20)).await;
        }
        let response = call.await.unwrap();
        assert_eq!((response.status().as_u16(), shared.calls()), (200, 2));
    }
    // Without a deadline it is the attempt that timed out.
    let (peer, _) = Scripted::new([expired(96, "4")]);
    let stack = ServiceBuilder::new()
        .layer(tower_deadline::AttemptTimeoutLayer::http(ms(100)))
        .layer(PropagateLayer::grpc())
        .service(peer);
    let mut call = pin!(stack.oneshot(post()));
    assert!(futures_util::poll!(call.as_mut()).is_pending());
    advance(ms(105)).await;
    let error = call.await.err().unwrap();
    assert!(AttemptTimedOut::find(&error).is_some(), "{error:?}");
    // And the log of one that the deadline ended has every attempt.
    let (peer, _) = Scripted::new([expired(1, "14"), expired(60, "4")]);
    let policy = CallPolicy::grpc().deadline(ms(63)).no_attempt_timeout();
    let layer = policy.backoff(Backoff::none()).grpc_layer();
    let mut call = pin!(layer.layer(peer).oneshot(post()));
    for wait in [1, 70] {
        assert!(futures_util::poll!(call.as_mut()).is_pending());
        advance(ms(wait)).await;
    }
    let error = call.await.err().unwrap();
    assert_eq!(DeadlineExceeded::find(&error).unwrap().log().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn one_that_says_so_before_is_believed() {
    let (peer, shared) = Scripted::new([expired(94, "4")]);
    let response = PEER.grpc_layer().layer(peer).oneshot(post()).await.unwrap();
    assert_eq!(response.headers()["grpc-status"], "4");
    assert_eq!(shared.calls(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_its_peer_ended_is_dropped_before_the_next() {
    let (peer, shared) = Scripted::new([expired(96, "4"), Reply::status(200)]);
    let clock = Clock::start();
    let response = PEER.grpc_layer().layer(peer).oneshot(post()).await.unwrap();
    assert_eq!((response.status().as_u16(), clock.ms()), (200, 100));
    assert_eq!(shared.times(), [0, 100]);
    shared.check();
}

#[tokio::test(start_paused = true)]
async fn without_retries_it_is_the_attempt_that_timed_out() {
    let (peer, _) = Scripted::new([expired(98, "4")]);
    let policy = CallPolicy::grpc().attempt_timeout(ms(100)).attempts(1);
    let error = policy
        .grpc_layer()
        .layer(peer)
        .oneshot(post())
        .await
        .err()
        .unwrap();
    assert!(AttemptTimedOut::find(&error).is_some());
    assert!(is_timeout(&error));
}

#[tokio::test(start_paused = true)]
async fn over_http_nobody_second_guesses_a_status() {
    let (peer, _) = Scripted::new([expired(98, "4")]);
    let policy = CallPolicy::http()
        .attempt_timeout(ms(100))
        .propagate_deadline(true);
    let response = policy.layer().layer(peer).oneshot(get()).await.unwrap();
    assert_eq!(response.headers()["grpc-status"], "4");
}

#[cfg(feature = "tonic")]
#[tokio::test(start_paused = true)]
async fn a_channel_that_enforces_what_it_was_told_is_our_own_timeout_too() {
    let (peer, _) = Scripted::new([Reply::Error(ms(99), || Box::new(tonic::TimeoutExpired(())))]);
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(ms(100)))
        .layer(PropagateLayer::grpc())
        .service(peer);
    let clock = Clock::start();
    let error = stack.oneshot(post()).await.err().unwrap();
    assert!(DeadlineExceeded::find(&error).is_some());
    assert_eq!(clock.ms(), 100);
}

#[tokio::test(start_paused = true)]
async fn every_method_is_repeated_unless_an_override_forbids_it() {
    let unavailable = || [expired(1, "14"), expired(1, "14"), Reply::status(200)];
    let (peer, shared) = Scripted::new(unavailable());
    PEER.grpc_layer().layer(peer).oneshot(post()).await.unwrap();
    assert_eq!(shared.calls(), 3);
    let (peer, shared) = Scripted::new(unavailable());
    let mut once = post();
    once.extensions_mut().insert(CallOverride::new().no_retry());
    let response = PEER.grpc_layer().layer(peer).oneshot(once).await.unwrap();
    assert_eq!(
        (
            response.headers()["grpc-status"].to_str().unwrap(),
            shared.calls()
        ),
        ("14", 1)
    );
}

#[tokio::test(start_paused = true)]
async fn what_a_server_asks_to_wait_is_waited_and_no_means_no() {
    fn pushing(value: &'static str) -> Reply {
        let headers = vec![("grpc-status", "14"), ("grpc-retry-pushback-ms", value)];
        Reply::Head(ms(1), 200, headers, Script::empty())
    }
    let policy = CallPolicy::grpc().backoff(Backoff::none());
    for (value, expected) in [
        ("20", Some(21)),
        ("0", Some(1)),
        ("-1", None),
        ("soon", None),
        ("", None),
        ("1.5", None),
        ("99999999999999999999", None),
    ] {
        let (peer, shared) = Scripted::new([pushing(value), Reply::status(200)]);
        let response: Response<_> = policy
            .grpc_layer()
            .layer(peer)
            .oneshot(post())
            .await
            .unwrap();
        if let Some(at) = expected {
            assert_eq!(shared.times(), [0, at], "{value:?}");
        } else {
            assert_eq!(shared.calls(), 1, "{value:?}");
            assert_eq!(response.headers()["grpc-status"], "14");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_status_in_trailers_is_seen_where_they_are_read() {
    let failing = || {
        let mut trailers = http::HeaderMap::new();
        trailers.insert("grpc-status", http::HeaderValue::from_static("14"));
        Reply::body(Script::new([Step::Data("half"), Step::Trailers(trailers)]))
    };
    let policy = CallPolicy::grpc().backoff(Backoff::none());
    let (peer, shared) = Scripted::new([failing(), Reply::status(200)]);
    policy
        .grpc_layer()
        .layer(peer)
        .oneshot(post())
        .await
        .unwrap();
    assert_eq!(shared.calls(), 1);
    let (peer, shared) = Scripted::new([failing(), failing(), failing()]);
    let buffering = policy.buffer_responses(1024).grpc_layer();
    let response = buffering.layer(peer).oneshot(post()).await.unwrap();
    assert_eq!(shared.calls(), 3);
    let body = http_body_util::BodyExt::collect(response.into_body())
        .await
        .unwrap();
    assert_eq!(body.trailers().unwrap()["grpc-status"], "14");
    assert_eq!(body.to_bytes(), "half");
}

#[allow(dead_code)]
fn a_classifier_for_any_stack(peer: Scripted) -> impl tower::Service<Req, Error = BoxError> {
    tower_deadline::RetryLayer::http()
        .classifier(GrpcClassifier)
        .layer(peer)
}

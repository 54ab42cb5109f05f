//! The stack that a policy builds.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use http_body_util::{BodyExt, Full};
use tokio::time::sleep;
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_deadline::policy::AttemptBody;
use tower_deadline::{
    AttemptCeiling, AttemptResult, AttemptStalled, AttemptTimedOut, Backoff, Bound, BoxError,
    CallOverride, CallPolicy, CloneRequest, DeadlineExceeded, ErrorClassifier, EventKind, Key,
    KeyOf, NeverCopy, OneDependency, RetryBudget, Verdict, call,
};

use crate::support::*;

const HTTP: CallPolicy = CallPolicy::http();

#[tokio::test(start_paused = true)]
async fn the_attempt_timeout_given_once_bounds_the_attempt_and_the_gap() {
    let stalls = [Step::Data("first"), Step::Silence];
    let (service, shared) = Scripted::new([Reply::Hang, Reply::body(Script::new(stalls))]);
    let stack = HTTP
        .attempt_timeout(ms(250))
        .backoff(Backoff::none())
        .layer()
        .layer(service);
    let clock = Clock::start();
    let response = stack.oneshot(get()).await.unwrap();
    assert_eq!((clock.ms(), shared.calls()), (250, 2));
    let error = response.into_body().collect().await.unwrap_err();
    assert_eq!(clock.ms(), 500);
    assert_eq!(AttemptStalled::find(&error).unwrap().gap(), ms(250));
}

#[tokio::test(start_paused = true)]
async fn the_preset_ends_a_call_that_hangs_as_it_says() {
    let (service, shared) = Scripted::always(|| Reply::Hang);
    let stack = HTTP.layer().layer(service);
    let clock = Clock::start();
    let error = stack.oneshot(get()).await.err().unwrap();
    assert_eq!((clock.ms(), shared.calls()), (30_000, 3));
    let exceeded = DeadlineExceeded::find(&error).unwrap();
    assert_eq!(exceeded.log().len(), 3);
    shared.check();
}

#[tokio::test(start_paused = true)]
async fn each_event_of_the_stack_is_told_once_to_each_listener() {
    let stalls = Script::new([Step::Data("a"), Step::Silence]);
    let (service, _) = Scripted::new([Reply::status(503), Reply::body(stalls)]);
    let (one, other) = (Recorder::default(), Recorder::default());
    let layer = HTTP.layer().on_event(one.clone()).on_event(other.clone());
    let response = layer.layer(service).oneshot(get()).await.unwrap();
    assert!(response.into_body().collect().await.is_err());
    for recorder in [one, other] {
        assert_eq!(
            recorder.kinds(),
            [
                EventKind::Attempt,
                EventKind::Retrying,
                EventKind::Attempt,
                EventKind::Succeeded,
                EventKind::Stalled
            ]
        );
    }
}

/// A call that fails once and then succeeds, and one that fails for good.
async fn is_retried(layer: &tower_deadline::policy::HttpCallLayer) -> bool {
    let (service, shared) = Scripted::status([503, 200]);
    let _ = layer.layer(service).oneshot(get()).await;
    shared.calls() == 2
}

#[tokio::test(start_paused = true)]
async fn services_of_one_layer_share_a_budget_and_those_of_two_do_not() {
    // One token, and nothing that refills it.
    let policy = HTTP.budget(0.01, 0);
    let layer = policy.layer();
    assert!(is_retried(&layer).await);
    assert!(!is_retried(&layer).await);
    assert!(!is_retried(&layer.clone()).await);
    assert!(is_retried(&policy.layer()).await);

    let shared = RetryBudget::of(0.01, 0).unwrap();
    assert!(is_retried(&policy.layer().budget(shared.clone())).await);
    assert!(!is_retried(&HTTP.layer().budget(shared)).await);
}

#[tokio::test(start_paused = true)]
async fn services_of_one_layer_share_what_is_measured_and_the_explanation_shows_it() {
    let layer = HTTP.layer();
    let key = tower_deadline::Authority.key_of(&get());
    let cold = layer.explain(key).measured.unwrap();
    assert_eq!((cold.value, cold.ends), (None, None));
    for _ in 0..20 {
        let (service, _) = Scripted::new([Reply::after(ms(40), 200)]);
        layer.layer(service).oneshot(get()).await.unwrap();
    }
    let warm = layer.clone().explain(key);
    let measured = warm.measured.unwrap();
    assert_eq!(measured.value, Some(ms(120)));
    // Three attempts of 120 ms, and waits of up to 100 and 200.
    assert_eq!(measured.ends, Some(ms(660)));
    assert!(warm.to_string().contains("120ms now"), "{warm}");
    // The bound that is promised is the one without it.
    assert_eq!(warm.longest, Some(secs(30)));
    assert_eq!(HTTP.layer().explain(key).measured.unwrap().value, None);

    let (service, _) = Scripted::new([Reply::Hang]);
    let stack = layer.layer(service);
    let clock = Clock::start();
    let once = CallOverride::new().no_retry();
    let error = call::with_override(once, stack.oneshot(get())).await;
    let error = error.err().unwrap();
    assert_eq!(
        AttemptTimedOut::find(&error).unwrap().bound(),
        Bound::Measured
    );
    assert_eq!(clock.ms(), 120);
}

#[tokio::test(start_paused = true)]
async fn without_an_attempt_timeout_a_ceiling_applies_only_where_it_is_written_out() {
    let none = HTTP.no_attempt_timeout();
    assert!(none.layer().measured().is_none());
    let own = none.ceiling(AttemptCeiling::above(3.0));
    assert!(own.layer().measured().is_some());
    assert!(HTTP.layer().measured().is_some());
    assert!(HTTP.no_ceiling().layer().measured().is_none());
}

#[tokio::test(start_paused = true)]
async fn the_explanation_of_a_layer_is_of_the_budget_that_it_was_given() {
    let layer = HTTP.layer().budget(RetryBudget::of(0.5, 7).unwrap());
    let load = layer.explain(Key::SHARED).load;
    let budget = load.budget.unwrap();
    assert!((budget.fraction - 0.5).abs() < 1e-9);
    assert_eq!((budget.minimum_per_second, load.reserve), (7, 70));
    let none = HTTP.layer().budget(RetryBudget::none());
    assert!(none.explain(Key::SHARED).load.budget.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_policy_of_none_bounds_nothing_and_opens_no_call() {
    let (service, shared) = Scripted::new([Reply::after(secs(86_400), 503)]);
    let mut stack = CallPolicy::none().layer().layer(service);
    let response = stack.ready().await.unwrap().call(get()).await.unwrap();
    assert_eq!((response.status().as_u16(), shared.calls()), (503, 1));
    shared.check();

    let seen = Arc::new(Mutex::new(Vec::new()));
    let attempts = Arc::clone(&seen);
    let inner = service_fn(move |_: Req| {
        attempts.lock().unwrap().push(call::attempt());
        async { Ok::<_, BoxError>(Response::new(Full::<Bytes>::from("body"))) }
    });
    let stack = CallPolicy::none().layer().layer(inner.clone());
    let response = stack.clone().oneshot(get()).await.unwrap();
    assert_eq!(response.body().size_hint().exact(), Some(4));
    assert_eq!(
        response.into_body().collect().await.unwrap().to_bytes(),
        "body"
    );
    assert_eq!(seen.lock().unwrap().drain(..).collect::<Vec<_>>(), [None]);

    // A listener is told of the calls, so there are some.
    let recorder = Recorder::default();
    let told = CallPolicy::none().layer().on_event(recorder.clone());
    told.layer(inner).oneshot(get()).await.unwrap();
    assert_eq!(recorder.kinds(), [EventKind::Attempt, EventKind::Succeeded]);
    assert_eq!(*seen.lock().unwrap(), [Some(1)]);
}

#[tokio::test(start_paused = true)]
async fn each_number_can_be_the_only_one() {
    let hang = || Scripted::always(|| Reply::Hang).0;
    let none = CallPolicy::none();
    let clock = Clock::start();
    let error = none
        .deadline(ms(100))
        .layer()
        .layer(hang())
        .oneshot(get())
        .await;
    assert!(DeadlineExceeded::find(&error.err().unwrap()).is_some());
    assert_eq!(clock.ms(), 100);

    let clock = Clock::start();
    let error = none
        .attempt_timeout(ms(100))
        .layer()
        .layer(hang())
        .oneshot(get())
        .await;
    assert!(AttemptTimedOut::find(&error.err().unwrap()).is_some());
    assert_eq!(clock.ms(), 100);

    let (service, shared) = Scripted::status([503, 200]);
    let retrying = none.attempts(2).layer().layer(service);
    assert_eq!(retrying.oneshot(get()).await.unwrap().status(), 200);
    assert_eq!(shared.calls(), 2);
}

#[tokio::test(start_paused = true)]
async fn readiness_counts_where_the_policy_says_so() {
    for (bound, ready_at_once) in [(true, true), (false, false)] {
        let (service, shared) = Scripted::status([200]);
        shared.readiness.lock().unwrap().push_back(Ok(secs(60)));
        let policy = HTTP
            .deadline(ms(100))
            .attempt_timeout(ms(50))
            .bound_readiness(bound);
        let mut stack = policy.layer().layer(service);
        let ready = futures_util::poll!(std::pin::pin!(stack.ready())).is_ready();
        assert_eq!(ready, ready_at_once);
        let result = stack.ready().await.unwrap().call(get()).await;
        assert_eq!(result.is_err(), bound);
    }
}

#[tokio::test(start_paused = true)]
async fn the_body_is_bounded_by_the_deadline_where_the_policy_says_so() {
    for bound in [true, false] {
        let steps = (0..8).flat_map(|_| [Step::Wait(ms(50)), Step::Data("x")]);
        let (service, _) = Scripted::new([Reply::body(Script::new(steps))]);
        let policy = HTTP
            .deadline(ms(220))
            .attempt_timeout(ms(100))
            .bound_body(bound);
        let response = policy.layer().layer(service).oneshot(get()).await.unwrap();
        let read = response.into_body().collect().await;
        assert_eq!(read.is_err(), bound);
    }
}

#[tokio::test(start_paused = true)]
async fn buffering_makes_a_stall_one_more_failed_attempt() {
    let stalls = Script::new([Step::Data("st"), Step::Silence]);
    let whole = Script::new([Step::Data("whole")]);
    let (service, shared) = Scripted::new([Reply::body(stalls), Reply::body(whole)]);
    let stack = HTTP.buffer_responses(1024).layer().layer(service);
    let response = stack.oneshot(get()).await.unwrap();
    assert_eq!(
        response.into_body().collect().await.unwrap().to_bytes(),
        "whole"
    );
    assert_eq!(shared.calls(), 2);
}

#[tokio::test(start_paused = true)]
async fn what_is_not_a_number_is_given_to_the_layer() {
    // A classifier closure names the body of an attempt.
    let (service, shared) = Scripted::status([200, 404, 404]);
    let stack = HTTP
        .layer()
        .classifier(
            |result: AttemptResult<'_, Response<AttemptBody<Script>>>| match result {
                Ok(response) if response.status() == 200 => Verdict::Transient,
                Ok(_) => Verdict::Ok,
                Err(_) => Verdict::Permanent,
            },
        )
        .key(OneDependency)
        .layer(service);
    assert_eq!(stack.oneshot(get()).await.unwrap().status(), 404);
    assert_eq!(shared.calls(), 2);

    let (service, shared) = Scripted::status([503, 200]);
    let stack = HTTP.layer().copy(NeverCopy).layer(service);
    assert_eq!(stack.oneshot(get()).await.unwrap().status(), 503);
    assert_eq!(shared.calls(), 1);

    let (service, shared) = Scripted::status([503, 200]);
    let stack = HTTP
        .layer()
        .repeatable(tower_deadline::AnyRequest)
        .layer(service);
    assert_eq!(stack.oneshot(post()).await.unwrap().status(), 200);
    assert_eq!(shared.calls(), 2);

    let steps = (0..9).flat_map(|_| [Step::Wait(ms(90)), Step::Data(": keep-alive")]);
    let (service, _) = Scripted::new([Reply::body(Script::new(steps))]);
    let stack = HTTP
        .attempt_timeout(ms(300))
        .layer()
        .progress_when(|bytes: &[u8]| !bytes.starts_with(b":"))
        .layer(service);
    let response = stack.oneshot(get()).await.unwrap();
    assert!(response.into_body().collect().await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_post_is_sent_again_where_the_policy_says_so() {
    for (policy, calls) in [(HTTP, 1), (HTTP.retry_unsafe_methods(true), 2)] {
        let (service, shared) = Scripted::status([503, 200]);
        let _ = policy.layer().layer(service).oneshot(post()).await;
        assert_eq!(shared.calls(), calls);
    }
    for (policy, calls) in [(HTTP, 1), (HTTP.retry_unprocessed(true), 2)] {
        let (service, shared) = Scripted::new([Reply::error(refused), Reply::status(200)]);
        let _ = policy.layer().layer(service).oneshot(post()).await;
        assert_eq!(shared.calls(), calls);
    }
}

#[tokio::test(start_paused = true)]
async fn a_policy_works_around_a_service_that_is_not_http() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let inner = service_fn(move |wait: u64| {
        let nth = counted.fetch_add(1, Ordering::SeqCst);
        async move {
            if nth == 0 {
                return Err(std::io::Error::from(std::io::ErrorKind::ConnectionReset));
            }
            sleep(ms(wait)).await;
            Ok(wait)
        }
    });
    let layer = CallPolicy::new()
        .deadline(secs(2))
        .attempt_timeout(ms(500))
        .layer_for(ErrorClassifier, CloneRequest);
    let recorder = Recorder::default();
    let stack = layer.on_event(recorder.clone()).layer(inner);
    assert_eq!(stack.clone().oneshot(7).await.unwrap(), 7);
    assert_eq!(calls.load(Ordering::SeqCst), 2);
    assert_eq!(recorder.terminal().kind, EventKind::Succeeded);
    let error = stack.clone().oneshot(60_000).await.unwrap_err();
    assert!(tower_deadline::is_timeout(&error));
    let overridden = CallOverride::new()
        .attempt_timeout(secs(70))
        .deadline(secs(80));
    let slow = call::with_override(overridden, stack.oneshot(60_000)).await;
    assert_eq!(slow.unwrap(), 60_000);

    let none = CallPolicy::none().layer_for(ErrorClassifier, CloneRequest);
    let inner = service_fn(|(): ()| async { Ok::<_, BoxError>(call::attempt()) });
    assert_eq!(none.layer(inner).oneshot(()).await.unwrap(), None);
    let bounded = call::with_override(
        CallOverride::new().deadline(ms(10)),
        none.layer(service_fn(|(): ()| {
            std::future::pending::<Result<(), BoxError>>()
        }))
        .oneshot(()),
    );
    assert!(DeadlineExceeded::find(&bounded.await.unwrap_err()).is_some());
}

#[test]
fn the_stack_can_go_where_its_inner_service_can() {
    fn check<T: Clone + Send + Sync + Unpin + std::fmt::Debug>(_: &T) {}
    fn sends<T: Send>(_: &T) {}
    fn unpin<T: Unpin + Sync>() {}
    let layer = HTTP.layer();
    check(&layer);
    let client = tower::util::service_fn(|_: Request<Full<Bytes>>| async {
        Ok::<_, BoxError>(Response::new(Full::<Bytes>::default()))
    });
    let mut stack = layer.layer(client);
    sends(&stack);
    sends(&stack.clone());
    sends(&stack.call(get()));
    unpin::<tower_deadline::policy::CallBody<Full<Bytes>>>();
    check(&HTTP.layer_for(ErrorClassifier, CloneRequest));
}

#[tokio::test(start_paused = true)]
async fn a_call_of_a_policy_of_none_leaves_no_log_of_another() {
    let (service, _) = Scripted::always(|| Reply::error(reset));
    let failing = HTTP.attempts(2).layer().layer(service);
    assert!(failing.oneshot(get()).await.is_err());
    assert!(call::last_log().is_some());
    let (service, _) = Scripted::always(|| Reply::error(reset));
    let none = CallPolicy::none().layer().layer(service);
    assert!(none.oneshot(get()).await.is_err());
    assert!(call::last_log().is_none());
}

#[tokio::test(start_paused = true)]
async fn the_explanation_says_when_a_hanging_call_ends_while_the_ceiling_is_warm() {
    let layer = HTTP
        .deadline(secs(1))
        .attempt_timeout(ms(900))
        .attempts(2)
        .backoff(Backoff::constant(ms(800)))
        .layer()
        .key(OneDependency);
    for _ in 0..20 {
        let (service, _) = Scripted::new([Reply::after(ms(100), 200)]);
        layer.layer(service).oneshot(get()).await.unwrap();
    }
    // 300 ms, after which 800 do not fit.
    let measured = layer.explain(Key::SHARED).measured.unwrap();
    assert_eq!(
        (measured.value, measured.ends),
        (Some(ms(300)), Some(ms(300)))
    );
    let (service, _) = Scripted::always(|| Reply::Hang);
    let clock = Clock::start();
    assert!(layer.layer(service).oneshot(get()).await.is_err());
    assert_eq!(clock.ms(), 300);
}

#[test]
fn a_stack_that_is_not_http_is_explained_without_bodies() {
    let layer = CallPolicy::new().layer_for(ErrorClassifier, CloneRequest);
    let explanation = layer.explain(Key::SHARED);
    assert_eq!(explanation.gap, None);
    assert!(!explanation.to_string().contains("body"), "{explanation}");
}

#[tokio::test(start_paused = true)]
async fn the_error_of_a_call_whose_attempts_were_cut_says_what_each_did() {
    let (service, _) = Scripted::always(|| Reply::Hang);
    let policy = HTTP
        .attempts(2)
        .attempt_timeout(ms(100))
        .backoff(Backoff::none());
    let error = policy.layer().layer(service).oneshot(get()).await;
    let text = error.err().unwrap().to_string();
    assert!(text.contains("; all attempts: 1 transient 100ms, 2 transient 100ms"));
    // Of one attempt there is no more to say.
    let (service, _) = Scripted::always(|| Reply::Hang);
    let error = policy
        .attempts(1)
        .layer()
        .layer(service)
        .oneshot(get())
        .await;
    let text = error.err().unwrap().to_string();
    assert!(!text.contains("all attempts"), "{text}");
}

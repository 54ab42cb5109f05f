//! Another attempt, or not.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Version};
use http_body_util::{BodyExt, Full};
use tokio::time::{Instant, sleep};
use tower::limit::ConcurrencyLimitLayer;
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_deadline::{
    Backoff, BoxError, DeadlineExceeded, EventKind, Jitter, NeverCopy, Phase, RetryBudget,
    StopReason, Verdict, call,
};

use crate::layers::{AttemptTimeoutLayer, DeadlineLayer, RetryLayer, ServiceBuilder};
use crate::support::*;

fn exact() -> Backoff {
    Backoff::exponential().jitter(Jitter::None)
}

#[tokio::test(start_paused = true)]
async fn a_transient_failure_is_followed_by_another_attempt_after_its_backoff() {
    let (service, shared) = Scripted::status([503, 500, 200]);
    let stack = RetryLayer::http().backoff(exact()).layer(service);
    assert_eq!(stack.oneshot(get()).await.unwrap().status(), 200);
    assert_eq!(shared.times(), [0, 100, 300]);
    shared.check();
}

#[tokio::test(start_paused = true)]
async fn a_throttled_one_waits_longer() {
    let (service, shared) = Scripted::status([429, 429, 200]);
    let stack = RetryLayer::http().backoff(exact()).layer(service);
    assert_eq!(stack.oneshot(get()).await.unwrap().status(), 200);
    assert_eq!(shared.times(), [0, 1000, 3000]);
}

#[tokio::test(start_paused = true)]
async fn attempts_count_the_first_and_the_last_response_is_returned() {
    for attempts in [1, 2, 3, 5] {
        let (service, shared) = Scripted::always(|| Reply::status(503));
        let recorder = Recorder::default();
        let stack = RetryLayer::http()
            .attempts(attempts)
            .on_event(recorder.clone())
            .layer(service);
        assert_eq!(stack.oneshot(get()).await.unwrap().status(), 503);
        assert_eq!(shared.calls(), attempts as usize);
        assert_eq!(recorder.terminal().kind, EventKind::Exhausted);
        assert_eq!(recorder.terminal().stop, Some(StopReason::AttemptsSpent));
    }
}

#[tokio::test(start_paused = true)]
async fn no_attempts_at_all_means_one() {
    let (service, shared) = Scripted::status([503]);
    let layer = RetryLayer::http().attempts(0);
    assert!(layer.validate().is_err());
    assert_eq!(
        layer.layer(service).oneshot(get()).await.unwrap().status(),
        503
    );
    assert_eq!(shared.calls(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_is_permanent_is_returned_unchanged() {
    let (service, shared) = Scripted::new([Reply::error(|| std::fmt::Error.into())]);
    let recorder = Recorder::default();
    let stack = RetryLayer::http().on_event(recorder.clone()).layer(service);
    let error = stack.oneshot(get()).await.err().unwrap();
    assert!(error.is::<std::fmt::Error>());
    assert_eq!(shared.calls(), 1);
    assert_eq!(recorder.terminal().stop, Some(StopReason::Permanent));
    assert_eq!(call::last_log().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_retry_that_cannot_fit_is_not_begun_and_the_response_comes_back_at_once() {
    let recorder = Recorder::default();
    let (service, shared) = Scripted::always(|| Reply::status(503));
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(ms(1000)).on_event(recorder.clone()))
        .layer(RetryLayer::http().backoff(exact().base(ms(400))))
        .service(service);
    let clock = Clock::start();
    assert_eq!(stack.oneshot(get()).await.unwrap().status(), 503);
    // The second wait would end at 1200.
    assert_eq!(clock.ms(), 400);
    assert_eq!(shared.calls(), 2);
    let terminal = recorder.terminal();
    assert_eq!(terminal.kind, EventKind::NotRetried);
    assert_eq!(terminal.stop, Some(StopReason::DeadlineTooNear));
}

#[tokio::test(start_paused = true)]
async fn without_a_response_it_is_the_deadline_that_ended_it() {
    let recorder = Recorder::default();
    let (service, _) = Scripted::always(|| Reply::error(reset));
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(ms(1000)).on_event(recorder.clone()))
        .layer(RetryLayer::http().backoff(exact().base(ms(400))))
        .service(service);
    let clock = Clock::start();
    let error = stack.oneshot(get()).await.err().unwrap();
    assert_eq!(clock.ms(), 400);
    let exceeded = DeadlineExceeded::find(&error).unwrap();
    assert_eq!(
        (exceeded.phase(), exceeded.elapsed()),
        (Phase::Backoff, ms(400))
    );
    assert_eq!(exceeded.log().len(), 2);
    let source = std::error::Error::source(exceeded).unwrap();
    assert!(source.is::<std::io::Error>());
    let terminal = recorder.terminal();
    assert_eq!(terminal.kind, EventKind::DeadlineExceeded);
    assert_eq!(terminal.log.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_delay_just_inside_the_deadline_is_slept() {
    for (deadline, calls) in [(100, 1), (101, 2)] {
        let (service, shared) = Scripted::always(|| Reply::status(503));
        let stack = ServiceBuilder::new()
            .layer(DeadlineLayer::new(ms(deadline)))
            .layer(RetryLayer::http().attempts(2).backoff(exact()))
            .service(service);
        assert_eq!(stack.oneshot(get()).await.unwrap().status(), 503);
        assert_eq!(shared.calls(), calls);
    }
}

#[tokio::test(start_paused = true)]
async fn a_post_is_sent_once_whatever_happens() {
    let replies: [fn() -> Reply; 5] = [
        || Reply::status(503),
        || Reply::status(429),
        || Reply::error(refused),
        || Reply::error(reset),
        || Reply::Hang,
    ];
    for reply in replies {
        let (service, shared) = Scripted::new([reply()]);
        let stack = ServiceBuilder::new()
            .layer(RetryLayer::http())
            .layer(AttemptTimeoutLayer::http(ms(100)))
            .service(service);
        let _ = stack.oneshot(post()).await;
        assert_eq!(shared.calls(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_post_is_sent_again_where_that_was_asked_for() {
    let (service, shared) = Scripted::status([503, 200]);
    let stack = RetryLayer::http().retry_unsafe_methods(true).layer(service);
    assert_eq!(stack.oneshot(post()).await.unwrap().status(), 200);
    assert_eq!(shared.calls(), 2);
}

#[tokio::test(start_paused = true)]
async fn what_never_left_is_sent_once_more_where_that_was_asked_for() {
    for (asked, calls) in [(false, 1), (true, 2)] {
        let (service, shared) = Scripted::always(|| Reply::error(refused));
        let stack = RetryLayer::http()
            .attempts(5)
            .retry_unprocessed(asked)
            .layer(service);
        assert!(stack.oneshot(post()).await.is_err());
        assert_eq!(shared.calls(), calls);
    }
    // A connection that broke may have carried it.
    let (service, shared) = Scripted::always(|| Reply::error(reset));
    let stack = RetryLayer::http().retry_unprocessed(true).layer(service);
    assert!(stack.oneshot(post()).await.is_err());
    assert_eq!(shared.calls(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_conditional_put_is_sent_again_only_when_it_was_not_acted_on() {
    let cases: [(fn() -> Reply, usize); 5] = [
        (|| Reply::status(500), 1),
        (|| Reply::error(reset), 1),
        (|| Reply::status(429), 2),
        (|| Reply::status(503), 2),
        (|| Reply::error(refused), 2),
    ];
    for (reply, calls) in cases {
        let (service, shared) = Scripted::new([reply(), Reply::status(200)]);
        let stack = RetryLayer::http().layer(service);
        let put = Request::put("http://example.com/")
            .header("if-match", "\"1\"")
            .body(Full::default())
            .unwrap();
        let _ = stack.oneshot(put).await;
        assert_eq!(shared.calls(), calls);
    }
}

#[tokio::test(start_paused = true)]
async fn the_second_request_equals_the_first() {
    #[derive(Clone, PartialEq, Debug)]
    struct Mark(u8);

    let (service, shared) = Scripted::status([500, 500, 200]);
    let stack = RetryLayer::http().layer(service);
    let mut request = Request::new(Full::new(Bytes::from_static(b"abc")));
    *request.method_mut() = Method::PUT;
    *request.version_mut() = Version::HTTP_2;
    *request.uri_mut() = "http://example.com/a?b=c".parse().unwrap();
    request
        .headers_mut()
        .append("x-twice", HeaderValue::from_static("1"));
    request
        .headers_mut()
        .append("x-twice", HeaderValue::from_static("2"));
    request.extensions_mut().insert(Mark(7));
    stack.oneshot(request).await.unwrap();
    let received = std::mem::take(&mut *shared.received.lock().unwrap());
    assert_eq!(received.len(), 3);
    for (_, request) in received {
        assert_eq!(request.method(), Method::PUT);
        assert_eq!(request.version(), Version::HTTP_2);
        assert_eq!(request.uri(), "http://example.com/a?b=c");
        let twice: Vec<_> = request.headers().get_all("x-twice").iter().collect();
        assert_eq!(twice, ["1", "2"]);
        assert_eq!(request.extensions().get::<Mark>(), Some(&Mark(7)));
        assert_eq!(
            request.into_body().collect().await.unwrap().to_bytes(),
            "abc"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_copied_is_sent_once_and_its_response_returned() {
    let (service, shared) = Scripted::status([500]);
    let recorder = Recorder::default();
    let stack = RetryLayer::http()
        .copy(NeverCopy)
        .on_event(recorder.clone())
        .layer(service);
    assert_eq!(stack.oneshot(get()).await.unwrap().status(), 500);
    assert_eq!(shared.calls(), 1);
    assert_eq!(recorder.terminal().stop, Some(StopReason::NotReplayable));
}

#[tokio::test(start_paused = true)]
async fn no_copy_is_made_where_none_can_be_used() {
    let copies = Arc::new(AtomicUsize::new(0));
    let counting = {
        let copies = Arc::clone(&copies);
        move |request: &Req| {
            copies.fetch_add(1, Ordering::SeqCst);
            Some(request.clone())
        }
    };
    for (attempts, request, expected) in
        [(1, get(), 0), (3, post(), 0), (2, get(), 1), (3, get(), 2)]
    {
        copies.store(0, Ordering::SeqCst);
        let (service, _) = Scripted::always(|| Reply::status(503));
        let stack = RetryLayer::http()
            .attempts(attempts)
            .copy(counting.clone())
            .layer(service);
        stack.oneshot(request).await.unwrap();
        assert_eq!(copies.load(Ordering::SeqCst), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn the_failed_response_is_dropped_before_the_backoff() {
    let dropped_at = Arc::new(std::sync::Mutex::new(None));
    struct Connection(Arc<std::sync::Mutex<Option<Instant>>>);
    impl Drop for Connection {
        fn drop(&mut self) {
            *self.0.lock().unwrap() = Some(Instant::now());
        }
    }
    let begun = Instant::now();
    let held = Arc::clone(&dropped_at);
    let stack = RetryLayer::http()
        .backoff(Backoff::constant(ms(500)))
        .layer(service_fn(move |_: Req| {
            let held = Arc::clone(&held);
            async move {
                let (status, body) = match call::attempt() {
                    Some(1) => (503, Some(Connection(held))),
                    _ => (200, None),
                };
                let body = Holding(body);
                Ok::<_, BoxError>(http::Response::builder().status(status).body(body).unwrap())
            }
        }));
    stack.oneshot(get()).await.unwrap();
    assert_eq!(dropped_at.lock().unwrap().unwrap(), begun);
    assert_eq!(Instant::now() - begun, ms(500));
}

#[tokio::test(start_paused = true)]
async fn a_pool_of_one_connection_does_not_deadlock() {
    // The permit is held until the response body is dropped.
    let pool = Arc::new(tokio::sync::Semaphore::new(1));
    let stack = RetryLayer::http().layer(service_fn(move |_: Req| {
        let pool = Arc::clone(&pool);
        async move {
            let connection = pool.acquire_owned().await.unwrap();
            let status = if call::attempt() == Some(1) { 503 } else { 200 };
            Ok::<_, BoxError>(
                http::Response::builder()
                    .status(status)
                    .body(Holding(connection))
                    .unwrap(),
            )
        }
    }));
    assert_eq!(stack.oneshot(get()).await.unwrap().status(), 200);
}

#[tokio::test(start_paused = true)]
async fn an_attempt_is_gone_before_the_next_begins() {
    let (service, shared) = Scripted::always(|| Reply::Hang);
    let stack = ServiceBuilder::new()
        .layer(RetryLayer::http().backoff(Backoff::none()))
        .layer(AttemptTimeoutLayer::http(ms(100)))
        .service(service);
    let _ = stack.oneshot(get()).await;
    assert_eq!(shared.calls(), 3);
    shared.check();
    assert_eq!(shared.live(), 0);
}

#[tokio::test(start_paused = true)]
async fn each_attempt_is_made_on_a_readied_instance() {
    for attempts in 1..=3 {
        let mut statuses = vec![503; attempts - 1];
        statuses.push(200);
        let (service, shared) = Scripted::status(statuses);
        shared
            .readiness
            .lock()
            .unwrap()
            .extend((0..attempts).map(|_| Ok(ms(10))));
        let mut stack = RetryLayer::http().backoff(Backoff::none()).layer(service);
        for _ in 0..2 {
            let ready = stack.ready().await.unwrap();
            if shared.calls() < attempts {
                assert_eq!(ready.call(get()).await.unwrap().status(), 200);
            }
        }
        assert_eq!(shared.calls(), attempts);
        shared.check();
    }
}

#[tokio::test(start_paused = true)]
async fn readiness_between_attempts_is_inside_the_deadline() {
    let (service, shared) = Scripted::status([503]);
    shared
        .readiness
        .lock()
        .unwrap()
        .extend([Ok(ms(0)), Ok(secs(3600))]);
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(ms(300)))
        .layer(RetryLayer::http().backoff(Backoff::constant(ms(100))))
        .service(service);
    let clock = Clock::start();
    let error = stack.oneshot(get()).await.err().unwrap();
    assert_eq!(clock.ms(), 300);
    let exceeded = DeadlineExceeded::find(&error).unwrap();
    assert_eq!(
        (exceeded.phase(), exceeded.log().len()),
        (Phase::Readiness, 1)
    );
}

#[tokio::test(start_paused = true)]
async fn an_error_from_readiness_ends_the_call_unchanged() {
    let (service, shared) = Scripted::status([503]);
    shared.readiness.lock().unwrap().extend([
        Ok(ms(0)),
        Err((|| std::fmt::Error.into()) as fn() -> BoxError),
    ]);
    let recorder = Recorder::default();
    let stack = RetryLayer::http().on_event(recorder.clone()).layer(service);
    let error = stack.oneshot(get()).await.err().unwrap();
    assert!(error.is::<std::fmt::Error>());
    assert_eq!(shared.calls(), 1);
    assert_eq!(recorder.terminal().stop, Some(StopReason::Readiness));
}

#[tokio::test(start_paused = true)]
async fn no_permit_is_held_during_the_backoff() {
    let (service, _) = Scripted::status([503, 200, 200]);
    let limited = ConcurrencyLimitLayer::new(1).layer(service);
    let stack = RetryLayer::http()
        .backoff(Backoff::constant(secs(1)))
        .layer(limited.clone());
    let retrying = tokio::spawn(stack.oneshot(get()));
    sleep(ms(500)).await;
    // Somebody else gets through meanwhile, at once.
    let clock = Clock::start();
    assert_eq!(limited.oneshot(get()).await.unwrap().status(), 200);
    assert_eq!(clock.ms(), 0);
    assert_eq!(retrying.await.unwrap().unwrap().status(), 200);
}

#[tokio::test(start_paused = true)]
async fn two_retry_layers_multiply_unless_the_inner_one_defers() {
    for (defer, calls) in [(false, 12), (true, 4)] {
        let (service, shared) = Scripted::always(|| Reply::status(503));
        let recorder = Recorder::default();
        let inner = RetryLayer::http()
            .attempts(3)
            .budget(RetryBudget::none())
            .defer_to_caller(defer)
            .on_event(recorder.clone())
            .layer(service);
        let outer = RetryLayer::http().attempts(4).budget(RetryBudget::none());
        let stack = outer.layer(inner);
        assert_eq!(stack.oneshot(get()).await.unwrap().status(), 503);
        assert_eq!(shared.calls(), calls);
        assert_eq!(recorder.count(EventKind::NestedRetry), 4);
    }
}

#[tokio::test(start_paused = true)]
async fn any_request_type_can_be_retried() {
    #[derive(Debug)]
    struct Overloaded;

    impl std::fmt::Display for Overloaded {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("overloaded")
        }
    }

    impl std::error::Error for Overloaded {}

    let stack = RetryLayer::new()
        .classifier(
            |result: tower_deadline::AttemptResult<'_, u32>| match result {
                Ok(n) if *n < 3 => Verdict::Transient,
                Ok(_) => Verdict::Ok,
                Err(error) if error.is::<Overloaded>() => Verdict::Throttled,
                Err(_) => Verdict::Permanent,
            },
        )
        .layer(service_fn(|request: String| async move {
            match call::attempt() {
                Some(1) => Err::<u32, BoxError>(Box::new(Overloaded)),
                Some(attempt) => {
                    assert_eq!(request, "question");
                    Ok(attempt)
                }
                None => unreachable!(),
            }
        }));
    assert_eq!(stack.oneshot("question".to_owned()).await.unwrap(), 3);
}

//! The inner clock.

use tokio::time::sleep;
use tower::{Layer, ServiceExt, service_fn};
use tower_deadline::{
    AttemptCeiling, AttemptResult, AttemptTimedOut, Backoff, Bound, BoxError, DeadlineExceeded,
    EventKind, Verdict,
};

use crate::layers::{AttemptTimeoutLayer, DeadlineLayer, RetryLayer, ServiceBuilder};
use crate::support::*;

#[tokio::test(start_paused = true)]
async fn an_attempt_is_cut_at_its_timeout_and_not_just_before() {
    for (takes, ends) in [(99, Ok(99)), (101, Err(100))] {
        let (service, shared) = Scripted::new([Reply::after(ms(takes), 200)]);
        let stack = AttemptTimeoutLayer::http(ms(100)).layer(service);
        let clock = Clock::start();
        let result = stack.oneshot(get()).await;
        assert_eq!(result.map(|_| clock.ms()).map_err(|_| clock.ms()), ends);
        assert_eq!(shared.live(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn the_error_says_the_ceiling_and_which_bound_it_was() {
    let (service, _) = Scripted::new([Reply::Hang]);
    let stack = AttemptTimeoutLayer::http(ms(100)).layer(service);
    let error = stack.oneshot(get()).await.err().unwrap();
    let timed_out = AttemptTimedOut::find(&error).unwrap();
    assert_eq!(timed_out.ceiling(), ms(100));
    assert_eq!(timed_out.bound(), Bound::AttemptTimeout);
    assert_eq!(timed_out.elapsed(), ms(100));
    assert_eq!(timed_out.log().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn on_a_tie_the_deadline_wins() {
    let (service, _) = Scripted::new([Reply::Hang]);
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(ms(100)))
        .layer(AttemptTimeoutLayer::http(ms(100)))
        .service(service);
    let error = stack.oneshot(get()).await.err().unwrap();
    assert!(DeadlineExceeded::find(&error).is_some());
}

#[tokio::test(start_paused = true)]
async fn it_is_transient_and_the_classifier_is_not_asked() {
    let (service, shared) = Scripted::new([Reply::Hang, Reply::status(200)]);
    fn never<R>(result: AttemptResult<'_, R>) -> Verdict {
        assert!(result.is_ok(), "asked about {:?}", result.err());
        Verdict::Ok
    }
    let stack = ServiceBuilder::new()
        .layer(
            RetryLayer::http()
                .classifier(never)
                .backoff(Backoff::none()),
        )
        .layer(AttemptTimeoutLayer::http(ms(100)))
        .service(service);
    assert!(stack.oneshot(get()).await.is_ok());
    assert_eq!(shared.calls(), 2);
    shared.check();
}

#[tokio::test(start_paused = true)]
async fn the_last_timeout_of_a_call_carries_its_log() {
    let (service, _) = Scripted::always(|| Reply::Hang);
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(secs(30)))
        .layer(
            RetryLayer::http()
                .attempts(3)
                .backoff(Backoff::constant(ms(10))),
        )
        .layer(AttemptTimeoutLayer::http(secs(2)))
        .service(service);
    let clock = Clock::start();
    let error = stack.oneshot(get()).await.err().unwrap();
    assert_eq!(clock.ms(), 6020);
    let log = AttemptTimedOut::find(&error).unwrap().log();
    let rows: Vec<_> = log
        .iter()
        .map(|a| (a.number, a.duration, a.delay))
        .collect();
    assert_eq!(
        rows,
        [
            (1, secs(2), ms(0)),
            (2, secs(2), ms(10)),
            (3, secs(2), ms(10))
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn work_that_blocked_its_thread_is_reported_once_when_it_comes_back() {
    for (late, reported) in [(1000, 0), (1002, 1)] {
        let recorder = Recorder::default();
        let stack = ServiceBuilder::new()
            .layer(AttemptTimeoutLayer::new(ms(100)).on_event(recorder.clone()))
            .service(service_fn(|()| async {
                sleep(ms(10)).await;
                Ok::<_, BoxError>(())
            }));
        let mut future = std::pin::pin!(stack.oneshot(()));
        assert!(futures_util::poll!(future.as_mut()).is_pending());
        tokio::time::advance(ms(100 + late)).await;
        future.await.unwrap();
        assert_eq!(recorder.count(EventKind::OrphanedWork), reported, "{late}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_measured_of_a_dependency_cuts_its_attempts_and_those_of_no_other() {
    let quick = (0..20).map(|_| Reply::after(ms(40), 200));
    let (service, _) = Scripted::new(quick.chain([Reply::Hang, Reply::after(secs(1), 200)]));
    let stack = AttemptTimeoutLayer::http(secs(5))
        .ceiling(AttemptCeiling::above(3.0))
        .layer(service);
    for _ in 0..20 {
        stack.clone().oneshot(get()).await.unwrap();
    }
    let error = stack.clone().oneshot(get()).await.err().unwrap();
    let timed_out = AttemptTimedOut::find(&error).unwrap();
    assert_eq!(
        (timed_out.ceiling(), timed_out.bound()),
        (ms(120), Bound::Measured)
    );
    let mut elsewhere = get();
    *elsewhere.uri_mut() = "http://other.example.com/".parse().unwrap();
    assert!(stack.oneshot(elsewhere).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn an_attempt_after_two_slow_ones_gets_what_is_left() {
    let (service, shared) = Scripted::always(|| Reply::Hang);
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(ms(250)))
        .layer(RetryLayer::http().backoff(Backoff::none()))
        .layer(AttemptTimeoutLayer::http(ms(100)))
        .service(service);
    let _ = stack.oneshot(get()).await;
    assert_eq!(shared.times(), [0, 100, 200]);
}

#[tokio::test(start_paused = true)]
async fn work_that_comes_back_late_and_not_done_is_reported_once_whichever_bound_it_was() {
    for (attempt, deadline) in [(100, 60_000), (200, 100), (100, 100)] {
        for (late, reported) in [(1000, 0), (1002, 1)] {
            let recorder = Recorder::default();
            let stack = ServiceBuilder::new()
                .layer(DeadlineLayer::new(ms(deadline)))
                .layer(AttemptTimeoutLayer::new(ms(attempt)).on_event(recorder.clone()))
                .service(service_fn(|()| {
                    std::future::pending::<Result<(), BoxError>>()
                }));
            let mut future = std::pin::pin!(stack.oneshot(()));
            assert!(futures_util::poll!(future.as_mut()).is_pending());
            tokio::time::advance(ms(100 + late)).await;
            assert!(future.await.is_err());
            let told = recorder.count(EventKind::OrphanedWork);
            assert_eq!(told, reported, "{attempt} {deadline} {late}");
        }
    }
}

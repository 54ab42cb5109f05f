//! Other layers between ours: tower's buffers, limits and load shedding, and those of the user.

use std::sync::{Arc, Mutex};

use http::Response;
use tokio::time::sleep;
use tower::buffer::BufferLayer;
use tower::limit::ConcurrencyLimitLayer;
use tower::load_shed::LoadShedLayer;
use tower::util::{BoxCloneService, BoxCloneServiceLayer};
use tower::{Layer, Service, ServiceBuilder, ServiceExt, service_fn};
use tower_deadline::{
    AttemptTimeoutLayer, Backoff, BoundReadinessLayer, BoxError, BufferResponsesLayer,
    BufferedBody, DeadlineBody, DeadlineBodyLayer, DeadlineExceeded, DeadlineLayer, EventKind,
    Jitter, OverrideLayer, ProgressBody, ProgressBoundLayer, RetryBudget, RetryLayer, StopReason,
    Verdict, call,
};

use crate::random::{everything_was_seen, one_call};
use crate::support::*;

type Whole =
    BoxCloneService<Req, Response<DeadlineBody<BufferedBody<ProgressBody<Script>>>>, BoxError>;

/// All layers, with tower's own in between: which ones, `between` says.
fn whole(between: u8, service: Scripted, recorder: &Recorder) -> Whole {
    let told = || recorder.clone();
    let outer = ServiceBuilder::new()
        .layer(OverrideLayer::new())
        .layer(DeadlineLayer::new(secs(1)).on_event(told()))
        .layer(BoundReadinessLayer::new())
        .layer(DeadlineBodyLayer::new().on_event(told()));
    let backoff = Backoff::exponential().base(ms(20)).jitter(Jitter::Full);
    let retry = RetryLayer::http()
        .backoff(backoff)
        .budget(RetryBudget::none())
        .on_event(told());
    let attempt = ServiceBuilder::new()
        .layer(AttemptTimeoutLayer::http(ms(300)).on_event(told()))
        .layer(BufferResponsesLayer::new().max_bytes(4).on_event(told()))
        .layer(ProgressBoundLayer::new(ms(100)).on_event(told()))
        .service(service);
    let limit = ConcurrencyLimitLayer::new(1);
    let shed = LoadShedLayer::new();
    let buffer = || BufferLayer::new(2);
    match between {
        0 => BoxCloneService::new(outer.layer(retry).service(attempt)),
        1 => BoxCloneService::new(outer.layer(buffer()).layer(retry).service(attempt)),
        2 => BoxCloneService::new(outer.layer(retry).layer(buffer()).service(attempt)),
        3 => BoxCloneService::new(
            outer
                .layer(limit.clone())
                .layer(retry)
                .layer(limit)
                .service(attempt),
        ),
        4 => BoxCloneService::new(outer.layer(retry).layer(shed).layer(limit).service(attempt)),
        _ => BoxCloneService::new(
            outer
                .layer(buffer())
                .layer(shed)
                .layer(retry)
                .layer(buffer())
                .service(attempt),
        ),
    }
}

#[tokio::test(start_paused = true)]
async fn whatever_is_between_the_layers_every_call_ends_once_and_in_time() {
    let mut seen = Vec::new();
    for seed in 0..4000 {
        let between = u8::try_from(seed % 6).unwrap();
        let compose = |service, recorder: Recorder| whole(between, service, &recorder);
        seen.extend(one_call(seed, between == 0, compose).await);
    }
    everything_was_seen(&seen);
}

#[tokio::test(start_paused = true)]
async fn it_is_recognised_behind_buffers_boxes_and_mapped_errors() {
    async fn run<L, S>(between: L)
    where
        L: Layer<
                tower_deadline::attempt_timeout::AttemptTimeout<
                    Scripted,
                    tower_deadline::HttpClassifier,
                    tower_deadline::Authority,
                >,
                Service = S,
            >,
        S: Service<Req, Response = Res, Error = BoxError> + Clone,
    {
        let (service, shared) = Scripted::new([Reply::Hang, Reply::status(200)]);
        let stack = ServiceBuilder::new()
            .layer(RetryLayer::http().backoff(Backoff::none()))
            .layer(between)
            .layer(AttemptTimeoutLayer::http(ms(100)))
            .service(service);
        assert!(stack.oneshot(get()).await.is_ok());
        assert_eq!(shared.calls(), 2);
    }
    run(BufferLayer::new(4)).await;
    run(BoxCloneServiceLayer::new(
        tower::layer::util::Identity::new(),
    ))
    .await;
    run(tower::util::MapErrLayer::new(
        |error: BoxError| -> BoxError { Box::new(std::io::Error::other(error)) },
    ))
    .await;
}

#[tokio::test(start_paused = true)]
async fn it_works_above_buffers_limits_and_load_shedding() {
    let (service, shared) = Scripted::new([Reply::status(503), Reply::Hang, Reply::status(200)]);
    let stack = ServiceBuilder::new()
        .layer(BufferLayer::new(8))
        .layer(DeadlineLayer::new(secs(30)))
        .layer(BufferLayer::new(8))
        .layer(RetryLayer::http())
        .layer(BufferLayer::new(8))
        .layer(LoadShedLayer::new())
        .layer(ConcurrencyLimitLayer::new(1))
        .layer(AttemptTimeoutLayer::http(secs(1)))
        .layer(ConcurrencyLimitLayer::new(1))
        .service(service);
    assert_eq!(stack.oneshot(get()).await.unwrap().status(), 200);
    assert_eq!(shared.calls(), 3);
    shared.check();
}

/// A layer of the user's own above the retries, which takes so long over each response and refuses it.
fn decoding(
    takes: std::time::Duration,
    service: Scripted,
    recorder: &Recorder,
) -> impl Service<Req, Response = (), Error = BoxError> + Clone {
    ServiceBuilder::new()
        .layer(DeadlineLayer::new(ms(300)).on_event(recorder.clone()))
        .and_then(move |_: Res| async move {
            sleep(takes).await;
            Err::<(), BoxError>(Box::new(Own(1)))
        })
        .layer(
            RetryLayer::http()
                .backoff(Backoff::none())
                .on_event(recorder.clone()),
        )
        .service(service)
}

#[tokio::test(start_paused = true)]
async fn a_call_that_failed_above_its_retries_is_not_called_a_success() {
    let recorder = Recorder::default();
    let (service, _) = Scripted::status([200]);
    let error = decoding(ms(10), service, &recorder)
        .oneshot(get())
        .await
        .unwrap_err();
    assert!(error.is::<Own>());
    let terminal = recorder.terminal();
    assert_eq!(terminal.kind, EventKind::NotRetried, "{terminal:?}");
    assert_eq!(terminal.stop, Some(StopReason::NoRetryLayer));
}

#[tokio::test(start_paused = true)]
async fn a_deadline_that_comes_above_the_retries_counts_each_attempt_once() {
    for statuses in [&[503, 200][..], &[200]] {
        let recorder = Recorder::default();
        let (service, shared) = Scripted::status(statuses.iter().copied());
        let error = decoding(secs(60), service, &recorder)
            .oneshot(get())
            .await
            .unwrap_err();
        let exceeded = DeadlineExceeded::find(&error).unwrap();
        assert_eq!(exceeded.elapsed(), ms(300));
        assert_eq!(recorder.count(EventKind::Attempt), shared.calls());
        let terminal = recorder.terminal();
        assert_eq!(terminal.kind, EventKind::DeadlineExceeded);
        assert_ne!(terminal.stop, Some(StopReason::Success), "{terminal:?}");
        assert_eq!(exceeded.log().len(), shared.calls(), "{}", exceeded.log());
        assert_eq!(exceeded.log().last().unwrap().verdict, Verdict::Ok);
    }
}

#[tokio::test(start_paused = true)]
async fn time_in_the_queue_is_no_time_of_the_attempt() {
    let (service, _) = Scripted::new([Reply::after(ms(90), 200), Reply::after(ms(90), 200)]);
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(ms(500)))
        .layer(BoundReadinessLayer::new())
        .layer(ConcurrencyLimitLayer::new(1))
        .layer(AttemptTimeoutLayer::http(ms(100)))
        .service(service);
    let (first, second) = tokio::join!(stack.clone().oneshot(get()), stack.oneshot(get()));
    assert!(first.is_ok() && second.is_ok());
}

#[tokio::test(start_paused = true)]
async fn the_innermost_service_sees_the_time_left_and_its_attempt() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let seeing = Arc::clone(&seen);
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(secs(1)))
        .layer(BufferLayer::new(4))
        .layer(RetryLayer::http().backoff(Backoff::constant(ms(100))))
        .layer(BufferLayer::new(4))
        .layer(AttemptTimeoutLayer::http(secs(1)))
        .service(service_fn(move |_: Req| {
            let seeing = Arc::clone(&seeing);
            async move {
                sleep(ms(50)).await;
                let facts = (call::attempt(), call::remaining(), call::inside_retry());
                seeing.lock().unwrap().push(facts);
                let status = if call::attempt() == Some(3) { 200 } else { 503 };
                Ok::<_, BoxError>(http::Response::builder().status(status).body(()).unwrap())
            }
        }));
    stack.oneshot(get()).await.unwrap();
    assert_eq!(
        *seen.lock().unwrap(),
        [
            (Some(1), Some(ms(950)), true),
            (Some(2), Some(ms(800)), true),
            (Some(3), Some(ms(650)), true)
        ]
    );
    assert_eq!(call::remaining(), None);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_leaves_while_a_buffer_has_the_answer_is_told_once() {
    let recorder = Recorder::default();
    let (service, shared) = Scripted::always(|| Reply::Hang);
    let mut stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(secs(1)).on_event(recorder.clone()))
        .layer(BufferLayer::new(4))
        .layer(
            RetryLayer::http()
                .backoff(Backoff::none())
                .on_event(recorder.clone()),
        )
        .layer(AttemptTimeoutLayer::http(ms(300)).on_event(recorder.clone()))
        .service(service);
    let mut call = Box::pin(stack.ready().await.unwrap().call(get()));
    assert!(futures_util::poll!(call.as_mut()).is_pending());
    // The worker calls, and has the future ready that nobody has polled yet.
    while shared.calls() == 0 {
        tokio::task::yield_now().await;
    }
    drop(call);
    assert_eq!(
        recorder.kinds(),
        [EventKind::Cancelled],
        "{}",
        recorder.sequence()
    );
}

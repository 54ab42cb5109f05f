//! Random scripts and random drops.

use std::pin::pin;
use std::time::Duration;

use http::{HeaderMap, HeaderValue, Response};
use http_body_util::BodyExt;
use tokio::time::timeout;
use tower::{Service, ServiceExt};
use tower_deadline::{Backoff, BoxError, EventKind, Jitter, RetryBudget};

use crate::layers::{
    AttemptTimeoutLayer, BoundReadinessLayer, BufferResponsesLayer, DeadlineBodyLayer,
    DeadlineLayer, OverrideLayer, ProgressBoundLayer, RetryLayer, ServiceBuilder, can_have,
};
use crate::support::*;

/// A call of a second: attempts of 300 ms that read the body, and gaps of `gap` in what is too large.
fn bounded(
    gap: Duration,
    service: Scripted,
    recorder: &Recorder,
) -> impl Service<Req, Response = Response<impl Bytewise + use<>>, Error = BoxError> + use<> {
    let told = || recorder.clone();
    let backoff = Backoff::exponential().base(ms(20)).jitter(Jitter::Full);
    ServiceBuilder::new()
        .layer(OverrideLayer::new())
        .layer(DeadlineLayer::new(secs(1)).on_event(told()))
        .layer(BoundReadinessLayer::new())
        .layer(DeadlineBodyLayer::new().on_event(told()))
        .layer(
            RetryLayer::http()
                .backoff(backoff)
                .budget(RetryBudget::none())
                .on_event(told()),
        )
        .layer(AttemptTimeoutLayer::http(ms(300)).on_event(told()))
        .layer(BufferResponsesLayer::new().max_bytes(4).on_event(told()))
        .layer(ProgressBoundLayer::new(gap).on_event(told()))
        .service(service)
}

fn random_body(rng: &mut fastrand::Rng) -> Script {
    let steps: Vec<_> = (0..rng.usize(0..7))
        .map(|_| match rng.u8(0..12) {
            0 | 1 => Step::Silence,
            2 => Step::Error(reset),
            3 => Step::Data(""),
            4 => {
                let mut trailers = HeaderMap::new();
                trailers.insert("x-end", HeaderValue::from_static("1"));
                Step::Trailers(trailers)
            }
            5 | 6 => Step::Wait(ms(rng.u64(0..150))),
            _ => Step::Data("abc"),
        })
        .collect();
    Script::new(steps)
}

fn random_reply(rng: &mut fastrand::Rng) -> Reply {
    let wait = ms(rng.u64(0..400));
    match rng.u8(0..8) {
        0 => Reply::Hang,
        1 => Reply::Error(wait, reset),
        2 => Reply::Error(wait, || std::fmt::Error.into()),
        3 => Reply::retry_after(429, ["0", "1", "7", "soon"][rng.usize(0..4)]),
        4 | 5 => Reply::Head(wait, 503, vec![], random_body(rng)),
        _ => Reply::Head(wait, 200, vec![], random_body(rng)),
    }
}

/// One call by a random script, through the stack that `compose` makes; dropped somewhere, as often as
/// not. `direct` is a stack that asks the service itself for each attempt.
pub(crate) async fn one_call<S, B>(
    seed: u64,
    direct: bool,
    compose: impl FnOnce(Scripted, Recorder) -> S,
) -> Vec<EventKind>
where
    S: Service<Req, Response = Response<B>, Error = BoxError>,
    B: Bytewise,
{
    let mut rng = fastrand::Rng::with_seed(seed);
    // The jitter too, so that a seed tells all.
    fastrand::seed(seed);
    let recorder = Recorder::default();
    let replies: Vec<_> = (0..3).map(|_| random_reply(&mut rng)).collect();
    let waits: Vec<Readiness> = (0..3).map(|_| Ok(ms(rng.u64(0..30)))).collect();
    let (service, shared) = Scripted::new(replies);
    shared.readiness.lock().unwrap().extend(waits);
    let mut stack = compose(service, recorder.clone());
    let patience = if rng.bool() {
        Duration::MAX
    } else {
        ms(rng.u64(0..1200))
    };
    let clock = Clock::start();
    let call = stack.ready().await.unwrap().call(get());
    let outcome = timeout(patience, call).await;
    let left = outcome.is_err();
    if let Ok(Ok(response)) = outcome {
        // The deadline holds for the body here too.
        let mut body = pin!(response.into_body());
        while let Some(Ok(_)) = body.frame().await {}
    }
    let ended = clock.ms();
    drop(stack);
    tokio::task::yield_now().await;

    let told = recorder.all();
    let is_end = |told: &Told| told.kind.is_terminal() || told.kind == EventKind::Cancelled;
    let sequence = format!("seed {seed}\n{}", recorder.sequence());
    assert!(ended <= 1000, "{ended} ms, {sequence}");
    let ends = told.iter().filter(|t| is_end(t)).count();
    assert_eq!(ends, 1, "{sequence}");
    let cancelled = recorder.count(EventKind::Cancelled);
    assert_eq!(cancelled, usize::from(left), "{sequence}");
    // After the end there is at most a stall, and before it none.
    let end = told.iter().position(is_end).unwrap();
    let (before, after) = (&told[..end], &told[end + 1..]);
    let stall = |t: &Told| t.kind == EventKind::Stalled;
    assert!(after.len() <= 1 && after.iter().all(stall), "{sequence}");
    assert!(!before.iter().any(stall), "{sequence}");
    // The log counts every attempt once.
    let numbers: Vec<_> = told[end].log.iter().map(|a| a.number).collect();
    let counted: Vec<_> = (1..).take(numbers.len()).collect();
    assert_eq!(numbers, counted, "{sequence}");
    let attempts = recorder.count(EventKind::Attempt);
    let retries = recorder.count(EventKind::Retrying);
    assert!(retries <= attempts, "{sequence}");
    if direct {
        // One event an attempt, but for the one that was under way when its caller left.
        let calls = shared.calls();
        assert!(attempts <= calls, "{sequence}");
        assert!(attempts + usize::from(left) >= calls, "{sequence}");
    }
    assert_eq!(shared.live(), 0, "{sequence}");
    shared.check();
    recorder.kinds()
}

/// The scripts go everywhere.
pub(crate) fn everything_was_seen(seen: &[EventKind]) {
    for kind in [
        EventKind::Succeeded,
        EventKind::NotRetried,
        EventKind::Exhausted,
        EventKind::DeadlineExceeded,
        EventKind::Cancelled,
        EventKind::Stalled,
        EventKind::BufferSpilled,
    ] {
        let times = seen.iter().filter(|k| **k == kind).count();
        assert!(times >= 10, "{kind:?} only {times} times");
    }
}

#[tokio::test(start_paused = true)]
async fn whatever_happens_every_call_ends_once_and_in_time() {
    for gap in [ms(100), ms(300)] {
        if !can_have(ms(300), gap) {
            continue;
        }
        let mut seen = Vec::new();
        for seed in 0..2000 {
            let compose = |service, recorder: Recorder| bounded(gap, service, &recorder);
            seen.extend(one_call(seed, true, compose).await);
        }
        everything_was_seen(&seen);
    }
}

//! No call outlasts the latest end that its policy states, and for each policy there is a service that
//! makes a call last as long.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response};
use http_body_util::Empty;
use proptest::prelude::*;
use tokio::time::{Instant, Sleep, sleep};
use tower::{Layer, Service, ServiceExt};
use tower_deadline::{AttemptResult, Backoff, BoxError, CallPolicy, Classify, Jitter, Verdict};

use crate::support::{ms, reset};

type Body = Empty<&'static [u8]>;

/// What an attempt does, after how long.
#[derive(Debug, Clone, Copy)]
enum Act {
    Hang,
    Fail(Duration),
    /// And the peer asks for so long a wait.
    Throttle(Duration, Duration),
    Succeed(Duration),
}

/// A service with a plan: how long each readiness takes, and what each attempt does.
#[derive(Clone, Default)]
struct Hostile(Arc<Mutex<Plan>>);

#[derive(Default)]
struct Plan {
    acts: VecDeque<Act>,
    readiness: VecDeque<Duration>,
    /// How long readiness took, all in all.
    waited: Duration,
}

struct Readying {
    hostile: Hostile,
    readying: Option<Pin<Box<Sleep>>>,
}

impl Clone for Readying {
    fn clone(&self) -> Self {
        Self {
            hostile: self.hostile.clone(),
            readying: None,
        }
    }
}

impl Service<Request<Body>> for Readying {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        if self.readying.is_none() {
            let mut plan = self.hostile.0.lock().unwrap();
            let Some(wait) = plan.readiness.pop_front() else {
                return Poll::Ready(Ok(()));
            };
            plan.waited += wait;
            self.readying = Some(Box::pin(sleep(wait)));
        }
        if let Some(readying) = &mut self.readying {
            std::task::ready!(readying.as_mut().poll(cx));
            self.readying = None;
        }
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Body>) -> Self::Future {
        let act = self.hostile.0.lock().unwrap().acts.pop_front();
        Box::pin(async move {
            match act.unwrap_or(Act::Hang) {
                Act::Hang => std::future::pending().await,
                Act::Fail(after) => {
                    sleep(after).await;
                    Err(reset())
                }
                Act::Throttle(after, asked) => {
                    sleep(after).await;
                    let mut response = Response::new(Body::new());
                    response.extensions_mut().insert(asked);
                    Ok(response)
                }
                Act::Succeed(after) => {
                    sleep(after).await;
                    Ok(Response::new(Body::new()))
                }
            }
        })
    }
}

/// Takes the wait that a response asks for from its extensions, where it can be any.
#[derive(Clone)]
struct ByExtension;

impl<B> Classify<Response<B>> for ByExtension {
    fn classify(&self, result: AttemptResult<'_, Response<B>>) -> Verdict {
        match result {
            Ok(response) if response.extensions().get::<Duration>().is_some() => Verdict::Throttled,
            Ok(_) => Verdict::Ok,
            Err(_) => Verdict::Transient,
        }
    }

    fn wait(&self, result: AttemptResult<'_, Response<B>>) -> Option<Duration> {
        result.ok()?.extensions().get().copied()
    }
}

/// How long a call takes, and how long of that its readiness took. `None` where it does not end within
/// a year.
fn run(
    policy: CallPolicy,
    acts: impl IntoIterator<Item = Act>,
    readiness: impl IntoIterator<Item = Duration>,
) -> Option<(Duration, Duration)> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async {
        let hostile = Hostile::default();
        {
            let mut plan = hostile.0.lock().unwrap();
            plan.acts.extend(acts);
            plan.readiness.extend(readiness);
        }
        let inner = Readying {
            hostile: hostile.clone(),
            readying: None,
        };
        let mut stack = policy.layer().classifier(ByExtension).layer(inner);
        let stack = stack.ready().await.unwrap();
        hostile.0.lock().unwrap().waited = Duration::ZERO;
        let request = Request::get("http://example.com/").body(Body::new());
        let begun = Instant::now();
        let year = Duration::from_secs(365 * 86_400);
        let ended = tokio::time::timeout(year, stack.call(request.unwrap())).await;
        ended.ok()?.ok();
        let waited = hostile.0.lock().unwrap().waited;
        Some((Instant::now() - begun, waited))
    })
}

fn duration(most: u64) -> impl Strategy<Value = Duration> {
    prop_oneof![
        (1..=most).prop_map(Duration::from_millis),
        (1..=most * 1000).prop_map(Duration::from_micros),
        (1..20_u64).prop_map(Duration::from_millis),
    ]
}

fn backoff(jitter: impl Strategy<Value = Jitter>) -> impl Strategy<Value = Backoff> {
    let exponential = (
        duration(2000),
        duration(5000),
        1.0..4.0_f64,
        duration(40_000),
        jitter,
    );
    prop_oneof![
        8 => exponential.prop_map(|(base, throttled, factor, cap, jitter)| {
            Backoff::exponential()
                .base(base)
                .throttled_base(throttled)
                .factor(factor)
                .cap(cap.max(base).max(throttled))
                .jitter(jitter)
        }),
        1 => duration(5000).prop_map(Backoff::constant),
        1 => Just(Backoff::none()),
        1 => Just(Backoff::exponential()),
        1 => Just(Backoff::custom(|n| Duration::from_millis(u64::from(n) * 37)).cap(ms(90))),
        1 => Just(Backoff::measured(3.0)),
    ]
}

fn any_jitter() -> impl Strategy<Value = Jitter> {
    prop_oneof![Just(Jitter::Full), Just(Jitter::Equal), Just(Jitter::None)]
}

fn policy(
    attempts: u32,
    jitter: impl Strategy<Value = Jitter>,
) -> impl Strategy<Value = CallPolicy> {
    let numbers = (
        prop::option::weighted(0.8, duration(30_000)),
        prop::option::weighted(0.8, duration(8000)),
        1..=attempts,
        backoff(jitter),
        any::<bool>(),
    );
    numbers.prop_map(|(deadline, timeout, attempts, backoff, readiness)| {
        let policy = CallPolicy::http()
            .no_budget()
            .attempts(attempts)
            .backoff(backoff);
        let policy = match deadline {
            Some(deadline) => policy.deadline(deadline).bound_readiness(readiness),
            None => policy.no_deadline(),
        };
        match timeout {
            Some(timeout) => policy.attempt_timeout(timeout),
            None => policy.no_attempt_timeout(),
        }
    })
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        3 => Just(Act::Hang),
        4 => duration(9000).prop_map(Act::Fail),
        1 => Just(Act::Fail(Duration::ZERO)),
        4 => (duration(9000), duration(45_000)).prop_map(|(a, b)| Act::Throttle(a, b)),
        1 => duration(9000).prop_map(Act::Succeed),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn no_call_outlasts_what_its_policy_states(
        policy in policy(8, any_jitter()),
        acts in prop::collection::vec(act(), 8),
        readiness in prop::collection::vec(prop_oneof![3 => Just(Duration::ZERO), 1 => duration(9000)], 9),
    ) {
        let explanation = policy.explain();
        let _ = explanation.to_string();
        let Some(longest) = explanation.longest else { return Ok(()) };
        let (took, readiness) = run(policy, acts, readiness).expect("it ends");
        // Readiness is not in it, unless the deadline bounds it as well. A timer goes off at the next
        // whole millisecond, and there are three an attempt: its end, the wait, the readiness.
        let timers = ms(3 * u64::from(explanation.load.multiplier));
        let bound = longest.saturating_add(readiness);
        let bound = explanation.deadline.map_or(bound, |deadline| bound.min(deadline.max(longest)));
        prop_assert!(took <= bound + timers, "{took:?} of {bound:?}\n{explanation}");
    }
}

/// A plan that makes a call last, with what is known of the policy alone: for each choice of ordinary and
/// throttled failures, and for each attempt that could be the last, all waits and attempts at their
/// shortest, then lengthened one after the other as far as the deadline lets them.
struct Planner {
    deadline: Option<u64>,
    timeout: u64,
    attempts: u32,
    backoff: Backoff,
    cap: u64,
}

/// Milliseconds; waits are slept to the next.
fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap()
}

impl Planner {
    /// The shortest and the longest wait before attempt `number`.
    fn wait(&self, number: u32, throttled: bool) -> (u64, u64) {
        let ordinary = millis(self.backoff.wait(number, throttled));
        (
            ordinary,
            if throttled {
                self.cap.max(ordinary)
            } else {
                ordinary
            },
        )
    }

    /// The latest end, and what the attempts do for it.
    fn best(&self) -> (u64, Vec<Act>) {
        let mut best = (0, Vec::new());
        for last in 1..=self.attempts {
            for pattern in 0..1_u32 << (last - 1) {
                let throttled = |i: u32| pattern >> i & 1 == 1;
                let waits: Vec<_> = (0..last - 1)
                    .map(|i| self.wait(i + 2, throttled(i)))
                    .collect();
                // An attempt ends at least a tick before it is cut, else it is cut.
                let longest = self.timeout.saturating_sub(1);
                let shortest: u64 = waits.iter().map(|(least, _)| least).sum();
                let deadline = self.deadline.unwrap_or(u64::MAX);
                // The last begins at least a tick before the deadline, and hangs.
                let Some(mut room) = deadline.saturating_sub(1).checked_sub(shortest) else {
                    continue;
                };
                let mut start = shortest;
                let mut lengthen = |most: u64| {
                    let more = most.min(room);
                    room -= more;
                    start += more;
                    more
                };
                let acts: Vec<_> = waits
                    .iter()
                    .enumerate()
                    .map(|(i, (least, most))| {
                        let takes = ms(lengthen(longest));
                        let wait = least + lengthen(most - least);
                        if throttled(u32::try_from(i).unwrap()) {
                            Act::Throttle(takes, ms(wait))
                        } else {
                            Act::Fail(takes)
                        }
                    })
                    .chain([Act::Hang])
                    .collect();
                let end = (start + self.timeout).min(deadline);
                // Where attempts are left and would fit, hanging would be followed by them; that
                // only makes it longer.
                if end > best.0 {
                    best = (end, acts);
                }
            }
        }
        best
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn for_each_policy_there_is_a_service_that_makes_a_call_last_as_long(
        deadline in prop::option::weighted(0.8, 1..30_000_u64),
        timeout in prop_oneof![1..30_u64, 1..8000_u64],
        attempts in 1..=5_u32,
        base in 0..2000_u64,
        throttled_base in 0..5000_u64,
        factor in 1.0..3.0_f64,
        cap in 5000..40_000_u64,
    ) {
        let backoff = Backoff::exponential()
            .base(ms(base))
            .throttled_base(ms(throttled_base))
            .factor(factor)
            .cap(ms(cap))
            .jitter(Jitter::None);
        let policy = CallPolicy::http()
            .no_budget()
            .attempts(attempts)
            .attempt_timeout(ms(timeout))
            .backoff(backoff);
        let policy = match deadline {
            Some(deadline) => policy.deadline(ms(deadline)),
            None => policy.no_deadline(),
        };
        let planner = Planner { deadline, timeout, attempts, backoff, cap };
        let (expected, acts) = planner.best();
        let explanation = policy.explain();
        let longest = millis(explanation.longest.unwrap());
        let (took, _) = run(policy, acts.clone(), []).expect("it ends");
        // Two ticks for each attempt that ends just before it is cut, and two before the deadline.
        let ticks = 2 * u64::from(attempts) + 2;
        prop_assert!(
            millis(took) + ticks >= longest && millis(took) <= longest + ticks,
            "{took:?}, planned {expected}\n{acts:?}\n{explanation}"
        );
    }
}

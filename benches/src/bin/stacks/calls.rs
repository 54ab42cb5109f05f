//! What a call costs.

use std::hint::black_box;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use std::future::Future;

use http::Method;
use tower::ServiceExt;

use crate::allocations::allocations;
use crate::rounds::{Measured, Variant};
use crate::stacks::{self, Req, Stack};
use crate::work::{Answering, Answers, small, typical};

/// Makes calls one after the other, each polled by hand until it is ready.
pub(crate) fn by_hand<S: Stack>(mut stack: S, request: Req) -> impl FnMut(u32) -> Duration {
    move |n| {
        let mut cx = Context::from_waker(Waker::noop());
        let begun = Instant::now();
        for _ in 0..n {
            let ready = stack.poll_ready(&mut cx);
            assert!(matches!(ready, Poll::Ready(Ok(()))));
            let mut call = pin!(stack.call(black_box(request.clone())));
            loop {
                if let Poll::Ready(result) = call.as_mut().poll(&mut cx) {
                    let _ = black_box(result);
                    break;
                }
            }
        }
        begun.elapsed()
    }
}

/// Makes calls one after the other in a runtime, whose driver runs whenever one is pending.
fn by_driver<'a, S: Stack>(
    runtime: &'a tokio::runtime::Runtime,
    stack: S,
    request: Req,
) -> impl FnMut(u32) -> Duration + 'a {
    move |n| {
        let (mut stack, request) = (stack.clone(), request.clone());
        runtime.block_on(async move {
            let begun = Instant::now();
            for _ in 0..n {
                let Ok(ready) = stack.ready().await else {
                    panic!("it is always ready");
                };
                let _ = black_box(ready.call(black_box(request.clone())).await);
            }
            begun.elapsed()
        })
    }
}

/// What is called how.
pub(crate) struct Work {
    pub(crate) name: &'static str,
    pub(crate) answers: Answers,
    pub(crate) request: Req,
    pub(crate) driver: bool,
    /// What its ratio is called.
    pub(crate) ratio: Option<&'static str>,
}

impl Work {
    pub(crate) fn is_repeatable(&self) -> bool {
        self.request.method() == Method::GET
    }
}

pub(crate) fn works() -> Vec<Work> {
    let work = |name, answers, request, driver, ratio| Work {
        name,
        answers,
        request,
        driver,
        ratio,
    };
    let (at_once, once) = (Answers::AtOnce, Answers::PendingOnce);
    let (get, post) = (|| Method::GET, || Method::POST);
    vec![
        work("ready, small", at_once, small(get()), false, None),
        work(
            "ready, typical",
            at_once,
            typical(get()),
            false,
            Some("ready_retryable_vs_tower"),
        ),
        work(
            "ready, typical, single",
            at_once,
            typical(post()),
            false,
            Some("ready_single_vs_tower"),
        ),
        work("ready, small, single", at_once, small(post()), false, None),
        work("pending once, small", once, small(get()), false, None),
        work(
            "pending once, typical",
            once,
            typical(get()),
            false,
            Some("pending_vs_tower"),
        ),
        work("driver, small", once, small(get()), true, None),
    ]
}

pub(crate) const BARE: &str = "bare";
pub(crate) const TOWER: &str = "tower";
pub(crate) const RESILIENCE: &str = "tower-resilience";
pub(crate) const ALIKE: &str = "ours, alike";
pub(crate) const FULL: &str = "ours, full";

/// Runs one variant of one kind of work so many times, for somebody who counts.
pub(crate) fn child(runtime: &tokio::runtime::Runtime, name: &str, work: &str, n: u32) {
    counted(runtime, name, work, n);
}

/// The same; the allocations of the calls.
pub(crate) fn counted(runtime: &tokio::runtime::Runtime, name: &str, work: &str, n: u32) -> u64 {
    let works = works();
    let work = works
        .iter()
        .find(|w| w.name == work)
        .expect("a work of this name");
    let _in_runtime = runtime.enter();
    let mut variants = variants(runtime, work);
    let variant = variants
        .iter_mut()
        .find(|v| v.name == name)
        .expect("a variant of this name");
    (variant.run)(n); // warm
    allocations(|| {
        (variant.run)(n);
    })
}

/// Every variant, for one kind of work.
pub(crate) fn measure(
    runtime: &tokio::runtime::Runtime,
    work: &Work,
    rounds: u32,
    iterations: u32,
) -> Measured {
    let _in_runtime = runtime.enter();
    Measured::measure(&mut variants(runtime, work), rounds, iterations)
}

fn variants<'a>(runtime: &'a tokio::runtime::Runtime, work: &Work) -> Vec<Variant<'a>> {
    let inner = Answering(work.answers);
    let request = &work.request;
    let mut variants = Vec::new();
    macro_rules! variant {
        ($name:expr, $stack:expr) => {
            let stack = $stack;
            variants.push(if work.driver {
                Variant::new($name, by_driver(runtime, stack, request.clone()))
            } else {
                Variant::new($name, by_hand(stack, request.clone()))
            });
        };
    }
    variant!(BARE, inner.clone());
    variant!(TOWER, stacks::tower_three(inner.clone()));
    variant!(RESILIENCE, stacks::resilience_three(inner.clone()));
    variant!(ALIKE, stacks::alike(inner.clone()));
    let full = stacks::full(inner.clone());
    // Warm: more samples than the ceiling asks for.
    by_hand(full.clone(), request.clone())(100);
    variant!(FULL, full);
    variant!("ours, none", stacks::none(inner.clone()));
    variant!("deadline", stacks::only_deadline(inner.clone()));
    variant!("retry", stacks::only_retry(inner.clone()));
    variant!("attempt timeout", stacks::only_attempt(inner.clone()));
    variant!("progress bound", stacks::only_progress(inner));
    variants
}

//! Calls that are under way: what each holds, and how long it takes to drop them all.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::Instant;

use http::Method;

use crate::allocations::live_bytes;
use crate::stacks::{self, Stack};
use crate::work::{Answering, Answers, typical};

const CALLS: usize = 10_000;

pub(crate) struct InFlight {
    pub(crate) name: &'static str,
    pub(crate) bytes: f64,
    /// Nanoseconds to drop one of them.
    pub(crate) drop: f64,
}

fn hold<S: Stack>(name: &'static str, mut stack: S) -> InFlight {
    let mut cx = Context::from_waker(Waker::noop());
    let request = typical(Method::GET);
    let mut calls: Vec<Pin<Box<S::Future>>> = Vec::with_capacity(CALLS);
    let before = live_bytes();
    for _ in 0..CALLS {
        let _ = stack.poll_ready(&mut cx);
        let mut call = Box::pin(stack.call(request.clone()));
        assert!(call.as_mut().poll(&mut cx).is_pending());
        calls.push(call);
    }
    let bytes = (live_bytes() - before) as f64 / CALLS as f64;
    let begun = Instant::now();
    drop(calls);
    let drop = begun.elapsed().as_secs_f64() * 1e9 / CALLS as f64;
    InFlight { name, bytes, drop }
}

pub(crate) fn measure(runtime: &tokio::runtime::Runtime) -> Vec<InFlight> {
    let _in_runtime = runtime.enter();
    let inner = Answering(Answers::Never);
    vec![
        hold("bare", inner.clone()),
        hold("tower", stacks::tower_three(inner.clone())),
        hold("tower-resilience", stacks::resilience_three(inner.clone())),
        hold("ours, alike", stacks::alike(inner.clone())),
        hold("ours, full", stacks::full(inner)),
    ]
}

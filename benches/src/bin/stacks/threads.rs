//! Two threads at once: how much of the speed of one each of them has.

use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use http::Method;

use crate::calls::by_hand;
use crate::rounds::median;
use crate::stacks::{self, Stack};
use crate::work::{Answering, Answers, typical};

pub(crate) struct Scaling {
    pub(crate) name: &'static str,
    /// 1 is two threads that do not hinder each other.
    pub(crate) scaling: f64,
}

/// The time of one thread alone, and the slower of two at once.
fn round<S: Stack + Send>(
    handle: &tokio::runtime::Handle,
    stack: &S,
    n: u32,
) -> (Duration, Duration) {
    let run = |stack: S, barrier: &Barrier| {
        let _in_runtime = handle.enter();
        let mut calls = by_hand(stack, typical(Method::GET));
        calls(n / 10);
        barrier.wait();
        calls(n)
    };
    let alone = thread::scope(|scope| {
        let barrier = Barrier::new(1);
        let stack = stack.clone();
        scope
            .spawn(move || run(stack, &barrier))
            .join()
            .expect("it runs")
    });
    let barrier = Barrier::new(2);
    let both = thread::scope(|scope| {
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let (stack, barrier) = (stack.clone(), &barrier);
                scope.spawn(move || run(stack, barrier))
            })
            .collect();
        let times = threads.into_iter().map(|t| t.join().expect("it runs"));
        times.max().unwrap_or_default()
    });
    (alone, both)
}

pub(crate) fn measure(runtime: &tokio::runtime::Runtime, rounds: u32, n: u32) -> Vec<Scaling> {
    let handle = runtime.handle();
    let inner = Answering(Answers::AtOnce);
    let full = stacks::full(inner.clone());
    by_hand(full.clone(), typical(Method::GET))(100);
    let (alike, tower) = (
        stacks::alike(inner.clone()),
        stacks::tower_three(inner.clone()),
    );
    let mut times: [Vec<f64>; 4] = Default::default();
    for _ in 0..rounds {
        let ratio = |(alone, both): (Duration, Duration)| alone.as_secs_f64() / both.as_secs_f64();
        times[0].push(ratio(round(handle, &inner, n)));
        times[1].push(ratio(round(handle, &tower, n)));
        times[2].push(ratio(round(handle, &alike, n)));
        times[3].push(ratio(round(handle, &full, n)));
    }
    let names = ["bare", "tower", "ours, alike", "ours, full"];
    names
        .into_iter()
        .zip(&mut times)
        .map(|(name, times)| Scaling {
            name,
            scaling: median(times),
        })
        .collect()
}

//! What the stacks cost, beside those of the peers, in one run.
//!
//! ```sh
//! cargo run --release --bin stacks -- [--quick] [--json FILE]
//! ```
//!
//! Every round runs every variant, in an order that rotates; ratios are medians of ratios within a round.
//! "Over bare" is the time of a stack less that of the bare service in the same round.

mod allocations;
mod calls;
mod frames;
mod in_flight;
mod loopback;
mod rounds;
mod stacks;
mod threads;
mod work;

use std::future::Future;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::time::{Sleep, sleep};

use self::calls::{ALIKE, BARE, FULL, RESILIENCE, TOWER};
use self::frames::Come;
use self::rounds::Measured;

fn main() {
    let args: Vec<_> = std::env::args().skip(1).collect();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let _near = near_timer(&runtime);
    if let [child, variant, work, n] = &args[..] {
        let n = n.parse().expect("a number");
        if child == "--child" {
            calls::child(&runtime, variant, work, n);
            return;
        }
        if child == "--allocations" {
            let counted = calls::counted(&runtime, variant, work, n);
            println!("{}", counted as f64 / f64::from(n));
            return;
        }
    }
    let quick = args.iter().any(|arg| arg == "--quick");
    let json = args
        .iter()
        .position(|arg| arg == "--json")
        .map(|at| &args[at + 1]);
    let mut ratios = Map::new();
    let mut tables = Map::new();

    measure_calls(&runtime, quick, &mut ratios, &mut tables);
    measure_frames(&runtime, quick, &mut ratios, &mut tables);
    count_allocations(&runtime, &mut ratios);
    measure_in_flight(&runtime, &mut ratios, &mut tables);
    measure_threads(&runtime, quick, &mut ratios, &mut tables);
    measure_loopback(&runtime, quick, &mut tables);

    println!("\nratios");
    for (name, value) in &ratios {
        println!("  {name:28} {value:.3}");
    }
    if let Some(file) = json {
        let all = json!({ "ratios": ratios, "tables": tables });
        std::fs::write(file, format!("{all:#}\n")).expect("a file that can be written");
    }
}

/// In a service there is nearly always a timer nearer than those of a call, so that setting one costs no
/// wake-up of the driver, which is a system call. Here is one.
fn near_timer(runtime: &tokio::runtime::Runtime) -> Pin<Box<Sleep>> {
    runtime.block_on(async {
        let mut near = Box::pin(sleep(Duration::from_millis(6)));
        std::future::poll_fn(|cx| {
            let _ = near.as_mut().poll(cx);
            Poll::Ready(())
        })
        .await;
        sleep(Duration::from_millis(2)).await;
        near
    })
}

/// A figure to three places.
fn figure(value: f64) -> Value {
    json!((value * 1000.0).round() / 1000.0)
}

fn print(
    title: &str,
    measured: &Measured,
    bare: &str,
    peer: &str,
    tables: &mut Map<String, Value>,
) {
    println!("\n{title} (bare {:.1} ns)", measured.nanos(bare));
    let mut table = Map::new();
    for name in measured.names() {
        let (over, ratio) = (measured.over(name, bare), measured.ratio(name, peer, bare));
        println!("  {name:24} {over:9.1} ns over bare   {ratio:7.3} of {peer}");
        table.insert((*name).to_owned(), figure(over));
    }
    tables.insert(title.to_owned(), Value::Object(table));
}

fn measure_calls(
    runtime: &tokio::runtime::Runtime,
    quick: bool,
    ratios: &mut Map<String, Value>,
    tables: &mut Map<String, Value>,
) {
    let (rounds, iterations) = if quick { (15, 5_000) } else { (60, 10_000) };
    let mut worst: f64 = 0.0;
    for work in calls::works() {
        let measured = calls::measure(runtime, &work, rounds, iterations);
        print(work.name, &measured, BARE, TOWER, tables);
        worst = worst.max(measured.ratio(FULL, RESILIENCE, BARE));
        if let Some(name) = work.ratio {
            ratios.insert(name.to_owned(), figure(measured.ratio(ALIKE, TOWER, BARE)));
            let full = measured.ratio(FULL, TOWER, BARE);
            ratios.insert(format!("full_{name}"), figure(full));
        }
    }
    ratios.insert("worst_vs_tower_resilience".to_owned(), figure(worst));
}

fn measure_frames(
    runtime: &tokio::runtime::Runtime,
    quick: bool,
    ratios: &mut Map<String, Value>,
    tables: &mut Map<String, Value>,
) {
    let (rounds, count) = if quick { (15, 20_000) } else { (60, 50_000) };
    for (come, title, name) in [
        (
            Come::Ready,
            "frame ready",
            Some("frame_ready_vs_tower_http"),
        ),
        (
            Come::PendingOnce,
            "frame pending once",
            Some("frame_pending_vs_tower_http"),
        ),
        (Come::ThroughTheDriver, "frame through the driver", None),
    ] {
        let measured = frames::measure(runtime, come, rounds, count);
        print(title, &measured, frames::BARE, frames::TIMEOUT, tables);
        if let Some(name) = name {
            let ratio = measured.ratio(frames::OURS, frames::TIMEOUT, frames::BARE);
            ratios.insert(name.to_owned(), figure(ratio));
        }
    }
}

/// Our own: over the bare service, without the copy of the request.
fn count_allocations(runtime: &tokio::runtime::Runtime, ratios: &mut Map<String, Value>) {
    const CALLS: u32 = 100;
    let _in_runtime = runtime.enter();
    let mut most: f64 = 0.0;
    for work in calls::works().iter().filter(|work| !work.driver) {
        let count = |name| {
            calls::child(runtime, name, work.name, CALLS);
            let counted = calls::counted(runtime, name, work.name, CALLS);
            counted as f64 / f64::from(CALLS)
        };
        let copy = if work.is_repeatable() {
            allocations::allocations(|| drop(work.request.clone())) as f64
        } else {
            0.0
        };
        for name in [ALIKE, FULL] {
            most = most.max(count(name) - count(BARE) - copy);
        }
    }
    ratios.insert("allocs_per_call".to_owned(), figure(most));
    let frames = 1000;
    let count = |waits| {
        let body =
            tower_deadline::ProgressBody::new(frames::Frames::new(frames, waits), stacks::ATTEMPT);
        allocations::allocations(|| {
            frames::by_hand(body, frames);
        })
    };
    // A body that waits has one, for its timer, however many frames it has.
    let a_frame = (count(false) + count(true).saturating_sub(1)) as f64 / f64::from(frames);
    ratios.insert("allocs_per_frame".to_owned(), figure(a_frame));
}

fn measure_in_flight(
    runtime: &tokio::runtime::Runtime,
    ratios: &mut Map<String, Value>,
    tables: &mut Map<String, Value>,
) {
    println!("\ncalls in flight");
    let all = in_flight::measure(runtime);
    let bytes = |name: &str| {
        all.iter()
            .find(|one| one.name == name)
            .map_or(f64::NAN, |one| one.bytes)
    };
    let mut table = Map::new();
    for one in &all {
        println!(
            "  {:24} {:7.0} bytes, {:6.0} ns to drop",
            one.name, one.bytes, one.drop
        );
        table.insert(one.name.to_owned(), figure(one.bytes));
    }
    tables.insert("bytes in flight".to_owned(), Value::Object(table));
    let ratio = bytes(FULL) / bytes(TOWER);
    ratios.insert("in_flight_bytes_vs_tower".to_owned(), figure(ratio));
}

fn measure_threads(
    runtime: &tokio::runtime::Runtime,
    quick: bool,
    ratios: &mut Map<String, Value>,
    tables: &mut Map<String, Value>,
) {
    let (rounds, n) = if quick { (7, 20_000) } else { (25, 50_000) };
    println!("\ntwo threads at once");
    let all = threads::measure(runtime, rounds, n);
    let of = |name: &str| {
        all.iter()
            .find(|one| one.name == name)
            .map_or(f64::NAN, |one| one.scaling)
    };
    let mut table = Map::new();
    for one in &all {
        println!(
            "  {:24} {:.2} of the speed of one alone",
            one.name, one.scaling
        );
        table.insert(one.name.to_owned(), figure(one.scaling));
    }
    tables.insert("two threads".to_owned(), Value::Object(table));
    ratios.insert(
        "scaling_two_threads".to_owned(),
        figure(of(FULL) / of(BARE)),
    );
}

fn measure_loopback(
    runtime: &tokio::runtime::Runtime,
    quick: bool,
    tables: &mut Map<String, Value>,
) {
    let (rounds, requests) = if quick { (6, 4_000) } else { (24, 16_000) };
    println!("\nHTTP/1 over loopback");
    let mut table = Vec::new();
    for one in loopback::measure(runtime, rounds, requests) {
        let [low, middle, high] = one.of_bare;
        println!(
            "  {:24} {:2} connections  {:7.0} requests/s, {middle:.3} of bare ({low:.3} to {high:.3}); \
             {:.2} µs of the client's time, {:+.2} over bare",
            one.name, one.connections, one.throughput, one.cpu, one.cpu_over
        );
        table.push(json!({
            "name": one.name,
            "connections": one.connections,
            "requests_per_second": figure(one.throughput),
            "throughput_of_bare": figure(middle),
            "from": figure(low),
            "to": figure(high),
            "client_cpu_over_bare_us": figure(one.cpu_over),
        }));
    }
    tables.insert("loopback".to_owned(), Value::Array(table));
}

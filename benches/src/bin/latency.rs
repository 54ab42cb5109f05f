//! What it costs to record a latency and to read the ceiling, beside a mutex around a t-digest and a
//! mutex around hdrhistogram.
//!
//! Each round runs every variant, in rotated order; medians of the rounds are printed, and ratios of
//! medians. `--json` prints the same as one JSON object. The absolute figures hold for the machine they
//! were taken on.

use std::hint::black_box;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use tdigest::TDigest;

// The estimator itself, which is private to the crate.
#[allow(dead_code, unused_imports)]
#[path = "../../../src/latency/mod.rs"]
mod latency;

use latency::{Estimate, Terms};

const ROUNDS: usize = 15;
const RECORDS: usize = 400_000;
const READS: usize = 20_000;

/// Something that latencies are recorded in and a p95 is read from.
trait Sketch: Sync {
    fn record(&self, nanos: u64, at: tokio::time::Instant);
    fn read(&self, at: tokio::time::Instant) -> u64;
}

impl Sketch for Estimate {
    fn record(&self, nanos: u64, at: tokio::time::Instant) {
        Self::record(self, Duration::from_nanos(nanos), self.generation(), at);
    }

    fn read(&self, at: tokio::time::Instant) -> u64 {
        self.ceiling(at).map_or(0, |c| c.as_micros() as u64)
    }
}

impl Sketch for Mutex<TDigest> {
    fn record(&self, nanos: u64, _: tokio::time::Instant) {
        self.lock().unwrap().push(nanos as f64);
    }

    fn read(&self, _: tokio::time::Instant) -> u64 {
        let mut digest = self.lock().unwrap();
        digest.flush();
        digest.estimate_quantile(0.95).unwrap_or(0.0) as u64
    }
}

impl Sketch for Mutex<Histogram<u64>> {
    fn record(&self, nanos: u64, _: tokio::time::Instant) {
        self.lock().unwrap().saturating_record(nanos);
    }

    fn read(&self, _: tokio::time::Instant) -> u64 {
        self.lock().unwrap().value_at_quantile(0.95)
    }
}

fn ours() -> Estimate {
    let terms = Terms {
        multiple: 3.0,
        quantile: 0.95,
        window: Duration::from_secs(300),
        minimum_samples: 20,
        floor: Duration::ZERO,
    };
    Estimate::new(terms, tokio::time::Instant::now())
}

fn sketches() -> [(&'static str, Box<dyn Sketch>); 3] {
    [
        ("tower-deadline", Box::new(ours())),
        (
            "tdigest under a mutex",
            Box::new(Mutex::new(TDigest::new_with_size(100))),
        ),
        (
            "hdrhistogram under a mutex",
            Box::new(Mutex::new(
                Histogram::new_with_bounds(1, 60_000_000_000, 2).unwrap(),
            )),
        ),
    ]
}

/// Latencies around 40 ms, the same for everybody.
fn latencies() -> Vec<u64> {
    let mut rng = fastrand::Rng::with_seed(1);
    (0..RECORDS)
        .map(|_| (-(1.0 - rng.f64()).ln() * 40e6) as u64 + 1)
        .collect()
}

/// Nanoseconds a record takes each of so many threads.
fn record(sketch: &dyn Sketch, latencies: &[u64], threads: usize) -> f64 {
    let start = tokio::time::Instant::now();
    let gate = &std::sync::Barrier::new(threads);
    let took: Vec<Duration> = std::thread::scope(|scope| {
        let handles: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(move || {
                    gate.wait();
                    let begun = Instant::now();
                    for (i, nanos) in latencies.iter().enumerate() {
                        // The clock is read by whoever times the attempt; here it is arithmetic.
                        sketch.record(*nanos, start + Duration::from_nanos(30 * i as u64));
                    }
                    begun.elapsed()
                })
            })
            .collect();
        handles.into_iter().map(|h| h.join().unwrap()).collect()
    });
    took.iter()
        .map(|t| t.as_nanos() as f64 / RECORDS as f64)
        .sum::<f64>()
        / threads as f64
}

fn read(sketch: &dyn Sketch) -> f64 {
    let at = tokio::time::Instant::now();
    let begun = Instant::now();
    for _ in 0..READS {
        black_box(sketch.read(black_box(at)));
    }
    begun.elapsed().as_nanos() as f64 / READS as f64
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_unstable_by(f64::total_cmp);
    of[of.len() / 2]
}

/// The slowest of a million records, and the 99.9th percentile, in nanoseconds; and of nothing.
fn tail(f: impl Fn(usize)) -> (u64, u64) {
    let mut times: Vec<u64> = (0..1_000_000)
        .map(|i| {
            let begun = Instant::now();
            f(i);
            begun.elapsed().as_nanos() as u64
        })
        .collect();
    times.sort_unstable();
    (times[999_000], times[999_999])
}

fn main() {
    let json = std::env::args().any(|a| a == "--json");
    let latencies = latencies();
    let names: Vec<_> = sketches().iter().map(|(name, _)| *name).collect();
    // [variant][what][round]
    let mut rounds = vec![[const { Vec::new() }; 3]; names.len()];
    for round in 0..ROUNDS {
        for turn in 0..names.len() {
            let variant = (round + turn) % names.len();
            let (_, one) = &sketches()[variant];
            rounds[variant][0].push(record(&**one, &latencies, 1));
            rounds[variant][2].push(read(&**one));
            let (_, two) = &sketches()[variant];
            rounds[variant][1].push(record(&**two, &latencies, 2));
        }
    }
    let table: Vec<[f64; 3]> = rounds.into_iter().map(|w| w.map(median)).collect();

    let estimate = ours();
    let start = tokio::time::Instant::now();
    let recorded = tail(|i| {
        let at = start + Duration::from_nanos(30 * i as u64);
        Sketch::record(&estimate, latencies[i % RECORDS], at);
    });
    let empty = tail(|i| {
        black_box(i);
    });
    let ratio = table[0][1] / table[1][1];

    if json {
        let variants: serde_json::Map<_, _> = names
            .iter()
            .zip(&table)
            .map(|(name, [one, two, read])| {
                let figures = serde_json::json!({
                    "record_1_thread_ns": one, "record_2_threads_ns": two, "read_ns": read,
                });
                ((*name).to_string(), figures)
            })
            .collect();
        let all = serde_json::json!({
            "variants": variants,
            "record_2_threads_vs_mutex_tdigest": ratio,
            "record_p999_ns": recorded.0, "record_slowest_of_a_million_ns": recorded.1,
            "empty_p999_ns": empty.0, "empty_slowest_of_a_million_ns": empty.1,
            "lost_of_a_million": estimate.lost(),
        });
        println!("{all:#}");
        return;
    }
    println!(
        "{:28} {:>12} {:>12} {:>10}",
        "ns", "record, 1 thr", "record, 2 thr", "read"
    );
    for (name, [one, two, read]) in names.iter().zip(&table) {
        println!("{name:28} {one:12.1} {two:12.1} {read:10.1}");
    }
    println!("\nrecording on two threads: {ratio:.2} of a mutex around tdigest");
    println!(
        "of a million records: p99.9 {} ns, slowest {} ns",
        recorded.0, recorded.1
    );
    println!(
        "of a million times nothing: p99.9 {} ns, slowest {} ns",
        empty.0, empty.1
    );
    println!("samples that there was no room for: {}", estimate.lost());
}

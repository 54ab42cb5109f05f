//! The estimate of one dependency, shared by whoever calls it.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::buffer::Buffer;
use super::letting_go;
use super::published::{Found, Published};
use super::ring::{Ring, WINDOW_IN_SLICES};
use super::terms::Terms;

/// The median is published from so many samples on, as the ceiling is.
const MEDIAN: f64 = 0.5;

/// Samples are merged when so much time has passed, however few they are: a second.
const MERGE_AFTER_NANOS: u64 = 1_000_000_000;

/// Samples are merged when they are a sixteenth of those that are there: a small estimate with each,
/// a large one in batches.
const BATCH_SHARE: u64 = 16;

/// Which life of an estimate an attempt was begun under. A suspension begins a new one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Generation(u32);

/// The recent latency of one dependency, and the ceiling that follows from it.
#[derive(Debug)]
pub(crate) struct Estimate {
    terms: Terms,
    /// Slices are counted from here.
    epoch: Instant,
    slice: Duration,

    ceiling: Published,
    median: Published,
    samples: AtomicU64,
    suspended: AtomicBool,
    generation: AtomicU32,

    buffer: Buffer,
    /// Merge when so many samples wait in the shard of whoever records.
    batch: AtomicU32,
    /// Merge when it is so late, in nanoseconds from the epoch.
    merge_at: AtomicU64,
    /// Attempts that ended in another way than as a sample or a cut, and are not in the ring yet.
    others: AtomicU32,
    /// Cuts without a success in time in between.
    in_a_row: AtomicU32,

    ring: Mutex<Ring>,
}

impl Estimate {
    pub(crate) fn new(terms: Terms, now: Instant) -> Self {
        Self {
            terms,
            epoch: now,
            slice: (terms.window / WINDOW_IN_SLICES).max(Duration::from_millis(1)),
            ceiling: Published::default(),
            median: Published::default(),
            samples: AtomicU64::new(0),
            suspended: AtomicBool::new(false),
            generation: AtomicU32::new(0),
            buffer: Buffer::default(),
            batch: AtomicU32::new(1),
            merge_at: AtomicU64::new(0),
            others: AtomicU32::new(0),
            in_a_row: AtomicU32::new(0),
            ring: Mutex::new(Ring::new(0)),
        }
    }

    /// The measured ceiling, before anything else clamps it. `None` while it is cold or suspended.
    pub(crate) fn ceiling(&self, now: Instant) -> Option<Duration> {
        self.read(&self.ceiling, now)
    }

    /// The least that the ceiling can be.
    #[inline]
    pub(crate) fn floor(&self) -> Duration {
        self.terms.floor
    }

    /// The recent median, warm as the ceiling is.
    pub(crate) fn median(&self, now: Instant) -> Option<Duration> {
        self.read(&self.median, now)
    }

    /// How many samples the window holds, as of the last merge.
    pub(crate) fn samples(&self) -> u64 {
        self.samples.load(Relaxed)
    }

    /// How many samples there was no room for.
    pub(crate) fn lost(&self) -> u64 {
        self.buffer.lost()
    }

    /// Whether the ceiling was let go and is not warm again.
    pub(crate) fn is_suspended(&self) -> bool {
        self.suspended.load(Relaxed)
    }

    #[inline]
    pub(crate) fn generation(&self) -> Generation {
        Generation(self.generation.load(Relaxed))
    }

    /// An attempt that was begun under `generation` was judged `Ok` after so long.
    pub(crate) fn record(&self, latency: Duration, generation: Generation, now: Instant) {
        self.end_row();
        // What began under a ceiling that was let go is the fast part of a distribution.
        if generation != self.generation() {
            return;
        }
        // What waits belongs to an earlier time than this one.
        if self.nanos(now) >= self.merge_at.load(Relaxed) {
            self.merge_unless_busy(now);
        }
        #[allow(clippy::cast_precision_loss)] // 24 bits are more than a clock's precision
        let waiting = self.buffer.put(nanos(latency) as f32);
        if waiting >= self.batch.load(Relaxed) as usize {
            self.merge_unless_busy(now);
        }
    }

    /// An attempt ended in another way: not judged `Ok`, or cut by another bound, or too late.
    pub(crate) fn record_other(&self) {
        // It says nothing of the ceiling: only a success in time ends a row of cuts.
        self.others.fetch_add(1, Relaxed);
    }

    /// An attempt that was begun under `generation` was cut by the measured ceiling. Whether the
    /// ceiling is let go for that.
    pub(crate) fn record_cut(&self, generation: Generation, now: Instant) -> bool {
        let mut ring = self.lock();
        // What was armed before a suspension does not count again.
        if generation != self.generation() {
            return false;
        }
        let in_a_row = self.in_a_row.fetch_add(1, Relaxed).saturating_add(1);
        self.merge(&mut ring, now);
        ring.add_cut();
        let counts = ring.counts();
        let due = letting_go::is_due(
            in_a_row,
            counts.cuts,
            counts.attempts(),
            self.terms.quantile,
        );
        if due {
            self.generation.fetch_add(1, Relaxed);
            self.suspended.store(true, Relaxed);
            self.in_a_row.store(0, Relaxed);
            ring.clear();
            self.publish(&ring, now);
        }
        due
    }

    fn end_row(&self) {
        // Read first, so that the memory is shared while nothing is cut.
        if self.in_a_row.load(Relaxed) != 0 {
            self.in_a_row.store(0, Relaxed);
        }
    }

    fn read(&self, published: &Published, now: Instant) -> Option<Duration> {
        match published.get(self.slice_number(now)) {
            Found::Current(value) => value,
            Found::Stale => {
                self.merge_unless_busy(now);
                match published.get(self.slice_number(now)) {
                    Found::Current(value) => value,
                    // Somebody else is at it. For one attempt there is no ceiling.
                    Found::Stale => None,
                }
            }
        }
    }

    fn nanos(&self, now: Instant) -> u64 {
        nanos(now.saturating_duration_since(self.epoch))
    }

    fn slice_number(&self, now: Instant) -> u64 {
        self.nanos(now).checked_div(nanos(self.slice)).unwrap_or(0)
    }

    /// Nobody waits for another's merge: what is in the buffer is merged by the next one.
    fn merge_unless_busy(&self, now: Instant) {
        let mut ring = match self.ring.try_lock() {
            Ok(ring) => ring,
            Err(std::sync::TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(std::sync::TryLockError::WouldBlock) => return,
        };
        self.merge(&mut ring, now);
    }

    fn lock(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn merge(&self, ring: &mut Ring, now: Instant) {
        let mut samples = Vec::with_capacity(self.batch.load(Relaxed) as usize);
        self.buffer.take(&mut samples);
        // They were recorded in the slice that the last merge was in, or within a second of it: a
        // record that finds the last merge longer ago merges before it adds its own.
        ring.add(samples);
        ring.add_others(u64::from(self.others.swap(0, Relaxed)));
        ring.advance(self.slice_number(now));
        self.publish(ring, now);
    }

    fn publish(&self, ring: &Ring, now: Instant) {
        let slice = self.slice_number(now);
        let count = ring.counts().samples;
        let warm = count >= u64::from(self.terms.minimum_samples);
        let found = warm
            .then(|| ring.quantiles([MEDIAN, self.terms.quantile]))
            .flatten();
        let [median, ceiling] = match found {
            None => [None, None],
            Some([median, quantile]) => [
                Duration::try_from_secs_f64(median / 1e9).ok(),
                Some(self.terms.ceiling(quantile)),
            ],
        };
        self.ceiling.set(slice, ceiling);
        self.median.set(slice, median);
        self.samples.store(count, Relaxed);
        if warm {
            self.suspended.store(false, Relaxed);
        }
        let most = u64::try_from(Buffer::BATCH).unwrap_or(u64::MAX);
        let batch = (count / BATCH_SHARE).clamp(1, most);
        self.batch
            .store(u32::try_from(batch).unwrap_or(u32::MAX), Relaxed);
        let next = self.nanos(now).saturating_add(MERGE_AFTER_NANOS);

        self.merge_at.store(next, Relaxed);
    }
}

/// In 64 bits, which are enough for five centuries; `Duration::as_nanos` has twice as many, and is slow.
fn nanos(duration: Duration) -> u64 {
    let whole = duration.as_secs().saturating_mul(1_000_000_000);
    whole.saturating_add(u64::from(duration.subsec_nanos()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERMS: Terms = Terms {
        multiple: 3.0,
        quantile: 0.95,
        window: Duration::from_secs(300),
        minimum_samples: 20,
        floor: Duration::from_millis(50),
    };

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    fn warm(estimate: &Estimate, latency: Duration, samples: u32, now: Instant) {
        for _ in 0..samples {
            estimate.record(latency, estimate.generation(), now);
        }
    }

    #[test]
    fn the_twentieth_sample_makes_it_warm() {
        let now = Instant::now();
        let estimate = Estimate::new(TERMS, now);
        assert_eq!(estimate.ceiling(now), None);
        warm(&estimate, ms(40), 19, now);
        assert_eq!(estimate.ceiling(now), None);
        assert_eq!(estimate.median(now), None);
        warm(&estimate, ms(40), 1, now);
        assert_eq!(estimate.ceiling(now), Some(ms(120)));
        assert_eq!(estimate.median(now), Some(ms(40)));
        assert_eq!(estimate.samples(), 20);
    }

    #[test]
    fn the_floor_holds_it_up() {
        let now = Instant::now();
        let estimate = Estimate::new(TERMS, now);
        warm(&estimate, Duration::from_micros(10), 100, now);
        assert_eq!(estimate.ceiling(now), Some(ms(50)));
    }

    #[test]
    fn a_window_without_calls_forgets_everything() {
        let start = Instant::now();
        let estimate = Estimate::new(TERMS, start);
        warm(&estimate, ms(40), 100, start);
        let nearly = start + ms(299_000);
        assert_eq!(estimate.ceiling(nearly), Some(ms(120)));
        let after = start + ms(300_000);
        assert_eq!(estimate.ceiling(after), None);
        assert_eq!(estimate.samples(), 0);
    }

    #[test]
    fn after_a_window_without_calls_it_is_warm_again_with_as_many_samples_as_at_first() {
        let start = Instant::now();
        let estimate = Estimate::new(TERMS, start);
        // So many that some wait to be merged.
        warm(&estimate, ms(1000), 10_007, start);
        let after = start + ms(300_000);
        warm(&estimate, ms(40), 19, after);
        assert_eq!(estimate.ceiling(after), None);
        assert_eq!(estimate.samples(), 19);
        warm(&estimate, ms(40), 1, after);
        assert_eq!(estimate.ceiling(after), Some(ms(120)));
    }

    #[test]
    fn old_samples_leave_while_new_ones_come() {
        let start = Instant::now();
        let estimate = Estimate::new(TERMS, start);
        warm(&estimate, ms(1000), 1000, start);
        for second in 1..=330_u32 {
            let now = start + second * ms(1000);
            warm(&estimate, ms(40), 10, now);
        }
        let now = start + ms(330_000);
        assert_eq!(estimate.ceiling(now), Some(ms(120)));
    }

    #[test]
    fn five_cuts_in_a_row_suspend_it_and_four_do_not() {
        let now = Instant::now();
        let estimate = Estimate::new(TERMS, now);
        warm(&estimate, ms(40), 1000, now);
        let generation = estimate.generation();
        for _ in 0..4 {
            assert!(!estimate.record_cut(generation, now));
        }
        warm(&estimate, ms(40), 1, now);
        for _ in 0..4 {
            assert!(!estimate.record_cut(generation, now));
        }
        assert!(estimate.ceiling(now).is_some());
        assert!(estimate.record_cut(generation, now));
        assert_eq!(estimate.ceiling(now), None);
        assert!(estimate.is_suspended());
        assert_eq!(estimate.samples(), 0);
    }

    #[test]
    fn what_was_armed_before_a_suspension_counts_neither_as_cut_nor_as_sample() {
        let now = Instant::now();
        let estimate = Estimate::new(TERMS, now);
        warm(&estimate, ms(40), 100, now);
        let before = estimate.generation();
        for _ in 0..5 {
            estimate.record_cut(before, now);
        }
        for _ in 0..100 {
            assert!(!estimate.record_cut(before, now));
            estimate.record(ms(40), before, now);
        }
        assert_eq!(estimate.ceiling(now), None);
        warm(&estimate, ms(400), 20, now);
        assert_eq!(estimate.ceiling(now), Some(ms(1200)));
        assert!(!estimate.is_suspended());
    }

    #[test]
    fn odd_latencies_are_recorded_and_read() {
        let now = Instant::now();
        for odd in [
            Duration::ZERO,
            Duration::from_nanos(u64::MAX),
            Duration::MAX,
        ] {
            let estimate = Estimate::new(TERMS, now);
            warm(&estimate, odd, 215, now);
            let ceiling = estimate.ceiling(now);
            assert!(ceiling.is_none_or(|c| c >= TERMS.floor));
        }
    }

    /// A dependency in steps of one call each: gives what each call took, or none when it hangs.
    /// Returns whether the ceiling was ever let go, and how many calls were cut.
    fn run(
        estimate: &Estimate,
        start: Instant,
        calls: u32,
        mut latency: impl FnMut() -> Option<Duration>,
    ) -> (u32, u32) {
        let (mut let_go, mut cuts) = (0, 0);
        for call in 0..calls {
            let now = start + call * ms(10);
            let ceiling = estimate.ceiling(now);
            let generation = estimate.generation();
            match (latency(), ceiling) {
                (Some(took), ceiling) if ceiling.is_none_or(|c| took <= c) => {
                    estimate.record(took, generation, now);
                }
                (_, Some(_)) => {
                    cuts += 1;
                    let_go += u32::from(estimate.record_cut(generation, now));
                }
                (_, None) => estimate.record_other(),
            }
        }
        (let_go, cuts)
    }

    #[test]
    fn a_step_to_ten_times_the_latency_costs_five_cuts() {
        let now = Instant::now();
        let estimate = Estimate::new(TERMS, now);
        assert_eq!(run(&estimate, now, 1000, || Some(ms(40))), (0, 0));
        let later = now + ms(10_000);
        assert_eq!(run(&estimate, later, 1000, || Some(ms(400))), (1, 5));
        assert_eq!(estimate.ceiling(later + ms(10_000)), Some(ms(1200)));
    }

    #[test]
    fn a_fifth_of_answers_four_times_slower_is_not_cut_for_ever() {
        for seed in 0..20 {
            let now = Instant::now();
            let mut rng = fastrand::Rng::with_seed(seed);
            let estimate = Estimate::new(TERMS, now);
            run(&estimate, now, 1000, || Some(ms(40)));
            let later = now + ms(10_000);
            let mut mixed = || Some(ms(if rng.f64() < 0.2 { 160 } else { 40 }));
            let (let_go, cuts) = run(&estimate, later, 3000, &mut mixed);
            // A few samples may be warm before the slow ones show among them.
            assert!((1..=3).contains(&let_go), "seed {seed}: {let_go}");
            assert!(cuts < 450, "seed {seed}: {cuts}");
            let (let_go, cuts) = run(&estimate, later + ms(30_000), 3000, mixed);
            assert_eq!((let_go, cuts), (0, 0), "seed {seed}");
        }
    }

    #[test]
    fn a_dependency_that_hangs_once_in_twenty_keeps_its_ceiling() {
        let kept = (0..100)
            .filter(|seed| {
                let now = Instant::now();
                let mut rng = fastrand::Rng::with_seed(*seed);
                let estimate = Estimate::new(TERMS, now);
                let (let_go, _) = run(&estimate, now, 1000, || {
                    (rng.f64() >= 0.05).then(|| ms(30 + rng.u64(0..20)))
                });
                let_go == 0
            })
            .count();
        assert!(kept >= 99, "{kept} of 100");
    }

    #[test]
    fn a_truncated_distribution_does_not_ratchet_the_ceiling_down() {
        let now = Instant::now();
        let mut rng = fastrand::Rng::with_seed(7);
        let tight = Terms {
            multiple: 1.2,
            floor: Duration::ZERO,
            ..TERMS
        };
        let estimate = Estimate::new(tight, now);
        // Exponential, with a mean of 40 ms: the median is 28 ms.
        let latency = || Some(Duration::from_secs_f64(-(1.0 - rng.f64()).ln() * 0.04));
        run(&estimate, now, 30_000, latency);
        let ceiling = estimate.ceiling(now + ms(300_000));
        assert!(ceiling.is_none_or(|c| c > ms(60)), "{ceiling:?}");
    }

    #[test]
    fn threads_lose_no_sample_that_there_was_room_for() {
        let now = Instant::now();
        let estimate = Estimate::new(TERMS, now);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for i in 0..20_000_u32 {
                        estimate.record(
                            Duration::from_micros(40_000 + u64::from(i % 1000)),
                            estimate.generation(),
                            now,
                        );
                        let _ = estimate.ceiling(now);
                    }
                });
            }
        });
        estimate.merge(&mut estimate.lock(), now);
        assert_eq!(estimate.samples() + estimate.lost(), 160_000);
        let ceiling = estimate.ceiling(now).unwrap();
        assert!(ceiling >= ms(120) && ceiling <= ms(124), "{ceiling:?}");
    }
}

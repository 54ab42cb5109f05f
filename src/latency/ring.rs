//! The samples of a window, in slices, so that old ones leave.

use std::collections::VecDeque;

use tdigest::TDigest;

/// The window is this many slices, the one under way included.
pub(super) const WINDOW_IN_SLICES: u32 = 10;
const SLICES: u64 = WINDOW_IN_SLICES as u64;

/// How many centroids a digest has. The p95 of a smooth distribution is then within 2 % of the exact
/// one.
const CENTROIDS: usize = 100;

/// What happened in one slice of time.
#[derive(Debug, Clone)]
struct Slice {
    number: u64,
    digest: TDigest,
    counts: Counts,
}

/// Attempts, by what became of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Judged `Ok`, in time: in the digest.
    pub(super) samples: u64,
    /// Ended in any other way.
    pub(super) others: u64,
    /// Cut by the measured ceiling.
    pub(super) cuts: u64,
}

impl Counts {
    fn add(&mut self, other: Self) {
        self.samples += other.samples;
        self.others += other.others;
        self.cuts += other.cuts;
    }

    pub(super) fn attempts(&self) -> u64 {
        self.samples + self.others + self.cuts
    }
}

/// A ring of slices, which are numbered by time.
#[derive(Debug)]
pub(super) struct Ring {
    current: Slice,
    /// The oldest first.
    older: VecDeque<Slice>,
    /// What is in `older`, merged when a slice begins rather than with each batch.
    older_digest: TDigest,
    older_counts: Counts,
}

impl Slice {
    fn new(number: u64) -> Self {
        Self {
            number,
            digest: TDigest::new_with_size(CENTROIDS),
            counts: Counts::default(),
        }
    }
}

impl Ring {
    pub(super) fn new(slice: u64) -> Self {
        Self {
            current: Slice::new(slice),
            older: VecDeque::new(),
            older_digest: TDigest::new_with_size(CENTROIDS),
            older_counts: Counts::default(),
        }
    }

    /// The slice `number` is under way: what is a window or more behind it leaves.
    pub(super) fn advance(&mut self, number: u64) {
        // A thread that read the clock before the one that was here last is not a step back.
        if number <= self.current.number {
            return;
        }
        let ended = std::mem::replace(&mut self.current, Slice::new(number));
        if ended.counts != Counts::default() {
            self.older.push_back(ended);
        }
        while self
            .older
            .front()
            .is_some_and(|oldest| number - oldest.number >= SLICES)
        {
            self.older.pop_front();
        }
        self.older_counts = Counts::default();
        for slice in &self.older {
            self.older_counts.add(slice.counts);
        }
        self.older_digest =
            TDigest::merge_digests(self.older.iter().map(|s| s.digest.clone()).collect());
    }

    /// Adds a batch of samples, in nanoseconds, to the slice under way.
    pub(super) fn add(&mut self, samples: Vec<f64>) {
        if samples.is_empty() {
            return;
        }
        self.current.counts.samples += samples.len() as u64;
        self.current.digest = self.current.digest.merge_unsorted(samples);
    }

    pub(super) fn add_others(&mut self, others: u64) {
        self.current.counts.others += others;
    }

    pub(super) fn add_cut(&mut self) {
        self.current.counts.cuts += 1;
    }

    pub(super) fn counts(&self) -> Counts {
        let mut counts = self.older_counts;
        counts.add(self.current.counts);
        counts
    }

    /// Quantiles of the samples in the window, in nanoseconds: finite, within the extremes of the
    /// samples, the larger for the larger `q`. `None` without samples.
    pub(super) fn quantiles<const N: usize>(&self, qs: [f64; N]) -> Option<[f64; N]> {
        let merged;
        let digest = if self.older_counts.samples == 0 {
            &self.current.digest
        } else {
            merged = TDigest::merge_digests(vec![
                self.older_digest.clone(),
                self.current.digest.clone(),
            ]);
            &merged
        };
        let (min, max) = (digest.min()?, digest.max()?);
        let mut found = [min; N];
        for (found, q) in found.iter_mut().zip(qs) {
            // The digest interpolates, which can step over an extreme by a last bit.
            let estimate = digest.estimate_quantile(q)?;
            *found = estimate.max(min).min(max);
        }
        Some(found)
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        *self = Self::new(self.current.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ring_of(samples: impl IntoIterator<Item = f64>) -> Ring {
        let mut ring = Ring::new(0);
        ring.add(samples.into_iter().collect());
        ring
    }

    fn p95(ring: &Ring) -> f64 {
        ring.quantiles([0.95]).unwrap()[0]
    }

    #[test]
    fn a_slice_leaves_after_a_window() {
        let mut ring = Ring::new(0);
        ring.add(vec![1.0; 10]);
        ring.add_others(2);
        for number in 1..SLICES {
            ring.advance(number);
            assert_eq!(ring.counts().attempts(), 12);
        }
        ring.add(vec![5.0]);
        ring.advance(SLICES);
        assert_eq!(ring.counts().attempts(), 1);
        assert_eq!(ring.quantiles([0.5]), Some([5.0]));
        ring.advance(5 * SLICES);
        assert_eq!(ring.counts(), Counts::default());
        assert_eq!(ring.quantiles([0.5]), None);
    }

    #[test]
    fn slice_numbers_do_not_step_back_and_may_leap() {
        let mut ring = Ring::new(5);
        ring.add(vec![1.0]);
        ring.advance(7);
        ring.add(vec![2.0]);
        assert_eq!(ring.counts().samples, 2);
        ring.advance(6); // late to the lock
        assert_eq!((ring.counts().samples, ring.current.number), (2, 7));
        ring.advance(u64::from(u32::MAX) * 3);
        assert_eq!(ring.counts(), Counts::default());
    }

    #[test]
    fn odd_collections_have_finite_quantiles_within_their_extremes() {
        let equal = 15.699_999_988_079_073;
        for samples in [
            vec![equal; 215],
            vec![equal],
            vec![0.0],
            vec![0.0; 1000],
            vec![f64::from(f32::MAX)],
            vec![1.8e19; 3],
            vec![1.0, f64::from(f32::MAX)],
        ] {
            let (min, max) = (samples[0], samples[samples.len() - 1]);
            let ring = ring_of(samples);
            let found = ring.quantiles([0.0, 0.5, 0.95, 0.99, 1.0]).unwrap();
            assert!(
                found
                    .iter()
                    .all(|f| f.is_finite() && (min..=max).contains(f))
            );
            assert!(found.windows(2).all(|w| w[0] <= w[1]), "{found:?}");
        }
        assert_eq!(ring_of([]).quantiles([0.5]), None);
    }

    #[test]
    fn a_thousand_slices_merge_to_what_one_would_be() {
        let mut ring = Ring::new(0);
        for number in 0..1000_u32 {
            ring.advance(u64::from(number));
            ring.add((0..100).map(|i| f64::from(i * 1000 + number)).collect());
            let found = ring.quantiles([0.5, 0.95]).unwrap();
            assert!(found[0] <= found[1] && found[1] <= 100_000.0);
        }
        assert_eq!(ring.counts().samples, 100 * SLICES);
        assert!((p95(&ring) / 95_000.0 - 1.0).abs() < 0.02, "{}", p95(&ring));
    }

    /// Deterministic numbers in (0, 1).
    fn uniform(seed: u64) -> impl Iterator<Item = f64> {
        let mut rng = fastrand::Rng::with_seed(seed);
        std::iter::repeat_with(move || rng.f64().clamp(1e-12, 1.0 - 1e-12))
    }

    fn exact(samples: &[f64], q: f64) -> f64 {
        let mut sorted = samples.to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        #[allow(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss
        )]
        sorted[((sorted.len() as f64 * q) as usize).min(sorted.len() - 1)]
    }

    /// The samples go in as they would: in batches, over some slices.
    fn batched(samples: &[f64]) -> Ring {
        let mut ring = Ring::new(0);
        for (number, slice) in (0..).zip(samples.chunks(samples.len().div_ceil(10))) {
            ring.advance(number);
            for batch in slice.chunks(1536) {
                ring.add(batch.to_vec());
            }
        }
        ring
    }

    #[test]
    fn the_p95_of_a_smooth_distribution_is_within_two_per_cent() {
        for count in [10_000, 100_000] {
            let exponential: Vec<_> = uniform(1).take(count).map(|u| -u.ln() * 40e6).collect();
            // Box and Muller's way to a normal distribution.
            let lognormal: Vec<_> = uniform(2)
                .zip(uniform(3))
                .take(count)
                .map(|(u, v)| {
                    let normal = (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos();
                    40e6 * (0.5 * normal).exp()
                })
                .collect();
            for samples in [exponential, lognormal] {
                let (found, exact) = (p95(&batched(&samples)), exact(&samples, 0.95));
                assert!(
                    (found / exact - 1.0).abs() < 0.02,
                    "{count}: {found} {exact}"
                );
            }
        }
    }

    #[test]
    fn the_p95_between_two_modes_is_not_below_the_lower_ones_edge() {
        for count in [10_000, 100_000] {
            for share_of_slow in [0.049, 0.05, 0.051, 0.2] {
                let samples: Vec<_> = uniform(4)
                    .zip(uniform(5))
                    .take(count)
                    .map(|(u, v)| {
                        if u < share_of_slow {
                            400e6 + v * 1e6
                        } else {
                            40e6 + v * 1e6
                        }
                    })
                    .collect();
                let found = p95(&batched(&samples));
                let edge = exact(&samples, (0.95_f64).min(1.0 - share_of_slow) - 0.002);
                assert!(
                    found >= edge && found <= 401e6,
                    "{count} {share_of_slow}: {found}"
                );
                if share_of_slow >= 0.2 {
                    let exact = exact(&samples, 0.95);
                    assert!((found / exact - 1.0).abs() < 0.02);
                }
            }
        }
    }

    proptest! {
        #[test]
        fn quantiles_are_finite_within_the_extremes_and_monotone(
            batches in proptest::collection::vec(
                proptest::collection::vec(1.0..1e18_f64, 1..50), 1..20
            )
        ) {
            let mut ring = Ring::new(0);
            let (mut min, mut max) = (f64::INFINITY, 0.0_f64);
            for (number, batch) in (0_u64..).zip(batches) {
                ring.advance(number / 3);
                for value in &batch {
                    min = min.min(*value);
                    max = max.max(*value);
                }
                ring.add(batch);
            }
            let qs: [f64; 50] = std::array::from_fn(|i| f64::from(u8::try_from(i).unwrap()) / 49.0);
            let found = ring.quantiles(qs).unwrap();
            prop_assert!(found.iter().all(|f| f.is_finite() && *f >= min && *f <= max));
            prop_assert!(found.windows(2).all(|w| w[0] <= w[1]));
        }
    }
}

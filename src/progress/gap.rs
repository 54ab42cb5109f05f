//! When a body has stalled.

use std::time::Duration;

use tokio::time::Instant;

/// Counts how long reads have been outstanding since the last progress.
///
/// A read is outstanding from its first pending poll to its ready one. Time between reads does not
/// count, so a reader that pauses is never blamed. What was once pending stays outstanding until it is
/// ready, even while nobody polls: found pending at or after the bound, the peer has had all that time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Gap {
    bound: Duration,
    /// What reads before the outstanding one have waited since the last progress.
    spent: Duration,
    outstanding_since: Option<Instant>,
}

impl Gap {
    pub(super) fn new(bound: Duration) -> Self {
        Self {
            bound,
            spent: Duration::ZERO,
            outstanding_since: None,
        }
    }

    pub(super) fn bound(&self) -> Duration {
        self.bound
    }

    /// A read is pending at `now`. Gives the instant at which it is a stall, never earlier than one
    /// it gave before; `None` is never.
    pub(super) fn pending(&mut self, now: Instant) -> Option<Instant> {
        let since = *self.outstanding_since.get_or_insert(now);
        since.checked_add(self.bound.saturating_sub(self.spent))
    }

    /// Whether a read is outstanding, so that the clock has to be read when it is ready.
    pub(super) fn is_outstanding(&self) -> bool {
        self.outstanding_since.is_some()
    }

    /// A read brought progress.
    pub(super) fn progress(&mut self) {
        self.outstanding_since = None;
        self.spent = Duration::ZERO;
    }

    /// A read ended at `now` and brought none.
    pub(super) fn no_progress(&mut self, now: Instant) {
        if let Some(since) = self.outstanding_since.take() {
            let waited = now.saturating_duration_since(since);
            self.spent = self.spent.saturating_add(waited);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BOUND: Duration = Duration::from_millis(100);

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn a_read_that_stays_pending_must_stall_at_the_bound() {
        let t0 = Instant::now();
        let mut gap = Gap::new(BOUND);
        assert_eq!(gap.pending(t0), Some(t0 + BOUND));
        assert_eq!(gap.pending(t0 + ms(99)), Some(t0 + BOUND));
    }

    #[test]
    fn time_between_reads_must_not_count() {
        let t0 = Instant::now();
        let mut gap = Gap::new(BOUND);
        gap.pending(t0);
        gap.progress();
        let much_later = t0 + ms(10_000);
        assert_eq!(gap.pending(much_later), Some(much_later + BOUND));
    }

    #[test]
    fn reads_without_progress_must_add_up() {
        let t0 = Instant::now();
        let mut gap = Gap::new(BOUND);
        gap.pending(t0);
        gap.no_progress(t0 + ms(60));
        // A pause of the reader in between is nobody's.
        let t1 = t0 + ms(5000);
        assert_eq!(gap.pending(t1), Some(t1 + ms(40)));
        gap.no_progress(t1 + ms(30));
        let t2 = t1 + ms(30);
        assert_eq!(gap.pending(t2), Some(t2 + ms(10)));
        gap.progress();
        assert_eq!(gap.pending(t2), Some(t2 + BOUND));
    }

    #[test]
    fn a_read_that_was_ready_at_once_must_not_count() {
        let t0 = Instant::now();
        let mut gap = Gap::new(BOUND);
        assert!(!gap.is_outstanding());
        gap.no_progress(t0 + ms(1000));
        assert_eq!(gap.pending(t0), Some(t0 + BOUND));
    }

    #[test]
    fn a_bound_that_the_clock_cannot_hold_must_never_stall() {
        let mut gap = Gap::new(Duration::MAX);
        assert_eq!(gap.pending(Instant::now()), None);
    }

    proptest! {
        /// The timer of a body is not moved earlier when a frame arrives, so this has to hold.
        #[test]
        fn the_instant_of_a_stall_never_moves_back(
            steps in proptest::collection::vec((0..50_u64, 0..50_u64, any::<bool>()), 1..40)
        ) {
            let mut now = Instant::now();
            let mut gap = Gap::new(BOUND);
            let mut last = now;
            for (wait, pause, progress) in steps {
                let at = gap.pending(now).unwrap();
                prop_assert!(at >= last);
                last = at;
                now += ms(wait);
                if now >= at {
                    break;
                }
                if progress {
                    gap.progress();
                } else {
                    gap.no_progress(now);
                }
                now += ms(pause);
            }
        }
    }
}

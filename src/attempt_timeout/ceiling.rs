//! How long an attempt may take.

use std::time::Duration;

use tokio::time::Instant;

use crate::call::Bound;

/// The smallest of the bounds on an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Effective {
    /// When the attempt ends at the latest.
    pub(super) at: Instant,
    /// The same, from the attempt's `call`.
    pub(super) ceiling: Duration,
    pub(super) bound: Bound,
}

/// `min(attempt timeout, measured ceiling, time left on the deadline)`, for an attempt that began at
/// `started`.
///
/// On a tie it is the deadline: nothing is left to retry with (rule 8). A duration that the clock
/// cannot hold is no bound.
pub(super) fn effective(
    started: Instant,
    timeout: Option<Duration>,
    measured: Option<Duration>,
    deadline: Option<Instant>,
) -> Option<Effective> {
    let mut smallest = deadline.map(|at| Effective {
        at,
        ceiling: at.saturating_duration_since(started),
        bound: Bound::Deadline,
    });
    // Compared by how long, since instants take longer to make.
    let mut lower_to = |ceiling: Option<Duration>, bound| {
        let Some(ceiling) = ceiling else { return };
        if smallest.is_some_and(|smallest| smallest.ceiling <= ceiling) {
            return;
        }
        if let Some(at) = started.checked_add(ceiling) {
            smallest = Some(Effective { at, ceiling, bound });
        }
    };
    lower_to(timeout, Bound::AttemptTimeout);
    lower_to(measured, Bound::Measured);
    smallest
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn the_smaller_bound_is_the_ceiling() {
        let now = Instant::now();
        let found = |timeout: Option<u64>, left: Option<u64>| {
            effective(now, timeout.map(ms), None, left.map(|l| now + ms(l)))
                .map(|e| (e.ceiling, e.bound))
        };
        assert_eq!(found(None, None), None);
        assert_eq!(found(Some(10), None), Some((ms(10), Bound::AttemptTimeout)));
        assert_eq!(found(None, Some(10)), Some((ms(10), Bound::Deadline)));
        assert_eq!(
            found(Some(9), Some(10)),
            Some((ms(9), Bound::AttemptTimeout))
        );
        assert_eq!(found(Some(11), Some(10)), Some((ms(10), Bound::Deadline)));
    }

    #[test]
    fn the_measured_ceiling_only_lowers() {
        let now = Instant::now();
        let found = |measured| {
            effective(now, Some(ms(10)), Some(ms(measured)), None).map(|e| (e.ceiling, e.bound))
        };
        assert_eq!(found(9), Some((ms(9), Bound::Measured)));
        assert_eq!(found(10), Some((ms(10), Bound::AttemptTimeout)));
        assert_eq!(found(11), Some((ms(10), Bound::AttemptTimeout)));
        let alone = effective(now, None, Some(ms(9)), None).map(|e| e.bound);
        assert_eq!(alone, Some(Bound::Measured));
    }

    #[test]
    fn on_a_tie_it_is_the_deadline() {
        let now = Instant::now();
        let tie = effective(now, Some(ms(10)), Some(ms(10)), Some(now + ms(10))).unwrap();
        assert_eq!(tie.bound, Bound::Deadline);
    }

    #[test]
    fn what_the_clock_cannot_hold_is_no_bound() {
        let max = Some(Duration::MAX);
        assert_eq!(effective(Instant::now(), max, max, None), None);
    }

    proptest! {
        #[test]
        fn it_is_never_above_any(
            timeout in any::<u64>(),
            measured in any::<u64>(),
            left in 0..u64::from(u32::MAX),
        ) {
            let now = Instant::now();
            let [timeout, measured, left] = [timeout, measured, left].map(Duration::from_nanos);
            let found = effective(now, Some(timeout), Some(measured), Some(now + left)).unwrap();
            prop_assert_eq!(found.ceiling, timeout.min(measured).min(left));
            prop_assert_eq!(found.at, now + found.ceiling);
        }
    }
}

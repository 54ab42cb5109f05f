//! When a measured ceiling does more harm than good.

/// This many attempts in a row, cut by the measured ceiling and by nothing else, are enough.
const IN_A_ROW: u32 = 5;

/// With fewer attempts than this, the share of those that were cut says nothing.
const FEWEST: u64 = 50;

/// Whether to let go (rule 17): after five cuts in a row, or when the cuts among `attempts` exceed
/// `2(1−q)n + 3√(n(1−q))`.
///
/// A ceiling at or above the quantile *q* cuts at most `(1−q)n` of *n* attempts of the distribution
/// that it was measured from. Twice that, and three standard deviations of a Poisson count of that
/// mean, is more than chance.
pub(super) fn is_due(in_a_row: u32, cuts: u64, attempts: u64, quantile: f64) -> bool {
    if in_a_row >= IN_A_ROW {
        return true;
    }
    if attempts < FEWEST {
        return false;
    }
    // Counts of calls in a few minutes: far below what a float holds exactly.
    #[allow(clippy::cast_precision_loss)]
    let (cuts, attempts) = (cuts as f64, attempts as f64);
    let expected = attempts * (1.0 - quantile);
    cuts > 2.0 * expected + 3.0 * expected.sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_in_a_row_are_enough_and_four_are_not() {
        assert!(!is_due(4, 4, 4, 0.95));
        assert!(is_due(5, 5, 5, 0.95));
        assert!(is_due(5, 5, 100_000, 0.95));
    }

    #[test]
    fn a_share_counts_from_fifty_attempts() {
        assert!(!is_due(0, 40, 49, 0.95));
        assert!(is_due(0, 40, 50, 0.95));
    }

    #[test]
    fn the_share_is_twice_the_expected_and_three_deviations() {
        // q = 0.95, n = 400: 2 × 20 + 3 × √20 = 53.4
        assert!(!is_due(0, 53, 400, 0.95));
        assert!(is_due(0, 54, 400, 0.95));
        // q = 0.99, n = 10,000: 2 × 100 + 3 × 10 = 230
        assert!(!is_due(0, 229, 10_000, 0.99));
        assert!(is_due(0, 231, 10_000, 0.99));
    }
}

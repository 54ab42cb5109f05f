//! The latest end of a call, where attempts that fail sooner can make it later.

use std::time::Duration;

use super::walk::{EXACTLY, Range, Terms};
use crate::retry::slept;

/// How many separate stretches of time are kept; more are taken for one, which is a bound that is a
/// little wide.
const MOST: usize = 64;

/// When a call has ended at the latest, whose attempts, each as long as it may be, are over at `greedy`.
///
/// An attempt fails at any time up to its timeout, and is followed by any of the waits that there are.
/// So each attempt begins within some stretches of time, which follow from those of the one before; and
/// it ends a timeout later, or at the deadline.
pub(super) fn latest(terms: &Terms, greedy: Duration) -> Duration {
    let (Some(deadline), Some(timeout)) = (terms.deadline, terms.timeout) else {
        return greedy;
    };
    let mut latest = greedy;
    let mut starts: Vec<Range> = vec![(Duration::ZERO, Duration::ZERO)];
    for next in 2..=terms.attempts.min(EXACTLY) {
        let mut following = Vec::new();
        for (from, to) in starts {
            for (least, most) in terms.waits(next).ranges() {
                let from = from.saturating_add(slept(least));
                let to = to.saturating_add(timeout).saturating_add(most);
                if from >= deadline {
                    continue; // it is not begun
                }
                if to.saturating_add(timeout) >= deadline {
                    return deadline; // it begins early enough, and late enough
                }
                following.push((from, to));
            }
        }
        starts = joined(following);
        match starts.last() {
            Some((_, to)) => latest = latest.max(to.saturating_add(timeout)),
            None => return latest,
        }
    }
    if terms.attempts > EXACTLY {
        // Not followed to its end.
        return deadline;
    }
    latest
}

/// In order, with those that overlap taken together.
fn joined(mut stretches: Vec<Range>) -> Vec<Range> {
    stretches.sort_unstable();
    let mut joined: Vec<Range> = Vec::with_capacity(stretches.len());
    for (from, to) in stretches {
        let full = joined.len() >= MOST;
        match joined.last_mut() {
            Some((_, end)) if *end >= from || full => *end = to.max(*end),
            _ => joined.push((from, to)),
        }
    }
    joined
}

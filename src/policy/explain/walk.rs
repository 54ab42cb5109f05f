//! The worst case, attempt by attempt.

use std::collections::VecDeque;
use std::time::Duration;

use super::reach::latest;
use crate::call::Bound;
use crate::retry::{Backoff, slept};

/// The worst case of a call, one attempt after the other, each of which takes as long as it may.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Walk {
    /// What happens, in order: an attempt, a wait, an attempt, and so on. Where there are many, those
    /// in the middle are one [`Step::Elided`].
    pub steps: Vec<Step>,
    /// What ends it.
    pub end: End,
    /// When the call has ended at the latest, from its `call`, however soon its attempts fail; `None` is
    /// never.
    pub at: Option<Duration>,
}

/// One row of a [`Walk`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Step {
    /// An attempt.
    Attempt(AttemptStep),
    /// The wait before the next.
    Backoff(BackoffStep),
    /// So many attempts, and the waits before them, that are not shown.
    Elided {
        /// How many.
        attempts: u32,
    },
}

/// An attempt that takes as long as it may. Durations are from the `call` on the outermost layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct AttemptStep {
    /// Which attempt; 1 is the first.
    pub number: u32,
    /// When it begins at the latest.
    pub start: Duration,
    /// When it is cut; `None` is never.
    pub end: Option<Duration>,
    /// What is left of the deadline when it begins; `None` without a deadline.
    pub left: Option<Duration>,
    /// The smaller of the bounds, which cuts it: the attempt timeout or the deadline.
    pub bound: Option<Bound>,
}

impl Walk {
    /// When the last attempt of those that the walk shows has ended.
    pub(super) fn shown(&self) -> Option<Duration> {
        match (self.end, self.steps.last()) {
            (End::NoRoom { ends, .. }, _) => Some(ends),
            (_, Some(Step::Attempt(last))) => last.end,
            _ => None,
        }
    }
}

impl AttemptStep {
    /// How long the attempt may take.
    #[must_use]
    pub fn ceiling(&self) -> Option<Duration> {
        Some(self.end?.saturating_sub(self.start))
    }
}

/// The wait before an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackoffStep {
    /// The attempt that comes after it.
    pub before: u32,
    /// The shortest that jitter can draw.
    pub least: Duration,
    /// The longest, which the walk takes.
    pub most: Duration,
}

/// What ends a [`Walk`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum End {
    /// The deadline, during an attempt.
    Deadline {
        /// During which.
        attempt: u32,
        /// How many more were permitted, and do not begin.
        never_started: u32,
    },
    /// The last permitted attempt.
    Attempts,
    /// No wait fits into the time left. The call ends with the attempt before it, if all attempts take
    /// as long as they may; where one that fails sooner leaves room for another, that is not the latest
    /// end there is.
    NoRoom {
        /// The attempt that is not followed by another.
        after: u32,
        /// When that one ends.
        ends: Duration,
        /// The shortest wait that there could be after it.
        wait: Duration,
        /// What was left of the deadline.
        left: Duration,
    },
    /// Nothing: an attempt that hangs hangs the call.
    Never,
}

/// What is walked.
#[derive(Debug, Clone, Copy)]
pub(super) struct Terms {
    pub(super) deadline: Option<Duration>,
    pub(super) timeout: Option<Duration>,
    pub(super) attempts: u32,
    pub(super) backoff: Backoff,
    /// The base of the backoff is measured, as far as the backoff says so.
    pub(super) measures: bool,
    /// Attempts may also end as throttled, just before they would be cut.
    pub(super) throttled: bool,
}

/// How many attempts are walked one by one before the rest is reckoned at a stroke.
pub(super) const EXACTLY: u32 = 10_000;

/// The waits that there can be before an attempt, as ranges.
#[derive(Debug, Clone, Copy)]
pub(super) struct Waits {
    ordinary: Range,
    throttled: Option<Range>,
}

/// From the shortest to the longest.
pub(super) type Range = (Duration, Duration);

impl Waits {
    pub(super) fn ranges(self) -> impl Iterator<Item = Range> {
        [Some(self.ordinary), self.throttled].into_iter().flatten()
    }

    fn least(self) -> Duration {
        self.ranges()
            .map(|(least, _)| least)
            .min()
            .unwrap_or_default()
    }

    fn most(self) -> Duration {
        self.ranges()
            .map(|(_, most)| most)
            .max()
            .unwrap_or_default()
    }

    /// The range with the longest wait that fits into what is left, cut to that; where it fits only just
    /// it is all of it. `None` where none fits.
    fn longest_within(self, left: Option<Duration>) -> Option<Range> {
        let fitting = self.ranges().filter_map(|(least, most)| match left {
            Some(left) if slept(least) >= left => None,
            Some(left) if slept(most) >= left => Some((least, left)),
            _ => Some((least, most)),
        });
        fitting.max_by_key(|(_, most)| *most)
    }
}

impl Terms {
    fn attempt(&self, number: u32, start: Duration) -> AttemptStep {
        let left = self.deadline.map(|d| d.saturating_sub(start));
        // On a tie it is the deadline (rule 8).
        let (ceiling, bound) = match (self.timeout, left) {
            (Some(timeout), Some(left)) if timeout < left => {
                (Some(timeout), Some(Bound::AttemptTimeout))
            }
            (_, Some(left)) => (Some(left), Some(Bound::Deadline)),
            (Some(timeout), None) => (Some(timeout), Some(Bound::AttemptTimeout)),
            (None, None) => (None, None),
        };
        AttemptStep {
            number,
            start,
            end: ceiling.map(|ceiling| start.saturating_add(ceiling)),
            left,
            bound,
        }
    }

    /// The waits that there can be before attempt `number`.
    pub(super) fn waits(&self, number: u32) -> Waits {
        let range = |throttled| self.backoff.range(number, throttled, self.measures);
        let asked = || {
            let (least, _) = range(true);
            // A peer can ask for anything up to the cap.
            let asked = self.backoff.longest();
            (least, asked.saturating_add(self.backoff.spread()))
        };
        Waits {
            ordinary: range(false),
            throttled: self.throttled.then(asked),
        }
    }

    pub(super) fn walk(&self) -> Walk {
        let attempts = self.attempts.max(1);
        let mut rows = Rows::default();
        let mut start = Duration::ZERO;
        let mut number = 1;
        let mut wait = None;
        // Whether each wait was as long as it can be.
        let mut longest = true;
        loop {
            let attempt = self.attempt(number, start);
            rows.push(wait.take(), attempt);
            let Some(end) = attempt.end else {
                return rows.into_walk(End::Never, None);
            };
            if attempt.bound == Some(Bound::Deadline) {
                let end = End::Deadline {
                    attempt: number,
                    never_started: attempts - number,
                };
                return rows.into_walk(end, attempt.end);
            }
            if number == attempts {
                let at = if longest { end } else { latest(self, end) };
                return rows.into_walk(End::Attempts, Some(at));
            }
            let waits = self.waits(number + 1);
            let left = self.deadline.map(|d| d.saturating_sub(end));
            let Some((least, most)) = waits.longest_within(left) else {
                let stop = End::NoRoom {
                    after: number,
                    ends: end,
                    wait: waits.least(),
                    left: left.unwrap_or_default(),
                };
                return rows.into_walk(stop, Some(latest(self, end)));
            };
            longest &= Some(most) == left || most == waits.most();
            wait = Some(BackoffStep {
                before: number + 1,
                least,
                most,
            });
            start = end.saturating_add(most);
            number += 1;
            if number > EXACTLY {
                let (skipped, each) = self.skip(number, attempts, start);
                number += skipped;
                start = start.saturating_add(each.saturating_mul(skipped));
                rows.elided = rows.elided.saturating_add(skipped);
            }
        }
    }

    /// How many attempts after `number` can be taken at a stroke, and how long each of them, with the
    /// wait after it, takes at most. They begin and end before the deadline.
    ///
    /// It is a thousandth of those before, so that the waits among them are all but the same, and a few
    /// thousand strokes are enough for any number.
    fn skip(&self, number: u32, attempts: u32, start: Duration) -> (u32, Duration) {
        let block = (number / 1000).min(attempts - number);
        let left = self.deadline.map(|deadline| deadline.saturating_sub(start));
        // What fits only just, or not at all, is for the walk itself.
        let longest = |number| self.waits(number).longest_within(left);
        let (Some((_, now)), Some((_, later))) = (longest(number), longest(number + block)) else {
            return (0, Duration::ZERO);
        };
        let each = self
            .timeout
            .unwrap_or_default()
            .saturating_add(now.max(later));
        let fit = self.deadline.and_then(|deadline| {
            let left = deadline.saturating_sub(start).as_nanos();
            left.checked_div(each.as_nanos())
        });
        let skipped = fit.map_or(block, |fit| {
            // One less, so that the walk itself comes to what happens at the deadline.
            let fit = u32::try_from(fit).unwrap_or(u32::MAX).saturating_sub(1);
            block.min(fit)
        });
        (skipped, each)
    }
}

/// The rows of a walk, without those in the middle.
#[derive(Default)]
struct Rows {
    first: Vec<Row>,
    elided: u32,
    last: VecDeque<Row>,
}

/// An attempt, and the wait before it.
type Row = (Option<BackoffStep>, AttemptStep);

impl Rows {
    const FIRST: usize = 4;
    const LAST: usize = 2;

    fn push(&mut self, wait: Option<BackoffStep>, attempt: AttemptStep) {
        if self.first.len() < Self::FIRST {
            self.first.push((wait, attempt));
            return;
        }
        if self.last.len() == Self::LAST {
            self.last.pop_front();
            self.elided = self.elided.saturating_add(1);
        }
        self.last.push_back((wait, attempt));
    }

    fn into_walk(self, end: End, at: Option<Duration>) -> Walk {
        let flat = |(wait, attempt): Row| {
            let wait = wait.map(Step::Backoff);
            wait.into_iter().chain([Step::Attempt(attempt)])
        };
        let mut steps: Vec<_> = self.first.into_iter().flat_map(flat).collect();
        if self.elided > 0 {
            steps.push(Step::Elided {
                attempts: self.elided,
            });
        }
        steps.extend(self.last.into_iter().flat_map(flat));
        Walk { steps, end, at }
    }
}

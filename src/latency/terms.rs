//! The numbers of a measured ceiling.

use std::time::Duration;

/// How a ceiling is computed, and from what.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Terms {
    /// How many times the quantile an attempt may take.
    pub(crate) multiple: f64,
    pub(crate) quantile: f64,
    pub(crate) window: Duration,
    pub(crate) minimum_samples: u32,
    pub(crate) floor: Duration,
}

impl Terms {
    /// The ceiling for a quantile of so many nanoseconds: `max(floor, multiple × quantile)`.
    pub(super) fn ceiling(&self, quantile_nanos: f64) -> Duration {
        Duration::try_from_secs_f64(quantile_nanos * self.multiple / 1e9)
            .unwrap_or(Duration::MAX)
            .max(self.floor)
    }
}

//! Durations and points in time, as text.

use std::fmt;
use std::time::Duration;

use super::explanation::Explanation;
use crate::policy::const_text::ConstText;

/// A duration as people write it.
pub(super) struct As(pub(super) Duration);

impl fmt::Display for As {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = ConstText::new();
        text.duration(self.0);
        f.pad(text.as_str())
    }
}

/// A point in a walk, or what is left there: to the hundredth of a second, or finer where the whole walk
/// is shorter than a second.
#[derive(Clone, Copy)]
pub(super) struct At(pub(super) Duration, pub(super) Scale);

#[derive(Clone, Copy)]
pub(super) enum Scale {
    Seconds,
    Millis,
    Micros,
}

impl Scale {
    pub(super) fn of(explanation: &Explanation) -> Self {
        let ends = explanation.transient.at.or(explanation.attempt_timeout);
        match ends.unwrap_or(Duration::MAX).as_micros() {
            0..1_000 => Self::Micros,
            1_000..1_000_000 => Self::Millis,
            _ => Self::Seconds,
        }
    }
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs_f64();
        f.pad(&match self.1 {
            Scale::Seconds => format!("{seconds:.2}s"),
            Scale::Millis => format!("{:.1}ms", seconds * 1e3),
            Scale::Micros => format!("{:.1}µs", seconds * 1e6),
        })
    }
}

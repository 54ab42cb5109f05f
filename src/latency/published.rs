//! A duration that one atomic load reads, and that is gone when its time is over.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A duration in microseconds, beside the number of the slice of time for which it holds.
///
/// Nothing is published as a duration of zero, which no estimate is: they are rounded up.
#[derive(Debug, Default)]
pub(super) struct Published(AtomicU64);

/// What a load found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// It holds; `None` is that there is no estimate.
    Current(Option<Duration>),
    /// It held for an earlier slice of time.
    Stale,
}

impl Published {
    pub(super) fn set(&self, slice: u64, value: Option<Duration>) {
        let micros = value.map_or(0, |v| {
            let micros = v.as_nanos().div_ceil(1000).clamp(1, u128::from(u32::MAX));
            u32::try_from(micros).unwrap_or(u32::MAX)
        });
        // The lower half of the number tells neighbours apart.
        let packed = (slice << 32) | u64::from(micros);
        self.0.store(packed, Ordering::Relaxed);
    }

    pub(super) fn get(&self, slice: u64) -> Found {
        let packed = self.0.load(Ordering::Relaxed);
        // Each is one half of 64 bits.
        #[allow(clippy::cast_possible_truncation)]
        let (held_for, micros) = ((packed >> 32) as u32, packed as u32);
        #[allow(clippy::cast_possible_truncation)]
        if held_for != slice as u32 {
            return Found::Stale;
        }
        Found::Current(match micros {
            // The largest is more than an hour: whoever waits that long needs no ceiling.
            0 | u32::MAX => None,
            micros => Some(Duration::from_micros(u64::from(micros))),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_holds_for_its_slice_only() {
        let published = Published::default();
        assert_eq!(published.get(0), Found::Current(None));
        published.set(7, Some(Duration::from_millis(3)));
        let three = Found::Current(Some(Duration::from_millis(3)));
        assert_eq!(published.get(7), three);
        assert_eq!(published.get(6), Found::Stale);
        assert_eq!(published.get(8), Found::Stale);
        published.set(8, None);
        assert_eq!(published.get(8), Found::Current(None));
    }

    #[test]
    fn extremes_are_held() {
        let published = Published::default();
        for (value, expected) in [
            (Duration::ZERO, Some(Duration::from_micros(1))),
            (Duration::from_nanos(1), Some(Duration::from_micros(1))),
            (Duration::from_nanos(1001), Some(Duration::from_micros(2))),
            (Duration::from_secs(4000), Some(Duration::from_secs(4000))),
            (Duration::from_secs(5000), None),
            (Duration::MAX, None),
        ] {
            published.set(u64::MAX, Some(value));
            assert_eq!(
                published.get(u64::MAX),
                Found::Current(expected),
                "{value:?}"
            );
        }
    }
}

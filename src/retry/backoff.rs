//! How long to wait before another attempt.

use std::fmt;
use std::time::Duration;

use crate::policy::{ConstText, Problems, Value};

/// How the wait before an attempt is spread, so that clients that failed together do not come back
/// together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Jitter {
    /// Anything from nothing to the whole wait.
    Full,
    /// Half the wait, and anything up to the other half.
    Equal,
    /// The wait as it is.
    None,
}

/// The wait before another attempt: a curve, a cap, and jitter.
///
/// Before the coming attempt *n* (the first retry is attempt 2) it is
/// `min(cap, base × factor^(n−2))`, then jitter. After a `Throttled` attempt the base is
/// `throttled_base`. A wait that the peer asks for is honoured on any curve, see
/// [`RetryLayer`](crate::RetryLayer).
///
/// | | default |
/// | --- | --- |
/// | base | 100 ms |
/// | throttled base | 1 s |
/// | factor | 2 |
/// | cap | 30 s, for every curve; a longer base that was written out raises it |
/// | jitter | [`Jitter::Full`]; [`Jitter::None`] for [`constant`](Self::constant) and [`none`](Self::none) |
///
/// ```
/// use std::time::Duration;
/// use tower_deadline::{Backoff, Jitter};
///
/// const PATIENT: Backoff = Backoff::exponential()
///     .base(Duration::from_millis(500))
///     .cap(Duration::from_secs(10));
///
/// let exact = PATIENT.jitter(Jitter::None);
/// assert_eq!(exact.wait(2, false), Duration::from_millis(500));
/// assert_eq!(exact.wait(4, false), Duration::from_secs(2));
/// assert_eq!(exact.wait(40, false), Duration::from_secs(10));
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
#[must_use]
pub struct Backoff {
    curve: Curve,
    base: Duration,
    throttled_base: Duration,
    factor: f64,
    cap: Duration,
    jitter: Jitter,
    /// The transient base is this many times the recent median, where that is known.
    measured: Option<f64>,
    written: Written,
}

/// Which numbers were written out, and have to mean something; a preset's own steps aside.
#[derive(Debug, Clone, Copy, PartialEq)]
#[allow(clippy::struct_excessive_bools)] // one for each number
struct Written {
    base: bool,
    throttled_base: bool,
    factor: bool,
    cap: bool,
}

impl Written {
    const NOTHING: Self = Self {
        base: false,
        throttled_base: false,
        factor: false,
        cap: false,
    };
}

#[derive(Clone, Copy)]
enum Curve {
    Exponential,
    Custom(fn(u32) -> Duration),
}

impl PartialEq for Curve {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Exponential, Self::Exponential) => true,
            (Self::Custom(a), Self::Custom(b)) => std::ptr::fn_addr_eq(*a, *b),
            _ => false,
        }
    }
}

impl fmt::Debug for Curve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Exponential => "Exponential",
            Self::Custom(_) => "Custom",
        })
    }
}

impl Backoff {
    const BASE: Duration = Duration::from_millis(100);
    const THROTTLED_BASE: Duration = Duration::from_secs(1);
    const CAP: Duration = Duration::from_secs(30);

    /// 100 ms, doubled for each attempt; 1 s, doubled, after a throttled one.
    pub const fn exponential() -> Self {
        Self {
            curve: Curve::Exponential,
            base: Self::BASE,
            throttled_base: Self::THROTTLED_BASE,
            factor: 2.0,
            cap: Self::CAP,
            jitter: Jitter::Full,
            measured: None,
            written: Written::NOTHING,
        }
    }

    /// The same wait before each attempt, throttled or not, without jitter.
    pub const fn constant(wait: Duration) -> Self {
        Self {
            base: wait,
            throttled_base: wait,
            factor: 1.0,
            jitter: Jitter::None,
            written: Written {
                base: true,
                throttled_base: true,
                ..Written::NOTHING
            },
            ..Self::exponential()
        }
    }

    /// No wait.
    pub const fn none() -> Self {
        Self::constant(Duration::ZERO)
    }

    /// Exponential, with a transient base of so many times the recent median latency of the dependency,
    /// but between a tenth of [`base`](Self::base) and ten times it.
    ///
    /// The median is that of an [`AttemptTimeoutLayer`](crate::AttemptTimeoutLayer) beneath that
    /// measures. While it is unknown the base is what it is; the throttled base always is.
    pub const fn measured(multiple: f64) -> Self {
        Self {
            measured: Some(multiple),
            ..Self::exponential()
        }
    }

    /// The wait that `curve` says, given the number of the coming attempt: 2 for the first retry.
    /// Throttled or not, with full jitter.
    pub const fn custom(curve: fn(u32) -> Duration) -> Self {
        Self {
            curve: Curve::Custom(curve),
            ..Self::exponential()
        }
    }

    /// The wait before the first retry after a transient failure.
    pub const fn base(mut self, base: Duration) -> Self {
        self.base = base;
        self.written.base = true;
        self
    }

    /// The wait before the first retry after a throttled attempt; also the most that a wait which
    /// the peer asked for is spread by.
    pub const fn throttled_base(mut self, base: Duration) -> Self {
        self.throttled_base = base;
        self.written.throttled_base = true;
        self
    }

    /// What the wait is multiplied by for each further attempt.
    pub const fn factor(mut self, factor: f64) -> Self {
        self.factor = factor;
        self.written.factor = true;
        self
    }

    /// No wait is longer, and a peer that asks for a longer one gets no retry. A base has to be below
    /// it.
    pub const fn cap(mut self, cap: Duration) -> Self {
        self.cap = cap;
        self.written.cap = true;
        self
    }

    /// How the wait is spread.
    pub const fn jitter(mut self, jitter: Jitter) -> Self {
        self.jitter = jitter;
        self
    }

    /// The wait before the coming attempt `number`, without jitter: what the curve says, at most the
    /// cap.
    ///
    /// Total: whatever the number and the factor, it is never above the cap, and a factor that means
    /// nothing (negative, or not a number) gives the cap rather than a hot loop.
    #[must_use]
    pub fn wait(&self, number: u32, throttled: bool) -> Duration {
        self.measured_wait(number, throttled, None)
    }

    /// The same, where the recent median of the dependency may be known.
    pub(super) fn measured_wait(
        &self,
        number: u32,
        throttled: bool,
        median: Option<Duration>,
    ) -> Duration {
        let base = match self.curve {
            Curve::Custom(curve) => return curve(number).min(self.longest()),
            Curve::Exponential if throttled => self.throttled_base,
            Curve::Exponential => self.transient_base(median),
        };
        if base.is_zero() {
            return Duration::ZERO;
        }
        let retries_before = f64::from(number.saturating_sub(2));
        let seconds = base.as_secs_f64() * self.factor.powf(retries_before);
        if seconds.is_nan() || seconds.is_sign_negative() {
            return self.longest();
        }
        // Exact for the first wait: a base survives no detour through a float.
        if retries_before == 0.0 {
            return base.min(self.longest());
        }
        Duration::try_from_secs_f64(seconds)
            .unwrap_or(Duration::MAX)
            .min(self.longest())
    }

    fn transient_base(&self, median: Option<Duration>) -> Duration {
        let (Some(multiple), Some(median)) = (self.measured, median) else {
            return self.base;
        };
        // A multiple that means nothing gives the least.
        let scaled = median.as_secs_f64() * multiple.max(0.0);
        Duration::try_from_secs_f64(scaled)
            .unwrap_or(Duration::MAX)
            .clamp(self.base / 10, self.base.saturating_mul(10))
    }

    pub(super) fn jittered(&self, wait: Duration) -> Duration {
        match self.jitter {
            Jitter::None => wait,
            Jitter::Full => part_of(wait, fastrand::f64()),
            Jitter::Equal => {
                let half = wait / 2;
                // Rounded so that the two halves are the whole.
                half.saturating_add(part_of(wait.saturating_sub(half), fastrand::f64()))
            }
        }
    }

    /// The shortest and the longest wait that jitter can draw before the coming attempt `number`,
    /// whatever is measured, if it is. A curve of the user's own is not run: it can say anything up to
    /// the cap.
    pub(crate) fn range(
        &self,
        number: u32,
        throttled: bool,
        measures: bool,
    ) -> (Duration, Duration) {
        let (least, most) = match self.curve {
            Curve::Custom(_) => (Duration::ZERO, self.longest()),
            Curve::Exponential if measures => (
                self.measured_wait(number, throttled, Some(Duration::ZERO)),
                self.measured_wait(number, throttled, Some(Duration::MAX)),
            ),
            Curve::Exponential => {
                let wait = self.measured_wait(number, throttled, None);
                (wait, wait)
            }
        };
        match self.jitter {
            Jitter::None => (least, most),
            Jitter::Full => (Duration::ZERO, most),
            Jitter::Equal => (least / 2, most),
        }
    }

    /// The curve and its jitter, in words.
    pub(crate) fn curve(&self) -> impl fmt::Display {
        InWords(*self)
    }

    /// What the median is multiplied by for the base, where the base is measured.
    pub(crate) const fn measured_multiple(&self) -> Option<f64> {
        self.measured
    }

    /// The longest wait: the cap, where it was written out; else no less than a base that was.
    pub(crate) const fn longest(&self) -> Duration {
        if self.written.cap {
            return self.cap;
        }
        longer(longer(self.cap, self.base), self.throttled_base)
    }

    /// The most that a wait which the peer asked for is spread by: nothing without jitter.
    pub(crate) fn spread(&self) -> Duration {
        match self.jitter {
            Jitter::None => Duration::ZERO,
            Jitter::Full | Jitter::Equal => self.throttled_base,
        }
    }

    /// The shortest wait before the first retry, of what was written out.
    pub(crate) const fn least(&self) -> Duration {
        if let Curve::Custom(_) = self.curve {
            return Duration::ZERO;
        }
        let shorter = if self.base.as_nanos() < self.throttled_base.as_nanos() {
            self.base
        } else {
            self.throttled_base
        };
        if self.measured.is_some() {
            return Duration::ZERO;
        }
        match self.jitter {
            Jitter::None if shorter.as_nanos() > self.longest().as_nanos() => self.longest(),
            Jitter::None => shorter,
            Jitter::Full | Jitter::Equal => Duration::ZERO,
        }
    }

    /// Whether every wait is the same.
    #[cfg(feature = "serde")]
    pub(crate) fn is_constant(&self) -> bool {
        #[allow(clippy::float_cmp)] // as `constant` has it
        let same = self.factor == 1.0 && self.base == self.throttled_base;
        same && self.measured.is_none() && !matches!(self.curve, Curve::Custom(_))
    }

    /// The same with other waits, all of them.
    #[cfg(feature = "serde")]
    pub(crate) fn waiting(self, wait: Duration) -> Self {
        self.base(wait).throttled_base(wait)
    }

    /// The same with another multiple of the median.
    #[cfg(feature = "serde")]
    pub(crate) fn measuring(mut self, multiple: f64) -> Self {
        self.measured = Some(multiple);
        self
    }

    /// Whether there is no wait at all.
    pub(crate) const fn is_none(&self) -> bool {
        !matches!(self.curve, Curve::Custom(_))
            && self.base.is_zero()
            && self.throttled_base.is_zero()
    }

    /// What is wrong with it.
    pub(crate) const fn problems(&self, problems: &mut Problems) {
        let written = self.written;
        if let Curve::Custom(_) = self.curve {
            const UNUSED: &str = "it has no effect on a curve of your own";
            let base = Value::Duration(self.base);
            problems.refuse_if(written.base, "backoff.base", base, UNUSED);
            let factor = Value::Number(self.factor);
            problems.refuse_if(written.factor, "backoff.factor", factor, UNUSED);
            return;
        }
        if let Some(multiple) = self.measured {
            problems.refuse_if(
                !(multiple > 0.0 && multiple.is_finite()),
                "backoff.multiple",
                Value::Number(multiple),
                "the base has to be some multiple of the median",
            );
        }
        problems.refuse_if(
            !(self.factor >= 1.0 && self.factor.is_finite()),
            "backoff.factor",
            Value::Number(self.factor),
            "it has to be finite and at least 1, so that each wait is as long as the one before",
        );
        let so = ", so that no wait could follow the curve";
        let cap = ("backoff.cap", Value::Duration(self.cap));
        problems.refuse_against(
            written.cap && written.base && self.cap.as_nanos() < self.base.as_nanos(),
            cap,
            "it is below the base of ",
            Value::Duration(self.base),
            so,
        );
        problems.refuse_against(
            written.cap
                && written.throttled_base
                && self.throttled_base.as_nanos() != self.base.as_nanos()
                && self.cap.as_nanos() < self.throttled_base.as_nanos(),
            cap,
            "it is below the throttled base of ",
            Value::Duration(self.throttled_base),
            so,
        );
    }
}

struct InWords(Backoff);

impl fmt::Display for InWords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Backoff {
            curve,
            base,
            factor,
            jitter,
            measured,
            ..
        } = self.0;
        let written = |d| {
            let mut text = ConstText::new();
            text.duration(d);
            text
        };
        let base = written(base);
        match (curve, measured) {
            (Curve::Custom(_), _) => f.write_str("a curve of your own")?,
            (_, Some(multiple)) => write!(f, "{multiple} x the median, x{factor} each")?,
            #[allow(clippy::float_cmp)] // as it was written
            (_, None) if factor == 1.0 => f.write_str("constant")?,
            (_, None) => write!(f, "exponential, x{factor} from {}", base.as_str())?,
        }
        f.write_str(match jitter {
            Jitter::Full => ", full jitter",
            Jitter::Equal => ", equal jitter",
            Jitter::None => ", no jitter",
        })?;
        write!(f, ", at most {}", written(self.0.longest()).as_str())
    }
}

const fn longer(a: Duration, b: Duration) -> Duration {
    if a.as_nanos() < b.as_nanos() { b } else { a }
}

impl Default for Backoff {
    fn default() -> Self {
        Self::exponential()
    }
}

/// `fraction` of `whole`, to the nanosecond, never more than the whole.
pub(super) fn part_of(whole: Duration, fraction: f64) -> Duration {
    Duration::try_from_secs_f64(whole.as_secs_f64() * fraction)
        .unwrap_or(whole)
        .min(whole)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const EXACT: Backoff = Backoff::exponential().jitter(Jitter::None);

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn the_defaults_double_from_a_tenth_and_from_a_second() {
        let waits = |throttled| [2, 3, 4, 5].map(|n| EXACT.wait(n, throttled));
        assert_eq!(waits(false), [ms(100), ms(200), ms(400), ms(800)]);
        assert_eq!(waits(true), [ms(1000), ms(2000), ms(4000), ms(8000)]);
        assert_eq!(EXACT.wait(11, false), Duration::from_secs(30));
        assert_eq!(EXACT.wait(10, false), ms(25_600));
    }

    #[test]
    fn constant_and_none_are_what_they_say() {
        for number in [0, 1, 2, 3, 1000, u32::MAX] {
            for throttled in [false, true] {
                assert_eq!(Backoff::constant(ms(7)).wait(number, throttled), ms(7));
                assert_eq!(Backoff::none().wait(number, throttled), Duration::ZERO);
            }
        }
        assert_eq!(Backoff::constant(ms(7)).jittered(ms(7)), ms(7));
        // The cap is nobody's word here, and the wait is.
        let minute = Backoff::constant(Duration::from_secs(60));
        assert_eq!(minute.wait(2, false), Duration::from_secs(60));
        assert_eq!(minute.cap(ms(10)).wait(2, false), ms(10));
    }

    #[test]
    fn a_measured_base_follows_the_median_within_a_factor_of_ten() {
        let backoff = Backoff::measured(2.0).jitter(Jitter::None);
        let base = |median| backoff.measured_wait(2, false, median);
        assert_eq!(base(None), ms(100));
        assert_eq!(base(Some(ms(40))), ms(80));
        assert_eq!(base(Some(ms(4))), ms(10));
        assert_eq!(base(Some(ms(9000))), ms(1000));
        assert_eq!(base(Some(Duration::MAX)), ms(1000));
        assert_eq!(backoff.measured_wait(3, false, Some(ms(40))), ms(160));
        assert_eq!(backoff.measured_wait(2, true, Some(ms(40))), ms(1000));
        for odd in [f64::NAN, -1.0, f64::INFINITY, 0.0] {
            let wait = Backoff::measured(odd).measured_wait(2, false, Some(ms(40)));
            assert!(wait >= ms(10) && wait <= ms(1000), "{odd}");
        }
        // Nothing but the measured curve looks at the median.
        assert_eq!(EXACT.measured_wait(2, false, Some(ms(40))), ms(100));
    }

    #[test]
    fn a_custom_curve_is_capped() {
        let custom = Backoff::custom(|n| Duration::from_secs(u64::from(n)));
        assert_eq!(custom.wait(2, false), Duration::from_secs(2));
        assert_eq!(custom.wait(29, true), Duration::from_secs(29));
        assert_eq!(custom.wait(31, false), Backoff::CAP);
    }

    #[test]
    fn no_factor_makes_a_hot_loop_or_a_panic() {
        for factor in [
            0.0,
            1.0,
            2.0,
            1e308,
            f64::NAN,
            f64::INFINITY,
            -2.0,
            f64::MIN_POSITIVE,
        ] {
            for number in [0, 1, 2, 3, 62, 63, 64, 65, 1_000_000, u32::MAX] {
                for base in [Duration::from_nanos(1), ms(100), Duration::from_secs(3600)] {
                    let backoff = EXACT.base(base).factor(factor).cap(ms(10));
                    let wait = backoff.wait(number, false);
                    assert!(wait <= ms(10), "{factor} {number} {base:?}: {wait:?}");
                }
            }
        }
        assert_eq!(EXACT.factor(f64::NAN).wait(3, false), Backoff::CAP);
        assert_eq!(EXACT.factor(-2.0).wait(3, false), Backoff::CAP);
    }

    #[test]
    fn jitter_is_finer_than_a_millisecond_and_covers_its_range() {
        fastrand::seed(1);
        let full: Vec<_> = (0..1000)
            .map(|_| Backoff::exponential().jittered(Duration::from_secs(1)))
            .collect();
        assert!(full.iter().any(|d| d.subsec_nanos() % 1_000_000 != 0));
        assert!(full.iter().any(|d| *d < ms(50)) && full.iter().any(|d| *d > ms(950)));
        let equal: Vec<_> = (0..1000)
            .map(|_| {
                Backoff::exponential()
                    .jitter(Jitter::Equal)
                    .jittered(Duration::from_secs(1))
            })
            .collect();
        assert!(equal.iter().all(|d| *d >= ms(500) && *d <= ms(1000)));
        assert!(equal.iter().any(|d| *d < ms(550)) && equal.iter().any(|d| *d > ms(950)));
    }

    fn refused(backoff: Backoff) -> Vec<&'static str> {
        let mut problems = Problems::new();
        backoff.problems(&mut problems);
        let problems = problems.into_problems();
        problems.iter().map(crate::Problem::field).collect()
    }

    #[test]
    fn what_makes_no_sense_is_refused_all_at_once() {
        let odd = Backoff::exponential()
            .base(ms(20))
            .throttled_base(ms(30))
            .cap(ms(10))
            .factor(0.5);
        assert_eq!(
            refused(odd),
            ["backoff.factor", "backoff.cap", "backoff.cap"]
        );
        let own = Backoff::custom(|_| ms(1)).base(ms(1)).factor(2.0);
        assert_eq!(refused(own), ["backoff.base", "backoff.factor"]);
        assert_eq!(refused(Backoff::measured(0.0)), ["backoff.multiple"]);
    }

    #[test]
    fn one_number_that_was_written_out_makes_those_of_the_preset_step_aside() {
        for backoff in [
            Backoff::exponential().cap(ms(10)),
            Backoff::exponential().base(Duration::from_secs(60)),
            Backoff::exponential().throttled_base(Duration::from_secs(60)),
            Backoff::constant(Duration::from_secs(60)),
            Backoff::exponential().base(ms(10)).cap(ms(10)),
        ] {
            assert_eq!(refused(backoff), [""; 0]);
        }
        let slow = EXACT.base(Duration::from_secs(60));
        assert_eq!(slow.wait(2, false), Duration::from_secs(60));
        assert_eq!(slow.wait(3, false), Duration::from_secs(60));
        assert_eq!(EXACT.cap(ms(10)).wait(2, false), ms(10));
    }

    fn durations() -> impl Strategy<Value = Duration> {
        (any::<u64>(), 0..1_000_000_000_u32).prop_map(|(s, n)| Duration::new(s, n))
    }

    proptest! {
        #[test]
        fn a_wait_is_never_above_the_cap_nor_jitter_above_the_wait(
            base in durations(),
            throttled in durations(),
            cap in durations(),
            factor in any::<f64>(),
            number in any::<u32>(),
            is_throttled in any::<bool>(),
            jitter in prop_oneof![Just(Jitter::Full), Just(Jitter::Equal), Just(Jitter::None)],
        ) {
            let backoff = Backoff::exponential()
                .base(base)
                .throttled_base(throttled)
                .cap(cap)
                .factor(factor)
                .jitter(jitter);
            let wait = backoff.wait(number, is_throttled);
            prop_assert!(wait <= cap);
            prop_assert!(backoff.jittered(wait) <= wait);
        }

        #[test]
        fn a_wait_never_shrinks_from_one_attempt_to_the_next(
            base in 1..10_000_u64,
            factor in 1.0..16.0_f64,
            number in 2..200_u32,
        ) {
            let backoff = EXACT.base(ms(base)).factor(factor);
            prop_assert!(backoff.wait(number, false) <= backoff.wait(number + 1, false));
        }
    }
}

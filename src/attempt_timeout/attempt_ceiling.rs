//! How the measured ceiling is configured.

use std::time::Duration;

use crate::latency::Terms;
use crate::policy::{Problems, Value};

/// A ceiling on attempts that is measured from the dependency's own latency.
///
/// It is `max(floor, multiple × quantile)` of the latencies of recent successful attempts, and can only
/// lower the ceiling that the attempt timeout sets. The attempt timeout then becomes what it reads as:
/// the point beyond which nobody cares.
///
/// | | default |
/// | --- | --- |
/// | multiple | none: it is the argument of [`above`](Self::above); 3 is a good one |
/// | quantile | 0.95 |
/// | window | 5 minutes |
/// | minimum samples | 20 |
/// | floor | 50 ms |
///
/// - Below the minimum of samples there is no measured ceiling, and the attempt timeout applies.
/// - Only attempts judged `Ok` are sampled, from their `call` to their response head.
/// - It lets go when it cuts what would have succeeded: after five attempts in a row that it cut, or
///   when of *n* ≥ 50 attempts in the window it cut more than `2(1−q)n + 3√(n(1−q))`, its samples are
///   dropped and the attempt timeout applies until there are enough new ones.
///
/// One estimate has to be of one kind of latency. A slow route that is one call in fifty does not show
/// in the 95th percentile of its host, and is cut each time, too seldom to be let go for. Give it a key
/// of its own ([`key`](super::AttemptTimeoutLayer::key)), raise the [`floor`](Self::floor), or give its
/// calls an attempt timeout of their own, which stands in place of the measured ceiling.
///
/// The quantile is estimated with a t-digest ([Dunning 2019](https://arxiv.org/abs/1902.04023)).
#[derive(Debug, Clone, Copy, PartialEq)]
#[must_use]
pub struct AttemptCeiling {
    pub(super) terms: Terms,
}

impl AttemptCeiling {
    /// So many times the recent 95th percentile. The multiple has to be above 1.
    pub const fn above(multiple: f64) -> Self {
        Self {
            terms: Terms {
                multiple,
                quantile: 0.95,
                window: Duration::from_secs(300),
                minimum_samples: 20,
                floor: Duration::from_millis(50),
            },
        }
    }

    #[cfg(feature = "serde")]
    pub(crate) const fn multiple(mut self, multiple: f64) -> Self {
        self.terms.multiple = multiple;
        self
    }

    /// The quantile that the ceiling is a multiple of, from 0.5 to 0.99.
    pub const fn quantile(mut self, quantile: f64) -> Self {
        self.terms.quantile = quantile;
        self
    }

    /// How far back the samples go: an attempt leaves when its end is this long ago, to within a tenth
    /// of the window. At least 10 ms.
    pub const fn window(mut self, window: Duration) -> Self {
        self.terms.window = window;
        self
    }

    /// How many samples the window has to hold before there is a ceiling. At least 1.
    pub const fn minimum_samples(mut self, samples: u32) -> Self {
        self.terms.minimum_samples = samples;
        self
    }

    /// No measured ceiling is lower: an allowance that every attempt has, and what keeps a dependency
    /// of microseconds from being cut at a hiccup of the scheduler.
    pub const fn floor(mut self, floor: Duration) -> Self {
        self.terms.floor = floor;
        self
    }

    /// What is wrong with a ceiling that was written out, where `bound` is the smallest of the bounds
    /// that it could lower. That of a preset steps aside where its floor leaves it nothing to do, and is
    /// not asked (rule 14).
    pub(crate) const fn problems(&self, bound: Option<Duration>, problems: &mut Problems) {
        let terms = &self.terms;
        problems.refuse_if(
            !(terms.multiple > 1.0 && terms.multiple.is_finite()),
            "ceiling.multiple",
            Value::Number(terms.multiple),
            "it has to be above 1, or what is normal would be cut",
        );
        problems.refuse_if(
            !(terms.quantile >= 0.5 && terms.quantile <= 0.99),
            "ceiling.quantile",
            Value::Number(terms.quantile),
            "it has to be from 0.5 to 0.99: below, most answers would be above it, and above, too few \
             samples would decide",
        );
        problems.refuse_if(
            terms.window.as_millis() < 10,
            "ceiling.window",
            Value::Duration(terms.window),
            "it has to be at least 10ms, or no sample would live to be used",
        );
        problems.refuse_if(
            terms.minimum_samples == 0,
            "ceiling.minimum_samples",
            Value::Count(0),
            "it has to be at least 1: nothing can be measured from nothing",
        );
        if let Some(bound) = bound {
            problems.refuse_against(
                terms.floor.as_nanos() >= bound.as_nanos(),
                ("ceiling.floor", Value::Duration(terms.floor)),
                "it is not below the ",
                Value::Duration(bound),
                " that bound an attempt in any case, so that the measured ceiling would do nothing",
            );
        }
    }

    pub(crate) const fn terms(&self) -> Terms {
        self.terms
    }

    /// What is used of a configuration that nobody validated: total, and never a ceiling below the
    /// quantile.
    pub(super) fn usable(&self) -> Terms {
        let terms = self.terms;
        Terms {
            multiple: if terms.multiple > 1.0 {
                terms.multiple
            } else {
                f64::INFINITY
            },
            quantile: if terms.quantile >= 0.5 {
                terms.quantile.min(0.99)
            } else {
                0.5
            },
            minimum_samples: terms.minimum_samples.max(1),
            ..terms
        }
    }
}

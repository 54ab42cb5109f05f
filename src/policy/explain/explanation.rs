//! The answer in numbers.

use std::time::Duration;

use super::walk::{End, Step, Terms, Walk};
use crate::key::Key;
use crate::policy::validation::Problem;
use crate::policy::value::{BudgetTerms, CallPolicy};
use crate::policy::{CallLayer, HttpCallLayer};

/// How long a call takes at most, what ends it, and what it costs the dependency.
///
/// Made by [`CallPolicy::explain`]. `Display` prints it; the fields have the same in numbers. It is of
/// a request that may be sent again; others are sent once. Waits for the readiness of the inner service
/// are not in it: those between attempts come on top, up to the deadline, and so does the first where the
/// policy bounds readiness.
///
/// ```
/// use std::time::Duration;
/// use tower_deadline::CallPolicy;
/// use tower_deadline::policy::{Explanation, FirstBound};
///
/// let explanation: Explanation = CallPolicy::http().explain();
/// let FirstBound::Deadline { attempt, clamped_to, .. } = explanation.first else { panic!() };
/// assert_eq!((attempt, clamped_to), (3, Duration::from_millis(9700)));
/// assert_eq!(explanation.longest, Some(Duration::from_secs(30)));
/// println!("{explanation}");
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Explanation {
    /// What is explained.
    pub policy: CallPolicy,
    /// What [`CallPolicy::validate`] refuses of it. The rest is of the numbers as they would be used.
    pub problems: Vec<Problem>,
    /// An attempt timeout that was written out and that the deadline makes unreachable.
    pub warning: Option<Problem>,
    /// The deadline; `None` is unbounded.
    pub deadline: Option<Duration>,
    /// The attempt timeout; `None` is unbounded.
    pub attempt_timeout: Option<Duration>,
    /// The bound on a gap in the body; `None` is unbounded.
    pub gap: Option<Duration>,
    /// What ends a call whose attempts all hang.
    pub first: FirstBound,
    /// The worst case where each attempt hangs until it is cut.
    pub transient: Walk,
    /// The worst case where each attempt is answered just before it would be cut, by a peer that asks
    /// to wait as long as the policy lets it.
    pub throttled: Walk,
    /// The longest that a call can take, whatever fails, without waits for readiness: the later end of the
    /// two walks. `None` is for ever.
    pub longest: Option<Duration>,
    /// What the calls cost the dependency.
    pub load: Load,
    /// The measured ceiling, where the policy has one.
    pub measured: Option<MeasuredTerms>,
    /// The service is HTTP, so that responses have bodies.
    pub(super) http: bool,
}

/// What ends a call whose attempts all hang, and by how much.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum FirstBound {
    /// The deadline cuts an attempt.
    Deadline {
        /// Which.
        attempt: u32,
        /// What is left for it.
        clamped_to: Duration,
        /// The same as a share of the attempt timeout; `None` without one.
        share: Option<f64>,
        /// How many more attempts were permitted, and never start.
        never_started: u32,
    },
    /// The deadline leaves no room for the wait before another attempt.
    NoRoom {
        /// The last attempt.
        after: u32,
        /// When it ends.
        at: Duration,
        /// The shortest wait that there could be after it.
        wait: Duration,
        /// What is left of the deadline.
        left: Duration,
    },
    /// The attempts are spent.
    Attempts {
        /// When.
        at: Duration,
        /// What is left of the deadline then; `None` without one.
        unused: Option<Duration>,
    },
    /// Nothing does.
    Nothing,
}

/// What the calls cost the dependency.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Load {
    /// How many requests a call makes of one while the budget lasts and everything fails.
    pub multiplier: u32,
    /// The budget for retries; `None` is without one.
    pub budget: Option<BudgetTerms>,
    /// How many retries a full budget has in reserve.
    pub reserve: u64,
}

/// The measured ceiling.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct MeasuredTerms {
    /// How many times the quantile an attempt may take.
    pub multiple: f64,
    /// The quantile.
    pub quantile: f64,
    /// How far back the samples go.
    pub window: Duration,
    /// How many samples there have to be.
    pub minimum_samples: u32,
    /// The least the ceiling is.
    pub floor: Duration,
    /// What it is now; `None` is cold: too few samples, or nobody asked a dependency.
    pub value: Option<Duration>,
    /// The smaller of the other bounds on an attempt is not above the floor, so that it has no effect.
    pub idle: bool,
    /// When a call whose attempts all hang has ended while the ceiling is at that value.
    pub ends: Option<Duration>,
}

impl CallPolicy {
    /// How long a call of this policy takes at most, and why. Nothing is measured here, so the measured
    /// ceiling is cold; [`HttpCallLayer::explain`] has its value.
    ///
    /// It is arithmetic: it runs none of the user's code, and takes any policy, also one that is refused.
    #[must_use]
    pub fn explain(&self) -> Explanation {
        Explanation::of(self, None)
    }
}

impl<C, Y, K, R> CallLayer<C, Y, K, R> {
    /// How long a call takes at most, and why, with the budget of this layer and the measured ceiling of
    /// the dependency `key`.
    #[must_use]
    pub fn explain(&self, key: Key) -> Explanation {
        let value = self.measured().and_then(|measured| measured.ceiling(key));
        let mut explanation = self.explain_http(value);
        explanation.gap = None;
        explanation.http = false;
        explanation
    }

    fn explain_http(&self, measured: Option<Duration>) -> Explanation {
        let mut explanation = Explanation::of(&self.policy(), measured);
        explanation.load = Load::of(self.policy().attempts, self.budget_terms());
        explanation
    }
}

impl<C, Y, K, R, P> HttpCallLayer<C, Y, K, R, P> {
    /// How long a call takes at most, and why, with the budget of this layer and the measured ceiling of
    /// the dependency `key`.
    #[must_use]
    pub fn explain(&self, key: Key) -> Explanation {
        let value = self.measured().and_then(|measured| measured.ceiling(key));
        self.core().explain_http(value)
    }
}

impl Explanation {
    fn of(policy: &CallPolicy, measured: Option<Duration>) -> Self {
        let ceiling = policy.ceiling_in_force();
        let terms = Terms {
            deadline: bound(policy.deadline),
            timeout: bound(policy.attempt_timeout),
            attempts: policy.attempts,
            backoff: policy.backoff,
            measures: ceiling.is_some() && policy.backoff.measured_multiple().is_some(),
            throttled: false,
        };
        let transient = terms.walk();
        let throttled = Terms {
            throttled: true,
            ..terms
        };
        let throttled = throttled.walk();
        Self {
            policy: *policy,
            problems: policy.problems().into_problems(),
            warning: policy.warning(),
            deadline: terms.deadline,
            attempt_timeout: terms.timeout,
            gap: bound(policy.gap()),
            http: true,
            first: FirstBound::of(&transient, &terms),
            longest: transient
                .at
                .zip(throttled.at)
                .map(|(one, other)| one.max(other)),
            load: Load::of(policy.attempts, policy.budget),
            measured: ceiling.map(|ceiling| {
                let numbers = ceiling.terms();
                MeasuredTerms {
                    multiple: numbers.multiple,
                    quantile: numbers.quantile,
                    window: numbers.window,
                    minimum_samples: numbers.minimum_samples,
                    floor: numbers.floor,
                    value: measured,
                    idle: [terms.timeout, terms.deadline]
                        .into_iter()
                        .flatten()
                        .any(|bound| bound <= numbers.floor),
                    ends: measured.and_then(|value| {
                        let timeout = terms.timeout.map_or(value, |t| t.min(value));
                        let lowered = Terms {
                            timeout: Some(timeout),
                            ..terms
                        };
                        lowered.walk().shown()
                    }),
                }
            }),
            transient,
            throttled,
        }
    }
}

/// What no clock can hold is no bound (rule 1).
fn bound(bound: Option<Duration>) -> Option<Duration> {
    bound.filter(|bound| i64::try_from(bound.as_secs()).is_ok())
}

impl FirstBound {
    fn of(walk: &Walk, terms: &Terms) -> Self {
        match walk.end {
            End::Deadline {
                attempt,
                never_started,
            } => {
                let last = walk.steps.iter().rev().find_map(|step| match step {
                    Step::Attempt(attempt) => attempt.ceiling(),
                    _ => None,
                });
                let clamped_to = last.unwrap_or_default();
                Self::Deadline {
                    attempt,
                    clamped_to,
                    share: terms
                        .timeout
                        .filter(|timeout| !timeout.is_zero())
                        .map(|timeout| clamped_to.as_secs_f64() / timeout.as_secs_f64()),
                    never_started,
                }
            }
            End::NoRoom {
                after,
                ends,
                wait,
                left,
                ..
            } => Self::NoRoom {
                after,
                at: ends,
                wait,
                left,
            },
            End::Attempts => {
                let at = walk.at.unwrap_or(Duration::MAX);
                Self::Attempts {
                    at,
                    unused: terms.deadline.map(|deadline| deadline.saturating_sub(at)),
                }
            }
            End::Never => Self::Nothing,
        }
    }
}

impl Load {
    fn of(attempts: u32, budget: Option<BudgetTerms>) -> Self {
        Self {
            multiplier: attempts.max(1),
            reserve: budget.map_or(0, |b| (10 * u64::from(b.minimum_per_second)).max(1)),
            budget,
        }
    }
}

//! A policy from a file.
//!
//! With the feature `serde`, [`CallPolicy`] is read from any self-describing format (TOML, YAML, JSON).
//! The keys are the names of its setters, and what is not set is as in [`CallPolicy::http`]:
//!
//! ```toml
//! preset = "http"             # or "grpc", "new", "none"; may be left out
//! deadline = "10s"            # durations have a unit: ns, us, ms, s, m, h; "none" is unbounded
//! attempt_timeout = "2s"
//! attempts = 3
//! bound_progress = true
//! buffer_responses = 65536    # bytes, or "none"
//! inherit = false
//! bound_readiness = false
//! bound_body = false
//! retry_unsafe_methods = false
//! retry_unprocessed = false
//! defer_to_caller = false
//! mark_retries = true
//! propagate_deadline = false
//! propagate_criticality = false
//!
//! [backoff]                   # or backoff = "none": no wait
//! curve = "exponential"       # or "constant" (with base), or "measured" (with multiple)
//! base = "100ms"
//! throttled_base = "1s"
//! factor = 2.0
//! cap = "30s"
//! jitter = "full"             # or "equal", or "none"
//!
//! [ceiling]                   # or ceiling = "none"
//! multiple = 3.0
//! quantile = 0.95
//! window = "5m"
//! minimum_samples = 20
//! floor = "50ms"
//!
//! [budget]                    # or budget = "none"
//! fraction = 0.1
//! minimum_per_second = 3
//! ```
//!
//! The names of the hop's headers are constants, and stay as they are in the code.
//!
//! To set only what differs from a policy in the code, deserialize with that policy as the seed
//! ([`DeserializeSeed`]):
//!
//! ```
//! use std::time::Duration;
//! use serde::de::DeserializeSeed;
//! use tower_deadline::CallPolicy;
//!
//! const API: CallPolicy = CallPolicy::http().attempts(2).checked();
//!
//! let mut file = serde_json::Deserializer::from_str(r#"{ "deadline": "1.5s" }"#);
//! let configured = API.deserialize(&mut file)?;
//! assert_eq!(configured, API.deadline(Duration::from_millis(1500)));
//! # Ok::<(), serde_json::Error>(())
//! ```
//!
//! # Errors
//!
//! One error lists everything: keys that there are not, each with the nearest that there is, values
//! that cannot be read, and what [`CallPolicy::validate`] refuses; and where everything could be read it
//! says how the policy would behave, as [`CallPolicy::explain`] does. An attempt timeout above the deadline
//! is no error here, but warned of through `tracing` when the layer is made.

mod raw;
mod settings;
mod table;

use std::fmt;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error};

use self::raw::Raw;
use super::{CallPolicy, Explanation};

impl<'de> Deserialize<'de> for CallPolicy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::http().deserialize(deserializer)
    }
}

impl<'de> DeserializeSeed<'de> for CallPolicy {
    type Value = Self;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self, D::Error> {
        let raw = Raw::deserialize(deserializer)?;
        let (policy, mut problems) = settings::apply(self, raw);
        let readable = problems.is_empty();
        let refused = policy.problems().into_problems();
        problems.extend(refused.iter().map(ToString::to_string));
        if problems.is_empty() {
            Ok(policy)
        } else {
            Err(D::Error::custom(Refused {
                explained: readable.then(|| policy.explain()),
                problems,
            }))
        }
    }
}

/// Everything that is wrong, and what would come of the rest.
struct Refused {
    problems: Vec<String>,
    /// Where everything could be read.
    explained: Option<Explanation>,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n = self.problems.len();
        let noun = if n == 1 { "problem" } else { "problems" };
        writeln!(f, "{n} {noun} in the configuration of a policy:")?;
        for problem in &self.problems {
            writeln!(f, "- {problem}")?;
        }
        let Some(mut explanation) = self.explained.clone() else {
            return Ok(());
        };
        explanation.problems.clear(); // they are above
        write!(f, "As it is written, it would mean:\n{explanation}")
    }
}

//! What is known of a call's attempts.

use std::fmt;
use std::time::Duration;

use crate::classify::Verdict;

/// The attempts of one call, in order.
///
/// It stays empty, and allocates nothing, until an attempt fails.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AttemptLog {
    attempts: Vec<Attempt>,
}

impl AttemptLog {
    /// An empty log, to refer to.
    pub(crate) const EMPTY: &'static Self = &Self {
        attempts: Vec::new(),
    };

    /// How many attempts were sent.
    #[must_use]
    pub fn len(&self) -> usize {
        self.attempts.len()
    }

    /// Whether no attempt was sent.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.attempts.is_empty()
    }

    /// The attempts, the first one first.
    pub fn iter(&self) -> std::slice::Iter<'_, Attempt> {
        self.attempts.iter()
    }

    /// The last attempt.
    #[must_use]
    pub fn last(&self) -> Option<&Attempt> {
        self.attempts.last()
    }

    pub(crate) fn extend(&mut self, attempts: impl IntoIterator<Item = Attempt>) {
        self.attempts.extend(attempts);
    }
}

impl<'a> IntoIterator for &'a AttemptLog {
    type Item = &'a Attempt;
    type IntoIter = std::slice::Iter<'a, Attempt>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// One line: `1 transient 503 12ms, 2 ok 200 3ms (after 80ms)`.
impl fmt::Display for AttemptLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, attempt) in self.attempts.iter().enumerate() {
            if i > 0 {
                f.write_str(", ")?;
            }
            write!(f, "{attempt}")?;
        }
        Ok(())
    }
}

/// What is known of one attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Attempt {
    /// Its number; the first is 1.
    pub number: u32,
    /// What the classifier said of it. An attempt cut by a bound is `Transient`.
    pub verdict: Verdict,
    /// From its `call` to its result, or to the moment when it was cut.
    pub duration: Duration,
    /// The backoff that was slept before it; zero for the first.
    pub delay: Duration,
    /// The effective ceiling and which bound it was, where an attempt timeout got to compute them:
    /// an attempt that is answered at once never does.
    pub ceiling: Option<(Duration, Bound)>,
    /// The status of the response, when there was one and the classifier knows statuses.
    pub status: Option<u16>,
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.number, self.verdict)?;
        if let Some(status) = self.status {
            write!(f, " {status}")?;
        }
        write!(f, " {:?}", self.duration)?;
        if !self.delay.is_zero() {
            write!(f, " (after {:?})", self.delay)?;
        }
        Ok(())
    }
}

/// The bound that an effective ceiling came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Bound {
    /// The configured attempt timeout, or the one that an override put in its place.
    AttemptTimeout,
    /// A multiple of the dependency's recent latency.
    Measured,
    /// The time that was left on the deadline.
    Deadline,
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AttemptTimeout => "attempt timeout",
            Self::Measured => "measured ceiling",
            Self::Deadline => "time left on the deadline",
        })
    }
}

/// Where a deadline came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DeadlineOrigin {
    /// The layer's own configuration.
    Own,
    /// An override for this call.
    Override,
    /// What the caller of this service said that it would still wait, or what
    /// [`call::with_deadline`](crate::call::with_deadline) offered.
    Inherited,
    /// The deadline of a call that this call is a part of.
    Enclosing,
}

impl fmt::Display for DeadlineOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Own => "own",
            Self::Override => "override",
            Self::Inherited => "inherited",
            Self::Enclosing => "enclosing",
        })
    }
}

/// What a call was doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Phase {
    /// Nothing yet: the deadline had passed before the call began.
    Start,
    /// Waiting for the inner service to be ready.
    Readiness,
    /// Waiting for the response head of an attempt (or the end of its body, under buffering).
    Attempt,
    /// Between two attempts.
    Backoff,
    /// Reading the body of the response.
    Body,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Start => "start",
            Self::Readiness => "readiness",
            Self::Attempt => "an attempt",
            Self::Backoff => "backoff",
            Self::Body => "the body",
        })
    }
}

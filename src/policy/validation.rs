//! Every problem of a configuration at once.

use std::error::Error;
use std::fmt;

/// A configuration that cannot mean what it says, with every problem it has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyError {
    problems: Vec<Problem>,
}

/// One problem of a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    field: &'static str,
    value: String,
    reason: &'static str,
}

impl Problem {
    /// The setter or argument that is wrong.
    #[must_use]
    pub fn field(&self) -> &'static str {
        self.field
    }

    /// The value it was given.
    #[must_use]
    pub fn value(&self) -> &str {
        &self.value
    }

    /// Why it cannot be.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        self.reason
    }
}

impl PolicyError {
    /// Every problem, in the order in which the fields are documented. Never empty.
    #[must_use]
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n = self.problems.len();
        let noun = if n == 1 { "problem" } else { "problems" };
        write!(f, "{n} {noun} in the configuration")?;
        for p in &self.problems {
            write!(f, "; {} = {}: {}", p.field, p.value, p.reason)?;
        }
        Ok(())
    }
}

impl Error for PolicyError {}

/// Collects problems, so that a user hears of all of them at once.
#[derive(Debug, Default)]
pub(crate) struct Problems(Vec<Problem>);

impl Problems {
    pub(crate) fn refuse_if(
        &mut self,
        wrong: bool,
        field: &'static str,
        value: &dyn fmt::Debug,
        reason: &'static str,
    ) {
        if wrong {
            self.0.push(Problem {
                field,
                value: format!("{value:?}"),
                reason,
            });
        }
    }

    pub(crate) fn into_result(self) -> Result<(), PolicyError> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err(PolicyError { problems: self.0 })
        }
    }
}

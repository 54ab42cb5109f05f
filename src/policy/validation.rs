//! Every problem of a configuration at once, at run time and while a constant is evaluated.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use super::const_text::ConstText;

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
    reason: String,
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
    pub fn reason(&self) -> &str {
        &self.reason
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {}: {}", self.field, self.value, self.reason)
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
        for problem in &self.problems {
            write!(f, "; {problem}")?;
        }
        Ok(())
    }
}

impl Error for PolicyError {}

/// A value as it is shown.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Value {
    Duration(Duration),
    Count(u128),
    Number(f64),
    Flag(bool),
    Word(&'static str),
}

impl Value {
    const fn write(self, text: &mut ConstText) {
        match self {
            Self::Duration(duration) => text.duration(duration),
            Self::Count(count) => text.integer(count),
            Self::Number(number) => text.number(number),
            Self::Flag(true) => text.push("true"),
            Self::Flag(false) => text.push("false"),
            Self::Word(word) => text.push(word),
        }
    }
}

/// A problem, as a constant can hold it.
#[derive(Debug, Clone, Copy)]
struct Found {
    field: &'static str,
    value: Value,
    reason: &'static str,
    /// What the value was measured against; it stands at the end of the first clause of `reason`.
    limit: Option<Value>,
    /// What comes of it.
    so: &'static str,
}

impl Found {
    const fn write_reason(&self, text: &mut ConstText) {
        text.push(self.reason);
        if let Some(limit) = self.limit {
            limit.write(text);
        }
        text.push(self.so);
    }
}

/// Collects problems, so that a user hears of all of them at once.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Problems {
    found: [Option<Found>; Self::MOST],
    len: usize,
}

impl Problems {
    /// There are not as many things to get wrong.
    const MOST: usize = 40;

    pub(crate) const fn new() -> Self {
        Self {
            found: [None; Self::MOST],
            len: 0,
        }
    }

    pub(crate) const fn refuse_if(
        &mut self,
        wrong: bool,
        field: &'static str,
        value: Value,
        reason: &'static str,
    ) {
        self.add(
            wrong,
            Found {
                field,
                value,
                reason,
                limit: None,
                so: "",
            },
        );
    }

    /// The same for a value that another one forbids: `reason`, the `limit`, and what comes of it.
    pub(crate) const fn refuse_against(
        &mut self,
        wrong: bool,
        (field, value): (&'static str, Value),
        reason: &'static str,
        limit: Value,
        so: &'static str,
    ) {
        self.add(
            wrong,
            Found {
                field,
                value,
                reason,
                limit: Some(limit),
                so,
            },
        );
    }

    #[allow(clippy::indexing_slicing)] // compared on the line before
    const fn add(&mut self, wrong: bool, found: Found) {
        if wrong && self.len < Self::MOST {
            self.found[self.len] = Some(found);
            self.len += 1;
        }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// All of them, for a compiler to show.
    #[allow(clippy::indexing_slicing)] // `i < self.len <= MOST`
    pub(crate) const fn text(&self) -> ConstText {
        let mut text = ConstText::new();
        text.integer(self.len as u128);
        text.push(if self.len == 1 {
            " problem in this policy:"
        } else {
            " problems in this policy:"
        });
        let mut i = 0;
        while i < self.len {
            if let Some(found) = &self.found[i] {
                text.push("\n- ");
                text.push(found.field);
                text.push(" = ");
                found.value.write(&mut text);
                text.push(": ");
                found.write_reason(&mut text);
            }
            i += 1;
        }
        text
    }

    pub(crate) fn into_problems(self) -> Vec<Problem> {
        self.found
            .iter()
            .flatten()
            .map(|found| Problem {
                field: found.field,
                value: written(|text| found.value.write(text)),
                reason: written(|text| found.write_reason(text)),
            })
            .collect()
    }

    pub(crate) fn into_result(self) -> Result<(), PolicyError> {
        if self.is_empty() {
            Ok(())
        } else {
            Err(PolicyError {
                problems: self.into_problems(),
            })
        }
    }
}

fn written(write: impl FnOnce(&mut ConstText)) -> String {
    let mut text = ConstText::new();
    write(&mut text);
    text.as_str().to_owned()
}

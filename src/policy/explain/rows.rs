//! The rows of a walk, as text.

use std::fmt::{self, Write as _};
use std::time::Duration;

use super::explanation::Explanation;
use super::text::{TITLE, plural, row};
use super::units::{As, At, Scale};
use super::walk::{BackoffStep, End, Step, Walk};

/// Which of the two walks.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Failing {
    Hanging,
    Throttled,
}

impl Explanation {
    pub(super) fn walk(&self, f: &mut String, failing: Failing, scale: Scale) -> fmt::Result {
        let (mut title, walk) = match failing {
            Failing::Hanging => ("When it hangs", &self.transient),
            Failing::Throttled => ("When throttled", &self.throttled),
        };
        let mut first_wait = true;
        for step in &walk.steps {
            match step {
                Step::Attempt(attempt) => {
                    let end = match attempt.end {
                        Some(end) => At(end, scale).to_string(),
                        None => "never".to_owned(),
                    };
                    let name = format!("attempt {}", attempt.number);
                    let start = At(attempt.start, scale);
                    write!(f, "{title:TITLE$}{name:11} {start:>9} -> {end:<10} ")?;
                    match (self.attempt_timeout, attempt.left) {
                        (Some(timeout), Some(left)) => {
                            let (timeout, left) = (As(timeout), At(left, scale));
                            writeln!(f, "min({timeout} attempt timeout, {left} left)")?;
                        }
                        (Some(timeout), None) => {
                            writeln!(f, "{} attempt timeout", As(timeout))?;
                        }
                        (None, Some(left)) => writeln!(f, "{} left", At(left, scale))?,
                        (None, None) => writeln!(f, "no bound")?,
                    }
                }
                Step::Backoff(wait) => {
                    self.backoff(f, *wait, first_wait, failing)?;
                    first_wait = false;
                }
                Step::Elided { attempts } => {
                    let noun = plural(*attempts, "attempt", "attempts");
                    row(f, title, format_args!("...         {attempts} {noun} more"))?;
                }
            }
            title = "";
        }
        walk.write_end(f, failing, scale)
    }

    fn backoff(
        &self,
        f: &mut String,
        wait: BackoffStep,
        first: bool,
        failing: Failing,
    ) -> fmt::Result {
        let range = if wait.least == wait.most {
            format!("+{}", As(wait.most))
        } else {
            format!("+{} to {}", As(wait.least), As(wait.most))
        };
        let name = match failing {
            Failing::Hanging => "backoff",
            Failing::Throttled => "wait",
        };
        write!(f, "{:TITLE$}{name:12}{range:>9}", "")?;
        if first {
            let width = 23_usize.saturating_sub(range.len().max(9));
            write!(f, "{:width$}", "")?;
            let backoff = self.policy.backoff;
            if failing == Failing::Throttled {
                write!(f, "asked for, up to {}", As(backoff.longest()))?;
                if !backoff.spread().is_zero() {
                    write!(f, ", spread by up to {}", As(backoff.spread()))?;
                }
            } else {
                write!(f, "{}", backoff.curve())?;
            }
        }
        writeln!(f)
    }
}

impl Walk {
    fn write_end(&self, f: &mut String, failing: Failing, scale: Scale) -> fmt::Result {
        let at = |at: Duration| At(at, scale).to_string();
        match self.end {
            End::Deadline { .. } => {
                let at = at(self.at.unwrap_or_default());
                row(
                    f,
                    "",
                    format_args!("{:12}{at:>9}    DeadlineExceeded", "deadline"),
                )
            }
            End::Attempts => {
                let at = at(self.shown().unwrap_or_default());
                let how = match failing {
                    Failing::Hanging => "AttemptTimedOut",
                    Failing::Throttled => "the last response",
                };
                row(f, "", format_args!("{:12}{at:>9}    {how}", "spent"))
            }
            End::NoRoom {
                ends, wait, left, ..
            } => {
                let (ends, wait, left) = (at(ends), As(wait), at(left));
                row(
                    f,
                    "",
                    format_args!(
                        "{:12}{ends:>9}    a wait of {wait} does not fit into the {left} left",
                        "no room"
                    ),
                )
            }
            End::Never => Ok(()),
        }?;
        if self.at > self.shown() {
            let at = at(self.at.unwrap_or_default());
            let how = "at the latest, where an attempt fails sooner and leaves room for another";
            row(f, "", format_args!("{:12}{at:>9}    {how}", "or"))?;
        }
        Ok(())
    }
}

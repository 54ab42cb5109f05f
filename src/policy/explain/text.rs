//! The answer as text.

use std::fmt::{self, Write as _};
use std::time::Duration;

use super::explanation::{Explanation, FirstBound, Load, MeasuredTerms};
use super::walk::{BackoffStep, End, Step, Walk};
use crate::policy::const_text::ConstText;

/// A duration as people write it.
struct As(Duration);

impl fmt::Display for As {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(ConstText::new().duration(self.0).as_str())
    }
}

/// A point in a walk, or what is left there: to the hundredth of a second, or finer where the whole walk
/// is shorter than a second.
#[derive(Clone, Copy)]
struct At(Duration, Scale);

#[derive(Clone, Copy)]
enum Scale {
    Seconds,
    Millis,
    Micros,
}

impl Scale {
    fn of(explanation: &Explanation) -> Self {
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

/// How wide the titles are.
const TITLE: usize = 16;

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        self.write(&mut text)?;
        f.write_str(text.trim_end())
    }
}

impl Explanation {
    fn write(&self, f: &mut String) -> fmt::Result {
        let scale = Scale::of(self);
        self.first_line(f, scale)?;
        for problem in &self.problems {
            row(f, "Refused", format_args!("{problem}"))?;
        }
        if let Some(warning) = &self.warning {
            row(f, "Warning", format_args!("{warning}"))?;
        }
        writeln!(f)?;
        self.walk(f, "When it hangs", &self.transient, scale)?;
        if self.throttled.at != self.transient.at {
            writeln!(f)?;
            self.walk(f, "When throttled", &self.throttled, scale)?;
        }
        writeln!(f)?;
        self.longest(f, scale)?;
        self.inherits(f)?;
        self.load.fmt_rows(f)?;
        if let Some(measured) = &self.measured {
            measured.fmt_rows(f)?;
        }
        self.body(f)
    }
}

fn row(f: &mut String, title: &str, text: fmt::Arguments<'_>) -> fmt::Result {
    writeln!(f, "{title:TITLE$}{text}")
}

fn plural(n: u32, one: &'static str, more: &'static str) -> &'static str {
    if n == 1 { one } else { more }
}

impl Explanation {
    fn first_line(&self, f: &mut String, scale: Scale) -> fmt::Result {
        if self.deadline.is_none() {
            return self.unbounded(f, scale);
        }
        let title = "Bound first by";
        match self.first {
            FirstBound::Deadline {
                attempt,
                clamped_to,
                share,
                never_started,
            } => {
                let clamped = At(clamped_to, scale);
                write!(
                    f,
                    "{title:TITLE$}the deadline: attempt {attempt} is clamped to {clamped}"
                )?;
                if let (Some(share), Some(timeout)) = (share, self.attempt_timeout) {
                    let share = (share * 100.0).floor();
                    write!(f, ", {share:.0}% of the {} attempt timeout", As(timeout))?;
                }
                match never_started {
                    0 => {}
                    1 => write!(f, "; attempt {} never starts", attempt.saturating_add(1))?,
                    2 => {
                        let (from, to) = (attempt.saturating_add(1), attempt.saturating_add(2));
                        write!(f, "; attempts {from} and {to} never start")?;
                    }
                    more => {
                        let (from, to) = (attempt.saturating_add(1), attempt.saturating_add(more));
                        write!(f, "; attempts {from} to {to} never start")?;
                    }
                }
                writeln!(f)
            }
            FirstBound::NoRoom {
                after,
                at,
                wait,
                left,
            } => row(
                f,
                title,
                format_args!(
                    "the deadline: after attempt {after}, at {}, a wait of {} does not fit into the {} left",
                    At(at, scale),
                    As(wait),
                    At(left, scale)
                ),
            ),
            FirstBound::Attempts { at, unused } => {
                let attempts = self.policy.attempts.max(1);
                let noun = plural(attempts, "attempt is", "attempts are");
                write!(
                    f,
                    "{title:TITLE$}the attempts: {attempts} {noun} spent at {}",
                    At(at, scale)
                )?;
                if let (Some(unused), Some(deadline)) = (unused, self.deadline) {
                    write!(
                        f,
                        ", {} of the {} deadline unused",
                        At(unused, scale),
                        As(deadline)
                    )?;
                }
                writeln!(f)
            }
            // There is a deadline, so something does.
            FirstBound::Nothing => row(f, title, format_args!("nothing")),
        }
    }

    fn unbounded(&self, f: &mut String, scale: Scale) -> fmt::Result {
        let title = "Unbounded";
        let Some(longest) = self.longest else {
            let cold = match self.measured {
                Some(_) => " while nothing is measured",
                None => "",
            };
            return row(
                f,
                title,
                format_args!(
                    "neither deadline nor attempt timeout: an attempt that hangs hangs the call for ever{cold}"
                ),
            );
        };
        let attempts = self.policy.attempts.max(1);
        let noun = plural(attempts, "attempt", "attempts");
        let timeout = As(self.attempt_timeout.unwrap_or_default());
        row(
            f,
            title,
            format_args!(
                "no deadline: {attempts} {noun} of {timeout} and the waits between them take up to {}, \
                 and nothing bounds the wait for readiness",
                At(longest, scale)
            ),
        )
    }

    fn walk(&self, f: &mut String, title: &str, walk: &Walk, scale: Scale) -> fmt::Result {
        let mut title = title;
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
                    write!(f, "{title:TITLE$}{name:11} {start:>9} -> {end:<10} ",)?;
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
                    let throttled = std::ptr::eq(walk, &self.throttled);
                    self.backoff(f, title, *wait, first_wait, throttled)?;
                    first_wait = false;
                }
                Step::Elided { attempts } => {
                    let noun = plural(*attempts, "attempt", "attempts");
                    row(f, title, format_args!("...         {attempts} {noun} more"))?;
                }
            }
            title = "";
        }
        self.end(f, walk, scale)
    }

    fn backoff(
        &self,
        f: &mut String,
        title: &str,
        wait: BackoffStep,
        first: bool,
        throttled: bool,
    ) -> fmt::Result {
        let range = if wait.least == wait.most {
            format!("+{}", As(wait.most))
        } else {
            format!("+{} to {}", As(wait.least), As(wait.most))
        };
        let name = if throttled { "wait" } else { "backoff" };
        write!(f, "{title:TITLE$}{name:12}{range:>9}")?;
        if first {
            let width = 23_usize.saturating_sub(range.len().max(9));
            write!(f, "{:width$}", "")?;
            let backoff = self.policy.backoff;
            if throttled {
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

    fn end(&self, f: &mut String, walk: &Walk, scale: Scale) -> fmt::Result {
        let at = |at: Duration| At(at, scale).to_string();
        match walk.end {
            End::Deadline { .. } => {
                let at = at(walk.at.unwrap_or_default());
                row(
                    f,
                    "",
                    format_args!("{:12}{at:>9}    DeadlineExceeded", "deadline"),
                )
            }
            End::Attempts => {
                let last = walk.steps.last().and_then(|step| match step {
                    Step::Attempt(attempt) => attempt.end,
                    _ => None,
                });
                let at = at(last.unwrap_or_default());
                let how = if std::ptr::eq(walk, &self.throttled) {
                    "the last response"
                } else {
                    "AttemptTimedOut"
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
        let shown = match (walk.end, walk.steps.last()) {
            (End::NoRoom { ends, .. }, _) => Some(ends),
            (_, Some(Step::Attempt(last))) => last.end,
            _ => None,
        };
        if walk.at > shown {
            let at = at(walk.at.unwrap_or_default());
            let how = "at the latest, where an attempt fails sooner and leaves room for another";
            row(f, "", format_args!("{:12}{at:>9}    {how}", "or"))?;
        }
        Ok(())
    }

    fn longest(&self, f: &mut String, scale: Scale) -> fmt::Result {
        let title = "Longest";
        match (self.longest, self.deadline) {
            (Some(longest), Some(deadline)) => {
                let (at, deadline) = (At(longest, scale), As(deadline));
                let readiness = if self.policy.attempts > 1
                    && longest < self.deadline.unwrap_or_default()
                {
                    format!(
                        "; a wait for readiness between attempts comes on top, up to the {deadline} deadline"
                    )
                } else {
                    String::new()
                };
                row(f, title, format_args!("{at}{readiness}"))
            }
            (Some(longest), None) => {
                let at = At(longest, scale);
                row(
                    f,
                    title,
                    format_args!("{at}, and the waits for readiness between attempts"),
                )
            }
            (None, _) => row(f, title, format_args!("for ever")),
        }
    }

    fn inherits(&self, f: &mut String) -> fmt::Result {
        if !self.policy.inherit {
            return Ok(());
        }
        row(
            f,
            "Inherits",
            format_args!("a deadline that is offered, where it is the sooner one"),
        )
    }

    fn body(&self, f: &mut String) -> fmt::Result {
        let title = "The body";
        match (self.policy.buffering, self.gap) {
            (Some(bytes), _) => row(
                f,
                title,
                format_args!("up to {bytes} bytes of it are read inside the attempt"),
            ),
            (None, Some(gap)) => row(
                f,
                title,
                format_args!("a gap of {} between two reads ends it", As(gap)),
            ),
            (None, None) => row(f, title, format_args!("its gaps are not bounded")),
        }?;
        match self.deadline {
            Some(deadline) if self.policy.bound_body => row(
                f,
                "",
                format_args!("it ends by the {} deadline as well", As(deadline)),
            ),
            _ => Ok(()),
        }
    }
}

impl Load {
    fn fmt_rows(&self, f: &mut String) -> fmt::Result {
        let title = "Load";
        let n = self.multiplier;
        let noun = plural(n, "request", "requests");
        write!(f, "{title:TITLE$}up to {n} {noun} a call")?;
        match self.budget {
            _ if n == 1 => writeln!(f),
            None => writeln!(f, ", with no budget to end that when everything fails"),
            Some(budget) => writeln!(
                f,
                "; the budget sustains {} retries for each call that succeeds and {} a second, with {} in reserve",
                budget.fraction, budget.minimum_per_second, self.reserve
            ),
        }
    }
}

impl MeasuredTerms {
    fn fmt_rows(&self, f: &mut String) -> fmt::Result {
        let title = "Measured";
        // A quantile is shown as a percentile.
        let percentile = (self.quantile * 1e4).round() / 1e2;
        write!(
            f,
            "{title:TITLE$}{} x p{percentile} of {}, at least {}: ",
            self.multiple,
            As(self.window),
            As(self.floor)
        )?;
        match (self.value, self.ends) {
            (Some(value), Some(ends)) => writeln!(
                f,
                "{} now, with which a call that hangs ends at {}",
                As(value),
                As(ends)
            ),
            _ => {
                let n = self.minimum_samples;
                let noun = plural(n, "sample", "samples");
                writeln!(f, "cold, and without effect until there are {n} {noun}")
            }
        }
    }
}

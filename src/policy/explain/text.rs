//! The answer as text.

use std::fmt::{self, Write as _};

use super::explanation::{Explanation, FirstBound, Load, MeasuredTerms};
use super::rows::Failing;
use super::units::{As, At, Scale};

/// How wide the titles are.
pub(super) const TITLE: usize = 16;

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
        self.walk(f, Failing::Hanging, scale)?;
        if self.throttled.at != self.transient.at {
            writeln!(f)?;
            self.walk(f, Failing::Throttled, scale)?;
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

pub(super) fn row(f: &mut String, title: &str, text: fmt::Arguments<'_>) -> fmt::Result {
    writeln!(f, "{title:TITLE$}{text}")
}

pub(super) fn plural(n: u32, one: &'static str, more: &'static str) -> &'static str {
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
        let waits = match attempts {
            1 => " takes",
            _ => " and the waits between them take",
        };
        row(
            f,
            title,
            format_args!(
                "no deadline: {attempts} {noun} of {timeout}{waits} up to {}, \
                 and nothing bounds the wait for readiness",
                At(longest, scale)
            ),
        )
    }

    fn longest(&self, f: &mut String, scale: Scale) -> fmt::Result {
        let title = "Longest";
        match (self.longest, self.deadline) {
            (Some(longest), Some(deadline)) => {
                let at = At(longest, scale);
                let on_top = match (self.policy.bound_readiness, self.policy.attempts > 1) {
                    _ if longest >= deadline => None,
                    (true, _) => Some("the wait for readiness comes"),
                    (false, true) => Some("a wait for readiness between attempts comes"),
                    (false, false) => None,
                };
                let on_top = on_top.map_or_else(String::new, |what| {
                    format!("; {what} on top, up to the {} deadline", As(deadline))
                });
                row(f, title, format_args!("{at}{on_top}"))
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
        if !self.http {
            return Ok(());
        }
        let title = "The body";
        match (self.policy.buffering, self.gap) {
            (Some(bytes), Some(gap)) => row(
                f,
                title,
                format_args!(
                    "up to {bytes} bytes of it are read inside the attempt; a gap of {} ends a larger one",
                    As(gap)
                ),
            ),
            (Some(bytes), None) => row(
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
            _ if !self.policy.bound_body => Ok(()),
            Some(deadline) => row(
                f,
                "",
                format_args!("it ends by the {} deadline as well", As(deadline)),
            ),
            None => row(
                f,
                "",
                format_args!("it ends by an inherited deadline as well"),
            ),
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
        if self.idle {
            return writeln!(f, "without effect, since an attempt is never longer");
        }
        if let (Some(value), Some(ends)) = (self.value, self.ends) {
            let (value, ends) = (As(value), As(ends));
            return writeln!(
                f,
                "{value} now, with which a call that hangs ends at {ends}"
            );
        }
        let n = self.minimum_samples;
        let noun = plural(n, "sample", "samples");
        let floor = As(self.floor);
        writeln!(
            f,
            "cold; from {n} {noun} on it can cut an attempt after {floor}"
        )
    }
}

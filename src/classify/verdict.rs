//! The verdict and who gives it.

use std::error::Error;
use std::fmt;
use std::ops::Deref;
use std::time::Duration;

/// What a classifier says of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// It did what it was asked to, as far as another attempt is concerned.
    Ok,
    /// It failed in a way that another attempt may not.
    Transient,
    /// The peer has more work than it can take, and said so.
    Throttled,
    /// It failed, and so would another attempt.
    Permanent,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ok => "ok",
            Self::Transient => "transient",
            Self::Throttled => "throttled",
            Self::Permanent => "permanent",
        })
    }
}

/// The result of an attempt, as a classifier sees it.
pub type AttemptResult<'a, Res> = Result<&'a Res, AttemptError<'a>>;

/// The error of an attempt, as a classifier sees it: a reference to it, to look into with `is` and
/// `downcast_ref`.
///
/// A type of its own rather than a bare `&dyn Error`, whose hidden lifetime keeps the compiler from
/// seeing that a stack with a closure for a classifier can be sent to another thread.
#[derive(Clone, Copy)]
pub struct AttemptError<'a>(&'a (dyn Error + 'static));

impl<'a> AttemptError<'a> {
    /// To ask a classifier about `error`.
    #[must_use]
    pub fn new(error: &'a (dyn Error + 'static)) -> Self {
        Self(error)
    }

    /// The error itself.
    #[must_use]
    pub fn get(self) -> &'a (dyn Error + 'static) {
        self.0
    }
}

impl Deref for AttemptError<'_> {
    type Target = dyn Error + 'static;

    fn deref(&self) -> &Self::Target {
        self.0
    }
}

impl fmt::Debug for AttemptError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.0, f)
    }
}

impl fmt::Display for AttemptError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.0, f)
    }
}

/// Gives the verdict on attempts that end in a `Res` or an error.
///
/// A closure from [`AttemptResult`] to [`Verdict`] is one:
///
/// ```
/// use tower_deadline::{AttemptResult, Classify, Verdict};
///
/// fn check(_: impl Classify<Vec<u8>>) {}
///
/// check(|result: AttemptResult<'_, Vec<u8>>| match result {
///     Ok(rows) if rows.is_empty() => Verdict::Transient,
///     Ok(_) => Verdict::Ok,
///     Err(_) => Verdict::Permanent,
/// });
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not judge results with a response of the type `{Res}`",
    note = "`HttpClassifier` is for `http::Response`, `ErrorClassifier` for any response",
    note = "a closure has to say its argument's type: `|result: AttemptResult<'_, Res>| -> Verdict`"
)]
pub trait Classify<Res> {
    /// The verdict on one attempt.
    fn classify(&self, result: AttemptResult<'_, Res>) -> Verdict;

    /// How long the peer asked to wait before another attempt. Asked only after `Throttled`.
    /// `Duration::MAX` is "never again".
    fn wait(&self, result: AttemptResult<'_, Res>) -> Option<Duration> {
        let _ = result;
        None
    }

    /// The status of a response, for the attempt log and for telling what a failure leaves open:
    /// after anything but 429 and 503 the request may have been acted on.
    fn status(&self, response: &Res) -> Option<u16> {
        let _ = response;
        None
    }
}

impl<F, Res> Classify<Res> for F
where
    F: Fn(AttemptResult<'_, Res>) -> Verdict,
{
    fn classify(&self, result: AttemptResult<'_, Res>) -> Verdict {
        self(result)
    }
}

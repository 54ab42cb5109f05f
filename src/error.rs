//! The errors of this crate, and how to find them behind other people's wrappers.

use std::error::Error;
use std::fmt;
use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::call::{AttemptLog, Bound, DeadlineOrigin, Phase};

/// The error type of every layer that can fail a call of its own accord.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// The call did not end before its deadline.
///
/// Raised by [`DeadlineLayer`](crate::DeadlineLayer) when the deadline passes, by
/// [`RetryLayer`](crate::RetryLayer) when an attempt failed without a response and the next one
/// could not fit, and by [`DeadlineBodyLayer`](crate::DeadlineBodyLayer) when the body outlasts it.
///
/// `source()` is the error of the last attempt that failed before the one in flight; there is none
/// when that attempt ended with a response (its status is in the [log](Self::log)).
#[derive(Debug)]
pub struct DeadlineExceeded {
    pub(crate) deadline: Duration,
    pub(crate) origin: DeadlineOrigin,
    pub(crate) elapsed: Duration,
    pub(crate) phase: Phase,
    pub(crate) log: AttemptLog,
    pub(crate) source: Option<BoxError>,
}

impl DeadlineExceeded {
    /// The deadline that was in force, measured from the `call` on the layer that opened the call.
    ///
    /// Zero when it had passed before the call began.
    #[must_use]
    pub fn deadline(&self) -> Duration {
        self.deadline
    }

    /// Where the deadline in force came from.
    #[must_use]
    pub fn origin(&self) -> DeadlineOrigin {
        self.origin
    }

    /// The time from the `call` to the moment when this error was made.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.elapsed
    }

    /// What the call was doing when it was cut.
    #[must_use]
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// Every attempt that was sent; the one in flight, if any, is the last.
    #[must_use]
    pub fn log(&self) -> &AttemptLog {
        &self.log
    }
}

impl fmt::Display for DeadlineExceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let attempts = self.log.len();
        let noun = if attempts == 1 { "attempt" } else { "attempts" };
        write!(
            f,
            "deadline of {:?} ({}) exceeded after {:?} and {attempts} {noun}, during {}",
            self.deadline, self.origin, self.elapsed, self.phase
        )
    }
}

impl Error for DeadlineExceeded {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_ref().map(|e| &**e as &(dyn Error + 'static))
    }
}

/// One attempt did not answer within its ceiling.
///
/// Raised by [`AttemptTimeoutLayer`](crate::AttemptTimeoutLayer). It is transient whatever a
/// classifier would say, and no classifier is asked.
#[derive(Debug)]
pub struct AttemptTimedOut {
    pub(crate) ceiling: Duration,
    pub(crate) bound: Bound,
    pub(crate) elapsed: Duration,
    pub(crate) log: OnceLock<AttemptLog>,
}

impl AttemptTimedOut {
    /// The effective ceiling: the longest this attempt was allowed to take, from its `call` to its
    /// response head (to the end of its body under [`BufferResponsesLayer`](crate::BufferResponsesLayer)).
    #[must_use]
    pub fn ceiling(&self) -> Duration {
        self.ceiling
    }

    /// Which bound the ceiling was.
    #[must_use]
    pub fn bound(&self) -> Bound {
        self.bound
    }

    /// The time from the attempt's `call` to the moment it was given up.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.elapsed
    }

    /// Every attempt of the call, this one included, once this error has ended the call.
    ///
    /// Empty before that: an attempt that is going to be retried does not know its call's history.
    #[must_use]
    pub fn log(&self) -> &AttemptLog {
        self.log.get().unwrap_or(AttemptLog::EMPTY)
    }

    /// Attaches the history of the call that this error ended. The first caller is the innermost
    /// call, whose history it is.
    pub(crate) fn attach(&self, log: &AttemptLog) {
        self.log.get_or_init(|| log.clone());
    }
}

impl fmt::Display for AttemptTimedOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "attempt timed out after {:?}: its ceiling of {:?} was the {}",
            self.elapsed, self.ceiling, self.bound
        )?;
        match self.log.get() {
            Some(log) if log.len() > 1 => write!(f, "; all attempts: {log}"),
            _ => Ok(()),
        }
    }
}

impl Error for AttemptTimedOut {}

/// A response body stopped arriving.
///
/// Raised by the read of a [`ProgressBody`](crate::ProgressBody) that had been outstanding for the
/// whole gap. The attempt was over by then, so there is no attempt log: the call had already ended
/// with its response head.
#[derive(Debug, Clone, Copy)]
pub struct AttemptStalled {
    pub(crate) gap: Duration,
    pub(crate) bytes: u64,
    pub(crate) frames: u64,
}

impl AttemptStalled {
    /// The bound that was reached: how long reads had been outstanding since the last progress.
    #[must_use]
    pub fn gap(&self) -> Duration {
        self.gap
    }

    /// Bytes of data that had arrived before the stall.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Data frames that had arrived before the stall.
    #[must_use]
    pub fn frames(&self) -> u64 {
        self.frames
    }

    /// Always empty; here so that the three timeouts can be reported alike.
    #[must_use]
    #[allow(clippy::unused_self)] // alike with its siblings
    pub fn log(&self) -> &AttemptLog {
        AttemptLog::EMPTY
    }
}

impl fmt::Display for AttemptStalled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "response body stalled: no progress for {:?} of reading, after {} bytes in {} frames",
            self.gap, self.bytes, self.frames
        )
    }
}

impl Error for AttemptStalled {}

/// A retry was due, but the retry budget of this dependency is spent.
///
/// Raised by [`RetryLayer`](crate::RetryLayer) only when there is no response to return in its
/// place. `source()` is the error of the last attempt.
#[derive(Debug)]
pub struct RetryRefused {
    pub(crate) retry_after: Option<Duration>,
    pub(crate) log: AttemptLog,
    pub(crate) source: Option<BoxError>,
}

impl RetryRefused {
    /// How long until the budget holds a retry again if nothing else happens; `None` when only
    /// successful calls refill it.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// Every attempt that was sent.
    #[must_use]
    pub fn log(&self) -> &AttemptLog {
        &self.log
    }
}

impl fmt::Display for RetryRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let attempts = self.log.len();
        write!(f, "retry budget spent after attempt {attempts}")?;
        match self.retry_after {
            Some(wait) => write!(f, "; the next retry is affordable in {wait:?}"),
            None => f.write_str("; only successful calls refill it"),
        }
    }
}

impl Error for RetryRefused {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_ref().map(|e| &**e as &(dyn Error + 'static))
    }
}

/// Whether an error says that time ran out: the outermost error of this crate in its chain is
/// [`DeadlineExceeded`], [`AttemptTimedOut`] or [`AttemptStalled`].
///
/// ```
/// use tower_deadline::{BoxError, is_timeout};
///
/// let refused: BoxError = std::io::Error::from(std::io::ErrorKind::ConnectionRefused).into();
/// assert!(!is_timeout(&refused));
/// ```
#[must_use]
pub fn is_timeout<E: AsDynError + ?Sized>(error: &E) -> bool {
    !matches!(
        outermost(error.as_dyn_error()),
        None | Some(Ours::Refused(_))
    )
}

/// An error that can be looked into: a boxed error of any common kind, or a trait object.
///
/// For an error of a concrete type, pass `&error as &(dyn Error + 'static)`.
pub trait AsDynError: sealed::Sealed {
    #[doc(hidden)]
    fn as_dyn_error(&self) -> &(dyn Error + 'static);
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! as_dyn_error {
    ($($ty:ty => |$this:ident| $as:expr),* $(,)?) => {$(
        impl sealed::Sealed for $ty {}
        impl AsDynError for $ty {
            fn as_dyn_error(&self) -> &(dyn Error + 'static) {
                let $this = self;
                $as
            }
        }
    )*};
}

as_dyn_error! {
    dyn Error + 'static => |e| e,
    dyn Error + Send + 'static => |e| e,
    dyn Error + Send + Sync + 'static => |e| e,
    Box<dyn Error + 'static> => |e| &**e,
    Box<dyn Error + Send + 'static> => |e| &**e,
    Box<dyn Error + Send + Sync + 'static> => |e| &**e,
}

/// The errors of ours that can stand in a chain.
pub(crate) enum Ours<'a> {
    Exceeded(&'a DeadlineExceeded),
    TimedOut(&'a AttemptTimedOut),
    Stalled(&'a AttemptStalled),
    Refused(&'a RetryRefused),
}

/// The outermost error of this crate in a chain: it decides what the chain means (rule 22).
pub(crate) fn outermost<'a>(error: &'a (dyn Error + 'static)) -> Option<Ours<'a>> {
    Chain::new(error).find_map(|e| {
        if let Some(e) = e.downcast_ref::<AttemptTimedOut>() {
            Some(Ours::TimedOut(e))
        } else if let Some(e) = e.downcast_ref::<DeadlineExceeded>() {
            Some(Ours::Exceeded(e))
        } else if let Some(e) = e.downcast_ref::<AttemptStalled>() {
            Some(Ours::Stalled(e))
        } else {
            e.downcast_ref::<RetryRefused>().map(Ours::Refused)
        }
    })
}

macro_rules! find {
    ($ty:ident, $variant:ident) => {
        impl $ty {
            /// This error in the chain of another, where it is the outermost of this crate's.
            ///
            /// Looks through boxes, through `source()`, and through the wrappers that hide their
            /// content from `source()`: [`std::io::Error`] and `Arc`.
            #[must_use]
            pub fn find<E: AsDynError + ?Sized>(error: &E) -> Option<&Self> {
                match outermost(error.as_dyn_error()) {
                    Some(Ours::$variant(found)) => Some(found),
                    _ => None,
                }
            }
        }
    };
}

find!(DeadlineExceeded, Exceeded);
find!(AttemptTimedOut, TimedOut);
find!(AttemptStalled, Stalled);
find!(RetryRefused, Refused);

/// Walks an error and its sources, outermost first.
///
/// `io::Error` and `Arc` answer `source()` with the source *of* what they hold, so that what they
/// hold would be skipped; they are opened by hand. The walk is bounded, since nothing forbids a
/// chain that bites its tail.
pub(crate) struct Chain<'a> {
    next: Option<&'a (dyn Error + 'static)>,
    left: u8,
}

impl<'a> Chain<'a> {
    const LONGEST: u8 = 64;

    pub(crate) fn new(error: &'a (dyn Error + 'static)) -> Self {
        Self {
            next: Some(error),
            left: Self::LONGEST,
        }
    }
}

impl<'a> Iterator for Chain<'a> {
    type Item = &'a (dyn Error + 'static);

    fn next(&mut self) -> Option<Self::Item> {
        let error = self.next?;
        self.left = self.left.checked_sub(1)?;
        self.next = if let Some(io) = error.downcast_ref::<io::Error>() {
            match io.get_ref() {
                Some(held) => Some(held),
                None => error.source(),
            }
        } else if let Some(arc) = error.downcast_ref::<Arc<dyn Error + Send + Sync>>() {
            Some(&**arc)
        } else {
            error.source()
        };
        Some(error)
    }
}

//! The events themselves.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use crate::call::{Attempt, AttemptLog, Bound};
use crate::classify::Verdict;

/// What kind of event it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EventKind {
    /// An attempt ended, or was cut. Raised by the retry layer, or by the opener of the call where
    /// there is none.
    Attempt,
    /// Another attempt is going to be made, after `delay`.
    Retrying,
    /// Terminal: the call ended with a result judged `Ok`.
    Succeeded,
    /// Terminal: the call ended with a failure that was not followed by another attempt, for the
    /// reason in `stop`.
    NotRetried,
    /// Terminal: the last permitted attempt failed.
    Exhausted,
    /// Terminal: the deadline ended the call.
    DeadlineExceeded,
    /// Terminal: a retry was due, and the budget refused it.
    RejectedByBudget,
    /// The future of the call was dropped before it ended.
    Cancelled,
    /// An attempt came back from a poll more than a second after its ceiling: something in it
    /// blocked the thread. `duration` is how long the attempt had run by then.
    OrphanedWork,
    /// The measured ceiling of a dependency cut too much and was let go; the attempt timeout applies
    /// until there are enough new samples.
    CeilingSuspended,
    /// A client that retries was called on behalf of a client that retries.
    NestedRetry,
    /// A body stalled. Comes after the call's terminal event, and is none itself.
    Stalled,
    /// A response was too large to buffer, and was handed over live.
    BufferSpilled,
    /// A header that says how long somebody waits, how much a request matters, or whether it may come
    /// again could not be understood, and was taken for not there. Its name is in `header`.
    HeaderIgnored,
    /// A request was answered here and not by the service beneath: its time was over, or a header of it was
    /// malformed. `status` is HTTP's, whatever the caller speaks; `duration` is since its arrival.
    Answered,
}

impl EventKind {
    /// Whether this is one of the events that every call ends with exactly one of. `Cancelled`
    /// stands in for it when the future is dropped.
    #[must_use]
    pub fn is_terminal(self) -> bool {
        matches!(
            self,
            Self::Succeeded
                | Self::NotRetried
                | Self::Exhausted
                | Self::DeadlineExceeded
                | Self::RejectedByBudget
        )
    }
}

/// Why no further attempt was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StopReason {
    /// The result is a success.
    Success,
    /// Sending it again would not help.
    Permanent,
    /// Every permitted attempt has been sent.
    AttemptsSpent,
    /// The request could not be copied.
    NotReplayable,
    /// It is not safe to send this request twice: its method, or its preconditions, or an override
    /// forbid it.
    NotRepeatable,
    /// The response was too large to buffer and is being handed over live.
    Spilled,
    /// The delay and a normal attempt do not fit into the time left.
    DeadlineTooNear,
    /// The peer asked for a wait above the cap, or above the time left.
    RetryAfterTooLong,
    /// The retry budget is spent.
    Budget,
    /// The inner service failed while it was asked whether it is ready.
    Readiness,
    /// No retry layer takes part in this call, or the call failed above it, after an attempt that
    /// succeeded.
    NoRetryLayer,
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Success => "success",
            Self::Permanent => "permanent failure",
            Self::AttemptsSpent => "attempts spent",
            Self::NotReplayable => "request not replayable",
            Self::NotRepeatable => "request not safe to repeat",
            Self::Spilled => "response handed over live",
            Self::DeadlineTooNear => "deadline too near",
            Self::RetryAfterTooLong => "asked to wait too long",
            Self::Budget => "retry budget spent",
            Self::Readiness => "inner service failed",
            Self::NoRetryLayer => "no retry layer",
        })
    }
}

/// Something that happened in a call. A field is `None` where its kind has no use for it.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Event<'a> {
    /// What kind of event it is.
    pub kind: EventKind,
    /// The attempt that was under way or had last been made; 0 before the first. For `Retrying`, the
    /// one that failed.
    pub attempt: u32,
    /// What the classifier said of the attempt, or of the call's result.
    pub verdict: Option<Verdict>,
    /// The status of the response, when there is one and the classifier knows statuses.
    pub status: Option<u16>,
    /// For `Attempt` and `OrphanedWork`: since the attempt's `call`. For a terminal event and
    /// `Cancelled`: since the `call` on the layer that opened the call. For `Stalled`: the gap.
    pub duration: Option<Duration>,
    /// For `Attempt`: the backoff before it. For `Retrying`: the backoff that begins now.
    pub delay: Option<Duration>,
    /// The effective ceiling of the attempt and which bound it was, once computed.
    pub ceiling: Option<(Duration, Bound)>,
    /// Why no further attempt was made.
    pub stop: Option<StopReason>,
    /// The error of the attempt, or of the call.
    pub error: Option<&'a (dyn Error + 'static)>,
    /// For a terminal event and `Cancelled`: the attempts, if any failed.
    pub log: Option<&'a AttemptLog>,
    /// For `HeaderIgnored`: the header's name.
    pub header: Option<&'a str>,
}

impl<'a> Event<'a> {
    pub(crate) fn new(kind: EventKind) -> Self {
        Self {
            kind,
            attempt: 0,
            verdict: None,
            status: None,
            duration: None,
            delay: None,
            ceiling: None,
            stop: None,
            error: None,
            log: None,
            header: None,
        }
    }

    pub(crate) fn attempt(entry: &'a Attempt) -> Self {
        Self {
            attempt: entry.number,
            verdict: Some(entry.verdict),
            status: entry.status,
            duration: Some(entry.duration),
            delay: Some(entry.delay),
            ceiling: entry.ceiling,
            ..Self::new(EventKind::Attempt)
        }
    }
}

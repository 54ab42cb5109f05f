//! Orders of layers that type-check and mean something else than they seem to.

use std::any::type_name;

use crate::event::first_time;

/// What a layer finds around itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Trap {
    /// The deadline begins anew with each attempt, so that nothing bounds the call.
    DeadlineInsideRetry,
    /// The attempts multiply.
    RetryInsideRetry,
    /// One attempt timeout for all the attempts together.
    RetryInsideAttempt,
    /// The gaps of a body are bounded, and the wait for its head is not.
    ProgressWithoutAttempt,
}

impl Trap {
    fn name(self) -> &'static str {
        match self {
            Self::DeadlineInsideRetry => "deadline_inside_retry",
            Self::RetryInsideRetry => "retry_inside_retry",
            Self::RetryInsideAttempt => "retry_inside_attempt_timeout",
            Self::ProgressWithoutAttempt => "progress_without_attempt_timeout",
        }
    }

    fn mend(self) -> &'static str {
        match self {
            Self::DeadlineInsideRetry => {
                "a DeadlineLayer inside a RetryLayer bounds each attempt and not the call: \
                 put it above, and an AttemptTimeoutLayer here"
            }
            Self::RetryInsideRetry => {
                "a RetryLayer inside a RetryLayer multiplies the attempts: \
                 take one of them out, or have the inner one defer_to_caller"
            }
            Self::RetryInsideAttempt => {
                "a RetryLayer inside an AttemptTimeoutLayer has one timeout for all its attempts, and none \
                 for each: put the AttemptTimeoutLayer beneath it, and a DeadlineLayer above"
            }
            Self::ProgressWithoutAttempt => {
                "a ProgressBoundLayer bounds what comes after the response head, and no attempt timeout bounds \
                 the wait for the head: put an AttemptTimeoutLayer above it"
            }
        }
    }

    /// Says so, the first time that a stack of this type, `S`, is found in it.
    #[cold]
    pub(crate) fn report_once<S: ?Sized>(self) {
        let stack = type_name::<S>();
        if first_time((self, stack)) {
            let (trap, mend) = (self.name(), self.mend());
            tracing::warn!(target: "tower_deadline", trap, stack, "{mend}");
        }
    }
}

//! What the tests compose their stacks of: the layers themselves.
//!
//! The tests that take these names from here are run a second time, over the stack that a
//! [`CallPolicy`](tower_deadline::CallPolicy) assembles: `tests/assembled` includes them, and puts layers
//! in the place of these that only note down what they are given. What cannot be said in a policy takes
//! the layers from `tower_deadline`, and is in a module that only this crate has.

use std::time::Duration;

pub(crate) use tower::ServiceBuilder;
pub(crate) use tower_deadline::{
    AttemptTimeoutLayer, BoundReadinessLayer, BufferResponsesLayer, DeadlineBodyLayer,
    DeadlineLayer, OverrideLayer, ProgressBoundLayer, RetryLayer,
};

/// For stacks whose requests are not HTTP, where nothing but a deadline says so.
pub(crate) mod any {
    pub(crate) use tower_deadline::DeadlineLayer;
}

/// The response of an attempt at a scripted service, as a classifier sees it.
pub(crate) type Attempted = crate::support::Res;

/// Whether a stack can have an attempt timeout and a bound on the gaps in the body that are these two.
pub(crate) const fn can_have(_attempt: Duration, _gap: Duration) -> bool {
    true
}

//! Stand-ins for the layers and for tower's builder: what a test composes of them is the stack of a
//! [`CallPolicy`](tower_deadline::CallPolicy) with their numbers.
//!
//! - [`slot`]: what a test gives that is no number;
//! - [`heard`]: who is told;
//! - [`draft`]: what is known of a stack until there is a service, and the stack;
//! - [`parts`], [`retry`]: the layers.
//!
//! A stack in another order than a policy's does not compile, or panics where it is composed: such a test
//! is not for this crate.

mod draft;
mod heard;
mod parts;
mod retry;
mod slot;

use std::time::Duration;

use http::Response;
use tower_deadline::policy::AttemptBody;

use self::draft::{Assemble, Draft, Http};
use self::parts::Part;
pub(crate) use self::parts::{
    AttemptTimeoutLayer, BoundReadinessLayer, BufferResponsesLayer, DeadlineBodyLayer,
    OverrideLayer, ProgressBoundLayer,
};
pub(crate) use self::retry::RetryLayer;
use crate::support::Script;

pub(crate) type DeadlineLayer = parts::DeadlineLayer<Http>;

/// For stacks whose requests are not HTTP, where nothing but a deadline says so.
pub(crate) mod any {
    pub(crate) type DeadlineLayer = super::parts::DeadlineLayer<super::draft::Any>;
}

/// The response of an attempt at a scripted service, as a classifier sees it.
pub(crate) type Attempted = Response<AttemptBody<Script>>;

/// Whether a stack can have an attempt timeout and a bound on the gaps in the body that are these two: a
/// policy has one number for both.
pub(crate) fn can_have(attempt: Duration, gap: Duration) -> bool {
    attempt == gap
}

/// Stands in for tower's builder of that name.
#[derive(Clone)]
pub(crate) struct ServiceBuilder<D = Draft>(D);

impl ServiceBuilder {
    pub(crate) fn new() -> Self {
        Self(Draft::new())
    }
}

impl<D> ServiceBuilder<D> {
    pub(crate) fn layer<L: Part<D>>(self, layer: L) -> ServiceBuilder<L::Draft> {
        ServiceBuilder(layer.add_to(self.0))
    }

    pub(crate) fn service<S>(&self, inner: S) -> D::Service
    where
        D: Assemble<S> + Clone,
    {
        self.0.clone().around(inner)
    }
}

//! The inner clock: a bound on one attempt.
//!
//! [`AttemptTimeoutLayer`] starts it at each `call` and stops it at the response head, or at the end
//! of the body where a [`BufferResponsesLayer`](crate::BufferResponsesLayer) beneath reads it. It
//! belongs beneath [`RetryLayer`](crate::RetryLayer), which sends the next attempt when this one is
//! cut. With an [`AttemptCeiling`] the bound in force is measured from the dependency's own latency,
//! and the timeout is where the measuring ends. The whole call is bounded by [`DeadlineLayer`](crate::DeadlineLayer), and what happens after
//! the head by [`ProgressBoundLayer`](crate::ProgressBoundLayer).

mod attempt_ceiling;
mod ceiling;
mod future;
mod layer;
mod measured;
mod service;

pub use self::attempt_ceiling::AttemptCeiling;
pub use self::future::AttemptTimeoutFuture;
pub use self::layer::AttemptTimeoutLayer;
pub use self::measured::Measured;
pub use self::service::AttemptTimeout;

pub(crate) use self::layer::timeout_problems;

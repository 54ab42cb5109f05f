//! The inner clock: a bound on one attempt.
//!
//! [`AttemptTimeoutLayer`] starts it at each `call` and stops it at the response head, or at the end
//! of the body where a [`BufferResponsesLayer`](crate::BufferResponsesLayer) beneath reads it. It
//! belongs beneath [`RetryLayer`](crate::RetryLayer), which sends the next attempt when this one is
//! cut. The whole call is bounded by [`DeadlineLayer`](crate::DeadlineLayer), and what happens after
//! the head by [`ProgressBoundLayer`](crate::ProgressBoundLayer).

mod ceiling;
mod future;
mod layer;
mod service;

pub use self::future::AttemptTimeoutFuture;
pub use self::layer::AttemptTimeoutLayer;
pub use self::service::AttemptTimeout;

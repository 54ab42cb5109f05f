//! The outer clock: a bound on the whole call.
//!
//! [`DeadlineLayer`] starts it when `call` is invoked and stops it at the response head: attempts,
//! backoff and the readiness between attempts are inside. What is not:
//!
//! - Waiting for readiness before the `call` is back-pressure, and the caller's business. Put a
//!   [`BoundReadinessLayer`] beneath to have it count.
//! - The body. [`ProgressBoundLayer`](crate::ProgressBoundLayer) bounds the gaps in it, however long
//!   the whole takes; [`DeadlineBodyLayer`] holds it to the deadline as well.
//!
//! A single attempt is bounded by [`AttemptTimeoutLayer`](crate::AttemptTimeoutLayer).

mod body;
mod body_layer;
mod bound;
mod future;
mod layer;
mod readiness;
mod service;

pub use self::body::DeadlineBody;
pub use self::body_layer::{DeadlineBodyFuture, DeadlineBodyLayer, DeadlineBodyService};
pub use self::future::DeadlineFuture;
pub use self::layer::DeadlineLayer;
pub use self::readiness::{BoundReadiness, BoundReadinessFuture, BoundReadinessLayer};
pub use self::service::Deadline;

pub(crate) use self::body::{Until, ends_with_its_call};
pub(crate) use self::bound::earlier;

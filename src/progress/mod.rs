//! The inner clock's second job: the gap between two reads of a response body.
//!
//! An attempt ends with its response head, and neither the deadline nor the attempt timeout sees what
//! follows. [`ProgressBoundLayer`] does: a read of the body that is outstanding for longer than the
//! gap fails with [`AttemptStalled`](crate::AttemptStalled), and a body that keeps arriving is never
//! cut, however long the whole takes. Only waiting for the peer counts; a reader that pauses is never
//! blamed.
//!
//! A stall makes the hang finite, not retryable: the call has ended with its head. Put a
//! [`BufferResponsesLayer`](crate::BufferResponsesLayer) around it to have the body read inside the
//! attempt, where a stall is one more failure. To bound the whole body, see
//! [`DeadlineBodyLayer`](crate::DeadlineBodyLayer).

mod body;
mod future;
mod gap;
mod layer;
mod predicate;
mod service;

pub use self::body::ProgressBody;
pub use self::future::ProgressBoundFuture;
pub use self::layer::ProgressBoundLayer;
pub use self::predicate::{AnyBytes, Progress};
pub use self::service::ProgressBound;

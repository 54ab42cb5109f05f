//! The body, read inside the attempt.
//!
//! [`BufferResponsesLayer`] turns a response head that is followed by a stalled or broken body from a
//! success into a failed attempt, which can be retried: the body is read to its end, trailers
//! included, before the response is returned. The price is the memory that it takes, which
//! [`max_bytes`](BufferResponsesLayer::max_bytes) bounds, and that nothing is streamed.
//!
//! It belongs beneath [`AttemptTimeoutLayer`](crate::AttemptTimeoutLayer), which then bounds the head
//! and the body together, and above [`ProgressBoundLayer`](crate::ProgressBoundLayer), which bounds the
//! gaps, also of a body that turned out too large to buffer.

mod body;
mod future;
mod layer;
mod service;

pub use self::body::{BufferedBody, BufferedTrailers};
pub use self::future::BufferResponsesFuture;
pub use self::layer::BufferResponsesLayer;
pub use self::service::BufferResponses;

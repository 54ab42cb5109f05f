//! What an attempt's result means: worth another attempt, or not.
//!
//! A classifier looks at a response or an error and gives a [`Verdict`]. [`HttpClassifier`] knows
//! statuses and `Retry-After`; [`GrpcClassifier`] knows gRPC's; [`ErrorClassifier`] takes any response for a success and knows
//! transport errors; a closure does whatever it does. An [`AttemptTimedOut`](crate::AttemptTimedOut)
//! is transient without any of them being asked.

mod error;
mod grpc;
mod http;
mod retry_after;
mod verdict;

pub use self::error::{ErrorClassifier, never_left};
pub use self::grpc::GrpcClassifier;
pub use self::http::HttpClassifier;
pub use self::verdict::{AttemptError, AttemptResult, Classify, Verdict};

pub(crate) use self::error::{is_peers_timeout, verdict_of, verdict_of_error};
pub(crate) use self::grpc::code as grpc_code;

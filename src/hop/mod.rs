//! Deadlines that travel.
//!
//! A service that has 200 ms left must not ask another for work that takes ten seconds, and that other
//! one has no way to know unless it is told. [`PropagateLayer`] tells it: how long each attempt is
//! waited for, how much the work matters, and whether the request may be sent again.
//! [`InheritLayer`] listens: it puts what the caller said in place for the handler and the calls that
//! it makes, answers what nobody waits for any longer, and trusts no caller further than it is told to.
//!
//! What ends a call here is told to the caller by an [`Answer`]: as a problem document, or as a gRPC
//! status. [`AnswerErrorsLayer`] does so for every error.

mod answer;
mod answer_body;
mod answer_errors;
#[cfg(feature = "axum")]
mod axum;
mod deadline_header;
mod headers;
mod inherit;
mod propagate;
mod protocol;
#[cfg(feature = "tonic")]
mod tonic;

pub use self::answer::Answer;
pub use self::answer_body::AnswerBody;
pub use self::answer_errors::{AnswerErrors, AnswerErrorsFuture, AnswerErrorsLayer};
pub use self::deadline_header::{DeadlineHeader, Malformed};
pub use self::headers::HopHeaders;
pub use self::inherit::{Inherit, InheritFuture, InheritLayer, Inherited};
pub use self::propagate::{Propagate, PropagateFuture, PropagateLayer};
pub use self::protocol::Protocol;

pub(crate) use self::propagate::Sent;

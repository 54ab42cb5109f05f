//! Another attempt, when it can help and does no harm.
//!
//! [`RetryLayer`] belongs beneath [`DeadlineLayer`](crate::DeadlineLayer) and above
//! [`AttemptTimeoutLayer`](crate::AttemptTimeoutLayer). After each attempt it asks, in this order: did
//! it succeed, was it the deadline, is the failure permanent, are the attempts spent, can the request
//! be sent again, is there time, does the budget allow it; and sleeps only then. When it stops and
//! the last attempt has a response, that response is returned, whatever stopped it.
//!
//! The parts: [`Backoff`] says how long to wait, [`RetryBudget`] how many retries a dependency gets,
//! a classifier ([`Classify`](crate::Classify)) which results are failures, [`CopyRequest`] how a
//! request is copied, [`Repeatable`] which requests may be sent twice.

mod backoff;
mod budget;
mod copy;
mod decision;
mod future;
mod layer;
mod outcome;
mod repeatable;
mod sending;
mod service;

pub use self::backoff::{Backoff, Jitter};
pub use self::budget::RetryBudget;
pub use self::copy::{CloneRequest, CopyRequest, NeverCopy};
pub use self::future::RetryFuture;
pub use self::layer::RetryLayer;
pub use self::repeatable::{AnyRequest, ByMethod, Repeat, Repeatable};
pub use self::service::Retry;

pub(crate) use self::budget::fraction_problems;
pub(crate) use self::decision::slept;
pub(crate) use self::layer::attempts_problems;

//! The numbers of a call as one value: checked when it compiles, able to explain itself, and able to
//! build the whole stack.
//!
//! [`CallPolicy`] holds what the layers would be configured with one by one, so that no two of them
//! can disagree and their order cannot be wrong. [`CallPolicy::layer`] builds the stack for HTTP,
//! [`CallPolicy::layer_for`] the one for any other kind of request;
//! [`CallPolicy::explain`] says how long a call takes at most, and why.

mod body;
mod check;
#[cfg(feature = "serde")]
pub mod config;
mod const_text;
mod explain;
mod http_layer;
mod http_service;
mod layer;
mod plain;
mod report;
mod service;
mod validation;
mod value;

pub use self::body::{AttemptBody, CallBody};
pub use self::explain::{
    AttemptStep, BackoffStep, End, Explanation, FirstBound, Load, MeasuredTerms, Step, Walk,
};
pub use self::http_layer::HttpCallLayer;
pub use self::http_service::{HttpCall, HttpCallFuture};
pub use self::layer::CallLayer;
pub use self::service::{Call, CallFuture};
pub use self::validation::{PolicyError, Problem};
pub use self::value::{BudgetTerms, CallPolicy};

pub(crate) use self::const_text::ConstText;
pub(crate) use self::validation::{Problems, Value};

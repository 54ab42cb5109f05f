//! What happened in a call, for whoever listens.
//!
//! Every layer has `on_event`. The layer that opened the call, the outermost one as a rule, raises
//! exactly one terminal event a call, or one [`Cancelled`](EventKind::Cancelled) when its future is
//! dropped; the others raise what they alone see. Where nobody listens, nothing is raised, and no
//! clock is read for it.

mod kind;
mod listener;
mod once;

pub use self::kind::{Event, EventKind, StopReason};
pub use self::listener::Listener;

pub(crate) use self::listener::Listeners;
pub(crate) use self::once::first_time;

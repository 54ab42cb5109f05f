//! What the layers promise, with scripted services under paused time.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::large_types_passed_by_value, // a policy, as its users do
    clippy::items_after_statements,
    clippy::unwrap_used
)]

mod alone;
mod attempt_timeout;
mod backoff;
mod between;
mod budget;
mod buffer;
mod copies;
mod deadline;
mod deadline_body;
mod drops;
mod events;
mod hostile;
mod late;
mod layers;
mod moved;
mod orders;
mod outcome;
mod overrides;
mod progress;
mod progress_body;
mod random;
mod readiness;
mod retry;
mod retry_after;
mod scope;
mod sequence;
mod stacks;
mod support;
mod timers;
mod whose;

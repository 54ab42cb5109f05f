//! What the layers promise, kept by the stack that a policy assembles: tests of `tests/rules` once more,
//! with other layers.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::large_types_passed_by_value, // a policy, as its users do
    clippy::items_after_statements,
    clippy::unwrap_used
)]

mod layers;

#[path = "../rules/attempt_timeout.rs"]
mod attempt_timeout;
#[path = "../rules/backoff.rs"]
mod backoff;
#[path = "../rules/budget.rs"]
mod budget;
#[path = "../rules/buffer.rs"]
mod buffer;
#[path = "../rules/copies.rs"]
mod copies;
#[path = "../rules/deadline.rs"]
mod deadline;
#[path = "../rules/deadline_body.rs"]
mod deadline_body;
#[path = "../rules/drops.rs"]
mod drops;
#[path = "../rules/events.rs"]
mod events;
#[path = "../rules/hostile.rs"]
mod hostile;
#[path = "../rules/late.rs"]
mod late;
#[path = "../rules/moved.rs"]
mod moved;
#[path = "../rules/outcome.rs"]
mod outcome;
#[path = "../rules/overrides.rs"]
mod overrides;
#[path = "../rules/progress.rs"]
mod progress;
#[path = "../rules/random.rs"]
mod random;
#[path = "../rules/readiness.rs"]
mod readiness;
#[path = "../rules/retry.rs"]
mod retry;
#[path = "../rules/retry_after.rs"]
mod retry_after;
#[path = "../rules/scope.rs"]
mod scope;
#[path = "../rules/sequence.rs"]
mod sequence;
#[path = "../rules/support.rs"]
#[allow(dead_code)] // what only the tests composed by hand need
mod support;
#[path = "../rules/timers.rs"]
mod timers;
#[path = "../rules/whose.rs"]
mod whose;

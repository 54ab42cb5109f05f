//! Deadlines that travel, with scripted services under paused time.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::items_after_statements,
    clippy::large_types_passed_by_value, // a policy, as its users do
    clippy::panic,
    clippy::unwrap_used,
    missing_docs
)]

#[path = "../rules/support.rs"]
#[allow(dead_code)] // what the other suite needs
mod support;

mod answers;
mod chains;
mod inbound;
mod left;
mod outbound;
mod peers;

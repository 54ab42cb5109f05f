//! The numbers of a call as one value: what it says of itself, and the stack that it builds.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::large_types_passed_by_value, // a policy, as its users do
    clippy::panic,
    missing_docs
)]

#[path = "../rules/support.rs"]
#[allow(dead_code)] // what the other suite needs
mod support;

mod arithmetic;
mod compile;
mod config;
mod latest;
mod overrides;
mod stack;
mod traps;

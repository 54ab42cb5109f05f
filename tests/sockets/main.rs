//! The layers over real sockets, clients and servers, in real time.
//!
//! Time is never paused here: with a socket in the runtime every timeout would fire at once. So that
//! they hold on a slow machine, the tests assert what came in which order, how often, and no sooner
//! than when.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]
#![allow(clippy::large_types_passed_by_value)] // a policy, as its users do

mod buffering;
mod connections;
mod errors;
mod grpc;
mod grpc_support;
mod hops;
mod http2;
mod reqwest_errors;
mod resending;
mod retrying;
mod serving;
mod support;
mod waiting;
mod wrapping;

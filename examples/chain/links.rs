//! The two chains through which a deadline travels, and in which a call is given up.

use std::time::Duration;

use tower_deadline::CallPolicy;

use crate::chain::Link;
use crate::hop::Speaks::{self, Grpc, Http};

/// What the services call each other with: no numbers of their own but the preset's.
const INSIDE: CallPolicy = CallPolicy::http()
    .inherit(true)
    .propagate_deadline(true)
    .checked();
const INSIDE_GRPC: CallPolicy = CallPolicy::grpc().inherit(true).checked();

/// All of them speak HTTP. Each works for `work`, the last one for `last`.
pub(crate) const fn http(client: &'static CallPolicy, work: Duration, last: Duration) -> [Link; 3] {
    [
        link("http/edge", Http, client, work),
        link("http/middle", Http, &INSIDE, work),
        link("http/bottom", Http, &INSIDE, last),
    ]
}

/// The same with gRPC in the middle.
pub(crate) const fn grpc(client: &'static CallPolicy, work: Duration, last: Duration) -> [Link; 3] {
    [
        link("grpc/edge", Http, client, work),
        link("grpc/middle", Grpc, &INSIDE_GRPC, work),
        link("grpc/bottom", Http, &INSIDE, last),
    ]
}

const fn link(
    name: &'static str,
    speaks: Speaks,
    called_with: &'static CallPolicy,
    work: Duration,
) -> Link {
    Link {
        name,
        speaks,
        called_with,
        work,
    }
}

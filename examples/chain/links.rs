//! The two chains through which a deadline travels, and in which a call is given up.

use std::time::Duration;

use tower_deadline::CallPolicy;

use crate::chain::Link;
use crate::hop::Speaks::{Grpc, Http};

/// How long the client waits.
pub(crate) const DEADLINE: Duration = Duration::from_secs(1);

const CLIENT: CallPolicy = CallPolicy::http()
    .deadline(DEADLINE)
    .propagate_deadline(true)
    .checked();
/// What the services call each other with: no numbers of their own but the preset's.
const INSIDE: CallPolicy = CallPolicy::http()
    .inherit(true)
    .propagate_deadline(true)
    .checked();
const INSIDE_GRPC: CallPolicy = CallPolicy::grpc().inherit(true).checked();

/// All of them speak HTTP, and work for `work` each; the last one for `last`.
pub(crate) const fn http(work: Duration, last: Duration) -> [Link; 3] {
    [
        link("http/edge", Http, CLIENT, work),
        link("http/middle", Http, INSIDE, work),
        link("http/bottom", Http, INSIDE, last),
    ]
}

/// The same with gRPC in the middle.
pub(crate) const fn grpc(work: Duration, last: Duration) -> [Link; 3] {
    [
        link("grpc/edge", Http, CLIENT, work),
        link("grpc/middle", Grpc, INSIDE_GRPC, work),
        link("grpc/bottom", Http, INSIDE, last),
    ]
}

const fn link(
    name: &'static str,
    speaks: crate::hop::Speaks,
    called_with: CallPolicy,
    work: Duration,
) -> Link {
    Link {
        name,
        speaks,
        called_with,
        work,
    }
}

//! What is said of a policy when its layer is made.

use super::value::CallPolicy;
use crate::event::first_time;

/// Reports what is wrong with a policy that nobody checked, and what is odd about it: once for each
/// policy.
pub(super) fn once(policy: &CallPolicy) {
    let error = policy.validate().err();
    let warning = policy.warning();
    if error.is_none() && warning.is_none() {
        return;
    }
    if !first_time(format!("{error:?} {warning:?}")) {
        return;
    }
    if let Some(error) = error {
        tracing::error!(target: "tower_deadline", %error, "a policy that is refused is in use");
    }
    if let Some(problem) = warning {
        tracing::warn!(
            target: "tower_deadline",
            %problem,
            "an attempt timeout can never end an attempt; lower it, or let the deadline be the only bound"
        );
    }
}

/// Reports settings that mean nothing for a service that is not HTTP.
pub(super) fn http_only_once(policy: &CallPolicy) {
    let unused: Vec<_> = [
        ("bound_progress", policy.written.bound_progress),
        ("buffer_responses", policy.buffering.is_some()),
        ("bound_body", policy.bound_body),
        ("retry_unsafe_methods", policy.retry_unsafe_methods),
    ]
    .into_iter()
    .filter_map(|(name, written)| written.then_some(name))
    .collect();
    if !unused.is_empty() && first_time(("only HTTP", &unused)) {
        tracing::error!(
            target: "tower_deadline",
            settings = unused.join(", "),
            "a policy has settings that have no effect on a service that is not HTTP"
        );
    }
}

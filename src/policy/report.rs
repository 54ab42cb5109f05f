//! What is said of a policy when its layer is made.

use super::value::CallPolicy;
use crate::call::is_overridden;
use crate::event::first_time;

/// Reports what is wrong with a policy that nobody checked, and what is odd about it: each thing once.
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
            "an attempt timeout can never end an attempt; it bounds the gaps in the body all the same"
        );
    }
}

/// An override that is put in force around the future of a call that has been made, of a policy that bounds
/// nothing: there is nothing in place that could obey it.
#[inline]
pub(super) fn overridden_too_late(looked: &mut bool) {
    if !std::mem::replace(looked, true) && is_overridden() && first_time("overridden too late") {
        tracing::warn!(
            target: "tower_deadline",
            "an override came into force after the call of a policy that bounds nothing, and is not obeyed: \
             put it into the request's extensions, or around the call"
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
        ("mark_retries", policy.written.mark_retries),
        ("propagate_deadline", policy.sent.deadline),
        ("propagate_criticality", policy.sent.criticality),
        ("hop_headers", policy.written.hop_headers),
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

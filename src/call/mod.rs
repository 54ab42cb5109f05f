//! What the code inside a call can ask of it, and how work is tied to a call or untied from it.
//!
//! The layers of a call share a *scope*: the deadline, the attempt, the overrides, the log of what
//! failed. It is a task-local, in place while a layer polls what is beneath it, so the innermost
//! service and whatever it awaits can read it, with any request type.
//!
//! What is *offered* ([`with_deadline`], and what a server's caller sent) bounds nothing by itself: it
//! shows in [`remaining`], and binds a [`DeadlineLayer`](crate::DeadlineLayer) that is told to
//! [`inherit`](crate::DeadlineLayer::inherit). The deadline of an enclosing call always binds.
//!
//! A spawned task has no scope. [`carry`] takes it there; [`detach`] leaves it behind on purpose.

mod ambient;
mod criticality;
mod host;
mod log;
mod opened;
mod order;
mod override_layer;
mod overrides;
mod pooled;
mod scope;
mod waiting;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

pub use self::ambient::{Offering, Scoped, WithOverride};
pub use self::criticality::Criticality;
pub use self::log::{Attempt, AttemptLog, Bound, DeadlineOrigin, Phase};
pub use self::override_layer::{Override, OverrideFuture, OverrideLayer};
pub use self::overrides::{CallOverride, Setting};

pub(crate) use self::ambient::{Offer, is_overridden, overriding};
pub(crate) use self::host::Guest;
pub(crate) use self::opened::{FreshClock, Judged, Membership, Opened, keep_last_log};
pub(crate) use self::order::Trap;
pub(crate) use self::pooled::{Entered, with_current};
pub(crate) use self::scope::{
    Ceiling, Ending, Failures, Refined, RetryPart, Scope, refine, with_call,
};
pub(crate) use self::waiting::{
    Waited, tell_of_ceilings, told_of_ceilings, waited_for, waiting_until,
};

/// The time that is left: until the deadline of the call that this code runs in, or until what was
/// offered, whichever ends first. Zero when it is over, `None` when nothing bounds this work.
///
/// ```
/// use std::time::Duration;
/// use tower_deadline::call;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// assert_eq!(call::remaining(), None);
/// call::with_deadline(Duration::from_millis(200), async {
///     tokio::time::sleep(Duration::from_millis(50)).await;
///     assert_eq!(call::remaining(), Some(Duration::from_millis(150)));
/// })
/// .await;
/// # }
/// ```
#[must_use]
pub fn remaining() -> Option<Duration> {
    let until = with_current(|scope| crate::deadline::earlier(scope.deadline, scope.offered))?;
    Some(until.saturating_duration_since(Instant::now()))
}

/// The number of the attempt that this code runs in; the first is 1. `None` outside a call.
#[must_use]
pub fn attempt() -> Option<u32> {
    with_current(|scope| (scope.call && scope.attempt > 0).then_some(scope.attempt))
}

/// Whether this code runs on behalf of a client that may send the same request again.
#[must_use]
pub fn inside_retry() -> bool {
    with_current(|scope| scope.inside_retry || scope.retrying)
}

/// The attempts of the call that this thread saw fail last, when nothing has succeeded since.
///
/// An error of the inner service that ends a call is returned as it is and cannot carry the log.
/// Ask here at once after the `await` that returned the error: the answer belongs to the thread, and
/// the next call that ends on it replaces it.
#[must_use]
pub fn last_log() -> Option<AttemptLog> {
    opened::last_log()
}

/// How much the work matters that this code does: what [`with_criticality`] said, else
/// [`Criticality::Critical`].
#[must_use]
pub fn criticality() -> Criticality {
    with_current(|scope| scope.criticality)
}

/// Says how much the work inside `future` matters.
///
/// ```
/// use tower_deadline::{Criticality, call};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// assert_eq!(call::criticality(), Criticality::Critical);
/// call::with_criticality(Criticality::Sheddable, async {
///     assert_eq!(call::criticality(), Criticality::Sheddable);
/// })
/// .await;
/// # }
/// ```
pub fn with_criticality<F: Future>(criticality: Criticality, future: F) -> Offering<F> {
    Offering::mattering(criticality, future)
}

/// Offers a deadline to the calls inside `future`: the work is wanted for `remaining` from now.
///
/// For code that knows how long somebody waits and is no HTTP handler: a queue consumer, a job, a
/// test. Inside another offer the earlier of the two holds. It bounds a
/// [`DeadlineLayer`](crate::DeadlineLayer) with [`inherit(true)`](crate::DeadlineLayer::inherit), and
/// does not cut `future` itself.
pub fn with_deadline<F: Future>(remaining: Duration, future: F) -> Offering<F> {
    Offering::for_so_long(remaining, future)
}

/// Gives the calls inside `future` their own numbers.
///
/// ```
/// # use std::time::Duration;
/// # use tower::{ServiceBuilder, ServiceExt, service_fn};
/// # use tower_deadline::{BoxError, CallOverride, DeadlineExceeded, DeadlineLayer, call};
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let stack = ServiceBuilder::new()
///     .layer(DeadlineLayer::new(Duration::from_secs(1)))
///     .service(service_fn(|wait: Duration| async move {
///         tokio::time::sleep(wait).await;
///         Ok::<_, BoxError>("done")
///     }));
///
/// let slow = stack.oneshot(Duration::from_secs(5));
/// let patient = CallOverride::new().deadline(Duration::from_secs(10));
/// assert_eq!(call::with_override(patient, slow).await.unwrap(), "done");
/// # }
/// ```
pub fn with_override<F: Future>(
    overrides: impl Into<Arc<CallOverride>>,
    future: F,
) -> WithOverride<F> {
    WithOverride::new(overrides.into(), future)
}

/// Runs `future` outside any call: no deadline, nothing offered, no override.
///
/// For work that outlives the request that caused it, such as a write that has to be finished.
pub fn detach<F: Future>(future: F) -> Scoped<F> {
    Scoped::detached(future)
}

/// Takes the scope of the call that this code runs in along with `future`, into a task of its own.
///
/// The facts are taken at this moment. The deadline goes with them and binds the calls that `future`
/// makes; nothing cuts `future` itself when its caller has left.
///
/// ```
/// # use std::time::Duration;
/// # use tower_deadline::call;
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// call::with_deadline(Duration::from_millis(200), async {
///     let lost = tokio::spawn(async { call::remaining() });
///     let kept = tokio::spawn(call::carry(async { call::remaining() }));
///     assert_eq!(lost.await.unwrap(), None);
///     assert_eq!(kept.await.unwrap(), Some(Duration::from_millis(200)));
/// })
/// .await;
/// # }
/// ```
pub fn carry<F: Future>(future: F) -> Scoped<F> {
    Scoped::carrying(future)
}

//! What was measured, for whoever wants to know.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::attempt_ceiling::AttemptCeiling;
use crate::key::Key;
use crate::keyed::Keyed;
use crate::latency::{Estimate, Terms};

/// Reads what an [`AttemptTimeoutLayer`](super::AttemptTimeoutLayer) has measured, for each
/// dependency.
///
/// It belongs to the layer and to every service made from it; another layer measures for itself. A
/// layer that is made anew for each request never gets warm.
///
/// ```
/// use std::time::Duration;
/// use tower::{Layer, ServiceExt, service_fn};
/// use tower_deadline::{AttemptCeiling, AttemptTimeoutLayer, BoxError, Key};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let layer = AttemptTimeoutLayer::new(Duration::from_secs(5)).ceiling(AttemptCeiling::above(3.0));
/// let measured = layer.measured().unwrap();
/// let stack = layer.layer(service_fn(|()| async {
///     tokio::time::sleep(Duration::from_millis(40)).await;
///     Ok::<_, BoxError>(())
/// }));
///
/// for _ in 0..20 {
///     assert_eq!(measured.ceiling(Key::SHARED), None);
///     stack.clone().oneshot(()).await.unwrap();
/// }
/// assert_eq!(measured.samples(Key::SHARED), 20);
/// assert_eq!(measured.median(Key::SHARED), Some(Duration::from_millis(40)));
/// assert_eq!(measured.ceiling(Key::SHARED), Some(Duration::from_millis(120)));
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Measured(Arc<Estimates>);

/// An estimate for each dependency.
#[derive(Debug)]
struct Estimates {
    terms: Terms,
    keyed: Keyed<Estimate>,
}

impl Measured {
    pub(super) fn new(ceiling: &AttemptCeiling) -> Self {
        let terms = ceiling.usable();
        Self(Arc::new(Estimates {
            terms,
            keyed: Keyed::new(Estimate::new(terms, Instant::now())),
        }))
    }

    pub(super) fn estimate(&self, key: Key) -> Arc<Estimate> {
        let estimates = &self.0;
        estimates
            .keyed
            .get(key, || Estimate::new(estimates.terms, Instant::now()))
    }

    /// The measured ceiling of attempts to this dependency now, before the attempt timeout clamps it:
    /// a value above the attempt timeout says that the timeout is what bounds them. `None` while there
    /// are too few samples.
    #[must_use]
    pub fn ceiling(&self, key: Key) -> Option<Duration> {
        let now = Instant::now();
        self.0.keyed.peek(key, |e| e.ceiling(now)).flatten()
    }

    /// The recent median latency. `None` while there are too few samples.
    #[must_use]
    pub fn median(&self, key: Key) -> Option<Duration> {
        let now = Instant::now();
        self.0.keyed.peek(key, |e| e.median(now)).flatten()
    }

    /// How many samples the window holds. Samples are counted when they are merged: at once while
    /// there are few, within a second of the next attempt when there are many.
    #[must_use]
    pub fn samples(&self, key: Key) -> u64 {
        self.0.keyed.peek(key, Estimate::samples).unwrap_or(0)
    }

    /// How many samples came faster than they could be merged and were left out.
    #[must_use]
    pub fn lost(&self, key: Key) -> u64 {
        self.0.keyed.peek(key, Estimate::lost).unwrap_or(0)
    }

    /// Whether the ceiling was let go because it cut too much, and is not warm again.
    #[must_use]
    pub fn is_suspended(&self, key: Key) -> bool {
        self.0
            .keyed
            .peek(key, Estimate::is_suspended)
            .unwrap_or(false)
    }
}

//! How late this machine is.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

/// Watches how late timers fire, which tells a busy machine from a broken promise.
#[derive(Debug)]
pub(crate) struct Lateness {
    worst: Arc<AtomicU64>,
    watching: JoinHandle<()>,
}

impl Lateness {
    pub(crate) fn watch() -> Self {
        let worst = Arc::new(AtomicU64::new(0));
        let watched = Arc::clone(&worst);
        let watching = tokio::spawn(async move {
            loop {
                let due = Instant::now() + Duration::from_millis(5);
                sleep_until(due).await;
                let late = Instant::now().saturating_duration_since(due).as_millis();
                let late = u64::try_from(late).unwrap_or(u64::MAX);
                watched.fetch_max(late, Ordering::Relaxed);
            }
        });
        Self { worst, watching }
    }

    /// The worst so far.
    pub(crate) fn worst(&self) -> Duration {
        Duration::from_millis(self.worst.load(Ordering::Relaxed))
    }
}

impl Drop for Lateness {
    fn drop(&mut self) {
        self.watching.abort();
    }
}

//! What the model saw and did, request by request.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::model_time::ModelTime;

/// One request as the model saw it. Times are in the model's seconds since the run began.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen {
    pub(crate) arrived: f64,
    /// When it wrote its last token so far.
    pub(crate) wrote: Option<f64>,
    pub(crate) tokens: u32,
    /// When the answer was done, or its client had left.
    pub(crate) ended: Option<f64>,
}

/// The model's own account of a run. A clone is the same ledger.
#[derive(Debug, Clone)]
pub(crate) struct Ledger {
    seen: Arc<Mutex<Vec<Seen>>>,
    began: Instant,
    time: ModelTime,
}

impl Ledger {
    pub(crate) fn new(time: ModelTime) -> Self {
        Self {
            seen: Arc::default(),
            began: Instant::now(),
            time,
        }
    }

    /// The model's seconds since the run began.
    pub(crate) fn now(&self) -> f64 {
        self.time.since(self.began)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Seen>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request has arrived.
    pub(crate) fn open(&self) -> Entry {
        let mut seen = self.lock();
        seen.push(Seen {
            arrived: self.now(),
            wrote: None,
            tokens: 0,
            ended: None,
        });
        Entry {
            number: seen.len() - 1,
            ledger: self.clone(),
        }
    }

    /// Every request, once the model has let go of the last one. It notices that a client has left
    /// when it looks at the connection; half a second is more than enough for that.
    pub(crate) async fn close(&self) -> Vec<Seen> {
        for _ in 0..500 {
            if self.lock().iter().all(|seen| seen.ended.is_some()) {
                break;
            }
            sleep(Duration::from_millis(1)).await;
        }
        self.lock().clone()
    }
}

/// One request's line in the ledger, closed when it is dropped.
#[derive(Debug)]
pub(crate) struct Entry {
    number: usize,
    ledger: Ledger,
}

impl Entry {
    /// 0 for the first request.
    pub(crate) fn number(&self) -> usize {
        self.number
    }

    /// A token was written.
    pub(crate) fn token(&self) {
        let now = self.ledger.now();
        if let Some(seen) = self.ledger.lock().get_mut(self.number) {
            seen.tokens += 1;
            seen.wrote = Some(now);
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let now = self.ledger.now();
        if let Some(seen) = self.ledger.lock().get_mut(self.number) {
            seen.ended = Some(now);
        }
    }
}

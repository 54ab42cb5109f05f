//! The model's seconds, and how they are turned into real ones.

use std::time::Duration;

use tokio::time::Instant;

/// Turns the durations that a run is described in into the shorter ones that it really takes.
///
/// Everything that waits goes through here: the model, both stacks, the watchdog.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ModelTime {
    speed: u32,
}

impl ModelTime {
    pub(crate) fn new(speed: u32) -> Self {
        Self { speed }
    }

    /// How long `model` takes in this lab.
    pub(crate) fn real(self, model: Duration) -> Duration {
        model / self.speed
    }

    /// How long `real` is to the model, in seconds.
    pub(crate) fn model_seconds(self, real: Duration) -> f64 {
        real.as_secs_f64() * f64::from(self.speed)
    }

    /// The model's seconds from `start` to now.
    pub(crate) fn since(self, start: Instant) -> f64 {
        self.model_seconds(Instant::now().saturating_duration_since(start))
    }
}

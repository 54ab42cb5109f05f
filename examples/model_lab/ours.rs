//! The stack of this crate, one policy for the call.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tower::{Layer, ServiceBuilder};
use tower_deadline::{
    AttemptTimeoutLayer, Backoff, BufferResponsesLayer, CallOverride, DeadlineLayer, Event,
    EventKind, OverrideLayer, ProgressBoundLayer, RetryLayer,
};

use crate::client::{self, Client, boxed};
use crate::model_time::ModelTime;

/// The numbers of one policy.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ours {
    pub(crate) deadline: Duration,
    pub(crate) attempt: Duration,
    /// Between two reads of the body.
    pub(crate) gap: Duration,
    /// Whether only lines that carry data are progress.
    pub(crate) content_only: bool,
    pub(crate) buffered: bool,
    pub(crate) retry_unsafe_methods: bool,
    /// What the request brings along.
    pub(crate) call: Call,
}

/// A call's own numbers, in place of the policy's.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Call {
    /// None.
    AsConfigured,
    /// Safe to send twice, although it is a POST.
    MayBeRepeated,
    /// Sized for the model, and sent once.
    Sized {
        deadline: Duration,
        attempt: Duration,
    },
}

impl Ours {
    /// Sized for the model: an attempt may take as long as the longest answer, and a POST is not
    /// repeated, which is the default.
    pub(crate) const FOR_THE_MODEL: Self = Self {
        deadline: Duration::from_secs(180),
        attempt: Duration::from_secs(90),
        gap: Duration::from_secs(90),
        content_only: false,
        buffered: false,
        retry_unsafe_methods: false,
        call: Call::AsConfigured,
    };

    /// The same for a stream, which shows sooner that nothing comes any more.
    pub(crate) const FOR_A_STREAM: Self = Self {
        gap: Duration::from_secs(15),
        ..Self::FOR_THE_MODEL
    };

    /// The numbers of a fleet's defaults, for quick calls.
    pub(crate) const DEFAULTS: Self = Self {
        deadline: Duration::from_secs(30),
        attempt: Duration::from_secs(10),
        gap: Duration::from_secs(10),
        ..Self::FOR_THE_MODEL
    };

    /// Builds it; `ended` counts the attempts that its events tell of.
    pub(crate) fn client(&self, time: ModelTime, ended: &Arc<AtomicU32>) -> Client {
        let progress = ProgressBoundLayer::new(time.real(self.gap));
        let mut client = if self.content_only {
            boxed(progress.progress_when(carries_data).layer(client::hyper()))
        } else {
            boxed(progress.layer(client::hyper()))
        };
        if self.buffered {
            client = boxed(BufferResponsesLayer::new().layer(client));
        }
        // The defaults, in the model's time.
        let backoff = Backoff::exponential()
            .base(time.real(Duration::from_millis(100)))
            .throttled_base(time.real(Duration::from_secs(1)))
            .cap(time.real(Duration::from_secs(30)));
        let ended = Arc::clone(ended);
        let count = move |event: &Event<'_>| {
            if event.kind == EventKind::Attempt {
                ended.fetch_add(1, Ordering::Relaxed);
            }
        };
        boxed(
            ServiceBuilder::new()
                .layer(OverrideLayer::new())
                .layer(DeadlineLayer::new(time.real(self.deadline)))
                .layer(
                    RetryLayer::http()
                        .attempts(3)
                        .backoff(backoff)
                        .retry_unsafe_methods(self.retry_unsafe_methods)
                        .on_event(count),
                )
                .layer(AttemptTimeoutLayer::http(time.real(self.attempt)))
                .service(client),
        )
    }
}

impl Call {
    pub(crate) fn overrides(self, time: ModelTime) -> Option<CallOverride> {
        let overrides = CallOverride::new();
        match self {
            Self::AsConfigured => None,
            Self::MayBeRepeated => Some(overrides.retry()),
            Self::Sized { deadline, attempt } => Some(
                overrides
                    .deadline(time.real(deadline))
                    .attempt_timeout(time.real(attempt))
                    .no_retry(),
            ),
        }
    }
}

/// Whether a piece of an event stream has a line that is neither empty nor a comment.
fn carries_data(piece: &[u8]) -> bool {
    piece
        .split(|byte| *byte == b'\n')
        .any(|line| !line.is_empty() && !line.starts_with(b":"))
}

//! How buffering is configured.

use tower_layer::Layer;

use super::service::BufferResponses;
use crate::event::{Listener, Listeners};

/// Reads the response body, trailers included, before the response is returned.
///
/// Beneath [`AttemptTimeoutLayer`](crate::AttemptTimeoutLayer) the attempt then ends with its body:
/// attempt timeout and deadline bound the total, and a body that stalls or breaks off is a failed
/// attempt, which [`RetryLayer`](crate::RetryLayer) may repeat. Whoever called sees the bytes of
/// exactly one attempt.
///
/// A body larger than [`max_bytes`](Self::max_bytes) (2 MiB by default) is not cut: it is handed over
/// live, what was read first, the rest as it arrives. Such a response is not retried any more, and
/// the event [`BufferSpilled`](crate::EventKind::BufferSpilled) says so. Nothing is allocated ahead
/// for what a `Content-Length` promises.
///
/// Trailers are in the body and also, as [`BufferedTrailers`](super::BufferedTrailers), in the
/// response's extensions, where a classifier can see them.
///
/// The error type is [`BoxError`](crate::BoxError).
///
/// ```
/// use std::time::Duration;
/// use http::{Request, Response};
/// use http_body_util::{BodyExt, Full};
/// use tower::{ServiceBuilder, ServiceExt, service_fn};
/// use tower_deadline::{AttemptTimeoutLayer, BoxError, BufferResponsesLayer, RetryLayer};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let stack = ServiceBuilder::new()
///     .layer(RetryLayer::http())
///     .layer(AttemptTimeoutLayer::http(Duration::from_secs(10)))
///     .layer(BufferResponsesLayer::new().max_bytes(64 * 1024))
///     .service(service_fn(|_: Request<()>| async {
///         Ok::<_, BoxError>(Response::new(Full::<bytes::Bytes>::from("all of it")))
///     }));
/// let response = stack.oneshot(Request::new(())).await.unwrap();
/// assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "all of it");
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct BufferResponsesLayer {
    pub(super) max_bytes: Option<usize>,
    pub(super) listeners: Listeners,
}

impl BufferResponsesLayer {
    const MAX_BYTES: usize = 2 * 1024 * 1024;

    /// Buffers bodies of up to 2 MiB.
    pub const fn new() -> Self {
        Self {
            max_bytes: Some(Self::MAX_BYTES),
            listeners: Listeners::NONE,
        }
    }

    /// Buffers nothing, but for calls whose [`CallOverride`](crate::CallOverride) asks for it.
    pub const fn on_request() -> Self {
        Self {
            max_bytes: None,
            listeners: Listeners::NONE,
        }
    }

    /// Buffers bodies of up to so many bytes, those of trailers included.
    pub const fn max_bytes(mut self, max_bytes: usize) -> Self {
        self.max_bytes = Some(max_bytes);
        self
    }

    /// Tells `listener` of bodies that were too large. May be called several times.
    pub fn on_event(mut self, listener: impl Listener + 'static) -> Self {
        self.listeners.add(listener);
        self
    }

    /// Tells these listeners, and no others.
    pub(crate) fn told_to(mut self, listeners: &Listeners) -> Self {
        self.listeners = listeners.clone();
        self
    }
}

impl Default for BufferResponsesLayer {
    fn default() -> Self {
        Self::new()
    }
}

impl<S> Layer<S> for BufferResponsesLayer {
    type Service = BufferResponses<S>;

    fn layer(&self, inner: S) -> BufferResponses<S> {
        BufferResponses {
            inner,
            config: self.clone(),
        }
    }
}

//! The service that starts the clock of an attempt.

use std::task::{Context, Poll};

use tokio::time::Instant;
use tower_service::Service;

use super::future::AttemptTimeoutFuture;
use super::layer::AttemptTimeoutLayer;
use crate::call::{Membership, with_current};
use crate::classify::{Classify, ErrorClassifier};
use crate::error::BoxError;

/// The service of [`AttemptTimeoutLayer`].
#[derive(Debug, Clone)]
pub struct AttemptTimeout<S, C = ErrorClassifier> {
    pub(super) inner: S,
    pub(super) config: AttemptTimeoutLayer<C>,
}

impl<S, C, Request> Service<Request> for AttemptTimeout<S, C>
where
    S: Service<Request>,
    S::Error: Into<BoxError>,
    C: Classify<S::Response> + Clone,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = AttemptTimeoutFuture<S::Future, C>;

    /// Readiness is back-pressure, which belongs to the caller: no timeout comes out of here.
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        // The layer that opened the call, or began this attempt, has just read the clock.
        let read =
            with_current(|scope| scope.attempt_started.filter(|_| scope.call && scope.fresh));
        let started = read.unwrap_or_else(Instant::now);
        let mut call = Membership::new(&self.config.listeners, started, |_| true);
        let inner = call.enter_call(|| self.inner.call(request));
        AttemptTimeoutFuture::new(inner, call, started, self.config.clone())
    }
}

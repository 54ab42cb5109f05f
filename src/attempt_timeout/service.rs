//! The service that starts the clock of an attempt.

use std::task::{Context, Poll};

use tokio::time::Instant;
use tower_service::Service;

use super::future::{AttemptTimeoutFuture, Terms};
use super::layer::AttemptTimeoutLayer;
use crate::call::{FreshClock, Membership, Scope, with_current};
use crate::classify::{Classify, ErrorClassifier};
use crate::error::BoxError;
use crate::key::{KeyOf, OneDependency};

/// The service of [`AttemptTimeoutLayer`].
#[derive(Debug, Clone)]
pub struct AttemptTimeout<S, C = ErrorClassifier, K = OneDependency> {
    pub(crate) inner: S,
    pub(super) config: AttemptTimeoutLayer<C, K>,
}

impl<S, C, K, Request> Service<Request> for AttemptTimeout<S, C, K>
where
    S: Service<Request>,
    S::Error: Into<BoxError>,
    C: Classify<S::Response> + Clone,
    K: KeyOf<Request>,
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
        let config = &self.config;
        let bounds = config.timeout.is_some() || config.measured.is_some();
        let joins = |scope: &mut Scope| Terms::<C>::join(scope, bounds);
        let mut call = Membership::new(&config.listeners, started, joins);
        if let Membership::Own(opened) = &mut call {
            joins(&mut opened.scope);
        }
        let terms = Terms {
            timeout: config.timeout,
            classifier: config.classifier.clone(),
            listeners: config.listeners.clone(),
            measuring: config.measured.as_ref().map(|measured| {
                let estimate = measured.estimate(config.key.key_of(&request));
                (estimate.generation(), estimate)
            }),
        };
        let entered = call.enter();
        let fresh = FreshClock::begin();
        let inner = self.inner.call(request);
        drop((fresh, entered));
        AttemptTimeoutFuture::new(inner, call, started, terms)
    }
}

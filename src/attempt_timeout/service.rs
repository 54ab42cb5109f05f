//! The service that starts the clock of an attempt.

use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::Instant;
use tower_service::Service;

use super::future::{AttemptTimeoutFuture, Ceiling, Terms};
use super::measured::Measured;
use crate::call::{FreshClock, Guest, Membership, Scope, with_current};
use crate::classify::{Classify, ErrorClassifier};
use crate::error::BoxError;
use crate::event::Listeners;
use crate::key::{KeyOf, OneDependency};
use crate::timer::Timer;

/// The service of [`AttemptTimeoutLayer`](super::AttemptTimeoutLayer).
#[derive(Debug, Clone)]
pub struct AttemptTimeout<S, C = ErrorClassifier, K = OneDependency> {
    pub(crate) inner: S,
    pub(super) timeout: Option<Duration>,
    pub(super) classifier: C,
    pub(super) key: K,
    pub(super) measured: Option<Measured>,
    pub(super) listeners: Listeners,
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

    #[inline]
    fn call(&mut self, request: Request) -> Self::Future {
        // The layer that opened the call, or began this attempt, has just read the clock; and its reading
        // serves what is beneath as well.
        let bounds = self.timeout.is_some() || self.measured.is_some();
        let joins = |scope: &mut Scope| Terms::<C>::join(scope, bounds);
        let (joined, read) = with_current(|scope| {
            if scope.call {
                joins(scope);
            }
            (
                scope.call,
                scope.attempt_started.filter(|_| scope.in_stack()),
            )
        });
        let started = read.unwrap_or_else(Instant::now);
        let mut call = if joined {
            Membership::Joined
        } else {
            Membership::open(&self.listeners, started, true)
        };
        if let Membership::Own(opened) = &mut call {
            joins(&mut opened.scope);
        }
        let measuring = self.measured.as_ref().map(|measured| {
            let estimate = measured.estimate(self.key.key_of(&request));
            (estimate.generation(), estimate)
        });
        let terms = Terms {
            timeout: self.timeout,
            classifier: self.classifier.clone(),
            listeners: self.listeners.clone(),
            measuring,
        };
        // The inner future is made in its place, since it can be large; and where there is nothing to
        // enter, without a guard in between.
        if joined && read.is_some() {
            return AttemptTimeoutFuture {
                inner: Some(self.inner.call(request)),
                timer: Timer::default(),
                guest: Guest::default(),
                started,
                ceiling: Ceiling::NotYet,
                call,
                terms,
            };
        }
        AttemptTimeoutFuture {
            inner: Some({
                let _entered = call.enter();
                let _fresh = read.is_none().then(FreshClock::begin);
                self.inner.call(request)
            }),
            timer: Timer::default(),
            guest: Guest::default(),
            started,
            ceiling: Ceiling::NotYet,
            call,
            terms,
        }
    }
}

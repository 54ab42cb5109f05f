//! The service that starts the clock.

use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::Instant;
use tower_service::Service;

use super::bound::{Candidates, in_force};
use super::future::{Alarm, DeadlineFuture};
use super::layer::DeadlineLayer;
use crate::call::{DeadlineOrigin, Opened, Scope, Trap, with_current};
use crate::error::BoxError;
use crate::timer::Timer;

/// The service of [`DeadlineLayer`].
#[derive(Debug, Clone)]
pub struct Deadline<S> {
    pub(crate) inner: S,
    pub(super) config: DeadlineLayer,
}

impl<S, Request> Service<Request> for Deadline<S>
where
    S: Service<Request>,
    S::Error: Into<BoxError>,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = DeadlineFuture<S::Future>;

    /// Readiness is back-pressure, which belongs to the caller: no timeout comes out of here.
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    #[inline]
    fn call(&mut self, request: Request) -> Self::Future {
        if (self.config.bound.is_some() || self.config.inherit) && with_current(inside_retry) {
            Trap::DeadlineInsideRetry.report_once::<Self>();
        }
        let started = Instant::now();
        let mut call = Opened::open(self.config.listeners.clone(), started);
        let config = Config {
            own: self.config.bound,
            inherit: self.config.inherit,
        };
        config.apply(&mut call);
        if call.scope.never_begins() {
            return DeadlineFuture {
                inner: None,
                timer: Timer::default(),
                alarm: Alarm::default(),
                call,
                config,
            };
        }
        // The inner future is made in its place: it can be large.
        DeadlineFuture {
            inner: Some({
                let _entered = call.enter_call();
                self.inner.call(request)
            }),
            timer: Timer::default(),
            alarm: Alarm::default(),
            call,
            config,
        }
    }
}

fn inside_retry(scope: &mut Scope) -> bool {
    scope.in_stack() && scope.retrying
}

/// What a future needs of its layer: the deadline is looked at again when a scope turns up that was
/// not there in `call`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Config {
    own: Option<Duration>,
    inherit: bool,
}

impl Config {
    /// Puts the deadline into the scope of the call.
    #[inline]
    pub(super) fn apply(self, call: &mut Opened) {
        let scope = &mut *call.scope;
        let Some(started) = scope.started else {
            return;
        };
        scope.enforced = true;
        if scope.overrides.is_none() && scope.offered.is_none() && scope.deadline.is_none() {
            // As nearly always.
            scope.deadline = self.own.and_then(|own| started.checked_add(own));
            scope.origin = DeadlineOrigin::Own;
            return;
        }
        let candidates = Candidates {
            own: self.own,
            overriding: scope
                .overrides
                .as_ref()
                .map_or_else(Default::default, |o| o.deadline),
            inherited: scope.offered.filter(|_| self.inherit),
            enclosing: scope.deadline,
        };
        match in_force(started, candidates) {
            Some((at, origin)) => {
                scope.deadline = Some(at);
                scope.origin = origin;
            }
            None => scope.deadline = None,
        }
    }
}

//! The service that begins the first attempt.

use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::time::Instant;
use tower_service::Service;

use super::copy::{CloneRequest, CopyRequest};
use super::future::{RetryFuture, State};
use super::layer::Rules;
use super::repeatable::{AnyRequest, Repeatable};
use super::sending::Sending;
use crate::call::{FreshClock, Membership, Scope, Trap, with_current};
use crate::classify::{Classify, ErrorClassifier};
use crate::error::BoxError;
use crate::key::{KeyOf, OneDependency};

/// The service of [`RetryLayer`](super::RetryLayer).
#[derive(Debug)]
pub struct Retry<S, C = ErrorClassifier, Y = CloneRequest, K = OneDependency, R = AnyRequest> {
    pub(crate) inner: S,
    pub(super) rules: Arc<Rules<C, Y>>,
    pub(super) key: K,
    pub(super) repeatable: R,
}

// By hand: the rules are shared, so that neither classifier nor copier need be `Clone`.
impl<S: Clone, C, Y, K: Clone, R: Clone> Clone for Retry<S, C, Y, K, R> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            rules: Arc::clone(&self.rules),
            key: self.key.clone(),
            repeatable: self.repeatable.clone(),
        }
    }
}

impl<S, C, Y, K, R, Request> Service<Request> for Retry<S, C, Y, K, R>
where
    S: Service<Request> + Clone,
    S::Error: Into<BoxError>,
    C: Classify<S::Response>,
    Y: CopyRequest<Request>,
    K: KeyOf<Request>,
    R: Repeatable<Request>,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = RetryFuture<S, Request, C, Y>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    #[inline]
    fn call(&mut self, request: Request) -> Self::Future {
        let (key, repeat) = (self.key.key_of(&request), self.repeatable.repeat(&request));
        let around = with_current(Around::join);
        if self.rules.attempts > 1 {
            if around.nested && !self.rules.defer_to_caller {
                Trap::RetryInsideRetry.report_once::<Self>();
            }
            if around.bounded {
                Trap::RetryInsideAttempt.report_once::<Self>();
            }
        }
        // The layer that opened the call has just read the clock.
        let read = around.started;
        let started = read.unwrap_or_else(Instant::now);
        let call = if around.joined {
            Membership::Joined
        } else {
            Membership::open(&self.rules.listeners, started, !around.call)
        };
        let mut sending = Sending::new(call, started, key, repeat);
        sending.begin(&self.rules);
        let rules = Arc::clone(&self.rules);
        // Where the layer above reads the clock, the attempt is made in its place, since it can be large:
        // nothing may lie between its call and the future that holds it. So that layer takes the mark away
        // again.
        let in_place = around.joined && read.is_some();
        if in_place && !sending.may_repeat() {
            // Sent once.
            return RetryFuture {
                state: State::Attempt(self.inner.call(request)),
                service: None,
                copy: None,
                sending,
                rules,
            };
        }
        let copy = if sending.may_repeat() {
            rules.copy.copy(&request)
        } else {
            None
        };
        // This instance was readied, and is the one that is called. Where a retry can follow, a clone goes
        // along, which is readied when its turn comes.
        let service = copy.is_some().then(|| self.inner.clone());
        if in_place {
            sending.mark_in_stack();
            return RetryFuture {
                state: State::Attempt(self.inner.call(request)),
                service,
                copy,
                sending,
                rules,
            };
        }
        RetryFuture {
            state: State::Attempt({
                let _in_attempt = sending.enter_attempt();
                let _fresh = read.is_none().then(FreshClock::begin);
                self.inner.call(request)
            }),
            service,
            copy,
            sending,
            rules,
        }
    }
}

/// What is around when the first attempt is begun.
#[derive(Clone, Copy, Default)]
#[allow(clippy::struct_excessive_bools)] // facts that have nothing to do with each other
struct Around {
    /// There is a call.
    call: bool,
    /// It has been joined.
    joined: bool,
    /// When it began, if that was read just now.
    started: Option<Instant>,
    /// This is an attempt of a retry layer above.
    nested: bool,
    /// There is an attempt timeout above.
    bounded: bool,
}

impl Around {
    #[inline]
    fn join(scope: &mut Scope) -> Self {
        let in_stack = scope.in_stack();
        Self {
            call: scope.call,
            started: scope.started.filter(|_| in_stack),
            nested: in_stack && scope.retrying,
            bounded: in_stack && scope.attempt_bound && !scope.retrying,
            joined: scope.call && scope.join_as_retry(),
        }
    }
}

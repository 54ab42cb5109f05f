//! The service of a policy, for any kind of request.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project::pin_project;
use tower_service::Service;

use super::plain::Plain;
use crate::attempt_timeout::AttemptTimeout;
use crate::call::is_overridden;
use crate::classify::{Classify, ErrorClassifier};
use crate::deadline::{BoundReadiness, Deadline};
use crate::error::BoxError;
use crate::key::{KeyOf, Noted, Noting, OneDependency};
use crate::retry::{AnyRequest, CloneRequest, CopyRequest, Repeatable, Retry};

type Stack<S, C, Y, K, R> =
    Deadline<BoundReadiness<Retry<AttemptTimeout<S, C, Noted<K>>, C, Y, Noting<K>, R>>>;

/// The service of [`CallLayer`](super::CallLayer).
#[derive(Clone)]
pub struct Call<S, C = ErrorClassifier, Y = CloneRequest, K = OneDependency, R = AnyRequest> {
    pub(super) stack: Stack<S, C, Y, K, R>,
    pub(super) idle: bool,
}

impl<S: fmt::Debug, C, Y, K, R> fmt::Debug for Call<S, C, Y, K, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call")
            .field("inner", &self.stack.inner.inner.inner.inner)
            .finish_non_exhaustive()
    }
}

impl<S, C, Y, K, R, Request> Service<Request> for Call<S, C, Y, K, R>
where
    S: Service<Request> + Clone,
    S::Error: Into<BoxError>,
    C: Classify<S::Response> + Clone,
    Y: CopyRequest<Request> + Clone,
    K: KeyOf<Request> + Clone,
    R: Repeatable<Request> + Clone,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = CallFuture<S::Future, <Stack<S, C, Y, K, R> as Service<Request>>::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.stack.poll_ready(cx)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        if !self.idle || is_overridden() {
            return CallFuture(State::Stack(self.stack.call(request)));
        }
        // Readiness went down to this very service.
        let inner = self.stack.inner.inner.inner.inner.call(request);
        CallFuture(State::Plain(Plain::new(inner)))
    }
}

/// The future of [`Call`]. `F` is that of the inner service, `G` that of the stack.
#[pin_project]
#[must_use = "futures do nothing unless polled"]
pub struct CallFuture<F, G>(#[pin] State<F, G>);

#[pin_project(project = StateProj)]
pub(super) enum State<F, G> {
    /// The policy asks for nothing.
    Plain(#[pin] Plain<F>),
    Stack(#[pin] G),
}

impl<F, G> fmt::Debug for CallFuture<F, G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallFuture").finish_non_exhaustive()
    }
}

impl<F, G, Res, E> Future for CallFuture<F, G>
where
    F: Future<Output = Result<Res, E>>,
    G: Future<Output = Result<Res, BoxError>>,
    E: Into<BoxError>,
{
    type Output = Result<Res, BoxError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().0.project() {
            StateProj::Plain(plain) => plain.poll(cx),
            StateProj::Stack(stack) => stack.poll(cx),
        }
    }
}

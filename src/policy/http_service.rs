//! The service of a policy, for HTTP.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::{Request, Response};
use http_body::Body;
use pin_project::pin_project;
use tower_service::Service;

use super::body::{AttemptBody, CallBody};
use super::plain::Plain;
use crate::attempt_timeout::AttemptTimeout;
use crate::buffer::BufferResponses;
use crate::call::{CallOverride, is_overridden, overriding};
use crate::classify::{Classify, HttpClassifier};
use crate::deadline::{BoundReadiness, Deadline};
use crate::error::BoxError;
use crate::hop::Propagate;
use crate::key::{Authority, KeyOf, Noted, Noting};
use crate::progress::{AnyBytes, Progress, ProgressBound};
use crate::retry::{ByMethod, CloneRequest, CopyRequest, Repeatable, Retry};

type Attempt<S, C, K, P> =
    AttemptTimeout<Propagate<BufferResponses<ProgressBound<S, P>>>, C, Noted<K>>;

type Stack<S, C, Y, K, R, P> =
    Deadline<BoundReadiness<Retry<Attempt<S, C, K, P>, C, Y, Noting<K>, R>>>;

/// The service of [`HttpCallLayer`](super::HttpCallLayer).
#[derive(Clone)]
pub struct HttpCall<
    S,
    C = HttpClassifier,
    Y = CloneRequest,
    K = Authority,
    R = ByMethod,
    P = AnyBytes,
> {
    pub(super) stack: Stack<S, C, Y, K, R, P>,
    pub(super) idle: bool,
}

impl<S, C, Y, K, R, P> HttpCall<S, C, Y, K, R, P> {
    fn progress(&self) -> &ProgressBound<S, P> {
        let attempt = &self.stack.inner.inner.inner;
        &attempt.inner.inner.inner
    }

    fn innermost(&mut self) -> &mut S {
        let attempt = &mut self.stack.inner.inner.inner;
        &mut attempt.inner.inner.inner.inner
    }
}

impl<S: fmt::Debug, C, Y, K, R, P> fmt::Debug for HttpCall<S, C, Y, K, R, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpCall")
            .field("inner", &self.progress().inner)
            .finish_non_exhaustive()
    }
}

impl<S, C, Y, K, R, P, B, ResBody> Service<Request<B>> for HttpCall<S, C, Y, K, R, P>
where
    S: Service<Request<B>, Response = Response<ResBody>> + Clone,
    S::Error: Into<BoxError>,
    ResBody: Body,
    ResBody::Error: Into<BoxError>,
    C: Classify<Response<AttemptBody<ResBody, P>>> + Clone,
    Y: CopyRequest<Request<B>> + Clone,
    K: KeyOf<Request<B>> + Clone,
    R: Repeatable<Request<B>> + Clone,
    P: Progress + Clone,
{
    type Response = Response<CallBody<ResBody, P>>;
    type Error = BoxError;
    type Future =
        HttpCallFuture<S::Future, <Stack<S, C, Y, K, R, P> as Service<Request<B>>>::Future, P>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.stack.poll_ready(cx)
    }

    #[inline]
    fn call(&mut self, request: Request<B>) -> Self::Future {
        let overrides = request.extensions().get::<CallOverride>();
        if let Some(overrides) = overrides.map(|found| Arc::new(*found)) {
            return HttpCallFuture(State::Stack {
                stack: {
                    let _overriding = overriding(&overrides);
                    self.stack.call(request)
                },
                overrides: Some(overrides),
            });
        }
        if !self.idle || is_overridden() {
            return HttpCallFuture(State::Stack {
                stack: self.stack.call(request),
                overrides: None,
            });
        }
        let predicate = self.progress().predicate().clone();
        HttpCallFuture(State::Plain {
            // Readiness went down to this very service.
            inner: Plain::new(self.innermost().call(request)),
            predicate,
        })
    }
}

/// The future of [`HttpCall`]. `F` is that of the inner service, `G` that of the stack.
#[pin_project]
#[must_use = "futures do nothing unless polled"]
pub struct HttpCallFuture<F, G, P>(#[pin] State<F, G, P>);

#[pin_project(project = StateProj)]
enum State<F, G, P> {
    /// The policy asks for nothing.
    Plain {
        #[pin]
        inner: Plain<F>,
        predicate: P,
    },
    Stack {
        #[pin]
        stack: G,
        /// What the request itself says, in force whenever the stack runs.
        overrides: Option<Arc<CallOverride>>,
    },
}

impl<F, G, P> fmt::Debug for HttpCallFuture<F, G, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpCallFuture").finish_non_exhaustive()
    }
}

impl<F, G, P, B, E> Future for HttpCallFuture<F, G, P>
where
    F: Future<Output = Result<Response<B>, E>>,
    G: Future<Output = Result<Response<AttemptBody<B, P>>, BoxError>>,
    E: Into<BoxError>,
    P: Clone,
{
    type Output = Result<Response<CallBody<B, P>>, BoxError>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(match self.project().0.project() {
            StateProj::Plain { inner, predicate } => {
                ready!(inner.poll(cx)).map(|r| r.map(|b| CallBody::plain(b, predicate.clone())))
            }
            StateProj::Stack { stack, overrides } => {
                let _overriding = overrides.as_ref().map(overriding);
                ready!(stack.poll(cx)).map(|r| r.map(CallBody::new))
            }
        })
    }
}

//! The service that tells the peer.

use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use tower_service::Service;

use super::future::{PropagateFuture, State};
use super::outgoing::Outgoing;
use crate::call::with_current;
use crate::error::BoxError;

/// The service of [`PropagateLayer`](super::PropagateLayer).
#[derive(Debug, Clone)]
pub struct Propagate<S> {
    pub(crate) inner: S,
    pub(super) outgoing: Arc<Outgoing>,
}

impl<S, B, ResBody> Service<Request<B>> for Propagate<S>
where
    S: Service<Request<B>, Response = Response<ResBody>> + Clone,
    S::Error: Into<BoxError>,
{
    type Response = Response<ResBody>;
    type Error = BoxError;
    type Future = PropagateFuture<S, B>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    #[inline]
    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        // The retry layer above has just said whether the request may be sent again, and nothing else is
        // to be said: so there is nothing to wait for.
        let in_stack = || with_current(|scope| scope.in_stack());
        if self.outgoing.is_known_in_call(in_stack) {
            self.outgoing.write_marker(request.headers_mut());
            return PropagateFuture(State::Sent {
                inner: self.inner.call(request),
                told: None,
            });
        }
        // This instance was readied, and is the one that will be called; a clone stays in its place.
        let clone = self.inner.clone();
        PropagateFuture(State::Unsent {
            service: mem::replace(&mut self.inner, clone),
            request: Some(request),
            outgoing: Arc::clone(&self.outgoing),
        })
    }
}

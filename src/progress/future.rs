//! The future that wraps the body when the head is there.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::Response;
use pin_project::pin_project;

use super::body::ProgressBody;
use super::layer::ProgressBoundLayer;
use crate::body_of::BodyOf;
use crate::call::{Setting, Trap, with_current};
use crate::deadline::Until;

/// The future of [`ProgressBound`](super::ProgressBound).
#[pin_project]
#[must_use = "futures do nothing unless polled"]
pub struct ProgressBoundFuture<F, P> {
    #[pin]
    pub(super) inner: F,
    pub(super) method: BodyOf,
    pub(super) config: ProgressBoundLayer<P>,
    /// It has been looked whether there is an attempt timeout around.
    pub(super) looked: bool,
}

fn look<F>(attempt_bound: bool) {
    if !attempt_bound {
        Trap::ProgressWithoutAttempt.report_once::<F>();
    }
}

impl<F, P> fmt::Debug for ProgressBoundFuture<F, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProgressBoundFuture")
            .field("gap", &self.config.gap)
            .finish_non_exhaustive()
    }
}

impl<F, P, B, E> Future for ProgressBoundFuture<F, P>
where
    F: Future<Output = Result<Response<B>, E>>,
    P: Clone,
{
    type Output = Result<Response<ProgressBody<B, P>>, E>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let config = this.config;
        let response = match this.inner.poll(cx) {
            Poll::Ready(result) => result?,
            Poll::Pending => {
                if !std::mem::replace(this.looked, true) && config.gap.is_some() {
                    look::<F>(with_current(|scope| scope.attempt_bound));
                }
                return Poll::Pending;
            }
        };
        let follows = config.follows_attempt;
        let by_deadline = config.by_deadline;
        let (overriding, attempt_bound, until) = with_current(|scope| {
            let overrides = scope.overrides.as_ref().map(|overrides| {
                if follows {
                    overrides.gap()
                } else {
                    overrides.progress
                }
            });
            let until = by_deadline.then(|| Until::of(scope)).flatten();
            (overrides, scope.attempt_bound, until)
        });
        if config.gap.is_some() {
            look::<F>(attempt_bound);
        }
        let gap = overriding
            .unwrap_or(Setting::Inherit)
            .over(config.gap)
            .filter(|_| this.method.arrives(response.status()));
        Poll::Ready(Ok(response.map(|body| {
            let (predicate, listeners) = (config.predicate.clone(), config.listeners.clone());
            ProgressBody::bounded(body, gap, predicate, listeners).until(until)
        })))
    }
}

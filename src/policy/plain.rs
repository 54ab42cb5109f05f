//! A call of a policy that asks for nothing.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project::pin_project;

use super::report;
use crate::call::keep_last_log;
use crate::error::BoxError;

/// The future of such a call: that of the inner service, with nothing around it that bounds it.
#[pin_project]
pub(super) struct Plain<F> {
    #[pin]
    inner: F,
    /// It has been looked whether an override turned up after the call.
    looked: bool,
}

impl<F> Plain<F> {
    pub(super) const fn new(inner: F) -> Self {
        Self {
            inner,
            looked: false,
        }
    }
}

impl<F, Res, E> Future for Plain<F>
where
    F: Future<Output = Result<Res, E>>,
    E: Into<BoxError>,
{
    type Output = Result<Res, BoxError>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        report::overridden_too_late(this.looked);
        let result = ready!(this.inner.poll(cx));
        keep_last_log(None); // of another call
        Poll::Ready(result.map_err(Into::into))
    }
}

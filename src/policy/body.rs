//! The body that a policy's stack returns.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project::pin_project;

use crate::buffer::BufferedBody;
use crate::error::BoxError;
use crate::progress::{AnyBytes, Progress, ProgressBody};

/// The body of an attempt's response, as a classifier sees it: its gaps are bounded, and it has been
/// read where the policy buffers.
pub type AttemptBody<B, P = AnyBytes> = BufferedBody<ProgressBody<B, P>>;

/// The body of a response of [`HttpCall`](super::HttpCall).
///
/// Its reads fail with [`AttemptStalled`](crate::AttemptStalled) when nothing arrives for the length of
/// the attempt timeout, and with [`DeadlineExceeded`](crate::DeadlineExceeded) where the policy bounds the
/// body as well. Its size hint is that of the inner body.
#[pin_project]
pub struct CallBody<B, P = AnyBytes>(#[pin] AttemptBody<B, P>);

impl<B, P> CallBody<B, P> {
    pub(super) fn new(body: AttemptBody<B, P>) -> Self {
        Self(body)
    }

    /// A body that nothing bounds.
    pub(super) fn plain(body: B, predicate: P) -> Self {
        Self(BufferedBody::untouched(ProgressBody::unbounded(
            body, predicate,
        )))
    }
}

impl<B, P> fmt::Debug for CallBody<B, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallBody").finish_non_exhaustive()
    }
}

impl<B, P> Body for CallBody<B, P>
where
    B: Body,
    B::Error: Into<BoxError>,
    P: Progress,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.project().0.poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}

//! The body of a response that may be an answer of ours.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};
use pin_project::pin_project;

/// The body of the inner service's response, or of an answer that was given in its place.
#[pin_project]
pub struct AnswerBody<B>(#[pin] Whose<B>);

#[pin_project(project = WhoseProj)]
enum Whose<B> {
    /// The inner service's.
    Inner(#[pin] B),
    /// Ours, until it has been read.
    Ours(Option<Bytes>),
}

impl<B> AnswerBody<B> {
    pub(super) const fn inner(body: B) -> Self {
        Self(Whose::Inner(body))
    }

    pub(super) fn ours(body: Bytes) -> Self {
        Self(Whose::Ours(Some(body).filter(|body| !body.is_empty())))
    }
}

impl<B> fmt::Debug for AnswerBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ours = matches!(self.0, Whose::Ours(_));
        f.debug_struct("AnswerBody")
            .field("ours", &ours)
            .finish_non_exhaustive()
    }
}

/// An empty answer.
impl<B> Default for AnswerBody<B> {
    fn default() -> Self {
        Self::ours(Bytes::new())
    }
}

impl<B: Body> Body for AnswerBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        match self.project().0.project() {
            WhoseProj::Inner(body) => body.poll_frame(cx).map_ok(|frame| {
                // Free of copying where the data is `Bytes`.
                frame.map_data(|mut data| data.copy_to_bytes(data.remaining()))
            }),
            WhoseProj::Ours(body) => Poll::Ready(body.take().map(|all| Ok(Frame::data(all)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Whose::Inner(body) => body.is_end_stream(),
            Whose::Ours(body) => body.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Whose::Inner(body) => body.size_hint(),
            Whose::Ours(body) => {
                SizeHint::with_exact(body.as_ref().map_or(0, |all| all.len() as u64))
            }
        }
    }
}

//! A body that has been read, or that was too large for it.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Deref;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use pin_project::pin_project;

use crate::error::BoxError;

/// The trailers of a buffered response, in its extensions.
#[derive(Debug, Clone)]
pub struct BufferedTrailers(HeaderMap);

impl BufferedTrailers {
    pub(super) fn new(trailers: HeaderMap) -> Self {
        Self(trailers)
    }
}

impl Deref for BufferedTrailers {
    type Target = HeaderMap;

    fn deref(&self) -> &HeaderMap {
        &self.0
    }
}

/// What has been read of a body.
#[derive(Debug, Default)]
pub(super) struct Prefix {
    data: VecDeque<Bytes>,
    /// Bytes in `data`.
    len: usize,
    trailers: Option<HeaderMap>,
}

impl Prefix {
    pub(super) fn push<D: Buf>(&mut self, frame: Frame<D>) {
        match frame.into_data() {
            Ok(mut data) => {
                let remaining = data.remaining();
                if remaining > 0 {
                    self.len = self.len.saturating_add(remaining);
                    // Free of copying where the data is `Bytes`.
                    self.data.push_back(data.copy_to_bytes(remaining));
                }
            }
            Err(frame) => {
                if let Ok(trailers) = frame.into_trailers() {
                    match &mut self.trailers {
                        Some(all) => all.extend(trailers),
                        none => *none = Some(trailers),
                    }
                }
            }
        }
    }

    /// Bytes of data.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn trailers(&self) -> Option<&HeaderMap> {
        self.trailers.as_ref()
    }

    fn is_empty(&self) -> bool {
        self.data.is_empty() && self.trailers.is_none()
    }

    fn pop(&mut self) -> Option<Frame<Bytes>> {
        if let Some(data) = self.data.pop_front() {
            self.len = self.len.saturating_sub(data.len());
            return Some(Frame::data(data));
        }
        self.trailers.take().map(Frame::trailers)
    }
}

/// The body of [`BufferResponsesLayer`](super::BufferResponsesLayer): the bytes and trailers of one
/// attempt.
///
/// A body that was read whole knows its exact size, unless it has trailers: HTTP/1 would send a body
/// of known size with a `Content-Length`, and cut them. One that was too large is what had been read,
/// and then the rest as it arrives.
#[pin_project]
pub struct BufferedBody<B> {
    prefix: Prefix,
    #[pin]
    rest: Rest<B>,
}

#[pin_project(project = RestProj)]
enum Rest<B> {
    /// Everything has been read.
    None,
    /// Nothing has been read.
    Untouched(#[pin] B),
    /// It was too large.
    Live(Pin<Box<B>>),
}

impl<B> BufferedBody<B> {
    pub(super) fn whole(prefix: Prefix) -> Self {
        Self {
            prefix,
            rest: Rest::None,
        }
    }

    pub(super) fn untouched(body: B) -> Self {
        Self {
            prefix: Prefix::default(),
            rest: Rest::Untouched(body),
        }
    }

    pub(super) fn live(prefix: Prefix, body: Pin<Box<B>>) -> Self {
        Self {
            prefix,
            rest: Rest::Live(body),
        }
    }

    fn rest(&self) -> Option<&B> {
        match &self.rest {
            Rest::None => None,
            Rest::Untouched(body) => Some(body),
            Rest::Live(body) => Some(body),
        }
    }
}

impl<B> fmt::Debug for BufferedBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BufferedBody")
            .field("buffered", &self.prefix.len)
            .field("live", &self.rest().is_some())
            .finish_non_exhaustive()
    }
}

impl<B> Body for BufferedBody<B>
where
    B: Body,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.project();
        if let Some(frame) = this.prefix.pop() {
            return Poll::Ready(Some(Ok(frame)));
        }
        let polled = match this.rest.project() {
            RestProj::None => return Poll::Ready(None),
            RestProj::Untouched(body) => body.poll_frame(cx),
            RestProj::Live(body) => body.as_mut().poll_frame(cx),
        };
        polled.map(|frame| {
            frame.map(|frame| {
                frame.map_err(Into::into).map(|frame| {
                    frame.map_data(|mut data| {
                        let remaining = data.remaining();
                        data.copy_to_bytes(remaining)
                    })
                })
            })
        })
    }

    fn is_end_stream(&self) -> bool {
        self.prefix.is_empty() && self.rest().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let buffered = self.prefix.len as u64;
        let Some(rest) = self.rest() else {
            if self.prefix.trailers.is_none() {
                return SizeHint::with_exact(buffered);
            }
            let mut at_least = SizeHint::new();
            at_least.set_lower(buffered);
            return at_least;
        };
        let rest = rest.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower().saturating_add(buffered));
        if let Some(upper) = rest.upper().and_then(|upper| upper.checked_add(buffered)) {
            hint.set_upper(upper);
        }
        hint
    }
}

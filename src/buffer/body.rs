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
    pub(crate) fn new(trailers: HeaderMap) -> Self {
        Self(trailers)
    }
}

impl Deref for BufferedTrailers {
    type Target = HeaderMap;

    fn deref(&self) -> &HeaderMap {
        &self.0
    }
}

/// What has been read of a body, frame by frame.
#[derive(Debug, Default)]
pub(super) struct Prefix {
    frames: VecDeque<Frame<Bytes>>,
    /// Bytes of data in `frames`.
    data: usize,
    /// Bytes of trailers in `frames`, and of nothing that has been taken.
    trailers: usize,
}

impl Prefix {
    pub(super) fn push<D: Buf>(&mut self, frame: Frame<D>) {
        // Free of copying where the data is `Bytes`.
        let frame = frame.map_data(|mut data| data.copy_to_bytes(data.remaining()));
        if let Some(data) = frame.data_ref() {
            if data.is_empty() {
                return;
            }
            self.data = self.data.saturating_add(data.len());
        }
        if let Some(trailers) = frame.trailers_ref() {
            self.trailers = self.trailers.saturating_add(size_of_fields(trailers));
        }
        self.frames.push_back(frame);
    }

    /// Bytes of data and of trailers.
    pub(super) fn len(&self) -> usize {
        self.data.saturating_add(self.trailers)
    }

    /// All trailers in one map, as far as one map can hold them.
    pub(super) fn trailers(&self) -> Option<HeaderMap> {
        let mut all: Option<HeaderMap> = None;
        for trailers in self.frames.iter().filter_map(Frame::trailers_ref) {
            let all = all.get_or_insert_default();
            for (name, value) in trailers {
                if all.try_append(name, value.clone()).is_err() {
                    break;
                }
            }
        }
        all
    }

    fn pop(&mut self) -> Option<Frame<Bytes>> {
        let frame = self.frames.pop_front()?;
        if let Some(data) = frame.data_ref() {
            self.data = self.data.saturating_sub(data.len());
        }
        if let Some(trailers) = frame.trailers_ref() {
            self.trailers = self.trailers.saturating_sub(size_of_fields(trailers));
        }
        Some(frame)
    }

    fn has_trailers(&self) -> bool {
        self.frames.iter().any(Frame::is_trailers)
    }
}

fn size_of_fields(fields: &HeaderMap) -> usize {
    fields
        .iter()
        .map(|(name, value)| name.as_str().len().saturating_add(value.len()))
        .fold(0, usize::saturating_add)
}

/// The body of [`BufferResponsesLayer`](super::BufferResponsesLayer): the bytes and trailers of one
/// attempt.
///
/// A body that was read whole knows its exact size, unless it has trailers: HTTP/1 would send a body
/// of known size with a `Content-Length`, and cut them. One that was too large is what had been read,
/// and then the rest as it arrives.
#[pin_project]
pub struct BufferedBody<B> {
    /// Nothing where the body is as it came, which is the rule; a response is moved a few times.
    prefix: Option<Box<Prefix>>,
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
            prefix: Some(Box::new(prefix)),
            rest: Rest::None,
        }
    }

    pub(crate) fn untouched(body: B) -> Self {
        Self {
            prefix: None,
            rest: Rest::Untouched(body),
        }
    }

    pub(super) fn live(prefix: Prefix, body: Pin<Box<B>>) -> Self {
        Self {
            prefix: Some(Box::new(prefix)),
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
            .field("buffered", &self.prefix.as_ref().map_or(0, |p| p.len()))
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
        if let Some(prefix) = this.prefix {
            if let Some(frame) = prefix.pop() {
                return Poll::Ready(Some(Ok(frame)));
            }
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
        let read = self.prefix.as_ref();
        read.is_none_or(|prefix| prefix.frames.is_empty())
            && self.rest().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let prefix = self.prefix.as_ref();
        let buffered = prefix.map_or(0, |prefix| prefix.data as u64);
        let Some(rest) = self.rest() else {
            if !prefix.is_some_and(|prefix| prefix.has_trailers()) {
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

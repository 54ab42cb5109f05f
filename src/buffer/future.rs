//! The future that reads a body to its end.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::{Response, response};
use http_body::Body;
use pin_project::pin_project;

use super::body::{BufferedBody, BufferedTrailers, Prefix};
use super::layer::BufferResponsesLayer;
use crate::body_of::BodyOf;
use crate::call::{Scope, Setting, refine, with_call, with_current};
use crate::error::BoxError;
use crate::event::{Event, EventKind};

/// How many frames are read in one poll before the task is given back. A body that is always ready
/// must not keep the clock above it from being looked at.
const FRAMES_A_POLL: usize = 128;

/// The future of [`BufferResponses`](super::BufferResponses).
#[pin_project]
#[must_use = "futures do nothing unless polled"]
pub struct BufferResponsesFuture<F, B> {
    #[pin]
    pub(super) state: State<F, B>,
    pub(super) method: BodyOf,
    pub(super) config: BufferResponsesLayer,
}

#[pin_project(project = StateProj)]
pub(super) enum State<F, B> {
    /// Polling for the response head.
    Head(#[pin] F),
    /// Reading the body; taken out when it has ended or is handed over.
    Body(Option<Box<Reading<B>>>),
}

pub(super) struct Reading<B> {
    head: response::Parts,
    /// Boxed, since a body that turns out too large is handed over and must not be pinned here.
    body: Pin<Box<B>>,
    prefix: Prefix,
    max_bytes: usize,
}

impl<F, B> fmt::Debug for BufferResponsesFuture<F, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BufferResponsesFuture")
            .field("reading", &matches!(self.state, State::Body(_)))
            .finish_non_exhaustive()
    }
}

impl<F, B, E> Future for BufferResponsesFuture<F, B>
where
    F: Future<Output = Result<Response<B>, E>>,
    E: Into<BoxError>,
    B: Body,
    B::Error: Into<BoxError>,
{
    type Output = Result<Response<BufferedBody<B>>, BoxError>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            match this.state.as_mut().project() {
                StateProj::Head(inner) => {
                    let response = ready!(inner.poll(cx)).map_err(Into::into)?;
                    let overriding = with_current(|s| s.overrides.as_ref().map(|o| o.buffering));
                    let max_bytes = overriding
                        .unwrap_or(Setting::Inherit)
                        .over(this.config.max_bytes)
                        .filter(|_| this.method.arrives(response.status()))
                        .filter(|_| !response.body().is_end_stream());
                    let Some(max_bytes) = max_bytes else {
                        return Poll::Ready(Ok(response.map(BufferedBody::untouched)));
                    };
                    let (head, body) = response.into_parts();
                    this.state.set(State::Body(Some(Box::new(Reading {
                        head,
                        body: Box::pin(body),
                        prefix: Prefix::default(),
                        max_bytes,
                    }))));
                }
                StateProj::Body(reading) => {
                    let Some(ongoing) = reading else {
                        return Poll::Pending; // polled again after it was ready
                    };
                    // What happens to the body now is told as the attempt's (rule 34).
                    let exchange = |scope: &mut Scope, buffering: &mut bool| {
                        std::mem::swap(&mut scope.buffering, buffering);
                    };
                    let buffering = refine(true, exchange);
                    let end = ready!(ongoing.poll_end(cx));
                    drop(buffering);
                    let Some(done) = reading.take().map(|done| *done) else {
                        return Poll::Pending; // it was there a line ago
                    };
                    return Poll::Ready(end.map(|end| match end {
                        End::Whole => done.whole(),
                        End::TooLarge => {
                            with_call(|scope| scope.spilled = true);
                            let attempt = with_current(|scope| scope.attempt);
                            this.config.listeners.raise(|| Event {
                                attempt,
                                status: Some(done.head.status.as_u16()),
                                ..Event::new(EventKind::BufferSpilled)
                            });
                            done.live()
                        }
                    }));
                }
            }
        }
    }
}

enum End {
    Whole,
    TooLarge,
}

impl<B> Reading<B>
where
    B: Body,
    B::Error: Into<BoxError>,
{
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<Result<End, BoxError>> {
        for _ in 0..FRAMES_A_POLL {
            match ready!(self.body.as_mut().poll_frame(cx)) {
                None => return Poll::Ready(Ok(End::Whole)),
                Some(Err(error)) => return Poll::Ready(Err(error.into())),
                Some(Ok(frame)) => {
                    self.prefix.push(frame);
                    if self.prefix.len() > self.max_bytes {
                        return Poll::Ready(Ok(End::TooLarge));
                    }
                }
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn whole(mut self) -> Response<BufferedBody<B>> {
        if let Some(trailers) = self.prefix.trailers() {
            let trailers = BufferedTrailers::new(trailers);
            self.head.extensions.insert(trailers);
        }
        let Self { head, prefix, .. } = self;
        Response::from_parts(head, BufferedBody::whole(prefix))
    }

    fn live(self) -> Response<BufferedBody<B>> {
        let Self {
            head, prefix, body, ..
        } = self;
        Response::from_parts(head, BufferedBody::live(prefix, body))
    }
}

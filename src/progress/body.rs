//! A body that says when it has stalled.

use std::fmt;
use std::io::IoSlice;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::Buf;
use http_body::{Body, Frame, SizeHint};
use pin_project::pin_project;
use tokio::time::Instant;

use super::gap::Gap;
use super::predicate::{AnyBytes, Progress};
use crate::call::with_current;
use crate::deadline::{Until, ends_with_its_call};
use crate::error::{AttemptStalled, BoxError};
use crate::event::{Event, EventKind, Listeners};
use crate::timer::Timer;

/// A body whose reads fail with [`AttemptStalled`] when nothing arrives for the length of a gap.
///
/// The clock runs while a read is outstanding: from the poll that found nothing to the one that
/// found something. Progress is a non-empty data frame, which the predicate `P` accepts, or trailers.
/// A frame that is there is delivered however late it is read. When the gap is over, the task that
/// reads is woken, its read fails, the inner body is dropped, and the body has ended.
///
/// Made by [`ProgressBoundLayer`](super::ProgressBoundLayer), or directly around any body:
///
/// ```
/// use std::time::Duration;
/// use http_body_util::{BodyExt, Channel};
/// use tower_deadline::{AttemptStalled, BoxError, ProgressBody};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let (mut sender, body) = Channel::<bytes::Bytes, BoxError>::new(1);
/// sender.send_data("one token".into()).await.unwrap();
///
/// let mut body = ProgressBody::new(body, Duration::from_secs(15));
/// assert!(body.frame().await.unwrap().is_ok());
/// let error = body.frame().await.unwrap().unwrap_err(); // the sender is there, and silent
/// assert_eq!(AttemptStalled::find(&error).unwrap().bytes(), 9);
/// # drop(sender);
/// # }
/// ```
#[pin_project(project = Projected)]
pub struct ProgressBody<B, P = AnyBytes> {
    /// Gone once it has stalled.
    #[pin]
    inner: Option<B>,
    /// Nothing where the body is not bounded.
    bound: Option<Duration>,
    /// Made at the first read that has to wait, or with the body where it has a deadline.
    waiting: Option<Box<Waiting>>,
    predicate: P,
    bytes: u64,
    frames: u64,
    listeners: Listeners,
}

/// The clock of a body that has had to wait.
struct Waiting {
    gap: Option<Gap>,
    until: Option<Until>,
    /// It is moved only when it fires.
    timer: Timer,
    /// Whom the timer wakes.
    waker: Option<Waker>,
}

impl<B> ProgressBody<B> {
    /// Bounds the gaps of `inner`; any byte is progress.
    pub fn new(inner: B, gap: Duration) -> Self {
        Self::bounded(inner, Some(gap), AnyBytes, Listeners::NONE)
    }
}

impl<B, P> ProgressBody<B, P> {
    /// Takes as progress what `predicate` accepts.
    pub fn progress_when<Q: Progress>(self, predicate: Q) -> ProgressBody<B, Q> {
        ProgressBody {
            inner: self.inner,
            bound: self.bound,
            waiting: self.waiting,
            predicate,
            bytes: self.bytes,
            frames: self.frames,
            listeners: self.listeners,
        }
    }

    pub(crate) fn unbounded(inner: B, predicate: P) -> Self {
        Self::bounded(inner, None, predicate, Listeners::NONE)
    }

    pub(super) fn bounded(
        inner: B,
        gap: Option<Duration>,
        predicate: P,
        listeners: Listeners,
    ) -> Self {
        Self {
            inner: Some(inner),
            bound: gap,
            waiting: None,
            predicate,
            bytes: 0,
            frames: 0,
            listeners,
        }
    }
}

impl<B, P> ProgressBody<B, P> {
    /// Bounds the end of the body as well.
    pub(super) fn until(mut self, until: Option<Until>) -> Self {
        if until.is_some() {
            self.waiting = Some(Box::new(Waiting::new(self.bound, until)));
        }
        self
    }
}

impl<B, P> fmt::Debug for ProgressBody<B, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProgressBody")
            .field("gap", &self.bound)
            .field("bytes", &self.bytes)
            .field("frames", &self.frames)
            .finish_non_exhaustive()
    }
}

impl<B, P> Body for ProgressBody<B, P>
where
    B: Body,
    B::Error: Into<BoxError>,
    P: Progress,
{
    type Data = B::Data;
    type Error = BoxError;

    #[inline]
    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, BoxError>>> {
        let mut this = self.project();
        let Some(inner) = this.inner.as_mut().as_pin_mut() else {
            return Poll::Ready(None);
        };
        // Inner body first, always (rule 28).
        match inner.poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                let data = frame.data_ref();
                if let Some(data) = data {
                    *this.bytes = this.bytes.saturating_add(data.remaining() as u64);
                    *this.frames = this.frames.saturating_add(1);
                }
                // A predicate sees every frame; without one it matters only to a body that has waited.
                let matters = this.waiting.is_some() || !this.predicate.takes_any();
                if this.bound.is_some() && matters {
                    let progress = data.is_none_or(|data| is_progress(this.predicate, data));
                    if let Some(waiting) = this.waiting {
                        if let Some(gap) = &mut waiting.gap {
                            if progress {
                                gap.progress();
                            } else if gap.is_outstanding() {
                                gap.no_progress(Instant::now());
                            }
                        }
                    }
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(end) => {
                *this.waiting = None;
                Poll::Ready(end.map(|frame| frame.map_err(Into::into)))
            }
            Poll::Pending => this.wait(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.inner
            .as_ref()
            .map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}

impl<B: Body, P> Projected<'_, B, P> {
    /// A read has to wait, or is over.
    fn wait(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, BoxError>>> {
        if self.bound.is_none() && self.waiting.is_none() {
            return Poll::Pending;
        }
        let bound = *self.bound;
        let waiting = self
            .waiting
            .get_or_insert_with(|| Box::new(Waiting::new(bound, None)));
        let over = ready!(waiting.poll_over(cx));
        if let Over::Until(until) = over {
            if ends_with_its_call(until.deadline) {
                return Poll::Pending;
            }
        }
        self.inner.set(None);
        *self.waiting = None;
        let gap = match over {
            Over::Until(until) => {
                return Poll::Ready(Some(Err(until.exceeded(self.listeners).into())));
            }
            Over::Gap(gap) => gap,
        };
        let stalled = AttemptStalled {
            gap,
            bytes: *self.bytes,
            frames: *self.frames,
        };
        // Where the body is read inside an attempt, this is that attempt's failure (rule 34).
        if !with_current(|scope| scope.call && scope.buffering) {
            self.listeners.raise(|| Event {
                duration: Some(stalled.gap),
                error: Some(&stalled),
                ..Event::new(EventKind::Stalled)
            });
        }
        Poll::Ready(Some(Err(stalled.into())))
    }
}

/// What is over while a read is outstanding.
#[derive(Clone, Copy)]
enum Over {
    /// The gap, which was so long.
    Gap(Duration),
    /// The deadline of the body.
    Until(Until),
}

impl Waiting {
    fn new(gap: Option<Duration>, until: Option<Until>) -> Self {
        Self {
            gap: gap.map(Gap::new),
            until,
            timer: Timer::default(),
            waker: None,
        }
    }

    /// Ready when the pending read is a stall, or the deadline has come.
    ///
    /// The clock decides; the timer is there to wake the task. It stands at the instant of an earlier
    /// read until it fires, which is never later than that of this one.
    fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<Over> {
        let now = Instant::now();
        let stall = self
            .gap
            .as_mut()
            .and_then(|gap| Some((gap.pending(now)?, Over::Gap(gap.bound()))));
        let end = self.until.map(|until| (until.deadline, Over::Until(until)));
        let (at, over) = match (stall, end) {
            (Some(stall), Some(end)) if stall.0 <= end.0 => stall,
            (_, Some(end)) => end,
            (Some(stall), None) => stall,
            (None, None) => return Poll::Pending,
        };
        if now >= at {
            return Poll::Ready(over);
        }
        let standing = self.timer.standing();
        let will_wake = |waker: &Waker| waker.will_wake(cx.waker());
        if standing.is_some_and(|standing| now < standing && standing <= at)
            && self.waker.as_ref().is_some_and(will_wake)
        {
            // An earlier read has seen to it.
            return Poll::Pending;
        }
        self.waker = Some(cx.waker().clone());
        ready!(self.timer.arm(standing.unwrap_or(at), cx));
        if standing.is_none_or(|standing| standing >= at) {
            return Poll::Ready(over);
        }
        self.timer.arm(at, cx).map(|()| over)
    }
}

/// Shows a frame to the predicate, in as many pieces as its buffer has.
fn is_progress<D: Buf>(predicate: &mut impl Progress, data: &D) -> bool {
    /// Buffers of more pieces than this exist in theory; what is beyond counts as progress, since a
    /// predicate that has not seen it cannot say that it is none.
    const PIECES: usize = 64;

    if !data.has_remaining() {
        return false;
    }
    if predicate.takes_any() {
        return true;
    }
    let first = data.chunk();
    if first.len() == data.remaining() {
        return predicate.progress(first);
    }
    let mut pieces = [IoSlice::new(&[]); PIECES];
    let filled = data.chunks_vectored(&mut pieces);
    let mut seen = 0;
    let mut any = false;
    for piece in pieces.iter().take(filled) {
        seen += piece.len();
        any |= predicate.progress(piece);
    }
    any || seen < data.remaining()
}

//! A body that has to end by an instant.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http_body::{Body, Frame, SizeHint};
use pin_project::pin_project;
use tokio::time::{Instant, Sleep};

use crate::call::{AttemptLog, DeadlineOrigin, Phase, with_current};
use crate::error::{BoxError, DeadlineExceeded};
use crate::event::{Event, EventKind, Listeners};
use crate::timer;

/// The body of [`DeadlineBodyLayer`](super::DeadlineBodyLayer): it ends by the deadline, or with
/// [`DeadlineExceeded`].
///
/// A frame that is there is delivered however late it is read. The timer is made at the first read
/// that has to wait.
#[pin_project]
pub struct DeadlineBody<B> {
    /// Gone once the deadline has passed.
    #[pin]
    inner: Option<B>,
    bound: Option<(Instant, Instant, DeadlineOrigin)>,
    timer: Option<Pin<Box<Option<Sleep>>>>,
    listeners: Listeners,
}

impl<B> DeadlineBody<B> {
    pub(crate) fn unbounded(inner: B) -> Self {
        Self::new(inner, None, Listeners::NONE)
    }

    /// `bound` is the start of the call, its deadline, and where that came from.
    #[inline]
    pub(super) fn new(
        inner: B,
        bound: Option<(Instant, Instant, DeadlineOrigin)>,
        listeners: Listeners,
    ) -> Self {
        Self {
            inner: Some(inner),
            bound,
            timer: None,
            listeners,
        }
    }
}

impl<B> fmt::Debug for DeadlineBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeadlineBody")
            .field("until", &self.bound.map(|(_, at, _)| at))
            .finish_non_exhaustive()
    }
}

impl<B> Body for DeadlineBody<B>
where
    B: Body,
    B::Error: Into<BoxError>,
{
    type Data = B::Data;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, BoxError>>> {
        let mut this = self.project();
        let Some(inner) = this.inner.as_mut().as_pin_mut() else {
            return Poll::Ready(None);
        };
        if let Poll::Ready(frame) = inner.poll_frame(cx) {
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        let Some((started, deadline, origin)) = *this.bound else {
            return Poll::Pending;
        };
        let timer = this.timer.get_or_insert_with(|| Box::pin(None));
        ready!(timer::poll_until(timer.as_mut(), deadline, cx));
        // Read inside an attempt, it ends with the call, whose deadline this is (rule 34).
        let in_call = with_current(|scope| {
            scope.buffering && scope.enforced && scope.deadline == Some(deadline)
        });
        if in_call {
            return Poll::Pending;
        }
        this.inner.set(None);
        *this.timer = None;
        let now = Instant::now();
        let error = DeadlineExceeded {
            deadline: deadline.saturating_duration_since(started),
            origin,
            elapsed: now.saturating_duration_since(started),
            phase: Phase::Body,
            log: AttemptLog::default(),
            source: None,
        };
        this.listeners.raise(|| Event {
            duration: Some(error.elapsed),
            error: Some(&error),
            ..Event::new(EventKind::Stalled)
        });
        Poll::Ready(Some(Err(error.into())))
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

//! A body that has to end by an instant.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http_body::{Body, Frame, SizeHint};
use pin_project::pin_project;
use tokio::time::Instant;

use crate::call::{AttemptLog, DeadlineOrigin, Phase, Scope, with_current};
use crate::error::{BoxError, DeadlineExceeded};
use crate::event::{Event, EventKind, Listeners};
use crate::timer::Timer;

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
    bound: Option<Until>,
    timer: Timer,
    listeners: Listeners,
}

impl<B> DeadlineBody<B> {
    #[inline]
    pub(super) fn new(inner: B, bound: Option<Until>, listeners: Listeners) -> Self {
        Self {
            inner: Some(inner),
            bound,
            timer: Timer::default(),
            listeners,
        }
    }
}

impl<B> fmt::Debug for DeadlineBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeadlineBody")
            .field("until", &self.bound.map(|until| until.deadline))
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
        let Some(until) = *this.bound else {
            return Poll::Pending;
        };
        ready!(this.timer.poll_until(until.deadline, cx));
        if ends_with_its_call(until.deadline) {
            return Poll::Pending;
        }
        this.inner.set(None);
        this.timer.clear();
        Poll::Ready(Some(Err(until.exceeded(this.listeners).into())))
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

/// The deadline of a body.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Until {
    /// When the call began.
    pub(crate) started: Instant,
    pub(crate) deadline: Instant,
    pub(crate) origin: DeadlineOrigin,
}

impl Until {
    /// The deadline in the scope, for a body that outlives it.
    pub(crate) fn of(scope: &Scope) -> Option<Self> {
        let deadline = scope.deadline?;
        Some(Self {
            started: scope.started.unwrap_or(deadline),
            deadline,
            origin: scope.origin,
        })
    }

    /// A read of the body is outstanding at the deadline: the error that says so, and its event.
    pub(crate) fn exceeded(&self, listeners: &Listeners) -> DeadlineExceeded {
        let error = DeadlineExceeded {
            deadline: self.deadline.saturating_duration_since(self.started),
            origin: self.origin,
            elapsed: Instant::now().saturating_duration_since(self.started),
            phase: Phase::Body,
            log: AttemptLog::default(),
            source: None,
        };
        listeners.raise(|| Event {
            duration: Some(error.elapsed),
            error: Some(&error),
            ..Event::new(EventKind::Stalled)
        });
        error
    }
}

/// Whether a body is read inside an attempt, so that it ends with the call, whose deadline this is
/// (rule 34).
pub(crate) fn ends_with_its_call(deadline: Instant) -> bool {
    with_current(|scope| scope.buffering && scope.enforced && scope.deadline == Some(deadline))
}

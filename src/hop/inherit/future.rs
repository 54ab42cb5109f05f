//! The future in which a handler runs for as long as somebody waits for it.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::{Request, Response};
use pin_project::{pin_project, pinned_drop};
use tokio::time::Instant;
use tower_service::Service;

use super::service::Shared;
use crate::call::Offer;
use crate::event::{Event, EventKind};
use crate::hop::{Answer, AnswerBody, Protocol};
use crate::timer::Timer;

/// The future of [`Inherit`](super::Inherit).
#[pin_project(PinnedDrop, project = Projected)]
#[must_use = "futures do nothing unless polled"]
pub struct InheritFuture<S: Service<Request<B>>, B> {
    #[pin]
    pub(super) state: State<S, S::Future, B>,
    /// For a deadline that is enforced.
    pub(super) timer: Timer,
    pub(super) arrived: Instant,
    pub(super) offer: Offer,
    pub(super) protocol: Protocol,
    pub(super) shared: Arc<Shared>,
}

#[pin_project(project = StateProj)]
pub(super) enum State<S, F, B> {
    /// Polling the readiness of `service`.
    Readying {
        service: S,
        request: Option<Request<B>>,
    },
    /// Polling the handler.
    Handling(#[pin] F),
    /// The handler is not asked.
    Answering(Answer),
    /// It has ended.
    Done,
}

impl<S: Service<Request<B>>, B> fmt::Debug for InheritFuture<S, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InheritFuture")
            .field("until", &self.offer.until)
            .finish_non_exhaustive()
    }
}

/// What is beneath is dropped where it was polled: under what was inherited.
#[pinned_drop]
impl<S: Service<Request<B>>, B> PinnedDrop for InheritFuture<S, B> {
    fn drop(self: Pin<&mut Self>) {
        self.project().let_go();
    }
}

impl<S, B, ResBody> Future for InheritFuture<S, B>
where
    S: Service<Request<B>, Response = Response<ResBody>>,
{
    type Output = Result<Response<AnswerBody<ResBody>>, S::Error>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        if let Poll::Ready(result) = this.poll_inner(cx) {
            this.let_go();
            return Poll::Ready(result.map(|response| response.map(AnswerBody::inner)));
        }
        let answer = match &*this.state {
            State::Answering(answer) => *answer,
            State::Done => return Poll::Pending,
            State::Readying { .. } | State::Handling(_) => {
                // Inner first, then the clock (rule 9).
                let Some(until) = this.offer.until.filter(|_| this.shared.terms.enforce) else {
                    return Poll::Pending;
                };
                ready!(this.timer.poll_until(until, cx));
                match &*this.state {
                    State::Handling(_) => Answer::timed_out(),
                    _ => Answer::expired(),
                }
            }
        };
        this.let_go();
        this.shared.listeners.raise(|| Event {
            status: Some(answer.status().as_u16()),
            duration: Some(Instant::now().saturating_duration_since(*this.arrived)),
            ..Event::new(EventKind::Answered)
        });
        Poll::Ready(Ok(answer.into_response(*this.protocol)))
    }
}

impl<S: Service<Request<B>>, B> Projected<'_, S, B> {
    /// Drops what is beneath.
    fn let_go(&mut self) {
        let _offered = self.offer.publish();
        self.state.set(State::Done);
    }

    /// Polls what is beneath, as far as it is there.
    fn poll_inner(&mut self, cx: &mut Context<'_>) -> Poll<Result<S::Response, S::Error>> {
        let _offered = self.offer.publish();
        loop {
            let next = match self.state.as_mut().project() {
                StateProj::Handling(handler) => return handler.poll(cx),
                StateProj::Answering(_) | StateProj::Done => return Poll::Pending,
                StateProj::Readying { service, request } => {
                    if let Err(error) = ready!(service.poll_ready(cx)) {
                        return Poll::Ready(Err(error));
                    }
                    let terms = &self.shared.terms;
                    let refuses = terms.reject_expired || terms.enforce;
                    // Its turn may have come too late.
                    let over = |until| refuses && until <= Instant::now();
                    match request.take() {
                        Some(_) if self.offer.until.is_some_and(over) => {
                            State::Answering(Answer::expired())
                        }
                        // The instance that was readied is the one that is called.
                        Some(request) => State::Handling(service.call(request)),
                        None => State::Done, // never: it is taken only here, and the state is left at once
                    }
                }
            };
            // The service goes here, and with it whatever it still holds.
            self.state.set(next);
        }
    }
}

//! The future that tells the peer when it is first polled.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::{Request, Response};
use pin_project::pin_project;
use tokio::time::Instant;
use tower_service::Service;

use super::outgoing::{Outgoing, Written};
use crate::call::Waited;
use crate::classify::{Classify, GrpcClassifier, grpc_code, is_peers_timeout};
use crate::error::{BoxError, Chain};
use crate::timer::Timer;

/// How much earlier than the clock here a peer's may say that the time is over that it was told: it was
/// told whole milliseconds, its timers and ours are as coarse, and its answer takes its way.
const LAST: Duration = Duration::from_millis(5);

/// How long after the time is over the clocks above have had their turn, whichever they are.
const GRACE: Duration = Duration::from_millis(2);

/// The future of [`Propagate`](super::Propagate).
#[pin_project]
#[must_use = "futures do nothing unless polled"]
pub struct PropagateFuture<S: Service<Request<B>>, B>(#[pin] pub(super) State<S, S::Future, B>);

#[pin_project(project = StateProj)]
pub(super) enum State<S, F, B> {
    /// Not polled yet.
    Unsent {
        /// Ready.
        service: S,
        request: Option<Request<B>>,
        outgoing: Arc<Outgoing>,
    },
    /// Polling the future of the inner `call`.
    Sent {
        #[pin]
        inner: F,
        /// Until when a gRPC peer was told that it is waited for.
        told: Option<Waited>,
    },
    /// The time is over, or so nearly that nothing can be sent or believed. Whoever holds a clock above
    /// ends the attempt; where nobody does, this does, a little later.
    Over { waited: Waited, timer: Timer },
    /// It has ended.
    Done,
}

impl<S: Service<Request<B>>, B> fmt::Debug for PropagateFuture<S, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PropagateFuture")
            .field("sent", &matches!(self.0, State::Sent { .. }))
            .finish_non_exhaustive()
    }
}

impl<S, B, ResBody> Future for PropagateFuture<S, B>
where
    S: Service<Request<B>, Response = Response<ResBody>>,
    S::Error: Into<BoxError>,
{
    type Output = Result<Response<ResBody>, BoxError>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().0;
        loop {
            let next = match state.as_mut().project() {
                StateProj::Sent { inner, told } => {
                    let result = ready!(inner.poll(cx));
                    let Some(waited) = *told else {
                        state.set(State::Done);
                        return Poll::Ready(result.map_err(Into::into));
                    };
                    let result = result.map_err(Into::into);
                    if !waited.is_said_to_be_over(&result) {
                        state.set(State::Done);
                        return Poll::Ready(result);
                    }
                    State::Over {
                        waited,
                        timer: Timer::default(),
                    }
                }
                StateProj::Unsent {
                    service,
                    request,
                    outgoing,
                } => {
                    let Some(mut request) = request.take() else {
                        return Poll::Pending; // never: it is taken only here, and the state is left at once
                    };
                    match outgoing.write(request.headers_mut()) {
                        Written::Told(waited) => State::Sent {
                            inner: service.call(request),
                            told: waited.filter(|_| outgoing.grpc),
                        },
                        Written::TooLate(waited) => State::Over {
                            waited,
                            timer: Timer::default(),
                        },
                    }
                }
                StateProj::Over { waited, timer } => {
                    if waited.is_watched_above() {
                        // It looks at its clock when this poll comes back, however late that is.
                        return Poll::Pending;
                    }
                    if !waited.offered {
                        if let Some(until) = waited.until.checked_add(GRACE) {
                            ready!(timer.poll_until(until, cx));
                        }
                    }
                    let error = waited.exceeded(Instant::now());
                    state.set(State::Done);
                    return Poll::Ready(Err(error.into()));
                }
                StateProj::Done => return Poll::Pending,
            };
            // The service goes here, and what it still holds; or the peer's answer.
            state.set(next);
        }
    }
}

impl Waited {
    /// Whether this result says no more than that the time is over which the peer was told.
    fn is_said_to_be_over<B>(&self, result: &Result<Response<B>, BoxError>) -> bool {
        let said = match result {
            // A server of tonic's says "cancelled" when it means that.
            Ok(response) => matches!(
                GrpcClassifier.status(response),
                Some(grpc_code::DEADLINE_EXCEEDED | grpc_code::CANCELLED)
            ),
            Err(error) => Chain::new(&**error as &(dyn Error + 'static)).any(is_peers_timeout),
        };
        said && Instant::now()
            .checked_add(LAST)
            .is_none_or(|soon| soon >= self.until)
    }
}

//! Queueing that counts.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project::pin_project;
use tokio::time::Instant;
use tower_layer::Layer;
use tower_service::Service;

use crate::call::{Phase, RetryPart, with_call, with_current};

/// Answers ready at once, and waits for the inner service's readiness inside the future of the call.
///
/// Beneath a [`DeadlineLayer`](crate::DeadlineLayer) this makes queueing count: a service that is
/// never ready fails with [`DeadlineExceeded`](crate::DeadlineExceeded), in its
/// [`Phase::Readiness`] and with no attempt in its log, instead of hanging its caller in
/// `poll_ready`.
///
/// The price is back-pressure: whoever is above takes any number of calls, so a load balancer or a
/// limit above sees a service that is always ready. The inner service must be `Clone`; each call
/// readies and calls a clone of its own.
///
/// ```
/// use std::time::Duration;
/// use tower::{ServiceBuilder, ServiceExt, service_fn};
/// use tower_deadline::{BoundReadinessLayer, BoxError, DeadlineExceeded, DeadlineLayer, Phase};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let stack = ServiceBuilder::new()
///     .layer(DeadlineLayer::new(Duration::from_millis(100)))
///     .layer(BoundReadinessLayer::new())
///     .concurrency_limit(1)
///     .service(service_fn(|()| std::future::pending::<Result<(), BoxError>>()));
///
/// let _occupied = tokio::spawn(stack.clone().oneshot(()));
/// tokio::task::yield_now().await;
/// let error = stack.oneshot(()).await.unwrap_err();
/// assert_eq!(DeadlineExceeded::find(&error).unwrap().phase(), Phase::Readiness);
/// # }
/// ```
#[derive(Debug, Clone, Copy, Default)]
#[must_use]
pub struct BoundReadinessLayer {
    off: bool,
}

impl BoundReadinessLayer {
    /// A layer that has nothing to configure.
    pub const fn new() -> Self {
        Self { off: false }
    }

    /// The same, or one that leaves readiness to the caller.
    pub(crate) const fn when(on: bool) -> Self {
        Self { off: !on }
    }
}

impl<S> Layer<S> for BoundReadinessLayer {
    type Service = BoundReadiness<S>;

    fn layer(&self, inner: S) -> BoundReadiness<S> {
        BoundReadiness {
            inner,
            off: self.off,
        }
    }
}

/// The service of [`BoundReadinessLayer`].
#[derive(Debug, Clone)]
pub struct BoundReadiness<S> {
    pub(crate) inner: S,
    off: bool,
}

impl<S, Request> Service<Request> for BoundReadiness<S>
where
    S: Service<Request> + Clone,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoundReadinessFuture<S, Request>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        if self.off {
            return self.inner.poll_ready(cx);
        }
        Poll::Ready(Ok(()))
    }

    #[inline]
    fn call(&mut self, request: Request) -> Self::Future {
        if self.off {
            return BoundReadinessFuture {
                state: State::Calling(self.inner.call(request)),
            };
        }
        queueing();
        BoundReadinessFuture {
            // `inner` itself is never readied, so a clone is as good as it is.
            state: State::Readying {
                service: self.inner.clone(),
                request: Some(request),
            },
        }
    }
}

/// Nothing has been sent yet; unless a retry layer above has begun an attempt, of which this is a part.
fn queueing() {
    with_call(|scope| {
        if scope.retry != RetryPart::Active {
            scope.phase = Phase::Readiness;
        }
    });
}

/// The future of [`BoundReadiness`].
#[pin_project]
#[must_use = "futures do nothing unless polled"]
pub struct BoundReadinessFuture<S: Service<Request>, Request> {
    #[pin]
    state: State<S, S::Future, Request>,
}

#[pin_project(project = StateProj)]
enum State<S, F, Request> {
    /// Polling the readiness of `service`.
    Readying {
        service: S,
        request: Option<Request>,
    },
    /// Polling the future of its `call`.
    Calling(#[pin] F),
    /// It has ended.
    Ended,
}

impl<S: Service<Request>, Request> fmt::Debug for BoundReadinessFuture<S, Request> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BoundReadinessFuture")
            .field("called", &matches!(self.state, State::Calling(_)))
            .finish_non_exhaustive()
    }
}

impl<S, Request> Future for BoundReadinessFuture<S, Request>
where
    S: Service<Request>,
{
    type Output = Result<S::Response, S::Error>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().state;
        loop {
            let next = match state.as_mut().project() {
                StateProj::Calling(inner) => {
                    let result = ready!(inner.poll(cx));
                    state.set(State::Ended);
                    return Poll::Ready(result);
                }
                StateProj::Ended => return Poll::Pending,
                StateProj::Readying { service, request } => {
                    // Said again in each poll: a buffer above runs `call` outside the scope.
                    queueing();
                    let ready = ready!(service.poll_ready(cx));
                    let now = Instant::now();
                    // Ready too late: nothing is sent that nobody waits for. The deadline's layer ends
                    // the call, in this very poll.
                    let over = with_current(|scope| {
                        scope.enforced && scope.deadline.is_some_and(|at| at <= now)
                    });
                    if over && ready.is_ok() {
                        return Poll::Pending;
                    }
                    match (ready, request.take()) {
                        (Ok(()), Some(request)) => {
                            with_call(|scope| {
                                if scope.retry != RetryPart::Active {
                                    scope.phase = Phase::Attempt;
                                    scope.attempt_started = Some(now);
                                }
                            });
                            // The instance that was readied is the one that is called.
                            State::Calling(service.call(request))
                        }
                        (Err(error), _) => {
                            state.set(State::Ended);
                            return Poll::Ready(Err(error));
                        }
                        // The request is taken only here, and the state is left at once.
                        (Ok(()), None) => State::Ended,
                    }
                }
            };
            // The service goes here, and with it whatever it still holds.
            state.set(next);
        }
    }
}

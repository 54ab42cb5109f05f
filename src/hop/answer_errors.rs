//! Every error is answered.

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::{Request, Response};
use pin_project::pin_project;
use tower_layer::Layer;
use tower_service::Service;

use super::answer::Answer;
use super::answer_body::AnswerBody;
use super::protocol::Protocol;
use crate::deadline::{BoundReadiness, BoundReadinessFuture, BoundReadinessLayer};
use crate::error::BoxError;

/// Answers every error of what is beneath, so that the caller hears of it in its own terms: see
/// [`Answer`] for which error becomes what.
///
/// Its own error type is [`Infallible`], which is what axum asks of a router's layers. A server that is
/// given an error instead tells its client nothing, and closes the connection or resets the stream.
/// To a gRPC caller, known by its `Content-Type`, the answer is a gRPC status.
///
/// An error that is not of this crate is said through `tracing` (target `tower_deadline`, level error),
/// since the answer does not tell it.
///
/// It answers ready at once, and waits for the inner service's readiness inside the future (`S: Clone`):
/// an error from there is to be answered as well.
///
/// ```
/// use std::time::Duration;
/// use axum::{Router, routing::get};
/// use tower::{ServiceBuilder, ServiceExt};
/// use tower_deadline::{AnswerErrorsLayer, DeadlineLayer};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let app: Router = Router::new().route("/slow", get(std::future::pending::<&str>)).layer(
///     ServiceBuilder::new()
///         .layer(AnswerErrorsLayer::new())
///         .layer(DeadlineLayer::new(Duration::from_secs(1))),
/// );
/// let request = http::Request::get("/slow").body(axum::body::Body::empty()).unwrap();
/// assert_eq!(app.oneshot(request).await.unwrap().status(), 504);
/// # }
/// ```
#[derive(Debug, Clone, Copy, Default)]
#[must_use]
pub struct AnswerErrorsLayer(());

impl AnswerErrorsLayer {
    /// A layer that has nothing to configure.
    pub const fn new() -> Self {
        Self(())
    }
}

impl<S> Layer<S> for AnswerErrorsLayer {
    type Service = AnswerErrors<S>;

    fn layer(&self, inner: S) -> AnswerErrors<S> {
        AnswerErrors(BoundReadinessLayer::new().layer(inner))
    }
}

/// The service of [`AnswerErrorsLayer`].
#[derive(Debug, Clone)]
pub struct AnswerErrors<S>(BoundReadiness<S>);

impl<S, B, ResBody> Service<Request<B>> for AnswerErrors<S>
where
    S: Service<Request<B>, Response = Response<ResBody>> + Clone,
    S::Error: Into<BoxError>,
    ResBody: http_body::Body,
{
    type Response = Response<AnswerBody<ResBody>>;
    type Error = Infallible;
    type Future = AnswerErrorsFuture<S, B>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        AnswerErrorsFuture {
            protocol: Protocol::of(request.headers()),
            inner: self.0.call(request),
        }
    }
}

/// The future of [`AnswerErrors`].
#[pin_project]
#[must_use = "futures do nothing unless polled"]
pub struct AnswerErrorsFuture<S: Service<Request<B>>, B> {
    protocol: Protocol,
    #[pin]
    inner: BoundReadinessFuture<S, Request<B>>,
}

impl<S: Service<Request<B>>, B> fmt::Debug for AnswerErrorsFuture<S, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnswerErrorsFuture").finish_non_exhaustive()
    }
}

impl<S, B, ResBody> Future for AnswerErrorsFuture<S, B>
where
    S: Service<Request<B>, Response = Response<ResBody>>,
    S::Error: Into<BoxError>,
{
    type Output = Result<Response<AnswerBody<ResBody>>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        Poll::Ready(Ok(match ready!(this.inner.poll(cx)) {
            Ok(response) => response.map(AnswerBody::inner),
            Err(error) => answer(&error.into()).into_response(*this.protocol),
        }))
    }
}

/// The answer to an error, which is told here where it is not told to the caller.
fn answer(error: &BoxError) -> Answer {
    Answer::of(error).unwrap_or_else(|| {
        let answer = Answer::of_any(&**error);
        let status = answer.status().as_u16();
        tracing::error!(target: "tower_deadline", %error, status, "a request was answered with an error");
        answer
    })
}

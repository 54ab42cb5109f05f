//! Answers as responses of axum's handlers.

use std::future::{Ready, ready};

use axum_core::body::Body;
use axum_core::response::{IntoResponse, Response};

use super::answer::Answer;
use super::protocol::Protocol;
use crate::error::BoxError;

/// A problem document.
impl IntoResponse for Answer {
    fn into_response(self) -> Response {
        let (head, body) = self.into_parts(Protocol::Http);
        Response::from_parts(head, Body::from(body))
    }
}

impl Answer {
    /// The answer to any error, for axum's `HandleErrorLayer`.
    ///
    /// ```
    /// use std::time::Duration;
    /// use axum::{Router, error_handling::HandleErrorLayer, routing::get};
    /// use tower::{ServiceBuilder, ServiceExt};
    /// use tower_deadline::{Answer, DeadlineLayer};
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let app: Router = Router::new().route("/slow", get(std::future::pending::<&str>)).layer(
    ///     ServiceBuilder::new()
    ///         .layer(HandleErrorLayer::new(Answer::handle))
    ///         .layer(DeadlineLayer::new(Duration::from_secs(1))),
    /// );
    /// let request = http::Request::get("/slow").body(axum::body::Body::empty()).unwrap();
    /// assert_eq!(app.oneshot(request).await.unwrap().status(), 504);
    /// # }
    /// ```
    pub fn handle(error: BoxError) -> Ready<Self> {
        ready(error.into())
    }
}

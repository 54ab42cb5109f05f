//! The stack that people have today: tower's timeouts and retries around a client.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use hyper::StatusCode;
use hyper::header::RETRY_AFTER;
use tokio::time::{Sleep, sleep};
use tower::ServiceBuilder;
use tower::retry::Policy;

use crate::client::{self, Client, Request, Response, boxed};
use crate::model_time::ModelTime;

/// The numbers of one stack.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Today {
    pub(crate) total: Option<Duration>,
    pub(crate) attempt: Duration,
    /// Sends after the first.
    pub(crate) retries: u32,
    /// Before the first retry; doubled for each further one.
    pub(crate) backoff: Duration,
    /// A stack of its own for the model, put around the client before the others are.
    pub(crate) inside: Option<&'static Today>,
}

impl Today {
    /// What a fleet's defaults commonly are.
    pub(crate) const DEFAULTS: Self = Self {
        total: Some(Duration::from_secs(30)),
        attempt: Duration::from_secs(10),
        retries: 3,
        backoff: Duration::from_secs(2),
        inside: None,
    };

    /// Builds it; `sent` counts what reaches the client.
    pub(crate) fn client(&self, time: ModelTime, sent: &Arc<AtomicU32>) -> Client {
        let innermost = match self.inside {
            Some(inside) => inside.client(time, sent),
            None => counted(Arc::clone(sent)),
        };
        let retry = Resend {
            left: self.retries,
            wait: time.real(self.backoff),
        };
        boxed(
            ServiceBuilder::new()
                .option_layer(
                    self.total
                        .map(|total| tower::timeout::TimeoutLayer::new(time.real(total))),
                )
                .retry(retry)
                .timeout(time.real(self.attempt))
                .service(innermost),
        )
    }
}

fn counted(sent: Arc<AtomicU32>) -> Client {
    boxed(
        ServiceBuilder::new()
            .map_request(move |request: Request| {
                sent.fetch_add(1, Ordering::Relaxed);
                request
            })
            .service(client::hyper()),
    )
}

/// The retry policy: 408, 429, 5xx and every error, whatever the method. It obeys `Retry-After`.
///
/// Without jitter, so that the figures are the same each time.
#[derive(Debug, Clone)]
struct Resend {
    left: u32,
    wait: Duration,
}

impl<E> Policy<Request, Response, E> for Resend {
    type Future = Sleep;

    fn retry(&mut self, _: &mut Request, result: &mut Result<Response, E>) -> Option<Sleep> {
        let asked = match result {
            Ok(response) if !is_failure(response.status()) => return None,
            Ok(response) => response.headers().get(RETRY_AFTER),
            Err(_) => None,
        };
        self.left = self.left.checked_sub(1)?;
        let ordinary = self.wait;
        self.wait *= 2;
        let asked = asked.and_then(|value| value.to_str().ok()?.parse().ok());
        Some(sleep(asked.map_or(ordinary, Duration::from_secs)))
    }

    fn clone_request(&mut self, request: &Request) -> Option<Request> {
        Some(request.clone())
    }
}

fn is_failure(status: StatusCode) -> bool {
    status == StatusCode::REQUEST_TIMEOUT
        || status == StatusCode::TOO_MANY_REQUESTS
        || status.is_server_error()
}

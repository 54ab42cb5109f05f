//! What a caller is told when a call here did not come to an answer of its own.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderName, HeaderValue, Response, StatusCode, response};

use super::answer_body::AnswerBody;
use super::protocol::Protocol;
use crate::classify::{Verdict, is_peers_timeout, verdict_of_error};
use crate::error::{AsDynError, BoxError, Chain, Ours, outermost};

/// What a caller is told in place of an answer: a status, a sentence, and when to come back. Nothing
/// of what went on inside.
///
/// | what ended the call | HTTP | gRPC |
/// | --- | --- | --- |
/// | [`DeadlineExceeded`](crate::DeadlineExceeded), [`AttemptTimedOut`](crate::AttemptTimedOut), [`AttemptStalled`](crate::AttemptStalled), tonic's `TimeoutExpired` (feature `tonic`) | 504 | 4 `DEADLINE_EXCEEDED` |
/// | [`RetryRefused`](crate::RetryRefused), tower's `Overloaded`, [`shed`](Self::shed) | 503 with `Retry-After` | 14 `UNAVAILABLE` with `grpc-retry-pushback-ms` |
/// | an error of the transport to a dependency | 502 | 14 `UNAVAILABLE` |
/// | any other error | 500 | 13 `INTERNAL` |
///
/// Of several errors of this crate in one chain the outermost decides. `Retry-After` is in whole
/// seconds, rounded up, and at least one.
///
/// [`of`](Self::of) answers what is in the first two rows and leaves the rest to its caller; the
/// conversion from a [`BoxError`] answers everything. With the feature `axum` an answer is a response
/// of a handler: in a `Result<_, Answer>` the `?` on a call does it all.
///
/// ```
/// use tower_deadline::{Answer, BoxError, Protocol};
///
/// let answer = Answer::shed(Some(std::time::Duration::from_millis(1200)));
/// let (head, body) = answer.into_parts(Protocol::Http);
/// assert_eq!(head.status, 503);
/// assert_eq!(head.headers["retry-after"], "2");
/// assert_eq!(head.headers["content-type"], "application/problem+json");
/// assert!(body.starts_with(b"{\"type\":\"about:blank\",\"title\":\"Service Unavailable\""));
///
/// let (head, body) = answer.into_parts(Protocol::Grpc);
/// assert_eq!(head.status, 200);
/// assert_eq!(head.headers["grpc-status"], "14");
/// assert!(body.is_empty());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct Answer {
    kind: Kind,
    retry_after: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Time ran out on the way to an answer.
    TimedOut,
    /// It had run out before there was anything to do.
    Expired,
    Refused,
    Shed,
    Malformed,
    Upstream,
    Internal,
}

pub(super) const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
pub(super) const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const GRPC_PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

/// The shortest wait that is asked for.
const SHORTEST_WAIT: Duration = Duration::from_secs(1);

impl Answer {
    const fn new(kind: Kind) -> Self {
        Self {
            kind,
            retry_after: None,
        }
    }

    /// The request arrived, or came to its turn, when nobody waited for it any longer.
    pub(super) const fn expired() -> Self {
        Self::new(Kind::Expired)
    }

    /// The deadline passed while the request was worked on.
    pub(super) const fn timed_out() -> Self {
        Self::new(Kind::TimedOut)
    }

    /// A header of the hop could not be understood.
    pub(super) const fn malformed() -> Self {
        Self::new(Kind::Malformed)
    }

    fn wait(kind: Kind, wait: Option<Duration>) -> Self {
        Self {
            kind,
            retry_after: Some(wait.unwrap_or_default().max(SHORTEST_WAIT)),
        }
    }

    /// There is more work here than can be done: come back after `wait`, or in a second.
    pub fn shed(wait: Option<Duration>) -> Self {
        Self::wait(Kind::Shed, wait)
    }

    /// The answer to an error that this crate knows the meaning of: one of its own, tower's
    /// `Overloaded`, and with the feature `tonic` that of a peer which enforced the deadline it was sent.
    pub fn of<E: AsDynError + ?Sized>(error: &E) -> Option<Self> {
        Self::of_dyn(error.as_dyn_error())
    }

    fn of_dyn(error: &(dyn Error + 'static)) -> Option<Self> {
        match outermost(error) {
            Some(Ours::Exceeded(_) | Ours::TimedOut(_) | Ours::Stalled(_)) => {
                Some(Self::timed_out())
            }
            Some(Ours::Refused(refused)) => Some(Self::wait(Kind::Refused, refused.retry_after())),
            None => Chain::new(error).find_map(|link| {
                if is_peers_timeout(link) {
                    Some(Self::timed_out())
                } else {
                    link.is::<tower::load_shed::error::Overloaded>()
                        .then(|| Self::shed(None))
                }
            }),
        }
    }

    /// The answer to any error.
    pub(super) fn of_any(error: &(dyn Error + 'static)) -> Self {
        Self::of_dyn(error).unwrap_or_else(|| match verdict_of_error(error) {
            Verdict::Transient => Self::new(Kind::Upstream),
            _ => Self::new(Kind::Internal),
        })
    }

    /// The HTTP status.
    #[must_use]
    pub const fn status(&self) -> StatusCode {
        match self.kind {
            Kind::TimedOut | Kind::Expired => StatusCode::GATEWAY_TIMEOUT,
            Kind::Refused | Kind::Shed => StatusCode::SERVICE_UNAVAILABLE,
            Kind::Malformed => StatusCode::BAD_REQUEST,
            Kind::Upstream => StatusCode::BAD_GATEWAY,
            Kind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// The [gRPC status](https://grpc.io/docs/guides/status-codes/).
    #[must_use]
    pub const fn grpc_status(&self) -> u8 {
        match self.kind {
            Kind::TimedOut | Kind::Expired => 4,
            Kind::Refused | Kind::Shed | Kind::Upstream => 14,
            Kind::Malformed => 3,
            Kind::Internal => 13,
        }
    }

    /// How long the caller is asked to wait before it comes back.
    #[must_use]
    pub const fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// The sentence that the caller is told.
    #[must_use]
    pub const fn detail(&self) -> &'static str {
        match self.kind {
            Kind::TimedOut => "The time for this request ran out before there was an answer.",
            Kind::Expired => "The time for this request had run out before it was worked on.",
            Kind::Refused => "What is needed to answer is failing, and is not asked again for now.",
            Kind::Shed => "There is more work here than can be done now.",
            Kind::Malformed => "A header that says how long the caller waits is malformed.",
            Kind::Upstream => "What is needed to answer cannot be reached.",
            Kind::Internal => "The request could not be answered.",
        }
    }

    /// The head and the body of the response that says so: a problem document ([RFC 9457]) for HTTP; a
    /// head with the status, and no body, for gRPC ("trailers-only").
    ///
    /// [RFC 9457]: https://www.rfc-editor.org/rfc/rfc9457
    #[must_use]
    pub fn into_parts(self, protocol: Protocol) -> (response::Parts, Bytes) {
        let mut response = Response::new(());
        let kind = HeaderValue::from_static(protocol.content_type());
        response.headers_mut().insert(CONTENT_TYPE, kind);
        let body = match protocol {
            Protocol::Http => self.problem(&mut response),
            Protocol::Grpc | Protocol::GrpcWeb => {
                self.grpc_head(&mut response);
                Bytes::new()
            }
        };
        (response.into_parts().0, body)
    }

    /// The same as a response, beside those of a service whose bodies are `B`.
    #[must_use]
    pub fn into_response<B>(self, protocol: Protocol) -> Response<AnswerBody<B>> {
        let (head, body) = self.into_parts(protocol);
        Response::from_parts(head, AnswerBody::ours(body))
    }

    fn problem(self, response: &mut Response<()>) -> Bytes {
        let status = self.status();
        *response.status_mut() = status;
        if let Some(wait) = self.retry_after {
            let more = u64::from(wait.subsec_nanos() > 0);
            let seconds = wait.as_secs().saturating_add(more);
            let headers = response.headers_mut();
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        // Nothing in it needs to be escaped.
        let title = status.canonical_reason().unwrap_or_default();
        let (status, detail) = (status.as_u16(), self.detail());
        Bytes::from(format!(
            r#"{{"type":"about:blank","title":"{title}","status":{status},"detail":"{detail}"}}"#
        ))
    }

    fn grpc_head(self, response: &mut Response<()>) {
        let headers = response.headers_mut();
        let status = HeaderValue::from(u16::from(self.grpc_status()));
        headers.insert(GRPC_STATUS, status);
        // Nothing in it needs to be percent-encoded.
        headers.insert(GRPC_MESSAGE, HeaderValue::from_static(self.detail()));
        if let Some(wait) = self.retry_after {
            let ms = wait.as_nanos().div_ceil(1_000_000);
            let ms = u64::try_from(ms).unwrap_or(u64::MAX);
            headers.insert(GRPC_PUSHBACK, HeaderValue::from(ms));
        }
    }
}

/// Any error has an answer.
impl From<BoxError> for Answer {
    fn from(error: BoxError) -> Self {
        Self::of_any(&*error)
    }
}

/// The sentence.
impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.detail())
    }
}

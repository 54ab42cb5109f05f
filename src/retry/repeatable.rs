//! Which requests may be sent twice.

use http::header::{IF_MATCH, IF_NONE_MATCH, IF_UNMODIFIED_SINCE};
use http::{Method, Request};

/// When a request may be sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Repeat {
    /// After any failure.
    Always,
    /// Only after a failure that shows that the request was not acted on: 429, 503, or an error that
    /// proves that it never left.
    IfNotActedOn,
    /// Not by itself. With
    /// [`retry_unprocessed`](crate::RetryLayer::retry_unprocessed), once after an error that proves
    /// that it never left.
    Never,
}

/// Says when a request may be sent again. Any closure `Fn(&Req) -> Repeat` does.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not say when a request of the type `{Req}` may be sent again",
    note = "`ByMethod` is for `http::Request`; for others there are `AnyRequest` and closures `Fn(&Req) -> Repeat`"
)]
pub trait Repeatable<Req> {
    /// When `request` may be sent again.
    fn repeat(&self, request: &Req) -> Repeat;
}

impl<F, Req> Repeatable<Req> for F
where
    F: Fn(&Req) -> Repeat,
{
    fn repeat(&self, request: &Req) -> Repeat {
        self(request)
    }
}

/// Every request may be sent again.
#[derive(Debug, Clone, Copy, Default)]
pub struct AnyRequest;

impl<Req> Repeatable<Req> for AnyRequest {
    fn repeat(&self, _: &Req) -> Repeat {
        Repeat::Always
    }
}

/// HTTP's own word on it: idempotent methods may be sent again ([RFC 9110, 9.2.2]).
///
/// GET, HEAD, PUT, DELETE, OPTIONS and TRACE may, and what else [`http::Method::is_idempotent`] knows;
/// POST, PATCH and any other may not. A PUT or DELETE
/// with a precondition (`If-Match`, `If-None-Match`, `If-Unmodified-Since`) may only be when it was
/// not acted on: had the first one been, the second would fail its precondition, and a success would
/// come back as a 412. An `Idempotency-Key` header changes nothing, since it does not say that the
/// server knows it.
///
/// [RFC 9110, 9.2.2]: https://www.rfc-editor.org/rfc/rfc9110#section-9.2.2
#[derive(Debug, Clone, Copy, Default)]
pub struct ByMethod {
    pub(super) unsafe_methods: bool,
}

impl<B> Repeatable<Request<B>> for ByMethod {
    fn repeat(&self, request: &Request<B>) -> Repeat {
        let headers = request.headers();
        let method = request.method();
        if !method.is_idempotent() && !self.unsafe_methods {
            return Repeat::Never;
        }
        if (*method == Method::PUT || *method == Method::DELETE)
            && [IF_MATCH, IF_NONE_MATCH, IF_UNMODIFIED_SINCE]
                .iter()
                .any(|name| headers.contains_key(name))
        {
            return Repeat::IfNotActedOn;
        }
        Repeat::Always
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repeat(method: &str, headers: &[&str]) -> Repeat {
        let mut request = Request::builder().method(method);
        for name in headers {
            request = request.header(*name, "x");
        }
        ByMethod::default().repeat(&request.body(()).unwrap())
    }

    #[test]
    fn idempotent_methods_may_be_repeated() {
        for method in ["GET", "HEAD", "PUT", "DELETE", "OPTIONS", "TRACE"] {
            assert_eq!(repeat(method, &[]), Repeat::Always, "{method}");
        }
        for method in ["POST", "PATCH", "CONNECT", "PURGE", "get"] {
            assert_eq!(repeat(method, &[]), Repeat::Never, "{method}");
        }
    }

    #[test]
    fn a_precondition_on_a_write_allows_it_only_when_it_was_not_acted_on() {
        for header in ["if-match", "if-none-match", "if-unmodified-since"] {
            assert_eq!(repeat("PUT", &[header]), Repeat::IfNotActedOn);
            assert_eq!(repeat("DELETE", &[header]), Repeat::IfNotActedOn);
            assert_eq!(repeat("GET", &[header]), Repeat::Always);
        }
        assert_eq!(repeat("PUT", &["if-modified-since"]), Repeat::Always);
    }

    #[test]
    fn an_idempotency_key_changes_nothing() {
        assert_eq!(repeat("POST", &["idempotency-key"]), Repeat::Never);
    }

    #[test]
    fn unsafe_methods_can_be_allowed() {
        let all = ByMethod {
            unsafe_methods: true,
        };
        let post = Request::post("/").body(()).unwrap();
        assert_eq!(all.repeat(&post), Repeat::Always);
    }
}

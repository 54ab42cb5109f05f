//! Which responses have a body that arrives.

use http::{Method, Request, StatusCode};

/// What a request's method says of the body of its response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyOf {
    /// There is none.
    Head,
    /// After a 2xx there is none, but a tunnel.
    Connect,
    Other,
}

impl BodyOf {
    #[inline]
    pub(crate) fn request<B>(request: &Request<B>) -> Self {
        match *request.method() {
            Method::HEAD => Self::Head,
            Method::CONNECT => Self::Connect,
            _ => Self::Other,
        }
    }

    /// Whether a response with this status can have a body that arrives ([RFC 9110, 6.4.1]). Behind
    /// an upgrade or a tunnel is another protocol, whose silences are its own.
    ///
    /// [RFC 9110, 6.4.1]: https://www.rfc-editor.org/rfc/rfc9110#section-6.4.1
    #[inline]
    pub(crate) fn arrives(self, status: StatusCode) -> bool {
        match self {
            Self::Head => false,
            Self::Connect if status.is_success() => false,
            Self::Connect | Self::Other => {
                !status.is_informational()
                    && status != StatusCode::NO_CONTENT
                    && status != StatusCode::NOT_MODIFIED
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_without_a_body_are_told_from_those_with_one() {
        let arrives = |of: BodyOf, status: u16| of.arrives(StatusCode::from_u16(status).unwrap());
        for status in [200, 206, 404, 503] {
            assert!(arrives(BodyOf::Other, status), "{status}");
            assert!(!arrives(BodyOf::Head, status), "{status}");
        }
        for status in [100, 101, 103, 204, 304] {
            assert!(!arrives(BodyOf::Other, status), "{status}");
        }
        assert!(!arrives(BodyOf::Connect, 200));
        assert!(arrives(BodyOf::Connect, 407));
    }
}

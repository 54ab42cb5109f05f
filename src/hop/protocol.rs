//! What a caller speaks.

use http::HeaderMap;
use http::header::CONTENT_TYPE;

/// What a caller speaks, and is to be answered in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Protocol {
    /// Status codes are HTTP's.
    Http,
    /// Status codes are those of gRPC, in trailers.
    Grpc,
    /// gRPC for browsers, which has its trailers in the body.
    GrpcWeb,
}

impl Protocol {
    /// That of a request, by its `Content-Type`: `application/grpc`, `application/grpc-web` and their
    /// kinds (`+proto`).
    #[must_use]
    pub fn of(headers: &HeaderMap) -> Self {
        let Some(kind) = headers.get(CONTENT_TYPE) else {
            return Self::Http;
        };
        let Some(rest) = strip_prefix(kind.as_bytes(), b"application/grpc") else {
            return Self::Http;
        };
        match rest {
            [] | [b'+' | b';' | b' ' | b'\t', ..] => Self::Grpc,
            _ if strip_prefix(rest, b"-web").is_some() => Self::GrpcWeb,
            _ => Self::Http,
        }
    }

    pub(super) const fn content_type(self) -> &'static str {
        match self {
            Self::Http => "application/problem+json",
            Self::Grpc => "application/grpc",
            Self::GrpcWeb => "application/grpc-web+proto",
        }
    }
}

fn strip_prefix<'a>(value: &'a [u8], prefix: &[u8]) -> Option<&'a [u8]> {
    let (start, rest) = value.split_at_checked(prefix.len())?;
    start.eq_ignore_ascii_case(prefix).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn the_content_type_tells() {
        for (kind, expected) in [
            ("application/grpc", Protocol::Grpc),
            ("application/grpc+proto", Protocol::Grpc),
            ("Application/gRPC; charset=x", Protocol::Grpc),
            ("application/grpc-web", Protocol::GrpcWeb),
            ("application/grpc-web-text+proto", Protocol::GrpcWeb),
            ("application/grpcx", Protocol::Http),
            ("application/json", Protocol::Http),
            ("application/gr", Protocol::Http),
            ("", Protocol::Http),
        ] {
            let mut headers = HeaderMap::new();
            assert_eq!(Protocol::of(&headers), Protocol::Http);
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
            assert_eq!(Protocol::of(&headers), expected, "{kind}");
        }
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_bytes(b"\xff").unwrap());
        assert_eq!(Protocol::of(&headers), Protocol::Http);
    }
}

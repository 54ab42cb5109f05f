//! The verdict on a gRPC response.

use std::time::Duration;

use http::{HeaderMap, Response, StatusCode};

use super::error::verdict_of_error;
use super::verdict::{AttemptResult, Classify, Verdict};
use crate::buffer::BufferedTrailers;
use crate::digits::whole_number;

/// Classifies gRPC responses, whatever their body, and the errors of gRPC clients.
///
/// | result | verdict |
/// | --- | --- |
/// | 14 `UNAVAILABLE` | `Transient`; `Throttled` when it says when to come back |
/// | 8 `RESOURCE_EXHAUSTED` | `Throttled` |
/// | 1 `CANCELLED`, 2 `UNKNOWN`, 4 `DEADLINE_EXCEEDED`, 13 `INTERNAL`, 15 `DATA_LOSS`, no status when the trailers have been read | `Permanent` |
/// | any other status: the request is at fault, or its answer is that | `Ok` |
/// | HTTP 429, 502, 503, 504 without a gRPC status: somebody in between answered | `Transient` |
/// | any other HTTP status but 200, without a gRPC status | `Permanent` |
/// | an error, tonic's `TimeoutExpired` among them (feature `tonic`) | as [`ErrorClassifier`](super::ErrorClassifier) says |
///
/// The status is read in the head, where an answer without a message has it ("trailers-only"). Other
/// answers have it in their trailers, after the messages: it is read there under
/// [`BufferResponsesLayer`](crate::BufferResponsesLayer), which has read them, and else the head alone
/// is a success.
///
/// `grpc-retry-pushback-ms` is how long a server asks to wait, as `Retry-After` is over HTTP; a negative
/// or malformed value says "not again" ([gRFC A6]).
///
/// A 4 that comes when the time is over that the server was told is no verdict on it, and does not get
/// here: [`PropagateLayer`](crate::PropagateLayer) leaves such an attempt to the clock that it was told by.
///
/// [gRFC A6]: https://github.com/grpc/proposal/blob/master/A6-client-retries.md
#[derive(Debug, Clone, Copy, Default)]
pub struct GrpcClassifier;

/// The statuses that more is to be said of than that they are none.
pub(crate) mod code {
    pub(crate) const OK: u16 = 0;
    pub(crate) const CANCELLED: u16 = 1;
    pub(crate) const UNKNOWN: u16 = 2;
    pub(crate) const DEADLINE_EXCEEDED: u16 = 4;
    pub(crate) const RESOURCE_EXHAUSTED: u16 = 8;
    pub(crate) const INTERNAL: u16 = 13;
    pub(crate) const UNAVAILABLE: u16 = 14;
    pub(crate) const DATA_LOSS: u16 = 15;
}

/// What a server asked for that has no use for the next attempt.
const NOT_AGAIN: Duration = Duration::MAX;

impl<B> Classify<Response<B>> for GrpcClassifier {
    fn classify(&self, result: AttemptResult<'_, Response<B>>) -> Verdict {
        let response = match result {
            Ok(response) => response,
            Err(error) => return verdict_of_error(error.get()),
        };
        match self.status(response) {
            Some(code::OK) | None => Verdict::Ok,
            Some(code::UNAVAILABLE) => match pushback(response) {
                None | Some(Duration::ZERO) => Verdict::Transient,
                Some(_) => Verdict::Throttled,
            },
            Some(code::RESOURCE_EXHAUSTED) => Verdict::Throttled,
            Some(
                code::CANCELLED
                | code::UNKNOWN
                | code::DEADLINE_EXCEEDED
                | code::INTERNAL
                | code::DATA_LOSS,
            ) => Verdict::Permanent,
            Some(code) if code < 17 => Verdict::Ok,
            // HTTP's.
            Some(429 | 502 | 503 | 504) => Verdict::Transient,
            Some(_) => Verdict::Permanent,
        }
    }

    fn wait(&self, result: AttemptResult<'_, Response<B>>) -> Option<Duration> {
        pushback(result.ok()?)
    }

    /// The gRPC status; that of HTTP where there is none because it is not 200. None for a head whose
    /// status is still to come.
    fn status(&self, response: &Response<B>) -> Option<u16> {
        let head = response.headers();
        let trailers = response.extensions().get::<BufferedTrailers>();
        let found = head
            .get("grpc-status")
            .or_else(|| trailers?.get("grpc-status"));
        match found {
            Some(status) => Some(read_status(status.as_bytes())),
            None if response.status() != StatusCode::OK => Some(response.status().as_u16()),
            // All of it has been read, and it is not there.
            None if trailers.is_some() => Some(code::UNKNOWN),
            None => None,
        }
    }
}

/// What is no status is 2, "unknown", as is one that nobody knows.
fn read_status(value: &[u8]) -> u16 {
    match value {
        [digit @ b'0'..=b'9'] => u16::from(digit - b'0'),
        [b'1', digit @ b'0'..=b'6'] => 10 + u16::from(digit - b'0'),
        _ => code::UNKNOWN,
    }
}

/// How long the server asks to wait. Of several values the longest counts.
fn pushback<B>(response: &Response<B>) -> Option<Duration> {
    let of = |headers: &HeaderMap| {
        let values = headers.get_all("grpc-retry-pushback-ms");
        let waits = values.iter().map(|value| read_pushback(value.as_bytes()));
        waits.max()
    };
    let trailers = response.extensions().get::<BufferedTrailers>();
    of(response.headers()).max(trailers.and_then(|trailers| of(trailers)))
}

/// Whole milliseconds; whatever else there is says "not again", and so does what cannot be held.
fn read_pushback(value: &[u8]) -> Duration {
    match whole_number(value.trim_ascii()) {
        None | Some(u64::MAX) => NOT_AGAIN,
        Some(ms) => Duration::from_millis(ms),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;
    use proptest::prelude::*;

    fn response(status: u16, headers: &[(&'static str, &str)]) -> Response<()> {
        let mut response = Response::builder().status(status);
        for (name, value) in headers {
            response = response.header(*name, *value);
        }
        response.body(()).unwrap()
    }

    fn judged(headers: &[(&'static str, &str)]) -> (Verdict, Option<Duration>) {
        let response = response(200, headers);
        let verdict = GrpcClassifier.classify(Ok(&response));
        (verdict, GrpcClassifier.wait(Ok(&response)))
    }

    fn trailers(fields: &[(&'static str, &'static str)]) -> BufferedTrailers {
        let mut trailers = HeaderMap::new();
        for (name, value) in fields {
            trailers.append(*name, HeaderValue::from_static(value));
        }
        BufferedTrailers::new(trailers)
    }

    #[test]
    fn each_status_has_the_verdict_of_the_table() {
        let expected = |code| match code {
            14 => Verdict::Transient,
            8 => Verdict::Throttled,
            1 | 2 | 4 | 13 | 15 => Verdict::Permanent,
            _ => Verdict::Ok,
        };
        for code in 0..=16_u16 {
            let (verdict, wait) = judged(&[("grpc-status", &code.to_string())]);
            assert_eq!((verdict, wait), (expected(code), None), "{code}");
        }
        for odd in ["17", "99", "-1", "007", "", "x", " 0"] {
            let (verdict, _) = judged(&[("grpc-status", odd)]);
            assert_eq!(verdict, Verdict::Permanent, "{odd:?}");
        }
    }

    #[test]
    fn a_head_without_a_status_is_a_success_unless_all_has_been_read() {
        let mut response = response(200, &[("content-type", "application/grpc")]);
        assert_eq!(GrpcClassifier.classify(Ok(&response)), Verdict::Ok);
        assert_eq!(GrpcClassifier.status(&response), None);

        response.extensions_mut().insert(trailers(&[]));
        assert_eq!(GrpcClassifier.classify(Ok(&response)), Verdict::Permanent);
    }

    #[test]
    fn the_status_is_read_in_the_trailers_too() {
        for (status, expected) in [("0", Verdict::Ok), ("14", Verdict::Transient)] {
            let mut response = response(200, &[]);
            let read = trailers(&[("grpc-status", status)]);
            response.extensions_mut().insert(read);
            assert_eq!(GrpcClassifier.classify(Ok(&response)), expected);
        }
        let mut response = response(200, &[]);
        let asking = trailers(&[("grpc-status", "14"), ("grpc-retry-pushback-ms", "70")]);
        response.extensions_mut().insert(asking);
        assert_eq!(GrpcClassifier.classify(Ok(&response)), Verdict::Throttled);
        let asked = GrpcClassifier.wait(Ok(&response));
        assert_eq!(asked, Some(Duration::from_millis(70)));
    }

    #[test]
    fn pushback_is_honoured_and_what_is_no_number_says_not_again() {
        let asked =
            |value: &str| judged(&[("grpc-status", "14"), ("grpc-retry-pushback-ms", value)]);
        let ms = Duration::from_millis;
        assert_eq!(asked("250"), (Verdict::Throttled, Some(ms(250))));
        assert_eq!(asked(" 250 "), (Verdict::Throttled, Some(ms(250))));
        assert_eq!(asked("0"), (Verdict::Transient, Some(ms(0))));
        for never in ["-1", "-0", "+5", "1.5", "soon", "", "99999999999999999999"] {
            let never_again = (Verdict::Throttled, Some(Duration::MAX));
            assert_eq!(asked(never), never_again, "{never:?}");
        }
        let twice = [
            ("grpc-status", "14"),
            ("grpc-retry-pushback-ms", "10"),
            ("grpc-retry-pushback-ms", "20"),
        ];
        assert_eq!(judged(&twice).1, Some(ms(20)));
    }

    #[test]
    fn what_somebody_in_between_answered_is_judged_by_its_http_status() {
        for (status, expected) in [
            (503, Verdict::Transient),
            (502, Verdict::Transient),
            (504, Verdict::Transient),
            (429, Verdict::Transient),
            (404, Verdict::Permanent),
            (500, Verdict::Permanent),
        ] {
            let response = response(status, &[("content-type", "text/html")]);
            assert_eq!(GrpcClassifier.classify(Ok(&response)), expected, "{status}");
        }
        // A gRPC status counts for more.
        let both = response(503, &[("grpc-status", "5")]);
        assert_eq!(GrpcClassifier.classify(Ok(&both)), Verdict::Ok);
    }

    proptest! {
        #[test]
        fn no_bytes_panic_nor_shorten_a_wait(value in proptest::collection::vec(any::<u8>(), 0..32)) {
            let wait = read_pushback(&value);
            let digits = value.trim_ascii();
            if digits.iter().all(u8::is_ascii_digit) && (1..=19).contains(&digits.len()) {
                let ms: u64 = std::str::from_utf8(digits).unwrap().parse().unwrap();
                prop_assert_eq!(wait, Duration::from_millis(ms));
            } else if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
                prop_assert_eq!(wait, Duration::MAX);
            }
            let _ = read_status(&value);
        }
    }
}

//! The verdict on an HTTP response.

use std::time::Duration;

use http::{Response, StatusCode};

use super::error::verdict_of_error;
use super::retry_after::retry_after;
use super::verdict::{AttemptResult, Classify, Verdict};

/// Classifies HTTP responses, whatever their body, and the errors of HTTP clients.
///
/// | result | verdict |
/// | --- | --- |
/// | 429, 503 with a valid `Retry-After` | `Throttled` |
/// | 408, 500, 502, 503, 504, and the 5xx that nobody has assigned | `Transient` |
/// | any other response, 501 and 505 among them | `Ok` |
/// | an error | as [`ErrorClassifier`](super::ErrorClassifier) says |
///
/// `Retry-After` is read in whole seconds or as an HTTP-date, which is taken against the response's
/// own `Date` where it has one ([RFC 9110, 10.2.3]). A fraction of a second is no RFC value but is
/// sent; it is rounded up. Of several headers those that are invalid are dropped and the longest is
/// taken.
///
/// [RFC 9110, 10.2.3]: https://www.rfc-editor.org/rfc/rfc9110#field.retry-after
#[derive(Debug, Clone, Copy, Default)]
pub struct HttpClassifier;

impl<B> Classify<Response<B>> for HttpClassifier {
    #[inline]
    fn classify(&self, result: AttemptResult<'_, Response<B>>) -> Verdict {
        let response = match result {
            Ok(response) => response,
            Err(error) => return verdict_of_error(error.get()),
        };
        match response.status() {
            StatusCode::TOO_MANY_REQUESTS => Verdict::Throttled,
            StatusCode::SERVICE_UNAVAILABLE => match retry_after(response.headers()) {
                Some(_) => Verdict::Throttled,
                None => Verdict::Transient,
            },
            status if is_transient(status) => Verdict::Transient,
            _ => Verdict::Ok,
        }
    }

    fn wait(&self, result: AttemptResult<'_, Response<B>>) -> Option<Duration> {
        let response = result.ok()?;
        matches!(
            response.status(),
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE
        )
        .then(|| retry_after(response.headers()))?
    }

    #[inline]
    fn status(&self, response: &Response<B>) -> Option<u16> {
        Some(response.status().as_u16())
    }
}

/// The assigned 5xx are those of the IANA registry of status codes: 500 to 508, 510 and 511.
fn is_transient(status: StatusCode) -> bool {
    match status.as_u16() {
        408 | 500 | 502 | 503 | 504 => true,
        501 | 505..=508 | 510 | 511 => false,
        code => (500..600).contains(&code),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(status: u16, headers: &[(&str, &str)]) -> Verdict {
        let mut response = Response::builder().status(status);
        for (name, value) in headers {
            response = response.header(*name, *value);
        }
        HttpClassifier.classify(Ok(&response.body(()).unwrap()))
    }

    #[test]
    fn each_status_has_the_verdict_of_the_table() {
        for status in [100, 101, 200, 204, 301, 304, 400, 401, 404, 409, 425] {
            assert_eq!(verdict(status, &[]), Verdict::Ok, "{status}");
        }
        for status in [408, 500, 502, 503, 504, 509, 512, 520, 522, 529, 599] {
            assert_eq!(verdict(status, &[]), Verdict::Transient, "{status}");
        }
        for status in [501, 505, 506, 507, 508, 510, 511, 600, 999] {
            assert_eq!(verdict(status, &[]), Verdict::Ok, "{status}");
        }
        assert_eq!(verdict(429, &[]), Verdict::Throttled);
    }

    #[test]
    fn a_503_is_throttled_only_by_a_valid_retry_after() {
        for valid in ["1", "0", " 3 ", "0.5", "Sun, 06 Nov 1994 08:49:37 GMT"] {
            let found = verdict(503, &[("retry-after", valid)]);
            assert_eq!(found, Verdict::Throttled, "{valid}");
        }
        for invalid in ["", "soon", "-1", "5, 60"] {
            let found = verdict(503, &[("retry-after", invalid)]);
            assert_eq!(found, Verdict::Transient, "{invalid}");
        }
    }

    #[test]
    fn retry_after_is_read_on_429_and_503_only() {
        for (status, expected) in [(429, true), (503, true), (500, false), (301, false)] {
            let response = Response::builder()
                .status(status)
                .header("retry-after", "7")
                .body(())
                .unwrap();
            let wait = HttpClassifier.wait(Ok(&response));
            assert_eq!(wait, expected.then_some(Duration::from_secs(7)), "{status}");
        }
    }
}

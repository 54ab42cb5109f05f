//! Responses that may ask to wait.

use std::time::Duration;

use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderValue, Response};
use tower_deadline::{Classify, HttpClassifier, Verdict};

use crate::headers;

/// A response with these headers, and with each of some statuses.
///
/// # Panics
///
/// When what is read of it is not what the bytes allow of.
pub fn retry_after(data: &[u8]) {
    let mut fields = headers(data);
    // Against the wall clock nothing could be said twice.
    let dated = fields.contains_key("date");
    for status in [429, 503] {
        let response = response(status, &fields);
        let wait = HttpClassifier.wait(Ok(&response));
        let verdict = HttpClassifier.classify(Ok(&response));
        let throttled = status == 429 || wait.is_some();
        let expected = if throttled {
            Verdict::Throttled
        } else {
            Verdict::Transient
        };
        assert_eq!(verdict, expected);
        check(&fields, wait);
    }
    for status in [200, 301, 404, 408, 500, 504, 599] {
        let response = response(status, &fields);
        assert_eq!(HttpClassifier.wait(Ok(&response)), None);
    }

    // What is no value changes nothing.
    let wait = |fields: &HeaderMap| HttpClassifier.wait(Ok(&response(429, fields)));
    let before = wait(&fields);
    let junk = HeaderValue::from_static("-1");
    if fields.try_append(RETRY_AFTER, junk).is_ok() {
        let after = wait(&fields);
        assert_eq!(before.is_some(), after.is_some());
        if dated {
            assert!(before >= after.map(|after| after.saturating_sub(Duration::from_secs(60))));
        }
    }
}

fn response(status: u16, fields: &HeaderMap) -> Response<()> {
    let mut response = Response::builder().status(status).body(()).unwrap();
    response.headers_mut().clone_from(fields);
    response
}

fn check(fields: &HeaderMap, wait: Option<Duration>) {
    let values = || fields.get_all(RETRY_AFTER).iter();
    let mut valid = false;
    for value in values() {
        let value = value.as_bytes().trim_ascii();
        let first = value.first().copied().unwrap_or(b'-');
        valid |= first.is_ascii_alphanumeric();
        if !value.is_empty() && value.iter().all(u8::is_ascii_digit) {
            // Never sooner than asked.
            let seconds = std::str::from_utf8(value).unwrap().parse();
            let asked = seconds.map_or(Duration::MAX, Duration::from_secs);
            assert!(
                wait.is_some_and(|wait| wait >= asked),
                "{wait:?} for {asked:?}"
            );
        }
    }
    assert!(valid || wait.is_none(), "{wait:?} was never asked for");
}

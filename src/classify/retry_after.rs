//! `Retry-After`, as the wire has it.

use std::time::Duration;

use http::HeaderMap;
use http::header::{DATE, RETRY_AFTER};

use crate::digits::whole_number;

/// The wait that a response asks for: the longest of its valid `Retry-After` headers.
pub(super) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    headers
        .get_all(RETRY_AFTER)
        .iter()
        .filter_map(|value| parse(value.as_bytes(), || now(headers)))
        .max()
}

/// Wall-clock time: the only use of it, since a date on the wire means nothing without.
#[allow(clippy::disallowed_types, clippy::disallowed_methods)]
type WallClock = std::time::SystemTime;

/// The sender's own clock where it told it, so that two clocks that differ do no harm.
fn now(headers: &HeaderMap) -> WallClock {
    headers
        .get(DATE)
        .and_then(|value| date(value.as_bytes()))
        .unwrap_or_else(
            #[allow(clippy::disallowed_methods)] // see `WallClock`
            WallClock::now,
        )
}

fn date(value: &[u8]) -> Option<WallClock> {
    httpdate::parse_http_date(std::str::from_utf8(value).ok()?).ok()
}

/// One header value. Whole seconds, a decimal fraction (rounded up), or an HTTP-date in any of the
/// three forms of RFC 9110; a past date is zero, and a number too large to hold is "never".
fn parse(value: &[u8], now: impl FnOnce() -> WallClock) -> Option<Duration> {
    let value = value.trim_ascii();
    let mut parts = value.splitn(2, |&b| b == b'.');
    let whole = parts.next()?;
    if whole.first()?.is_ascii_digit() {
        let fraction = parts.next();
        let more = match fraction {
            None => false,
            Some(fraction) if fraction.is_empty() || !all_digits(fraction) => return None,
            Some(fraction) => fraction.iter().any(|&b| b != b'0'),
        };
        return match whole_number(whole)? {
            u64::MAX => Some(Duration::MAX),
            whole => Some(Duration::from_secs(whole.saturating_add(u64::from(more)))),
        };
    }
    let until = date(value)?;
    Some(until.duration_since(now()).unwrap_or(Duration::ZERO))
}

fn all_digits(value: &[u8]) -> bool {
    value.iter().all(u8::is_ascii_digit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;
    use proptest::prelude::*;

    const DATE_OF_RESPONSE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";

    fn read(values: &[&[u8]]) -> Option<Duration> {
        let mut headers = HeaderMap::new();
        headers.insert(DATE, HeaderValue::from_static(DATE_OF_RESPONSE));
        for value in values {
            headers.append(RETRY_AFTER, HeaderValue::from_bytes(value).unwrap());
        }
        retry_after(&headers)
    }

    fn secs(s: u64) -> Duration {
        Duration::from_secs(s)
    }

    #[test]
    fn whole_seconds_and_fractions_are_read() {
        assert_eq!(read(&[b"120"]), Some(secs(120)));
        assert_eq!(read(&[b" 120 "]), Some(secs(120)));
        assert_eq!(read(&[b"\t7\t"]), Some(secs(7)));
        assert_eq!(read(&[b"0"]), Some(secs(0)));
        assert_eq!(read(&[b"0.5"]), Some(secs(1)));
        assert_eq!(read(&[b"0.129"]), Some(secs(1)));
        assert_eq!(read(&[b"5.0"]), Some(secs(5)));
        assert_eq!(read(&[b"5.01"]), Some(secs(6)));
    }

    #[test]
    fn what_is_no_value_is_dropped() {
        let invalid: [&[u8]; 23] = [
            b"-1",
            b"-5",
            b"+5",
            b"0x10",
            b"1e3",
            b"1_000",
            b"1m0s",
            b"soon",
            b"",
            b"   ",
            b"nan",
            b"inf",
            b"-inf",
            b"Infinity",
            "²".as_bytes(),
            "٣".as_bytes(),
            b"\xff",
            b"5, 60",
            b"5.",
            b".5",
            b"1.2.3",
            b"Fri, 32 Foo 1994 08:49:37 GMT",
            b"Sun, 06 Nov 1994 08:49:37",
        ];
        for value in invalid {
            assert_eq!(read(&[value]), None, "{:?}", String::from_utf8_lossy(value));
        }
    }

    #[test]
    fn what_cannot_be_held_is_never() {
        assert_eq!(read(&[b"18446744073709551615"]), Some(Duration::MAX));
        assert_eq!(
            read(&[b"1234567890123456789012345678901234567890"]),
            Some(Duration::MAX)
        );
        assert_eq!(read(&[b"18446744073709551615.5"]), Some(Duration::MAX));
    }

    #[test]
    fn the_three_forms_of_a_date_are_taken_against_the_date_of_the_response() {
        assert_eq!(read(&[b"Sun, 06 Nov 1994 08:49:57 GMT"]), Some(secs(20)));
        assert_eq!(read(&[b"Sunday, 06-Nov-94 08:49:57 GMT"]), Some(secs(20)));
        assert_eq!(read(&[b"Sun Nov  6 08:49:57 1994"]), Some(secs(20)));
        assert_eq!(read(&[b"Sun, 06 Nov 1994 08:49:17 GMT"]), Some(secs(0)));
    }

    #[test]
    fn a_date_at_the_end_of_time_is_long_and_no_panic() {
        let far = read(&[b"Fri, 31 Dec 9999 23:59:59 GMT"]).unwrap();
        assert!(far > Duration::from_secs(7000 * 365 * 86_400));
        let _ = read(&[b"Fri, 31 Dec 10000 23:59:59 GMT"]);
    }

    #[test]
    fn without_a_date_of_its_own_the_response_is_taken_against_the_wall_clock() {
        let mut headers = HeaderMap::new();
        headers.insert(RETRY_AFTER, HeaderValue::from_static(DATE_OF_RESPONSE));
        assert_eq!(retry_after(&headers), Some(secs(0)));
    }

    #[test]
    fn of_several_the_longest_valid_one_is_taken() {
        assert_eq!(read(&[b"5", b"60"]), Some(secs(60)));
        assert_eq!(read(&[b"60", b"soon", b"5"]), Some(secs(60)));
        assert_eq!(read(&[b"soon", b"-1"]), None);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(value in proptest::collection::vec(any::<u8>(), 0..48)) {
            if let Ok(value) = HeaderValue::from_bytes(&value) {
                let mut headers = HeaderMap::new();
                headers.append(RETRY_AFTER, value.clone());
                headers.append(DATE, value);
                let _ = retry_after(&headers);
            }
        }

        #[test]
        fn a_number_is_never_read_as_less(seconds in any::<u64>(), digits in "[0-9]{1,9}") {
            let asked = Duration::from_secs(seconds);
            prop_assert!(read(&[seconds.to_string().as_bytes()]).unwrap() >= asked);
            let fractional = format!("{seconds}.{digits}");
            let with_fraction = read(&[fractional.as_bytes()]).unwrap();
            prop_assert!(with_fraction >= asked);
            let any = digits.bytes().any(|b| b != b'0');
            prop_assert!(!any || with_fraction > asked || with_fraction == Duration::MAX);
        }
    }
}

//! How a deadline is written on the wire.

use std::time::Duration;

use http::HeaderValue;

use crate::digits::whole_number;

/// A header that carries a deadline, and how the time in it is written.
///
/// | header | its value |
/// | --- | --- |
/// | [`X_DEADLINE_MS`](Self::X_DEADLINE_MS), and [`millis`](Self::millis) of any other name | whole milliseconds; `0` says that the time is over |
/// | [`GRPC_TIMEOUT`](Self::GRPC_TIMEOUT) | one to eight digits and one of the units `H M S m u n` ([gRPC over HTTP/2]); 0 is no value |
/// | [`ENVOY`](Self::ENVOY) | whole milliseconds; `0` says that there is no deadline |
///
/// A time, and no instant: clocks of two machines need not agree.
///
/// ```
/// use std::time::Duration;
/// use tower_deadline::DeadlineHeader;
///
/// // Off a message of a queue, say.
/// let left = DeadlineHeader::X_DEADLINE_MS.parse(b" 1500 ").unwrap();
/// assert_eq!(left, Some(Duration::from_millis(1500)));
/// assert!(DeadlineHeader::GRPC_TIMEOUT.parse(b"1500").is_err()); // no unit
/// ```
///
/// [gRPC over HTTP/2]: https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DeadlineHeader {
    name: &'static str,
    pub(super) format: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Format {
    Millis,
    Grpc,
    Envoy,
}

/// A header's value that means nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("malformed header value")
    }
}

impl std::error::Error for Malformed {}

impl DeadlineHeader {
    /// `X-Deadline-Ms`: whole milliseconds.
    pub const X_DEADLINE_MS: Self = Self::millis("x-deadline-ms");

    /// `grpc-timeout`, which every gRPC peer honours.
    pub const GRPC_TIMEOUT: Self = Self {
        name: "grpc-timeout",
        format: Format::Grpc,
    };

    /// `x-envoy-expected-rq-timeout-ms`, which Envoy writes: whole milliseconds, 0 for "no deadline".
    pub const ENVOY: Self = Self {
        name: "x-envoy-expected-rq-timeout-ms",
        format: Format::Envoy,
    };

    /// Whole milliseconds in a header of this name.
    #[must_use]
    pub const fn millis(name: &'static str) -> Self {
        Self {
            name,
            format: Format::Millis,
        }
    }

    /// The header's name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// The time in a value of this header; `None` where it says that there is no deadline.
    ///
    /// Spaces and tabs around it are no part of it. A number that is too large to hold is the largest
    /// that can be held, and not "no deadline".
    ///
    /// # Errors
    ///
    /// Whatever is not of the header's form: signs, fractions, exponents, other digits than ASCII's, a
    /// list of several values, nothing.
    pub fn parse(&self, value: &[u8]) -> Result<Option<Duration>, Malformed> {
        self.format.parse(value)
    }

    /// The value that says that `left` is left, rounded down; `None` below a millisecond, which is not
    /// worth sending and could read as 0.
    ///
    /// `grpc-timeout` holds eight digits: where milliseconds do not fit, it has the next coarser unit
    /// in which they do.
    #[must_use]
    pub fn format(&self, left: Duration) -> Option<HeaderValue> {
        self.format.format(left)
    }
}

impl Format {
    /// See [`DeadlineHeader::parse`].
    pub(super) fn parse(self, value: &[u8]) -> Result<Option<Duration>, Malformed> {
        let value = trim(value);
        let found = match self {
            Self::Millis => whole_number(value).map(Duration::from_millis),
            Self::Envoy => match whole_number(value) {
                Some(0) => return Ok(None),
                found => found.map(Duration::from_millis),
            },
            Self::Grpc => grpc_timeout(value),
        };
        found.map(Some).ok_or(Malformed)
    }

    /// See [`DeadlineHeader::format`].
    pub(super) fn format(self, left: Duration) -> Option<HeaderValue> {
        let ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
        if ms == 0 {
            return None;
        }
        match self {
            Self::Millis | Self::Envoy => Some(HeaderValue::from(ms)),
            Self::Grpc => {
                let (count, unit) = in_eight_digits(ms);
                HeaderValue::try_from(format!("{count}{unit}")).ok()
            }
        }
    }
}

/// Without the spaces and tabs around it.
pub(super) fn trim(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

/// The most digits that `grpc-timeout` may have, and the first number that has more.
const GRPC_DIGITS: usize = 8;
const GRPC_LIMIT: u64 = 10_u64.pow(8);

/// "A positive integer as ASCII string of at most 8 digits" and a unit.
fn grpc_timeout(value: &[u8]) -> Option<Duration> {
    let (unit, digits) = value.split_last()?;
    if digits.len() > GRPC_DIGITS {
        return None;
    }
    let count = whole_number(digits).filter(|count| *count > 0)?;
    Some(match unit {
        b'H' => Duration::from_secs(count * 3600),
        b'M' => Duration::from_secs(count * 60),
        b'S' => Duration::from_secs(count),
        b'm' => Duration::from_millis(count),
        b'u' => Duration::from_micros(count),
        b'n' => Duration::from_nanos(count),
        _ => return None,
    })
}

/// Milliseconds as a count of at most eight digits and its unit, rounded down. Never 0, since a coarser
/// unit is only taken for more than the finer one can hold.
fn in_eight_digits(ms: u64) -> (u64, char) {
    let mut count = ms;
    for (unit, next) in [('m', 1000), ('S', 60), ('M', 60)] {
        if count < GRPC_LIMIT {
            return (count, unit);
        }
        count /= next;
    }
    (count.min(GRPC_LIMIT - 1), 'H')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ALL: [DeadlineHeader; 3] = [
        DeadlineHeader::X_DEADLINE_MS,
        DeadlineHeader::GRPC_TIMEOUT,
        DeadlineHeader::ENVOY,
    ];

    #[test]
    fn a_coarser_unit_is_taken_only_when_the_finer_does_not_fit() {
        let written = |left| {
            let value = DeadlineHeader::GRPC_TIMEOUT.format(left).unwrap();
            value.to_str().unwrap().to_owned()
        };
        assert_eq!(written(Duration::from_millis(1)), "1m");
        assert_eq!(written(Duration::from_micros(1999)), "1m");
        assert_eq!(written(Duration::from_millis(99_999_999)), "99999999m");
        assert_eq!(written(Duration::from_secs(100_000)), "100000S");
        assert_eq!(written(Duration::from_millis(100_000_999)), "100000S");
        assert_eq!(written(Duration::from_secs(99_999_999)), "99999999S");
        assert_eq!(written(Duration::from_secs(100_000_000)), "1666666M");
        assert_eq!(written(Duration::from_secs(99_999_999 * 60)), "99999999M");
        assert_eq!(written(Duration::from_secs(100_000_000 * 60)), "1666666H");
        assert_eq!(written(Duration::MAX), "99999999H");
    }

    #[test]
    fn below_a_millisecond_there_is_nothing_to_write() {
        for header in ALL {
            assert_eq!(header.format(Duration::ZERO), None);
            assert_eq!(header.format(Duration::from_micros(999)), None);
            assert!(header.format(Duration::from_millis(1)).is_some());
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic_and_none_mean_unlimited_but_envoys_zero(
            value in prop_oneof![
                proptest::collection::vec(any::<u8>(), 0..48),
                "[ \t]?[0-9]{0,24}[HMSmun]?[ \t]?".prop_map(String::into_bytes),
            ]
        ) {
            for header in ALL {
                if header.parse(&value) == Ok(None) {
                    prop_assert_eq!(header, DeadlineHeader::ENVOY);
                    prop_assert!(trim(&value).iter().all(|&b| b == b'0'));
                }
            }
        }

        #[test]
        fn what_is_written_is_read_as_no_more_than_there_was(
            secs in prop_oneof![any::<u64>(), 0..100_u64, 0..1_000_000_000_u64],
            nanos in 0..1_000_000_000_u32,
        ) {
            let left = Duration::new(secs, nanos);
            for header in ALL {
                let Some(value) = header.format(left) else {
                    prop_assert!(left < Duration::from_millis(1));
                    continue;
                };
                let read = header.parse(value.as_bytes()).unwrap().unwrap();
                prop_assert!(read <= left, "{:?} read as {:?}", left, read);
                prop_assert!(read >= Duration::from_millis(1));
                if header == DeadlineHeader::GRPC_TIMEOUT {
                    prop_assert!(value.len() <= GRPC_DIGITS + 1);
                }
                // Nor much less, where it can be held.
                if secs < 99_999_999 {
                    prop_assert!(left.saturating_sub(read) < Duration::from_secs(1));
                }
            }
        }
    }
}

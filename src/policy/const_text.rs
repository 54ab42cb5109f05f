//! Text that can be written while the compiler evaluates a constant.

use std::time::Duration;

/// A buffer that a `const fn` can write into. What does not fit is cut.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ConstText {
    bytes: [u8; Self::MOST],
    len: usize,
}

impl ConstText {
    const MOST: usize = 4096;

    pub(crate) const fn new() -> Self {
        Self {
            bytes: [0; Self::MOST],
            len: 0,
        }
    }

    pub(crate) const fn as_str(&self) -> &str {
        let (written, _) = self.bytes.split_at(self.len);
        match std::str::from_utf8(written) {
            Ok(text) => text,
            // Whole strings are pushed, or nothing of them.
            Err(_) => "",
        }
    }

    #[allow(clippy::indexing_slicing)] // both are within what the first lines make sure of
    pub(crate) const fn push(&mut self, text: &str) {
        let text = text.as_bytes();
        if text.len() > Self::MOST - self.len {
            return;
        }
        let mut i = 0;
        while i < text.len() {
            self.bytes[self.len + i] = text[i];
            i += 1;
        }
        self.len += text.len();
    }

    const fn digit(&mut self, digit: u128) {
        self.push(match digit {
            0 => "0",
            1 => "1",
            2 => "2",
            3 => "3",
            4 => "4",
            5 => "5",
            6 => "6",
            7 => "7",
            8 => "8",
            _ => "9",
        });
    }

    pub(crate) const fn integer(&mut self, number: u128) {
        let mut power = 1;
        while number / power >= 10 {
            power *= 10;
        }
        while power > 0 {
            self.digit(number / power % 10);
            power /= 10;
        }
    }

    /// `part / 10^digits`, after the point, without the zeros at its end.
    const fn fraction(&mut self, mut part: u128, mut digits: u32) {
        if part == 0 {
            return;
        }
        while part % 10 == 0 {
            part /= 10;
            digits -= 1;
        }
        self.push(".");
        while digits > 0 {
            digits -= 1;
            self.digit(part / 10_u128.pow(digits) % 10);
        }
    }

    /// As people write it: `10s`, `1.5s`, `250ms`.
    pub(crate) const fn duration(&mut self, duration: Duration) {
        let nanos = duration.as_nanos();
        let (unit, digits, name) = match nanos {
            0 => return self.push("0s"),
            1_000_000_000.. => (1_000_000_000, 9, "s"),
            1_000_000.. => (1_000_000, 6, "ms"),
            1_000.. => (1_000, 3, "µs"),
            _ => (1, 0, "ns"),
        };
        self.integer(nanos / unit);
        self.fraction(nanos % unit, digits);
        self.push(name);
    }

    /// To fifteen digits.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss
    )] // in the range that the first lines leave, and then for somebody who reads it
    pub(crate) const fn number(&mut self, mut number: f64) {
        if number.is_nan() {
            return self.push("NaN");
        }
        if number < 0.0 {
            self.push("-");
            number = -number;
        }
        if number >= 1e15 {
            return self.push("1e15 or more");
        }
        let whole = number as u128;
        // As many places as a float has, so that one that is just off does not read as if it were not.
        let mut digits = 15;
        let mut rest = whole;
        while rest > 0 {
            rest /= 10;
            digits -= 1;
        }
        let unit = 10_u128.pow(digits);
        // Half a unit of the last place, so that 0.1 does not become 0.0999.
        let part = ((number - whole as f64) * unit as f64 + 0.5) as u128;
        if part >= unit {
            return self.integer(whole + 1);
        }
        self.integer(whole);
        self.fraction(part, digits);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn duration(nanos: u64) -> String {
        let mut text = ConstText::new();
        text.duration(Duration::from_nanos(nanos));
        text.as_str().to_owned()
    }

    fn number(number: f64) -> String {
        let mut text = ConstText::new();
        text.number(number);
        text.as_str().to_owned()
    }

    #[test]
    fn durations_read_as_people_write_them() {
        assert_eq!(duration(0), "0s");
        assert_eq!(duration(7), "7ns");
        assert_eq!(duration(1_500), "1.5µs");
        assert_eq!(duration(250_000_000), "250ms");
        assert_eq!(duration(1_050_000_000), "1.05s");
        assert_eq!(duration(10_000_000_000), "10s");
        assert_eq!(duration(90_000_000_001), "90.000000001s");
        let mut longest = ConstText::new();
        longest.duration(Duration::MAX);
        assert_eq!(longest.as_str(), "18446744073709551615.999999999s");
    }

    #[test]
    fn numbers_read_as_people_write_them() {
        for (value, text) in [
            (0.0, "0"),
            (0.1, "0.1"),
            (-0.5, "-0.5"),
            (3.0, "3"),
            (1.999_999_999_9, "1.9999999999"),
            (0.95, "0.95"),
            (123.456, "123.456"),
            (999_999_999_999_999.0, "999999999999999"),
            (1e300, "1e15 or more"),
            (f64::INFINITY, "1e15 or more"),
            (f64::NEG_INFINITY, "-1e15 or more"),
            (f64::NAN, "NaN"),
        ] {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn what_does_not_fit_is_cut_and_breaks_nothing() {
        let mut text = ConstText::new();
        for _ in 0..3000 {
            text.push("µs");
        }
        assert_eq!(text.as_str().len(), 4095);
    }
}

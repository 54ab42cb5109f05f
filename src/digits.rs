//! Whole numbers, as headers have them.

/// ASCII digits and nothing else, at least one. What is too large to hold is the largest there is.
pub(crate) fn whole_number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(digits.iter().fold(0_u64, |sum, digit| {
        sum.saturating_mul(10)
            .saturating_add(u64::from(digit - b'0'))
    }))
}

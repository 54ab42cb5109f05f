//! How long a call of a policy takes at most, and why.
//!
//! [`Explanation`] has the answer in numbers, for a test or a dashboard, and as text. It is pure
//! arithmetic over the policy: the worst case of its attempts and waits, walked one by one.

mod explanation;
mod reach;
mod rows;
mod text;
mod units;
mod walk;

pub use self::explanation::{Explanation, FirstBound, Load, MeasuredTerms};
pub use self::walk::{AttemptStep, BackoffStep, End, Step, Walk};

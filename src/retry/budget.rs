//! How many retries a dependency gets.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::time::Instant;

use crate::call::Criticality;
use crate::key::Key;
use crate::keyed::Keyed;
use crate::policy::{PolicyError, Problems, Value};

/// Tokens are counted in billionths, so that any fraction holds.
const TOKEN: i64 = 1_000_000_000;

/// A budget for retries, so that they cannot multiply the load of a dependency that is down.
///
/// Each dependency (each [`Key`]) has a bucket of tokens. A retry takes one; an `Ok` call puts a
/// fraction of one back, and time refills it at a minimum rate. It starts full, and holds ten
/// seconds' worth of the minimum, at least one token. So while everything fails the retries settle at
/// the minimum rate, and while some calls succeed at that plus the fraction of those.
///
/// A retry of [`Sheddable`](crate::Criticality::Sheddable) work has to leave half the capacity behind,
/// where the capacity is at least two.
///
/// It is asked last, when everything else allows the retry; a retry that is not begun costs nothing.
/// A clone shares all its buckets, which is how several stacks keep one budget.
#[derive(Clone)]
pub struct RetryBudget(Option<Arc<Buckets>>);

struct Buckets {
    terms: Terms,
    /// Time is counted from here.
    epoch: Instant,
    keyed: Keyed<Bucket>,
}

/// The numbers of a budget.
///
/// The capacity is a number of whole tokens. A bucket holds up to one billionth less than one more, so
/// that a success beside a full bucket does not lose what is left of its fraction: with room for one
/// token and deposits of 0.51, the second would lose 0.02, and the fraction would not hold.
#[derive(Debug, Clone, Copy)]
struct Terms {
    /// What an `Ok` call puts back.
    deposit: i64,
    minimum_per_second: u32,
    capacity: i64,
}

impl Terms {
    fn most(self) -> i64 {
        self.capacity.saturating_add(TOKEN - 1)
    }

    /// What a retry has to leave behind (rule 26).
    fn reserve(self, criticality: Criticality) -> i64 {
        if criticality == Criticality::Sheddable && self.capacity >= 2 * TOKEN {
            self.capacity / 2
        } else {
            0
        }
    }
}

/// What is wrong with a fraction of the calls that succeed.
pub(crate) const fn fraction_problems(fraction: f64, problems: &mut Problems) {
    problems.refuse_if(
        !(fraction > 0.0 && fraction <= 1.0),
        "budget.fraction",
        Value::Number(fraction),
        "it has to be above 0 and at most 1; without a budget there is no fraction",
    );
}

impl RetryBudget {
    /// A tenth of the calls that succeed, and 3 retries a second.
    #[must_use]
    pub fn automatic() -> Self {
        Self::unchecked(0.1, 3)
    }

    /// `fraction` of the calls that succeed, in (0, 1], and `minimum_per_second` whatever happens.
    ///
    /// # Errors
    ///
    /// When `fraction` is not in (0, 1].
    pub fn of(fraction: f64, minimum_per_second: u32) -> Result<Self, PolicyError> {
        let mut problems = Problems::new();
        fraction_problems(fraction, &mut problems);
        problems.into_result()?;
        Ok(Self::unchecked(fraction, minimum_per_second))
    }

    /// The same whatever is wrong with the numbers: no fraction but the time where it is none.
    pub(crate) fn with_terms(fraction: f64, minimum_per_second: u32) -> Self {
        let usable = if fraction > 0.0 {
            fraction.min(1.0)
        } else {
            0.0
        };
        Self::unchecked(usable, minimum_per_second)
    }

    fn unchecked(fraction: f64, minimum_per_second: u32) -> Self {
        // In [0, 1e9], so the cast neither truncates nor wraps.
        #[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss)]
        let deposit = (fraction * TOKEN as f64).round() as i64;
        let terms = Terms {
            deposit,
            minimum_per_second,
            // At most what can be counted and added to: ten seconds' worth of a rate that nobody
            // reaches.
            capacity: (10 * i64::from(minimum_per_second))
                .max(1)
                .saturating_mul(TOKEN)
                .min(i64::MAX / 4),
        };
        Self(Some(Arc::new(Buckets {
            terms,
            epoch: Instant::now(),
            keyed: Keyed::new(Bucket::full(terms, 0)),
        })))
    }

    /// No budget: only the attempts of each call and its deadline bound the retries. A dependency that
    /// is down then gets its load multiplied by the attempts.
    #[must_use]
    pub const fn none() -> Self {
        Self(None)
    }

    /// The fraction and the minimum per second; `None` without a budget.
    pub(crate) fn terms(&self) -> Option<(f64, u32)> {
        let terms = self.0.as_ref()?.terms;
        #[allow(clippy::cast_precision_loss)] // it was made from a float, and is below 2^53
        let fraction = terms.deposit as f64 / TOKEN as f64;
        Some((fraction, terms.minimum_per_second))
    }

    /// The share of the capacity of `key`'s bucket that is spent: 0 when it is full, 1 when it is
    /// empty. `None` without a budget.
    #[must_use]
    pub fn utilisation(&self, key: Key) -> Option<f64> {
        let buckets = self.0.as_ref()?;
        let now = buckets.nanos(Instant::now());
        let level = buckets.bucket(key).level(buckets.terms, now);
        #[allow(clippy::cast_precision_loss)] // a share, for a human
        Some(1.0 - level as f64 / buckets.terms.capacity as f64)
    }

    /// Notes that a call succeeded.
    #[inline]
    pub(super) fn deposit(&self, key: Key) {
        if let Some(buckets) = &self.0 {
            // A bucket that nobody has taken from is full, whether it exists or not.
            buckets
                .keyed
                .peek(key, |bucket| bucket.deposit(buckets.terms));
        }
    }

    /// Takes a token, to be spent when the retry is sent and given back when it is not.
    ///
    /// # Errors
    ///
    /// How long until there is one, when there is none now.
    pub(super) fn withdraw(
        &self,
        key: Key,
        criticality: Criticality,
        now: Instant,
    ) -> Result<Token, Option<Duration>> {
        let Some(buckets) = &self.0 else {
            return Ok(Token(None));
        };
        let bucket = buckets.bucket(key);
        let nanos = buckets.nanos(now);
        let reserve = buckets.terms.reserve(criticality);
        bucket.withdraw(buckets.terms, reserve, nanos)?;
        Ok(Token(Some((buckets.terms, bucket))))
    }
}

impl Default for RetryBudget {
    fn default() -> Self {
        Self::automatic()
    }
}

impl fmt::Debug for RetryBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            None => f.write_str("RetryBudget(none)"),
            Some(buckets) => f.debug_tuple("RetryBudget").field(&buckets.terms).finish(),
        }
    }
}

impl Buckets {
    fn nanos(&self, now: Instant) -> u64 {
        let since = now.saturating_duration_since(self.epoch);
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    }

    fn bucket(&self, key: Key) -> Arc<Bucket> {
        self.keyed
            .get(key, || Bucket::full(self.terms, self.nanos(Instant::now())))
    }
}

/// The tokens of one dependency.
///
/// Only additions happen between two withdrawals, so clipping at the capacity once, at the
/// withdrawal, gives what clipping after each addition would. That keeps the path of a success to
/// one addition, and to one load while the bucket is full.
struct Bucket {
    /// May stand above the capacity; what is above does not count.
    tokens: AtomicI64,
    /// Until when the minimum rate has been added.
    refilled: AtomicU64,
}

impl Bucket {
    fn full(terms: Terms, now: u64) -> Self {
        Self {
            tokens: AtomicI64::new(terms.capacity),
            refilled: AtomicU64::new(now),
        }
    }

    fn deposit(&self, terms: Terms) {
        self.add(terms, terms.deposit);
    }

    fn add(&self, terms: Terms, amount: i64) {
        if self.tokens.load(Relaxed) < terms.most() {
            self.tokens.fetch_add(amount, Relaxed);
        }
    }

    fn refill(&self, terms: Terms, now: u64) {
        let since = self.refilled.load(Relaxed);
        if now <= since {
            return;
        }
        // One of several threads adds what is due for this stretch of time.
        if self
            .refilled
            .compare_exchange(since, now, Relaxed, Relaxed)
            .is_ok()
        {
            // A token is as many units as a second has nanoseconds.
            let due = (now - since).saturating_mul(u64::from(terms.minimum_per_second));
            let due = i64::try_from(due).unwrap_or(i64::MAX).min(terms.most());
            self.add(terms, due);
        }
    }

    fn level(&self, terms: Terms, now: u64) -> i64 {
        self.refill(terms, now);
        self.tokens.load(Relaxed).min(terms.capacity)
    }

    fn withdraw(&self, terms: Terms, reserve: i64, now: u64) -> Result<(), Option<Duration>> {
        let needed = TOKEN.saturating_add(reserve);
        self.refill(terms, now);
        let mut found = self.tokens.load(Relaxed);
        loop {
            let tokens = found.min(terms.most());
            if tokens < needed {
                let missing = u64::try_from(needed - tokens).unwrap_or(0);
                let rate = u64::from(terms.minimum_per_second);
                return Err((rate > 0).then(|| Duration::from_nanos(missing.div_ceil(rate))));
            }
            match self
                .tokens
                .compare_exchange_weak(found, tokens - TOKEN, Relaxed, Relaxed)
            {
                Ok(_) => return Ok(()),
                Err(other) => found = other,
            }
        }
    }
}

/// A token that has been taken. It goes back when it is dropped before it is spent (rule 13).
pub(super) struct Token(Option<(Terms, Arc<Bucket>)>);

impl Token {
    /// The retry is being sent.
    pub(super) fn spend(mut self) {
        self.0 = None;
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        if let Some((terms, bucket)) = &self.0 {
            bucket.add(*terms, TOKEN);
        }
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Token({})",
            if self.0.is_some() { "held" } else { "free" }
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn take(budget: &RetryBudget, key: Key, now: Instant) -> bool {
        budget
            .withdraw(key, Criticality::Critical, now)
            .map(Token::spend)
            .is_ok()
    }

    fn drain(budget: &RetryBudget, key: Key, now: Instant) -> u32 {
        let mut taken = 0;
        while take(budget, key, now) {
            taken += 1;
        }
        taken
    }

    #[test]
    fn it_starts_full_and_holds_ten_seconds_of_the_minimum() {
        let now = Instant::now();
        for rate in [1_000_000_000, u32::MAX] {
            let budget = RetryBudget::of(1.0, rate).unwrap();
            assert!(take(&budget, Key::SHARED, now));
            budget.deposit(Key::SHARED);
            assert!(take(&budget, Key::SHARED, now + Duration::from_secs(1)));
        }
        for (minimum, capacity) in [(0, 1), (1, 10), (3, 30), (100, 1000)] {
            let budget = RetryBudget::of(0.5, minimum).unwrap();
            assert_eq!(drain(&budget, Key::SHARED, now), capacity);
            assert_eq!(drain(&budget, Key::of("a"), now), capacity);
        }
    }

    #[test]
    fn it_refills_at_the_minimum_rate_and_not_above_the_capacity() {
        let budget = RetryBudget::of(0.1, 2).unwrap();
        let start = budget.0.as_ref().unwrap().epoch;
        assert_eq!(drain(&budget, Key::SHARED, start), 20);
        let just_before = start + Duration::from_millis(499);
        assert_eq!(drain(&budget, Key::SHARED, just_before), 0);
        let just_after = start + Duration::from_millis(501);
        assert_eq!(drain(&budget, Key::SHARED, just_after), 1);
        let much_later = start + Duration::from_secs(3600);
        assert_eq!(drain(&budget, Key::SHARED, much_later), 20);
    }

    #[test]
    fn a_refusal_says_when_to_come_back() {
        let start = Instant::now() + Duration::from_secs(1);
        let budget = RetryBudget::of(0.1, 4).unwrap();
        drain(&budget, Key::SHARED, start);
        let wait = budget
            .withdraw(Key::SHARED, Criticality::Critical, start)
            .unwrap_err()
            .unwrap();
        assert!(wait <= Duration::from_millis(250));
        assert!(!take(
            &budget,
            Key::SHARED,
            start + wait - Duration::from_nanos(1)
        ));
        assert!(take(&budget, Key::SHARED, start + wait));

        let budget = RetryBudget::of(0.1, 0).unwrap();
        drain(&budget, Key::SHARED, start);
        assert_eq!(
            budget
                .withdraw(Key::SHARED, Criticality::Critical, start)
                .unwrap_err(),
            None
        );
    }

    #[test]
    fn a_token_that_is_not_spent_goes_back_and_not_above_the_capacity() {
        let now = Instant::now();
        let budget = RetryBudget::of(0.1, 1).unwrap();
        let held = budget
            .withdraw(Key::SHARED, Criticality::Critical, now)
            .unwrap();
        assert_eq!(drain(&budget, Key::SHARED, now), 9);
        drop(held);
        assert_eq!(drain(&budget, Key::SHARED, now), 1);

        let budget = RetryBudget::of(0.1, 1).unwrap();
        let held = budget
            .withdraw(Key::SHARED, Criticality::Critical, now)
            .unwrap();
        for _ in 0..100 {
            budget.deposit(Key::SHARED);
        }
        drop(held);
        assert_eq!(drain(&budget, Key::SHARED, now), 10);
    }

    #[test]
    fn keys_have_buckets_of_their_own_and_clones_share_them() {
        let now = Instant::now();
        let budget = RetryBudget::of(0.1, 1).unwrap();
        assert_eq!(drain(&budget, Key::of("a"), now), 10);
        assert_eq!(drain(&budget.clone(), Key::of("a"), now), 0);
        assert_eq!(drain(&budget, Key::of("b"), now), 10);
        assert_eq!(drain(&budget, Key::SHARED, now), 10);
        assert_eq!(budget.utilisation(Key::of("c")), Some(0.0));
        assert!(budget.utilisation(Key::of("a")).unwrap() > 0.9);
    }

    #[test]
    fn a_hundred_thousand_keys_are_held_in_bounded_memory() {
        let now = Instant::now();
        let budget = RetryBudget::automatic();
        for i in 0..100_000 {
            assert!(take(&budget, Key::of(&i), now));
        }
        let buckets = budget.0.as_ref().unwrap();
        assert!(buckets.keyed.len() <= crate::keyed::MOST);
    }

    #[test]
    fn what_can_be_shed_leaves_half_behind() {
        let now = Instant::now();
        let taken = |minimum, criticality| {
            let budget = RetryBudget::of(0.1, minimum).unwrap();
            let mut taken = 0;
            while let Ok(token) = budget.withdraw(Key::SHARED, criticality, now) {
                token.spend();
                taken += 1;
            }
            (taken, drain(&budget, Key::SHARED, now))
        };
        assert_eq!(taken(3, Criticality::Sheddable), (15, 15));
        for other in [
            Criticality::SheddablePlus,
            Criticality::Critical,
            Criticality::CriticalPlus,
        ] {
            assert_eq!(taken(3, other), (30, 0));
        }
        // With a capacity of one there is no half to leave.
        assert_eq!(taken(0, Criticality::Sheddable), (1, 0));
    }

    #[test]
    fn no_budget_refuses_nothing() {
        let now = Instant::now();
        assert!((0..10_000).all(|_| take(&RetryBudget::none(), Key::SHARED, now)));
    }

    #[test]
    fn a_fraction_outside_its_range_is_refused() {
        for fraction in [0.0, -0.1, 1.5, f64::NAN, f64::INFINITY] {
            let error = RetryBudget::of(fraction, 3).unwrap_err();
            assert_eq!(error.problems()[0].field(), "budget.fraction");
        }
        for fraction in [f64::MIN_POSITIVE, 0.01, 1.0] {
            assert!(RetryBudget::of(fraction, 3).is_ok());
        }
    }

    #[test]
    fn threads_lose_and_invent_no_token() {
        let budget = RetryBudget::of(1.0, 100).unwrap();
        let now = Instant::now();
        let taken: u32 = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        (0..1000)
                            .filter(|_| take(&budget, Key::SHARED, now))
                            .count()
                    })
                })
                .collect();
            threads
                .into_iter()
                .map(|t| u32::try_from(t.join().unwrap()).unwrap())
                .sum()
        });
        assert_eq!(taken, 1000);
    }

    proptest! {
        #[test]
        fn any_fraction_holds_to_within_one(percent in 1..=100_u32, calls in 0..5000_u32) {
            let now = Instant::now();
            let budget = RetryBudget::of(f64::from(percent) / 100.0, 0).unwrap();
            let reserve = drain(&budget, Key::SHARED, now);
            let mut taken = 0;
            for _ in 0..calls {
                budget.deposit(Key::SHARED);
                taken += drain(&budget, Key::SHARED, now);
            }
            prop_assert_eq!(reserve, 1);
            let expected = f64::from(calls) * f64::from(percent) / 100.0;
            prop_assert!((f64::from(taken) - expected).abs() <= 1.0, "{} {}", taken, expected);
        }
    }
}

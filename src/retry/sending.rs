//! What is known of a call while its attempts are made.

use std::mem;
use std::time::Duration;

use tokio::time::Instant;

use super::budget::Token;
use super::decision::Plan;
use super::layer::Rules;
use super::repeatable::Repeat;
use crate::call::{
    Attempt, Entered, Membership, Refined, RetryPart, Scope, Setting, refine, with_current,
};
use crate::classify::Verdict;
use crate::event::{Event, EventKind};
use crate::key::Key;

/// What is known of the call, apart from the futures in it.
pub(super) struct Sending {
    pub(super) call: Membership,
    pub(super) started: Instant,
    pub(super) key: Key,
    /// What the request itself says; an override may say otherwise.
    by_request: Repeat,
    /// The one retry of a request that never left has been made.
    pub(super) unprocessed_spent: bool,
    /// The request may be sent again, so that a client that retries beneath is nested in this one.
    retrying: bool,
    /// `NestedRetry` has been raised.
    told_of_nesting: bool,
    pub(super) attempt: u32,
    attempt_started: Instant,
    /// The backoff before this attempt, or before the next one while it is slept.
    pub(super) delay: Duration,
    /// What the next attempt costs; taken when it was decided on.
    pub(super) token: Option<Token>,
}

/// What the scope says of retries.
#[derive(Clone, Copy, Default)]
struct Said {
    attempts: Setting<u32>,
    retry: Setting<()>,
    /// This call is made on behalf of a client that retries.
    nested: bool,
}

impl Said {
    #[inline]
    fn of(scope: &mut Scope) -> Self {
        let overrides = scope.overrides.as_ref();
        Self {
            attempts: overrides.map_or(Setting::Inherit, |o| o.attempts),
            retry: overrides.map_or(Setting::Inherit, |o| o.retry),
            nested: scope.inside_retry,
        }
    }
}

/// Nothing else in the scope is an attempt, so there is nothing to mark where it is none that may be repeated.
#[inline]
fn mark(retrying: bool) -> Option<Refined<bool>> {
    retrying.then(|| {
        refine(true, |scope, retrying| {
            mem::swap(&mut scope.retrying, retrying);
        })
    })
}

/// What is being polled or called is an attempt.
#[must_use = "it is an attempt for as long as this lives"]
pub(super) struct InAttempt<'a> {
    // Dropped first.
    _retrying: Option<Refined<bool>>,
    _call: Option<Entered<'a>>,
}

impl Sending {
    pub(super) fn new(call: Membership, started: Instant, key: Key, by_request: Repeat) -> Self {
        Self {
            call,
            started,
            key,
            by_request,
            unprocessed_spent: false,
            retrying: false,
            told_of_nesting: false,
            attempt: 1,
            attempt_started: started,
            delay: Duration::ZERO,
            token: None,
        }
    }

    /// Enters the scope of the call, to poll or call an attempt.
    #[inline]
    pub(super) fn enter_attempt(&mut self) -> InAttempt<'_> {
        let retrying = self.retrying;
        let call = self.call.enter();
        InAttempt {
            _retrying: mark(retrying),
            _call: call,
        }
    }

    /// Says in the scope, which is the current one, that what is called is an attempt, until the chain of
    /// `call`s has ended that is running.
    #[inline]
    pub(super) fn mark_in_stack(&self) {
        if self.retrying {
            with_current(|scope| scope.retrying = true);
        }
    }

    /// Whether another attempt could follow the first, so that the request has to be copied.
    pub(super) fn may_repeat(&self) -> bool {
        self.retrying
    }

    /// What the call allows, overrides included.
    pub(super) fn plan<C, Y>(&mut self, rules: &Rules<C, Y>) -> Plan {
        let said = self.call.with(Said::of);
        self.plan_where(rules, said)
    }

    #[inline]
    fn plan_where<C, Y>(&self, rules: &Rules<C, Y>, said: Said) -> Plan {
        Plan {
            attempts: if rules.defer_to_caller && said.nested {
                1
            } else {
                said.attempts.over(Some(rules.attempts)).unwrap_or(1).max(1)
            },
            repeat: match said.retry {
                Setting::Inherit => self.by_request,
                Setting::Off => Repeat::Never,
                Setting::Set(()) => Repeat::Always,
            },
            unprocessed: rules.retry_unprocessed
                && !self.unprocessed_spent
                && said.retry != Setting::Off,
        }
    }

    /// Puts what is known of the attempt into the scope of the call.
    #[inline]
    pub(super) fn begin<C, Y>(&mut self, rules: &Rules<C, Y>) {
        let (attempt, started, delay) = (self.attempt, self.attempt_started, self.delay);
        let said = self.call.with(|scope| {
            scope.retry = RetryPart::Active;
            if scope.attempt != attempt || scope.attempt_started != Some(started) {
                scope.begin_attempt(attempt, started, delay);
            }
            Said::of(scope)
        });
        self.retrying = self.plan_where(rules, said).may_follow(1);
        if said.nested && rules.attempts > 1 && !mem::replace(&mut self.told_of_nesting, true) {
            rules.listeners.raise(|| Event {
                attempt,
                ..Event::new(EventKind::NestedRetry)
            });
        }
    }

    /// The next attempt begins now. Whether another can follow it, so that its request has to be copied.
    pub(super) fn next_attempt<C, Y>(&mut self, rules: &Rules<C, Y>, now: Instant) -> bool {
        self.attempt = self.attempt.saturating_add(1);
        self.attempt_started = now;
        let may_follow = self.plan(rules).may_follow(self.attempt);
        let (attempt, started, delay) = (self.attempt, self.attempt_started, self.delay);
        self.call
            .with(|scope| scope.begin_attempt(attempt, started, delay));
        if let Some(token) = self.token.take() {
            token.spend();
        }
        may_follow
    }

    /// It is dropped before it ended: where that is in the scope of its call, another may join it.
    pub(super) fn leave(&mut self) {
        let started = self.attempt_started;
        if let Membership::Joined = self.call {
            with_current(|scope| {
                if scope.attempt_started == Some(started) {
                    scope.retry = RetryPart::Over;
                }
            });
        }
    }

    /// The attempt in flight, where the scope around has been ended: its own call's, or that of a call
    /// around it.
    pub(super) fn cut(&self) -> Option<Attempt> {
        let started = self.attempt_started;
        let (ended, ceiling) = with_current(|scope| {
            let own = scope.attempt_started == Some(started) && scope.attempt == self.attempt;
            (scope.ended, scope.ceiling.filter(|_| own).map(|c| c.value))
        });
        ended.then(|| Attempt {
            number: self.attempt,
            verdict: Verdict::Transient,
            duration: Instant::now().saturating_duration_since(started),
            delay: self.delay,
            ceiling,
            status: None,
        })
    }
}

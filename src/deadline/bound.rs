//! Which deadline is in force.

use std::time::Duration;

use tokio::time::Instant;

use crate::call::{DeadlineOrigin, Setting};

/// The earlier of two instants, where `None` is "never".
pub(crate) fn earlier(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (one, None) | (None, one) => one,
    }
}

/// The deadlines that a call could have.
#[derive(Debug, Clone, Copy)]
pub(super) struct Candidates {
    pub(super) own: Option<Duration>,
    pub(super) overriding: Setting<Duration>,
    /// What is offered, where the layer inherits.
    pub(super) inherited: Option<Instant>,
    pub(super) enclosing: Option<Instant>,
}

/// The earliest of them, for a call that began at `started`, and where it came from.
///
/// A duration that the clock cannot hold is no bound.
pub(super) fn in_force(
    started: Instant,
    candidates: Candidates,
) -> Option<(Instant, DeadlineOrigin)> {
    let origin = match candidates.overriding {
        Setting::Inherit => DeadlineOrigin::Own,
        Setting::Off | Setting::Set(_) => DeadlineOrigin::Override,
    };
    let own = candidates
        .overriding
        .over(candidates.own)
        .and_then(|d| started.checked_add(d))
        .map(|at| (at, origin));
    let inherited = candidates
        .inherited
        .map(|at| (at, DeadlineOrigin::Inherited));
    let enclosing = candidates
        .enclosing
        .map(|at| (at, DeadlineOrigin::Enclosing));
    // `min_by_key` keeps the first of equals.
    [own, inherited, enclosing]
        .into_iter()
        .flatten()
        .min_by_key(|(at, _)| *at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use DeadlineOrigin::{Enclosing, Inherited, Override, Own};

    const NONE: Candidates = Candidates {
        own: None,
        overriding: Setting::Inherit,
        inherited: None,
        enclosing: None,
    };

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn the_smallest_wins_and_says_where_it_came_from() {
        let now = Instant::now();
        let at = |n| now + ms(n);
        let check = |candidates, expected| assert_eq!(in_force(now, candidates), expected);
        let all = Candidates {
            own: Some(ms(300)),
            inherited: Some(at(200)),
            enclosing: Some(at(100)),
            ..NONE
        };
        check(all, Some((at(100), Enclosing)));
        let all = Candidates {
            enclosing: Some(at(250)),
            ..all
        };
        check(all, Some((at(200), Inherited)));
        let all = Candidates {
            own: Some(ms(199)),
            ..all
        };
        check(all, Some((at(199), Own)));
        check(NONE, None);
    }

    #[test]
    fn an_override_lengthens_shortens_and_removes_the_own_one_only() {
        let now = Instant::now();
        let own = Candidates {
            own: Some(ms(100)),
            ..NONE
        };
        for (overriding, expected) in [
            (Setting::Inherit, Some((now + ms(100), Own))),
            (Setting::Set(ms(10)), Some((now + ms(10), Override))),
            (Setting::Set(ms(900)), Some((now + ms(900), Override))),
            (Setting::Off, None),
        ] {
            assert_eq!(in_force(now, Candidates { overriding, ..own }), expected);
        }
        let inherited = Candidates {
            inherited: Some(now + ms(50)),
            overriding: Setting::Off,
            ..own
        };
        assert_eq!(in_force(now, inherited), Some((now + ms(50), Inherited)));
    }

    #[test]
    fn what_the_clock_cannot_hold_is_no_bound() {
        let now = Instant::now();
        for own in [Duration::MAX, Duration::from_secs(u64::MAX)] {
            assert_eq!(
                in_force(
                    now,
                    Candidates {
                        own: Some(own),
                        ..NONE
                    }
                ),
                None
            );
        }
        let century = Duration::from_secs(100 * 366 * 86_400);
        let found = in_force(
            now,
            Candidates {
                own: Some(century),
                ..NONE
            },
        );
        assert!(found.is_none_or(|(at, _)| at > now));
    }
}

//! What the headers of a request say.

use std::time::Duration;

use http::HeaderMap;
use tokio::time::Instant;

use super::layer::Terms;
use crate::call::{Criticality, Offer};
use crate::hop::Protocol;
use crate::hop::headers::{Ignored, Names};

/// How far away an instant is put that is beyond what the clock can hold: as good as never for whoever
/// waits, and still a bound. 30 years, like tokio's own.
const FAR: Duration = Duration::from_secs(30 * 365 * 86_400);

/// How much is kept back behind tonic's server, which holds its calls to `grpc-timeout` itself and calls
/// it "cancelled" when that is over: the answer here is to leave first (rule 42).
const GRPC_RESERVE: Duration = Duration::from_millis(5);

/// What the headers of a request that arrived at `now` say of its caller, as far as `terms` believe it.
/// Each header that is there and means nothing is told of.
pub(super) fn read(
    terms: &Terms,
    names: &Names,
    headers: &HeaderMap,
    now: Instant,
    ignored: Ignored<'_>,
) -> Offer {
    if !terms.trust {
        return Offer {
            until: until(now, terms.default),
            ..Offer::default()
        };
    }
    let said = names.time_left(headers, ignored);
    let reserve = terms.reserve.unwrap_or(match Protocol::of(headers) {
        Protocol::Http => Duration::ZERO,
        Protocol::Grpc | Protocol::GrpcWeb => GRPC_RESERVE,
    });
    let left = bounded(said, terms.maximum, reserve).or(terms.default);
    // A level that everyone can claim means nothing (rule 40).
    let label = names.criticality(headers, ignored);
    Offer {
        until: until(now, left),
        criticality: label.map(|label| label.min(Criticality::Critical)),
        inside_retry: names.retrying(headers, ignored),
    }
}

/// What is believed of the time that a caller said it has, less what is kept back. That may leave nothing,
/// which is not the same as no bound.
fn bounded(
    said: Option<Duration>,
    maximum: Option<Duration>,
    reserve: Duration,
) -> Option<Duration> {
    let believed = said?.min(maximum.unwrap_or(Duration::MAX));
    Some(believed.saturating_sub(reserve))
}

fn until(now: Instant, left: Option<Duration>) -> Option<Instant> {
    let left = left?;
    now.checked_add(left).or_else(|| now.checked_add(FAR))
}

/// Forgets what is not believed, so that nobody passes it on.
pub(super) fn strip(terms: &Terms, names: &Names, headers: &mut HeaderMap) {
    if !terms.trust {
        names.remove_from(headers);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn a_reserve_may_leave_nothing_and_never_no_bound() {
        for (said, reserve, expected) in [(50, 49, 1), (50, 50, 0), (50, 60, 0), (0, 0, 0)] {
            let found = bounded(Some(ms(said)), None, ms(reserve));
            assert_eq!(found, Some(ms(expected)), "{said} less {reserve}");
        }
        assert_eq!(bounded(None, Some(ms(1)), ms(1)), None);
    }

    #[test]
    fn the_maximum_is_clamped_to_before_the_reserve_is_kept() {
        assert_eq!(
            bounded(Some(ms(3_600_000)), Some(ms(100)), ms(30)),
            Some(ms(70))
        );
        assert_eq!(
            bounded(Some(Duration::MAX), Some(ms(100)), ms(0)),
            Some(ms(100))
        );
        assert_eq!(bounded(Some(ms(40)), Some(ms(100)), ms(30)), Some(ms(10)));
    }

    #[test]
    fn what_the_clock_cannot_hold_is_still_a_bound() {
        let now = Instant::now();
        assert_eq!(until(now, Some(Duration::MAX)), Some(now + FAR));
        assert_eq!(until(now, Some(ms(5))), Some(now + ms(5)));
        assert_eq!(until(now, None), None);
    }
}

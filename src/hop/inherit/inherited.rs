//! What is known of a request's caller.

use std::future::Future;
use std::time::Duration;

use tokio::time::Instant;

use crate::call::{Criticality, Offer, Offering};

/// What is known of the caller of a request: until when it waits, how much it matters to it, and whether
/// it may ask again. [`InheritLayer`](super::InheritLayer) puts it into the request's extensions.
///
/// The code of a handler need not look at it: the calls that it makes find all of it in their scope, and
/// [`call`](crate::call) shows it. It is for work that a handler spawns, or gives to somebody else.
///
/// ```
/// use axum::Extension;
/// use tower_deadline::{Inherited, call};
///
/// async fn handler(Extension(caller): Extension<Inherited>) {
///     tokio::spawn(caller.offer_to(async {
///         let _ = call::remaining(); // as in the handler
///     }));
/// }
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Inherited {
    pub(super) offer: Offer,
}

impl Inherited {
    /// The time that the caller still waits, less what is kept back to answer it. Zero when it is over,
    /// `None` when the caller did not say.
    #[must_use]
    pub fn remaining(&self) -> Option<Duration> {
        let until = self.offer.until?;
        Some(until.saturating_duration_since(Instant::now()))
    }

    /// How much the request matters to its caller.
    #[must_use]
    pub fn criticality(&self) -> Criticality {
        self.offer.criticality.unwrap_or_default()
    }

    /// Whether the caller may send this request again.
    #[must_use]
    pub fn inside_retry(&self) -> bool {
        self.offer.inside_retry
    }

    /// Puts it in place for `future` and the calls that it makes. Nothing cuts `future` itself.
    pub fn offer_to<F: Future>(&self, future: F) -> Offering<F> {
        Offering::new(self.offer, future)
    }
}

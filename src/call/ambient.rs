//! Publishing to the calls beneath, leaving a call's scope, and taking it along.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use pin_project::{pin_project, pinned_drop};
use tokio::time::Instant;

use super::criticality::Criticality;
use super::overrides::CallOverride;
use super::pooled::{Pooled, with_current};
use super::scope::{Refined, Scope, refine};
use crate::deadline::earlier;

/// What is known of whoever asked for a piece of work.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Offer {
    /// The instant until which they wait; never, where they did not say.
    pub(crate) until: Option<Instant>,
    /// How much it matters to them; `None` leaves that as it is.
    pub(crate) criticality: Option<Criticality>,
    /// Whether they may ask again.
    pub(crate) inside_retry: bool,
}

impl Offer {
    /// What is offered to the code that asks. `Critical` is what work is that has no label, so it is none.
    pub(crate) fn in_force() -> Self {
        with_current(|scope| Self {
            until: scope.offered,
            criticality: Some(scope.criticality).filter(|it| *it != Criticality::default()),
            inside_retry: scope.inside_retry,
        })
    }

    /// The same inside `around`: of two deadlines the earlier holds, of two labels the inner one, and who
    /// is inside a retry stays there.
    pub(crate) fn inside(self, around: Self) -> Self {
        Self {
            until: earlier(self.until, around.until),
            criticality: self.criticality.or(around.criticality),
            inside_retry: self.inside_retry || around.inside_retry,
        }
    }

    /// Puts it in place, inside what is there, for the calls that begin while the guard lives.
    #[inline]
    pub(crate) fn publish(&self) -> Refined<Offered> {
        let all = self.inside(Self::in_force());
        let offered = (
            all.until,
            all.criticality.unwrap_or_default(),
            all.inside_retry,
        );
        refine(offered, |scope, (until, criticality, inside_retry)| {
            std::mem::swap(&mut scope.offered, until);
            std::mem::swap(&mut scope.criticality, criticality);
            std::mem::swap(&mut scope.inside_retry, inside_retry);
        })
    }
}

/// The part of a scope that offers are in.
pub(crate) type Offered = (Option<Instant>, Criticality, bool);

/// The future of [`with_deadline`](super::with_deadline), of
/// [`with_criticality`](super::with_criticality) and of
/// [`Inherited::offer_to`](crate::Inherited::offer_to).
#[pin_project(PinnedDrop)]
#[must_use = "futures do nothing unless polled"]
pub struct Offering<F> {
    /// Gone when this is dropped.
    #[pin]
    inner: Option<F>,
    offer: Offer,
}

impl<F> Offering<F> {
    pub(crate) fn new(offer: Offer, inner: F) -> Self {
        Self {
            inner: Some(inner),
            offer,
        }
    }

    pub(super) fn for_so_long(remaining: Duration, inner: F) -> Self {
        let offer = Offer {
            until: Instant::now().checked_add(remaining),
            ..Offer::default()
        };
        Self::new(offer, inner)
    }

    pub(super) fn mattering(criticality: Criticality, inner: F) -> Self {
        let offer = Offer {
            criticality: Some(criticality),
            ..Offer::default()
        };
        Self::new(offer, inner)
    }
}

/// What is beneath is dropped where it was polled: under the same offer.
#[pinned_drop]
impl<F> PinnedDrop for Offering<F> {
    fn drop(self: Pin<&mut Self>) {
        let mut this = self.project();
        let _offered = this.offer.publish();
        this.inner.set(None);
    }
}

impl<F> fmt::Debug for Offering<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Offering")
            .field("offer", &self.offer)
            .finish_non_exhaustive()
    }
}

impl<F: Future> Future for Offering<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let _offered = this.offer.publish();
        match this.inner.as_pin_mut() {
            Some(inner) => inner.poll(cx),
            None => Poll::Pending, // it is being dropped
        }
    }
}

/// The future of [`with_override`](super::with_override).
#[pin_project]
#[must_use = "futures do nothing unless polled"]
pub struct WithOverride<F> {
    #[pin]
    inner: F,
    overrides: Arc<CallOverride>,
}

impl<F> WithOverride<F> {
    pub(super) fn new(overrides: Arc<CallOverride>, inner: F) -> Self {
        Self { inner, overrides }
    }
}

impl<F> fmt::Debug for WithOverride<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WithOverride")
            .field("overrides", &self.overrides)
            .finish_non_exhaustive()
    }
}

impl<F: Future> Future for WithOverride<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let _overriding = overriding(this.overrides);
        this.inner.poll(cx)
    }
}

/// Overrides, those for the call under way and those for calls that begin meanwhile.
type Both = (Option<Arc<CallOverride>>, Option<Arc<CallOverride>>);

/// Puts overrides in place, for the call under way and for those that begin while the guard lives.
pub(crate) fn overriding(overrides: &Arc<CallOverride>) -> Refined<Both> {
    let both = (Some(Arc::clone(overrides)), Some(Arc::clone(overrides)));
    refine(both, |scope, (own, offered)| {
        std::mem::swap(&mut scope.overrides, own);
        std::mem::swap(&mut scope.offered_overrides, offered);
    })
}

/// Whether overrides are in place for a call that begins now.
pub(crate) fn is_overridden() -> bool {
    with_current(|scope| scope.offered_overrides.is_some())
}

/// The future of [`detach`](super::detach) and [`carry`](super::carry).
#[pin_project(PinnedDrop)]
#[must_use = "futures do nothing unless polled"]
pub struct Scoped<F> {
    /// Gone when this is dropped.
    #[pin]
    inner: Option<F>,
    scope: Pooled,
}

/// What is beneath is dropped in the scope that it was polled in, and not in that of whoever drops it.
#[pinned_drop]
impl<F> PinnedDrop for Scoped<F> {
    fn drop(self: Pin<&mut Self>) {
        let mut this = self.project();
        let _entered = this.scope.enter();
        this.inner.set(None);
    }
}

impl<F> Scoped<F> {
    pub(super) fn detached(inner: F) -> Self {
        Self {
            inner: Some(inner),
            scope: Pooled::new(Scope::EMPTY),
        }
    }

    pub(super) fn carrying(inner: F) -> Self {
        Self {
            inner: Some(inner),
            scope: Pooled::new(with_current(|scope| Some(scope.carried())).unwrap_or(Scope::EMPTY)),
        }
    }
}

impl<F> fmt::Debug for Scoped<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scoped").finish_non_exhaustive()
    }
}

impl<F: Future> Future for Scoped<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let _entered = this.scope.enter();
        match this.inner.as_pin_mut() {
            Some(inner) => inner.poll(cx),
            None => Poll::Pending, // it is being dropped
        }
    }
}

//! Publishing to the calls beneath, leaving a call's scope, and taking it along.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use pin_project::{pin_project, pinned_drop};
use tokio::time::Instant;

use super::overrides::CallOverride;
use super::pooled::{Pooled, with_current};
use super::scope::{Refined, Scope, refine};
use crate::deadline::earlier;

/// The future of [`with_deadline`](super::with_deadline).
#[pin_project]
#[must_use = "futures do nothing unless polled"]
pub struct WithDeadline<F> {
    #[pin]
    inner: F,
    until: Option<Instant>,
}

impl<F> WithDeadline<F> {
    pub(super) fn new(remaining: Duration, inner: F) -> Self {
        Self {
            inner,
            until: Instant::now().checked_add(remaining),
        }
    }
}

impl<F> fmt::Debug for WithDeadline<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WithDeadline")
            .field("until", &self.until)
            .finish_non_exhaustive()
    }
}

impl<F: Future> Future for WithDeadline<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let offered = earlier(with_current(|scope| scope.offered), *this.until);
        let _offered = refine(offered, |scope, offered| {
            std::mem::swap(&mut scope.offered, offered);
        });
        this.inner.poll(cx)
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

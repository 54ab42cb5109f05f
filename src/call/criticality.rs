//! How much a piece of work matters.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project::pin_project;

use super::pooled::with_current;
use super::scope::refine;

/// How much a piece of work matters, from what can be dropped to what must not.
///
/// What this crate does with it is narrow: a retry of [`Sheddable`](Self::Sheddable) work has to leave
/// half of the [`RetryBudget`](crate::RetryBudget) behind, so that what is left while a dependency is
/// in trouble is there for the rest. The labels are those of
/// [Google's SRE book](https://sre.google/sre-book/handling-overload/).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Criticality {
    /// Nobody waits for it: a backfill, a prefetch.
    Sheddable,
    /// It may be dropped at times, and is done again later: most batch work.
    SheddablePlus,
    /// Somebody waits for it. What has no label is this.
    #[default]
    Critical,
    /// Losing it is a serious matter.
    CriticalPlus,
}

impl fmt::Display for Criticality {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sheddable => "Sheddable",
            Self::SheddablePlus => "SheddablePlus",
            Self::Critical => "Critical",
            Self::CriticalPlus => "CriticalPlus",
        })
    }
}

/// The future of [`with_criticality`](super::with_criticality).
#[pin_project]
#[must_use = "futures do nothing unless polled"]
pub struct WithCriticality<F> {
    #[pin]
    inner: F,
    criticality: Criticality,
}

impl<F> WithCriticality<F> {
    pub(super) fn new(criticality: Criticality, inner: F) -> Self {
        Self { inner, criticality }
    }
}

impl<F> fmt::Debug for WithCriticality<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WithCriticality")
            .field("criticality", &self.criticality)
            .finish_non_exhaustive()
    }
}

impl<F: Future> Future for WithCriticality<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let _criticality = refine(*this.criticality, |scope, criticality| {
            std::mem::swap(&mut scope.criticality, criticality);
        });
        this.inner.poll(cx)
    }
}

/// See [`crate::call::criticality`].
pub(super) fn current() -> Criticality {
    with_current(|scope| scope.criticality)
}

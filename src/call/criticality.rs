//! How much a piece of work matters.

use std::fmt;

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

impl Criticality {
    const ALL: [Self; 4] = [
        Self::Sheddable,
        Self::SheddablePlus,
        Self::Critical,
        Self::CriticalPlus,
    ];

    /// The label as it is written: the name of the level.
    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::Sheddable => "Sheddable",
            Self::SheddablePlus => "SheddablePlus",
            Self::Critical => "Critical",
            Self::CriticalPlus => "CriticalPlus",
        }
    }

    /// The level with this label, in letters of either case.
    pub(crate) fn parse(label: &[u8]) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        all.find(|level| level.label().as_bytes().eq_ignore_ascii_case(label))
    }
}

impl fmt::Display for Criticality {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}

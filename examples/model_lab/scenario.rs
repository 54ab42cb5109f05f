//! What a scenario is: how the model answers, under which stack, and what our policy promises.

use std::fmt;

use crate::measured::Measured;
use crate::ours::Ours;
use crate::server::Answer;
use crate::today::Today;

/// One scenario under one stack.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    /// What is particular about this stack, for the picture.
    pub(crate) setting: &'static str,
    pub(crate) method: &'static str,
    /// What the first request is answered with, the second, and so on; the last is repeated.
    pub(crate) answers: &'static [Answer],
    pub(crate) stack: Stack,
}

impl Scenario {
    /// A POST to a model, under tower's stack.
    pub(crate) const fn today(
        name: &'static str,
        setting: &'static str,
        answers: &'static [Answer],
        stack: Today,
    ) -> Self {
        Self {
            name,
            setting,
            method: "POST",
            answers,
            stack: Stack::Today(stack),
        }
    }

    /// A POST to a model, under ours.
    pub(crate) const fn ours(
        name: &'static str,
        setting: &'static str,
        answers: &'static [Answer],
        stack: Ours,
        promise: Promise,
    ) -> Self {
        Self {
            name,
            setting,
            method: "POST",
            answers,
            stack: Stack::Ours(stack, promise),
        }
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.name, self.stack.name())
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Stack {
    Today(Today),
    Ours(Ours, Promise),
    /// Ours, around a quick dependency, in real time.
    Measured(Measured, Promise),
}

impl Stack {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Today(_) => "today",
            Self::Ours(..) => "ours",
            Self::Measured(measured, _) => measured.name(),
        }
    }
}

/// What follows from a policy, without running anything.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Promise {
    /// How often the model is asked; each of these is an attempt.
    pub(crate) requests: u32,
    pub(crate) generated: u32,
    pub(crate) received: u32,
    pub(crate) outcome: &'static str,
    /// The earliest and the latest end in the model's seconds; they differ by the jitter.
    pub(crate) ended: (f64, f64),
}

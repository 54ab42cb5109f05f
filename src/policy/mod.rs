//! What a configuration has to be.

mod validation;

pub use self::validation::{PolicyError, Problem};

pub(crate) use self::validation::Problems;

//! What a dependency's latency has been of late.
//!
//! An [`Estimate`] is kept for each dependency: the latencies of recent successful attempts, as a
//! t-digest in a ring of slices. Recording puts a number into a bounded buffer and waits for nobody;
//! now and then whoever records merges what is there. What is read, a ceiling and a median, are single
//! atomic loads of values computed at the last merge.
//!
//! The pure parts take `now` as an argument: [`ring`] forgets old samples, [`letting_go`] decides when
//! a ceiling does more harm than good.

mod buffer;
mod estimate;
mod letting_go;
mod published;
mod ring;
mod terms;

pub(crate) use self::estimate::{Estimate, Generation};
pub(crate) use self::terms::Terms;

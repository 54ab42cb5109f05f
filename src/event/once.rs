//! What is said once.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, PoisonError};

/// How many things can be said before nothing new is: somebody who builds what is wrong anew each time
/// is not to fill the memory, nor the log.
const MOST: usize = 1024;

/// Whether this is the first time in this process that `what` is to be said.
pub(crate) fn first_time(what: impl Hash) -> bool {
    static SAID: Mutex<Option<HashSet<u64>>> = Mutex::new(None);
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    let what = hasher.finish();
    // A set that a panic left behind is still a set.
    let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    let said = said.get_or_insert_default();
    said.len() < MOST && said.insert(what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thing_is_said_once() {
        assert!(first_time(("once.rs", 1)));
        assert!(!first_time(("once.rs", 1)));
        assert!(first_time(("once.rs", 2)));
    }
}

//! Something for each dependency, in bounded memory.

use std::convert::Infallible;
use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Arc, OnceLock};

use quick_cache::UnitWeighter;
use quick_cache::sync::{Cache, DefaultLifecycle};

use crate::key::Key;

/// How many dependencies have one of their own; the least used leave.
pub(crate) const MOST: usize = 1024;

type ByKey<T> = Cache<u64, Arc<T>, UnitWeighter, BuildHasherDefault<Hashed>>;

/// A key is a hash already.
#[derive(Debug, Clone, Copy, Default)]
struct Hashed(u64);

impl Hasher for Hashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    /// Of anything else; there is nothing else.
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }
}

/// One `T` that all requests share, and one for each key.
pub(crate) struct Keyed<T> {
    shared: Arc<T>,
    /// Made when a key first asks, since most stacks serve one dependency.
    by_key: OnceLock<ByKey<T>>,
}

impl<T> Keyed<T> {
    pub(crate) fn new(shared: T) -> Self {
        Self {
            shared: Arc::new(shared),
            by_key: OnceLock::new(),
        }
    }

    /// The one of `key`, where there is one.
    #[inline]
    pub(crate) fn peek<R>(&self, key: Key, f: impl FnOnce(&T) -> R) -> Option<R> {
        match key.hash() {
            None => Some(f(&self.shared)),
            Some(hash) => self
                .by_key
                .get()
                .and_then(|by_key| by_key.get(&hash))
                .map(|one| f(&one)),
        }
    }

    /// The one of `key`, made where there is none.
    pub(crate) fn get(&self, key: Key, make: impl FnOnce() -> T) -> Arc<T> {
        let Some(hash) = key.hash() else {
            return Arc::clone(&self.shared);
        };
        let by_key = self.by_key.get_or_init(|| {
            let lifecycle = DefaultLifecycle::default();
            Cache::with(
                MOST,
                MOST as u64,
                UnitWeighter,
                BuildHasherDefault::default(),
                lifecycle,
            )
        });
        match by_key.get_or_insert_with(&hash, || Ok::<_, Infallible>(Arc::new(make()))) {
            Ok(one) => one,
            Err(never) => match never {},
        }
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.by_key.get().map_or(0, Cache::len)
    }
}

impl<T> fmt::Debug for Keyed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keyed").finish_non_exhaustive()
    }
}

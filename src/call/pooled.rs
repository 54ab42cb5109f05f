//! Where a scope lives.

use std::cell::RefCell;
use std::mem;
use std::ops::{Deref, DerefMut};

use super::scope::Scope;

/// How many scopes a thread keeps for its next calls.
const KEPT: usize = 64;

thread_local! {
    /// The scope of the code that runs.
    static CURRENT: RefCell<Option<Box<Scope>>> = const { RefCell::new(None) };
    /// Scopes of calls that have ended.
    #[allow(clippy::vec_box)] // they go out and come back as they are
    static KEPT_ONES: RefCell<Vec<Box<Scope>>> = const { RefCell::new(Vec::new()) };
}

static NOTHING: Scope = Scope::EMPTY;

/// A scope, in a place of its own: the futures of a call are moved a few times before they are polled, and
/// their scope is put in force and taken back at each poll, for which a pointer is handed over.
///
/// The place comes from those that the thread has kept, so that a call allocates nothing where as many as
/// are under way now have been before, on this thread.
#[derive(Debug)]
pub(crate) struct Pooled(Option<Box<Scope>>);

impl Pooled {
    /// A scope with what was left of the last call that had this place.
    #[inline]
    pub(crate) fn any() -> Self {
        let kept = KEPT_ONES.try_with(|kept| kept.try_borrow_mut().ok()?.pop());
        Self(Some(match kept {
            Ok(Some(place)) => place,
            _ => Box::new(Scope::EMPTY),
        }))
    }

    pub(crate) fn new(scope: Scope) -> Self {
        let mut pooled = Self::any();
        *pooled = scope;
        pooled
    }

    /// Makes this scope the current one, for as long as the guard lives.
    #[inline]
    pub(crate) fn enter(&mut self) -> Entered<'_> {
        self.swap_with_current();
        Entered(self)
    }

    #[inline]
    fn swap_with_current(&mut self) {
        // Both can only fail while a thread is being torn down, or (never) inside `with_current`: then
        // nobody is left who could read the scope.
        let _ = CURRENT.try_with(|current| {
            if let Ok(mut current) = current.try_borrow_mut() {
                mem::swap(&mut *current, &mut self.0);
            }
        });
    }
}

/// A scope is the current one.
#[derive(Debug)]
#[must_use = "the scope is the current one for as long as this lives"]
pub(crate) struct Entered<'a>(&'a mut Pooled);

impl Drop for Entered<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.swap_with_current();
    }
}

/// There is a scope but while it is the current one, when nobody looks for it here.
impl Deref for Pooled {
    type Target = Scope;

    #[inline]
    fn deref(&self) -> &Scope {
        self.0.as_deref().unwrap_or(&NOTHING)
    }
}

impl DerefMut for Pooled {
    #[inline]
    fn deref_mut(&mut self) -> &mut Scope {
        self.0.get_or_insert_with(|| Box::new(Scope::EMPTY))
    }
}

impl Drop for Pooled {
    #[inline]
    fn drop(&mut self) {
        let Some(mut place) = self.0.take() else {
            return;
        };
        // What is somebody else's goes with the call.
        place.let_go();
        // A thread that is being torn down keeps nothing.
        let _ = KEPT_ONES.try_with(|kept| {
            if let Ok(mut kept) = kept.try_borrow_mut() {
                if kept.len() < KEPT {
                    kept.push(place);
                }
            }
        });
    }
}

/// Looks at or changes the current scope. `f` must not run anybody else's code, drops included.
#[inline]
pub(crate) fn with_current<R: Default>(f: impl FnOnce(&mut Scope) -> R) -> R {
    CURRENT
        .try_with(|current| match current.try_borrow_mut() {
            Ok(mut current) => f(current.get_or_insert_with(|| Box::new(Scope::EMPTY))),
            Err(_) => R::default(),
        })
        .unwrap_or_default()
}

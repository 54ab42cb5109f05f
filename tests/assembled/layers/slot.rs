//! What a test may give in place of what an assembled stack has of its own: a classifier, a copier, a
//! key.

use tower_deadline::Progress;
use tower_deadline::policy::{CallLayer, HttpCallLayer};

/// The stack's own, which is left as it is.
#[derive(Clone, Copy, Default)]
pub(crate) struct Kept;

/// The test's, in place of the stack's own.
#[derive(Clone, Copy)]
pub(crate) struct Given<T>(pub(super) T);

/// Exchanges that part of a stack which is `Own`, or leaves it.
pub(crate) trait Slot<Own>: Sized {
    /// What the stack has then.
    type Part: Clone;

    fn or(self, own: Own) -> Self::Part;

    fn classifier<Y, K, R, P>(
        self,
        stack: HttpCallLayer<Own, Y, K, R, P>,
    ) -> HttpCallLayer<Self::Part, Y, K, R, P>;

    fn copy<C, K, R, P>(
        self,
        stack: HttpCallLayer<C, Own, K, R, P>,
    ) -> HttpCallLayer<C, Self::Part, K, R, P>;

    fn key<C, Y, R, P>(
        self,
        stack: HttpCallLayer<C, Y, Own, R, P>,
    ) -> HttpCallLayer<C, Y, Self::Part, R, P>;

    fn repeatable<C, Y, K, P>(
        self,
        stack: HttpCallLayer<C, Y, K, Own, P>,
    ) -> HttpCallLayer<C, Y, K, Self::Part, P>;

    fn predicate<C, Y, K, R>(
        self,
        stack: HttpCallLayer<C, Y, K, R, Own>,
    ) -> HttpCallLayer<C, Y, K, R, Self::Part>
    where
        Self::Part: Progress;

    fn key_of_any<C, Y, R>(self, stack: CallLayer<C, Y, Own, R>) -> CallLayer<C, Y, Self::Part, R>;

    fn repeatable_of_any<C, Y, K>(
        self,
        stack: CallLayer<C, Y, K, Own>,
    ) -> CallLayer<C, Y, K, Self::Part>;
}

impl<Own: Clone> Slot<Own> for Kept {
    type Part = Own;

    fn or(self, own: Own) -> Own {
        own
    }

    fn classifier<Y, K, R, P>(
        self,
        stack: HttpCallLayer<Own, Y, K, R, P>,
    ) -> HttpCallLayer<Own, Y, K, R, P> {
        stack
    }

    fn copy<C, K, R, P>(
        self,
        stack: HttpCallLayer<C, Own, K, R, P>,
    ) -> HttpCallLayer<C, Own, K, R, P> {
        stack
    }

    fn key<C, Y, R, P>(
        self,
        stack: HttpCallLayer<C, Y, Own, R, P>,
    ) -> HttpCallLayer<C, Y, Own, R, P> {
        stack
    }

    fn repeatable<C, Y, K, P>(
        self,
        stack: HttpCallLayer<C, Y, K, Own, P>,
    ) -> HttpCallLayer<C, Y, K, Own, P> {
        stack
    }

    fn predicate<C, Y, K, R>(
        self,
        stack: HttpCallLayer<C, Y, K, R, Own>,
    ) -> HttpCallLayer<C, Y, K, R, Own>
    where
        Own: Progress,
    {
        stack
    }

    fn key_of_any<C, Y, R>(self, stack: CallLayer<C, Y, Own, R>) -> CallLayer<C, Y, Own, R> {
        stack
    }

    fn repeatable_of_any<C, Y, K>(self, stack: CallLayer<C, Y, K, Own>) -> CallLayer<C, Y, K, Own> {
        stack
    }
}

impl<Own, T: Clone> Slot<Own> for Given<T> {
    type Part = T;

    fn or(self, _: Own) -> T {
        self.0
    }

    fn classifier<Y, K, R, P>(
        self,
        stack: HttpCallLayer<Own, Y, K, R, P>,
    ) -> HttpCallLayer<T, Y, K, R, P> {
        stack.classifier(self.0)
    }

    fn copy<C, K, R, P>(
        self,
        stack: HttpCallLayer<C, Own, K, R, P>,
    ) -> HttpCallLayer<C, T, K, R, P> {
        stack.copy(self.0)
    }

    fn key<C, Y, R, P>(
        self,
        stack: HttpCallLayer<C, Y, Own, R, P>,
    ) -> HttpCallLayer<C, Y, T, R, P> {
        stack.key(self.0)
    }

    fn repeatable<C, Y, K, P>(
        self,
        stack: HttpCallLayer<C, Y, K, Own, P>,
    ) -> HttpCallLayer<C, Y, K, T, P> {
        stack.repeatable(self.0)
    }

    fn predicate<C, Y, K, R>(
        self,
        stack: HttpCallLayer<C, Y, K, R, Own>,
    ) -> HttpCallLayer<C, Y, K, R, T>
    where
        T: Progress,
    {
        stack.progress_when(self.0)
    }

    fn key_of_any<C, Y, R>(self, stack: CallLayer<C, Y, Own, R>) -> CallLayer<C, Y, T, R> {
        stack.key(self.0)
    }

    fn repeatable_of_any<C, Y, K>(self, stack: CallLayer<C, Y, K, Own>) -> CallLayer<C, Y, K, T> {
        stack.repeatable(self.0)
    }
}

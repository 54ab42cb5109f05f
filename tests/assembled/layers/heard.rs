//! Who is told of the events of an assembled stack.

use std::any::{Any, TypeId};
use std::sync::Arc;

use tower_deadline::{Event, Listener};

use crate::support::Recorder;

/// The listeners of a stack, each once. A test gives clones of one listener to several layers, which
/// tell it of different events; a policy's stack takes it for all of them.
#[derive(Clone, Default)]
pub(crate) struct Heard(Vec<One>);

#[derive(Clone)]
struct One {
    listener: Arc<dyn Listener>,
    /// Two closures of one type are clones of one, and two recorders need not be.
    kind: TypeId,
    recorder: Option<Recorder>,
}

impl One {
    fn is(&self, other: &Self) -> bool {
        let same_records = match (&self.recorder, &other.recorder) {
            (Some(one), Some(other)) => Arc::ptr_eq(&one.0, &other.0),
            _ => true,
        };
        self.kind == other.kind && same_records
    }
}

impl Heard {
    pub(super) fn add(&mut self, listener: impl Listener + 'static) {
        let any: &dyn Any = &listener;
        let one = One {
            kind: any.type_id(),
            recorder: any.downcast_ref::<Recorder>().cloned(),
            listener: Arc::new(listener),
        };
        self.join([one]);
    }

    pub(super) fn and(mut self, others: Self) -> Self {
        self.join(others.0);
        self
    }

    fn join(&mut self, others: impl IntoIterator<Item = One>) {
        for other in others {
            if !self.0.iter().any(|one| one.is(&other)) {
                self.0.push(other);
            }
        }
    }

    /// Gives each to `stack`, by `tell`.
    pub(super) fn told<L>(
        self,
        stack: L,
        tell: impl Fn(L, Box<dyn Fn(&Event<'_>) + Send + Sync>) -> L,
    ) -> L {
        self.0.into_iter().fold(stack, |stack, one| {
            tell(stack, Box::new(move |event| one.listener.on_event(event)))
        })
    }
}

//! Who is told.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::kind::Event;

/// Is told of events, at once and on the task where they happen: it must not block.
///
/// Any closure `Fn(&Event<'_>)` is one. A listener that panics is contained; the call goes on.
pub trait Listener: Send + Sync {
    /// Something happened.
    fn on_event(&self, event: &Event<'_>);
}

impl<F> Listener for F
where
    F: Fn(&Event<'_>) + Send + Sync,
{
    fn on_event(&self, event: &Event<'_>) {
        self(event);
    }
}

/// The listeners of a layer. Nothing, until one is added; then cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Listeners(Option<Arc<[Arc<dyn Listener>]>>);

impl Listeners {
    pub(crate) const NONE: Self = Self(None);

    pub(crate) fn add(&mut self, listener: impl Listener + 'static) {
        let added: Arc<dyn Listener> = Arc::new(listener);
        let before = self.0.iter().flat_map(|all| all.iter().cloned());
        self.0 = Some(before.chain([added]).collect());
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Tells every listener; builds the event only when there is one.
    pub(crate) fn raise<'a>(&self, event: impl FnOnce() -> Event<'a>) {
        if let Some(listeners) = &self.0 {
            let event = event();
            for listener in &**listeners {
                // What a panicking listener leaves half-done is its own; ours is not touched.
                let _ = catch_unwind(AssertUnwindSafe(|| listener.on_event(&event)));
            }
        }
    }
}

impl fmt::Debug for Listeners {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} listeners", self.0.as_ref().map_or(0, |l| l.len()))
    }
}

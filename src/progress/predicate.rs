//! What counts as progress.

/// Says whether bytes that arrived are progress.
///
/// It is given every byte of a body, in order and in the pieces in which they arrive, which may be cut
/// anywhere. Each body gets a clone of its own, so it may keep state. Any closure
/// `FnMut(&[u8]) -> bool` is one.
pub trait Progress {
    /// Whether `bytes` are progress.
    fn progress(&mut self, bytes: &[u8]) -> bool;

    /// Whether any bytes at all would do, so that they need not be shown.
    #[doc(hidden)]
    fn takes_any(&self) -> bool {
        false
    }
}

impl<F> Progress for F
where
    F: FnMut(&[u8]) -> bool,
{
    fn progress(&mut self, bytes: &[u8]) -> bool {
        self(bytes)
    }
}

/// Any byte is progress, a keep-alive comment of a stream of events among them.
#[derive(Debug, Clone, Copy, Default)]
pub struct AnyBytes;

impl Progress for AnyBytes {
    fn progress(&mut self, _: &[u8]) -> bool {
        true
    }

    fn takes_any(&self) -> bool {
        true
    }
}

//! What is undone if a sink panics.

use core::mem;

/// Dropped, it runs what it has.
struct OnUnwind<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnUnwind<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// Runs `tell`, which calls a sink, and `undo` if that panics. Where nothing is told nothing is left of
/// either.
#[inline(always)]
pub(crate) fn or_undo(tell: impl FnOnce(), undo: impl FnMut()) {
    let undo = OnUnwind(undo);
    tell();
    mem::forget(undo);
}

//! The few words that all CPUs share.

use crate::platform::{AtomicWord, Platform};

/// The few words that all CPUs share. They stand apart from the allocator itself, which can
/// then be read without fear that a store changed it, and from each other's cache lines.
#[repr(align(128))]
pub struct SharedState<P: Platform> {
    /// Whose turn it is among interleaved nodes.
    pub(crate) turn: P::Word,
    /// 1 while memory comes or goes.
    pub(crate) resizing: P::Word,
}

impl<P: Platform> SharedState<P> {
    /// Nothing used yet.
    #[must_use]
    pub fn new() -> Self {
        Self { turn: P::Word::new(0), resizing: P::Word::new(0) }
    }
}

impl<P: Platform> Default for SharedState<P> {
    fn default() -> Self {
        Self::new()
    }
}

//! Frames that the kernel keeps for good: they are missing from what is free, and the count knows how many.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use zonal::Block;

static FRAMES: AtomicU64 = AtomicU64::new(0);

/// Keeps a block for good.
pub(crate) fn keep(block: Block) {
    FRAMES.fetch_add(block.into_raw().1.frames(), Relaxed);
}

/// Keeps frames for good that were allocated by number.
#[cfg(feature = "peers")]
pub(crate) fn keep_frames(frames: u64) {
    FRAMES.fetch_add(frames, Relaxed);
}

/// How many frames are kept.
pub(crate) fn frames() -> u64 {
    FRAMES.load(Relaxed)
}

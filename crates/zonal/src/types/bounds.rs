//! Where frames in a row may lie: a device's reach, a page table's alignment.
//!
//! ```
//! use zonal::{Bounds, Pfn};
//! let trampoline = Bounds::ANY.below(Pfn::containing(1 << 20));
//! let giant = Bounds::ANY.aligned(1 << 18);
//! assert_eq!((trampoline.align(), giant.align()), (1, 1 << 18));
//! ```

use crate::types::units::Pfn;

/// Where frames in a row may lie.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[must_use]
pub struct Bounds {
    align: u64,
    below: Pfn,
}

impl Bounds {
    /// Anywhere.
    pub const ANY: Self = Self { align: 1, below: Pfn::new(u64::MAX) };

    /// Beginning at a multiple of `frames`, a power of two: any other number is refused when the request
    /// is made.
    pub const fn aligned(self, frames: u64) -> Self {
        Self { align: frames, ..self }
    }

    /// With the last frame below `limit`.
    pub const fn below(self, limit: Pfn) -> Self {
        Self { below: limit, ..self }
    }

    /// The number of frames of which the first frame's number is a multiple.
    #[must_use]
    pub const fn align(&self) -> u64 {
        self.align
    }

    /// The frame after the last that may be had.
    #[must_use]
    pub const fn limit(&self) -> Pfn {
        self.below
    }
}

impl Default for Bounds {
    fn default() -> Self {
        Self::ANY
    }
}

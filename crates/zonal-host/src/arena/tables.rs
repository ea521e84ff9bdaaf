//! The memory an arena's allocator lives in.

use crate::errno::Errno;
use crate::region::{Region, RegionError};
use crate::threads::Threads;
use std::ptr::NonNull;
use std::slice;
use zonal::plan::Plan;
use zonal::policy::Policy;
use zonal::{Storage, TableSize};
use zonal_tables::{in_zeroed_piece, piece_bytes};

/// A plan by address: references to it stay good when this value moves.
struct Fixed(NonNull<Plan>);

impl Drop for Fixed {
    fn drop(&mut self) {
        // SAFETY: the address is a box's that was leaked for us, and only we drop it;
        // the caller of `Tables::lend` has promised that its references are gone.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

// SAFETY: owns the plan, as a box does.
unsafe impl Send for Fixed {}
// SAFETY: gives out shared references only.
unsafe impl Sync for Fixed {}

/// See the [module](self). The tables are a mapping of zeroes, of which only the pages that are used take
/// memory.
pub(super) struct Tables {
    plan: Fixed,
    size: TableSize,
    piece: Region,
}

impl Tables {
    /// Maps what `plan` needs. O(1).
    pub(super) fn new<S: Policy>(plan: Plan) -> Result<Self, RegionError> {
        let size = TableSize::of::<S>(&plan);
        let too_large = RegionError::NoAddressSpace { bytes: usize::MAX, errno: Errno::NO_MEMORY };
        let bytes = usize::try_from(piece_bytes::<Threads, S>(&plan)).map_err(|_| too_large)?;
        let piece = Region::zeroed(bytes)?;
        let plan = Fixed(NonNull::from(Box::leak(Box::new(plan))));
        Ok(Self { plan, size, piece })
    }

    pub(super) const fn size(&self) -> &TableSize {
        &self.size
    }

    /// What an allocator is made of. O(zones × CPUs).
    ///
    /// # Safety
    /// To be called once, with the preset they were made for, and nothing of what is returned used after
    /// `self` is dropped.
    pub(super) unsafe fn lend<S: Policy>(
        &mut self,
    ) -> (&'static Plan, Storage<'static, Threads, S>) {
        // SAFETY: a leaked box, which lives until `self` is dropped; no exclusive reference to it is made
        // before that.
        let plan = unsafe { self.plan.0.as_ref() };
        // SAFETY: the region is committed in full, stays mapped at its address until `self` is dropped, and
        // is zero, since nothing was written to it; this is the only reference into it, as the
        // function is called once.
        let piece =
            unsafe { slice::from_raw_parts_mut(self.piece.base().as_ptr(), self.piece.len()) };
        let storage =
            in_zeroed_piece(plan, piece).expect("the piece has the bytes that are needed");
        (plan, storage)
    }
}

//! An owned CPU: the fast path without atomic read-modify-writes.
//!
//! See [`Allocator::handle`](crate::Allocator::handle).

use super::host::Host;
use crate::alloc::allocator::Allocator;
use crate::alloc::entry::{Entry, Homes, OwnedEntry};
use crate::alloc::free::push_through;
use crate::alloc::page_state::NotManaged;
use crate::pcp::per_cpu_pages::{OutsideSlot, PerCpuPages};
use crate::platform::{Platform, Slot};
use crate::policy::Policy;
use crate::policy::pcp::Pushed;
use crate::types::block::Block;
use crate::types::error::{AllocError, BulkFreed, FreeError, RefusedFree};
use crate::types::page_state::PageState;
use crate::types::request::Request;
use crate::types::units::{CpuId, Order, Pfn};
use core::fmt;

type Owned<'a, P, S> = <<P as Platform>::Slot<PerCpuPages<S>> as Slot<PerCpuPages<S>>>::Owned<'a>;

/// Exclusive use of one CPU's caches, until dropped. Other CPUs can still drain them when
/// memory is short. What is cached stays cached when the handle goes, but for the blocks of more than
/// a frame that it freed last.
pub struct CpuHandle<'a, 'm, P: Platform, S: Policy>
where
    P::Slot<PerCpuPages<S>>: 'a,
{
    allocator: &'a Allocator<'m, P, S>,
    entry: OwnedEntry<'m, P, S, Owned<'a, P, S>>,
}

impl<'a, 'm, P: Platform, S: Policy> CpuHandle<'a, 'm, P, S> {
    pub(crate) fn new(
        allocator: &'a Allocator<'m, P, S>,
        owned: Owned<'a, P, S>,
        outside: &'m [OutsideSlot<P, S>],
        cpu: usize,
        homes: Homes<S::Walk>,
    ) -> Option<Self> {
        Some(Self { allocator, entry: OwnedEntry::new(owned, outside, cpu, homes)? })
    }

    /// The CPU whose caches this handle owns.
    #[must_use]
    pub const fn cpu(&self) -> CpuId {
        CpuId(self.entry.number() as u32)
    }

    /// The allocator.
    #[must_use]
    pub const fn allocator(&self) -> &'a Allocator<'m, P, S> {
        self.allocator
    }

    /// Frees a block.
    ///
    /// # Errors
    /// As [`Allocator::free`].
    #[inline(always)]
    pub fn free(&mut self, block: Block) -> Result<(), RefusedFree> {
        let (pfn, order) = (block.pfn(), block.order());
        self.free_raw(pfn, order).map_err(|error| RefusedFree { block, error })
    }

    /// Frees the block of `order` that starts at `pfn`.
    ///
    /// # Errors
    /// As [`Allocator::free_raw`].
    #[inline(always)]
    pub fn free_raw(&mut self, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        if !OwnedEntry::<'m, P, S, Owned<'a, P, S>>::OUTSIDE || order > Order::ZERO {
            return self.allocator.free_through::<_, false>(&mut self.entry, pfn, order);
        }
        match push_through::<P, S>(self.entry.window(), pfn) {
            Pushed::Yes => Ok(()),
            Pushed::No => self.free_apart(pfn),
            Pushed::Elsewhere(index) => {
                self.free_again(index);
                Ok(())
            }
        }
    }

    /// Frees a frame that is not of the pageblock that was last freed to.
    // Out of line, because most of an owner's are of that pageblock; they do not need the allocator. What is rarer
    // still is called last, so that no registers are saved for it.
    #[cold]
    #[inline(never)]
    fn free_apart(&mut self, pfn: Pfn) -> Result<(), FreeError> {
        match self.allocator.push_apart(&mut self.entry, pfn) {
            (Pushed::Yes, false) => Ok(()),
            (Pushed::Yes, true) => {
                self.remember(pfn);
                Ok(())
            }
            (Pushed::Elsewhere(index), _) => {
                self.free_again(index);
                Ok(())
            }
            (Pushed::No, _) => self.free_inside(pfn),
        }
    }

    /// Frees one that does not stay, or for which there is no room.
    #[cold]
    #[inline(never)]
    fn free_inside(&mut self, pfn: Pfn) -> Result<(), FreeError> {
        self.allocator.free_inside(&mut self.entry, pfn)
    }

    /// Frees the next frames of this one's pageblock without a look for it.
    #[cold]
    #[inline(never)]
    fn remember(&mut self, pfn: Pfn) {
        self.allocator.remember(&mut self.entry, pfn);
    }

    /// Frees one that may no longer stay where it is.
    #[cold]
    #[inline(never)]
    fn free_again(&mut self, index: u32) {
        self.allocator.free_again(&mut self.entry, index, Order::ZERO);
    }

    /// Counts pages: see [`Allocator::mod_page_state`].
    ///
    /// # Errors
    /// As [`Allocator::mod_page_state`].
    pub fn mod_page_state(
        &mut self,
        pfn: Pfn,
        state: PageState,
        change: i32,
    ) -> Result<(), NotManaged> {
        self.allocator.mod_page_state_through(&mut self.entry, pfn, state, change)
    }

    /// Frees single frames: see [`Allocator::free_bulk`].
    #[inline(always)]
    pub fn free_bulk(&mut self, frames: &[Pfn]) -> BulkFreed {
        self.allocator.free_bulk_through(&mut self.entry, frames)
    }

    /// Frees blocks of one order: see [`Allocator::free_blocks`].
    pub fn free_blocks(&mut self, order: Order, blocks: &[Pfn]) -> BulkFreed {
        match order {
            Order::ZERO => self.free_bulk(blocks),
            _ => BulkFreed::one_by_one(blocks, |pfn| self.free_raw(pfn, order)),
        }
    }
}

impl<'a, 'm, P: Host, S: Policy> CpuHandle<'a, 'm, P, S> {
    /// Allocates a block.
    ///
    /// # Errors
    /// As [`Allocator::alloc`].
    #[inline(always)]
    pub fn alloc(&mut self, request: &Request) -> Result<Block, AllocError> {
        self.allocator.alloc_through::<_, true>(&mut self.entry, request)
    }

    /// As [`alloc`](Self::alloc), for those who keep the pfn by other means.
    ///
    /// # Errors
    /// As [`Allocator::alloc`].
    #[inline(always)]
    pub fn alloc_raw(&mut self, request: &Request) -> Result<Pfn, AllocError> {
        self.alloc(request).map(|block| block.into_raw().0)
    }

    /// Fills `out` with blocks: see [`Allocator::alloc_bulk`].
    ///
    /// # Errors
    /// As [`Allocator::alloc_bulk`].
    #[inline(always)]
    pub fn alloc_bulk(&mut self, request: &Request, out: &mut [Pfn]) -> Result<(), AllocError> {
        self.allocator.alloc_bulk_through(&mut self.entry, request, out)
    }
}

impl<P: Platform, S: Policy> Drop for CpuHandle<'_, '_, P, S> {
    fn drop(&mut self) {
        let (allocator, cpu) = (self.allocator, self.entry.number());
        self.entry.set_owned(false, |zone, own| allocator.leave_cache(zone, cpu, own));
    }
}

impl<P: Platform, S: Policy> fmt::Debug for CpuHandle<'_, '_, P, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CpuHandle").field("cpu", &self.cpu()).finish_non_exhaustive()
    }
}

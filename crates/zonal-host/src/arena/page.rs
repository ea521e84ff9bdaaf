//! A block of the arena's memory, owned.

use super::Arena;
use std::fmt;
use std::mem;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::slice;
use zonal::policy::Policy;
use zonal::preset::Zonal;
use zonal::{Block, Order, Pfn};

/// A block of an [`Arena`]'s memory: derefs to its bytes, freed when dropped.
///
/// A page that came from a [`Handle`](super::Handle) is freed faster by
/// [`Handle::free`](super::Handle::free) than by dropping it.
pub struct Page<'a, S: Policy = Zonal> {
    arena: &'a Arena<S>,
    start: NonNull<u8>,
    order: Order,
}

// SAFETY: the page owns its bytes, and the arena it is freed to may be used from any thread.
unsafe impl<S: Policy> Send for Page<'_, S> where Arena<S>: Sync {}
// SAFETY: a shared page gives shared access to its bytes only.
unsafe impl<S: Policy> Sync for Page<'_, S> where Arena<S>: Sync {}

impl<'a, S: Policy> Page<'a, S> {
    /// The page of a block that the arena's allocator has just handed out.
    #[inline(always)]
    pub(super) fn new(arena: &'a Arena<S>, block: Block) -> Self {
        let (pfn, order) = block.into_raw();
        Self::from_raw(arena, pfn, order)
    }

    /// The page of a block that the caller owns.
    #[inline(always)]
    pub(super) fn from_raw(arena: &'a Arena<S>, pfn: Pfn, order: Order) -> Self {
        // Frames are numbered by address.
        let base = arena.memory.base();
        let offset = (pfn.address() as usize).wrapping_sub(base.addr().get());
        debug_assert!(offset < arena.len(), "{pfn} is not a frame of the arena");
        // SAFETY: the allocator hands out frames of the arena's memory only.
        let start = unsafe { base.add(offset) };
        arena.settle(start, order);
        Self { arena, start, order }
    }

    /// The first frame.
    #[must_use]
    #[inline]
    pub fn pfn(&self) -> Pfn {
        Pfn::containing(self.start.addr().get() as u64)
    }

    /// The first byte.
    pub(super) const fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// The order it was allocated with.
    #[must_use]
    #[inline]
    pub const fn order(&self) -> Order {
        self.order
    }

    /// The arena it is from.
    #[must_use]
    pub const fn arena(&self) -> &'a Arena<S> {
        self.arena
    }

    /// Gives the page up for its numbers; it is then freed by [`Arena::free_raw`], or becomes a
    /// page again by [`Arena::page_from_raw`].
    #[must_use = "the numbers are all that is left of the page"]
    #[inline]
    pub fn into_raw(self) -> (Pfn, Order) {
        let raw = (self.pfn(), self.order);
        mem::forget(self);
        raw
    }
}

impl<S: Policy> Deref for Page<'_, S> {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the block is inside the arena's memory, which is committed, and lives as long
        // as `'a`; its bytes have been zero or written since they were mapped; no other code
        // reads or writes it, since the allocator hands a frame out once (I-3) and who frees
        // it early has broken a contract; and `&self` keeps writers of our own out.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.order.bytes()) }
    }
}

impl<S: Policy> DerefMut for Page<'_, S> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `&mut self` keeps readers of our own out too.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.order.bytes()) }
    }
}

impl<S: Policy> AsRef<[u8]> for Page<'_, S> {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl<S: Policy> AsMut<[u8]> for Page<'_, S> {
    fn as_mut(&mut self) -> &mut [u8] {
        self
    }
}

impl<S: Policy> Drop for Page<'_, S> {
    #[inline]
    fn drop(&mut self) {
        let freed = self.arena.inner().free_raw(self.pfn(), self.order);
        debug_assert!(freed.is_ok(), "a page is freed once: {freed:?}");
    }
}

impl<S: Policy> fmt::Debug for Page<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Page").field("pfn", &self.pfn()).field("order", &self.order).finish()
    }
}

//! A cache of one's own.

use super::{Arena, Page};
use crate::threads::Threads;
use std::fmt;
use std::ptr;
use zonal::policy::Policy;
use zonal::preset::Zonal;
use zonal::{AllocError, BulkFreed, CpuHandle, CpuId, FreeError, Order, Pfn, Request};

/// Exclusive use of one of the arena's caches, until dropped: allocating and freeing take no
/// atomic read-modify-write as long as the cache has what is wanted. Others still drain it when
/// memory is short.
pub struct Handle<'a, S: Policy = Zonal> {
    arena: &'a Arena<S>,
    inner: CpuHandle<'a, 'static, Threads, S>,
}

impl<'a, S: Policy> Handle<'a, S> {
    pub(super) fn new(arena: &'a Arena<S>, inner: CpuHandle<'a, 'static, Threads, S>) -> Self {
        Self { arena, inner }
    }

    /// The arena it belongs to.
    #[must_use]
    pub const fn arena(&self) -> &'a Arena<S> {
        self.arena
    }

    /// The allocator's number of the cache.
    #[must_use]
    pub const fn cpu(&self) -> CpuId {
        self.inner.cpu()
    }

    /// Allocates a block: see [`Arena::alloc`].
    ///
    /// # Errors
    /// As [`Arena::alloc`].
    #[inline(always)]
    pub fn alloc(&mut self, request: &Request) -> Result<Page<'a, S>, AllocError> {
        self.inner.alloc(request).map(|block| Page::new(self.arena, block))
    }

    /// Frees a page into this cache, wherever it is from. A page of another arena goes back
    /// there.
    #[inline(always)]
    pub fn free(&mut self, page: Page<'_, S>) {
        if ptr::eq(page.arena(), self.arena) {
            let (pfn, order) = page.into_raw();
            let freed = self.inner.free_raw(pfn, order);
            debug_assert!(freed.is_ok(), "a page is freed once: {freed:?}");
        }
    }

    /// Allocates a block for those who keep its frame number by other means.
    ///
    /// # Errors
    /// As [`Arena::alloc`].
    #[inline(always)]
    pub fn alloc_raw(&mut self, request: &Request) -> Result<Pfn, AllocError> {
        self.inner.alloc_raw(request)
    }

    /// Frees the block of `order` that starts at `pfn`.
    ///
    /// # Errors
    /// As [`Arena::free_raw`].
    ///
    /// # Safety
    /// As [`Arena::free_raw`].
    #[inline(always)]
    pub unsafe fn free_raw(&mut self, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        self.inner.free_raw(pfn, order)
    }

    /// Fills `out` with blocks.
    ///
    /// # Errors
    /// As [`Arena::alloc_bulk`].
    #[inline(always)]
    pub fn alloc_bulk(&mut self, request: &Request, out: &mut [Pfn]) -> Result<(), AllocError> {
        self.inner.alloc_bulk(request, out)
    }

    /// Frees single frames.
    ///
    /// # Safety
    /// As [`Arena::free_bulk`].
    #[inline(always)]
    pub unsafe fn free_bulk(&mut self, frames: &[Pfn]) -> BulkFreed {
        self.inner.free_bulk(frames)
    }

    /// Frees blocks of one order.
    ///
    /// # Safety
    /// As [`Arena::free_blocks`].
    pub unsafe fn free_blocks(&mut self, order: Order, blocks: &[Pfn]) -> BulkFreed {
        self.inner.free_blocks(order, blocks)
    }
}

impl<S: Policy> fmt::Debug for Handle<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("cpu", &self.cpu()).finish_non_exhaustive()
    }
}

//! An arena as the allocator of collections.

use crate::Arena;
use allocator_api2::alloc::{AllocError, Allocator};
use std::alloc::Layout;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use zonal::policy::Policy;
use zonal::preset::Zonal;
use zonal::units::FRAME_SIZE;
use zonal::{Order, Pfn, Request};

/// The order of the block for a layout: `Some(None)` if it needs none, `None` if it is too large.
const fn order_for(layout: Layout) -> Option<Option<Order>> {
    if layout.size() == 0 {
        return Some(None);
    }
    // Blocks are aligned to their size.
    let bytes = if layout.align() > layout.size() { layout.align() } else { layout.size() };
    match Order::for_frames(bytes.div_ceil(FRAME_SIZE) as u64) {
        Some(order) => Some(Some(order)),
        None => None,
    }
}

/// No bytes at an address of the layout's alignment.
fn nothing(layout: Layout) -> NonNull<[u8]> {
    let start = NonNull::new(ptr::without_provenance_mut(layout.align()));
    NonNull::slice_from_raw_parts(start.unwrap_or(NonNull::dangling()), 0)
}

/// The block at `start` again, where both layouts have blocks of one order: it is large enough for
/// either, and aligned.
const fn same_block(start: NonNull<u8>, old: Layout, new: Layout) -> Option<NonNull<[u8]>> {
    match (order_for(old), order_for(new)) {
        (Some(Some(before)), Some(Some(after))) if before.get() == after.get() => {
            Some(NonNull::slice_from_raw_parts(start, after.bytes()))
        }
        _ => None,
    }
}

/// The orders of the blocks of both layouts, if the second one's is smaller.
const fn smaller_block(old: Layout, new: Layout) -> Option<(Order, Order)> {
    match (order_for(old), order_for(new)) {
        (Some(Some(before)), Some(Some(after))) if after.get() < before.get() => {
            Some((before, after))
        }
        _ => None,
    }
}

impl<S: Policy> Arena<S> {
    fn for_layout(&self, layout: Layout, zero: bool) -> Result<NonNull<[u8]>, AllocError> {
        let Some(order) = order_for(layout).ok_or(AllocError)? else { return Ok(nothing(layout)) };
        let request = Request::new(order);
        let request = if zero { request.zero() } else { request };
        let pfn = self.alloc_raw(&request).map_err(|_| AllocError)?;
        let start = self.address_of(pfn).ok_or(AllocError)?;
        Ok(NonNull::slice_from_raw_parts(start, order.bytes()))
    }

    /// The block again where both layouts have blocks of one order; else moves what is in it to another, a new
    /// one, and frees the first. Where there is no other, a smaller one is its start. With `zero` what is behind the old
    /// layout is zero.
    ///
    /// # Safety
    /// As for `Allocator::grow`, `Allocator::shrink` or, with `zero`, `Allocator::grow_zeroed`.
    unsafe fn resized(
        &self,
        start: NonNull<u8>,
        old: Layout,
        new: Layout,
        zero: bool,
    ) -> Result<NonNull<[u8]>, AllocError> {
        if let Some(same) = same_block(start, old, new) {
            if zero {
                // SAFETY: a block is not smaller than its layout.
                let rest = unsafe { start.add(old.size()) };
                // SAFETY: the rest of the block, which by contract is the caller's.
                unsafe { rest.write_bytes(0, same.len() - old.size()) };
            }
            return Ok(same);
        }
        let moved = match (self.for_layout(new, zero), smaller_block(old, new)) {
            (Ok(moved), _) => moved,
            (Err(_), Some((before, after))) => {
                let pfn = Pfn::containing(start.addr().get() as u64);
                // SAFETY: by contract the block is the caller's, who uses the start of it only from now on.
                unsafe { self.cut_raw(pfn, before, after) }.map_err(|_| AllocError)?;
                return Ok(NonNull::slice_from_raw_parts(start, after.bytes()));
            }
            (Err(error), None) => return Err(error),
        };
        // SAFETY: by contract `start` is good for `old.size()` bytes, and `moved` is for
        // `new.size()`; two allocations do not overlap.
        unsafe { start.copy_to_nonoverlapping(moved.cast(), old.size().min(new.size())) };
        // SAFETY: the same contract.
        unsafe { self.deallocate(start, old) };
        Ok(moved)
    }
}

/// Each allocation is a block: 4 KiB to 4 MiB, aligned to its size, found in its whole length in
/// the slice that is returned, for collections that
/// use what they get. `&Arena` is an allocator as
/// well, by the crate's own implementation for references to one; [`SharedArena`] keeps the arena
/// open.
///
/// ```
/// use allocator_api2::vec::Vec;
/// use zonal_host::Arena;
/// let arena = Arena::builder().bytes(16 << 20).open()?;
/// let mut squares = Vec::new_in(&arena);
/// squares.extend((0..1000_u64).map(|n| n * n));
/// assert_eq!(squares[31], 961);
/// # Ok::<(), zonal_host::ArenaError>(())
/// ```
// SAFETY: a block is mapped, and its holder's alone, from when it was allocated until it is freed or
// the arena is dropped, wherever the arena itself is moved to; an arena has no clones. Any size
// between the one asked for and the one returned has the same order, so the layout says it again.
unsafe impl<S: Policy> Allocator for Arena<S> {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        self.for_layout(layout, false)
    }

    fn allocate_zeroed(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        self.for_layout(layout, true)
    }

    unsafe fn deallocate(&self, start: NonNull<u8>, layout: Layout) {
        if let Some(Some(order)) = order_for(layout) {
            let pfn = Pfn::containing(start.addr().get() as u64);
            // SAFETY: by contract the block is allocated from this arena with this layout, and not
            // used any more.
            let freed = unsafe { self.free_raw(pfn, order) };
            debug_assert!(freed.is_ok(), "{freed:?}");
        }
    }

    unsafe fn grow(
        &self,
        start: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: the same contract.
        unsafe { self.resized(start, old, new, false) }
    }

    unsafe fn grow_zeroed(
        &self,
        start: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: the same contract.
        unsafe { self.resized(start, old, new, true) }
    }

    unsafe fn shrink(
        &self,
        start: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: the same contract.
        unsafe { self.resized(start, old, new, false) }
    }
}

/// A counted reference to an arena, as an allocator: what is allocated with it keeps the arena
/// open. (`Arc<Arena>` itself cannot be one: neither the pointer nor the trait is this crate's.)
///
/// ```
/// use allocator_api2::boxed::Box;
/// use std::sync::Arc;
/// use zonal_host::{Arena, SharedArena};
/// let arena = Arc::new(Arena::builder().bytes(16 << 20).open()?);
/// let shared = SharedArena(arena);
/// let word = Box::new_in(7, shared.clone());
/// drop(shared);
/// assert_eq!(*word, 7);
/// # Ok::<(), zonal_host::ArenaError>(())
/// ```
#[derive(Debug)]
pub struct SharedArena<S: Policy = Zonal>(pub Arc<Arena<S>>);

impl<S: Policy> Clone for SharedArena<S> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

// SAFETY: as for the arena, which all clones share, and which lives as long as one of them.
unsafe impl<S: Policy> Allocator for SharedArena<S> {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        self.0.allocate(layout)
    }

    fn allocate_zeroed(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        self.0.allocate_zeroed(layout)
    }

    unsafe fn deallocate(&self, start: NonNull<u8>, layout: Layout) {
        // SAFETY: the same contract.
        unsafe { self.0.deallocate(start, layout) };
    }

    unsafe fn grow(
        &self,
        start: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: the same contract.
        unsafe { self.0.grow(start, old, new) }
    }

    unsafe fn grow_zeroed(
        &self,
        start: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: the same contract.
        unsafe { self.0.grow_zeroed(start, old, new) }
    }

    unsafe fn shrink(
        &self,
        start: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: the same contract.
        unsafe { self.0.shrink(start, old, new) }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use allocator_api2::vec::Vec;
    use zonal::ZoneId;

    const MIB: usize = 1 << 20;

    fn open() -> Arena {
        Arena::builder().bytes(16 * MIB).cpus(1).owners(0).open().unwrap()
    }

    fn allocated(arena: &Arena) -> u64 {
        arena.drain();
        let zone = arena.zone_info(ZoneId(0)).unwrap();
        zone.managed - zone.free
    }

    #[test]
    fn layouts_are_served_whole_and_aligned_or_refused() {
        let arena = open();
        for (size, align, order) in
            [(1, 1, 0), (4096, 8, 0), (4097, 8, 1), (1, 1 << 14, 2), (2 * MIB, 2 * MIB, 9)]
        {
            let layout = Layout::from_size_align(size, align).unwrap();
            let block = arena.allocate_zeroed(layout).unwrap();
            assert_eq!((block.len(), allocated(&arena)), (4096 << order, 1 << order));
            assert!(block.cast::<u8>().addr().get().is_multiple_of(align));
            // SAFETY: allocated just now, zero in its whole length, and not written meanwhile.
            assert!(unsafe { block.as_ref() }.iter().all(|&byte| byte == 0));
            // SAFETY: what is used is over; any size up to the length goes.
            unsafe { arena.deallocate(block.cast(), layout) };
            assert_eq!(allocated(&arena), 0);
        }
        let too_large = [(4 * MIB + 1, 1), (1, 8 * MIB)];
        for (size, align) in too_large {
            let layout = Layout::from_size_align(size, align).unwrap();
            assert_eq!(arena.allocate(layout), Err(AllocError));
        }
        let empty = arena.allocate(Layout::from_size_align(0, 64).unwrap()).unwrap();
        assert_eq!((empty.len(), empty.cast::<u8>().addr().get() % 64), (0, 0));
        assert_eq!(allocated(&arena), 0);
    }

    #[test]
    fn a_vector_grows_in_place_and_by_copies_and_leaves_nothing() {
        let arena = open();
        let mut bytes = Vec::new_in(&arena);
        bytes.push(1_u8);
        let start = bytes.as_ptr();
        bytes.reserve(4000);
        assert_eq!((bytes.as_ptr(), allocated(&arena)), (start, 1), "the frame is large enough");
        bytes.extend((0..MIB).map(|n| n as u8));
        assert_eq!((bytes.len(), allocated(&arena)), (MIB + 1, 512));
        assert!(bytes[1..].iter().enumerate().all(|(n, &byte)| byte == n as u8));
        bytes.truncate(10);
        bytes.shrink_to_fit();
        assert_eq!((&bytes[..4], allocated(&arena)), (&[1, 0, 1, 2][..], 1));
        assert!(bytes.try_reserve(5 * MIB).is_err(), "more than a block");
        drop(bytes);
        assert_eq!(allocated(&arena), 0);
    }

    /// An arena that has no block left, and one of ones.
    fn exhausted(arena: &Arena, size: usize) -> (NonNull<u8>, Layout) {
        let layout = Layout::from_size_align(size, 8).unwrap();
        let block = arena.allocate(layout).unwrap();
        // SAFETY: allocated just now, in its whole length.
        unsafe { block.cast::<u8>().write_bytes(1, block.len()) };
        while arena.alloc_raw(&Request::frame()).is_ok() {}
        (block.cast(), layout)
    }

    fn resizes_in_place(arena: &Arena, allocator: &impl Allocator) {
        let (start, old) = exhausted(arena, 4000);
        let layout = |size, align| Layout::from_size_align(size, align).unwrap();
        for small in [layout(10, 8), layout(10, 4096), layout(1, 1)] {
            // SAFETY: allocated with that layout, and the new one is smaller.
            let shrunk = unsafe { allocator.shrink(start, old, small) }.unwrap();
            assert_eq!((shrunk.cast(), shrunk.len()), (start, 4096));
            // SAFETY: as it was left, and the new layout is larger.
            let grown = unsafe { allocator.grow_zeroed(start, small, old) }.unwrap();
            // SAFETY: the caller's, and not written meanwhile.
            let bytes = unsafe { grown.as_ref() };
            let (ones, zeroes) = bytes.split_at(small.size());
            assert_eq!((grown.cast(), bytes.len()), (start, 4096));
            assert!(ones.iter().all(|&byte| byte == 1) && zeroes.iter().all(|&byte| byte == 0));
        }
        // SAFETY: allocated with that layout; nothing is left to move it to, and it stays.
        assert_eq!(unsafe { allocator.grow_zeroed(start, old, layout(5000, 8)) }, Err(AllocError));
        // SAFETY: the same, for a place that is aligned to more than a frame.
        assert_eq!(unsafe { allocator.shrink(start, old, layout(10, 8192)) }, Err(AllocError));
        // SAFETY: to nothing: it is freed.
        let nothing = unsafe { allocator.shrink(start, old, layout(0, 8)) }.unwrap();
        assert_eq!(nothing.len(), 0);
        assert!(arena.alloc_raw(&Request::frame()).is_ok(), "it was the last one");
    }

    /// What is behind the smaller block is free.
    fn shrinks_in_place(arena: &Arena, allocator: &impl Allocator) {
        let (start, mut old) = exhausted(arena, 13_000);
        for (size, align, len, behind) in [(5000, 8192, 2, 2), (4097, 1, 2, 0), (10, 8, 1, 1)] {
            let small = Layout::from_size_align(size, align).unwrap();
            // SAFETY: allocated with that layout, and the new one is smaller.
            let shrunk = unsafe { allocator.shrink(start, old, small) }.unwrap();
            assert_eq!((shrunk.cast(), shrunk.len()), (start, len * 4096));
            // SAFETY: the caller's, and not written meanwhile.
            assert!(unsafe { shrunk.as_ref() }[..size].iter().all(|&byte| byte == 1));
            old = small;
            let free = std::iter::from_fn(|| arena.alloc_raw(&Request::frame()).ok()).count();
            assert_eq!(free, behind, "a layout of {size} bytes");
        }
        let before = allocated(arena);
        // SAFETY: allocated with that layout, and not used any more.
        unsafe { allocator.deallocate(start, old) };
        assert_eq!(allocated(arena), before - 1);
    }

    #[test]
    fn blocks_are_resized_in_place_where_nothing_is_left() {
        let arena = open();
        resizes_in_place(&arena, &arena);
        let shared = SharedArena(Arc::new(open()));
        resizes_in_place(&shared.0, &shared);
        let arena = open();
        shrinks_in_place(&arena, &arena);
        let shared = SharedArena(Arc::new(open()));
        shrinks_in_place(&shared.0, &shared);
    }

    #[test]
    fn a_block_that_moves_keeps_what_is_in_it_and_is_zero_behind() {
        let arena = open();
        let layout = |size| Layout::from_size_align(size, 1).unwrap();
        let block = arena.allocate(layout(3000)).unwrap();
        // SAFETY: allocated just now, in its whole length.
        unsafe { block.cast::<u8>().write_bytes(1, block.len()) };
        // SAFETY: allocated with that layout, and the new one is larger.
        let grown = unsafe { arena.grow_zeroed(block.cast(), layout(3000), layout(9000)) }.unwrap();
        // SAFETY: allocated just now, and not written meanwhile.
        let (ones, zeroes) = unsafe { grown.as_ref() }.split_at(3000);
        assert_eq!((zeroes.len(), allocated(&arena)), (4 * 4096 - 3000, 4));
        assert!(ones.iter().all(|&byte| byte == 1) && zeroes.iter().all(|&byte| byte == 0));
        // SAFETY: allocated with that layout, and the new one is smaller.
        let shrunk = unsafe { arena.shrink(grown.cast(), layout(9000), layout(3000)) }.unwrap();
        // SAFETY: allocated just now, and not written meanwhile.
        let same = unsafe { shrunk.as_ref() }[..3000].iter().all(|&byte| byte == 1);
        assert!(same && allocated(&arena) == 1);
    }

    #[test]
    fn what_is_allocated_keeps_a_shared_arena_open() {
        let arena = Arc::new(open());
        let weak = Arc::downgrade(&arena);
        let mut words = Vec::new_in(SharedArena(arena));
        words.extend(0..2000_u32);
        let copy = words.clone();
        drop(words);
        assert_eq!((copy[1999], allocated(&weak.upgrade().unwrap())), (1999, 2));
        drop(copy);
        assert!(weak.upgrade().is_none());
    }
}

//! Frames of an arena.

use crate::frames::Frames;
use crate::{fetch, page_copy};
use core::ops::Range;
use core::ptr::NonNull;
use std::sync::Arc;
use zonal::page_state::PageState;
use zonal::policy::Policy;
use zonal::preset::Zonal;
use zonal::{MigrateType, Order, Pfn, Request};
use zonal_host::Arena;
use zonal_host::region::GiveBack;

/// The largest blocks that are asked for: those of a huge page.
const MOST_ORDER: Order = Order::HUGE;
const FRAME: Request = Request::frame().migrate(MigrateType::Movable);

/// The frames of an arena, which may have other users. `S` is the arena's preset.
///
/// A request of another user that cannot be served shrinks the cache where the arena's pager is a
/// [`Shrinker`](crate::Shrinker).
#[derive(Debug)]
pub struct ArenaFrames<S: Policy = Zonal> {
    arena: Arc<Arena<S>>,
}

impl<S: Policy> ArenaFrames<S> {
    /// Frames of `arena`.
    #[must_use]
    pub const fn new(arena: Arc<Arena<S>>) -> Self {
        Self { arena }
    }

    /// The arena.
    #[must_use]
    pub const fn arena(&self) -> &Arc<Arena<S>> {
        &self.arena
    }

    /// The first of as many frames in a row, each allocated by itself. If there is no such block at once, none is made:
    /// neither reclaim nor compaction are worth it.
    fn block(&self, order: Order) -> Option<Pfn> {
        let request = Request::new(order).migrate(MigrateType::Movable).no_wait();
        let first = self.arena.alloc(&request).ok()?.into_raw().0;
        // SAFETY: just allocated, and known to no other code.
        let split = unsafe { self.arena.split_raw(first, order) };
        debug_assert!(split.is_ok(), "a block that was just allocated");
        split.is_ok().then_some(first)
    }
}

// SAFETY: an arena hands a frame out once until it is freed, and its memory is mapped while the
// arena is open, which `self` keeps it. All of it is one mapping, in the order of its frames, and each address is made of
// the pointer to all of that.
unsafe impl<S: Policy> Frames for ArenaFrames<S>
where
    Arena<S>: Send + Sync + 'static,
{
    type Trace = S::Trace;
    const JOINED: bool = true;

    fn alloc(&self) -> Option<Pfn> {
        // Not `alloc_raw`: another user of the arena may give idle memory back lazily, and this settles it.
        self.arena.alloc(&FRAME).ok().map(|page| page.into_raw().0)
    }

    fn alloc_to_write(&self, less_throttled: bool) -> Option<Pfn> {
        let request = if less_throttled { FRAME.write().less_throttled() } else { FRAME.write() };
        self.arena.alloc(&request).ok().map(|page| page.into_raw().0)
    }

    #[inline(always)]
    fn expect(&self, low: u32, bytes: Range<usize>) {
        let first = self.arena.first().get();
        let frame = Pfn::new(first + u64::from(low.wrapping_sub(first as u32)));
        fetch::expect(frame.address(), bytes);
    }

    #[inline(always)]
    fn read(&self, from: &[u8], into: &mut [u8], near: bool) {
        page_copy::copy(from, into, near);
    }

    fn alloc_some(&self, frames: &mut [Pfn]) -> usize {
        let mut count = 0;
        let mut most = MOST_ORDER;
        while count < frames.len() {
            let rest = &mut frames[count..];
            let order = Order::all().take_while(|order| order.frames() as usize <= rest.len());
            let order = order.last().unwrap_or(Order::ZERO).min(most);
            if order == Order::ZERO {
                let Some(frame) = self.alloc() else { return count };
                rest[0] = frame;
                count += 1;
                continue;
            }
            match self.block(order) {
                Some(first) => {
                    let block = first.get()..first.get() + order.frames();
                    rest.iter_mut().zip(block).for_each(|(frame, pfn)| *frame = Pfn::new(pfn));
                    count += order.frames() as usize;
                }
                // Where there is none of an order there may be smaller ones, and none that is larger.
                None => most = Order::new(order.get() - 1).unwrap_or(Order::ZERO),
            }
        }
        count
    }

    unsafe fn free(&self, frames: &[Pfn]) {
        if let [frame] = frames {
            // SAFETY: the caller's contract is the arena's.
            let freed = unsafe { self.arena.free_raw(*frame, Order::ZERO) };
            debug_assert!(freed.is_ok(), "a frame is freed once");
            return;
        }
        // SAFETY: the caller's contract is the arena's.
        let freed = unsafe { self.arena.free_bulk(frames) };
        debug_assert_eq!(freed.freed, frames.len(), "a frame is freed once");
    }

    #[inline(always)]
    fn address(&self, frame: Pfn) -> NonNull<u8> {
        self.arena.address_of(frame).unwrap_or_else(|| foreign(frame))
    }

    fn count(&self, frame: Pfn, state: PageState, change: i32) {
        // SAFETY: nothing is allocated or freed by it.
        let allocator = unsafe { self.arena.allocator() };
        let counted = allocator.mod_page_state(frame, state, change);
        debug_assert!(counted.is_ok(), "a frame of the arena");
    }

    fn zones(&self) -> (usize, usize) {
        // SAFETY: nothing is allocated or freed by it.
        let zones = unsafe { self.arena.allocator() }.plan().zones();
        let nodes = zones.iter().map(|zone| usize::from(zone.node.0) + 1).max();
        (zones.len().max(1), nodes.unwrap_or(1))
    }

    fn zone_of(&self, frame: Pfn) -> (usize, usize) {
        // SAFETY: nothing is allocated or freed by it.
        let plan = unsafe { self.arena.allocator() }.plan();
        let zone = plan.zone_at(frame).map_or(0, |zone| usize::from(zone.0));
        (zone, plan.zones().get(zone).map_or(0, |zone| usize::from(zone.node.0)))
    }

    fn give_back(&self) -> u64 {
        self.arena.drain();
        self.arena.give_back(usize::MAX, GiveBack::Now).map_or(0, |given| given.bytes as u64)
    }
}

#[cold]
fn foreign(frame: Pfn) -> ! {
    panic!("{frame:?} is not of the arena")
}

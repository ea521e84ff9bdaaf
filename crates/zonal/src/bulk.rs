//! Many single frames at once, into and out of slices of pfns.

use crate::allocator::{Allocator, NO_ZONE};
use crate::entry::Entry;
use crate::error::{AllocError, AllocReason, BulkFreed};
use crate::frame::FrameState;
use crate::free_path::cached_as;
use crate::keeper::Keeper;
use crate::platform::Platform;
use crate::policy::trace::Event;
use crate::policy::{Policy, Trace};
use crate::request::Request;
use crate::units::{Order, Pfn, ZoneId};
use crate::watermark::Mark;

const CACHED: FrameState = FrameState::cached(Order::ZERO);
const ALLOCATED: FrameState = FrameState::allocated(Order::ZERO);

impl<'m, P: Platform, S: Policy> Allocator<'m, P, S> {
    /// Fills `out` with blocks of the request's order (the cost a frame is lowest for order 0).
    ///
    /// # Errors
    /// [`AllocError`] if not all could be had; then those that were are freed again, and `out`
    /// holds nothing of use.
    pub fn alloc_bulk(&self, request: &Request, out: &mut [Pfn]) -> Result<(), AllocError> {
        self.alloc_bulk_through(&mut self.shared_entry(), request, out)
    }

    /// Frees single frames. Those that may not be freed are left out and counted.
    pub fn free_bulk(&self, frames: &[Pfn]) -> BulkFreed {
        self.free_bulk_through(&mut self.shared_entry(), frames)
    }

    #[inline]
    pub(crate) fn alloc_bulk_through<E: Entry<P, S>>(
        &self,
        entry: &mut E,
        request: &Request,
        out: &mut [Pfn],
    ) -> Result<(), AllocError> {
        let (order, migrate) = (request.order(), request.migrate_type());
        let mut done = 0;
        while done < out.len() {
            if order == Order::ZERO && request.is_plain() {
                let node = self.node_of(entry.cpu());
                let home = self.homes[node.0 as usize][request.limit().index()];
                if home != NO_ZONE {
                    let rest = &mut out[done..];
                    let popped = entry.enter(ZoneId(home), |own| {
                        let cache = &mut own.cache;
                        let popped = S::Keeper::pop_bulk(cache, &self.table, migrate, rest);
                        own.events.alloc += popped as u64;
                        popped
                    });
                    let popped = popped.unwrap_or(0);
                    for &pfn in &out[done..done + popped] {
                        S::Trace::emit(|| Event::Alloc { pfn, order, migrate });
                    }
                    done += popped;
                    if done == out.len() {
                        break;
                    }
                }
            }
            // One frame by the long way fills the cache again.
            match self.alloc_through(entry, request) {
                Ok(block) => out[done] = block.into_raw().0,
                Err(error) => {
                    self.undo_bulk(entry, &out[..done], order);
                    return Err(error);
                }
            }
            done += 1;
        }
        Ok(())
    }

    #[cold]
    fn undo_bulk<E: Entry<P, S>>(&self, entry: &mut E, blocks: &[Pfn], order: Order) {
        for &pfn in blocks {
            let undone = self.free_through(entry, pfn, order);
            debug_assert!(undone.is_ok(), "a block just allocated can be freed");
        }
    }

    #[inline]
    pub(crate) fn free_bulk_through<E: Entry<P, S>>(
        &self,
        entry: &mut E,
        frames: &[Pfn],
    ) -> BulkFreed {
        let mut result = BulkFreed::default();
        let mut at = 0;
        while at < frames.len() {
            at += self.free_run(entry, &frames[at..]);
            let Some(&pfn) = frames.get(at) else { break };
            // The run ended at a frame of another zone or migrate type, or at one that may
            // not be freed.
            if let Err(error) = self.free_through(entry, pfn, Order::ZERO) {
                result.refused += 1;
                result.first_refused.get_or_insert((at, error));
            }
            at += 1;
        }
        result.freed = frames.len() - result.refused;
        result
    }

    /// Frees frames from the start of `frames` as long as they are of one zone and migrate
    /// type, in one entry of the cache. Returns how many.
    #[inline]
    fn free_run<E: Entry<P, S>>(&self, entry: &mut E, frames: &[Pfn]) -> usize {
        let first = frames.first().and_then(|&pfn| self.table.get_block(self.table.index(pfn)?));
        let Some(word) = first else { return 0 };
        let (Some(zone), Some(migrate)) = (word.zone(), cached_as(word.migrate())) else {
            return 0;
        };
        let cpu = entry.cpu();
        let freed = entry.enter(zone, |own| {
            let mut done = 0;
            for &pfn in frames {
                let Some(index) = self.table.index(pfn) else { break };
                if self.table.get_block(index) != Some(word)
                    || !self.table.replace_state(index, ALLOCATED, CACHED)
                {
                    break;
                }
                done += 1;
                let order = Order::ZERO;
                if S::Keeper::push(&mut own.cache, &self.table, order, migrate, index) {
                    self.spill(own, zone, cpu, order, migrate);
                }
            }
            own.events.free += done as u64;
            done
        });
        let done = freed.unwrap_or(0);
        for &pfn in &frames[..done] {
            S::Trace::emit(|| Event::Free { pfn, order: Order::ZERO });
        }
        done
    }

    /// Physically contiguous frames beyond the largest order. Its place is here; it needs
    /// compaction to be of use.
    ///
    /// # Errors
    /// [`AllocReason::Exhausted`] for more frames than a largest block holds.
    pub fn alloc_contiguous(
        &self,
        frames: u64,
        request: &Request,
    ) -> Result<crate::block::Block, AllocError> {
        let Some(order) = Order::for_frames(frames) else {
            return Err(self.explain(request, AllocReason::Exhausted, &[], Mark::Low));
        };
        let fitting = request.with_order(order);
        self.alloc(&fitting)
    }
}

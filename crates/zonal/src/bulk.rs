//! Many single frames at once, into and out of slices of pfns.

use crate::allocator::Allocator;
use crate::entry::Entry;
use crate::error::{AllocError, BulkFreed};
use crate::frame::BlockWord;
use crate::keeper::{Keeper, Stop};
use crate::platform::Platform;
use crate::policy::trace::Event;
use crate::policy::{Policy, Trace};
use crate::request::Request;
use crate::units::{Order, Pfn};

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

    #[inline(always)]
    pub(crate) fn alloc_bulk_through<E: Entry<P, S>>(
        &self,
        entry: &mut E,
        request: &Request,
        out: &mut [Pfn],
    ) -> Result<(), AllocError> {
        let order = request.order();
        let mut done = 0;
        while done < out.len() {
            if order == Order::ZERO {
                let popped = self.pop_bulk_home(entry, request, &mut out[done..]);
                let migrate = request.migrate_type();
                for &pfn in &out[done..done + popped] {
                    S::Trace::emit(|| Event::Alloc { pfn, order, migrate });
                }
                done += popped;
            }
            if done == out.len() {
                break;
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

    /// Takes what the home zone's cache has, up to the room in `out`.
    #[inline(always)]
    fn pop_bulk_home<E: Entry<P, S>>(
        &self,
        entry: &mut E,
        request: &Request,
        out: &mut [Pfn],
    ) -> usize {
        let Some(migrate) = request.single() else { return 0 };
        let home = entry.home(request.limit());
        let table = &self.table;
        let popped =
            entry.enter(home, move |own| S::Keeper::pop_bulk(&mut own.cache, table, migrate, out));
        popped.unwrap_or(0)
    }

    #[cold]
    fn undo_bulk<E: Entry<P, S>>(&self, entry: &mut E, blocks: &[Pfn], order: Order) {
        for &pfn in blocks {
            let undone = self.free_through(entry, pfn, order);
            debug_assert!(undone.is_ok(), "a block just allocated can be freed");
        }
    }

    #[inline(always)]
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
    #[inline(always)]
    fn free_run<E: Entry<P, S>>(&self, entry: &mut E, frames: &[Pfn]) -> usize {
        let Some(&first) = frames.first() else { return 0 };
        let word = self.table.block_at(self.table.offset(first));
        let Some((zone, migrate)) = word.and_then(BlockWord::cached_in) else { return 0 };
        let (cpu, table) = (entry.cpu(), &self.table);
        let freed = entry.enter(zone, move |own| {
            let mut done = 0;
            loop {
                let bulk =
                    S::Keeper::push_bulk(&mut own.cache, table, migrate, word, &frames[done..]);
                done += bulk.done;
                if bulk.stop != Stop::Edge {
                    break;
                }
                self.spill(own, zone, cpu, Order::ZERO, migrate);
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
}

//! Many frames or blocks at once, into and out of slices of pfns.

mod free;

use crate::alloc::allocator::Allocator;
use crate::alloc::entry::Entry;
use crate::alloc::host::Host;
use crate::alloc::undo::BulkInHand;
use crate::policy::PcpPolicy;
use crate::policy::{Policy, Trace, Walk};
use crate::trace::{Event, Point};
use crate::types::error::{AllocError, BulkFreed};
use crate::types::request::Request;
use crate::types::units::{Order, Pfn};

impl<'m, P: Host, S: Policy> Allocator<'m, P, S> {
    /// Fills `out` with blocks of the request's order (the cost a frame is lowest for order 0).
    ///
    /// # Errors
    /// [`AllocError`] if not all could be had; then those that were are freed again, and `out`
    /// holds nothing of use.
    pub fn alloc_bulk(&self, request: &Request, out: &mut [Pfn]) -> Result<(), AllocError> {
        self.alloc_bulk_through(&mut self.shared_entry(), request, out)
    }

    /// Frees single frames, and no blocks ([`free_blocks`](Self::free_blocks) does), as the preset's [`BulkFree`](crate::policy::BulkFree) does it. Those
    /// that may not be freed are left out and counted.
    pub fn free_bulk(&self, frames: &[Pfn]) -> BulkFreed {
        self.free_bulk_through(&mut self.shared_entry(), frames)
    }

    /// Frees blocks of one order: what [`alloc_bulk`](Self::alloc_bulk) gave. Single frames as [`free_bulk`](Self::free_bulk) does,
    /// blocks one after the other as [`free_raw`](Self::free_raw) does. Those that may not be freed are left out and counted.
    ///
    /// ```
    /// # use core::mem::MaybeUninit;
    /// # use zonal::{map::{MemoryMap, PhysAddr, Region}, plan::{Config, Plan}, policy::{Policy, Split}};
    /// # use zonal::{Allocator, platform::single::SingleThread, preset::Zonal};
    /// use zonal::{Order, Pfn, Request};
    /// # let map = MemoryMap::from_regions(&[Region::usable(PhysAddr(0), 64 << 20)]).unwrap().sanitise().unwrap();
    /// # let plan = Plan::new(map, Config::new(1), <Zonal as Policy>::Split::instances).unwrap();
    /// # let mut piece = vec![MaybeUninit::uninit(); 1 << 20];
    /// # let tables = zonal_tables::in_piece(&plan, &mut piece).unwrap();
    /// # let allocator = Allocator::<_, Zonal>::new(SingleThread, &plan, tables).unwrap();
    /// let (order, mut blocks) = (Order::new(3).unwrap(), [Pfn::new(0); 8]);
    /// allocator.alloc_bulk(&Request::new(order), &mut blocks).unwrap();
    /// assert_eq!(allocator.free_blocks(order, &blocks).freed, 8);
    /// assert_eq!(allocator.free_blocks(order, &blocks).refused, 8, "they are free");
    /// ```
    pub fn free_blocks(&self, order: Order, blocks: &[Pfn]) -> BulkFreed {
        match order {
            Order::ZERO => self.free_bulk(blocks),
            _ => BulkFreed::one_by_one(blocks, |pfn| self.free_raw(pfn, order)),
        }
    }

    #[inline(always)]
    pub(crate) fn alloc_bulk_through<E: Entry<'m, P, S>>(
        &self,
        entry: &mut E,
        request: &Request,
        out: &mut [Pfn],
    ) -> Result<(), AllocError> {
        let order = request.order();
        let mut bulk = BulkInHand::new(self, order, out);
        while bulk.done < bulk.out.len() {
            if order == Order::ZERO {
                let from = bulk.done;
                let popped = self.pop_bulk_home(entry, request, &mut bulk.out[from..]);
                bulk.done += popped;
                for &pfn in &bulk.out[from..from + popped] {
                    S::Trace::emit(Point::Alloc, || Event::alloc(pfn, request));
                }
            }
            if bulk.done == bulk.out.len() {
                break;
            }
            // One frame by the long way fills the cache again.
            let block = match self.alloc_through::<_, true>(entry, request) {
                Ok(block) => block,
                Err(error) => {
                    bulk.give_up();
                    return Err(error);
                }
            };
            bulk.out[bulk.done] = block.into_raw().0;
            bulk.done += 1;
        }
        bulk.hand_out();
        Ok(())
    }

    /// Takes what the home zone's cache has, up to the room in `out`.
    #[inline(always)]
    fn pop_bulk_home<E: Entry<'m, P, S>>(
        &self,
        entry: &mut E,
        request: &Request,
        out: &mut [Pfn],
    ) -> usize {
        let Some(migrate) = request.single() else { return 0 };
        let home = self.home(entry, request.limit());
        let table = &self.table;
        let (walk, zones) = (&self.walk, self.zones);
        let popped = entry.enter_at(home, move |own| {
            let (cache, outside) = own.parts();
            let popped = S::Pcp::pop_bulk(cache, outside, table, migrate, out);
            S::Walk::charge(walk, zones.get(home), &mut own.walk, popped as u64);
            popped
        });
        popped.unwrap_or(0)
    }
}

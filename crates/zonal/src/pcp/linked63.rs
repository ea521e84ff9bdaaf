//! Per-CPU lists of several orders, sized by the low watermark, as Linux 6.3 keeps them.
//!
//! - Source: Linux 6.3, the base of Huang's RFC of 2023.
//! - Mechanism: a list for each of the three types and the orders 0 to 3 and the pageblock order. A
//!   CPU keeps up to `high` frames over all lists: the zone's low watermark divided by the node's CPUs,
//!   at least four batches. An empty list is filled with `batch` frames in blocks of its order, two
//!   blocks at least. A CPU that has `high` gives frames back, beginning with the list that was freed
//!   to, from its cold end: a batch, and twice as many each time that no allocation comes between
//!   (*free factor*: allocations halve it), up to `high` less a batch. While the factor is above 0 a
//!   freed block of order 1 to 3 empties the cache.
//! - Differs: order 9 has one list a type, where 6.3 has one for all, so that CMA goes to movable
//!   requests only. What goes back in more than 256 frames goes in several holds (I-7). That
//!   reclaim runs (then 6.3 keeps four batches) the allocator does not know.
//! - State: the lists and the blocks' link words, guarded by the CPU's slot.
//! - Conflicts with clusters on the buddy lists: there are none here.
//! - Counters: `batch` and `high` in `zoneinfo`.
//! - Tests: `tests/linux63.rs` of the testkit, the suites.

use crate::boot::tuning::Tuning;
use crate::frame::FrameState;
use crate::frame::links::{FreeList, Links};
use crate::pcp::linked::batch_of;
use crate::platform::Platform;
use crate::policy::pcp::{Drainer, PcpPolicy, ZoneContext};
use crate::trace::{Event, Point, Trace, or_undo};
use crate::types::migrate_type::{MigrateType, NR_CACHED_TYPES};
use crate::types::units::Order;
use crate::zone::lists::merge::Merge;
use crate::zone::lists::{BuddyLists, link_words};
use crate::zone::tables::ZoneTables;
use crate::zone::{AllocFlags, FreeMemory};

/// A zone with buddy lists, seen from a CPU whose blocks are on lists too.
type Context<'a, P, M> = ZoneContext<'a, P, BuddyLists<M>>;

/// Per-CPU pages of several orders on linked lists.
#[derive(Clone, Copy, Debug)]
pub struct Linked63;

impl crate::policy::sound::sealed::Own for Linked63 {}

/// Orders up to this one are cached, and the pageblock order.
const COSTLY: u8 = 3;
/// Lists of a type.
const RANKS: usize = COSTLY as usize + 2;
const NR_LISTS: usize = RANKS * NR_CACHED_TYPES;

/// One CPU's lists of one zone.
#[derive(Debug)]
pub struct Linked63Cpu {
    lists: [FreeList; NR_LISTS],
    /// Frames on all of them.
    count: u32,
    batch: u32,
    high: u32,
    free_factor: u8,
    pageblock_order: Order,
}

/// The thousandth of the zone that Linux 6.3's batch comes from, at most: 1 MiB.
const MOST: u64 = 256;

/// Linux 6.3's high for a CPU, from the zone's low watermark.
fn linux_high(low: u64, cpus: u32, batch: u32) -> u32 {
    let share = low / u64::from(cpus.max(1));
    u32::try_from(share).unwrap_or(u32::MAX).max(4 * batch)
}

impl Linked63Cpu {
    /// The list for blocks of an order, if they are cached.
    #[inline(always)]
    fn list_of(&self, order: Order, migrate: MigrateType) -> Option<usize> {
        let rank = match order.get() {
            // A larger block may have an isolated pageblock in it.
            _ if order > self.pageblock_order => return None,
            low @ 0..=COSTLY => usize::from(low),
            _ if order == self.pageblock_order => RANKS - 1,
            _ => return None,
        };
        (migrate.index() < NR_CACHED_TYPES).then_some(rank * NR_CACHED_TYPES + migrate.index())
    }

    /// The order of a list's blocks.
    fn order_of(&self, list: usize) -> Order {
        match (list / NR_CACHED_TYPES) as u8 {
            low @ 0..=COSTLY => Order::new(low).unwrap_or(Order::ZERO),
            _ => self.pageblock_order,
        }
    }

    /// How many frames go back, after a block of `order` made it too many; 0: none.
    fn surplus(&mut self, order: Order) -> u32 {
        // The source calls it `free_high`.
        if self.free_factor > 0 && (1..=COSTLY).contains(&order.get()) {
            return self.count;
        }
        if self.count < self.high {
            return 0;
        }
        if self.high < self.batch {
            return 1;
        }
        let most = self.high - self.batch;
        let wanted = u64::from(self.batch) << self.free_factor;
        if wanted < u64::from(most) {
            self.free_factor += 1;
        }
        (wanted.min(u64::from(most)) as u32).max(self.batch)
    }

    /// Takes a block off its list and marks it allocated.
    fn take<P: Platform>(
        &mut self,
        table: &ZoneTables<'_, P>,
        list: usize,
        order: Order,
    ) -> Option<u32> {
        let (from, to) = (FrameState::cached(order), FrameState::allocated(order));
        while let Some(index) = self.lists[list].pop_head(link_words(table)) {
            self.count -= order.size();
            if table.replace_state(index, from, to) {
                return Some(index);
            }
        }
        None
    }

    fn put<P: Platform>(&mut self, links: Links<'_, P>, list: usize, order: Order, index: u32) {
        self.lists[list].push_head(links, index);
        self.count += order.size();
    }
}

/// Fills a list with `batch` frames in blocks of its order, in one hold; returns the frames.
fn fill<P: Platform, M: Merge, T: Trace>(
    ctx: &Context<'_, P, M>,
    cpu: &mut Linked63Cpu,
    (list, order): (usize, Order),
    migrate: MigrateType,
    headroom: u64,
) -> u64 {
    let blocks = match cpu.batch {
        1 => 1,
        batch => (batch >> order.get()).max(2),
    };
    let blocks = u64::from(blocks).min(headroom / order.frames());
    let list = &mut cpu.lists[list];
    let before = list.len();
    let came = ctx.take_blocks::<T>(list, order, migrate, blocks);
    cpu.count += came * order.size();
    ctx.tell_refill::<T>(list, before, order, migrate);
    u64::from(came) * order.frames()
}

/// Frames that go back in one hold, at most, unless one block has more.
const MOST_HELD: u32 = 256;

/// Frees at least `frames` frames, list after list from `first` on, each from its cold end.
fn shed<P: Platform, M: Merge>(
    ctx: &Context<'_, P, M>,
    cpu: &mut Linked63Cpu,
    first: usize,
    frames: u32,
) -> u64 {
    let (mut left, mut list) = (frames.min(cpu.count), first);
    let mut given = 0;
    while left > 0 {
        // Frames are left, so a list has some.
        while cpu.lists[list].is_empty() {
            list = (list + 1) % NR_LISTS;
        }
        let order = cpu.order_of(list);
        let mut blocks = [0_u32; MOST_HELD as usize];
        let most = (MOST_HELD >> order.get()).max(1).min(left.div_ceil(order.size()));
        let mut taken = 0;
        while taken < most as usize
            && let Some(index) = cpu.lists[list].pop_tail(ctx.links())
        {
            blocks[taken] = index;
            taken += 1;
        }
        let gone = taken as u32 * order.size();
        cpu.count -= gone;
        left = left.saturating_sub(gone);
        given += u64::from(gone);
        ctx.free_blocks(&blocks[..taken], order);
    }
    given
}

impl<M: Merge> PcpPolicy<BuddyLists<M>> for Linked63 {
    const PASSES_LARGE: bool = true;
    const BY_WATERMARK: bool = true;
    type Cpu = Linked63Cpu;
    type Outside<P: Platform> = ();
    type Window<'m, P: Platform + 'm> = ();
    type Passage<'m, P: Platform + 'm> = ();

    fn new_cpu() -> Linked63Cpu {
        Linked63Cpu {
            lists: [FreeList::EMPTY; NR_LISTS],
            count: 0,
            batch: 1,
            high: 4,
            free_factor: 0,
            pageblock_order: Order::HUGE,
        }
    }

    fn new_outside<P: Platform>() {}

    fn shut<P: Platform>((): &()) {}

    fn tune_cpu<P: Platform>(cpu: &mut Linked63Cpu, (): &(), tuning: Tuning) {
        cpu.batch = batch_of(tuning, MOST);
        let high = linux_high(tuning.low, tuning.cpus_of_node, cpu.batch);
        cpu.high = tuning.pcp_high.unwrap_or(high).max(cpu.batch);
        (cpu.free_factor, cpu.pageblock_order) = (0, tuning.pageblock_order);
    }

    fn batch(tuning: Tuning) -> u32 {
        batch_of(tuning, MOST)
    }

    fn limits(cpu: &Linked63Cpu) -> (u32, u32) {
        (cpu.batch, cpu.high)
    }

    #[inline(always)]
    fn pop<P: Platform>(
        cpu: &mut Linked63Cpu,
        (): &(),
        table: &ZoneTables<'_, P>,
        migrate: MigrateType,
    ) -> Option<u32> {
        if !migrate.is_requestable() {
            return None;
        }
        cpu.free_factor >>= 1;
        cpu.take(table, migrate.index(), Order::ZERO)
    }

    #[inline(always)]
    fn push<P: Platform>(
        cpu: &mut Linked63Cpu,
        (): &(),
        table: &ZoneTables<'_, P>,
        migrate: MigrateType,
        index: u32,
    ) -> bool {
        cpu.put(link_words(table), migrate.index(), Order::ZERO, index);
        cpu.count >= cpu.high
    }

    fn refill<P: Platform, T: Trace>(
        ctx: &Context<'_, P, M>,
        cpu: &mut Linked63Cpu,
        (): &(),
        migrate: MigrateType,
        headroom: u64,
    ) -> bool {
        let list = (migrate.index(), Order::ZERO);
        fill::<P, M, T>(ctx, cpu, list, migrate, headroom) > 0
    }

    fn spill<P: Platform>(
        ctx: &Context<'_, P, M>,
        cpu: &mut Linked63Cpu,
        (): &(),
        migrate: MigrateType,
    ) -> u64 {
        let frames = cpu.surplus(Order::ZERO);
        shed(ctx, cpu, migrate.index(), frames)
    }

    fn take_large<P: Platform, T: Trace>(
        ctx: &Context<'_, P, M>,
        cpu: &mut Linked63Cpu,
        (): &(),
        (order, migrate, _): (Order, MigrateType, u64),
    ) -> Option<(u32, u64)> {
        let Some(list) = cpu.list_of(order, migrate) else {
            let flags = AllocFlags::NORMAL;
            let view = ctx.view;
            let index = BuddyLists::<M>::take_block::<P, T>(view, order, migrate, flags)?;
            or_undo(
                || {
                    T::emit(Point::AllocZoneLocked, || Event::AllocZoneLocked {
                        pfn: ctx.table.pfn(index),
                        order,
                        migrate,
                        percpu_refill: false,
                    });
                },
                || _ = BuddyLists::<M>::free_block(view, index, order, || ()),
            );
            // Counted as taken past the cache.
            return Some((index, 0));
        };
        cpu.free_factor >>= 1;
        if let Some(index) = cpu.take(ctx.table, list, order) {
            return Some((index, 0));
        }
        // The caller has looked at the watermark for one block; the lists keep their own count.
        let came = fill::<P, M, T>(ctx, cpu, (list, order), migrate, u64::MAX);
        let index = cpu.take(ctx.table, list, order)?;
        Some((index, came))
    }

    fn put_large<P: Platform>(
        ctx: &Context<'_, P, M>,
        cpu: &mut Linked63Cpu,
        (): &(),
        order: Order,
        migrate: MigrateType,
        index: u32,
    ) -> u64 {
        let Some(list) = cpu.list_of(order, migrate) else {
            ctx.free_blocks(&[index], order);
            return order.frames();
        };
        cpu.put(ctx.links(), list, order, index);
        let frames = cpu.surplus(order);
        shed(ctx, cpu, list, frames)
    }

    fn drain<P: Platform>(
        ctx: &Context<'_, P, M>,
        cpu: &mut Linked63Cpu,
        (): &(),
        _: Drainer,
    ) -> u64 {
        let all = cpu.count;
        shed(ctx, cpu, 0, all)
    }

    fn cached<P: Platform>(cpu: &Linked63Cpu, (): &()) -> u64 {
        u64::from(cpu.count)
    }

    fn visit<P: Platform>(
        cpu: &Linked63Cpu,
        (): &(),
        table: &ZoneTables<'_, P>,
        visit: &mut dyn FnMut(u32, Order),
    ) {
        for (at, list) in cpu.lists.iter().enumerate() {
            let order = cpu.order_of(at);
            list.iter(link_words(table)).for_each(|index| visit(index, order));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pcp::linked::linux_batch;

    #[test]
    fn batch_and_high_follow_the_rules_of_6_3() {
        assert_eq!(linux_batch(64 << 18, MOST), 63, "64 GiB");
        assert_eq!(linux_batch(1 << 18, MOST), 63, "1 GiB");
        assert_eq!(linux_batch(16 << 10, MOST), 3, "64 MiB");
        assert_eq!(linux_batch(512, MOST), 1, "2 MiB");
        assert_eq!(linux_high(112_000, 112, 63), 1000);
        assert_eq!(linux_high(112, 112, 63), 252, "four batches");
    }

    #[test]
    fn the_free_factor_doubles_what_goes_back() {
        let mut cpu = <Linked63 as PcpPolicy<BuddyLists<crate::policy::merge::Always>>>::new_cpu();
        (cpu.batch, cpu.high, cpu.count) = (63, 1000, 999);
        assert_eq!(cpu.surplus(Order::ZERO), 0);
        cpu.count = 1000;
        let gone: [u32; 6] = core::array::from_fn(|_| cpu.surplus(Order::ZERO));
        assert_eq!(gone, [63, 126, 252, 504, 937, 937]);
        cpu.count = 40;
        let three = Order::new(3).unwrap_or_default();
        assert_eq!(cpu.surplus(three), 40, "all of it while others are freed");
        assert_eq!(cpu.surplus(Order::HUGE), 0);
        cpu.free_factor = 0;
        assert_eq!(cpu.surplus(three), 0);
    }
}

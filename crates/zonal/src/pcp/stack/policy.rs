//! Stacks as a preset's per-CPU pages, over a zone with a map.
//!
//! - Source: zonal's own; the edge and the harvest of whole lines stand in the ADR of the map.
//! - Mechanism: what is kept is a [`CpuStack`]. For larger blocks a CPU has a current pageblock, which
//!   is still in the map; they go into the map when they are freed, but for the last small one of the
//!   current pageblock, which would make that whole and the next request split it again.
//! - State: guarded by the CPU's slot. What is on a stack, gathered or kept has the state cached.
//! - Counting: the zone's word of free frames follows the map. At once near the marks;
//!   elsewhere what a CPU took is counted `FOLD` frames late at most, and what it freed up to
//!   `MOST_LATE`, all CPUs together a 64th of the zone.
//! - Conflicts: needs a zone with a [map](crate::zone::free_map::Mapped).

use super::{CpuStack, Home, StackSize};
use crate::boot::tuning::Tuning;
use crate::frame::{ALLOCATED, CACHED, FrameState, PageblockWord};
use crate::platform::Platform;
use crate::policy::pcp::{Bulk, PcpPolicy, Stop, ZoneContext};
use crate::trace::{Event, Point, Trace};
use crate::types::migrate_type::MigrateType;
use crate::types::units::{Order, Pfn};
use crate::zone::free_map::{
    AlreadyFree, Current, Frame, FreeMap, MapShape, MapView, Mapped, Pageblock, Start, WordIndex,
};
use crate::zone::tables::ZoneTables;
use crate::zone::{AllocFlags, FreeMemory};
use core::cell::Cell;

/// Per-CPU pages as stacks, where a CPU's share of the zone leaves at least `WORTH` frames for each.
/// Presets have 16; tests of small memories have fewer.
#[derive(Clone, Copy, Debug)]
pub struct Stacks<const WORTH: u32>;

impl<const WORTH: u32> crate::policy::sound::sealed::Own for Stacks<WORTH> {}

type Context<'a, P> = ZoneContext<'a, P, Mapped>;

/// Frames that a CPU took and the zone has not counted, at most.
const FOLD: i64 = 64;
/// Frames that a CPU freed and the zone has not counted: two huge pages, so that one that goes and comes
/// is not counted at all; and the part of the zone that this may be for all CPUs.
const MOST_LATE: i64 = 1024;
const ALL_LATE: u64 = 64;
/// CPUs that begin to look in one region, and the most regions of a zone.
const REGION_CPUS: u32 = 14;
const MOST_REGIONS: u32 = 4;
/// The largest order of the block that a CPU keeps.
const KEPT: u8 = 3;

/// A block of orders 1 to `KEPT` of the CPU's current pageblock, the last that was freed.
#[derive(Clone, Copy, Debug)]
struct Kept {
    index: u32,
    order: Order,
    migrate: MigrateType,
}

/// One CPU's stacks of one zone.
#[derive(Debug)]
pub struct StackCpu {
    stack: CpuStack,
    /// The table's index of the map's frame 0.
    first: u32,
    /// A frame on its way into the map.
    passing: Option<u32>,
    kept: Option<Kept>,
    /// Frames that this CPU freed into the map, less those that it took, which the zone has not
    /// counted yet.
    uncounted: i64,
    size: StackSize,
    cpus: u32,
    /// Frames that it may have freed and not counted.
    late: i64,
    /// Where it begins to look for whole pageblocks.
    whole: Pageblock,
    /// Whether the stack knows the zone's map.
    placed: bool,
}

impl StackCpu {
    /// Has the stack know its zone, which a cache that was just tuned does not.
    #[inline(always)]
    fn place<P: Platform>(&mut self, ctx: &Context<'_, P>) {
        if !self.placed {
            self.place_in(ctx.view, ctx.cpu as u32);
        }
    }

    #[cold]
    #[inline(never)]
    fn place_in<P: Platform>(&mut self, view: MapView<'_, P>, cpu: u32) {
        let (first, shape) = view.extent();
        let part = |of: u32, at: u32| {
            Pageblock((u64::from(shape.blocks()) * u64::from(at) / u64::from(of)) as u32)
        };
        let regions = (self.cpus / REGION_CPUS).clamp(1, MOST_REGIONS);
        let block = part(regions, cpu / REGION_CPUS % regions);
        let size = self.size.with_currents(shape, self.cpus);
        self.stack.tune(size, Start { block, spread: cpu }, shape);
        // Another place for each, so that two do not want the lowest of one word.
        self.whole = part(self.cpus.max(1), cpu % self.cpus.max(1));
        (self.first, self.placed) = (first, true);
    }

    /// Counts frames freed into the map, or taken: at once if it is much, or if requests may be about to
    /// be refused.
    #[inline]
    fn count<P: Platform>(&mut self, view: MapView<'_, P>, change: i64) {
        self.uncounted += change;
        let margin = view.zone.boost().saturating_add(FOLD as u64 * u64::from(self.cpus));
        let near = view.zone.free() < view.zone.kept_back().saturating_add(margin);
        if near || !(-FOLD..self.late).contains(&self.uncounted) {
            self.fold(view);
        }
    }

    fn fold<P: Platform>(&mut self, view: MapView<'_, P>) {
        let change = core::mem::take(&mut self.uncounted);
        if change != 0 {
            view.zone.count_free(change);
        }
    }

    /// A block that is no pageblock; or a pageblock, of other memory than whole ones of its type.
    #[inline(never)]
    fn take_further<P: Platform, T: Trace>(
        &mut self,
        view: MapView<'_, P>,
        order: Order,
        migrate: MigrateType,
    ) -> Option<(u32, u64)> {
        let fits = |kept: &mut Kept| kept.order == order && kept.migrate == migrate;
        if let Some(kept) = self.kept.take_if(fits) {
            view.table.set_state(kept.index, FrameState::allocated(order));
            return Some((kept.index, 0));
        }
        let (start, current) = self.stack.current_for(migrate, order);
        let frame = view.take::<T>(order, migrate, AllocFlags::NORMAL, start, current)?;
        let index = view.index(frame);
        view.table.set_state(index, FrameState::allocated(order));
        self.count(view, -(order.frames() as i64));
        view.reconcile_special(frame, order);
        Some((index, order.frames()))
    }

    /// Frees a block that is no pageblock; how many frames went into the map.
    #[inline(never)]
    fn put_further<P: Platform>(
        &mut self,
        view: MapView<'_, P>,
        order: Order,
        migrate: MigrateType,
        index: u32,
    ) -> u64 {
        let (frame, shape) = (view.frame(index), view.extent().1);
        let mut gone = (index, order);
        if order.get() <= KEPT && self.stack.is_current(migrate, frame, shape) {
            let Some(before) = self.kept.replace(Kept { index, order, migrate }) else { return 0 };
            gone = (before.index, before.order);
        }
        self.put_block(view, gone.0, gone.1);
        gone.1.frames()
    }

    /// Puts a block into the map.
    fn put_block<P: Platform>(&mut self, view: MapView<'_, P>, index: u32, order: Order) {
        view.table.set_state(index, FrameState::INNER);
        if view.put_block(view.frame(index), order) {
            self.count(view, order.frames() as i64);
        }
    }
}

/// Tells of the frames of a word that a refill brought, and marks them.
#[inline(always)]
fn came<P: Platform, T: Trace>(
    view: MapView<'_, P>,
    migrate: MigrateType,
    word: WordIndex,
    bits: u64,
) {
    let first = view.index(word.first_frame());
    view.table.set_states(first, bits, CACHED);
    if T::is_on(Point::AllocZoneLocked) {
        for at in (0..u64::BITS).filter(|at| bits >> at & 1 == 1) {
            T::emit(Point::AllocZoneLocked, || Event::AllocZoneLocked {
                pfn: view.table.pfn(first + at),
                order: Order::ZERO,
                migrate,
                percpu_refill: true,
            });
        }
    }
}

/// The map as the home of frames with states.
struct MapHome<'a, P: Platform> {
    view: MapView<'a, P>,
    map: FreeMap<'a, P>,
    /// Frames that were free there already: none, but for damage.
    refused: Cell<u32>,
}

impl<'a, P: Platform> MapHome<'a, P> {
    #[inline]
    fn new(view: MapView<'a, P>) -> Self {
        Self { view, map: view.map(), refused: Cell::new(0) }
    }
}

impl<P: Platform> MapHome<'_, P> {
    /// How many frames were freed of those given.
    #[inline]
    fn freed(&self, given: Result<u32, AlreadyFree>) -> i64 {
        // `put` says of none that it was free already: it counts them.
        i64::from(given.unwrap_or(0)) - i64::from(self.refused.get())
    }
}

impl<P: Platform> Home for MapHome<'_, P> {
    #[inline(always)]
    fn put(&self, word: WordIndex, mask: u64) -> Result<(), AlreadyFree> {
        let freed = self.view.put_cached(&self.map, word, mask);
        if freed != mask {
            let refused = (mask & !freed).count_ones();
            self.refused.set(self.refused.get() + refused);
        }
        Ok(())
    }

    fn release(&self, current: &mut Current) {
        self.map.release(current);
    }
}

impl<const WORTH: u32> PcpPolicy<Mapped> for Stacks<WORTH> {
    const PASSES_LARGE: bool = true;
    type Cpu = StackCpu;

    fn new_cpu() -> StackCpu {
        StackCpu {
            stack: CpuStack::new(),
            first: 0,
            passing: None,
            kept: None,
            uncounted: 0,
            size: StackSize { high: 0, currents: 0 },
            cpus: 1,
            late: FOLD,
            whole: Pageblock(0),
            placed: false,
        }
    }

    fn tune_cpu(cpu: &mut StackCpu, tuning: Tuning) {
        cpu.size = StackSize::for_share_worth(tuning.managed, tuning.cpus, WORTH);
        cpu.cpus = tuning.cpus;
        let late = tuning.managed / ALL_LATE / u64::from(tuning.cpus.max(1));
        cpu.late = (late.min(MOST_LATE as u64) as i64).max(FOLD);
        // No edge: what is freed before the next refill goes into the map.
        cpu.stack.tune(StackSize::default(), Start::default(), MapShape::LEAST);
        cpu.placed = false;
    }

    fn limits(cpu: &StackCpu) -> (u32, u32) {
        (cpu.size.high, cpu.size.high)
    }

    #[inline(always)]
    fn pop<P: Platform>(
        cpu: &mut StackCpu,
        table: &ZoneTables<'_, P>,
        migrate: MigrateType,
    ) -> Option<u32> {
        let index = cpu.first + cpu.stack.pop(migrate)?.0;
        table.set_state(index, ALLOCATED);
        Some(index)
    }

    #[inline(always)]
    fn push<P: Platform>(
        cpu: &mut StackCpu,
        _: &ZoneTables<'_, P>,
        migrate: MigrateType,
        index: u32,
    ) -> bool {
        // Modulo 2^32: the zone's map may begin behind a stack that does not know it yet.
        let kept = cpu.stack.keep(migrate, Frame(index.wrapping_sub(cpu.first)));
        if !kept {
            cpu.passing = Some(index);
        }
        !kept
    }

    #[inline]
    fn pop_bulk<P: Platform>(
        cpu: &mut StackCpu,
        table: &ZoneTables<'_, P>,
        migrate: MigrateType,
        out: &mut [Pfn],
    ) -> usize {
        let mut done = 0;
        while let Some(place) = out.get_mut(done) {
            let Some(frame) = cpu.stack.pop(migrate) else { break };
            let index = cpu.first + frame.0;
            table.set_state(index, ALLOCATED);
            *place = table.pfn(index);
            done += 1;
        }
        done
    }

    #[inline]
    fn push_bulk<P: Platform>(
        cpu: &mut StackCpu,
        table: &ZoneTables<'_, P>,
        migrate: MigrateType,
        word: Option<PageblockWord>,
        frames: &[Pfn],
    ) -> Bulk {
        // Of a pageblock whose frames stay: an edge lies between pageblocks.
        let mut inside = None;
        for (done, &pfn) in frames.iter().enumerate() {
            let offset = table.offset(pfn);
            let known = inside.is_some_and(|last| table.same_pageblock(last, offset));
            if !known && table.pageblock_at(offset) != word
                || !Mapped::release(table, offset, ALLOCATED, CACHED)
            {
                return Bulk { done, stop: Stop::Frame };
            }
            // No truncation: the state was found, so the offset is an index.
            let frame = Frame((offset as u32).wrapping_sub(cpu.first));
            if known && cpu.stack.keep_inside(migrate, frame) {
                continue;
            }
            inside = cpu.stack.is_inside(migrate, frame).then_some(offset);
            if Self::push(cpu, table, migrate, offset as u32) {
                return Bulk { done: done + 1, stop: Stop::Edge };
            }
        }
        Bulk { done: frames.len(), stop: Stop::Done }
    }

    fn refill<P: Platform, T: Trace>(
        ctx: &Context<'_, P>,
        cpu: &mut StackCpu,
        migrate: MigrateType,
        headroom: u64,
    ) -> bool {
        cpu.place(ctx);
        let view = ctx.view;
        let most = headroom.min(u64::from(u32::MAX)) as u32;
        let mark = |word, bits| came::<P, T>(view, migrate, word, bits);
        let came = cpu.stack.refill(&view.map(), migrate, most, mark);
        if let Some(fallback) = came.fallback {
            view.fell_back::<T>(fallback, Order::ZERO, migrate);
        }
        if came.lent {
            let mut last = None;
            for &frame in cpu.stack.on_stack(migrate) {
                let block = Some(frame.pageblock(view.extent().1));
                if block != last {
                    view.reconcile_special(frame, Order::ZERO);
                    last = block;
                }
            }
        }
        cpu.count(view, -i64::from(came.frames));
        came.frames > 0
    }

    fn spill<P: Platform>(ctx: &Context<'_, P>, cpu: &mut StackCpu, migrate: MigrateType) {
        cpu.place(ctx);
        let (view, Some(index)) = (ctx.view, cpu.passing.take()) else { return };
        let home = MapHome::new(view);
        let given = cpu.stack.free_further(&home, migrate, view.frame(index));
        cpu.count(view, home.freed(given));
    }

    #[inline]
    fn take_large<P: Platform, T: Trace>(
        ctx: &Context<'_, P>,
        cpu: &mut StackCpu,
        order: Order,
        migrate: MigrateType,
    ) -> Option<(u32, u64)> {
        cpu.place(ctx);
        let view = ctx.view;
        if order == view.extent().1.order() {
            let near = view.open_near(migrate, cpu.whole);
            if let Some(block) = near.or_else(|| view.open_from(migrate, cpu.whole)) {
                let index = cpu.first + block.first_frame(view.extent().1).0;
                view.table.set_state(index, FrameState::allocated(order));
                cpu.whole = block;
                cpu.count(view, -(order.frames() as i64));
                return Some((index, order.frames()));
            }
        }
        cpu.take_further::<P, T>(view, order, migrate)
    }

    #[inline]
    fn put_large<P: Platform>(
        ctx: &Context<'_, P>,
        cpu: &mut StackCpu,
        order: Order,
        migrate: MigrateType,
        index: u32,
    ) -> u64 {
        cpu.place(ctx);
        let view = ctx.view;
        if order != view.extent().1.order() {
            return cpu.put_further(view, order, migrate, index);
        }
        let block = view.frame(index).pageblock(view.extent().1);
        view.table.set_state(index, FrameState::INNER);
        if view.put_pageblock(block) {
            cpu.whole = if block.is_beside(cpu.whole) { cpu.whole.min(block) } else { cpu.whole };
            cpu.count(view, order.frames() as i64);
        }
        order.frames()
    }

    fn drain<P: Platform>(ctx: &Context<'_, P>, cpu: &mut StackCpu) -> u64 {
        let home = MapHome::new(ctx.view);
        let given = cpu.stack.drain(&home);
        let freed = home.freed(given);
        cpu.uncounted += freed;
        let kept = cpu.kept.take();
        if let Some(kept) = kept {
            cpu.put_block(ctx.view, kept.index, kept.order);
        }
        cpu.fold(ctx.view);
        freed as u64 + kept.map_or(0, |kept| kept.order.frames())
    }

    fn cached(cpu: &StackCpu) -> u64 {
        let kept = cpu.kept.map_or(0, |kept| kept.order.frames());
        u64::from(cpu.stack.held()) + u64::from(cpu.passing.is_some()) + kept
    }

    fn visit<P: Platform>(
        cpu: &StackCpu,
        _: &ZoneTables<'_, P>,
        visit: &mut dyn FnMut(u32, Order),
    ) {
        cpu.stack.visit(|frame| visit(cpu.first + frame.0, Order::ZERO));
        if let Some(index) = cpu.passing {
            visit(index, Order::ZERO);
        }
        if let Some(kept) = cpu.kept {
            visit(kept.index, kept.order);
        }
    }
}

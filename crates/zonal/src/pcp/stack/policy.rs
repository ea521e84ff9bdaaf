//! Stacks as a preset's per-CPU pages, over a zone with a map.
//!
//! - Source: zonal's own; the edge and the harvest of whole lines stand in the ADR of the map.
//! - Mechanism: what is kept is a [`CpuStack`]; larger blocks pass through the slot and do not stay:
//!   for them a CPU keeps a current pageblock, which is still in the map.
//! - State: guarded by the CPU's slot. Frames on a stack or gathered have the state cached.
//! - Counting: the zone's word of free frames follows the map by `FOLD` frames a CPU at most, and is
//!   never above what is free near the marks: what this CPU took is counted at once there.
//! - Conflicts: needs a zone with a [map](crate::zone::free_map::Mapped).

use super::{CpuStack, Home, StackSize};
use crate::boot::tuning::Tuning;
use crate::frame::{ALLOCATED, CACHED, FrameState, PageblockWord};
use crate::platform::Platform;
use crate::policy::pcp::{Bulk, PcpPolicy, Stop, ZoneContext};
use crate::trace::{Event, Point, Trace};
use crate::types::migrate_type::MigrateType;
use crate::types::units::{Order, Pfn};
use crate::zone::AllocFlags;
use crate::zone::free_map::{
    AlreadyFree, Current, Frame, MapShape, MapView, Mapped, Pageblock, Start, WordIndex,
};
use crate::zone::tables::ZoneTables;
use core::cell::Cell;

/// Per-CPU pages as stacks, where a CPU's share of the zone leaves at least `WORTH` frames for each.
/// Presets have 16; tests of small memories have fewer.
#[derive(Clone, Copy, Debug)]
pub struct Stacks<const WORTH: u32>;

impl<const WORTH: u32> crate::policy::sound::sealed::Own for Stacks<WORTH> {}

type Context<'a, P, const WORTH: u32> = ZoneContext<'a, P, Mapped, Stacks<WORTH>>;

/// Frames by which a CPU's part of the zone's count may be behind.
const FOLD: i64 = 64;
/// CPUs that begin to look in one region, and the most regions of a zone.
const REGION_CPUS: u32 = 14;
const MOST_REGIONS: u32 = 4;

/// One CPU's stacks of one zone.
#[derive(Debug)]
pub struct StackCpu {
    stack: CpuStack,
    /// The table's index of the map's frame 0.
    first: u32,
    /// A block on its way: out to who asked for it, or into the map.
    passing: Option<(u32, Order)>,
    /// Frames that this CPU freed into the map, less those that it took, which the zone has not
    /// counted yet.
    uncounted: i64,
    size: StackSize,
    cpus: u32,
    /// Whether the stack knows the zone's map.
    placed: bool,
}

impl StackCpu {
    /// Has the stack know its zone, which a cache that was just tuned does not.
    #[inline]
    fn place<P: Platform, const WORTH: u32>(&mut self, ctx: &Context<'_, P, WORTH>) {
        if self.placed {
            return;
        }
        let ((first, shape), cpu) = (ctx.view.extent(), ctx.depot.cpu as u32);
        let regions = (self.cpus / REGION_CPUS).clamp(1, MOST_REGIONS);
        let region = cpu / REGION_CPUS % regions;
        let block =
            Pageblock((u64::from(shape.blocks()) * u64::from(region) / u64::from(regions)) as u32);
        let size = self.size.with_currents(shape, self.cpus);
        self.stack.tune(size, Start { block, spread: cpu }, shape);
        (self.first, self.placed) = (first, true);
    }

    /// Counts frames freed into the map, or taken. At once if there are many, or if requests may be
    /// about to be refused.
    #[inline]
    fn count<P: Platform>(&mut self, view: MapView<'_, P>, change: i64) {
        self.uncounted += change;
        let near = || {
            let margin = FOLD as u64 * u64::from(self.cpus) + view.zone.boost();
            view.zone.free() < view.zone.kept_back().saturating_add(margin)
        };
        if self.uncounted.abs() >= FOLD || (self.uncounted < 0 && near()) {
            self.fold(view);
        }
    }

    fn fold<P: Platform>(&mut self, view: MapView<'_, P>) {
        let change = core::mem::take(&mut self.uncounted);
        if change != 0 {
            view.zone.count_free(change);
        }
    }

    /// Marks what a refill brought, and tells of it.
    fn came<P: Platform, T: Trace>(&self, view: MapView<'_, P>, migrate: MigrateType, lent: bool) {
        let mut last = None;
        for &frame in self.stack.on_stack(migrate) {
            let index = self.first + frame.0;
            view.table.set_state(index, CACHED);
            T::emit(Point::AllocZoneLocked, || Event::AllocZoneLocked {
                pfn: view.table.pfn(index),
                order: Order::ZERO,
                migrate,
                percpu_refill: true,
            });
            let block = lent.then(|| frame.pageblock(view.extent().1));
            if block.is_some() && block != last {
                view.reconcile_special(frame, Order::ZERO);
                last = block;
            }
        }
    }
}

/// The map as the home of frames with states.
struct MapHome<'a, P: Platform> {
    view: MapView<'a, P>,
    freed: Cell<i64>,
}

impl<'a, P: Platform> MapHome<'a, P> {
    fn new(view: MapView<'a, P>) -> Self {
        Self { view, freed: Cell::new(0) }
    }
}

impl<P: Platform> Home for MapHome<'_, P> {
    fn put(&self, word: WordIndex, mask: u64) -> Result<(), AlreadyFree> {
        let freed = self.view.put_cached(word, mask);
        self.freed.set(self.freed.get() + i64::from(freed.count_ones()));
        Ok(())
    }

    fn release(&self, current: &mut Current) {
        self.view.map().release(current);
    }
}

impl<const WORTH: u32> PcpPolicy<Mapped> for Stacks<WORTH> {
    const CLUSTER: usize = 0;
    const KEEPS_LARGE: bool = false;
    type Cpu = StackCpu;
    type Zone<P: Platform> = ();

    fn new_cpu() -> StackCpu {
        StackCpu {
            stack: CpuStack::new(),
            first: 0,
            passing: None,
            uncounted: 0,
            size: StackSize { high: 0, currents: 0 },
            cpus: 1,
            placed: false,
        }
    }

    fn new_zone<P: Platform>() {}

    fn tune_cpu(cpu: &mut StackCpu, tuning: Tuning) {
        cpu.size = StackSize::for_share_worth(tuning.managed, tuning.cpus, WORTH);
        cpu.cpus = tuning.cpus;
        // No edge: what is freed before the next refill goes into the map.
        cpu.stack.tune(StackSize::default(), Start::default(), MapShape::LEAST);
        cpu.placed = false;
    }

    #[inline(always)]
    fn caches(_: Order) -> bool {
        true
    }

    fn limits(cpu: &StackCpu) -> (u32, u32) {
        (cpu.size.high, cpu.size.high)
    }

    #[inline(always)]
    fn pop<P: Platform>(
        cpu: &mut StackCpu,
        table: &ZoneTables<'_, P>,
        order: Order,
        migrate: MigrateType,
    ) -> Option<u32> {
        if order != Order::ZERO {
            let (index, order) = cpu.passing.take_if(|(_, passing)| *passing == order)?;
            table.set_state(index, FrameState::allocated(order));
            return Some(index);
        }
        while let Some(frame) = cpu.stack.pop(migrate) {
            let index = cpu.first + frame.0;
            if table.replace_state(index, CACHED, ALLOCATED) {
                return Some(index);
            }
        }
        None
    }

    #[inline(always)]
    fn push<P: Platform>(
        cpu: &mut StackCpu,
        _: &ZoneTables<'_, P>,
        order: Order,
        migrate: MigrateType,
        index: u32,
    ) -> bool {
        if order == Order::ZERO && cpu.stack.keep(migrate, Frame(index - cpu.first)) {
            return false;
        }
        cpu.passing = Some((index, order));
        true
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
            *place = table.pfn(index);
            // A copy of a frame that was freed twice at one instant is dropped.
            done += usize::from(table.replace_state(index, CACHED, ALLOCATED));
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
                || !table.replace_state_at(offset, ALLOCATED, CACHED)
            {
                return Bulk { done, stop: Stop::Frame };
            }
            // No truncation: the state was found, so the offset is an index.
            let frame = Frame((offset as u32).wrapping_sub(cpu.first));
            if known && cpu.stack.keep_inside(migrate, frame) {
                continue;
            }
            inside = cpu.stack.is_inside(migrate, frame).then_some(offset);
            if Self::push(cpu, table, Order::ZERO, migrate, offset as u32) {
                return Bulk { done: done + 1, stop: Stop::Edge };
            }
        }
        Bulk { done: frames.len(), stop: Stop::Done }
    }

    fn refill<P: Platform, T: Trace>(
        ctx: &Context<'_, P, WORTH>,
        cpu: &mut StackCpu,
        order: Order,
        migrate: MigrateType,
        headroom: u64,
    ) -> bool {
        cpu.place(ctx);
        let view = ctx.view;
        if order == Order::ZERO {
            let most = headroom.min(u64::from(u32::MAX)) as u32;
            let came = cpu.stack.refill(&view.map(), migrate, most);
            if let Some(fallback) = came.fallback {
                view.fell_back::<T>(fallback, order, migrate);
            }
            cpu.came::<P, T>(view, migrate, came.lent);
            cpu.count(view, -i64::from(came.frames));
            return came.frames > 0;
        }
        let (start, current) = cpu.stack.current_for(migrate, order);
        let Some(frame) = view.take::<T>(order, migrate, AllocFlags::NORMAL, start, current) else {
            return false;
        };
        let index = view.index(frame);
        view.table.set_state(index, FrameState::cached(order));
        cpu.passing = Some((index, order));
        cpu.count(view, -(order.frames() as i64));
        view.reconcile_special(frame, order);
        true
    }

    fn spill<P: Platform>(
        ctx: &Context<'_, P, WORTH>,
        cpu: &mut StackCpu,
        _: Order,
        migrate: MigrateType,
    ) {
        cpu.place(ctx);
        let (view, Some((index, order))) = (ctx.view, cpu.passing.take()) else { return };
        let frame = view.frame(index);
        if order == Order::ZERO {
            let home = MapHome::new(view);
            // What was refused is counted there.
            let _freed = cpu.stack.free(&home, migrate, frame);
            cpu.count(view, home.freed.get());
            return;
        }
        view.table.set_state(index, FrameState::INNER);
        if view.put_block(frame, order) {
            cpu.count(view, order.frames() as i64);
        }
    }

    fn drain<P: Platform>(ctx: &Context<'_, P, WORTH>, cpu: &mut StackCpu) -> u64 {
        let home = MapHome::new(ctx.view);
        let _freed = cpu.stack.drain(&home);
        cpu.uncounted += home.freed.get();
        cpu.fold(ctx.view);
        home.freed.get() as u64
    }

    fn coalesce<P: Platform>(_: &Context<'_, P, WORTH>) -> u64 {
        0
    }

    fn cached(cpu: &StackCpu) -> u64 {
        u64::from(cpu.stack.held()) + cpu.passing.map_or(0, |(_, order)| order.frames())
    }

    fn deferred<P: Platform>(_: &Context<'_, P, WORTH>) -> u64 {
        0
    }

    #[inline]
    fn shared<P: Platform>((): &()) -> u64 {
        0
    }

    fn visit<P: Platform>(
        cpu: &StackCpu,
        _: &ZoneTables<'_, P>,
        visit: &mut dyn FnMut(u32, Order),
    ) {
        cpu.stack.visit(|frame| visit(cpu.first + frame.0, Order::ZERO));
        if let Some((index, order)) = cpu.passing {
            visit(index, order);
        }
    }

    fn visit_deferred<P: Platform>(_: &Context<'_, P, WORTH>, _: &mut dyn FnMut(u32, Order)) {}
}

//! Stacks as a preset's per-CPU pages, over a zone with a map.
//!
//! - Source: zonal's own; the edge and the harvest of whole lines stand in the ADR of the map.
//! - Mechanism: what is kept is a [`CpuStack`]. For larger blocks a CPU has a current pageblock, which
//!   is still in the map; they go into the map when they are freed, but for small ones of that pageblock
//!   (`small.rs`) and for the last few (`holes.rs`).
//! - State: guarded by the CPU's slot, but for the stacks, which an owner reaches outside it. What is on
//!   a stack, gathered or kept has the state cached.
//! - Counting: the zone's word of free frames follows the map. At once near the marks;
//!   elsewhere what a CPU took is counted `FOLD` frames late at most, and what it freed up to
//!   `MOST_LATE`, all CPUs together a 64th of the zone.
//! - Conflicts: needs a zone with a [map](crate::zone::free_map::Mapped).

use super::cpu::{ALL_LATE, FOLD, MOST_LATE, StackCpu, regions};
use super::frames::{FrameStack, MAX_HIGH};
use super::holes::Holes;
use super::home::{MapHome, came, tell};
use super::lists::{self, Head, List};
use super::{CpuStack, Passage, StackOutside, StackSize, Window};
use crate::boot::tuning::Tuning;
use crate::frame::{ALLOCATED, ByExchange, CACHED, FrameState, PageblockWord, Release};
use crate::platform::stay::Stay;
use crate::platform::{Platform, StayOf};
use crate::policy::pcp::{
    Bulk, Drainer, Outside, Passed, PcpPolicy, Pushed, Stop, Taken, ZoneContext,
};
use crate::trace::Trace;
use crate::types::migrate_type::MigrateType;
use crate::types::request::Request;
use crate::types::units::{Order, Pfn};
use crate::zone::free_map::{MapShape, MapView, Mapped, Pageblock, Start};
use crate::zone::tables::ZoneTables;
use crate::zone::{FreeMemory, ZoneInstance};
use core::marker::PhantomData;

/// Per-CPU pages as stacks, where a CPU's share of the zone leaves at least `WORTH` frames for each.
/// Presets have 16; tests of small memories have fewer. Each holds `MOST` frames at most, a power of two. `R` is how single
/// frames are freed.
#[derive(Clone, Copy, Debug)]
pub struct Stacks<const WORTH: u32, const MOST: usize = MAX_HIGH, R = ByExchange>(PhantomData<R>);

impl<const WORTH: u32, const MOST: usize, R: Release> crate::policy::sound::sealed::Own
    for Stacks<WORTH, MOST, R>
{
}

type Context<'a, P> = ZoneContext<'a, P, Mapped>;

/// What frames of a list that follow each other take more of a stay than a single one.
const RUN_COST: usize = 4;

impl<const WORTH: u32, const MOST: usize, R: Release> PcpPolicy<Mapped> for Stacks<WORTH, MOST, R> {
    const PASSES_LARGE: bool = true;
    const OUTSIDE: bool = true;
    const SMALL: u8 = super::small::LARGEST;
    type Cpu = StackCpu;
    type Outside<P: Platform> = StackOutside<P, MOST>;
    type Window<'m, P: Platform + 'm> = Window<'m, P, MOST>;
    type Passage<'m, P: Platform + 'm> = Passage<'m, P>;

    fn new_cpu() -> StackCpu {
        StackCpu {
            stack: CpuStack::new(),
            passing: None,
            run: None,
            kept: None,
            holes: Holes::UNTUNED,
            uncounted: 0,
            size: StackSize { high: 0, small: 0, currents: 0 },
            cpus: 1,
            regions: 1,
            starts: [Start::new(Pageblock(0), 0); 2],
            late: FOLD,
            counted: 0,
            whole: Pageblock(0),
            home: Pageblock(0),
            whole_order: Order::ZERO,
            freed_order: Order::ZERO,
            placed: false,
        }
    }

    fn new_outside<P: Platform>() -> StackOutside<P, MOST> {
        StackOutside::new()
    }

    fn tune_cpu<P: Platform>(cpu: &mut StackCpu, out: &StackOutside<P, MOST>, tuning: Tuning) {
        cpu.size = StackSize::for_share_worth(tuning.managed, tuning.cpus, WORTH);
        cpu.cpus = tuning.cpus;
        cpu.regions = regions(tuning.cpus, tuning.regions);
        let late = tuning.managed / ALL_LATE / u64::from(tuning.cpus.max(1));
        cpu.late = (late.min(MOST_LATE as u64) as i64).max(FOLD);
        out.uncounted().set_high(0);
        // No edge: what is freed before the next refill goes into the map.
        cpu.stack.tune(out, StackSize::default(), Start::default(), (0, MapShape::LEAST));
        (cpu.placed, cpu.whole_order) = (false, Order::ZERO);
    }

    fn limits(cpu: &StackCpu) -> (u32, u32) {
        (cpu.size.high, cpu.size.high)
    }

    #[inline(always)]
    fn pop<P: Platform>(
        _: &mut StackCpu,
        out: &StackOutside<P, MOST>,
        table: &ZoneTables<'_, P>,
        migrate: MigrateType,
    ) -> Option<u32> {
        let index = out.stack(migrate)?.pop()?;
        table.set_state(index, ALLOCATED);
        Some(index)
    }

    #[inline(always)]
    fn pop_outside<P: Platform>(
        out: &StackOutside<P, MOST>,
        table: &ZoneTables<'_, P>,
        migrate: MigrateType,
    ) -> Option<u32> {
        let index = out.pop_owned(migrate)?;
        table.set_state(index, ALLOCATED);
        Some(index)
    }

    #[inline(always)]
    fn push_outside<P: Platform>(
        window: &Window<'_, P, MOST>,
        pfn: Pfn,
        told: impl FnOnce(),
    ) -> Pushed {
        window.push::<R>(pfn, told)
    }

    #[inline]
    fn shut<'m, P: Platform>(out: &'m StackOutside<P, MOST>) -> Window<'m, P, MOST> {
        Window::shut(out.gathered())
    }

    #[inline(always)]
    fn window_of_one<'m, P: Platform>(
        out: &'m StackOutside<P, MOST>,
        table: &ZoneTables<'m, P>,
        migrate: MigrateType,
        offset: usize,
    ) -> Option<Window<'m, P, MOST>> {
        // No truncation: of a pageblock of the table.
        let stack = out.stack_for(migrate, offset as u32, table.pageblock_order())?;
        Some(Window::of_one(stack, table))
    }

    #[inline(always)]
    fn widen<'m, P: Platform>(
        window: Window<'m, P, MOST>,
        table: &ZoneTables<'m, P>,
        index: u32,
    ) -> Option<Window<'m, P, MOST>> {
        window.widened(table, index)
    }

    fn take_back<P: Platform>(
        out: &StackOutside<P, MOST>,
        table: &ZoneTables<'_, P>,
        (index, order): (u32, Order),
    ) -> bool {
        let taken = out.take_back(index, order);
        if taken {
            table.set_state(index, FrameState::allocated(order));
        }
        taken
    }

    #[inline(always)]
    fn pop_small<P: Platform>(
        out: &StackOutside<P, MOST>,
        table: &ZoneTables<'_, P>,
        (order, migrate): (Order, MigrateType),
    ) -> Option<u32> {
        let index = out.small().stack(order, migrate)?.pop_owned_here()?;
        table.set_state(index, FrameState::allocated(order));
        Some(index)
    }

    #[inline(always)]
    fn push_small<P: Platform>(
        out: &StackOutside<P, MOST>,
        table: &ZoneTables<'_, P>,
        kind: (Order, MigrateType),
        offset: usize,
        told: impl FnOnce(),
    ) -> Pushed {
        out.push_small(table, kind, offset, told)
    }

    fn set_owned<P: Platform>(out: &StackOutside<P, MOST>, owned: bool) {
        out.set_owned(owned);
    }

    #[inline(always)]
    fn reopen<P: Platform>(out: &StackOutside<P, MOST>) -> bool {
        out.reopen()
    }

    fn passed_outside<P: Platform>(cpu: &StackCpu, out: &StackOutside<P, MOST>) -> Outside {
        let blocks = out.uncounted();
        // Snapshots: what came since is not there yet.
        let left = cpu.counted + u64::from(blocks.len());
        let frames = cpu.freed_order.frames();
        let put = blocks.freed() * frames;
        Outside { freed: out.freed() + put, shed: put, filled: put.saturating_sub(left * frames) }
    }

    fn make_way<P: Platform>(
        ctx: &Context<'_, P>,
        cpu: &mut StackCpu,
        out: &StackOutside<P, MOST>,
        order: Order,
    ) -> Option<u64> {
        if order != cpu.whole_order {
            return None;
        }
        // Of another section, or lost to another CPU.
        cpu.count_blocks(out.uncounted().clear());
        if cpu.uncounted > cpu.late {
            cpu.fold(ctx.view);
        }
        Some(cpu.margin())
    }

    fn passage<'m, P: Platform>(
        (zone, margin): (&'m ZoneInstance<P, Mapped>, u64),
        out: &'m StackOutside<P, MOST>,
        table: &ZoneTables<'m, P>,
        request: &Request,
        index: u32,
    ) -> Option<Passage<'m, P>> {
        Passage::new((zone, margin), out.uncounted(), table, request, index)
    }

    #[inline(always)]
    fn has_way<P: Platform>(passage: &Passage<'_, P>, request: &Request, index: u32) -> bool {
        passage.is_for(request, index)
    }

    #[inline(always)]
    fn take_outside<P: Platform>(passage: &Passage<'_, P>, request: &Request) -> Taken {
        passage.take(request)
    }

    #[inline(always)]
    fn put_outside<P: Platform>(
        passage: &Passage<'_, P>,
        pfn: Pfn,
        order: Order,
        told: impl FnOnce(),
    ) -> Passed {
        passage.put(pfn, order, told)
    }

    fn look_after<P: Platform>(view: MapView<'_, P>, index: u32, twice: bool) {
        view.look_after(view.frame(index).pageblock(view.extent().1), twice);
    }

    #[inline(always)]
    fn release<P: Platform>(
        table: &ZoneTables<'_, P>,
        offset: usize,
        from: FrameState,
        to: FrameState,
    ) -> bool {
        table.release_at::<R>(offset, from, to)
    }

    #[inline(always)]
    fn push<P: Platform>(
        cpu: &mut StackCpu,
        out: &StackOutside<P, MOST>,
        _: &ZoneTables<'_, P>,
        migrate: MigrateType,
        index: u32,
    ) -> bool {
        let kept = cpu.stack.keep_at(out, migrate, index);
        if !kept {
            cpu.passing = Some(index);
        }
        !kept
    }

    #[inline]
    fn pop_bulk<P: Platform>(
        _: &mut StackCpu,
        out: &StackOutside<P, MOST>,
        table: &ZoneTables<'_, P>,
        migrate: MigrateType,
        frames: &mut [Pfn],
    ) -> usize {
        out.stack(migrate).map_or(0, |stack| lists::pop(stack, table, frames))
    }

    #[inline]
    fn push_bulk<P: Platform>(
        cpu: &mut StackCpu,
        out: &StackOutside<P, MOST>,
        table: &ZoneTables<'_, P>,
        migrate: MigrateType,
        word: Option<PageblockWord>,
        frames: &[Pfn],
    ) -> Bulk {
        // Of a pageblock whose frames stay: an edge lies between pageblocks.
        let (mut inside, mut done, mut singles, mut spent) = (None, 0, 0, 0);
        while let Some(&pfn) = frames.get(done) {
            // Without a bound there is nothing to compare.
            if StayOf::<P>::LIST != usize::MAX && spent >= StayOf::<P>::LIST {
                return Bulk { done, stop: Stop::Piece };
            }
            spent += 1;
            if singles == 0 {
                match (List { cpu, out, table, migrate, word }).push(&frames[done..]) {
                    Head::Kept(count) => {
                        (done, spent) = (done + count, spent + RUN_COST);
                        continue;
                    }
                    Head::NoRoom(first) => {
                        cpu.run = Some(first);
                        return Bulk { done, stop: Stop::Edge };
                    }
                    Head::Single(count) => singles = count,
                }
            }
            singles -= 1;
            let offset = table.offset(pfn);
            let known = inside.is_some_and(|last| table.same_pageblock(last, offset));
            if !known && table.pageblock_at(offset) != word
                || !Mapped::release(table, offset, ALLOCATED, CACHED)
            {
                return Bulk { done, stop: Stop::Frame };
            }
            // No truncation: the state was found, so the offset is an index.
            let frame = cpu.stack.frame(offset as u32);
            done += 1;
            if known && cpu.stack.keep_inside(out, migrate, frame) {
                continue;
            }
            inside = out.is_inside(migrate, offset as u32).then_some(offset);
            if Self::push(cpu, out, table, migrate, offset as u32) {
                return Bulk { done, stop: Stop::Edge };
            }
        }
        Bulk { done: frames.len(), stop: Stop::Done }
    }

    fn refill<P: Platform, T: Trace>(
        ctx: &Context<'_, P>,
        cpu: &mut StackCpu,
        out: &StackOutside<P, MOST>,
        migrate: MigrateType,
        headroom: u64,
    ) -> bool {
        cpu.place(out, ctx);
        let view = ctx.view;
        // Of the last frames each CPU takes its share: others that look for one at this moment find theirs.
        let most = (headroom.min(u32::MAX.into()) as u32 / cpu.cpus.max(1)).max(1);
        let start = cpu.start_now(view, &ctx.stay);
        if start != cpu.stack.start() {
            cpu.stack.begin_at(out, start, view.extent().1);
        }
        let mark = |word, bits| came(view, word, bits);
        let map = view.map().staying(ctx.stay.next());
        let came = cpu.stack.refill(out, &map, migrate, most, mark);
        ctx.stay.note(&map.stay());
        if came.lent {
            let mut last = None;
            for index in out.stack(migrate).into_iter().flat_map(FrameStack::frames) {
                let frame = cpu.stack.frame(index);
                let pageblock = Some(frame.pageblock(view.extent().1));
                if pageblock != last {
                    view.reconcile_special(frame, Order::ZERO);
                    last = pageblock;
                }
            }
        }
        cpu.count(view, -i64::from(came.frames));
        if let Some(fallback) = came.fallback {
            view.fell_back::<T>(fallback, Order::ZERO, migrate);
        }
        if came.frames > 0
            && let Some(stack) = out.stack(migrate)
        {
            tell::<P, T, MOST>(view, (Order::ZERO, migrate), stack);
        }
        came.frames > 0
    }

    fn spill<P: Platform>(
        ctx: &Context<'_, P>,
        cpu: &mut StackCpu,
        out: &StackOutside<P, MOST>,
        migrate: MigrateType,
    ) -> u64 {
        cpu.place(out, ctx);
        let (view, home) = (ctx.view, MapHome::<_, R>::new(ctx.view));
        let given = match (cpu.passing.take(), cpu.run.take()) {
            (Some(index), _) => cpu.stack.free_further(out, &home, migrate, view.frame(index)),
            (None, Some(first)) => cpu.stack.make_room(out, &home, migrate, view.frame(first)),
            (None, None) => return 0,
        };
        cpu.count(view, home.freed(given));
        u64::from(given.unwrap_or(0))
    }

    #[inline(always)]
    fn take_large<P: Platform, T: Trace>(
        ctx: &Context<'_, P>,
        cpu: &mut StackCpu,
        out: &StackOutside<P, MOST>,
        (order, migrate, slack): (Order, MigrateType, u64),
    ) -> Option<(u32, u64)> {
        cpu.place(out, ctx);
        let view = ctx.view;
        if order == cpu.whole_order
            && let Some(block) = view.open_near(migrate, cpu.whole, cpu.home)
        {
            let index = view.index(block.first_frame(view.extent().1));
            view.table.set_state(index, FrameState::allocated(order));
            cpu.whole = block;
            cpu.count_taken(view, order, slack);
            cpu.tell_taken::<P, T>(view, index, order, migrate);
            return Some((index, order.frames()));
        }
        let (taken, piece) =
            cpu.take_further::<P, T, MOST>(out, (view, &ctx.stay), (order, migrate, slack));
        ctx.stay.note(&piece);
        taken
    }

    #[inline(always)]
    fn put_as(cpu: &StackCpu, order: Order) -> FrameState {
        if order == cpu.whole_order { FrameState::INNER } else { FrameState::cached(order) }
    }

    #[inline(always)]
    fn put_large<P: Platform>(
        ctx: &Context<'_, P>,
        cpu: &mut StackCpu,
        out: &StackOutside<P, MOST>,
        order: Order,
        migrate: MigrateType,
        index: u32,
    ) -> u64 {
        let view = ctx.view;
        if order != cpu.whole_order {
            cpu.place(out, ctx);
            return cpu.put_further(out, view, (order, migrate), index);
        }
        // A CPU that has its order is placed.
        let pageblock = view.frame(index).pageblock(view.extent().1);
        if view.put_pageblock(pageblock) {
            cpu.whole =
                if pageblock.is_beside(cpu.whole) { cpu.whole.min(pageblock) } else { cpu.whole };
            cpu.count(view, order.frames() as i64);
        }
        order.frames()
    }

    fn drain<P: Platform>(
        ctx: &Context<'_, P>,
        cpu: &mut StackCpu,
        out: &StackOutside<P, MOST>,
        by: Drainer,
    ) -> u64 {
        cpu.drain::<P, R, MOST>(ctx, out, by)
    }

    fn leave<P: Platform>(ctx: &Context<'_, P>, cpu: &mut StackCpu) -> u64 {
        cpu.leave(ctx)
    }

    fn cached<P: Platform>(cpu: &StackCpu, out: &StackOutside<P, MOST>) -> u64 {
        u64::from(cpu.stack.held(out)) + u64::from(cpu.passing.is_some()) + cpu.kept_frames::<P>()
    }

    fn visit<P: Platform>(
        cpu: &StackCpu,
        out: &StackOutside<P, MOST>,
        _: &ZoneTables<'_, P>,
        visit: &mut dyn FnMut(u32, Order),
    ) {
        cpu.stack.visit(out, |frame| visit(cpu.stack.index(frame), Order::ZERO));
        let passing = cpu.passing.map(|index| (index, Order::ZERO));
        let small = out.small().blocks();
        passing.into_iter().chain(small).for_each(|(index, order)| visit(index, order));
        cpu.visit_kept::<P>(visit);
    }
}

//! What a CPU's slot guards of its stacks: where it looks, what passes through, what is not counted yet.

use super::blocks::has_current;
use super::holes::Holes;
use super::last::Kept;
use super::passage::UNCOUNTED;
use super::{CpuStack, StackOutside, StackSize};
use crate::frame::FrameState;
use crate::platform::stay::Stay;
use crate::platform::{Platform, StayOf};
use crate::policy::pcp::ZoneContext;
use crate::trace::{Event, Point, Trace, or_undo};
use crate::types::migrate_type::MigrateType;
use crate::types::units::Order;
use crate::zone::AllocFlags;
use crate::zone::free_map::{Current, Frame, MapShape, MapView, Mapped, Pageblock, Start};
use core::num::NonZeroU32;

type Context<'a, P> = ZoneContext<'a, P, Mapped>;

/// Frames that a CPU took and the zone has not counted, at most.
pub(super) const FOLD: i64 = 64;
/// Frames that a CPU freed and the zone has not counted: two huge pages, so that one that goes and comes
/// is not counted at all; and the part of the zone that this may be for all CPUs.
pub(super) const MOST_LATE: i64 = 1024;
pub(super) const ALL_LATE: u64 = 64;
/// CPUs that begin to look in one region, and the most regions of a zone, where the configuration says nothing.
const REGION_CPUS: u32 = 14;
const MOST_REGIONS: u32 = 4;

/// CPUs look in their own parts while as many sixteenths of the zone are free; and again from one more on, or it would go to
/// and fro.
const APART: u64 = 12;

/// Regions of a zone that this number of CPUs have caches of.
pub(super) fn regions(cpus: u32, wanted: Option<NonZeroU32>) -> u32 {
    wanted.map_or((cpus / REGION_CPUS).clamp(1, MOST_REGIONS), NonZeroU32::get)
}

/// One CPU's stacks of one zone.
#[derive(Debug)]
pub struct StackCpu {
    pub(super) stack: CpuStack,
    /// A frame on its way into the map.
    pub(super) passing: Option<u32>,
    /// The first of frames that follow each other, for which there is to be room.
    pub(super) run: Option<u32>,
    /// The block that was freed last, where blocks do not stay on stacks.
    pub(super) kept: Option<Kept>,
    /// Those that were, where they do.
    pub(super) holes: Holes,
    /// Frames that this CPU freed into the map, less those that it took, which the zone has not
    /// counted yet.
    pub(super) uncounted: i64,
    pub(super) size: StackSize,
    pub(super) cpus: u32,
    /// Parts of the zone in which CPUs begin to look.
    pub(super) regions: u32,
    /// Where it begins to look: as all of its region do, and in a part of its own.
    pub(super) starts: [Start; 2],
    /// Frames that it may have freed and not counted; once it is placed, in the slot.
    pub(super) late: i64,
    /// Pageblocks that its owner freed past the slot and that have been counted since.
    pub(super) counted: u64,
    /// Where it begins to look for whole pageblocks.
    pub(super) whole: Pageblock,
    /// The first pageblock of the section whose untouched ones it takes before those of others.
    pub(super) home: Pageblock,
    /// The pageblock order; order 0 until it is placed.
    pub(super) whole_order: Order,
    /// The same, from the first time that it was placed: of what its owner freed past the slot before it was tuned anew.
    pub(super) freed_order: Order,
    /// Whether the stack knows the zone's map.
    pub(super) placed: bool,
}

impl StackCpu {
    /// Has the stack know its zone, which a cache that was just tuned does not.
    #[inline(always)]
    pub(super) fn place<P: Platform, const N: usize>(
        &mut self,
        out: &StackOutside<P, N>,
        ctx: &Context<'_, P>,
    ) {
        if !self.placed {
            self.place_in(out, ctx.view, ctx.cpu as u32);
        }
    }

    #[cold]
    #[inline(never)]
    pub(super) fn place_in<P: Platform, const N: usize>(
        &mut self,
        out: &StackOutside<P, N>,
        view: MapView<'_, P>,
        cpu: u32,
    ) {
        let (first, shape) = view.extent();
        let part = |of: u32, at: u32| {
            Pageblock((u64::from(shape.pageblocks()) * u64::from(at) / u64::from(of)) as u32)
        };
        let pageblock = part(self.regions, cpu / REGION_CPUS % self.regions);
        self.size.small = self.size.small.min(StayOf::<P>::BLOCKS);
        let size = self.size.with_currents(shape, self.cpus);
        if StayOf::<P>::BLOCKS > 0 {
            self.holes.tune();
        }
        let start = Start::new(pageblock, cpu as u16);
        self.starts = [start, self.part_of(cpu, shape).unwrap_or(start)];
        self.stack.tune(out, size, start, (first, shape));
        // Another place for each, so that two do not want the lowest of one word.
        self.whole = part(self.cpus.max(1), cpu % self.cpus.max(1));
        self.home = shape.section_for(cpu);
        // A half of what may be late, of which the slot knows nothing.
        let most = (self.late / 2) >> shape.order().get();
        let outside = most.min(UNCOUNTED as i64);
        self.late -= outside << shape.order().get();
        out.uncounted().set_high(outside as u32);
        (self.placed, self.whole_order, self.freed_order) = (true, shape.order(), shape.order());
    }

    /// The part of a zone that is one CPU's, of whole sections.
    fn part_of(&self, cpu: u32, shape: MapShape) -> Option<Start> {
        let cpus = self.cpus.max(1);
        let part = (shape.whole_sections() / cpus).min(u16::MAX.into());
        let pageblock = shape.section_for(part * (cpu % cpus));
        (cpus > 1 && part > 0).then(|| Start::new(pageblock, cpu as u16).with_part(part as u16))
    }

    /// Where it begins to look now: in its own part while most of the zone is free, so that CPUs keep apart; else as
    /// all of its region do, so that few pageblocks are in use in part.
    #[inline(always)]
    pub(super) fn start_now<P: Platform>(&self, view: MapView<'_, P>, stay: &StayOf<P>) -> Start {
        let [common, own] = self.starts;
        if own == common {
            return common;
        }
        let start = self.start_of(view);
        // That its part has nothing is not remembered: a search that goes on looks everywhere, or it would never end.
        if stay.goes_on() { start.anywhere() } else { start }
    }

    #[inline(never)]
    fn start_of<P: Platform>(&self, view: MapView<'_, P>) -> Start {
        let [common, own] = self.starts;
        let is_apart = self.stack.start().pageblock == own.pageblock;
        let sixteenths = if is_apart { APART } else { APART + 1 };
        if view.zone.slack() > view.zone.managed() / 16 * sixteenths { own } else { common }
    }

    /// Pageblocks that were freed past the slot are counted from now on.
    pub(super) fn count_blocks(&mut self, blocks: u32) {
        self.counted += u64::from(blocks);
        self.uncounted += i64::from(blocks) << self.whole_order.get();
    }

    /// How near to the marks everything is counted at once.
    pub(super) const fn margin(&self) -> u64 {
        FOLD as u64 * self.cpus as u64
    }

    /// Counts frames freed into the map, or taken: at once if it is much, or if requests may be about to
    /// be refused.
    #[inline]
    pub(super) fn count<P: Platform>(&mut self, view: MapView<'_, P>, change: i64) {
        self.uncounted += change;
        let near = view.zone.slack() < self.margin();
        if near || !(-FOLD..=self.late).contains(&self.uncounted) {
            self.fold(view);
        }
    }

    /// Counts a block that was taken, where the zone had `slack` frames beyond its marks just before.
    #[inline]
    pub(super) fn count_taken<P: Platform>(
        &mut self,
        view: MapView<'_, P>,
        order: Order,
        slack: u64,
    ) {
        self.uncounted -= order.frames() as i64;
        let near = slack < order.frames() + self.margin();
        if near || self.uncounted < -FOLD {
            self.fold(view);
        }
    }

    #[inline]
    pub(super) fn fold<P: Platform>(&mut self, view: MapView<'_, P>) {
        let change = core::mem::take(&mut self.uncounted);
        if change != 0 {
            view.zone.count_free(change);
        }
    }

    /// A block that is no pageblock; or a pageblock, of other memory than whole ones of its type. With the next piece
    /// of the stay in the slot, which it took.
    #[inline(never)]
    pub(super) fn take_further<P: Platform, T: Trace, const N: usize>(
        &mut self,
        out: &StackOutside<P, N>,
        (view, stay): (MapView<'_, P>, &StayOf<P>),
        (order, migrate, slack): (Order, MigrateType, u64),
    ) -> (Option<(u32, u64)>, StayOf<P>) {
        if let Some(index) = self.take_small(out, order, migrate) {
            view.table.set_state(index, FrameState::allocated(order));
            return (Some((index, 0)), stay.next());
        }
        let kind = (order, migrate);
        // Where code is, as it fits best: a run of the current pageblock that is just as large, a hole that was kept, a run as large
        // elsewhere, and only then a part of a larger run of the current pageblock. No map is made before it is needed.
        let mut beside = None;
        let just = |held: &&mut Current| held.may_have_just(order);
        if StayOf::<P>::BLOCKS > 0 {
            let held = self.stack.current_of(migrate, order).filter(just);
            beside = held.and_then(|held| view.map().take_beside(held, migrate, order));
            if beside.is_none() {
                if let Some(index) = self.fill_hole(view, kind, |cpu| cpu.start_now(view, stay)) {
                    view.table.set_state(index, FrameState::allocated(order));
                    return (Some((index, 0)), stay.next());
                }
                let wanted = (order, migrate, slack);
                if let Some(fits) = self.take_fitting::<P, T, N>(out, (view, stay), wanted) {
                    return (Some(fits), stay.next());
                }
            }
        }
        let remembered = |held: &&mut Current| StayOf::<P>::COPIES && held.may_have(order);
        if beside.is_none() {
            let held = self.stack.current_of(migrate, order).filter(remembered);
            beside = held.and_then(|held| view.map().take_beside(held, migrate, order));
        }
        let map = view.map().staying(stay.next());
        if !StayOf::<P>::COPIES {
            let held = self.stack.current_of(migrate, order);
            beside = held.and_then(|held| map.take_beside(held, migrate, order));
        }
        if let Some(frame) = beside {
            return (Some(self.taken::<P, T>(view, kind, slack, frame)), map.stay());
        }
        let start = self.start_now(view, stay);
        let (_, mut current) = self.stack.current_for(migrate, order);
        // Where code is, what is most frequent at once: of a pageblock of the type, which is counted nowhere else then.
        if StayOf::<P>::COPIES
            && order < self.whole_order
            && let Some(frame) = map.take_block(migrate, order, start, current.as_deref_mut())
        {
            self.took(out, view, kind, frame);
            return (Some(self.taken::<P, T>(view, kind, slack, frame)), map.stay());
        }
        let frame = view.take::<T>(&map, kind, AllocFlags::NORMAL, start, current);
        let taken = frame.map(|frame| {
            let index = view.index(frame);
            view.table.set_state(index, FrameState::allocated(order));
            self.count(view, -(order.frames() as i64));
            view.reconcile_special(frame, order);
            self.took(out, view, kind, frame);
            self.tell_taken::<P, T>(view, index, order, migrate);
            (index, order.frames())
        });
        (taken, map.stay())
    }

    /// A block was taken of a pageblock of its type: its index, and how many frames it has.
    #[inline(always)]
    pub(super) fn taken<P: Platform, T: Trace>(
        &mut self,
        view: MapView<'_, P>,
        (order, migrate): (Order, MigrateType),
        slack: u64,
        frame: Frame,
    ) -> (u32, u64) {
        let index = view.index(frame);
        view.table.set_state(index, FrameState::allocated(order));
        self.count_taken(view, order, slack);
        self.tell_taken::<P, T>(view, index, order, migrate);
        (index, order.frames())
    }

    /// What is freed of the block's pageblock stays from now on, if it is of a few frames and they do.
    #[inline(always)]
    fn took<P: Platform, const N: usize>(
        &mut self,
        out: &StackOutside<P, N>,
        view: MapView<'_, P>,
        (order, migrate): (Order, MigrateType),
        frame: Frame,
    ) {
        if StayOf::<P>::BLOCKS > 0 && order < self.whole_order && has_current(order) {
            self.stack.took(out, migrate, frame, view.extent().1);
        }
    }

    /// Puts the blocks that were kept into the map; how many frames.
    #[inline(always)]
    pub(super) fn drain_kept<P: Platform>(&mut self, view: MapView<'_, P>) -> u64 {
        match StayOf::<P>::BLOCKS > 0 {
            true => self.drain_holes(view),
            false => self.drain_last(view),
        }
    }

    /// How many frames they have.
    #[inline(always)]
    pub(super) fn kept_frames<P: Platform>(&self) -> u64 {
        match StayOf::<P>::BLOCKS > 0 {
            true => self.holes.frames().into(),
            false => self.kept.map_or(0, |kept| kept.order.frames()),
        }
    }

    #[inline(always)]
    pub(super) fn visit_kept<P: Platform>(&self, visit: &mut dyn FnMut(u32, Order)) {
        match StayOf::<P>::BLOCKS > 0 {
            true => self.holes.blocks().for_each(|(index, order)| visit(index, order)),
            false => self.kept.iter().for_each(|kept| visit(kept.index, kept.order)),
        }
    }

    /// Takes a block that stayed.
    #[inline(always)]
    fn take_small<P: Platform, const N: usize>(
        &mut self,
        out: &StackOutside<P, N>,
        order: Order,
        migrate: MigrateType,
    ) -> Option<u32> {
        match StayOf::<P>::BLOCKS > 0 {
            true => out.small().stack(order, migrate)?.pop(),
            false => self.take_kept(order, migrate),
        }
    }

    /// Tells of a block that came from the map, and has been counted: it goes back if the sink panics.
    #[inline(always)]
    pub(super) fn tell_taken<P: Platform, T: Trace>(
        &mut self,
        view: MapView<'_, P>,
        index: u32,
        order: Order,
        migrate: MigrateType,
    ) {
        or_undo(
            || {
                T::emit(Point::AllocZoneLocked, || Event::AllocZoneLocked {
                    pfn: view.table.pfn(index),
                    order,
                    migrate,
                    percpu_refill: false,
                });
            },
            || self.put_block(view, index, order),
        );
    }

    /// Frees a block that is no pageblock; how many frames went into the map.
    #[inline(never)]
    pub(super) fn put_further<P: Platform, const N: usize>(
        &mut self,
        out: &StackOutside<P, N>,
        view: MapView<'_, P>,
        (order, migrate): (Order, MigrateType),
        index: u32,
    ) -> u64 {
        if StayOf::<P>::BLOCKS == 0 {
            return self.put_kept(view, (order, migrate), index);
        }
        // Again inside the slot: a CPU that isolates a pageblock drains the slot after it (S-3).
        let list = view.table.pageblock(index).cached_in().map(|(_, list)| list);
        if list != Some(migrate) {
            return self.put_gone(view, index, order, migrate);
        }
        let pageblock = view.extent().1.order();
        let Some(stack) = out.small_for((order, migrate), index, pageblock) else {
            return self.put_apart(view, (order, migrate), index);
        };
        if stack.push(index) {
            return 0;
        }
        // Drains may have left it further up.
        stack.settle();
        let mut gone = 0;
        if !stack.has_room() {
            let half = self.size.small.div_ceil(2);
            stack.take_oldest(half, |index| gone += self.put_gone(view, index, order, migrate));
        }
        if !stack.push(index) {
            gone += self.put_gone(view, index, order, migrate);
        }
        gone
    }

    /// Puts a block into the map, and remembers it if it is of a current pageblock.
    pub(super) fn put_gone<P: Platform>(
        &mut self,
        view: MapView<'_, P>,
        index: u32,
        order: Order,
        migrate: MigrateType,
    ) -> u64 {
        let frame = view.frame(index);
        view.table.set_state(index, FrameState::INNER);
        if view.put_block_here(frame, order) {
            self.count(view, order.frames() as i64);
        }
        if let Some(held) = self.stack.current_mut(migrate) {
            view.map().put_beside(held, frame);
        }
        order.frames()
    }

    /// Puts a block into the map.
    pub(super) fn put_block<P: Platform>(
        &mut self,
        view: MapView<'_, P>,
        index: u32,
        order: Order,
    ) {
        view.table.set_state(index, FrameState::INNER);
        if view.put_block(view.frame(index), order) {
            self.count(view, order.frames() as i64);
        }
    }
}

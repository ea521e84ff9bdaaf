//! How frames are kept per CPU and handed over in batches.
//!
//! [`Linked`](crate::pcp::Linked) keeps frames on lists through the frame table, as Linux 4.16
//! does; [`Stacks`](crate::pcp::Stacks) keeps them in arrays, over a map.
//!
//! ```
//! use zonal::pcp::{Linked, Stacks};
//! use zonal::policy::PcpPolicy;
//! use zonal::policy::merge::Always;
//! use zonal::zone::{free_map::Mapped, lists::BuddyLists};
//! assert!(<Stacks<16> as PcpPolicy<Mapped>>::PASSES_LARGE);
//! assert!(!<Linked as PcpPolicy<BuddyLists<Always>>>::PASSES_LARGE);
//! ```

use crate::boot::tuning::Tuning;
use crate::frame::{ALLOCATED, CACHED, FrameState, PageblockWord};
use crate::platform::{Platform, StayOf};
use crate::trace::Trace;
use crate::types::migrate_type::MigrateType;
use crate::types::request::Request;
use crate::types::units::{Order, Pfn};
use crate::zone::tables::ZoneTables;
use crate::zone::{FreeMemory, ZoneInstance, ZoneView};
use core::fmt;
use core::ops::Deref;

/// Where per-CPU pages work: one zone instance, seen from one CPU.
pub struct ZoneContext<'a, P: Platform, F: FreeMemory> {
    pub(crate) view: ZoneView<'a, P, F>,
    pub(crate) cpu: usize,
    pub(crate) stay: StayOf<P>,
}

impl<'a, P: Platform, F: FreeMemory> Deref for ZoneContext<'a, P, F> {
    type Target = ZoneView<'a, P, F>;

    #[inline(always)]
    fn deref(&self) -> &ZoneView<'a, P, F> {
        &self.view
    }
}

/// Outcome of a bulk operation on one cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bulk {
    /// Frames handled.
    pub done: usize,
    /// Why it stopped before the end.
    pub stop: Stop,
}

/// Why a bulk operation stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stop {
    /// All done.
    Done,
    /// The cache is empty (allocating) or full (freeing).
    Edge,
    /// The next frame belongs elsewhere, or may not be freed: the caller looks at it.
    Frame,
    /// As much is done as in one stay in a slot.
    Piece,
}

/// Outcome of a free outside the slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pushed {
    /// The frame is kept.
    Yes,
    /// Nothing has changed: it is to be freed another way.
    No,
    /// The frame of this index is kept, where it may not be any more: see
    /// [`take_back`](PcpPolicy::take_back).
    Elsewhere(u32),
}

/// Outcome of taking a larger block outside the slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Taken {
    /// The block of this index and order, marked allocated.
    Yes(u32, Order),
    /// Nothing has changed: it is to be asked for another way.
    No,
    /// The block of this index is the caller's, marked inner, but it is of another type now.
    Elsewhere(u32),
}

/// Outcome of a larger block's free outside the slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Passed {
    /// It is free.
    Yes,
    /// Nothing has changed: it is to be freed another way.
    No,
    /// The block of this index is free: see [`look_after`](PcpPolicy::look_after).
    Elsewhere(u32),
    /// The block of this index was free already, though its state said that it was not.
    Twice(u32),
}

/// Frames that passed an owner's slot outside.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Outside {
    /// Given back.
    pub freed: u64,
    /// Of these, what went into the zone.
    pub shed: u64,
    /// Handed out from the zone.
    pub filled: u64,
}

/// Who empties a cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Drainer {
    /// Its owner, who is in the slot and so nowhere else: no fence is needed.
    Owner,
    /// Another, while an owner may be [outside the slot](PcpPolicy::OUTSIDE).
    Other,
}

/// A way to keep frames per CPU. Implemented here only; a preset names one.
pub trait PcpPolicy<F: FreeMemory>: Sized + Send + Sync + fmt::Debug + 'static {
    /// Whether blocks of more than a frame are [taken](Self::take_large) and [put](Self::put_large)
    /// by way of the CPU's slot, whether or not they stay there.
    const PASSES_LARGE: bool = false;
    /// Whether an owner takes and frees frames outside its slot.
    const OUTSIDE: bool = false;
    /// Orders from 1 to this one of which an owner takes and frees blocks there, too; 0: of none.
    const SMALL: u8 = 0;
    /// Whether bounds follow from the zone's low watermark, so that they change wherever that does.
    const BY_WATERMARK: bool = false;
    /// One CPU's cache of one zone, guarded by its slot.
    type Cpu: Send + fmt::Debug;
    /// What of it an owner reaches outside the slot.
    type Outside<P: Platform>: Send + Sync;
    /// What an owner remembers of the pageblock that it last freed to.
    type Window<'m, P: Platform + 'm>: Send;
    /// Where an owner takes larger blocks from, and frees them to, outside its slot.
    type Passage<'m, P: Platform + 'm>: Send;

    /// An empty cache.
    fn new_cpu() -> Self::Cpu;
    /// What of it lies outside the slot.
    fn new_outside<P: Platform>() -> Self::Outside<P>;
    /// Sets the bounds of an empty cache, again when the size of the zone has changed.
    fn tune_cpu<P: Platform>(cpu: &mut Self::Cpu, out: &Self::Outside<P>, tuning: Tuning);
    /// Frames moved at once in a zone, for presets with clusters on the buddy lists; 0 for a
    /// policy that keeps none there.
    #[must_use]
    fn batch(tuning: Tuning) -> u32 {
        let _ = tuning;
        0
    }
    /// (batch, high) in frames, for reports.
    fn limits(cpu: &Self::Cpu) -> (u32, u32);

    /// Takes a cached frame and marks it allocated.
    fn pop<P: Platform>(
        cpu: &mut Self::Cpu,
        out: &Self::Outside<P>,
        table: &ZoneTables<'_, P>,
        migrate: MigrateType,
    ) -> Option<u32>;

    /// Keeps a frame that is already marked cached. `true`: a spill is due before the next.
    fn push<P: Platform>(
        cpu: &mut Self::Cpu,
        out: &Self::Outside<P>,
        table: &ZoneTables<'_, P>,
        migrate: MigrateType,
        index: u32,
    ) -> bool;

    /// Takes a single frame from its holder, who frees it by itself: see [`FreeMemory::release`], which this is.
    #[must_use]
    #[inline(always)]
    fn release<P: Platform>(
        table: &ZoneTables<'_, P>,
        offset: usize,
        from: FrameState,
        to: FrameState,
    ) -> bool {
        F::release(table, offset, from, to)
    }

    /// Takes up to `frames.len()` cached frames and marks them allocated.
    fn pop_bulk<P: Platform>(
        cpu: &mut Self::Cpu,
        out: &Self::Outside<P>,
        table: &ZoneTables<'_, P>,
        migrate: MigrateType,
        frames: &mut [Pfn],
    ) -> usize {
        let mut done = 0;
        while let Some(place) = frames.get_mut(done) {
            let Some(index) = Self::pop(cpu, out, table, migrate) else { break };
            *place = table.pfn(index);
            done += 1;
        }
        done
    }

    /// Keeps allocated frames from the start of `frames`, marking them cached, as long as their
    /// pageblock's word is `word` (whose list is `migrate`) and there is room.
    #[inline]
    fn push_bulk<P: Platform>(
        cpu: &mut Self::Cpu,
        out: &Self::Outside<P>,
        table: &ZoneTables<'_, P>,
        migrate: MigrateType,
        word: Option<PageblockWord>,
        frames: &[Pfn],
    ) -> Bulk {
        for (done, &pfn) in frames.iter().enumerate() {
            let offset = table.offset(pfn);
            if table.pageblock_at(offset) != word || !F::release(table, offset, ALLOCATED, CACHED) {
                return Bulk { done, stop: Stop::Frame };
            }
            // No truncation: the state was found, so the offset is an index.
            if Self::push(cpu, out, table, migrate, offset as u32) {
                return Bulk { done: done + 1, stop: Stop::Edge };
            }
        }
        Bulk { done: frames.len(), stop: Stop::Done }
    }

    /// In the slot: whether an owner may be outside it from now on.
    fn set_owned<P: Platform>(out: &Self::Outside<P>, owned: bool) {
        let _ = (out, owned);
    }

    /// In the slot, for its owner, who leaves: gives back what is not to wait for the next one. How many frames.
    fn leave<P: Platform>(ctx: &ZoneContext<'_, P, F>, cpu: &mut Self::Cpu) -> u64 {
        let _ = (ctx, cpu);
        0
    }

    /// In the slot, for its owner: whether a drain has come since it was last here, and what it remembers of where it may
    /// free outside the slot may be wrong.
    #[inline(always)]
    fn reopen<P: Platform>(out: &Self::Outside<P>) -> bool {
        let _ = out;
        false
    }

    /// Takes a cached frame and marks it allocated, for an owner outside the slot.
    #[inline(always)]
    fn pop_outside<P: Platform>(
        out: &Self::Outside<P>,
        table: &ZoneTables<'_, P>,
        migrate: MigrateType,
    ) -> Option<u32> {
        let _ = (out, table, migrate);
        None
    }

    /// By what it frees none.
    fn shut<'m, P: Platform>(out: &'m Self::Outside<P>) -> Self::Window<'m, P>;

    /// By what an owner outside the slot frees the frame at an offset of the table, if it stays here: its pageblock's
    /// list is `migrate`.
    #[inline(always)]
    fn window_of_one<'m, P: Platform>(
        out: &'m Self::Outside<P>,
        table: &ZoneTables<'m, P>,
        migrate: MigrateType,
        offset: usize,
    ) -> Option<Self::Window<'m, P>> {
        let _ = (out, table, migrate, offset);
        None
    }

    /// A window that the frame of an index has just been freed by, for all frames of its pageblock: to be remembered.
    #[inline(always)]
    fn widen<'m, P: Platform>(
        window: Self::Window<'m, P>,
        table: &ZoneTables<'m, P>,
        index: u32,
    ) -> Option<Self::Window<'m, P>> {
        let _ = (window, table, index);
        None
    }

    /// Frees a frame for an owner outside the slot. `told` says so before another can have it.
    #[inline(always)]
    fn push_outside<P: Platform>(
        window: &Self::Window<'_, P>,
        pfn: Pfn,
        told: impl FnOnce(),
    ) -> Pushed {
        let _ = (window, pfn, told);
        Pushed::No
    }

    /// Takes a block of a small order and marks it allocated, for an owner outside the slot.
    #[inline(always)]
    fn pop_small<P: Platform>(
        out: &Self::Outside<P>,
        table: &ZoneTables<'_, P>,
        kind: (Order, MigrateType),
    ) -> Option<u32> {
        let _ = (out, table, kind);
        None
    }

    /// Frees the block of a small order at an offset of the table, for an owner outside the slot: its pageblock's list is
    /// that of `kind`. `told` says so before another can have it.
    #[inline(always)]
    fn push_small<P: Platform>(
        out: &Self::Outside<P>,
        table: &ZoneTables<'_, P>,
        kind: (Order, MigrateType),
        offset: usize,
        told: impl FnOnce(),
    ) -> Pushed {
        let _ = (out, table, kind, offset, told);
        Pushed::No
    }

    /// In the slot: takes the block that the owner has just pushed from outside and marks it allocated;
    /// `false` if it has been drained.
    fn take_back<P: Platform>(
        out: &Self::Outside<P>,
        table: &ZoneTables<'_, P>,
        block: (u32, Order),
    ) -> bool {
        let _ = (out, table, block);
        false
    }

    /// Frames that owners freed and took outside the slot: a snapshot while an owner is about.
    fn passed_outside<P: Platform>(cpu: &Self::Cpu, out: &Self::Outside<P>) -> Outside {
        let _ = (cpu, out);
        Outside::default()
    }

    /// In the slot, for its owner, after a larger block came from the zone: makes room for blocks of this order to [pass](Self::passage) outside,
    /// where they may. How near to the zone's marks they may not.
    fn make_way<P: Platform>(
        ctx: &ZoneContext<'_, P, F>,
        cpu: &mut Self::Cpu,
        out: &Self::Outside<P>,
        order: Order,
    ) -> Option<u64> {
        let _ = (ctx, cpu, out, order);
        None
    }

    /// Where blocks like that of `index`, with which the zone has just served the request, pass outside. With the zone what
    /// [`make_way`](Self::make_way) said.
    fn passage<'m, P: Platform>(
        zone: (&'m ZoneInstance<P, F>, u64),
        out: &'m Self::Outside<P>,
        table: &ZoneTables<'m, P>,
        request: &Request,
        index: u32,
    ) -> Option<Self::Passage<'m, P>> {
        let _ = (zone, out, table, request, index);
        None
    }

    /// Whether the passage is that of the request and of the block at `index`.
    #[inline(always)]
    fn has_way<P: Platform>(passage: &Self::Passage<'_, P>, request: &Request, index: u32) -> bool {
        let _ = (passage, request, index);
        false
    }

    /// Takes a larger block for an owner outside the slot.
    #[inline(always)]
    fn take_outside<P: Platform>(passage: &Self::Passage<'_, P>, request: &Request) -> Taken {
        let _ = (passage, request);
        Taken::No
    }

    /// Frees a larger block for an owner outside the slot. `told` says so before another can have it.
    #[inline(always)]
    fn put_outside<P: Platform>(
        passage: &Self::Passage<'_, P>,
        pfn: Pfn,
        order: Order,
        told: impl FnOnce(),
    ) -> Passed {
        let _ = (passage, pfn, order, told);
        Passed::No
    }

    /// What a block that was freed outside the slot asks for besides, because of its type or its place; `twice`: it was free.
    fn look_after<P: Platform>(view: ZoneView<'_, P, F>, index: u32, twice: bool) {
        let _ = (view, index, twice);
    }

    /// Brings at least one frame into the cache, taking at most `headroom` frames
    /// from the zone. `false`: there was none to be had.
    fn refill<P: Platform, T: Trace>(
        ctx: &ZoneContext<'_, P, F>,
        cpu: &mut Self::Cpu,
        out: &Self::Outside<P>,
        migrate: MigrateType,
        headroom: u64,
    ) -> bool;

    /// Makes room after [`push`](Self::push) asked for it, or [`push_bulk`](Self::push_bulk) at its [`Stop::Edge`];
    /// returns how many frames went to the zone.
    fn spill<P: Platform>(
        ctx: &ZoneContext<'_, P, F>,
        cpu: &mut Self::Cpu,
        out: &Self::Outside<P>,
        migrate: MigrateType,
    ) -> u64;

    /// Takes a block of more than a frame, marked allocated, where such blocks
    /// [pass](Self::PASSES_LARGE); and how many of its frames came from the zone: all or none. `wanted`: its
    /// order, its type, and how many frames are free beyond all marks of the zone.
    fn take_large<P: Platform, T: Trace>(
        ctx: &ZoneContext<'_, P, F>,
        cpu: &mut Self::Cpu,
        out: &Self::Outside<P>,
        wanted: (Order, MigrateType, u64),
    ) -> Option<(u32, u64)> {
        let _ = (ctx, cpu, out, wanted);
        None
    }

    /// The state that a block of `order` has when it is [put](Self::put_large): cached, or inner if
    /// none is kept of that order.
    #[inline(always)]
    fn put_as(cpu: &Self::Cpu, order: Order) -> FrameState {
        let _ = cpu;
        FrameState::cached(order)
    }

    /// Frees one, which has the state that [`put_as`](Self::put_as) says, of a pageblock whose list is `migrate`; how many
    /// frames went into the zone.
    fn put_large<P: Platform>(
        ctx: &ZoneContext<'_, P, F>,
        cpu: &mut Self::Cpu,
        out: &Self::Outside<P>,
        order: Order,
        migrate: MigrateType,
        index: u32,
    ) -> u64 {
        let _ = (ctx, cpu, out, order, migrate, index);
        0
    }

    /// Gives everything in the cache back to the zone; returns the frames.
    fn drain<P: Platform>(
        ctx: &ZoneContext<'_, P, F>,
        cpu: &mut Self::Cpu,
        out: &Self::Outside<P>,
        by: Drainer,
    ) -> u64;

    /// Frames in the cache: a snapshot while its owner is about.
    fn cached<P: Platform>(cpu: &Self::Cpu, out: &Self::Outside<P>) -> u64;

    /// Calls `visit` with every block in the cache, for checkers.
    fn visit<P: Platform>(
        cpu: &Self::Cpu,
        out: &Self::Outside<P>,
        table: &ZoneTables<'_, P>,
        visit: &mut dyn FnMut(u32, Order),
    );
}

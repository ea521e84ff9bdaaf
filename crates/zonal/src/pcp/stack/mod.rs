//! What a CPU keeps of a zone whose free memory is a [map](crate::zone::free_map): a stack of order-0
//! frames for each type, the edge, gathered frames, stacks of blocks of a few frames, and current pageblocks for small orders.
//!
//! The *edge* of a type is the farthest pageblock that the CPU's last refill came from, in the order
//! of a search from its start. A frame that is freed at or below the edge goes on the stack; one
//! above it goes into the map at once, gathered with its neighbours first. So what a fault takes
//! and its unmap frees stays here, and what lies far out empties itself: caches and address order
//! agree.
//!
//! All of it is plain data for the CPU's slot, but for the stacks, which the CPU's owner reaches without
//! the slot; no call here waits, and none looks at another CPU.
//!
//! The stacks' rules: S-1, a frame that its owner pops is not drained, and S-2, what a drain leaves
//! (`frames.rs`); S-3, a frame of a pageblock whose type changes is not kept (`window.rs`). Models:
//! `loom_stack` in `zonal-testkit`.
//!
//! | call | cost |
//! |---|---|
//! | pop, push, of blocks too | a few instructions |
//! | refill | lines that are emptied, at most `high` frames |
//! | spill | `high` / 2 frames, one update of the map a run of neighbours in a word |
//! | free above the edge | one update of the map for each word that neighbours are in |
//!
//! ```
//! use zonal::pcp::stack::StackSize;
//! // 1 GiB and two CPUs; then 64 CPUs; then CPUs that would hold more than a sixteenth.
//! assert_eq!(StackSize::for_share(1 << 18, 2).high, 256);
//! assert_eq!(StackSize::for_share(1 << 18, 64).high, 32);
//! assert_eq!(StackSize::for_share(1 << 12, 64).high, 0, "no stack");
//! ```

mod blocks;
mod cpu;
mod drain;
mod fitting;
mod frames;
mod give_back;
mod holes;
mod home;
mod last;
mod lists;
mod outside;
mod passage;
mod policy;
mod refill;
mod small;
mod window;
mod words;

pub use frames::MAX_HIGH;
pub use outside::StackOutside;
pub use passage::Passage;
pub use policy::Stacks;
pub use refill::Came;
pub use window::Window;

use frames::FrameStack;
use small::Types;

use crate::platform::stay::Stay;
use crate::platform::{Platform, StayOf};
use crate::policy::pcp::Drainer;
use crate::types::migrate_type::{MigrateType, NR_CACHED_TYPES};
use crate::types::units::Order;
use crate::zone::free_map::{
    AlreadyFree, Current, Frame, FreeMap, MapShape, Pageblock, Start, WordIndex,
};

/// How much a CPU may keep of a zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StackSize {
    /// Frames on each of its three stacks; 0: there is none.
    pub high: u32,
    /// Blocks of each small order and type; 0: none.
    pub small: u32,
    /// Current pageblocks, and such that refills have opened, at the same time, of the three types together.
    pub currents: u32,
}

/// Frames of a stack at least, where the zone has room.
const LEAST: u64 = 32;
/// Frames below which a stack is not worth having.
const WORTH_IT: u32 = 16;
/// The part of the zone that all stacks together may hold.
const ALL_STACKS: u64 = 16;
/// The part of the CPU's share of the zone that a stack may hold.
const OWN_STACK: u64 = 256;
/// The part of the pageblocks that may be current.
const ALL_CURRENTS: u32 = 64;

impl StackSize {
    /// A 256th of the CPU's share of `frames`, 32 to 256, and up to eight blocks of each small order and type, so that the
    /// stacks of all CPUs hold at most a sixteenth of the zone; none where that leaves less than 16.
    #[must_use]
    pub fn for_share(frames: u64, cpus: u32) -> Self {
        Self::for_share_worth(frames, cpus, WORTH_IT)
    }

    /// The same with none where that leaves less than `worth`.
    #[must_use]
    pub fn for_share_worth(frames: u64, cpus: u32, worth: u32) -> Self {
        let cpus = u64::from(cpus.max(1));
        let wanted = (frames / cpus / OWN_STACK).clamp(LEAST, MAX_HIGH as u64);
        let most = frames / ALL_STACKS / cpus / NR_CACHED_TYPES as u64;
        let high = wanted.min(most);
        if high < u64::from(worth) {
            return Self::default();
        }
        Self { high: high as u32, small: small::most_for(most - high), currents: 0 }
    }

    /// The same with current pageblocks: in all CPUs together at most a 64th of the zone's, and at
    /// most two of each type: for larger blocks, and for frames.
    #[must_use]
    pub fn with_currents(self, shape: MapShape, cpus: u32) -> Self {
        let each = shape.pageblocks() / ALL_CURRENTS / cpus.max(1);
        Self { currents: each.min(2 * NR_CACHED_TYPES as u32), ..self }
    }
}

/// One CPU's part of one zone, but for the stacks themselves.
#[derive(Debug)]
pub struct CpuStack {
    current: [Current; NR_CACHED_TYPES],
    /// The pageblock of each type that the last refill found whole and did not use up.
    opened: [Current; NR_CACHED_TYPES],
    size: StackSize,
    start: Start,
    /// The frame table's index of the map's frame 0.
    first: u32,
    /// Of the map's pageblocks.
    order: Order,
    /// Of which types it may have kept larger blocks, from its first on.
    small: Types,
    /// Pageblocks that drains found uncounted, for [`uncounted`](Self::uncounted).
    uncounted: u32,
}

impl Default for CpuStack {
    fn default() -> Self {
        Self::new()
    }
}

impl CpuStack {
    /// One that holds nothing and may hold nothing: see [`tune`](Self::tune).
    #[must_use]
    pub const fn new() -> Self {
        Self {
            current: [Current::NONE; NR_CACHED_TYPES],
            opened: [Current::NONE; NR_CACHED_TYPES],
            size: StackSize { high: 0, small: 0, currents: 0 },
            start: Start::new(Pageblock(0), 0),
            first: 0,
            order: Order::ZERO,
            small: Types::NONE,
            uncounted: 0,
        }
    }

    /// Sets the size, the start, the shape of the map and where in the frame table it begins. What it holds
    /// must be [drained](Self::drain) before.
    pub fn tune<P: Platform, const N: usize>(
        &mut self,
        out: &StackOutside<P, N>,
        size: StackSize,
        start: Start,
        (first, shape): (u32, MapShape),
    ) {
        self.size = StackSize { high: size.high.min(N as u32), ..size };
        out.set_high(self.size.high);
        out.small().set_high(self.size.small, shape.order());
        (self.first, self.order) = (first, shape.order());
        self.start = start;
        self.edges_from_start(out, shape);
    }

    /// Sets the start alone: what it holds stays, and if the start is at another pageblock what is freed goes into the map until
    /// the next refill.
    pub(super) fn begin_at<P: Platform, const N: usize>(
        &mut self,
        out: &StackOutside<P, N>,
        start: Start,
        shape: MapShape,
    ) {
        let before = core::mem::replace(&mut self.start, start);
        if before.pageblock != start.pageblock {
            self.edges_from_start(out, shape);
        }
    }

    /// No edge yet, from the start on.
    fn edges_from_start<P: Platform, const N: usize>(
        &self,
        out: &StackOutside<P, N>,
        shape: MapShape,
    ) {
        let size = shape.pageblock_frames();
        let ahead = self.start.pageblock.0 * size;
        out.set_start(self.first.wrapping_add(ahead), shape.pageblocks() * size);
    }

    /// Where it begins to look.
    pub(super) const fn start(&self) -> Start {
        self.start
    }

    /// Frames on its stacks and gathered: a snapshot while its owner is about.
    #[must_use]
    pub fn held<P: Platform, const N: usize>(&self, out: &StackOutside<P, N>) -> u32 {
        let keeps = StayOf::<P>::BLOCKS > 0 && !self.small.is_empty();
        let small = if keeps { out.small().frames() } else { 0 };
        out.len() + small
    }

    /// The frame of an index of the frame table.
    #[inline(always)]
    pub(super) const fn frame(&self, index: u32) -> Frame {
        // Modulo 2^32: the zone's map may begin behind a stack that does not know it yet.
        Frame(index.wrapping_sub(self.first))
    }

    /// The index of the frame table of a frame.
    #[inline(always)]
    pub(super) const fn index(&self, frame: Frame) -> u32 {
        self.first.wrapping_add(frame.0)
    }

    /// What it may hold.
    #[must_use]
    pub const fn size(&self) -> StackSize {
        self.size
    }

    /// Keeps a frame that lies inside the edge, if the stack has room.
    #[inline(always)]
    pub(super) fn keep_inside<P: Platform, const N: usize>(
        &mut self,
        out: &StackOutside<P, N>,
        migrate: MigrateType,
        frame: Frame,
    ) -> bool {
        let stack = out.stack(migrate);
        stack.is_some_and(|stack| stack.push(self.index(frame)))
    }

    /// Keeps a frame that is freed, of a pageblock of the type `migrate`, if that needs nothing of the
    /// map: at or below the edge on a stack that has room, or beside those that are gathered.
    #[inline(always)]
    pub fn keep<P: Platform, const N: usize>(
        &mut self,
        out: &StackOutside<P, N>,
        migrate: MigrateType,
        frame: Frame,
    ) -> bool {
        self.keep_at(out, migrate, self.index(frame))
    }

    /// The same, by the index of the frame table.
    #[inline(always)]
    pub(super) fn keep_at<P: Platform, const N: usize>(
        &self,
        out: &StackOutside<P, N>,
        migrate: MigrateType,
        index: u32,
    ) -> bool {
        let stack = out.stack_for(migrate, index, self.order);
        stack.is_some_and(|stack| stack.push(index))
    }

    /// Makes room for frames that follow each other from this one on: what is gathered goes into the map, or what the
    /// stack sheds. How many frames.
    ///
    /// # Errors
    /// As [`free`](Self::free).
    #[inline]
    fn make_room<P: Platform, const N: usize>(
        &self,
        out: &StackOutside<P, N>,
        home: &impl Home,
        list: MigrateType,
        frame: Frame,
    ) -> Result<u32, AlreadyFree> {
        match out.stack(list) {
            Some(stack) if out.is_inside(list, self.index(frame)) => self.shed(stack, home),
            _ => out.flush(home, self.first),
        }
    }

    /// The oldest frames of a full stack go into the map.
    #[inline]
    fn shed<P: Platform, const N: usize>(
        &self,
        stack: &FrameStack<P, N>,
        home: &impl Home,
    ) -> Result<u32, AlreadyFree> {
        stack.settle();
        stack.shed(home, self.first, (self.size.high / StayOf::<P>::SPILT).max(1))
    }

    /// Frees a frame: as [`keep`](Self::keep), after a full stack has spilt its oldest half, or what
    /// was gathered has gone into the map. How many frames went there, or were to.
    ///
    /// # Errors
    /// [`AlreadyFree`] if frames that were to go into the map are free there: of those that it
    /// names none is freed twice, all others are free or on the stack.
    #[inline]
    pub fn free<P: Platform, const N: usize>(
        &mut self,
        out: &StackOutside<P, N>,
        home: &impl Home,
        migrate: MigrateType,
        frame: Frame,
    ) -> Result<u32, AlreadyFree> {
        // Whose a frame is says whose stack it may go on: a CMA frame's is movable.
        let list = if let MigrateType::Cma = migrate { MigrateType::Movable } else { migrate };
        if self.keep(out, list, frame) { Ok(0) } else { self.free_further(out, home, list, frame) }
    }

    /// What [`keep`](Self::keep) does not keep on the stack `list`.
    #[inline]
    pub(super) fn free_further<P: Platform, const N: usize>(
        &mut self,
        out: &StackOutside<P, N>,
        home: &impl Home,
        list: MigrateType,
        frame: Frame,
    ) -> Result<u32, AlreadyFree> {
        if out.is_inside(list, self.index(frame))
            && let Some(stack) = out.stack(list)
        {
            return self.spill_half(stack, home, self.index(frame));
        }
        let flushed = out.flush(home, self.first);
        if out.gathered().push(self.index(frame)) {
            return flushed;
        }
        // Without a cache nothing was gathered, and nothing is.
        home.put_one(frame).map(|()| 1)
    }

    /// Keeps a frame on a full stack, whose oldest half goes into the map.
    #[inline]
    fn spill_half<P: Platform, const N: usize>(
        &self,
        stack: &FrameStack<P, N>,
        home: &impl Home,
        index: u32,
    ) -> Result<u32, AlreadyFree> {
        stack.settle();
        if stack.push(index) {
            return Ok(0);
        }
        let shed = self.shed(stack, home);
        let kept = stack.push(index);
        debug_assert!(kept, "what was shed left room");
        shed
    }

    /// Gives everything back to the map: frames, what is gathered, current pageblocks. `by` the
    /// slot's holder, for a CPU that idles or goes, or for another that needs it. What is on the stacks
    /// stays there if the host refuses the fence that an owner outside the slot asks for. Returns the
    /// frames. O(frames).
    ///
    /// # Errors
    /// The last [`AlreadyFree`]; all that can be freed is.
    pub fn drain<P: Platform, const N: usize>(
        &mut self,
        out: &StackOutside<P, N>,
        home: &impl Home,
        by: Drainer,
    ) -> Result<u32, AlreadyFree> {
        let (drained, uncounted) = out.drain(home, self.first, (by, self.small));
        self.uncounted += uncounted;
        let kept = self.current.iter_mut().chain(&mut self.opened);
        kept.for_each(|current| home.release(current));
        drained
    }

    /// How many pageblocks the owner freed outside the slot that drains have found since this was asked last: they
    /// are in the map and to be counted.
    #[must_use]
    pub fn uncounted(&mut self) -> u32 {
        core::mem::take(&mut self.uncounted)
    }

    /// Whether a frame lies in the pageblock that the CPU takes larger blocks of a type from.
    pub(super) fn is_current(&self, migrate: MigrateType, frame: Frame, shape: MapShape) -> bool {
        let current = self.current.get(migrate.index()).and_then(|current| current.pageblock());
        current == Some(frame.pageblock(shape))
    }

    /// Calls `visit` with every frame on the stacks and gathered; only while nothing else runs.
    pub fn visit<P: Platform, const N: usize>(
        &self,
        out: &StackOutside<P, N>,
        mut visit: impl FnMut(Frame),
    ) {
        out.indexes().for_each(|index| visit(self.frame(index)));
    }
}

/// The word of a block of less than a word, and its frames there.
#[inline]
fn in_word(frame: Frame, order: Order) -> (WordIndex, u64) {
    let (word, bit) = frame.word();
    (word, ((1 << order.size()) - 1) * bit)
}

/// Where frames go that a CPU does not keep.
pub trait Home {
    /// Frees frames of a word, and if some of them are free already the rest.
    ///
    /// # Errors
    /// [`AlreadyFree`] names those.
    fn put(&self, word: WordIndex, mask: u64) -> Result<(), AlreadyFree>;
    /// Frees one.
    ///
    /// # Errors
    /// [`AlreadyFree`] if it is free already.
    #[inline(always)]
    fn put_one(&self, frame: Frame) -> Result<(), AlreadyFree> {
        let (word, bit) = frame.word();
        self.put(word, bit)
    }
    /// Frees a block of less than a word.
    ///
    /// # Errors
    /// [`AlreadyFree`] if some of it is free already.
    #[inline]
    fn put_block(&self, frame: Frame, order: Order) -> Result<(), AlreadyFree> {
        let (word, mask) = in_word(frame, order);
        self.put(word, mask)
    }
    /// Gives a current pageblock up.
    fn release(&self, current: &mut Current);
}

impl<P: Platform> Home for FreeMap<'_, P> {
    fn put(&self, word: WordIndex, mask: u64) -> Result<(), AlreadyFree> {
        self.free_others(word, mask)
    }

    fn release(&self, current: &mut Current) {
        FreeMap::release(self, current);
    }
}

#[cfg(test)]
mod tests;

//! What of a CPU's stacks its owner reaches without the CPU's slot.

use super::Home;
use super::drain::Drain;
use super::frames::{FrameStack, MAX_HIGH};
use super::passage::UNCOUNTED;
use super::small::{SmallStacks, Types};
use crate::platform::{AtomicHalf, Platform};
use crate::policy::pcp::Drainer;
use crate::types::migrate_type::{MigrateType, NR_CACHED_TYPES};
use crate::types::units::Order;
use crate::zone::free_map::AlreadyFree;
use core::sync::atomic::Ordering::Relaxed;

/// Frames above the edge that wait for their neighbours, at most.
const GATHERED: u32 = 64;

/// As many of them may be of any pageblocks: where they come at random, one entry of the slot is for all of them.
const APART: u32 = 4;

/// What `owned` may be.
const FREE: u32 = 0;
const OWNED: u32 = 1;
const SHUT: u32 = 2;

/// One CPU's stacks of one zone, under the rules of the [stacks](super) S-1 and S-2. The caller provides them beside the [slots](crate::platform::Slot).
///
/// ```
/// use zonal::{MigrateType::Movable, Order};
/// use zonal::pcp::stack::{CpuStack, StackOutside, StackSize};
/// use zonal::platform::single::SingleThread;
/// use zonal::zone::free_map::{MapShape, Start};
///
/// let shape = MapShape::new(Order::HUGE, 1).expect("a shape");
/// let (mut cpu, out) = (CpuStack::new(), StackOutside::<SingleThread>::new());
/// cpu.tune(&out, StackSize { high: 2, ..StackSize::default() }, Start::default(), (0, shape));
/// assert!(out.push_owned(Movable, 7) && out.push_owned(Movable, 8));
/// assert!(!out.push_owned(Movable, 9), "full");
/// assert_eq!((out.pop_owned(Movable), cpu.held(&out)), (Some(8), 1));
/// ```
///
/// `N` frames of each type at most, a power of two. Aligned so that two CPUs share no cache line (nor its pair).
#[repr(align(128))]
pub struct StackOutside<P: Platform, const N: usize = MAX_HIGH> {
    /// One for each type.
    stacks: [FrameStack<P, N>; NR_CACHED_TYPES],
    /// For frames above the edge, as a rule of one pageblock or few.
    gathered: FrameStack<P, N>,
    /// Blocks of a few frames.
    small: SmallStacks<P>,
    /// Numbers of the pageblocks that the owner freed past the slot and that are not counted yet.
    uncounted: FrameStack<P, UNCOUNTED>,
    /// [`OWNED`] while there is an owner, who may be outside the slot; [`SHUT`] if a drain has come since the owner was last
    /// in the slot; else [`FREE`]. Written in the slot. Relaxed: read there.
    owned: P::Half,
    /// The frame table's index of the first frame of the start, and how many frames the map has. Written in the slot;
    /// relaxed, as the edges are.
    start: P::Half,
    all: P::Half,
}

impl<P: Platform, const N: usize> StackOutside<P, N> {
    /// Empty stacks that may hold nothing before they are [tuned](super::CpuStack::tune).
    #[must_use]
    #[inline(always)]
    pub fn new() -> Self {
        Self {
            stacks: [FrameStack::new(), FrameStack::new(), FrameStack::new()],
            gathered: FrameStack::new(),
            small: SmallStacks::new(),
            uncounted: FrameStack::new(),
            owned: P::Half::new(FREE),
            start: P::Half::new(0),
            all: P::Half::new(0),
        }
    }

    /// The stack of a type, if that has one.
    #[inline(always)]
    pub(super) fn stack(&self, migrate: MigrateType) -> Option<&FrameStack<P, N>> {
        self.stacks.get(migrate.index())
    }

    /// That for frames above the edge.
    #[inline(always)]
    pub(super) const fn gathered(&self) -> &FrameStack<P, N> {
        &self.gathered
    }

    /// All that have frames.
    // Out of line: it is for what is rare, in six places.
    #[inline(never)]
    fn each(&self) -> [&FrameStack<P, N>; NR_CACHED_TYPES + 1] {
        let [first, second, third] = &self.stacks;
        [first, second, third, &self.gathered]
    }

    /// Where a frame of a pageblock of the type is kept, if there is room: at or below the edge on the type's stack,
    /// above it beside others of its pageblock of `order`. For the owner, who may be outside the slot, and for who is
    /// in it.
    #[inline(always)]
    pub(super) fn stack_for(
        &self,
        migrate: MigrateType,
        index: u32,
        order: Order,
    ) -> Option<&FrameStack<P, N>> {
        if self.is_inside(migrate, index) {
            return self.stack(migrate);
        }
        let beside = |newest: u32| (newest ^ index) >> order.get() == 0;
        let gathered = self.gathered();
        (gathered.len() < APART || gathered.newest().is_none_or(beside)).then_some(gathered)
    }

    /// Those of blocks of a few frames.
    #[inline(always)]
    pub(super) const fn small(&self) -> &SmallStacks<P> {
        &self.small
    }

    /// What is not counted yet.
    #[inline(always)]
    pub(super) fn uncounted(&self) -> &FrameStack<P, UNCOUNTED> {
        &self.uncounted
    }

    /// Takes the newest frame of a type, as an index of the frame table; `None` if there is none, or a drain
    /// is at work. For the owner, who may be outside the slot. O(1).
    #[inline(always)]
    pub fn pop_owned(&self, migrate: MigrateType) -> Option<u32> {
        self.stack(migrate)?.pop_owned()
    }

    /// Keeps a frame of a type, if there is room. For the owner, who may be outside the slot. O(1).
    #[inline(always)]
    pub fn push_owned(&self, migrate: MigrateType, index: u32) -> bool {
        self.stack(migrate).is_some_and(|stack| stack.push(index))
    }

    /// Sets how many frames the owner may keep on each.
    pub(super) fn set_high(&self, high: u32) {
        self.stacks.iter().for_each(|stack| stack.set_high(high));
        self.gathered().set_high(high.min(GATHERED));
    }

    /// Has searches begin at the frame of an index, of a map of `all` frames, and no edge.
    pub(super) fn set_start(&self, index: u32, all: u32) {
        self.start.store(index, Relaxed);
        self.all.store(all, Relaxed);
        self.stacks.iter().for_each(|stack| stack.set_edge(0));
        self.small.forget_homes();
    }

    /// Whether a frame of a pageblock of the type lies at or below the edge: in the order of a search, which
    /// begins at the start and goes on from the map's first frame. Most frames lie behind the start, and are told
    /// by one subtraction. For the owner, who may be outside the slot, and for who is in it.
    #[inline(always)]
    pub(super) fn is_inside(&self, migrate: MigrateType, index: u32) -> bool {
        let Some(stack) = self.stack(migrate) else { return false };
        self.is_before(stack.edge(), index)
    }

    /// The same of an edge that is known.
    #[inline(always)]
    pub(super) fn is_before(&self, edge: u32, index: u32) -> bool {
        let start = self.start.load(Relaxed);
        // Modulo 2^32: before the start it is farther than any edge.
        let ahead = index.wrapping_sub(start);
        ahead < edge || (index < start && ahead.wrapping_add(self.all.load(Relaxed)) < edge)
    }

    /// Whether an owner may be outside the slot from now on; for who is in the slot.
    pub fn set_owned(&self, owned: bool) {
        self.reopen();
        self.owned.store(if owned { OWNED } else { FREE }, Relaxed);
    }

    /// Whether a drain has come since the owner was last here, which then may push again, but not where it remembers that it
    /// may (S-3). For the owner in the slot.
    #[inline(always)]
    pub(super) fn reopen(&self) -> bool {
        self.owned.load(Relaxed) == SHUT && self.open()
    }

    #[cold]
    #[inline(never)]
    fn open(&self) -> bool {
        // Each drain has left them further up: an owner that frees and never fills one comes by here only.
        self.each().into_iter().for_each(FrameStack::settle);
        self.small.settle();
        self.owned.store(OWNED, Relaxed);
        true
    }

    /// Frames on all of them: a snapshot while an owner is about.
    pub(super) fn len(&self) -> u32 {
        self.each().into_iter().map(FrameStack::len).sum()
    }

    /// Their frames, as indexes of the frame table; only while nothing else runs.
    pub(super) fn indexes(&self) -> impl Iterator<Item = u32> {
        self.each().into_iter().flat_map(FrameStack::frames)
    }

    /// Frames that the owner freed outside the slot.
    pub(super) fn freed(&self) -> u64 {
        self.each().into_iter().map(FrameStack::freed).sum::<u64>() + self.small.freed()
    }

    /// Takes a frame, or a block of a few, off the stack that it is the newest of; for the owner in the slot.
    pub(super) fn take_back(&self, index: u32, order: Order) -> bool {
        if order > Order::ZERO {
            return self.small.take_back(index, order);
        }
        let newest = |stack: &&FrameStack<P, N>| stack.frames().next_back() == Some(index);
        self.each().into_iter().find(newest).and_then(FrameStack::pop).is_some()
    }

    /// Gives what is gathered to the map that begins at `first`; for the owner in the slot, or where there is none. How
    /// many frames.
    #[inline]
    pub(super) fn flush(&self, home: &impl Home, first: u32) -> Result<u32, AlreadyFree> {
        self.gathered.shed(home, first, u32::MAX)
    }

    /// Gives what is on the stacks to the map that begins at `first`; `by` who is in the slot. Of blocks of a
    /// few frames those of `types`. How many frames:
    /// none if the host refuses the fence against an owner that may be outside; and how many pageblocks are
    /// the caller's to be counted. As an error the last [`AlreadyFree`]; all that can be freed is.
    pub(super) fn drain(
        &self,
        home: &impl Home,
        first: u32,
        (by, types): (Drainer, Types),
    ) -> (Result<u32, AlreadyFree>, u32) {
        let owned = by == Drainer::Other && self.owned.load(Relaxed) != FREE;
        if owned {
            self.owned.store(SHUT, Relaxed);
        }
        let drain = Drain::begin(self.each(), (&self.small, types), &self.uncounted, owned);
        drain.map_or((Ok(0), 0), |drain| drain.take(home, first))
    }
}

impl<P: Platform, const N: usize> Default for StackOutside<P, N> {
    fn default() -> Self {
        Self::new()
    }
}

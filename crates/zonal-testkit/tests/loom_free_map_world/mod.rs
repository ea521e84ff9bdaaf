//! A small map on loom, and words with planted bugs.

use loom::cell::UnsafeCell;
use loom::sync::atomic::fence;
use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::atomic::Ordering::{self, Acquire, Relaxed, SeqCst};
use zonal::platform::AtomicWord;
use zonal::zone::free_map::{FreeMap, MapMemory, MapShape, MapTables, Pageblock, Start, WordIndex};
use zonal::{MigrateType, Order};
use zonal_testkit::loom_platform::{LoomPlatform, Word};

/// What a word does with its accesses.
pub(crate) trait Rule: 'static + Sized {
    /// Fences where accesses are sequentially consistent.
    const FENCES: bool = true;
    /// All accesses relaxed.
    const RELAXED: bool = false;
    /// Updates are a load and a store.
    const TORN: bool = false;
    /// Whether sums are changed.
    const COUNTED: bool = true;
    /// From [`plant`](Self::plant) on: bits are not set.
    const DEAF: bool = false;
    /// From [`plant`](Self::plant) on: after an exchange that failed everything reads as zero.
    const BLIND: bool = false;

    /// The calling CPU does the wrong thing from now on.
    fn plant() {
        PLANTED.with(|planted| planted.set(true));
    }

    /// And no longer.
    fn lift() {
        PLANTED.with(|planted| planted.set(false));
        FAILED.with(|failed| failed.set(false));
    }
}

loom::thread_local! {
    static PLANTED: Cell<bool> = Cell::new(false);
    static FAILED: Cell<bool> = Cell::new(false);
}

/// As shipped.
pub(crate) struct Sound;
impl Rule for Sound {}
/// Acquire and release only.
pub(crate) struct NoFence;
impl Rule for NoFence {
    const FENCES: bool = false;
}
/// Relaxed only.
pub(crate) struct NoOrder;
impl Rule for NoOrder {
    const FENCES: bool = false;
    const RELAXED: bool = true;
}
/// Updates that another CPU may come between.
pub(crate) struct Torn;
impl Rule for Torn {
    const TORN: bool = true;
}
/// A CPU that lowers hints and does not raise them after its second look.
pub(crate) struct Deaf;
impl Rule for Deaf {
    const DEAF: bool = true;
}
/// A CPU that does not look again after an undo.
pub(crate) struct Blind;
impl Rule for Blind {
    const BLIND: bool = true;
}

/// A CPU that does not count what it may put back.
pub(crate) struct NoTransit;
impl Rule for NoTransit {
    const COUNTED: bool = false;
}

/// A word under a rule.
pub(crate) struct Planted<R>(Word, PhantomData<fn() -> R>);

impl<R: Rule> Planted<R> {
    fn order(order: Ordering) -> Ordering {
        if R::RELAXED { Relaxed } else { order }
    }

    fn update(
        &self,
        order: Ordering,
        whole: impl Fn(Ordering) -> u64,
        new: impl Fn(u64) -> u64,
    ) -> u64 {
        let before = if R::TORN {
            let before = self.0.load(Acquire);
            self.0.store(new(before), Ordering::Release);
            before
        } else {
            whole(Self::order(order))
        };
        Self::fence(order);
        before
    }

    fn fence(order: Ordering) {
        if R::FENCES && order == SeqCst {
            fence(SeqCst);
        }
    }
}

impl<R: Rule> AtomicWord for Planted<R> {
    fn new(value: u64) -> Self {
        Self(Word::new(value), PhantomData)
    }
    fn load(&self, order: Ordering) -> u64 {
        if R::BLIND && FAILED.with(Cell::get) {
            return 0;
        }
        Self::fence(order);
        let order = if order == SeqCst { Acquire } else { order };
        self.0.load(Self::order(order))
    }
    fn store(&self, value: u64, order: Ordering) {
        self.0.store(value, Self::order(order));
    }
    fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
        if !R::COUNTED {
            return 0;
        }
        self.update(order, |order| self.0.fetch_add(value, order), |word| word.wrapping_add(value))
    }
    fn fetch_or(&self, mask: u64, order: Ordering) -> u64 {
        if R::DEAF && PLANTED.with(Cell::get) {
            return self.load(order);
        }
        self.update(order, |order| self.0.fetch_or(mask, order), |word| word | mask)
    }
    fn fetch_and(&self, mask: u64, order: Ordering) -> u64 {
        self.update(order, |order| self.0.fetch_and(mask, order), |word| word & mask)
    }
    fn swap(&self, value: u64, order: Ordering) -> u64 {
        self.update(order, |order| self.0.swap(value, order), |_| value)
    }
    fn compare_exchange(
        &self,
        current: u64,
        new: u64,
        success: Ordering,
        _: Ordering,
    ) -> Result<u64, u64> {
        let (order, failure) = (Self::order(success), Self::order(Acquire));
        let result = self.0.compare_exchange(current, new, order, failure);
        Self::fence(success);
        if R::BLIND && result.is_err() && PLANTED.with(Cell::get) {
            FAILED.with(|failed| failed.set(true));
        }
        result
    }
}

/// The map, and who last had each of its first frames.
pub(crate) struct World<R: Rule> {
    pub(crate) map: FreeMap<'static, LoomPlatform<Planted<R>>>,
    holders: [UnsafeCell<()>; 8],
}

impl<R: Rule> fmt::Debug for World<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("World")
    }
}

pub(crate) fn order(number: u8) -> Order {
    Order::new(number).expect("an order")
}

pub(crate) fn start() -> Start {
    Start::default()
}

impl<R: Rule> World<R> {
    /// A map of movable pageblocks of order `p`, none of them free.
    pub(crate) fn new(p: u8, pageblocks: u32) -> Rc<Self> {
        let shape = MapShape::new(order(p), pageblocks).expect("a shape");
        // A few words a run are leaked: what they stand for, loom frees.
        let words = |count| &*(0..count).map(|_| Planted::new(0)).collect::<Vec<_>>().leak();
        // Their type is movable from the beginning, to keep runs short.
        let movable = |_| Planted::new((MigrateType::Movable as u64) << 16);
        let memory = MapMemory {
            lines: words(shape.line_words()),
            sections: words(shape.section_words()),
            summaries: words(shape.summary_words()),
            types: (0..pageblocks).map(movable).collect::<Vec<_>>().leak(),
        };
        let tables = Box::new(MapTables::new(shape, memory).expect("it fits"));
        let map = Box::leak(tables).map();
        Rc::new(Self { map, holders: [(); 8].map(UnsafeCell::new) })
    }

    /// The caller has the frame: loom complains if another had it and did not happen before.
    pub(crate) fn own(&self, frame: u32) {
        self.holders[frame as usize].with_mut(|_| ());
    }

    pub(crate) fn free(&self, frame: u32, number: u8) {
        let freed = self.map.free_block(zonal::zone::free_map::Frame(frame), order(number));
        freed.expect("it was allocated");
    }

    /// Frees a pageblock but for some frames.
    pub(crate) fn free_all_but(&self, pageblock: u32, held: &[u32]) {
        let first = pageblock << self.map.shape().order().get();
        let frames = self.map.shape().pageblock_frames();
        for word in first / 64..(first + frames).div_ceil(64) {
            let inside = |frame: &u32| (first..first + frames).contains(frame);
            let free = (word * 64..word * 64 + 64).filter(inside);
            let mask = free.filter(|frame| !held.contains(frame)).map(|at| 1 << (at % 64)).sum();
            self.map.free_frames(WordIndex(word), mask).expect("nothing is free yet");
        }
    }

    /// Frames in a line, whether the pageblock is whole or not.
    pub(crate) fn line(&self, pageblock: u32) -> u32 {
        let whole = self.map.is_whole(Pageblock(pageblock));
        self.map.free_in(Pageblock(pageblock))
            - if whole { self.map.shape().pageblock_frames() } else { 0 }
    }
}

/// Takes all frames of a type that hints lead to.
pub(crate) fn refill<R: Rule>(world: &World<R>, migrate: MigrateType) -> Vec<u32> {
    let mut frames = Vec::new();
    world.map.harvest_lines(migrate, 8, start(), &mut |word, mut bits| {
        while bits != 0 {
            frames.push(word.first_frame().0 + bits.trailing_zeros());
            bits &= bits - 1;
        }
    });
    frames
}

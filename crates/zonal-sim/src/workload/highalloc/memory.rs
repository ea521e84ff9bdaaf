//! Who owns which page: what compaction moves and reclaim drops.

use crate::engine;
use crate::host::{Frames, Host};
use crate::lru::Lru;
use crate::mix::highalloc::{SCAN_SLABS, SWAP_CLUSTER};
use crate::platform::Sim;
use crate::sleeper::Sleeper;
use crate::task::{Pages, Work};
use core::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use zonal::platform::Platform;
use zonal::slow_path::Shortage;
use zonal::{Immovable, Migration};
use zonal::{Order, Pfn};

/// Orders above this are asked of reclaim once a request, as in Linux.
const COSTLY: u8 = 3;

/// Free frames above the high watermark with which compaction for `order` can work: twice the
/// block, as in Linux.
const fn room_for(order: Order) -> u64 {
    2 * order.frames()
}

/// No page.
const NONE: u32 = u32::MAX;

/// A block of slab objects.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slab {
    pub(super) pfn: Pfn,
    pub(super) order: Order,
    /// Whether an object in it is in use for good.
    pub(super) pinned: bool,
}

#[derive(Clone, Copy, Debug)]
struct Page {
    pfn: Pfn,
    /// On an LRU list, and no CPU is moving it.
    movable: bool,
}

/// Pages by number, which stays, and by frame, which does not.
#[derive(Debug)]
struct Tables {
    base: Pfn,
    by_frame: Vec<u32>,
    pages: Vec<Page>,
    unused: Vec<u32>,
    /// Numbers of cache pages, oldest first.
    cached: VecDeque<u32>,
    /// Oldest first.
    slabs: VecDeque<Slab>,
}

impl Tables {
    fn at(&mut self, pfn: Pfn) -> &mut u32 {
        &mut self.by_frame[(pfn.get() - self.base.get()) as usize]
    }

    fn insert(&mut self, pfn: Pfn, cached: bool) -> u32 {
        let page = Page { pfn, movable: false };
        let number = self.unused.pop().unwrap_or(self.pages.len() as u32);
        match self.pages.get_mut(number as usize) {
            Some(place) => *place = page,
            None => self.pages.push(page),
        }
        let before = core::mem::replace(self.at(pfn), number);
        assert_eq!(before, NONE, "the allocator handed out a frame that is in use");
        if cached {
            self.cached.push_back(number);
        }
        number
    }

    /// Takes out a page that no CPU is moving.
    fn remove(&mut self, number: u32) -> Option<Pfn> {
        let Page { pfn, movable } = self.pages[number as usize];
        if !movable {
            return None;
        }
        *self.at(pfn) = NONE;
        self.unused.push(number);
        Some(pfn)
    }

    /// The page in `from`, which is the caller's to move from now on.
    fn grab(&mut self, from: Pfn) -> Option<u32> {
        let number = *self.at(from);
        let page = self.pages.get_mut(number as usize)?;
        core::mem::replace(&mut page.movable, false).then_some(number)
    }

    fn relocate(&mut self, number: u32, to: Pfn) {
        let from = self.pages[number as usize].pfn;
        *self.at(from) = NONE;
        *self.at(to) = number;
        self.pages[number as usize] = Page { pfn: to, movable: true };
    }

    /// Takes out up to `wanted` of the oldest cache pages.
    fn oldest(&mut self, wanted: usize) -> Vec<Pfn> {
        let (mut dropped, mut busy) = (Vec::new(), Vec::new());
        while dropped.len() < wanted {
            let Some(number) = self.cached.pop_front() else { break };
            match self.remove(number) {
                Some(pfn) => dropped.push(pfn),
                None => busy.push(number),
            }
        }
        self.cached.extend(busy);
        dropped
    }

    /// Takes out what can be freed of the `looked_at` oldest slabs.
    fn oldest_slabs(&mut self, looked_at: usize) -> Vec<Slab> {
        let mut dropped = Vec::new();
        for _ in 0..looked_at {
            match self.slabs.pop_front() {
                Some(slab) if slab.pinned => self.slabs.push_back(slab),
                Some(slab) => dropped.push(slab),
                None => break,
            }
        }
        dropped
    }
}

/// Memory as the kernel beside the allocator knows it.
pub(super) struct Memory {
    tables: RefCell<Tables>,
    pages: Pages,
    work: Work,
    lru: Rc<Lru>,
    frames: u64,
    /// Frames that no task has, by this workload's own count.
    free: Cell<u64>,
    /// The high watermark, in frames.
    high: u64,
    /// Set when a zone fell below its low watermark.
    wanted: Cell<bool>,
    /// What background reclaim is to free beyond the high watermark: room for compaction.
    room: Cell<u64>,
    compact: Cell<bool>,
    over: Cell<bool>,
    threads: Sleeper,
    migrated: Cell<u64>,
    reclaimed: Cell<u64>,
}

impl Memory {
    pub(super) fn new(pages: Pages, work: Work, lru: Rc<Lru>, frames: u64, high: u64) -> Self {
        let tables = Tables {
            base: pages.base,
            by_frame: vec![NONE; pages.frames as usize],
            pages: Vec::new(),
            unused: Vec::new(),
            cached: VecDeque::new(),
            slabs: VecDeque::new(),
        };
        Self {
            tables: RefCell::new(tables),
            pages,
            work,
            lru,
            frames,
            free: Cell::new(frames),
            high,
            wanted: Cell::default(),
            room: Cell::default(),
            compact: Cell::default(),
            over: Cell::default(),
            threads: Sleeper::default(),
            migrated: Cell::default(),
            reclaimed: Cell::default(),
        }
    }

    pub(super) fn frames(&self) -> u64 {
        self.frames
    }

    pub(super) fn migrated(&self) -> u64 {
        self.migrated.get()
    }

    pub(super) fn reclaimed(&self) -> u64 {
        self.reclaimed.get()
    }

    pub(super) fn count_taken(&self, frames: u64) {
        self.free.set(self.free.get() - frames);
    }

    pub(super) fn count_given(&self, frames: u64) {
        self.free.set(self.free.get() + frames);
    }

    /// Enters a page; until it is [listed](Self::list) it stays where it is.
    pub(super) fn enter(&self, pfn: Pfn, cached: bool) -> u32 {
        self.tables.borrow_mut().insert(pfn, cached)
    }

    pub(super) fn enter_slab(&self, slab: Slab) {
        self.tables.borrow_mut().slabs.push_back(slab);
    }

    /// Puts entered pages on the LRU lists.
    pub(super) fn list(&self, numbers: &[u32]) {
        let frame = |number: &u32| self.tables.borrow().pages[*number as usize].pfn;
        let frames: Vec<_> = numbers.iter().map(frame).collect();
        self.lru.add(&self.pages, engine::cpu(), &frames);
        let mut tables = self.tables.borrow_mut();
        for number in numbers {
            tables.pages[*number as usize].movable = true;
        }
    }

    /// Takes a listed page out for its owner; waits while it is being moved.
    pub(super) fn leave(&self, number: u32) -> Pfn {
        loop {
            if let Some(pfn) = self.tables.borrow_mut().remove(number) {
                return pfn;
            }
            Sim::relax();
        }
    }

    /// Frees up to `wanted` of the oldest cache pages, and looks at a slab for every
    /// [`SCAN_SLABS`] of them. Returns the frames freed.
    fn shrink(&self, frames: &dyn Frames, wanted: usize) -> u64 {
        let (pages, slabs) = {
            let mut tables = self.tables.borrow_mut();
            (tables.oldest(wanted), tables.oldest_slabs(wanted.div_ceil(SCAN_SLABS)))
        };
        self.lru.delete(&self.pages, &pages);
        pages.iter().for_each(|_| self.work.charge_drop());
        frames.free(&pages);
        let mut freed = pages.len() as u64;
        for slab in slabs {
            self.work.charge_drop();
            frames.free_block(slab.pfn, slab.order);
            freed += slab.order.frames();
        }
        self.count_given(freed);
        self.reclaimed.set(self.reclaimed.get() + freed);
        freed
    }

    /// What background reclaim does when it was woken: frees up to the high watermark, and
    /// beyond it as far as compaction needs. Says whether it was.
    pub(super) fn balance(&self, frames: &dyn Frames) -> bool {
        if !self.wanted.take() {
            return false;
        }
        let target = self.high + self.room.take();
        while self.free.get() < target && self.shrink(frames, SWAP_CLUSTER) > 0 {}
        true
    }

    /// Whether compaction was woken since this was last asked.
    pub(super) fn wants_compaction(&self) -> bool {
        self.compact.take()
    }

    fn wake(&self) {
        self.wanted.set(true);
        self.threads.wake(self.work.wake);
    }

    /// The kernel's threads sleep until there is something to do.
    pub(super) fn sleep(&self) {
        self.threads.sleep();
    }

    /// Nothing more is asked for.
    pub(super) fn end(&self) {
        self.over.set(true);
        self.threads.wake(self.work.wake);
    }

    pub(super) fn is_over(&self) -> bool {
        self.over.get()
    }

    /// Frees the cache and the slabs, pinned ones too.
    pub(super) fn empty(&self, frames: &dyn Frames) {
        for slab in &mut self.tables.borrow_mut().slabs {
            slab.pinned = false;
        }
        while self.shrink(frames, SWAP_CLUSTER) > 0 {}
        let slabs = core::mem::take(&mut self.tables.borrow_mut().slabs);
        for slab in slabs {
            frames.free_block(slab.pfn, slab.order);
        }
    }
}

impl Host for Memory {
    fn wake_reclaim(&self) {
        self.wake();
    }

    fn reclaim(&self, frames: &dyn Frames, shortage: &Shortage) -> u64 {
        let order = shortage.request.order();
        if order.get() <= COSTLY {
            return self.shrink(frames, SWAP_CLUSTER);
        }
        let room = room_for(order);
        let short = (self.high + room).saturating_sub(self.free.get()).min(room);
        if shortage.attempt > 0 || short == 0 {
            return 0;
        }
        let chunks = short.div_ceil(SWAP_CLUSTER as u64);
        (0..chunks).map(|_| self.shrink(frames, SWAP_CLUSTER)).sum()
    }

    fn wake_compaction(&self, order: Order) {
        self.room.set(self.room.get().max(room_for(order)));
        self.compact.set(true);
        self.wake();
    }

    fn migrate(&self, page: &Migration) -> Result<(), Immovable> {
        if page.order != Order::ZERO {
            return Err(Immovable);
        }
        let number = self.tables.borrow_mut().grab(page.from).ok_or(Immovable)?;
        self.lru.delete(&self.pages, &[page.from]);
        self.work.charge_move();
        self.lru.add(&self.pages, engine::cpu(), &[page.to]);
        self.tables.borrow_mut().relocate(number, page.to);
        self.migrated.set(self.migrated.get() + 1);
        Ok(())
    }
}

//! A pager for tests: frames and blocks with known contents, which it gives up and moves, or
//! misbehaves.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::collections::BTreeMap;
use std::slice;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use zonal::policy::Sound;
use zonal::slow_path::Shortage;
use zonal::units::FRAME_SIZE;
use zonal::{FreeError, MigrateType, Order, Pfn, Request, ZoneId};
use zonal::{Immovable, Migration};
use zonal_host::pager::{FreeFrames, copy_block};
use zonal_host::{Arena, Pager};

/// How it answers when it is asked to move a page or to give pages up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Manner {
    /// As it should.
    Good,
    Refuses,
    /// Says that it moved the page or gave pages up, and has done nothing.
    Lies,
    /// Frees the old block and says that it moved it.
    FreesTheOld,
    /// Frees the new block and says that the page stays.
    FreesTheNew,
    Panics,
    /// Does not return before it is released.
    Waits,
    /// Asks the arena for a huge page first.
    Asks,
}

const MANNERS: [Manner; 8] = [
    Manner::Good,
    Manner::Refuses,
    Manner::Lies,
    Manner::FreesTheOld,
    Manner::FreesTheNew,
    Manner::Panics,
    Manner::Waits,
    Manner::Asks,
];

/// A block on the shelf.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Item {
    pub(crate) order: Order,
    pub(crate) stamp: u8,
}

pub(crate) struct Shelf<S: Sound + 'static> {
    items: Mutex<BTreeMap<Pfn, Item>>,
    arena: OnceLock<Weak<Arena<S>>>,
    moving: AtomicU8,
    giving: AtomicU8,
    /// Waiting callers, and whether they are released.
    waiting: Mutex<(u32, bool)>,
    changed: Condvar,
    pub(crate) moved: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) reclaims: AtomicU32,
    /// The number of the attempt in which it was asked last.
    pub(crate) attempt: AtomicU32,
    pub(crate) given_up: AtomicU64,
    pub(crate) wakes: AtomicU32,
    /// Requests made from inside, and how many of them were served.
    pub(crate) asked: AtomicU32,
    pub(crate) served: AtomicU32,
}

pub(crate) fn movable(order: Order) -> Request {
    Request::new(order).migrate(MigrateType::Movable)
}

impl<S: Sound + 'static> Shelf<S> {
    /// A shelf, and an arena of `bytes` with it behind.
    pub(crate) fn open(bytes: usize) -> (Arc<Arena<S>>, Arc<Self>)
    where
        Arena<S>: Send + Sync,
    {
        let shelf = Arc::new(Self {
            items: Mutex::default(),
            arena: OnceLock::new(),
            moving: AtomicU8::new(Manner::Good as u8),
            giving: AtomicU8::new(Manner::Refuses as u8),
            waiting: Mutex::default(),
            changed: Condvar::new(),
            moved: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            reclaims: AtomicU32::new(0),
            attempt: AtomicU32::new(0),
            given_up: AtomicU64::new(0),
            wakes: AtomicU32::new(0),
            asked: AtomicU32::new(0),
            served: AtomicU32::new(0),
        });
        let arena = Arena::builder().bytes(bytes).cpus(2).owners(1).pager(shelf.clone());
        let arena = Arc::new(arena.preset::<S>().open().unwrap());
        shelf.arena.set(Arc::downgrade(&arena)).unwrap();
        (arena, shelf)
    }

    /// One in which every other frame is free and no larger block is.
    pub(crate) fn broken_up(bytes: usize) -> (Arc<Arena<S>>, Arc<Self>)
    where
        Arena<S>: Send + Sync,
    {
        let (arena, shelf) = Self::open(bytes);
        while shelf.put(Order::ZERO, 7) {}
        for pfn in shelf.pfns() {
            if pfn.get() % 2 == 1 {
                shelf.take(pfn).unwrap();
            } else {
                shelf.stamp(pfn, (pfn.get() / 2) as u8);
            }
        }
        arena.drain();
        let zone = arena.zone_info(ZoneId(0)).unwrap();
        assert_eq!((zone.free, zone.cached), (zone.managed / 2, 0));
        assert!(zone.blocks[1..].iter().flatten().all(|&blocks| blocks == 0));
        (arena, shelf)
    }

    pub(crate) fn moves(&self, manner: Manner) {
        self.moving.store(manner as u8, SeqCst);
    }

    pub(crate) fn gives(&self, manner: Manner) {
        self.giving.store(manner as u8, SeqCst);
    }

    fn arena(&self) -> Arc<Arena<S>> {
        self.arena.get().and_then(Weak::upgrade).expect("the arena is there")
    }

    pub(crate) fn items(&self) -> MutexGuard<'_, BTreeMap<Pfn, Item>> {
        self.items.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn pfns(&self) -> Vec<Pfn> {
        self.items().keys().copied().collect()
    }

    /// Allocates a block and keeps it; `false` if there is none without asking the pager.
    pub(crate) fn put(&self, order: Order, stamp: u8) -> bool {
        let Ok(pfn) = self.arena().alloc_raw(&movable(order).no_wait()) else { return false };
        let item = Item { order, stamp };
        let mut items = self.items();
        let old = items.insert(pfn, item);
        assert_eq!(old, None, "{pfn} was handed out twice");
        self.fill(pfn, item);
        true
    }

    fn stamp(&self, pfn: Pfn, stamp: u8) {
        let mut items = self.items();
        let item = items.get_mut(&pfn).unwrap();
        item.stamp = stamp;
        self.fill(pfn, *item);
    }

    /// With the items locked.
    fn fill(&self, pfn: Pfn, item: Item) {
        let start = self.arena().address_of(pfn).unwrap();
        // SAFETY: the block is on the shelf, and used under the lock only, which is held.
        unsafe { start.write_bytes(item.stamp, item.order.bytes()) };
    }

    /// Frees a block of the shelf.
    pub(crate) fn take(&self, pfn: Pfn) -> Result<(), FreeError> {
        let item = self.items().remove(&pfn).expect("it is on the shelf");
        // SAFETY: it was on the shelf, and is not any more.
        unsafe { self.arena().free_raw(pfn, item.order) }
    }

    /// Frees some block of the shelf, if it holds more than `floor`.
    pub(crate) fn take_any(&self, random: u64, floor: usize) {
        let mut items = self.items();
        let from = items.len() as u64;
        if items.len() <= floor {
            return;
        }
        let first = items.first_key_value().map_or(0, |(pfn, _)| pfn.get());
        let start = Pfn::new(first + random % (2 * from));
        let Some((&pfn, &item)) = items.range(start..).next() else { return };
        items.remove(&pfn);
        drop(items);
        // SAFETY: it was on the shelf, and is not any more.
        unsafe { self.arena().free_raw(pfn, item.order) }.unwrap();
    }

    /// Whether everything on the shelf is as it was put there.
    pub(crate) fn is_intact(&self) -> bool {
        let arena = self.arena();
        self.items().iter().all(|(&pfn, item)| {
            let start = arena.address_of(pfn).unwrap();
            // SAFETY: the block is on the shelf, and used under the lock only.
            let bytes = unsafe { slice::from_raw_parts(start.as_ptr(), item.order.bytes()) };
            bytes.iter().all(|&byte| byte == item.stamp)
        })
    }

    /// Frees all of it and checks that nothing is missing from the arena but `lost` frames.
    pub(crate) fn clear(&self, lost: u64) {
        self.pfns().into_iter().for_each(|pfn| self.take(pfn).unwrap());
        let arena = self.arena();
        arena.drain();
        let zone = arena.zone_info(ZoneId(0)).unwrap();
        assert_eq!((zone.free, zone.cached), (zone.managed - lost, 0));
        assert_eq!(zone.managed, (arena.len() / FRAME_SIZE) as u64);
    }

    /// Other threads than one that waits inside find, take and put as ever.
    pub(crate) fn goes_on(&self) {
        for pfn in self.pfns().into_iter().step_by(3) {
            self.take(pfn).unwrap();
            assert!(self.put(Order::ZERO, 9));
        }
        assert!(self.is_intact());
    }

    /// Puts blocks and takes blocks until it is told to stop.
    pub(crate) fn comes_and_goes(&self, seed: u64, stop: &AtomicBool) {
        let mut random = seed + 1;
        let mut next = || {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            random
        };
        while !stop.load(SeqCst) {
            let random = next();
            let order = Order::new((random >> 60) as u8 % 3).unwrap();
            if self.put(order, (random >> 40) as u8) {
                // Never so few that a huge page might be free without a move.
                self.take_any(random >> 33, 3600);
            } else {
                // All is full: room in many places, or what is wanted is given up and never moved.
                (0..500).for_each(|_| self.take_any(next() >> 33, 600));
            }
        }
    }

    /// Waits until a thread waits inside.
    pub(crate) fn await_waiting(&self) {
        self.await_all_waiting(1);
    }

    /// Waits until that many threads wait inside.
    pub(crate) fn await_all_waiting(&self, threads: u32) {
        let waiting = self.waiting.lock().unwrap();
        drop(self.changed.wait_while(waiting, |(waiting, _)| *waiting < threads).unwrap());
    }

    /// Lets all who wait inside go on, and be refused.
    pub(crate) fn release(&self) {
        self.waiting.lock().unwrap().1 = true;
        self.changed.notify_all();
    }

    fn wait(&self) {
        let mut waiting = self.waiting.lock().unwrap();
        waiting.0 += 1;
        self.changed.notify_all();
        drop(self.changed.wait_while(waiting, |(_, released)| !*released).unwrap());
    }

    fn ask(&self) {
        self.asked.fetch_add(1, SeqCst);
        let served = self.arena().alloc(&movable(Order::HUGE)).is_ok();
        self.served.fetch_add(u32::from(served), SeqCst);
    }

    fn free_now(&self, pfn: Pfn, order: Order) {
        // SAFETY: against the contract of `Pager`, but there are no references into the block.
        unsafe { self.arena().free_raw(pfn, order) }.unwrap();
    }
}

// SAFETY: `migrate` says `Ok` for blocks on the shelf only, under the lock without which no thread
// uses or frees them. Three manners break the contract, which is what they are for: the tests
// that use them have no pages and no references into blocks.
unsafe impl<S: Sound + 'static> Pager for Shelf<S>
where
    Arena<S>: Send + Sync,
{
    fn reclaim(&self, frames: &dyn FreeFrames, shortage: &Shortage) -> u64 {
        self.reclaims.fetch_add(1, SeqCst);
        self.attempt.store(shortage.attempt, SeqCst);
        match MANNERS[self.giving.load(SeqCst) as usize] {
            Manner::Good => {}
            Manner::Lies => return u64::MAX,
            Manner::Panics => panic!("it does not reclaim"),
            Manner::Waits => {
                self.wait();
                return 0;
            }
            Manner::Asks => self.ask(),
            _ => return 0,
        }
        let mut freed = 0;
        let mut items = self.items();
        while freed < shortage.request.order().frames()
            && let Some((pfn, item)) = items.pop_first()
        {
            // SAFETY: it was on the shelf, and is not any more.
            unsafe { frames.free_raw(pfn, item.order) }.unwrap();
            freed += item.order.frames();
        }
        self.given_up.fetch_add(freed, SeqCst);
        freed
    }

    unsafe fn migrate(&self, page: &Migration) -> Result<(), Immovable> {
        let mut items = self.items();
        let found = items.get(&page.from).copied().filter(|item| item.order == page.order);
        let manner = MANNERS[self.moving.load(SeqCst) as usize];
        let Some(item) = found.filter(|_| manner != Manner::Refuses) else {
            self.refused.fetch_add(1, SeqCst);
            return Err(Immovable);
        };
        match manner {
            Manner::Lies => {
                self.moved.fetch_add(1, SeqCst);
                return Ok(());
            }
            Manner::Panics => panic!("it does not move"),
            Manner::Waits => {
                drop(items);
                self.wait();
                return Err(Immovable);
            }
            Manner::Asks => {
                drop(items);
                self.ask();
                items = self.items();
                if items.get(&page.from) != Some(&item) {
                    return Err(Immovable);
                }
            }
            _ => {}
        }
        // SAFETY: both are blocks of the arena; the one is on the shelf, which we have locked,
        // the other ours alone by the contract of `migrate`.
        unsafe { copy_block(page.from, page.to, page.order) };
        self.moved.fetch_add(1, SeqCst);
        if manner == Manner::FreesTheNew {
            self.free_now(page.to, page.order);
            return Err(Immovable);
        }
        items.remove(&page.from);
        items.insert(page.to, item);
        if manner == Manner::FreesTheOld {
            self.free_now(page.from, page.order);
        }
        Ok(())
    }

    fn wake_compaction(&self, _: ZoneId, _: Order) {
        self.wakes.fetch_add(1, SeqCst);
    }
}

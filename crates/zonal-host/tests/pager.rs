//! What comes of a request when a pager helps, refuses, lies, panics, or never answers.

use crate::shelf::{Manner, Shelf, movable};
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};
use zonal::compact::{CompactEvents, CompactOutcome};
use zonal::error::FreeError;
use zonal::policy::{Compact, Sound};
use zonal::preset::{Cluster, ClusterFree, Linux416, SkipMerge, Zonal};
use zonal::slow_path::Shortage;
use zonal::watermark::WatermarkConfig;
use zonal::{Host, Immovable, Migration};
use zonal::{Order, Pfn, Request, ZoneId};
use zonal_host::pager::{FreeFrames, copy_block};
use zonal_host::region::GiveBack;
use zonal_host::{Arena, Page, Pager};

const MIB: usize = 1 << 20;

fn events<S: Sound>(arena: &Arena<S>) -> CompactEvents {
    arena.zone_info(ZoneId(0)).unwrap().compaction
}

/// A request that the pager's panic ends.
fn panics<R>(request: impl FnOnce() -> R) -> bool {
    panic::catch_unwind(AssertUnwindSafe(request)).is_err()
}

// Reclaim.

fn reclaim_serves<S: Sound>()
where
    Arena<S>: Send + Sync,
{
    let (arena, shelf) = Shelf::<S>::open(8 * MIB);
    while shelf.put(Order::ZERO, 0xaa) {}
    assert_eq!(shelf.reclaims.load(SeqCst), 0, "no_wait does not get there");
    assert!(arena.alloc(&Request::frame()).is_err());
    assert_eq!(shelf.reclaims.load(SeqCst), 1, "nothing was given up, so that was it");

    shelf.gives(Manner::Good);
    let page = arena.alloc(&movable(Order::ZERO).zero()).unwrap();
    assert!(page.iter().all(|&byte| byte == 0));
    let mut handle = arena.handle().ok();
    let owned = handle.as_mut().map(|handle| handle.alloc(&Request::frame().zero()).unwrap());
    assert!(owned.iter().flat_map(|page| page.iter()).all(|&byte| byte == 0));
    let pages = 1 + u64::from(owned.is_some());
    assert_eq!(shelf.given_up.load(SeqCst), pages);
    assert_eq!(shelf.pfns().len() as u64, 2048 - pages);
    assert!(shelf.is_intact());

    // The lowest frames go first, so whole blocks come free.
    let huge = arena.alloc(&movable(Order::HUGE).zero()).unwrap();
    assert!(huge.iter().all(|&byte| byte == 0) && shelf.is_intact());
    drop((page, owned, huge, handle));
    shelf.clear(0);
}

fn reclaim_lies<S: Sound>()
where
    Arena<S>: Send + Sync,
{
    let (arena, shelf) = Shelf::<S>::open(8 * MIB);
    while shelf.put(Order::ZERO, 1) {}
    shelf.gives(Manner::Lies);
    assert!(arena.alloc(&Request::frame()).is_err());
    assert_eq!(shelf.reclaims.load(SeqCst), 16);
    assert!(shelf.is_intact());
    shelf.clear(0);
}

fn reclaim_panics<S: Sound>()
where
    Arena<S>: Send + Sync,
{
    let (arena, shelf) = Shelf::<S>::open(8 * MIB);
    while shelf.put(Order::ZERO, 1) {}
    shelf.gives(Manner::Panics);
    assert!(panics(|| arena.alloc(&Request::frame()).is_ok()));
    assert!(
        panics(|| arena.handle().map(|mut owner| owner.alloc(&Request::frame()).is_ok()).ok())
            || arena.handle().is_err()
    );
    shelf.gives(Manner::Good);
    assert!(arena.alloc(&Request::frame()).is_ok(), "the thread is not taken to be inside");
    shelf.clear(0);
}

/// While the pager keeps one request, everybody else is served.
fn reclaim_waits<S: Sound>()
where
    Arena<S>: Send + Sync,
{
    let (arena, shelf) = Shelf::<S>::open(8 * MIB);
    while shelf.put(Order::ZERO, 1) {}
    shelf.gives(Manner::Waits);
    thread::scope(|scope| {
        let kept = scope.spawn(|| arena.alloc(&Request::frame()).is_ok());
        shelf.await_waiting();
        shelf.goes_on();
        // What they freed is there now, but the pager said that there is none.
        shelf.release();
        assert!(!kept.join().unwrap());
    });
    shelf.clear(0);
}

fn reclaim_asks<S: Sound>()
where
    Arena<S>: Send + Sync,
{
    let (arena, shelf) = Shelf::<S>::open(8 * MIB);
    while shelf.put(Order::ZERO, 1) {}
    shelf.gives(Manner::Asks);
    assert!(arena.alloc(&Request::frame()).is_ok());
    let counts = [&shelf.reclaims, &shelf.asked, &shelf.served].map(|count| count.load(SeqCst));
    assert_eq!(counts, [1, 1, 0], "from inside there is no pager");
    shelf.clear(0);
}

// Migration.

fn migration_serves<S: Sound>()
where
    Arena<S>: Send + Sync,
{
    let (arena, shelf) = Shelf::<S>::broken_up(16 * MIB);
    assert!(arena.alloc(&movable(Order::HUGE).no_wait()).is_err(), "no_wait gets no pager");
    assert_eq!(shelf.moved.load(SeqCst), 0);
    let pages: Vec<Page<'_, S>> =
        (0..2).map(|_| arena.alloc(&movable(Order::HUGE).zero()).unwrap()).collect();
    assert!(pages.iter().all(|page| page.iter().all(|&byte| byte == 0)));
    assert!(shelf.is_intact(), "what was moved is as it was");
    let moved = shelf.moved.load(SeqCst);
    assert!(moved >= 512, "{moved} pages moved for two blocks that were half full");
    let events = events(&arena);
    assert_eq!((events.migrate_success, events.migrate_mismatches), (moved, 0));
    assert!(shelf.wakes.load(SeqCst) > 0);
    drop(pages);
    shelf.clear(0);
}

fn migration_refuses<S: Sound>()
where
    Arena<S>: Send + Sync,
{
    let (arena, shelf) = Shelf::<S>::broken_up(16 * MIB);
    let before = shelf.items().clone();
    shelf.moves(Manner::Refuses);
    assert!(arena.alloc(&movable(Order::HUGE)).is_err());
    let refused = shelf.refused.load(SeqCst);
    assert!(refused > 0 && refused == events(&arena).migrate_fail);
    assert_eq!(*shelf.items(), before);
    assert!(shelf.is_intact());
    shelf.clear(0);
}

/// It says that it moved pages that it did not move. What it was told to use is lost, what it
/// goes on using is not its own; the allocator's books are right all the same.
fn migration_lies<S: Sound>()
where
    Arena<S>: Send + Sync,
{
    let (arena, shelf) = Shelf::<S>::broken_up(16 * MIB);
    shelf.moves(Manner::Lies);
    let block = arena.alloc_raw(&movable(Order::HUGE)).unwrap();
    let lost = shelf.moved.load(SeqCst);
    assert!(lost > 0);
    let inside = |pfn: Pfn| (block.get()..block.get() + 512).contains(&pfn.get());
    let mut refused = 0;
    for pfn in shelf.pfns() {
        let lied = inside(pfn);
        match shelf.take(pfn) {
            Ok(()) => assert!(!lied, "{pfn} is in the block"),
            Err(error) => {
                refused += 1;
                let head = matches!(error, FreeError::WrongOrder { .. }) && pfn == block;
                let inner = matches!(error, FreeError::Inner { head, .. } if head == block);
                let free = matches!(error, FreeError::DoubleFree { .. });
                assert!(head || inner || (free && !lied), "{pfn}: {error}");
            }
        }
    }
    assert_eq!(refused, lost, "one wrong free for each lie");
    // SAFETY: allocated above, without references into it.
    unsafe { arena.free_raw(block, Order::HUGE) }.unwrap();
    shelf.clear(lost);
}

/// It frees a block that is the arena's, or gives back what it was given and denies it: the
/// arena notices, counts it, and frees nothing twice.
fn migration_frees<S: Sound>(manner: Manner)
where
    Arena<S>: Send + Sync,
{
    let (arena, shelf) = Shelf::<S>::broken_up(16 * MIB);
    shelf.moves(manner);
    let page = arena.alloc(&movable(Order::HUGE));
    let moved = shelf.moved.load(SeqCst);
    assert!(moved > 0);
    // A frame that went to a CPU's cache is "cached", as good as free; so each was noticed.
    assert_eq!(events(&arena).migrate_mismatches, moved);
    assert!(shelf.is_intact());
    drop(page);
    shelf.clear(0);
}

fn migration_panics<S: Sound>()
where
    Arena<S>: Send + Sync,
{
    let (arena, shelf) = Shelf::<S>::broken_up(16 * MIB);
    let before = shelf.items().clone();
    shelf.moves(Manner::Panics);
    assert!(panics(|| arena.alloc(&movable(Order::HUGE)).is_ok()));
    assert_eq!(*shelf.items(), before);
    assert_eq!(events(&arena).migrate_mismatches, 0);
    // Nothing is left behind that would keep others out.
    shelf.moves(Manner::Good);
    let page = arena.alloc(&movable(Order::HUGE)).unwrap();
    assert!(shelf.is_intact());
    drop(page);
    shelf.clear(0);
}

fn migration_waits<S: Sound>()
where
    Arena<S>: Send + Sync,
{
    let (arena, shelf) = Shelf::<S>::broken_up(16 * MIB);
    shelf.moves(Manner::Waits);
    thread::scope(|scope| {
        let kept = scope.spawn(|| arena.alloc(&movable(Order::HUGE)).is_ok());
        shelf.await_waiting();
        shelf.goes_on();
        if S::Compact::SIDE_BY_SIDE {
            let arena = &arena;
            scope.spawn(|| assert_ne!(arena.compact(Order::HUGE), CompactOutcome::Contended));
            shelf.await_all_waiting(2);
        } else {
            // One at a time; who comes second waits for a while and does without.
            assert!(arena.alloc(&movable(Order::HUGE)).is_err());
            assert_eq!(arena.compact(Order::HUGE), CompactOutcome::Contended);
        }
        arena.drain();
        assert!(arena.give_back(8, GiveBack::Now).is_ok());
        shelf.moves(Manner::Refuses);
        shelf.release();
        assert!(!kept.join().unwrap());
    });
    shelf.clear(0);
}

fn migration_asks<S: Sound>()
where
    Arena<S>: Send + Sync,
{
    let (arena, shelf) = Shelf::<S>::broken_up(16 * MIB);
    shelf.moves(Manner::Asks);
    let page = arena.alloc(&movable(Order::HUGE)).unwrap();
    assert!(shelf.asked.load(SeqCst) > 0);
    assert_eq!(shelf.served.load(SeqCst), 0, "from inside there is no pager");
    drop(page);
    shelf.clear(0);
}

/// Pages stay where they are, whatever the pager moves around them.
fn pages_stay<S: Sound>()
where
    Arena<S>: Send + Sync,
{
    let (arena, shelf) = Shelf::<S>::broken_up(16 * MIB);
    // One in each pageblock but the first.
    let mut pages: Vec<Page<'_, S>> = Vec::new();
    while let Ok(page) = arena.alloc(&movable(Order::ZERO).no_wait()) {
        pages.push(page);
    }
    pages.sort_unstable_by_key(Page::pfn);
    let first = pages[0].pfn().get() / 512;
    pages.retain(|page| page.pfn().get() % 512 == 33 && page.pfn().get() / 512 != first);
    pages.iter_mut().for_each(|page| page.fill(0x5a));
    arena.drain();
    assert_eq!(pages.len(), 7);

    let huge = arena.alloc(&movable(Order::HUGE)).expect("one pageblock has no page in it");
    assert_eq!(huge.pfn().get() / 512, first);
    assert!(arena.alloc(&movable(Order::HUGE)).is_err(), "all others have");
    assert!(pages.iter().all(|page| page.iter().all(|&byte| byte == 0x5a)));
    assert!(shelf.is_intact());
    drop((pages, huge));
    shelf.clear(0);
}

/// Blocks come and go, are given up and moved, all at once.
fn everything_at_once<S: Sound>()
where
    Arena<S>: Send + Sync,
{
    let (arena, shelf) = Shelf::<S>::broken_up(32 * MIB);
    shelf.gives(Manner::Good);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for seed in 0..2_u64 {
            let (shelf, stop) = (&shelf, &stop);
            scope.spawn(move || shelf.comes_and_goes(seed, stop));
        }
        // On a busy machine the others may not run while no pages are held, and put nothing in the way: then
        // they are waited for.
        let limit = Instant::now() + Duration::from_secs(60);
        for round in 0_u32.. {
            if round >= 40 && (shelf.moved.load(SeqCst) > 0 || Instant::now() > limit) {
                break;
            }
            let stamp = round as u8;
            let mut pages: Vec<_> =
                (0..6).filter_map(|_| arena.alloc(&movable(Order::HUGE)).ok()).collect();
            pages.iter_mut().for_each(|page| page.fill(stamp));
            thread::yield_now();
            assert!(pages.iter().all(|page| page.iter().all(|&byte| byte == stamp)));
            drop(pages);
            if round >= 40 {
                thread::sleep(Duration::from_millis(1));
            }
        }
        stop.store(true, SeqCst);
    });
    assert!(shelf.is_intact());
    assert!(shelf.moved.load(SeqCst) > 0, "nothing was ever in the way");
    assert_eq!(events(&arena).migrate_mismatches, 0);
    shelf.clear(0);
}

fn migration_frees_the_old<S: Sound>()
where
    Arena<S>: Send + Sync,
{
    migration_frees::<S>(Manner::FreesTheOld);
}

fn migration_frees_the_new<S: Sound>()
where
    Arena<S>: Send + Sync,
{
    migration_frees::<S>(Manner::FreesTheNew);
}

macro_rules! suite {
    ($preset:ty: $($test:ident)*) => {
        $(#[test]
        fn $test() {
            super::$test::<$preset>();
        })*
    };
}
macro_rules! suites {
    ($($module:ident: $preset:ty,)*) => {
        $(mod $module {
            use super::*;
            suite! {
                $preset:
                reclaim_serves reclaim_lies reclaim_panics reclaim_waits reclaim_asks
                migration_serves migration_refuses migration_lies migration_frees_the_old
                migration_frees_the_new migration_panics migration_waits migration_asks
                pages_stay everything_at_once
            }
        })*
    };
}
suites! {
    on_linux416: Linux416,
    on_skip_merge: SkipMerge,
    on_cluster: Cluster,
    on_cluster_free: ClusterFree,
    on_zonal: Zonal,
}

// What does not depend on the preset.

/// Says what it was told, and does nothing: every method but one is the default.
#[derive(Default)]
struct Listener(AtomicBool);

// SAFETY: it moves nothing.
unsafe impl Pager for Listener {
    fn wake_reclaim(&self, zone: ZoneId) {
        assert_eq!(zone, ZoneId(0));
        self.0.store(true, SeqCst);
    }
}

#[test]
fn low_memory_is_told() {
    let pager = Arc::new(Listener::default());
    let arena = Arena::builder()
        .bytes(16 * MIB)
        .watermarks(WatermarkConfig::default())
        .pager(pager.clone());
    let arena = arena.open().unwrap();
    let mut pages = vec![arena.alloc(&Request::frame()).unwrap()];
    assert!(!pager.0.load(SeqCst));
    while let Ok(page) = arena.alloc(&Request::frame()) {
        pages.push(page);
    }
    assert!(pager.0.load(SeqCst));
    assert!(arena.alloc(&movable(Order::HUGE)).is_err(), "by default it moves nothing");
    assert_eq!(arena.compact(Order::HUGE), CompactOutcome::NotSuitable);
}

/// Takes one frame of another arena and offers it to every arena that asks.
struct Mistaken(Pfn);

// SAFETY: it moves nothing.
unsafe impl Pager for Mistaken {
    fn reclaim(&self, frames: &dyn FreeFrames, _: &Shortage) -> u64 {
        // SAFETY: the frame is ours, without references into it.
        let freed = unsafe { frames.free_raw(self.0, Order::ZERO) };
        assert_eq!(freed, Err(FreeError::Foreign { pfn: self.0 }));
        0
    }
}

#[test]
fn frames_of_another_arena_are_refused() {
    let other = Arena::builder().bytes(4 * MIB).open().unwrap();
    let pfn = other.alloc_raw(&Request::frame()).unwrap();
    let arena = Arena::builder().bytes(4 * MIB).pager(Arc::new(Mistaken(pfn))).open().unwrap();
    let all: Vec<_> = std::iter::from_fn(|| arena.alloc(&Request::frame()).ok()).collect();
    assert_eq!(all.len(), 1024);
    // SAFETY: still ours; an arena frees as well as an allocator does.
    unsafe { FreeFrames::free_raw(&other, pfn, Order::ZERO) }.unwrap();
}

#[test]
fn blocks_are_copied_whole() {
    let arena = Arena::builder().bytes(8 * MIB).open().unwrap();
    for order in Order::all().step_by(3) {
        let mut from = arena.alloc(&Request::new(order)).unwrap();
        from.iter_mut().enumerate().for_each(|(at, byte)| *byte = ((at * 7) >> 3) as u8);
        let to = arena.alloc(&Request::new(order).zero()).unwrap().into_raw();
        // SAFETY: two blocks of the order, ours both, without references into the second.
        unsafe { copy_block(from.pfn(), to.0, order) };
        // SAFETY: given up above.
        assert!(*unsafe { arena.page_from_raw(to.0, order) } == *from, "order {order}");
    }
}

/// A give-back in progress is waited for before the pager is asked.
#[test]
fn the_gate_comes_first() {
    let (arena, shelf) = Shelf::<Zonal>::open(8 * MIB);
    shelf.gives(Manner::Good);
    assert!(arena.give_back(8, GiveBack::Now).is_ok());
    while shelf.put(Order::ZERO, 3) {}
    assert!(arena.alloc(&Request::frame()).is_ok());
    let asked = (shelf.reclaims.load(SeqCst), shelf.attempt.load(SeqCst));
    assert_eq!(asked, (1, 1), "first it looks again, because of the gate");
    assert_eq!(shelf.given_up.load(SeqCst), 1);
    shelf.clear(0);
}

/// Between the look of the allocator and the call a block may have been freed, and its first frame
/// allocated as another order's.
#[test]
fn a_page_whose_order_has_changed_is_not_asked_for() {
    let (arena, shelf) = Shelf::<Zonal>::open(16 * MIB);
    let huge = Order::HUGE;
    assert!(shelf.put(huge, 1));
    let from = shelf.pfns()[0];
    let to = arena.alloc(&movable(huge)).unwrap();
    let migrate = |to, order| {
        // SAFETY: as the allocator does it: `to` is allocated with the order, and ours.
        let allocator = unsafe { arena.allocator() };
        let page = Migration { from, to, order, may_wait: true };
        allocator.platform().migrate(allocator, &page)
    };
    let asked = || shelf.refused.load(SeqCst) + shelf.moved.load(SeqCst);
    for order in [Order::ZERO, Order::MAX] {
        assert_eq!(migrate(to.pfn(), order), Err(Immovable), "it has order {huge}");
    }
    assert_eq!(asked(), 0, "the pager may not know better");
    let (to, _) = to.into_raw();
    assert_eq!(migrate(to, huge), Ok(()));
    assert_eq!(asked(), 1);
    assert_eq!(shelf.pfns(), [to]);
    // SAFETY: the pager has given it up for `to`.
    unsafe { arena.free_raw(from, huge) }.unwrap();
    arena.drain();
    assert_eq!(migrate(from, huge), Err(Immovable), "free");
    assert_eq!(asked(), 1);
    shelf.clear(0);
}

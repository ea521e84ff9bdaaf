//! The background compactor: woken, by itself, refused, stopped.

use crate::shelf::{Manner, Shelf, movable};
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use zonal::compact::CompactOutcome;
use zonal::policy::Sound;
use zonal::preset::{Linux416, Zonal};
use zonal::{Immovable, Migration};
use zonal::{MigrateType, Order, ZoneId};
use zonal_host::compactor::{Compactor, Done, Settings, StartError};
use zonal_host::{Arena, Pager};

const MIB: usize = 1 << 20;
const ASLEEP: Settings = Settings { idle: None, order: Order::HUGE };

/// Waits for something that is to happen soon.
fn soon(what: &str, mut happened: impl FnMut() -> bool) {
    let start = Instant::now();
    while !happened() {
        assert!(start.elapsed() < Duration::from_secs(20), "{what} has not happened");
        thread::sleep(Duration::from_millis(1));
    }
}

fn huge_blocks<S: Sound>(arena: &Arena<S>) -> u32 {
    let zone = arena.zone_info(ZoneId(0)).unwrap();
    zone.blocks[9][MigrateType::Movable.index()] + 2 * zone.blocks[10][MigrateType::Movable.index()]
}

/// A request that may not wait leaves word, and fails unless the thread is quick; one of the next
/// finds its block made.
fn woken_by_a_request<S: Sound + 'static>()
where
    Arena<S>: Send + Sync,
{
    let (arena, shelf) = Shelf::<S>::broken_up(16 * MIB);
    let compactor = Compactor::start(arena.clone(), ASLEEP).unwrap();
    soon("a block", || arena.alloc(&movable(Order::HUGE).no_wait()).is_ok());
    let done = compactor.stop();
    assert!(done.wakes > 0 && done.blocks > 0, "{done:?}");
    assert_eq!((done.looks, done.panics), (0, 0));
    assert!(shelf.moved.load(SeqCst) > 0 && shelf.is_intact());
    shelf.clear(0);
}

#[test]
fn woken_by_a_request_linux416() {
    woken_by_a_request::<Linux416>();
}

#[test]
fn woken_by_a_request_zonal() {
    woken_by_a_request::<Zonal>();
}

#[test]
fn looks_by_itself() {
    let (arena, shelf) = Shelf::<Zonal>::broken_up(16 * MIB);
    let settings = Settings { idle: Some(Duration::from_millis(2)), order: Order::HUGE };
    let compactor = Compactor::start(arena.clone(), settings).unwrap();
    // Of 2048 free frames half are in such blocks then.
    soon("two blocks", || huge_blocks(&arena) >= 2);
    soon("rest", || {
        let before = compactor.done();
        thread::sleep(Duration::from_millis(20));
        let after = compactor.done();
        after.blocks == before.blocks && after.looks > before.looks
    });
    let Done { wakes, blocks, .. } = compactor.stop();
    assert_eq!((wakes, blocks), (0, u64::from(huge_blocks(&arena))));
    assert!(shelf.is_intact());
    shelf.clear(0);
}

#[test]
fn sleeps_if_told_to() {
    let (arena, shelf) = Shelf::<Zonal>::broken_up(16 * MIB);
    let compactor = Compactor::start(arena.clone(), ASLEEP).unwrap();
    thread::sleep(Duration::from_millis(50));
    assert_eq!(compactor.stop(), Done::default());
    assert_eq!(shelf.moved.load(SeqCst), 0);
    shelf.clear(0);
}

/// Looks in vain become rare.
#[test]
fn backs_off() {
    let (arena, shelf) = Shelf::<Zonal>::broken_up(16 * MIB);
    shelf.moves(Manner::Refuses);
    let idle = Duration::from_millis(1);
    let start = Instant::now();
    let compactor =
        Compactor::start(arena.clone(), Settings { idle: Some(idle), order: Order::HUGE }).unwrap();
    soon("a look", || compactor.done().looks > 0);
    thread::sleep(Duration::from_millis(300));
    let done = compactor.stop();
    // After 1, 2, 4, ... 64 ms, and every 64 ms then.
    let most = 7 + start.elapsed().as_millis() / 64;
    assert!(u128::from(done.looks) <= most, "{done:?} in {:?}", start.elapsed());
    assert_eq!(done.blocks, 0);
    shelf.clear(0);
}

#[test]
fn survives_the_pager() {
    let (arena, shelf) = Shelf::<Zonal>::broken_up(16 * MIB);
    shelf.moves(Manner::Panics);
    let compactor = Compactor::start(arena.clone(), ASLEEP).unwrap();
    compactor.wake(Order::HUGE);
    soon("a panic", || compactor.done().panics == 1);
    shelf.moves(Manner::Good);
    compactor.wake(Order::HUGE);
    soon("a block", || compactor.done().blocks > 0);
    assert!(shelf.is_intact());
    drop(compactor);
    shelf.clear(0);
}

/// Stopping waits for the page that is being moved, and for no more than that.
#[test]
fn stops_when_the_pager_lets_it() {
    let (arena, shelf) = Shelf::<Zonal>::broken_up(16 * MIB);
    shelf.moves(Manner::Waits);
    let compactor = Compactor::start(arena.clone(), ASLEEP).unwrap();
    compactor.wake(Order::HUGE);
    shelf.await_waiting();
    let stopped = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let done = compactor.stop();
            assert_eq!(done.blocks, 0);
            stopped.store(true, SeqCst);
        });
        thread::sleep(Duration::from_millis(20));
        assert!(!stopped.load(SeqCst));
        assert_eq!(arena.compact(Order::HUGE), CompactOutcome::Contended);
        shelf.moves(Manner::Refuses);
        shelf.release();
    });
    shelf.clear(0);
}

#[test]
fn one_at_a_time() {
    let arena = Arc::new(Arena::builder().bytes(4 * MIB).open().unwrap());
    let first = Compactor::start(arena.clone(), Settings::default()).unwrap();
    let error = Compactor::start(arena.clone(), Settings::default()).unwrap_err();
    assert!(matches!(error, StartError::Running));
    assert_eq!(error.to_string(), "the arena has a compactor already");
    drop(first);
    let second = Compactor::start(arena.clone(), Settings::default()).unwrap();
    second.wake(Order::MAX);
    assert_eq!(second.stop().blocks, 0, "nothing is in pieces");
    assert_eq!(Arc::strong_count(&arena), 1, "the thread has ended");
}

#[test]
fn in_a_scope() {
    let (arena, shelf) = Shelf::<Zonal>::broken_up(16 * MIB);
    for _ in 0..2 {
        thread::scope(|scope| {
            let compactor = Compactor::start_in(scope, &*arena, ASLEEP).unwrap();
            compactor.wake(Order::HUGE);
            soon("a wake", || compactor.done().wakes == 1);
        });
    }
    // Also when the scope's owner gives up.
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        thread::scope(|scope| {
            let _compactor = Compactor::start_in(scope, &*arena, ASLEEP).unwrap();
            panic!("it gives up");
        });
    }));
    assert!(panicked.is_err() && shelf.is_intact());
    shelf.clear(0);
}

/// Asked for by hand.
#[test]
fn compact_makes_one_block() {
    let (arena, shelf) = Shelf::<Zonal>::broken_up(16 * MIB);
    assert_eq!(arena.compact(Order::HUGE), CompactOutcome::Success);
    assert!(huge_blocks(&arena) > 0 && shelf.is_intact());
    let moved = shelf.moved.load(SeqCst);
    assert_eq!(arena.compact(Order::HUGE), CompactOutcome::Success, "there is one");
    assert_eq!(shelf.moved.load(SeqCst), moved);
    shelf.clear(0);
    let plain = Arena::builder().bytes(4 * MIB).open().unwrap();
    let page = plain.alloc(&movable(Order::ZERO)).unwrap();
    assert_eq!(plain.compact(Order::MAX), CompactOutcome::Unavailable, "it has no pager");
    drop(page);
    assert_eq!(plain.compact(Order::MAX), CompactOutcome::Success);
}

/// A pager that drops the compactor as soon as it is asked to move a page, by it or another.
#[derive(Default)]
struct Dropper {
    compactor: Mutex<Option<Compactor<'static>>>,
    dropped: AtomicBool,
    panicked: AtomicBool,
}

// SAFETY: it moves nothing.
unsafe impl Pager for Dropper {
    unsafe fn migrate(&self, _: &Migration) -> Result<(), Immovable> {
        let compactor = self.compactor.lock().unwrap_or_else(PoisonError::into_inner).take();
        if compactor.is_some() {
            let dropped = panic::catch_unwind(AssertUnwindSafe(|| drop(compactor)));
            self.panicked.store(dropped.is_err(), SeqCst);
            self.dropped.store(true, SeqCst);
        }
        Err(Immovable)
    }
}

#[test]
fn dropped_on_its_own_thread_it_ends_and_another_can_start() {
    let dropper = Arc::new(Dropper::default());
    let arena = Arena::builder().bytes(16 * MIB).cpus(1).owners(0).pager(dropper.clone());
    let arena = Arc::new(arena.open().unwrap());
    let mut frames = Vec::new();
    while let Ok(pfn) = arena.alloc_raw(&movable(Order::ZERO).no_wait()) {
        frames.push(pfn);
    }
    for pfn in frames.iter().filter(|pfn| pfn.get() % 2 == 1) {
        // SAFETY: allocated above, and freed once.
        unsafe { arena.free_raw(*pfn, Order::ZERO) }.unwrap();
    }
    let compactor = Compactor::start(arena.clone(), ASLEEP).unwrap();
    dropper.compactor.lock().unwrap().insert(compactor).wake(Order::HUGE);
    soon("the drop", || dropper.dropped.load(SeqCst));
    assert!(!dropper.panicked.load(SeqCst), "it waited for itself");
    soon("another", || Compactor::start(arena.clone(), ASLEEP).is_ok());
}

/// Twice no time is no time: it rests all the same.
#[test]
fn an_idle_time_of_zero_is_no_endless_look() {
    let arena = Arc::new(Arena::builder().bytes(16 << 20).open().unwrap());
    let settings = Settings { idle: Some(Duration::ZERO), order: Order::HUGE };
    let compactor = Compactor::start(arena, settings).unwrap();
    let start = Instant::now();
    thread::sleep(Duration::from_millis(100));
    let looks = compactor.stop().looks;
    assert!(u128::from(looks) <= start.elapsed().as_millis() + 1, "{looks}");
}

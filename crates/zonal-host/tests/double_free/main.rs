//! One block, freed by two CPUs at the same instant: one of the frees is refused, on each path and for
//! each order, and no block is lost or handed out twice.
//!
//! ```text
//! TRIES=1000000 cargo test --release -p zonal-host --test double_free
//! ```
//!
//! `TRIES=N`: N of each row, also of those beside what a third thread does, which have fewer otherwise. For two CPUs,
//! whatever the machine has: with many, CPUs keep nothing of arenas this small.
#![cfg(not(loom))]

mod beside;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;
use zonal::policy::Sound;
use zonal::preset::{Linux416, Trusting};
use zonal::{MigrateType, Order, Pfn, Request, ZoneId};
use zonal_host::{Arena, ArenaError, Handle};

/// As many as the environment says, or `usual`.
fn tries_or(usual: u64) -> u64 {
    std::env::var("TRIES").ok().and_then(|tries| tries.parse().ok()).unwrap_or(usual)
}

fn tries() -> u64 {
    tries_or(5_000)
}

fn order(number: u8) -> Order {
    Order::new(number).expect("an order")
}

/// Where two threads meet: they leave it within a few cycles of each other, which a barrier that
/// sleeps does not do.
#[derive(Default)]
struct Meeting([AtomicU64; 2]);

impl Meeting {
    fn meet(&self, at: usize) {
        let turn = self.0[at].fetch_add(1, SeqCst) + 1;
        let mut looks = 0_u32;
        while self.0[1 - at].load(SeqCst) < turn {
            looks += 1;
            if looks.is_multiple_of(1 << 9) { thread::yield_now() } else { std::hint::spin_loop() }
        }
    }
}

/// How a thread frees.
#[derive(Clone, Copy, Debug)]
enum By {
    Handle,
    Arena,
    /// A list of it alone.
    List,
}

fn free<S: Sound>(
    arena: &Arena<S>,
    handle: &mut Handle<'_, S>,
    by: By,
    pfn: Pfn,
    order: Order,
) -> bool {
    match by {
        // SAFETY: the frames of this arena are never touched, so no free of any does harm to memory.
        By::Handle => unsafe { handle.free_raw(pfn, order) }.is_ok(),
        // SAFETY: as above.
        By::Arena => unsafe { arena.free_raw(pfn, order) }.is_ok(),
        // SAFETY: as above.
        By::List => unsafe { handle.free_bulk(&[pfn]) }.refused == 0,
    }
}

/// Two threads free what one of them allocates, `tries` times or until both succeeded: a list that
/// has a frame twice is not to be used any more. How often both succeeded.
fn both_freed<S: Sound>(arena: &Arena<S>, ways: [By; 2], order: Order) -> u64 {
    let (block, wins, both) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let meeting = Meeting::default();
    let request = Request::new(order).migrate(MigrateType::Movable);
    let one = |at: usize| {
        let mut handle = arena.handle().expect("there are two");
        for _ in 0..tries() {
            if at == 0 {
                let pfn = handle.alloc_raw(&request).expect("there is room");
                block.store(pfn.get(), SeqCst);
                wins.store(0, SeqCst);
            }
            meeting.meet(at);
            let pfn = Pfn::new(block.load(SeqCst));
            if free(arena, &mut handle, ways[at], pfn, order) && wins.fetch_add(1, SeqCst) == 1 {
                both.fetch_add(1, SeqCst);
            }
            meeting.meet(at);
            if both.load(SeqCst) > 0 {
                break;
            }
            if at == 0 {
                assert!(wins.load(SeqCst) > 0, "one of them frees it");
            }
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| one(1));
        one(0);
    });
    both.load(SeqCst)
}

/// The same, where it must never be; and all is free afterwards.
fn race(ways: [By; 2], order: Order) -> Result<(), ArenaError> {
    let arena = Arena::builder().bytes(64 << 20).cpus(2).owners(2).open()?;
    assert_eq!(both_freed(&arena, ways, order), 0, "{ways:?}, order {order}: both frees succeeded");
    arena.drain();
    let zones = (0..arena.zone_count() as u8).filter_map(|id| arena.zone_info(ZoneId(id)));
    let (free, refused) = zones
        .fold((0, 0), |(free, refused), zone| (free + zone.free, refused + zone.events.refused));
    assert_eq!((free, refused), (64 << 8, 0), "all is free, and no copy was found");
    Ok(())
}

#[test]
fn of_single_frames() -> Result<(), ArenaError> {
    for ways in [[By::Handle; 2], [By::Handle, By::Arena], [By::List; 2], [By::List, By::Arena]] {
        race(ways, Order::ZERO)?;
    }
    Ok(())
}

#[test]
fn of_larger_blocks() -> Result<(), ArenaError> {
    for number in [1, 3, 6, 9, 10] {
        race([By::Handle; 2], order(number))?;
        race([By::Handle, By::Arena], order(number))?;
    }
    Ok(())
}

/// The race is one: a preset that looks and then writes loses it now and then.
#[test]
fn a_look_and_a_write_are_caught() -> Result<(), ArenaError> {
    let caught = (0..50).any(|_| {
        let arena = Arena::builder().preset::<Linux416>().bytes(64 << 20).cpus(2).owners(2).open();
        arena.is_ok_and(|arena| both_freed(&arena, [By::Handle; 2], Order::ZERO) > 0)
    });
    assert!(caught, "50 times {} tries", tries());
    Ok(())
}

/// The default without exchanges: what one thread frees twice is refused, and what two free at once is found when both copies go
/// back, so that no frame is lost or free twice.
#[test]
fn what_a_preset_trusts_is_found_late() -> Result<(), ArenaError> {
    let open = || Arena::builder().preset::<Trusting>().bytes(64 << 20).cpus(2).owners(2).open();
    let arena = open()?;
    let mut handle = arena.handle().expect("there are two");
    let request = Request::frame().migrate(MigrateType::Movable);
    for ways in [By::Handle, By::Arena, By::List].map(|by| [by; 2]) {
        let pfn = handle.alloc_raw(&request).expect("there is room");
        let freed = ways.map(|by| free(&arena, &mut handle, by, pfn, Order::ZERO));
        assert_eq!(freed, [true, false], "{ways:?}");
    }
    drop(handle);
    let found = (0..50).any(|_| {
        let Ok(arena) = open() else { return false };
        let both = both_freed(&arena, [By::Handle; 2], Order::ZERO);
        arena.drain();
        let zones = || (0..arena.zone_count() as u8).filter_map(|id| arena.zone_info(ZoneId(id)));
        let refused: u64 = zones().map(|zone| zone.events.refused).sum();
        assert_eq!(zones().map(|zone| zone.free).sum::<u64>(), 64 << 8, "each frame is free once");
        assert_eq!(refused, both, "the copy was found");
        both > 0
    });
    assert!(found, "50 times {} tries", tries());
    Ok(())
}

/// A free beside another and a drain of the CPU that makes it.
#[test]
fn beside_a_drain() -> Result<(), ArenaError> {
    let arena = Arena::builder().bytes(64 << 20).cpus(2).owners(2).open()?;
    let stop = AtomicBool::new(false);
    let request = Request::frame().migrate(MigrateType::Movable);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(SeqCst) {
                arena.drain();
            }
        });
        let mut handle = arena.handle().expect("there are two");
        for _ in 0..tries_or(250) {
            let pfn = handle.alloc_raw(&request).expect("there is room");
            let freed = [(); 2].map(|()| free(&arena, &mut handle, By::Handle, pfn, Order::ZERO));
            assert_eq!(freed, [true, false]);
        }
        stop.store(true, SeqCst);
    });
    arena.drain();
    assert_eq!(arena.explain(&Request::frame()).free_frames(), 64 << 8);
    Ok(())
}

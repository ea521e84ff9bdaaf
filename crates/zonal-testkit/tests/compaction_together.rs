//! Several compactions of one zone: side by side where they are so in Linux, else one at a time.

use super::ledger::{Ledger, MOVABLE, W, ZONE, events, fragmented};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use zonal::error::RangeError;
use zonal::policy::{Compact, Policy, compact};
use zonal::preset::{Linux416, Zonal};
use zonal::{Bounds, CompactMode, CompactOutcome, CpuId, MigrateType, Order, Pfn, Request};
use zonal_testkit::host::TestHost;
use zonal_testkit::mover::{Movers, Moving};
use zonal_testkit::shape::Shape;

zonal::preset! {
    /// Scanners side by side over the map, where nothing but bits keeps them apart.
    Mapped = "Mapped", over Zonal { Compact = compact::InOrder }
}
zonal::preset! {
    /// Turns over lists.
    pub(crate) Turns = "Turns", over Linux416 { Compact = compact::Cheapest }
}

/// Lets the host go on at the end of the scope.
struct LetGo<'a>(&'a Movers);

impl Drop for LetGo<'_> {
    fn drop(&mut self) {
        self.0.let_go();
    }
}

/// What a compaction comes to that the host keeps, and what is seen `meanwhile`. The host goes on after that, also when
/// an assertion fails: else the scope would wait for ever.
fn while_it_hangs<R>(
    movers: &Movers,
    compaction: impl FnOnce() -> CompactOutcome + Send,
    meanwhile: impl FnOnce() -> R,
) -> (CompactOutcome, R) {
    std::thread::scope(|scope| {
        let stuck = scope.spawn(compaction);
        movers.wait_for_hang();
        let going = LetGo(movers);
        let seen = meanwhile();
        drop(going);
        (stuck.join().unwrap(), seen)
    })
}

/// A host that hangs in one call keeps no frame but the one it has, and where compactions run side
/// by side no other of them.
fn others_go_on_while_the_host_hangs<S: Policy>()
where
    for<'m> W<'m, S>: Sync,
{
    fragmented::<S>(Shape::Huge, 60, Moving::HangsOnce, |ledger| {
        let world = ledger.world;
        let (allocator, movers) = (&world.allocator, world.allocator.platform().movers());
        let (huge, sync) = (MOVABLE.with_order(Order::HUGE), CompactMode::Sync);
        let compaction = || allocator.compact_zone(ZONE, Order::HUGE, sync);
        let (outcome, ()) = while_it_hangs(movers, compaction, || {
            if !S::Compact::SIDE_BY_SIDE {
                let second = allocator.compact_zone(ZONE, Order::HUGE, CompactMode::Sync);
                assert_eq!(second, CompactOutcome::Contended);
            }
            // One frame is the host's: every other can be had, those that are set apart for the
            // block that is to form included.
            let info = allocator.zone_info(ZONE).unwrap();
            assert_eq!(info.isolated > 0, S::Compact::SETS_APART);
            let free = info.free + info.isolated;
            let taken: Vec<_> =
                std::iter::from_fn(|| allocator.alloc_raw(&Request::frame()).ok()).collect();
            assert_eq!(taken.len() as u64, free, "I-6");
            for pfn in taken {
                allocator.free_raw(pfn, Order::ZERO).unwrap();
            }
            if !S::Compact::SIDE_BY_SIDE {
                assert!(allocator.alloc_raw(&huge).is_err(), "contended");
            }
            allocator.drain_all();
            // Who compacts has disabled clusters; and without them no merge is skipped either: the
            // attempt that is being made is considered, as the first one is in the source.
            assert_eq!(allocator.zone_info(ZONE).unwrap().merge_skipped, 0, "{}", S::NAME);
            if S::Compact::SIDE_BY_SIDE {
                let second = allocator.compact_zone(ZONE, Order::HUGE, CompactMode::Sync);
                assert_eq!(second, CompactOutcome::Success, "beside the one that hangs");
                let block = allocator.alloc_raw(&huge).expect("it is there");
                allocator.free_raw(block, Order::HUGE).unwrap();
            }
        });
        assert_ne!(outcome, CompactOutcome::Contended);
        ledger.check();
        movers.set(Moving::Obeys);
        while ledger.compact(Order::HUGE, CompactMode::Sync) == CompactOutcome::BackedOff {}
        let block = ledger.take(&MOVABLE.with_order(Order::HUGE));
        assert!(block.is_some());
    });
}

/// A request beside the background's compaction, which the host keeps. Where there are turns, that
/// ends for the request with the page that is being moved, however long the host takes; the
/// request does not wait for that. Side by side the request is served, and the other goes on.
fn a_request_beside_the_background<S: Policy>()
where
    for<'m> W<'m, S>: Sync,
{
    fragmented::<S>(Shape::Huge, 60, Moving::HangsOnce, |ledger| {
        let world = ledger.world;
        let (allocator, movers) = (&world.allocator, world.allocator.platform().movers());
        let huge = MOVABLE.with_order(Order::HUGE);
        let compaction = || allocator.compact_in_background(Order::HUGE);
        let (outcome, block) = while_it_hangs(movers, compaction, || {
            let block = allocator.alloc_raw(&huge);
            assert_eq!(block.is_ok(), S::Compact::SIDE_BY_SIDE, "whether the host has the zone");
            block.ok()
        });
        if S::Compact::SIDE_BY_SIDE {
            assert_eq!(outcome, CompactOutcome::Success, "another block for the background");
        } else {
            assert_eq!(outcome, CompactOutcome::PartialSkipped, "it was called off");
            assert!(events(ledger).migrate_success <= 1);
        }
        block.into_iter().for_each(|block| allocator.free_raw(block, Order::HUGE).unwrap());
        ledger.check();
        movers.set(Moving::Obeys);
        assert!(ledger.take(&huge).is_some(), "that was no failure");
    });
}

/// A pageblock that is only set apart is no caller's: who isolates it while the host hangs gets it, and
/// keeps it when that compaction ends.
fn what_is_set_apart_can_be_isolated<S: Policy>()
where
    for<'m> W<'m, S>: Sync,
{
    fragmented::<S>(Shape::Huge, 60, Moving::HangsOnce, |ledger| {
        let world = ledger.world;
        let (allocator, movers) = (&world.allocator, world.allocator.platform().movers());
        let kind = |start: u64| allocator.pageblock_of(Pfn::new(start)).map(|found| found.1);
        let (huge, sync) = (Order::HUGE, CompactMode::Sync);
        let compaction = || allocator.compact_zone(ZONE, huge, sync);
        let (outcome, isolated) = while_it_hangs(movers, compaction, || {
            let mut starts = (0x4000..0x7200_u64).step_by(512);
            let apart = starts.find(|&start| kind(start) == Some(MigrateType::Isolate));
            assert_eq!(apart.is_some(), S::Compact::SETS_APART);
            apart.map(|start| {
                let range = Pfn::new(start)..Pfn::new(start + 512);
                let isolated = allocator.isolate(range.clone()).expect("no caller has it");
                let again = allocator.isolate(range.clone());
                assert_eq!(again, Err(RangeError::Isolated { pfn: range.start }));
                isolated
            })
        });
        assert_ne!(outcome, CompactOutcome::Contended);
        if outcome == CompactOutcome::Success {
            let block = allocator.alloc_raw(&MOVABLE.with_order(huge).no_wait());
            allocator.free_raw(block.expect("one that is no caller's"), huge).unwrap();
        }
        ledger.check();
        if let Some(isolated) = isolated {
            let start = isolated.range().start.get();
            assert_eq!(kind(start), Some(MigrateType::Isolate), "the compaction has ended");
            allocator.undo_isolation(isolated).unwrap();
            assert_eq!(kind(start), Some(MigrateType::Movable));
        }
    });
}

/// Nor is it in the way of who wants frames in a row that are free nowhere else.
fn what_is_set_apart_can_be_had<S: Policy>()
where
    for<'m> W<'m, S>: Sync,
{
    fragmented::<S>(Shape::Huge, 60, Moving::HangsOnce, |ledger| {
        let world = ledger.world;
        let (allocator, movers) = (&world.allocator, world.allocator.platform().movers());
        let compaction = || allocator.compact_zone(ZONE, Order::HUGE, CompactMode::Sync);
        let (outcome, ()) = while_it_hangs(movers, compaction, || {
            let info = || allocator.zone_info(ZONE).unwrap();
            let before = info();
            let rest = before.free + before.cached;
            let others: Vec<_> =
                (0..rest).map(|_| allocator.alloc_raw(&MOVABLE).expect("it is free")).collect();
            let apart = info().isolated;
            assert_eq!((apart, apart > 0), (before.isolated, S::Compact::SETS_APART));
            let pairs = Bounds::ANY.aligned(2);
            let pair = allocator.alloc_contiguous_in(2, &MOVABLE.no_wait(), &pairs);
            assert_eq!(pair.is_ok(), S::Compact::SETS_APART, "{pair:?}");
            pair.into_iter().for_each(|pair| allocator.free_contiguous(pair).unwrap());
            others.into_iter().for_each(|pfn| allocator.free_raw(pfn, Order::ZERO).unwrap());
        });
        assert_ne!(outcome, CompactOutcome::Contended);
        ledger.check();
    });
}

const THREADS: u64 = 4;

/// All want huge pages of one zone at once, over and over, while the background compacts it too:
/// every page is where its last move put it, and no frame is lost or in two places.
fn all_compact_at_once<S: Policy>()
where
    for<'m> W<'m, S>: Sync,
{
    fragmented::<S>(Shape::Huge, 60, Moving::Obeys, |ledger| {
        let (world, had) = (ledger.world, AtomicU64::new(0));
        let allocator = &world.allocator;
        let huge = MOVABLE.with_order(Order::HUGE);
        let work = |number: u64| {
            allocator.platform().switch_cpu(CpuId(number as u32 % allocator.cpus()));
            let mut held: Vec<Pfn> = Vec::new();
            for step in 0..40 {
                let want = !(step % 4 == 3 || held.len() > 1);
                match (number, want) {
                    (0, _) => drop(allocator.compact_in_background(Order::HUGE)),
                    (_, true) => held.extend(allocator.alloc_raw(&huge)),
                    (1, _) => {
                        let order = Order::new(4).unwrap();
                        let _ = allocator.compact_zone(ZONE, order, CompactMode::Async);
                    }
                    _ => {}
                }
                if !want && let Some(pfn) = held.pop() {
                    // In parts, so that there is something to compact again.
                    had.fetch_add(1, Relaxed);
                    allocator.free_raw(pfn, Order::HUGE).unwrap();
                }
            }
            held.into_iter().for_each(|pfn| allocator.free_raw(pfn, Order::HUGE).unwrap());
        };
        std::thread::scope(|scope| {
            for number in 0..THREADS {
                scope.spawn(move || work(number));
            }
        });
        assert!(had.into_inner() > 0, "{}", S::NAME);
        assert_eq!(events(ledger).migrate_mismatches, 0);
        settle(ledger);
    });
}

fn settle<S: Policy>(ledger: &mut Ledger<'_, '_, S>) {
    ledger.check();
    ledger.world.allocator.drain_all();
    ledger.check();
}

macro_rules! on_presets {
    ($($module:ident: $preset:ty;)*) => {$(
        mod $module {
            use super::*;
            #[test]
            fn hangs() { others_go_on_while_the_host_hangs::<$preset>(); }
            #[test]
            fn background() { a_request_beside_the_background::<$preset>(); }
            #[test]
            fn isolated() { what_is_set_apart_can_be_isolated::<$preset>(); }
            #[test]
            fn in_a_row() { what_is_set_apart_can_be_had::<$preset>(); }
            #[test]
            fn at_once() { all_compact_at_once::<$preset>(); }
        }
    )*};
}

with_presets_of_one_zone!(on_presets
    mapped: super::Mapped;
    turns: super::Turns;
);

//! Memory that comes and goes while the allocator is in use.

mod refused;
mod sizes;

use proptest::prelude::*;
use std::ops::Range;
use zonal::error::{AllocReason, FreeError, OfflineError, OnlineError, RangeError};
use zonal::info::ZoneInfo;
use zonal::map::{MemoryMap, PhysAddr, RangeKind, Region, RegionKind};
use zonal::plan::{Config, MovableShare, Plan};
use zonal::policy::{Policy, Split};
use zonal::report::{BuddyInfo, PageTypeInfo, UnusableFree, VmStat, ZoneStatus};
use zonal::watermark::{MinFree, WatermarkConfig, Watermarks};
use zonal::{
    Allocator, CompactMode, CompactOutcome, CpuId, MigrateType, NodeId, NodeMask, NodePolicy,
    Order, Pfn, Request, TableSize, ZoneId, ZoneType,
};
use zonal_host::Threads;
use zonal_testkit::checkers::{Rules, check_all, check_faults};
use zonal_testkit::cluster_check::check_clusters;
use zonal_testkit::command::commands;
use zonal_testkit::host::TestHost;
use zonal_testkit::model::Model;
use zonal_testkit::mover::Moving;
use zonal_testkit::probe::Probe;
use zonal_testkit::runner::run_commands;
use zonal_testkit::shape::{Shape, order, plan};
use zonal_testkit::snapshot::Snapshot;
use zonal_testkit::suite::{Work, effort, threads_beside};
use zonal_testkit::world::{World, with_plan, with_world};

type W<'m, S> = World<'m, Probe, S>;
const MOVABLE: Request = Request::frame().migrate(MigrateType::Movable);

fn with<S: Policy>(f: impl FnOnce(&W<'_, S>)) {
    with_world::<Probe, S, _>(Shape::Later, f);
}

fn pfns(start: u64, end: u64) -> Range<Pfn> {
    Pfn::new(start)..Pfn::new(end)
}

/// All that may come in [`Shape::Later`].
fn later() -> [Range<Pfn>; 3] {
    [pfns(0xc00, 0x1000), pfns(0x1900, 0x2400), pfns(0x2800, 0x2c00)]
}

fn online_all<S: Policy>(world: &W<'_, S>) {
    later().into_iter().for_each(|range| assert!(world.allocator.online(range).is_ok()));
}

/// All invariants with these blocks out.
fn check<S: Policy>(world: &W<'_, S>, out: impl IntoIterator<Item = (Pfn, Order)>) -> Snapshot {
    let mut model = Model::new(world.allocator.plan()).as_in(&world.allocator);
    out.into_iter().for_each(|(pfn, order)| model.insert(pfn, order));
    let snapshot = Snapshot::of(&world.allocator);
    check_faults(&world.allocator.platform().faults()).unwrap();
    check_all(&snapshot, &model, &Rules::of::<S>()).unwrap();
    check_clusters(&world.allocator).unwrap();
    snapshot
}

fn exhaust<S: Policy>(world: &W<'_, S>, request: &Request) -> Vec<Pfn> {
    std::iter::from_fn(|| world.allocator.alloc_raw(request).ok()).collect()
}

fn singles(frames: &[Pfn]) -> impl Iterator<Item = (Pfn, Order)> {
    frames.iter().map(|&pfn| (pfn, Order::ZERO))
}

fn free_all<S: Policy>(world: &W<'_, S>, frames: Vec<Pfn>) {
    frames.into_iter().for_each(|pfn| world.allocator.free_raw(pfn, Order::ZERO).unwrap());
    world.allocator.drain_all();
}

fn managed<S: Policy>(world: &W<'_, S>) -> u64 {
    check(world, []).zones.iter().map(|zone| zone.managed).sum()
}

/// Before, none of it is had; then the last frame of it; and when it is gone, none again.
fn comes_and_goes<S: Policy>() {
    with::<S>(|world| {
        let there = |pfn: &Pfn| later().iter().any(|range| range.contains(pfn));
        let fresh = managed(world);
        assert_eq!(fresh, 0x900);
        for request in [Request::frame(), MOVABLE] {
            let before = exhaust(world, &request);
            assert_eq!((before.len(), before.iter().any(there)), (0x900, false));
            // It comes while nothing is left.
            online_all(world);
            check(world, singles(&before));
            let come = exhaust(world, &request);
            assert_eq!((come.len(), come.iter().all(there)), (0x1300, true), "{request:?}");
            free_all(world, before.into_iter().chain(come).collect());
            assert_eq!(managed(world), fresh + 0x1300);
            later().into_iter().rev().for_each(|range| world.allocator.offline(range).unwrap());
            assert_eq!(managed(world), fresh);
        }
    });
}

/// With its neighbours of the same instance it forms the largest blocks, whatever comes first.
fn it_merges<S: Policy>() {
    with::<S>(|world| {
        for start in (0x1900..0x2400_u32).step_by(32).rev().map(u64::from) {
            world.allocator.online(pfns(start, start + 32)).unwrap();
        }
        world.allocator.online(pfns(0xc00, 0xe00)).unwrap();
        world.allocator.online(pfns(0xe00, 0x1000)).unwrap();
        let found = check(world, []).found;
        let mut largest: Vec<_> = found.iter().map(|at| (at.pfn.get(), at.place.order())).collect();
        largest.sort_unstable();
        let expected = (0xc00..0x2400).step_by(1024).map(|pfn| (pfn, Order::MAX));
        assert!(largest.into_iter().eq(expected), "{found:?}");
    });
    // Pageblocks of 512 frames: the first of it is the buddy of the last that was there.
    let regions = [frames(0x4000, 0x2200, RegionKind::Usable, 0), frames(0x6200, 0x1e00, Off, 0)];
    let plan = plan::<S>(&regions, Shape::Huge.config());
    with_plan::<Probe, S, _>(Shape::Huge, &plan, |world| {
        let allocator = &world.allocator;
        let whole = |pfn| {
            let found = check(world, []).found;
            found.iter().any(|at| (at.pfn, at.place.order()) == (Pfn::new(pfn), Order::MAX))
        };
        assert!(!whole(0x6000));
        allocator.online(pfns(0x6200, 0x6400)).unwrap();
        assert!(whole(0x6000));
        allocator.online(pfns(0x6400, 0x8000)).unwrap();
        let huge = Request::new(Order::HUGE).migrate(MigrateType::Movable);
        let blocks: Vec<_> = std::iter::from_fn(|| allocator.alloc_raw(&huge).ok()).collect();
        assert_eq!(blocks.len() as u64, 0x4000 / Order::HUGE.frames());
        check(world, blocks.iter().map(|&pfn| (pfn, Order::HUGE)));
        blocks.into_iter().for_each(|pfn| allocator.free_raw(pfn, Order::HUGE).unwrap());
        allocator.drain_all();
        assert!((0x4000..0x8000).step_by(1024).all(whole));
    });
}

use RangeKind::Offline as Off;

fn frames(start: u64, frames: u64, kind: RegionKind, node: u8) -> Region {
    Region { start: PhysAddr(start << 12), bytes: frames << 12, kind, node: NodeId(node) }
}

/// A CPU begins at its own instance as soon as that has memory, and at the next in the ring
/// before; zones without memory are in no request's way.
fn homes<S: Policy>() {
    with::<S>(|world| {
        let allocator = &world.allocator;
        let on = |cpu: u32| assert!(allocator.platform().switch_cpu(CpuId(cpu)));
        let home = |cpu: u32| allocator.home_zone(CpuId(cpu), ZoneType::Normal).unwrap();
        let plan = allocator.plan();
        let planned: Vec<ZoneId> = (0..4).map(|cpu| preferred(plan, cpu)).collect();
        let has = |zone: ZoneId| allocator.zone_info(zone).unwrap().managed > 0;
        let strict = Request::frame().nodes(NodePolicy::Bind(NodeMask::only(NodeId(1))));
        for cpu in 0..4 {
            on(cpu);
            assert!(has(home(cpu)), "cpu {cpu}");
            assert!(has(planned[cpu as usize]) <= (home(cpu) == planned[cpu as usize]));
            for request in [Request::frame(), Request::new(order(2))] {
                let pfn = allocator.alloc_raw(&request).unwrap();
                assert_eq!(plan.zone_at(pfn), Some(home(cpu)));
                allocator.free_raw(pfn, request.order()).unwrap();
            }
            // Its node has nothing yet: as if it were not there.
            assert_eq!(allocator.alloc_raw(&strict).unwrap_err().reason, AllocReason::NoZone);
            let turns = NodePolicy::Interleave(NodeMask::ALL);
            let pfn = allocator.alloc_raw(&Request::frame().nodes(turns)).unwrap();
            allocator.free_raw(pfn, Order::ZERO).unwrap();
            if let Ok(mut handle) = allocator.handle(CpuId(cpu)) {
                let pfn = handle.alloc_raw(&Request::frame()).unwrap();
                assert_eq!(plan.zone_at(pfn), Some(home(cpu)));
                handle.free_raw(pfn, Order::ZERO).unwrap();
            }
        }
        let calls = allocator.platform().take_calls();
        assert!(calls.woken.is_empty() && calls.reclaims.is_empty(), "{calls:?}");
        online_all(world);
        for cpu in 0..4 {
            on(cpu);
            assert_eq!(home(cpu), planned[cpu as usize]);
            let pfn = allocator.alloc_raw(&Request::frame()).unwrap();
            assert_eq!(plan.zone_at(pfn), Some(home(cpu)));
            allocator.free_raw(pfn, Order::ZERO).unwrap();
        }
        on(1);
        let pfn = allocator.alloc_raw(&strict).unwrap();
        assert!(pfns(0x2800, 0x2c00).contains(&pfn));
        check(world, [(pfn, Order::ZERO)]);
    });
}

/// The Normal instance of a CPU's node that is the CPU's by its number.
fn preferred(plan: &Plan, cpu: u32) -> ZoneId {
    let node = Shape::Later.node_of(CpuId(cpu));
    let own: Vec<_> = plan.zones().iter().filter(|zone| zone.node == node).collect();
    own[cpu as usize / 2 % own.len()].id
}

/// Ranges, contiguous frames and compaction reach it.
fn found_by_all<S: Policy>() {
    with::<S>(|world| {
        let allocator = &world.allocator;
        allocator.platform().movers().set(Moving::Obeys);
        let early = allocator.alloc_range(pfns(0x18f0, 0x1910));
        assert_eq!(early, Err(RangeError::Frame(FreeError::Offline { pfn: Pfn::new(0x1900) })));
        assert!(allocator.alloc_contiguous(0xb00, &MOVABLE).is_err());
        let empty = allocator.plan().zone_at(Pfn::new(0x2800)).unwrap();
        let nothing = allocator.compact_zone(empty, order(5), CompactMode::Sync);
        assert_ne!(nothing, CompactOutcome::Success);
        online_all(world);
        let ring = allocator.alloc_range(pfns(0x18f0, 0x1910)).unwrap();
        allocator.free_contiguous(ring).unwrap();
        let ring = allocator.alloc_contiguous(0xf00, &MOVABLE).unwrap();
        allocator.free_contiguous(ring).unwrap();
        // Every second frame of the zone whose memory all came later.
        let bound = MOVABLE.nodes(NodePolicy::Bind(NodeMask::only(NodeId(1))));
        let all = exhaust(world, &bound);
        assert_eq!(all.len(), 0x400);
        let (mut kept, mut names) = (Vec::new(), 0);
        for pfn in all {
            if pfn.get() % 2 == 0 {
                allocator.platform().movers().adopt(pfn, Order::ZERO, names);
                names += 1;
                kept.push(pfn);
            } else {
                allocator.free_raw(pfn, Order::ZERO).unwrap();
            }
        }
        allocator.drain_all();
        let outcome = allocator.compact_zone(empty, order(5), CompactMode::Sync);
        assert_eq!(outcome, CompactOutcome::Success);
        let moved: Vec<_> = allocator.platform().movers().blocks();
        assert_eq!(moved.len(), kept.len());
        check(world, moved.iter().map(|&(pfn, order, _)| (pfn, order)));
        // It can go all the same: the pages go to another node's memory of the type.
        allocator.offline(pfns(0x2800, 0x2c00)).unwrap();
        let moved = allocator.platform().movers().blocks();
        let after = check(world, moved.iter().map(|&(pfn, order, _)| (pfn, order)));
        assert_eq!(after.zones[usize::from(empty.0)].managed, 0);
        assert!(moved.iter().all(|(pfn, ..)| !pfns(0x2800, 0x2c00).contains(pfn)));
    });
}

/// Reports say what is there.
fn reported<S: Policy>() {
    with::<S>(|world| {
        let allocator = &world.allocator;
        let print = || {
            [
                BuddyInfo(allocator).to_string(),
                PageTypeInfo(allocator).to_string(),
                VmStat(allocator).to_string(),
                UnusableFree(allocator).to_string(),
                ZoneStatus(allocator).to_string(),
            ]
        };
        let last = |text: &str| text.rsplit_once("spanned").unwrap().1.to_string();
        let before = print();
        assert!(last(&before[4]).starts_with("  0\n        present  0\n"), "{}", before[4]);
        online_all(world);
        let after = print();
        assert!(last(&after[4]).starts_with("  1024\n        present  1024\n"), "{}", after[4]);
        assert!(after[4].ends_with("start_pfn:           10240\n"));
    });
}

/// Random commands on the shape that grows.
fn random<S: Policy>() {
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: effort(30),
        failure_persistence: None,
        max_shrink_iters: 2000,
        ..ProptestConfig::default()
    });
    let result = runner.run(&commands(60), |commands| {
        run_commands::<Probe, S>(Shape::Later, &commands)
            .map_err(|failure| TestCaseError::fail(failure.to_string()))
    });
    if let Err(error) = result {
        panic!("{}: {error}", S::NAME);
    }
}

/// Threads allocate while memory comes and goes; no frame is handed out twice or lost.
fn beside_threads<P: TestHost + Sync, S: Policy>()
where
    for<'m> World<'m, P, S>: Sync,
{
    const WORK: Work = Work {
        threads: 4,
        operations: 4000,
        quota: 560,
        most: Order::MAX,
        owned: true,
        never_fails: false,
    };
    for seed in 0..u64::from(effort(2)) {
        // It comes piece by piece: meanwhile no single frame is refused.
        let work = Work { most: Order::ZERO, never_fails: true, ..WORK };
        threads_beside::<P, S>(Shape::Later, seed, work, |allocator| {
            for range in later() {
                for start in (range.start.get()..range.end.get()).step_by(64) {
                    allocator.online(pfns(start, start + 64)).unwrap();
                    std::thread::yield_now();
                }
            }
        });
        // It comes and, where it is not in use, goes.
        threads_beside::<P, S>(Shape::Later, seed, WORK, |allocator| {
            let mut gone = 0;
            for round in 0..40 {
                let range = later()[round % 3].clone();
                let start = range.start.get() + (round as u64 * 64) % 0x400;
                let piece = pfns(start, start + 64);
                if allocator.online(piece.clone()).is_ok() {
                    std::thread::yield_now();
                }
                gone += u32::from(allocator.offline(piece).is_ok());
            }
            assert!(gone > 0, "some of it was free");
        });
    }
}

macro_rules! over_presets {
    ($($module:ident: $preset:ty;)*) => {$(
        mod $module {
            use super::*;
            #[test]
            fn memory_comes_and_goes() { comes_and_goes::<$preset>(); }
            #[test]
            fn memory_that_comes_merges() { it_merges::<$preset>(); }
            #[test]
            fn sizes_are_as_from_the_start() { sizes::as_from_the_start::<$preset>(); }
            #[test]
            fn batches_grow_with_it() { sizes::batches_grow::<$preset>(); }
            #[test]
            fn bad_ranges_are_refused() { refused::bad_ranges::<$preset>(); }
            #[test]
            fn busy_ranges_stay() { refused::busy_ranges::<$preset>(); }
            #[test]
            fn withheld_frames_are_refused() { refused::withheld_frames::<$preset>(); }
            #[test]
            fn cpus_find_their_instance() { homes::<$preset>(); }
            #[test]
            fn everything_reaches_it() { found_by_all::<$preset>(); }
            #[test]
            fn reports_follow() { reported::<$preset>(); }
            #[test]
            fn at_random() { random::<$preset>(); }
        }
    )*};
}

with_presets!(over_presets);

macro_rules! beside {
    ($($module:ident: $preset:ty;)*) => {
        mod beside_mutexes {
            use super::*;
            $(#[test]
            fn $module() { beside_threads::<Probe, $preset>(); })*
        }
        mod beside_real_threads {
            use super::*;
            $(#[test]
            fn $module() { beside_threads::<Threads, $preset>(); })*
        }
    };
}

#[cfg(feature = "matrix")]
with_presets!(beside);

// Those that `stress` compiles for these hosts in any case.
#[cfg(not(feature = "matrix"))]
beside! {
    linux416: zonal::preset::Linux416;
    cluster_free: zonal::preset::ClusterFree;
    default_preset: zonal::preset::Zonal;
    tiny_zonal: zonal_testkit::preset::TinyZonal;
    split_zones: zonal::preset::SplitZones;
}

//! Zone instances: what can be allocated is what one whole zone has; only where from differs.

mod vacant;

use proptest::prelude::*;
use std::collections::BTreeSet;
use std::ops::Range;
use zonal::error::{ContiguousError, RangeError};
use zonal::plan::{Config, Plan};
use zonal::policy::Policy;
use zonal::preset::{Linux416, SplitZones, SplitZonesByCpu};
use zonal::report::BuddyInfo;
use zonal::watermark::{MinFree, WatermarkConfig, Watermarks};
use zonal::{CpuId, MigrateType, Order, Pfn, Request, ZoneId, ZoneType};
use zonal_testkit::checkers::{Rules, check_all, check_faults};
use zonal_testkit::host::TestHost;
use zonal_testkit::model::Model;
use zonal_testkit::mover::Moving;
use zonal_testkit::preset::{TinySplit, TinyZonal};
use zonal_testkit::probe::Probe;
use zonal_testkit::shape::{Shape, order, plan};
use zonal_testkit::snapshot::Snapshot;
use zonal_testkit::suite::effort;
use zonal_testkit::world::{World, with_plan, with_world};

type W<'m, S> = World<'m, Probe, S>;

/// Shapes whose types have several instances.
const SHAPES: [Shape; 5] =
    [Shape::Flat, Shape::Cma, Shape::Blocks3, Shape::Whole, Shape::Instances];
const MOVABLE: Request = Request::frame().migrate(MigrateType::Movable);

fn with<S: Policy, R>(shape: Shape, f: impl FnOnce(&W<'_, S>) -> R) -> R {
    with_world::<Probe, S, _>(shape, f)
}

fn on(world: &W<'_, impl Policy>, cpu: u32) {
    assert!(world.allocator.platform().switch_cpu(CpuId(cpu)));
}

fn pfns(start: u64, end: u64) -> Range<Pfn> {
    Pfn::new(start)..Pfn::new(end)
}

/// The frames of a range, each by itself.
fn singles(range: &Range<Pfn>) -> impl Iterator<Item = (Pfn, Order)> + use<> {
    (range.start.get()..range.end.get()).map(|pfn| (Pfn::new(pfn), Order::ZERO))
}

/// All invariants with these blocks out.
fn check<S: Policy>(world: &W<'_, S>, out: impl IntoIterator<Item = (Pfn, Order)>) -> Snapshot {
    let mut model = Model::new(world.allocator.plan());
    out.into_iter().for_each(|(pfn, order)| model.insert(pfn, order));
    let snapshot = Snapshot::of(&world.allocator);
    check_faults(&world.allocator.platform().faults()).unwrap();
    check_all(&snapshot, &model, &Rules::of::<S>()).unwrap();
    snapshot
}

fn exhaust<S: Policy>(world: &W<'_, S>, request: &Request) -> Vec<Pfn> {
    std::iter::from_fn(|| world.allocator.alloc_raw(request).ok()).collect()
}

#[test]
fn the_shapes_are_split() {
    fn all<S: Policy>(instances: usize) {
        for shape in SHAPES {
            let of = |plan: &Plan| plan.zones().iter().filter(|zone| zone.instance > 0).count();
            assert!(of(&shape.plan::<S>()) >= instances, "{} {shape:?}", S::NAME);
            assert_eq!(of(&shape.plan::<Linux416>()), 0);
        }
    }
    all::<SplitZones>(1);
    all::<SplitZonesByCpu>(1);
    all::<TinySplit>(1);
    let zones = Shape::Instances.plan::<SplitZones>();
    let starts: Vec<_> = zones.zones().iter().map(|zone| zone.start.get()).collect();
    assert_eq!(starts, [0, 0x400, 0x800, 0x1100, 0x1800, 0x2100, 0x2400, 0x2c00]);
}

/// One step of a sequence that is played on both.
#[derive(Clone, Debug)]
enum Step {
    /// Single frames, on a CPU, as one of three migrate types.
    Alloc {
        cpu: u32,
        ty: usize,
        count: usize,
    },
    /// Some of those that are out, from one of them on, on a CPU.
    Free {
        cpu: u32,
        nth: usize,
        count: usize,
    },
    DrainCpu(u32),
    DrainAll,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let count = prop_oneof![4 => 1..200_usize, 1 => 5000..6000_usize];
    let step = prop_oneof![
        5 => (0..4_u32, 0..3_usize, count.clone())
            .prop_map(|(cpu, ty, count)| Step::Alloc { cpu, ty, count }),
        4 => (0..4_u32, any::<usize>(), count)
            .prop_map(|(cpu, nth, count)| Step::Free { cpu, nth, count }),
        1 => (0..4_u32).prop_map(Step::DrainCpu),
        1 => Just(Step::DrainAll),
    ];
    proptest::collection::vec(step, 1..40)
}

/// Without watermarks and reserves: the last frame may go.
fn bare<S: Policy>(shape: Shape) -> Plan {
    let watermarks = WatermarkConfig { min_free: MinFree::None, ..WatermarkConfig::default() };
    let config = Config { watermarks, lowmem_ratio: [0; 4], ..shape.config() };
    plan::<S>(&shape.regions(), config)
}

/// How many allocations each step got, and at last how many more there were.
fn play<S: Policy>(shape: Shape, steps: &[Step]) -> Vec<usize> {
    with_plan::<Probe, S, _>(shape, &bare::<S>(shape), |world| {
        let allocator = &world.allocator;
        let mut out: Vec<Pfn> = Vec::new();
        let mut got = Vec::new();
        for step in steps {
            match *step {
                Step::Alloc { cpu, ty, count } => {
                    on(world, cpu % allocator.cpus());
                    let request = Request::frame().migrate(MigrateType::ALL[ty]);
                    let found = (0..count).map_while(|_| allocator.alloc_raw(&request).ok());
                    let before = out.len();
                    out.extend(found);
                    got.push(out.len() - before);
                }
                Step::Free { cpu, nth, count } => {
                    on(world, cpu % allocator.cpus());
                    for _ in 0..count.min(out.len()) {
                        let pfn = out.swap_remove(nth % out.len());
                        allocator.free_raw(pfn, Order::ZERO).unwrap();
                    }
                }
                Step::DrainCpu(cpu) => {
                    allocator.drain_cpu(CpuId(cpu % allocator.cpus()));
                }
                Step::DrainAll => {
                    allocator.drain_all();
                }
            }
        }
        let rest = exhaust(world, &MOVABLE);
        got.push(rest.len());
        out.extend(rest);
        let lent: u64 = allocator.plan().zones().iter().map(|zone| zone.managed).sum();
        assert_eq!(out.len() as u64, lent, "every frame can be had");
        check(world, out.into_iter().map(|pfn| (pfn, Order::ZERO)));
        got
    })
}

/// Splitting never changes what can be allocated, only where from.
fn same_as_whole<Whole: Policy, S: Policy>() {
    let cases = effort(24);
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    // Not `Cma`: whether an unmovable request finds something depends on where movable ones were
    // served from.
    let shapes = prop::sample::select(vec![Shape::Flat, Shape::Blocks3, Shape::Instances]);
    let result = runner.run(&(shapes, steps()), |(shape, steps)| {
        prop_assert_eq!(play::<Whole>(shape, &steps), play::<S>(shape, &steps));
        Ok(())
    });
    if let Err(error) = result {
        panic!("{}: {error}", S::NAME);
    }
}

#[test]
fn splitting_changes_only_where_from() {
    same_as_whole::<Linux416, SplitZones>();
    same_as_whole::<Linux416, SplitZonesByCpu>();
}

#[test]
fn splitting_changes_only_where_from_with_clusters() {
    same_as_whole::<TinyZonal, TinySplit>();
}

/// Blocks of one order until nothing is left, order after order: boundaries are at largest
/// blocks, so none is lost to them, in fresh memory or after everything came back.
#[test]
fn no_block_is_lost_to_a_boundary() {
    fn blocks<S: Policy>(shape: Shape) -> Vec<Vec<Pfn>> {
        with_plan::<Probe, S, _>(shape, &bare::<S>(shape), |world| {
            let mut all = Vec::new();
            for size in (0..=10).rev().chain(0..=10) {
                on(world, u32::from(size) % world.allocator.cpus());
                let mut found = exhaust(world, &MOVABLE.with_order(order(size)));
                found.iter().for_each(|&pfn| {
                    world.allocator.free_raw(pfn, order(size)).unwrap();
                });
                world.allocator.drain_all();
                found.sort_unstable();
                all.push(found);
            }
            check(world, []);
            all
        })
    }
    for shape in SHAPES {
        let whole = blocks::<Linux416>(shape);
        assert_eq!(blocks::<SplitZones>(shape), whole, "{shape:?}");
        assert_eq!(blocks::<SplitZonesByCpu>(shape), whole, "{shape:?}");
        assert_eq!(blocks::<TinySplit>(shape), blocks::<TinyZonal>(shape), "{shape:?}");
    }
}

/// With watermarks and reserves: all that instances keep back together is what the type keeps
/// back, up to a frame of rounding for each of marks and reserve.
#[test]
fn instances_keep_back_what_the_type_does() {
    fn had<S: Policy>(shape: Shape, request: &Request) -> usize {
        let watermarks =
            WatermarkConfig { min_free: MinFree::Frames(200), ..WatermarkConfig::default() };
        let config = Config { watermarks, ..shape.config() };
        let plan = plan::<S>(&shape.regions(), config);
        with_plan::<Probe, S, _>(shape, &plan, |world| exhaust(world, request).len())
    }
    for shape in SHAPES {
        for request in [MOVABLE, Request::frame(), Request::frame().high()] {
            let whole = had::<Linux416>(shape, &request);
            let split = had::<SplitZones>(shape, &request);
            assert!(whole.abs_diff(split) <= 2 * 8, "{shape:?} {request:?}: {whole}, {split}");
        }
    }
}

/// The zones in the order in which requests of a CPU should come to them.
fn ring(plan: &Plan, cpu: u32) -> Vec<ZoneId> {
    let node = Shape::Instances.node_of(CpuId(cpu));
    let zones = plan.zonelist(node).iter().map(|id| &plan.zones()[usize::from(id.0)]);
    let zones: Vec<_> = zones.collect();
    // Two nodes: CPUs 0 and 1 are the first of theirs, 2 and 3 the second.
    let lane = cpu as usize / 2;
    let mut order = Vec::new();
    for family in zones.chunk_by(|one, other| one.is_sibling(other)) {
        let (before, from) = family.split_at(lane % family.len());
        order.extend(from.iter().chain(before).map(|zone| zone.id));
    }
    order
}

/// Each CPU begins at its own instance, goes on to the others of the type, and only then to
/// another type and node.
fn prefer_and_spill<S: Policy>() {
    for cpu in 0..4 {
        for owned in [false, true] {
            with_plan::<Probe, S, _>(Shape::Instances, &bare::<S>(Shape::Instances), |world| {
                on(world, cpu);
                let allocator = &world.allocator;
                let expected = ring(allocator.plan(), cpu);
                assert_eq!(allocator.home_zone(CpuId(cpu), ZoneType::Normal), Some(expected[0]));
                let mut handle = owned.then(|| allocator.handle(CpuId(cpu)).unwrap());
                let mut seen = Vec::new();
                while let Ok(pfn) = match &mut handle {
                    Some(handle) => handle.alloc_raw(&MOVABLE),
                    None => allocator.alloc_raw(&MOVABLE),
                } {
                    let zone = allocator.plan().zone_at(pfn).unwrap();
                    if !seen.contains(&zone) {
                        seen.push(zone);
                    }
                }
                assert_eq!(seen, expected, "CPU {cpu}");
            });
        }
    }
}

#[test]
fn cpus_prefer_their_instance_and_spill_in_a_ring() {
    prefer_and_spill::<SplitZones>();
    prefer_and_spill::<SplitZonesByCpu>();
    prefer_and_spill::<TinySplit>();
    let ids = |cpu| ring(&bare::<SplitZones>(Shape::Instances), cpu).iter().map(|z| z.0).collect();
    let orders: [Vec<u8>; 4] = [0, 1, 2, 3].map(ids);
    assert_eq!(orders[0], [2, 3, 4, 5, 0, 1, 6, 7]);
    assert_eq!(orders[2], [3, 4, 5, 2, 1, 0, 7, 6]);
    assert_eq!(orders[3], [7, 6, 3, 4, 5, 2, 1, 0]);
}

#[test]
fn home_zones_by_limit() {
    with::<SplitZones, _>(Shape::Instances, |world| {
        let home = |cpu, limit| world.allocator.home_zone(CpuId(cpu), limit).map(|zone| zone.0);
        assert_eq!([0, 2].map(|cpu| home(cpu, ZoneType::Dma32)), [Some(0), Some(1)]);
        assert_eq!([1, 3].map(|cpu| home(cpu, ZoneType::Dma32)), [Some(0), Some(1)]);
        assert_eq!([1, 3].map(|cpu| home(cpu, ZoneType::Movable)), [Some(6), Some(7)]);
        assert_eq!(home(0, ZoneType::Dma), None);
        assert_eq!(home(4, ZoneType::Normal), None, "no such CPU");
        let text = BuddyInfo(&world.allocator).to_string();
        for name in ["DMA32 ", "DMA32_1 ", "Normal ", "Normal_1 ", "Normal_2 ", "Normal_3 "] {
            assert!(text.contains(&format!(" {name}")), "{name} in\n{text}");
        }
    });
}

/// A range and a number of frames that reach from one instance into the next.
fn contiguous_across<S: Policy>() {
    with::<S, _>(Shape::Instances, |world| {
        let allocator = &world.allocator;
        let across = allocator.alloc_range(pfns(0x3f1, 0x433)).unwrap();
        let out = || (0x3f1..0x433).map(|pfn| (Pfn::new(pfn), Order::ZERO));
        let counts: Vec<_> = check(world, out()).zones.iter().map(|zone| zone.isolated).collect();
        assert!(counts.iter().all(|&frames| frames == 0), "{counts:?}");
        let error = allocator.alloc_range(pfns(0x7f0, 0x810)).unwrap_err();
        assert_eq!(error, RangeError::CrossesZones { pfn: Pfn::new(0x800) }, "another type");
        allocator.free_contiguous(across).unwrap();
        check(world, []);

        let isolated = allocator.isolate(pfns(0x3e0, 0x420)).unwrap();
        let snapshot = check(world, []);
        assert_eq!((snapshot.zones[0].isolated, snapshot.zones[1].isolated), (32, 32));
        let error = allocator.isolate(pfns(0x3c0, 0x460)).unwrap_err();
        assert_eq!(error, RangeError::Isolated { pfn: Pfn::new(0x3e0) });
        let error = allocator.isolate(pfns(0x360, 0x400)).unwrap_err();
        assert_eq!(error, RangeError::Isolated { pfn: Pfn::new(0x3e0) });
        assert_eq!(allocator.busy_frames(&isolated), 0);
        allocator.undo_isolation(isolated).unwrap();
        check(world, []);

        // 0xb00 frames in a row are in the second and third instance of Normal together, and no more.
        let here = Request::frame().this_node();
        let tokens = [0xb00, 0x700].map(|n| allocator.alloc_contiguous(n, &here).unwrap());
        let ranges = [&tokens[0], &tokens[1]].map(zonal::Contiguous::range);
        assert_eq!(ranges, [pfns(0x1100, 0x1c00), pfns(0x800, 0xf00)]);
        check(world, ranges.iter().flat_map(singles));
        tokens.into_iter().for_each(|token| allocator.free_contiguous(token).unwrap());
        let error = allocator.alloc_contiguous(0xb01, &here).unwrap_err();
        assert!(matches!(error, ContiguousError::NoRange { .. }), "{error}");
        allocator.drain_all();
        check(world, []);
    });
}

/// What is in the way is moved; where that fails in the second instance, the first is as it was.
fn contiguous_across_what_is_in_use<S: Policy>() {
    for stuck in [false, true] {
        with::<S, _>(Shape::Flat, |world| {
            let allocator = &world.allocator;
            let movers = allocator.platform().movers();
            movers.set(Moving::Obeys);
            for (nth, pfn) in exhaust(world, &MOVABLE).into_iter().enumerate() {
                let kept = nth % 3 == 0 && !(stuck && pfn == Pfn::new(0x1410));
                if kept {
                    movers.adopt(pfn, Order::ZERO, nth as u64);
                } else if !(stuck && pfn == Pfn::new(0x1410)) {
                    allocator.free_raw(pfn, Order::ZERO).unwrap();
                }
            }
            // Not known to the host, which refuses to move it.
            let unknown = stuck.then_some((Pfn::new(0x1410), Order::ZERO));
            let moved = || {
                let blocks = movers.blocks().into_iter().map(|(pfn, order, _)| (pfn, order));
                blocks.chain(unknown).collect::<Vec<_>>()
            };
            let range = pfns(0x13d0, 0x1430);
            let result = allocator.alloc_range(range.clone());
            let mut out = moved();
            match result {
                Ok(token) => {
                    assert!(!stuck && token.range() == range);
                    out.extend(singles(&range));
                    check(world, out);
                    allocator.free_contiguous(token).unwrap();
                }
                Err(error) => {
                    let pfn = Pfn::new(0x1410);
                    assert_eq!(error, RangeError::Refused { pfn, order: Order::ZERO });
                    assert!(stuck);
                }
            }
            let snapshot = check(world, moved());
            assert!(snapshot.zones.iter().all(|zone| zone.isolated == 0));
        });
    }
}

#[test]
fn contiguous_frames_across_instances() {
    contiguous_across::<SplitZones>();
    contiguous_across_what_is_in_use::<SplitZones>();
    contiguous_across_what_is_in_use::<SplitZonesByCpu>();
    contiguous_across_what_is_in_use::<TinySplit>();
}

/// A drain reaches what any CPU holds of any instance, and all memory merges back.
#[test]
fn drains_reach_every_instance() {
    fn drained<S: Policy>() {
        with::<S, _>(Shape::Instances, |world| {
            let allocator = &world.allocator;
            let fresh = check(world, []);
            on(world, 0);
            let out = exhaust(world, &MOVABLE);
            for (nth, pfn) in out.into_iter().enumerate() {
                on(world, nth as u32 % 4);
                allocator.free_raw(pfn, Order::ZERO).unwrap();
            }
            let cached = check(world, []);
            assert!(cached.zones.iter().all(|zone| zone.cached > 0), "every instance");
            allocator.drain_all();
            let after = check(world, []);
            for (fresh, after) in fresh.zones.iter().zip(&after.zones) {
                assert_eq!((after.free, after.cached), (fresh.free, 0));
            }
        });
    }
    drained::<SplitZones>();
    drained::<TinySplit>();
}

/// Compaction works in each instance by itself: blocks form in every one.
#[test]
fn compaction_reaches_every_instance() {
    fn compacted<S: Policy>() {
        with::<S, _>(Shape::Instances, |world| {
            let allocator = &world.allocator;
            let movers = allocator.platform().movers();
            movers.set(Moving::Obeys);
            for (nth, pfn) in exhaust(world, &MOVABLE).into_iter().enumerate() {
                if nth % 3 == 0 {
                    movers.adopt(pfn, Order::ZERO, nth as u64);
                } else {
                    allocator.free_raw(pfn, Order::ZERO).unwrap();
                }
            }
            allocator.drain_all();
            let request = MOVABLE.with_order(order(7));
            assert!(allocator.alloc_raw(&request.no_wait()).is_err(), "it has to be made");
            let blocks = exhaust(world, &request);
            let moved = movers.blocks().into_iter().map(|(pfn, order, _)| (pfn, order));
            check(world, moved.chain(blocks.iter().map(|&pfn| (pfn, order(7)))));
            for zone in allocator.plan().zones() {
                let of = blocks.iter().filter(|pfn| zone.span().contains(**pfn)).count() as u64;
                let most = zone.managed * 2 / 3 / 128;
                assert!(of >= most / 2, "{of} of {most} blocks in {zone:?}");
            }
        });
    }
    compacted::<SplitZones>();
    compacted::<TinySplit>();
}

/// Each instance has watermarks of its own: one that is down is passed over, and only when all
/// zones are down is reclaim woken, for each of them.
#[test]
fn instances_have_watermarks_of_their_own() {
    fn own<S: Policy>() {
        with::<S, _>(Shape::Instances, |world| {
            let allocator = &world.allocator;
            on(world, 0);
            let ring = ring(allocator.plan(), 0);
            let info = |zone| allocator.zone_info(zone).unwrap();
            let down = |zone| {
                let low = info(zone).managed;
                assert!(allocator.set_watermarks(zone, Watermarks { min: 0, low, high: low }));
            };
            assert_eq!(info(ring[0]).zone_type, info(ring[1]).zone_type, "two instances");
            for (nth, &zone) in ring.iter().enumerate() {
                let pfn = allocator.alloc_raw(&Request::frame()).unwrap();
                assert_eq!(allocator.plan().zone_at(pfn), Some(zone), "{} at {nth}", S::NAME);
                assert!(allocator.platform().take_calls().woken.is_empty(), "{}", S::NAME);
                // Its cache would go on.
                allocator.drain_all();
                down(zone);
            }
            allocator.alloc_raw(&Request::frame()).expect("min is far");
            let woken = allocator.platform().take_calls().woken;
            assert_eq!(BTreeSet::from_iter(woken), BTreeSet::from_iter(ring), "{}", S::NAME);
        });
    }
    own::<SplitZones>();
    own::<SplitZonesByCpu>();
    own::<TinySplit>();
}

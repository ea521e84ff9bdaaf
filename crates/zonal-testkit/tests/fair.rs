//! The fair walks: what each zone hands out, and when the policy stands back.

use proptest::prelude::*;
use zonal::map::{PhysAddr, Region, RegionKind};
use zonal::plan::{Config, Plan};
use zonal::policy::{Policy, Walk};
use zonal::preset::{FairZone, FairZonePosted, LessDirty, Linux316, Linux416};
use zonal::units::FRAME_SIZE;
use zonal::watermark::{MinFree, WatermarkConfig};
use zonal::zonelist::ZonelistOrder;
use zonal::{CpuId, MigrateType, NodeId, Order, Pfn, Request, ZoneId, ZoneType};
use zonal_testkit::checkers::{Rules, check_all};
use zonal_testkit::host::TestHost;
use zonal_testkit::model::Model;
use zonal_testkit::probe::Probe;
use zonal_testkit::shape::{Shape, plan};
use zonal_testkit::snapshot::Snapshot;
use zonal_testkit::world::{World, with_plan};

type W<'m, S> = World<'m, Probe, S>;

fn frames(start: u64, count: u64) -> Region {
    let size = FRAME_SIZE as u64;
    Region::usable(PhysAddr(start * size), count * size)
}

/// Zones with watermarks 1 % of their memory apart.
fn config(dma: u64, dma32: u64) -> Config {
    let min_free = MinFree::Frames(64);
    Config {
        dma_limit: Pfn::new(dma),
        dma32_limit: Pfn::new(dma32),
        watermarks: WatermarkConfig { min_free, scale_factor: 100, boost_factor: 0 },
        lowmem_ratio: [0; 4],
        ..Shape::TwoNodes.config()
    }
}

/// DMA32 of 3072 frames and Normal of 5120 on one node; 30 and 51 frames a reclaim cycle.
fn two_types<S: Policy>() -> Plan {
    plan::<S>(&[frames(0, 8192)], config(0, 3072))
}

fn with<S: Policy, R>(plan: &Plan, f: impl FnOnce(&W<'_, S>) -> R) -> R {
    with_plan::<Probe, S, R>(Shape::TwoNodes, plan, f)
}

fn handed_out<S: Policy>(world: &W<'_, S>) -> Vec<u64> {
    let zones = 0..world.allocator.zone_count() as u8;
    zones.map(|id| world.allocator.zone_info(ZoneId(id)).unwrap().allocated).collect()
}

fn take<S: Policy>(world: &W<'_, S>, request: &Request, count: u64) {
    for _ in 0..count {
        world.allocator.alloc_raw(request).unwrap();
    }
}

/// How many frames of the two zones `count` requests get.
fn spread<S: Policy>(count: u64) -> Vec<u64> {
    with::<S, _>(&two_types::<S>(), |world| {
        take(world, &Request::frame(), count);
        handed_out(world)
    })
}

#[test]
fn first_fit_takes_the_highest_zone() {
    assert_eq!(spread::<Linux416>(2000), [0, 2000]);
}

#[test]
fn fair_walks_take_turns_by_the_cycle_of_reclaim() {
    fn turns<S: Policy>() {
        let all = 1620;
        let of = spread::<S>(all);
        assert_eq!(of.iter().sum::<u64>(), all);
        // 20 cycles of 30 and 51 frames; a cycle is over when a CPU has told, up to 2 too late.
        assert!(of[0].abs_diff(600) <= 60, "{}: {of:?}", S::NAME);
    }
    turns::<Linux316>();
    turns::<FairZone>();
    turns::<LessDirty>();
}

/// The patch as posted: a quarter of the zone is its batch, and batches are filled when all are used
/// up, or a zone of the pass is down at its watermark.
#[test]
fn the_posted_walk_takes_quarters_of_a_zone() {
    let (of, all) = (spread::<FairZonePosted>(2048), spread::<FairZonePosted>(4096));
    assert!(of[1].abs_diff(1280) <= 16 && all[1].abs_diff(2560) <= 32, "{of:?} {all:?}");
    with::<FairZonePosted, _>(&two_types::<FairZonePosted>(), |world| {
        let share = |id| world.allocator.zone_info(ZoneId(id)).unwrap().fair.unwrap();
        assert_eq!([share(0).batch, share(1).batch], [768, 1280]);
        let low = Request::frame().zone_limit(ZoneType::Dma32);
        let info = || world.allocator.zone_info(ZoneId(0)).unwrap();
        while info().free > info().watermarks.low {
            take(world, &low, 1);
        }
        world.allocator.drain_all();
        while !share(1).depleted {
            take(world, &Request::frame(), 1);
        }
        let before = handed_out(world);
        take(world, &Request::frame(), 40);
        let after = handed_out(world);
        assert!(!share(1).depleted && after[1] > before[1], "filled, as a zone was short");
    });
}

/// Larger blocks, owned caches and bulk requests are charged as well.
#[test]
fn every_way_out_is_charged() {
    fn charged<S: Policy>() {
        let plan = two_types::<S>();
        let cycle =
            |zone: usize| plan.zones()[zone].watermarks.high - plan.zones()[zone].watermarks.low;
        assert_eq!([cycle(0), cycle(1)], [30, 51]);
        let ways: [fn(&W<'_, S>, &Request); 3] = [
            |world, request| take(world, request, 1),
            |world, request| {
                let mut out = [Pfn::new(0); 8];
                let single = request.with_order(Order::ZERO);
                world.allocator.alloc_bulk(&single, &mut out).unwrap();
            },
            |world, request| drop(world.allocator.handle(CpuId(1)).unwrap().alloc(request)),
        ];
        for (nth, way) in ways.into_iter().enumerate() {
            for order in [0, 3] {
                let request = Request::new(Order::new(order).unwrap());
                with::<S, _>(&plan, |world| {
                    while handed_out(world).iter().sum::<u64>() < 1620 {
                        way(world, &request);
                    }
                    let of = handed_out(world);
                    // A batch ends with the block that uses it up.
                    assert!(of[0].abs_diff(600) <= 120, "{} {nth} {order}: {of:?}", S::NAME);
                });
            }
        }
    }
    charged::<Linux316>();
    charged::<FairZone>();
}

/// A lowest zone with less than a sixteenth of its node, which leaves one: no fair pass.
#[test]
fn a_tiny_lowest_zone_is_left_out() {
    fn spread<S: Policy>(plan: &Plan) -> Vec<u64> {
        with::<S, _>(plan, |world| {
            take(world, &Request::frame(), 2000);
            handed_out(world)
        })
    }
    let of = |spread: &dyn Fn(&Plan) -> Vec<u64>, dma: u64| {
        spread(&plan::<FairZone>(&[frames(0, 8192)], config(dma, dma)))
    };
    assert_eq!(of(&spread::<FairZone>, 480), [0, 2000], "tiny");
    assert!(of(&spread::<Linux316>, 480)[0] > 60, "3.16 did not look at that");
    assert!(of(&spread::<FairZone>, 544)[0] > 60, "not tiny");
}

#[test]
fn lists_in_zone_order_spare_the_low_zones() {
    fn first<S: Policy>() -> Vec<u64> {
        let config = Config { zonelist_order: ZonelistOrder::Zone, ..config(0, 3072) };
        let plan = plan::<S>(&[frames(0, 8192)], config);
        with::<S, _>(&plan, |world| {
            take(world, &Request::frame(), 2000);
            handed_out(world)
        })
    }
    assert_eq!(first::<FairZone>(), [0, 2000]);
    assert!(first::<Linux316>()[0] > 600, "3.16 did not keep the promise");
}

/// The fair pass stays on the node; only when its zones are down at their low watermarks does
/// the walk go further, before reclaim is woken.
#[test]
fn remote_zones_come_after_all_local_ones() {
    fn remote<S: Policy>() {
        let there = [frames(0, 4096), frames(4096, 4096).on(NodeId(1))];
        let plan = plan::<S>(&there, config(0, 1024));
        assert_eq!(plan.zones().len(), 3);
        with::<S, _>(&plan, |world| {
            let allocator = &world.allocator;
            allocator.platform().switch_cpu(CpuId(0));
            let low = |id: u8| allocator.zone_info(ZoneId(id)).unwrap().watermarks.low;
            while handed_out(world)[2] == 0 {
                take(world, &Request::frame(), 1);
            }
            let of = handed_out(world);
            for (id, managed) in [(0, 1024), (1, 3072)] {
                let left = managed - of[usize::from(id)];
                assert!(left <= low(id) + 31, "{}: zone {id} has {left}: {of:?}", S::NAME);
            }
            assert!(allocator.platform().take_calls().woken.is_empty(), "{}", S::NAME);
        });
    }
    remote::<Linux316>();
    remote::<FairZone>();
    remote::<FairZonePosted>();
}

/// A zone at its watermark has had its turn: the others' batches go on, and all are filled once
/// all are depleted.
#[test]
fn a_zone_at_its_watermark_counts_as_depleted() {
    with::<FairZone, _>(&two_types::<FairZone>(), |world| {
        let allocator = &world.allocator;
        let low = Request::frame().zone_limit(ZoneType::Dma32);
        let free = || allocator.zone_info(ZoneId(0)).unwrap();
        while free().free > free().watermarks.low {
            take(world, &low, 1);
        }
        let before = handed_out(world);
        let mut resets = 0;
        let mut batch = allocator.zone_info(ZoneId(1)).unwrap().fair.unwrap().batch;
        for _ in 0..510 {
            take(world, &Request::frame(), 1);
            let now = allocator.zone_info(ZoneId(1)).unwrap().fair.unwrap().batch;
            resets += u32::from(now > batch);
            batch = now;
        }
        let after = handed_out(world);
        // What was in the cache of the low zone may still go.
        assert!(after[1] - before[1] > 450, "{before:?} {after:?}");
        assert!((8..=13).contains(&resets), "{resets} in 510 frames, 51 a batch");
        assert!(allocator.platform().take_calls().woken.is_empty());
    });
}

#[test]
fn shares_are_reported() {
    with::<FairZone, _>(&two_types::<FairZone>(), |world| {
        let share = |id| world.allocator.zone_info(ZoneId(id)).unwrap().fair.unwrap();
        assert_eq!([share(0).batch, share(1).batch], [30, 51]);
        take(world, &Request::frame(), 60);
        assert!(share(1).depleted && !share(0).depleted);
        let text = zonal::report::ZoneStatus(&world.allocator).to_string();
        assert!(text.contains("nr_alloc_batch"), "{text}");
        assert!(text.contains("zonal_fair_depleted 1"), "{text}");
    });
    with::<Linux416, _>(&two_types::<Linux416>(), |world| {
        assert_eq!(world.allocator.zone_info(ZoneId(0)).unwrap().fair, None);
    });
}

/// What a request sequence gets until nothing is left, as numbers of frames.
fn until_exhausted<S: Policy>(plan: &Plan, steps: &[(u8, bool, u8)]) -> (Vec<bool>, usize)
where
    S::Walk: Walk,
{
    with::<S, _>(plan, |world| {
        let mut model = Vec::new();
        let mut outcomes = Vec::new();
        for &(order, movable, cpu) in steps {
            world.allocator.platform().switch_cpu(CpuId(u32::from(cpu % 2)));
            let migrate = if movable { MigrateType::Movable } else { MigrateType::Unmovable };
            let order = Order::new(order).unwrap();
            let got = world.allocator.alloc_raw(&Request::new(order).migrate(migrate));
            outcomes.push(got.is_ok());
            model.extend(got.ok().map(|pfn| (pfn, order)));
        }
        while let Ok(pfn) = world.allocator.alloc_raw(&Request::frame().high().atomic()) {
            model.push((pfn, Order::ZERO));
        }
        let mut allocated = Model::new(plan);
        for &(pfn, order) in &model {
            allocated.insert(pfn, order);
        }
        check_all(&Snapshot::of(&world.allocator), &allocated, &Rules::of::<S>()).unwrap();
        (outcomes, model.iter().map(|(_, order)| order.frames() as usize).sum())
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    /// Fairness changes where frames come from, never how many there are (I-6).
    #[test]
    fn fairness_costs_no_frame(
        steps in prop::collection::vec((0_u8..4, any::<bool>(), 0_u8..2), 0..400),
    ) {
        let there = [frames(0, 2048), frames(2048, 1024).on(NodeId(1))];
        let config = Config {
            watermarks: WatermarkConfig { min_free: MinFree::Frames(32), ..config(0, 0).watermarks },
            ..config(128, 1024)
        };
        let of = plan::<Linux416>(&there, config);
        let (_, first_fit) = until_exhausted::<Linux416>(&of, &steps);
        for (_, fair) in [
            until_exhausted::<Linux316>(&of, &steps),
            until_exhausted::<FairZone>(&of, &steps),
            until_exhausted::<FairZonePosted>(&of, &steps),
            until_exhausted::<LessDirty>(&of, &steps),
        ] {
            prop_assert_eq!(fair, first_fit);
        }
    }
}

/// A zone without memory takes no part until it has some.
#[test]
fn a_zone_whose_memory_comes_later_joins_in() {
    fn joins<S: Policy>() {
        let later = Region { kind: RegionKind::Offline, ..frames(3072, 5120) };
        let plan = plan::<S>(&[frames(0, 3072), later], config(0, 3072));
        with::<S, _>(&plan, |world| {
            take(world, &Request::frame(), 500);
            assert_eq!(handed_out(world), [500, 0], "{}", S::NAME);
            world.allocator.online(Pfn::new(3072)..Pfn::new(8192)).unwrap();
            take(world, &Request::frame(), 1620);
            let of = handed_out(world);
            assert!((of[0] - 500).abs_diff(600) <= 90, "{}: {of:?}", S::NAME);
        });
    }
    joins::<Linux316>();
    joins::<FairZone>();
}

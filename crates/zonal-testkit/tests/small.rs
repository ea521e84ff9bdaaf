//! Blocks of a few frames that stay with their CPU: what comes back, what is refused meanwhile, and that a drain
//! leaves nothing.

use zonal::map::{PhysAddr, Region, RegionKind};
use zonal::plan::Config;
use zonal::policy::Policy;
use zonal::preset::{Trusting, Zonal};
use zonal::watermark::{MinFree, WatermarkConfig};
use zonal::{CpuId, FreeError, MigrateType, Order, Pfn, Request, ZoneId};
use zonal_testkit::probe::Probe;
use zonal_testkit::shape::{Shape, plan};
use zonal_testkit::world::{World, with_plan};

pub(crate) type W<'m, S> = World<'m, Probe, S>;

/// The orders that stay.
fn orders() -> impl Iterator<Item = Order> {
    Order::all().skip(1).take(3)
}

pub(crate) fn order(number: u8) -> Order {
    Order::new(number).expect("an order")
}

/// A number of pageblocks of 512 frames, the last `cma` of them CMA, for a number of CPUs.
pub(crate) fn with_all<S: Policy>(
    (pageblocks, cma): (u64, u64),
    cpus: u32,
    f: impl FnOnce(&W<'_, S>),
) {
    let (all, lent) = (pageblocks << 21, cma << 21);
    let usable = Region::usable(PhysAddr(0), all);
    let lent = Region { kind: RegionKind::Cma, ..Region::usable(PhysAddr(all - lent), lent) };
    let config = Config {
        dma_limit: Pfn::new(0),
        dma32_limit: Pfn::new(0),
        watermarks: WatermarkConfig { min_free: MinFree::None, ..WatermarkConfig::default() },
        ..Config::new(cpus)
    };
    let regions = [usable, lent];
    let plan = plan::<S>(if cma == 0 { &regions[..1] } else { &regions }, config);
    with_plan::<Probe, S, _>(Shape::Flat, &plan, f);
}

/// 64 pageblocks for one CPU, the last `cma` of them CMA.
fn with_cma<S: Policy>(cma: u64, f: impl FnOnce(&W<'_, S>)) {
    with_all((64, cma), 1, f);
}

pub(crate) fn with<S: Policy>(f: impl FnOnce(&W<'_, S>)) {
    with_cma(0, f);
}

/// Frames in caches, and free ones, as the watermarks see them.
pub(crate) fn cached<S: Policy>(world: &W<'_, S>) -> u64 {
    world.allocator.zone_info(ZoneId(0)).expect("a zone").cached
}

/// Everything is free, in whole pageblocks.
fn assert_all_is_back<S: Policy>(world: &W<'_, S>) {
    world.allocator.drain_all();
    let zone = world.allocator.zone_info(ZoneId(0)).expect("a zone");
    assert_eq!((zone.cached, zone.free, zone.counted_free), (0, zone.managed, zone.managed));
    let mut blocks = Vec::new();
    while let Ok(pfn) = world.allocator.alloc_raw(&Request::new(Order::HUGE)) {
        blocks.push(pfn);
    }
    assert_eq!(blocks.len() as u64 * 512, zone.managed, "nothing divides a pageblock");
}

/// The block that was freed last comes back, of each order and type, by a handle and without; what is cached is known.
#[test]
fn a_block_comes_back() {
    with::<Zonal>(|world| {
        for migrate in [MigrateType::Unmovable, MigrateType::Movable, MigrateType::Reclaimable] {
            for order in orders() {
                let request = Request::new(order).migrate(migrate);
                let mut owner = world.allocator.handle(CpuId(0)).expect("no other owner");
                let [first, second] = [(); 2].map(|()| owner.alloc_raw(&request).expect("memory"));
                let before = cached(world);
                owner.free_raw(first, order).expect("allocated");
                owner.free_raw(second, order).expect("allocated");
                assert_eq!(cached(world), before + 2 * order.frames(), "{order} {migrate:?}");
                assert_eq!(owner.alloc_raw(&request), Ok(second));
                drop(owner);
                let allocator = &world.allocator;
                assert_eq!(allocator.alloc_raw(&request), Ok(first), "by the other way");
                allocator.free_raw(first, order).expect("allocated");
                allocator.free_raw(second, order).expect("allocated");
                assert_eq!(allocator.alloc_raw(&request), Ok(second));
                allocator.free_raw(second, order).expect("allocated");
            }
        }
        assert_eq!(cached(world), 3 * 2 * (2 + 4 + 8));
        assert_all_is_back(world);
    });
}

/// Blocks of one order and type are for no other.
#[test]
fn orders_and_types_stay_apart() {
    with::<Zonal>(|world| {
        let mut owner = world.allocator.handle(CpuId(0)).expect("no other owner");
        let request = Request::new(order(2)).migrate(MigrateType::Movable);
        let pfn = owner.alloc_raw(&request).expect("memory");
        owner.free_raw(pfn, order(2)).expect("allocated");
        for other in [Request::new(order(2)), request.with_order(order(1))] {
            let got = owner.alloc_raw(&other).expect("memory");
            assert_ne!(got, pfn);
            owner.free_raw(got, other.order()).expect("allocated");
        }
        assert_eq!(owner.alloc_raw(&request), Ok(pfn));
        owner.free_raw(pfn, order(2)).expect("allocated");
        drop(owner);
        assert_all_is_back(world);
    });
}

/// Wrong frees of a block that stays, or is allocated, are refused, and change nothing.
fn wrong_frees<S: Policy>() {
    with::<S>(|world| {
        let mut owner = world.allocator.handle(CpuId(0)).expect("no other owner");
        for order in orders() {
            let request = Request::new(order);
            let pfn = owner.alloc_raw(&request).expect("memory");
            let inner = Pfn::new(pfn.get() + 1);
            let more = Order::new(order.get() + 1).expect("an order");
            let wrong = owner.free_raw(pfn, more);
            assert_eq!(wrong, Err(FreeError::WrongOrder { pfn, given: more, allocated: order }));
            let wrong = owner.free_raw(inner, order);
            assert_eq!(wrong, Err(FreeError::Inner { pfn: inner, head: pfn, order }));
            owner.free_raw(pfn, order).expect("allocated");
            let before = cached(world);
            for given in [Order::ZERO, order, more] {
                let twice = owner.free_raw(pfn, given);
                assert_eq!(twice, Err(FreeError::DoubleFree { pfn, order: given }));
                assert!(owner.free_raw(inner, given).is_err());
                assert!(world.allocator.free_raw(pfn, given).is_err(), "by the other way");
            }
            assert!(owner.free_raw(Pfn::new(1 << 40), order).is_err(), "foreign");
            assert_eq!(cached(world), before);
            assert_eq!(owner.alloc_raw(&request), Ok(pfn), "it is still there");
            owner.free_raw(pfn, order).expect("allocated");
        }
        drop(owner);
        assert_all_is_back(world);
    });
}

#[test]
fn wrong_frees_are_refused() {
    wrong_frees::<Zonal>();
    wrong_frees::<Trusting>();
}

/// Of many blocks eight stay, by a handle and without; the others are free memory at once.
#[test]
fn more_than_may_stay() {
    for owned in [true, false] {
        with::<Zonal>(|world| {
            let allocator = &world.allocator;
            let request = Request::new(order(2));
            let held: Vec<_> =
                (0..100).map(|_| allocator.alloc_raw(&request).expect("memory")).collect();
            let mut owner = owned.then(|| allocator.handle(CpuId(0)).expect("no other owner"));
            for &pfn in &held {
                match &mut owner {
                    Some(owner) => owner.free_raw(pfn, order(2)),
                    None => allocator.free_raw(pfn, order(2)),
                }
                .expect("allocated");
                assert!(cached(world) <= 8 * 4);
            }
            assert!(cached(world) >= 4 * 4, "a half at least");
            drop(owner);
            assert_all_is_back(world);
        });
    }
}

/// A block of another pageblock than blocks come from does not stay: its pageblock is to become whole.
#[test]
fn what_lies_far_out_goes() {
    with::<Zonal>(|world| {
        let mut owner = world.allocator.handle(CpuId(0)).expect("no other owner");
        let request = Request::new(order(3));
        // Two pageblocks and one block.
        let held: Vec<_> = (0..129).map(|_| owner.alloc_raw(&request).expect("memory")).collect();
        let (near, far) = (held[0], held[128]);
        assert!(near < Pfn::new(512) && far >= Pfn::new(1024));
        owner.free_raw(near, order(3)).expect("allocated");
        world.allocator.drain_cpu(CpuId(0));
        // Best fit: the next is the one run of eight in the first pageblock, which is the one from now on.
        assert_eq!(owner.alloc_raw(&request), Ok(near));
        owner.free_raw(far, order(3)).expect("allocated");
        assert_eq!(cached(world), 0, "it went into the map");
        owner.free_raw(near, order(3)).expect("allocated");
        assert_eq!(cached(world), 8);
        held[1..128].iter().for_each(|&pfn| owner.free_raw(pfn, order(3)).expect("allocated"));
        drop(owner);
        assert_all_is_back(world);
    });
}

/// What a drain takes is whole again while its owner is there, who goes on afterwards.
#[test]
fn a_drain_leaves_nothing() {
    with::<Zonal>(|world| {
        let mut owner = world.allocator.handle(CpuId(0)).expect("no other owner");
        for _ in 0..50 {
            let held = orders().map(|order| {
                let pfn = owner.alloc_raw(&Request::new(order)).expect("memory");
                (pfn, order)
            });
            for (pfn, order) in held.collect::<Vec<_>>() {
                owner.free_raw(pfn, order).expect("allocated");
            }
            assert!(cached(world) > 0);
            assert_all_is_back(world);
            let huge = |pfn: u64| world.allocator.free_raw(Pfn::new(pfn), Order::HUGE);
            (0..64).for_each(|at| huge(at * 512).expect("allocated"));
        }
    });
}

/// Frames that are lent stay under the type that has them, and are counted where they belong.
#[test]
fn what_is_lent_is_counted_apart() {
    with_cma::<Zonal>(64, |world| {
        let mut owner = world.allocator.handle(CpuId(0)).expect("no other owner");
        let request = Request::new(order(1)).migrate(MigrateType::Movable);
        let all = world.allocator.zone_info(ZoneId(0)).expect("a zone").free;
        let pfn = owner.alloc_raw(&request).expect("CMA memory is lent");
        for _ in 0..3 {
            owner.free_raw(pfn, order(1)).expect("allocated");
            assert!(owner.alloc_raw(&Request::new(order(1))).is_err(), "unmovable");
            assert_eq!(owner.alloc_raw(&request), Ok(pfn));
        }
        owner.free_raw(pfn, order(1)).expect("allocated");
        drop(owner);
        world.allocator.drain_all();
        let zone = world.allocator.zone_info(ZoneId(0)).expect("a zone");
        assert_eq!((zone.free, zone.counted_free), (all, all));
    });
}

/// What stays was in use before: a request for zeros has it filled.
#[test]
fn zeros_are_written_to_what_stayed() {
    with::<Zonal>(|world| {
        let mut owner = world.allocator.handle(CpuId(0)).expect("no other owner");
        let plain = Request::new(order(3));
        for wanted in [plain.zero(), plain, plain.zero(), plain.zero()] {
            let pfn = owner.alloc_raw(&wanted).expect("memory");
            owner.free_raw(pfn, order(3)).expect("allocated");
        }
        assert_eq!(world.allocator.platform().take_calls().zeroed.len(), 3);
    });
}

/// A pageblock that is isolated takes back what stayed of it, and what is freed to it later does not stay.
#[test]
fn nothing_stays_of_what_is_isolated() {
    with::<Zonal>(|world| {
        let mut owner = world.allocator.handle(CpuId(0)).expect("no other owner");
        let request = Request::new(order(2)).migrate(MigrateType::Movable);
        let [first, second] = [(); 2].map(|()| owner.alloc_raw(&request).expect("memory"));
        owner.free_raw(first, order(2)).expect("allocated");
        let isolated = world.allocator.isolate(Pfn::new(0)..Pfn::new(512)).expect("it may be");
        assert_eq!(world.allocator.busy_frames(&isolated), 4, "the second");
        owner.free_raw(second, order(2)).expect("allocated");
        assert_eq!(world.allocator.busy_frames(&isolated), 0);
        let other = owner.alloc_raw(&request).expect("memory elsewhere");
        assert!(other >= Pfn::new(512));
        world.allocator.undo_isolation(isolated).expect("its own");
        owner.free_raw(other, order(2)).expect("allocated");
        drop(owner);
        assert_all_is_back(world);
    });
}

/// Many at once, by a handle and without; those that may not be freed are left out, and the first is named.
#[test]
fn blocks_are_freed_as_they_came() {
    with::<Zonal>(|world| {
        let allocator = &world.allocator;
        for order in [0, 2, 9].map(order) {
            let (request, mut blocks) = (Request::new(order), [Pfn::new(0); 5]);
            let mut owner = allocator.handle(CpuId(0)).expect("no other owner");
            allocator.alloc_bulk(&request, &mut blocks).expect("memory");
            let done = owner.free_blocks(order, &blocks[..3]);
            assert_eq!((done.freed, done.refused, done.first_refused), (3, 0, None));
            drop(owner);
            let rest = [blocks[3], Pfn::new(1 << 40), blocks[4], blocks[3]];
            let done = allocator.free_blocks(order, &rest);
            assert_eq!((done.freed, done.refused), (2, 2), "{order}");
            let foreign = FreeError::Foreign { pfn: Pfn::new(1 << 40) };
            assert_eq!(done.first_refused, Some((1, foreign)));
        }
        assert_all_is_back(world);
    });
}

//! Blocks of a few frames that stay with their CPU: what comes back, what is refused meanwhile, and that a drain
//! leaves nothing.

use zonal::map::{PhysAddr, Region, RegionKind};
use zonal::plan::Config;
use zonal::policy::Policy;
use zonal::preset::{Trusting, Zonal};
use zonal::watermark::{MinFree, WatermarkConfig};
use zonal::{CpuHandle, CpuId, FreeError, MigrateType, Order, Pfn, Request, ZoneId};
use zonal_testkit::host::TestHost;
use zonal_testkit::probe::Probe;
use zonal_testkit::shape::{Shape, plan};
use zonal_testkit::world::{World, with_plan};

type W<'m, S> = World<'m, Probe, S>;

/// The orders that stay.
fn orders() -> impl Iterator<Item = Order> {
    Order::all().skip(1).take(3)
}

fn order(number: u8) -> Order {
    Order::new(number).expect("an order")
}

/// A number of pageblocks of 512 frames, the last `cma` of them CMA, for a number of CPUs.
fn with_all<S: Policy>((pageblocks, cma): (u64, u64), cpus: u32, f: impl FnOnce(&W<'_, S>)) {
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

fn with<S: Policy>(f: impl FnOnce(&W<'_, S>)) {
    with_cma(0, f);
}

/// Frames in caches, and free ones, as the watermarks see them.
fn cached<S: Policy>(world: &W<'_, S>) -> u64 {
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

fn movable(order: Order) -> Request {
    Request::new(order).migrate(MigrateType::Movable)
}

/// Three pageblocks full of movable blocks of an order, the last of which the CPU takes blocks from, in a zone
/// of a number of pageblocks.
fn with_full<S: Policy>(
    (order, pageblocks): (Order, u64),
    cpus: u32,
    f: impl FnOnce(&W<'_, S>, &mut CpuHandle<'_, '_, Probe, S>, &[Pfn]),
) {
    with_all::<S>((pageblocks, 0), cpus, |world| {
        let mut owner = world.allocator.handle(CpuId(0)).expect("no other owner");
        let count = 3 * (512 >> order.get());
        let take = |_| owner.alloc_raw(&movable(order)).expect("memory");
        let held: Vec<_> = (0..count).map(take).collect();
        assert_eq!(held.last(), Some(&Pfn::new(1536 - order.frames())));
        f(world, &mut owner, &held);
        drop(owner);
        world.allocator.drain_all();
        assert_eq!(cached(world), 0);
    });
}

/// Where a CPU keeps one block it is the one that was freed last, wherever it is, and is the next if it lies before all others of
/// its order.
#[test]
fn the_last_block_comes_back_from_anywhere() {
    for (order, far_first) in [1, 3, 5].into_iter().flat_map(|it| [(it, false), (it, true)]) {
        let order = self::order(order);
        with_full::<Zonal>((order, 31), 1, |world, owner, held| {
            let far = held.len() / 2 + 1;
            for at in if far_first { [far, 1] } else { [1, far] } {
                owner.free_raw(held[at], order).expect("allocated");
            }
            assert_eq!(cached(world), order.frames(), "the last of them");
            // They come back by their place.
            for at in [1, far] {
                assert_eq!(owner.alloc_raw(&movable(order)), Ok(held[at]));
            }
            assert_eq!(cached(world), 0);
            assert_eq!(owner.alloc_raw(&movable(order)), Ok(Pfn::new(1536)), "the rest is full");
        });
    }
}

/// Where it keeps several they stay one a pageblock, and come back the oldest first, each for its order.
#[test]
fn blocks_that_stay_come_back_oldest_first() {
    let (order, smaller) = (order(3), order(2));
    with_full::<Zonal>((order, 128), 1, |world, owner, held| {
        let far = held.len() / 2;
        for [first, second] in [[1, far], [far, 1]] {
            owner.free_raw(held[first], order).expect("allocated");
            owner.free_raw(held[second], order).expect("allocated");
            assert_eq!(cached(world), 16);
            for at in [first, second] {
                assert_eq!(owner.alloc_raw(&movable(order)), Ok(held[at]));
            }
            assert_eq!(cached(world), 0);
        }
        owner.free_raw(held[1], order).expect("allocated");
        assert_eq!(owner.alloc_raw(&movable(smaller)), Ok(Pfn::new(1536)), "of another order");
        assert_eq!(cached(world), 8);
    });
}

/// A pageblock of which more becomes free has its blocks back: it is to become whole.
#[test]
fn nothing_stays_of_a_pageblock_that_becomes_free() {
    let order = order(4);
    with_full::<Zonal>((order, 128), 1, |world, owner, held| {
        owner.free_raw(held[20], order).expect("allocated");
        assert_eq!(cached(world), 16);
        owner.free_raw(held[7], order).expect("allocated");
        assert_eq!(cached(world), 0);
        owner.free_raw(held[9], order).expect("allocated");
        assert_eq!(cached(world), 0, "something is free there");
        // So they are found by their place.
        for at in [7, 9, 20] {
            assert_eq!(owner.alloc_raw(&movable(order)), Ok(held[at]));
        }
    });
}

/// A block that stays is no better than others if another CPU has freed something of its pageblock.
#[test]
fn a_block_of_a_pageblock_that_others_free_is_passed_over() {
    let order = order(4);
    with_full::<Zonal>((order, 128), 2, |world, owner, held| {
        let far = held.len() / 2;
        owner.free_raw(held[far], order).expect("allocated");
        assert_eq!(cached(world), 16);
        world.allocator.platform().switch_cpu(CpuId(1));
        world.allocator.free_raw(held[far + 2], order).expect("allocated");
        world.allocator.drain_cpu(CpuId(1));
        world.allocator.platform().switch_cpu(CpuId(0));
        assert_eq!(cached(world), 16);
        for at in [far + 2, far] {
            assert_eq!(owner.alloc_raw(&movable(order)), Ok(held[at]));
        }
    });
}

/// No more stay than are worth a part of the zone, and no more frames than on a stack.
#[test]
fn few_blocks_stay() {
    for (order, stay) in [(order(2), 8), (order(6), 4), (order(7), 2)] {
        with_all::<Zonal>((1024, 0), 1, |world| {
            let mut owner = world.allocator.handle(CpuId(0)).expect("no other owner");
            let a_pageblock = 512 >> order.get();
            let take = |_| owner.alloc_raw(&movable(order)).expect("memory");
            let held: Vec<_> = (0..13 * a_pageblock).map(take).collect();
            let one_each: Vec<_> = held.iter().step_by(a_pageblock).take(12).collect();
            for (at, &&pfn) in one_each.iter().enumerate() {
                owner.free_raw(pfn, order).expect("allocated");
                assert_eq!(cached(world), order.frames() * stay.min(at as u64 + 1), "{order}");
            }
            // The oldest went: what stayed is of the last.
            let stays = &one_each[one_each.len() - stay as usize..];
            for &&pfn in stays {
                assert_eq!(owner.alloc_raw(&movable(order)), Ok(pfn));
            }
            assert_eq!(owner.alloc_raw(&movable(order)), Ok(*one_each[0]), "of the map");
            drop(owner);
            world.allocator.drain_all();
            assert_eq!(cached(world), 0);
        });
    }
}

/// How many stay is by how many CPUs keep some, not by how many there are: one that keeps none any more is found by the second
/// drain.
#[test]
fn fewer_blocks_stay_where_more_cpus_keep_some() {
    let order = order(3);
    with_all::<Zonal>((1024, 0), 4, |world| {
        let mut owner = world.allocator.handle(CpuId(0)).expect("no other owner");
        let take = |_| owner.alloc_raw(&movable(order)).expect("memory");
        let held: Vec<_> = (0..40 * 64).map(take).collect();
        // Of a pageblock each, from which nothing else is freed.
        let mut holes = held.iter().step_by(64).copied();
        let mut stay_of = |owner: &mut CpuHandle<'_, '_, Probe, Zonal>, others: u64| {
            for pfn in holes.by_ref().take(9) {
                owner.free_raw(pfn, order).expect("allocated");
            }
            cached(world) / order.frames() - others
        };
        assert_eq!(stay_of(&mut owner, 0), 8, "of four CPUs one keeps some");
        for cpu in 1..4 {
            world.allocator.platform().switch_cpu(CpuId(cpu));
            world.allocator.free_raw(held[(35 + cpu as usize) * 64], order).expect("allocated");
        }
        world.allocator.platform().switch_cpu(CpuId(0));
        assert_eq!(stay_of(&mut owner, 3), 1024 / 16 / 25);
        for (drains, stay) in [(1, 1024 / 16 / 25), (2, 8)] {
            for cpu in 1..4 {
                world.allocator.drain_cpu(CpuId(cpu));
            }
            assert_eq!(stay_of(&mut owner, 0), stay, "after {drains}");
        }
        drop(owner);
        world.allocator.drain_all();
        assert_eq!(cached(world), 0);
    });
}

/// Blocks that would be a larger one together are: none of them stays.
#[test]
fn neighbours_do_not_stay() {
    for (number, [first, second]) in
        [1, 3, 5].into_iter().flat_map(|it| [(it, [2, 3]), (it, [3, 2])])
    {
        let (order, twice) = (order(number), order(number + 1));
        with_full::<Zonal>((order, 128), 1, |world, owner, held| {
            owner.free_raw(held[first], order).expect("allocated");
            assert_eq!(cached(world), order.frames());
            owner.free_raw(held[second], order).expect("allocated");
            assert_eq!(cached(world), 0);
            assert_eq!(owner.alloc_raw(&movable(twice)), Ok(held[2]), "they are one");
        });
    }
}

/// The block that stays is given back by a drain and by an isolation, is not for another type, and is refused where it is freed
/// once more.
#[test]
fn the_last_block_is_free() {
    let order = order(4);
    with_full::<Zonal>((order, 128), 1, |world, owner, held| {
        owner.free_raw(held[1], order).expect("allocated");
        let twice = owner.free_raw(held[1], order);
        assert_eq!(twice, Err(FreeError::DoubleFree { pfn: held[1], order }));
        assert_eq!(cached(world), 16);
        assert_ne!(owner.alloc_raw(&Request::new(order)), Ok(held[1]), "unmovable");
        let isolated = world.allocator.isolate(Pfn::new(0)..Pfn::new(512)).expect("it may be");
        assert_eq!((cached(world), world.allocator.busy_frames(&isolated)), (0, 512 - 16));
        owner.free_raw(held[3], order).expect("allocated");
        assert_eq!((cached(world), world.allocator.busy_frames(&isolated)), (0, 512 - 32));
        world.allocator.undo_isolation(isolated).expect("its own");
        for wanted in [held[1], held[3], Pfn::new(2048)] {
            assert_eq!(owner.alloc_raw(&movable(order)), Ok(wanted));
        }
    });
}

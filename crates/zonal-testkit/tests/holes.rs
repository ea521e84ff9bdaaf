//! Blocks that a CPU freed last and keeps as holes: which stay, how many, and in what order they come back.

use crate::small::{W, cached, order, with, with_all};
use zonal::policy::Policy;
use zonal::preset::Zonal;
use zonal::{CpuHandle, CpuId, FreeError, MigrateType, Order, Pfn, Request};
use zonal_testkit::host::TestHost;
use zonal_testkit::probe::Probe;

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

/// Fills a number of pageblocks with movable blocks of an order; the first of each.
fn one_of_each<S: Policy>(
    owner: &mut CpuHandle<'_, '_, Probe, S>,
    order: Order,
    pageblocks: usize,
) -> Vec<Pfn> {
    let a_pageblock = 512 >> order.get();
    let take = |_| owner.alloc_raw(&movable(order)).expect("memory");
    let held: Vec<_> = (0..pageblocks * a_pageblock).map(take).collect();
    held.into_iter().step_by(a_pageblock).collect()
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
            let one_each = &one_of_each(&mut owner, order, 13)[..12];
            for (at, &pfn) in one_each.iter().enumerate() {
                owner.free_raw(pfn, order).expect("allocated");
                assert_eq!(cached(world), order.frames() * stay.min(at as u64 + 1), "{order}");
            }
            // The oldest went: what stayed is of the last.
            let stays = &one_each[one_each.len() - stay as usize..];
            for &pfn in stays {
                assert_eq!(owner.alloc_raw(&movable(order)), Ok(pfn));
            }
            assert_eq!(owner.alloc_raw(&movable(order)), Ok(one_each[0]), "of the map");
            drop(owner);
            world.allocator.drain_all();
            assert_eq!(cached(world), 0);
        });
    }
}

/// How many stay is by how many CPUs keep some, not by how many there are: one that keeps none any more is found by the fourth
/// drain.
#[test]
fn fewer_blocks_stay_where_more_cpus_keep_some() {
    let order = order(3);
    with_all::<Zonal>((1024, 0), 4, |world| {
        let mut owner = world.allocator.handle(CpuId(0)).expect("no other owner");
        // Of a pageblock each, from which nothing else is freed.
        let one_each = one_of_each(&mut owner, order, 40);
        let mut holes = one_each.iter().copied();
        let mut stay_of = |owner: &mut CpuHandle<'_, '_, Probe, Zonal>, others: u64| {
            for pfn in holes.by_ref().take(9) {
                owner.free_raw(pfn, order).expect("allocated");
            }
            cached(world) / order.frames() - others
        };
        assert_eq!(stay_of(&mut owner, 0), 8, "of four CPUs one keeps some");
        for cpu in 1..4 {
            world.allocator.platform().switch_cpu(CpuId(cpu));
            world.allocator.free_raw(one_each[35 + cpu as usize], order).expect("allocated");
        }
        world.allocator.platform().switch_cpu(CpuId(0));
        assert_eq!(stay_of(&mut owner, 3), 1024 / 16 / 25);
        for (drains, stay) in [(3, 1024 / 16 / 25), (1, 8)] {
            for cpu in (1..4).cycle().take(3 * drains) {
                world.allocator.drain_cpu(CpuId(cpu));
            }
            assert_eq!(stay_of(&mut owner, 0), stay, "after {drains}");
        }
        drop(owner);
        world.allocator.drain_all();
        assert_eq!(cached(world), 0);
    });
}

/// An owner that leaves gives its blocks back, and does not count any more.
#[test]
fn who_leaves_keeps_none() {
    let order = order(4);
    with_all::<Zonal>((1024, 0), 4, |world| {
        let handle = |cpu| world.allocator.handle(CpuId(cpu)).expect("no other owner");
        let mut owner = handle(0);
        let mut holes = one_of_each(&mut owner, order, 20).into_iter();
        for cpu in 1..4 {
            let mut other = handle(cpu);
            other.free_raw(holes.next().expect("some"), order).expect("allocated");
            assert_eq!(cached(world), 16);
            drop(other);
            assert_eq!(cached(world), 0);
        }
        for pfn in holes.take(9) {
            owner.free_raw(pfn, order).expect("allocated");
        }
        assert_eq!(cached(world), 8 * 16, "as if there were no others");
        drop(owner);
        assert_eq!(cached(world), 0);
    });
}

/// A CPU that frees what cannot stay keeps none, and does not count.
#[test]
fn who_frees_large_blocks_keeps_none() {
    let (order, large) = (order(4), order(10));
    with_all::<Zonal>((1024, 0), 4, |world| {
        for cpu in 1..4 {
            let mut other = world.allocator.handle(CpuId(cpu)).expect("no other owner");
            let pfn = other.alloc_raw(&movable(large)).expect("memory");
            other.free_raw(pfn, large).expect("allocated");
        }
        let mut owner = world.allocator.handle(CpuId(0)).expect("no other owner");
        for pfn in one_of_each(&mut owner, order, 12).into_iter().take(9) {
            owner.free_raw(pfn, order).expect("allocated");
        }
        assert_eq!(cached(world), 8 * 16);
    });
}

/// Of a pageblock most of which is free nothing stays.
#[test]
fn nothing_stays_of_a_pageblock_that_is_mostly_free() {
    let order = order(5);
    with::<Zonal>(|world| {
        let mut owner = world.allocator.handle(CpuId(0)).expect("no other owner");
        let [first, second] = [(); 2].map(|()| owner.alloc_raw(&movable(order)).expect("memory"));
        owner.free_raw(first, order).expect("allocated");
        assert_eq!(cached(world), 0);
        assert_eq!(owner.alloc_raw(&movable(order)), Ok(first));
        for pfn in [first, second] {
            owner.free_raw(pfn, order).expect("allocated");
        }
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

//! Blocks that fit where a pageblock has nothing larger: several at once, and before the current pageblock is split.

use crate::small::{W, cached, order, with_all};
use zonal::preset::Zonal;
use zonal::{CpuHandle, CpuId, MigrateType, Order, Pfn, Request};
use zonal_testkit::probe::Probe;

type Owner<'a, 'm> = CpuHandle<'a, 'm, Probe, Zonal>;

fn movable(number: u8) -> Request {
    Request::new(order(number)).migrate(MigrateType::Movable)
}

/// Two pageblocks full of blocks of order 2, and a third that the first CPU takes such blocks from; then the second CPU frees every
/// `step`th block of the second, of which it keeps a few itself. The blocks of that pageblock.
fn with_holes(step: usize, f: impl FnOnce(&W<'_, Zonal>, &mut Owner<'_, '_>, &[Pfn])) {
    with_all::<Zonal>((256, 0), 2, |world| {
        let mut owner = world.allocator.handle(CpuId(0)).expect("no other owner");
        let held: Vec<_> =
            (0..257).map(|_| owner.alloc_raw(&movable(2)).expect("memory")).collect();
        assert_eq!(held[256], Pfn::new(1024), "the third");
        let mut other = world.allocator.handle(CpuId(1)).expect("no other owner");
        for &pfn in held[128..256].iter().step_by(step) {
            other.free_raw(pfn, order(2)).expect("allocated");
        }
        drop(other);
        world.allocator.drain_cpu(CpuId(1));
        f(world, &mut owner, &held[128..256]);
    });
}

#[test]
fn several_that_fit_come_at_once() {
    with_holes(4, |world, owner, held| {
        let (before, free) = (cached(world), held.iter().step_by(4).copied());
        let mut taken = free.clone().map(|pfn| (owner.alloc_raw(&movable(2)), Ok(pfn)));
        let (first, wanted) = taken.next().expect("there are 32");
        assert_eq!((first, cached(world) - before), (wanted, 7 * 4), "with seven others");
        assert!(taken.all(|(got, wanted)| got == wanted), "the rest, in their order");
        assert_eq!(cached(world), before);
        assert_eq!(owner.alloc_raw(&movable(2)), Ok(Pfn::new(1028)), "of the current one");
    });
}

/// What came beside the block that was asked for is free for all others: by a drain, for another order, for a request that
/// finds nothing else.
#[test]
fn what_came_besides_is_free() {
    with_holes(4, |world, owner, held| {
        assert_eq!(owner.alloc_raw(&movable(2)), Ok(held[0]));
        assert!(owner.free_raw(held[4], order(2)).is_err(), "it is not allocated");
        world.allocator.drain_all();
        let zone = world.allocator.zone_info(zonal::ZoneId(0)).expect("a zone");
        assert_eq!((zone.cached, zone.free), (0, zone.managed - (257 - 32 + 1) * 4));
        let other = world.allocator.alloc_raw(&movable(2).with_order(Order::ZERO));
        assert!(other.is_ok());
    });
}

/// Half of a run of the next order comes before a part of a much larger one, and the other half with it.
#[test]
fn both_halves_of_a_run_that_is_twice_as_large() {
    with_holes(4, |world, owner, held| {
        // The current pageblock has runs of orders 2 and 3 beside larger ones: those come first.
        let rest = [1028, 1032, 1036].map(|at| Ok(Pfn::new(at)));
        let mut fours = held.iter().step_by(4).map(|_| owner.alloc_raw(&movable(2)));
        assert!(fours.all(|got| got.is_ok()));
        assert_eq!(rest.map(|_| owner.alloc_raw(&movable(2))), rest);
        let before = cached(world);
        for pair in [8, 24] {
            for at in [pair, pair + 1] {
                world.allocator.free_raw(held[at], order(2)).expect("allocated");
            }
        }
        world.allocator.drain_cpu(CpuId(1));
        let got = owner.alloc_raw(&movable(2));
        assert_eq!((got, cached(world) - before), (Ok(held[8]), 4));
        assert_eq!(owner.alloc_raw(&movable(2)), Ok(held[9]));
        assert_eq!(owner.alloc_raw(&movable(2)), Ok(held[24]));
    });
}

//! Requests for larger blocks that were refused, and what is freed after that: where caches keep a block apart they are
//! emptied when so much is free again that it may be there, however many were refused before.

use crate::small::{W, cached, order, with_all};
use zonal::preset::Zonal;
use zonal::{CpuId, Order, Pfn, Request};
use zonal_testkit::suite::Dice;

const PAGEBLOCKS: u64 = 32;

/// All memory as single frames, and as many requests for the largest block refused.
fn refused(world: &W<'_, Zonal>, times: u32) -> Vec<Pfn> {
    let alloc = |order| world.allocator.alloc_raw(&Request::new(order));
    let held: Vec<_> = core::iter::from_fn(|| alloc(Order::ZERO).ok()).collect();
    assert_eq!(held.len() as u64, PAGEBLOCKS * 512);
    assert!((0..times).all(|_| alloc(Order::MAX).is_err()));
    held
}

fn free(world: &W<'_, Zonal>, frames: &[Pfn]) {
    for &pfn in frames {
        world.allocator.free_raw(pfn, Order::ZERO).expect("allocated");
    }
}

#[test]
fn all_memory_is_found_at_once() {
    for times in [0, 3, 4, 10, 40, 100, 1000] {
        with_all::<Zonal>((PAGEBLOCKS, 0), 1, |world| {
            let mut held = refused(world, times);
            let mut dice = Dice::new(times.into());
            (1..held.len()).for_each(|at| held.swap(at, dice.below(at as u64 + 1) as usize));
            free(world, &held);
            let blocks = || world.allocator.alloc_raw(&Request::new(Order::MAX));
            let found: Vec<_> = (0..PAGEBLOCKS / 2).map(|_| blocks()).collect();
            assert!(found.iter().all(Result::is_ok), "after {times} that were refused");
        });
    }
}

/// One block of which the last frames are in a cache.
#[test]
fn the_only_block_is_found_at_once() {
    with_all::<Zonal>((PAGEBLOCKS, 0), 1, |world| {
        let held = refused(world, 40);
        let own: Vec<_> = held.into_iter().filter(|pfn| pfn.get() >> 10 == 5).collect();
        free(world, &own);
        let found = world.allocator.alloc_raw(&Request::new(Order::MAX));
        assert_eq!(found, Ok(Pfn::new(5 << 10)));
    });
}

/// What the only CPU has itself is found by each request, whether it may wait or not, however many were refused before: its
/// blocks, and what it has freed and not counted yet.
#[test]
fn what_a_cpu_has_itself_is_found_at_once() {
    type Hurry = fn(Request) -> Request;
    let ways: [Hurry; 3] = [|it| it, Request::no_wait, Request::atomic];
    for (number, way) in [1, 3, 5, 9].into_iter().flat_map(|number| ways.map(|way| (number, way))) {
        with_all::<Zonal>((PAGEBLOCKS, 0), 1, |world| {
            let (allocator, order, mut dice) = (&world.allocator, order(number), Dice::new(7));
            let request = Request::new(order);
            let rest = || core::iter::from_fn(|| allocator.alloc_raw(&request).ok());
            let mut held: Vec<_> = rest().collect();
            for round in 0..200 {
                for _ in 0..2 {
                    let pfn = held.swap_remove(dice.below(held.len() as u64) as usize);
                    allocator.free_raw(pfn, order).expect("allocated");
                }
                for _ in 0..2 {
                    let got = allocator.alloc_raw(&way(request));
                    held.push(got.unwrap_or_else(|error| panic!("{round}: {error}")));
                }
                assert!((0..round % 5).all(|_| allocator.alloc_raw(&way(request)).is_err()));
            }
        });
    }
}

/// Where nothing comes of it the searches that empty the caches of others become few.
#[test]
fn searches_in_vain_become_few() {
    with_all::<Zonal>((PAGEBLOCKS, 0), 2, |world| {
        let mut other = world.allocator.handle(CpuId(1)).expect("no other owner");
        let (mut held, mut requests, mut searches) = (refused(world, 64), 0, 0);
        for _ in 0..8 {
            // Each second frame, so that there is never a block, of more and more pageblocks.
            for some in held.chunks(512) {
                let odd: Vec<_> = some.iter().copied().filter(|pfn| pfn.get() % 2 == 1).collect();
                odd.iter().for_each(|&pfn| other.free_raw(pfn, Order::ZERO).expect("allocated"));
                assert!(cached(world) > 0);
                assert!(world.allocator.alloc_raw(&Request::new(Order::HUGE)).is_err());
                requests += 1;
                searches += u32::from(cached(world) == 0);
            }
            held.retain(|pfn| pfn.get() % 2 == 0);
            let again = || world.allocator.alloc_raw(&Request::frame()).ok();
            held.extend(core::iter::from_fn(again));
            held.sort_unstable();
        }
        // Those in turn, those of the first time, and little more.
        assert!((5..=requests / 8).contains(&searches), "{searches} for {requests}");
    });
}

//! What becomes of memory that went back to the kernel.

use std::sync::Arc;
use zonal::preset::Zonal;
use zonal::{MigrateType, Order, Request, ZoneId};
use zonal_host::arena::GivenBack;
use zonal_host::region::GiveBack;
use zonal_host::{Arena, Page};

const MIB: usize = 1 << 20;

fn movable(order: Order) -> Request {
    Request::new(order).migrate(MigrateType::Movable)
}

/// What was given back is used after what is still in memory, though it lies lower.
#[test]
fn memory_that_was_given_back_is_used_last() {
    let arena = Arena::builder().bytes(64 * MIB).open().unwrap();
    let [mut low, mut high] =
        [(); 2].map(|()| arena.alloc(&movable(Order::MAX)).expect("nothing is in use"));
    for page in [&mut low, &mut high] {
        page.fill(1);
    }
    let (gone, here) = (low.pfn().min(high.pfn()), low.pfn().max(high.pfn()));
    let (low, high) = if low.pfn() == gone { (low, high) } else { (high, low) };
    drop(low);
    let given = arena.give_back(usize::MAX, GiveBack::Now).unwrap();
    assert_eq!((given.examined, given.bytes), (1, Order::MAX.bytes()));
    drop(high);
    let huge: Vec<_> =
        (0..4).map(|_| arena.alloc(&movable(Order::HUGE)).expect("most is free")).collect();
    let of = |first: zonal::Pfn| {
        let block = first.get()..first.get() + Order::MAX.frames();
        huge.iter().filter(|page| block.contains(&page.pfn().get())).count()
    };
    assert_eq!((of(here), of(gone)), (2, 2), "what is in memory, then the lowest that is not");
    assert!(block_order(&huge, here), "in this order");
    drop(huge);
    arena.drain();
    let zone = arena.zone_info(ZoneId(0)).unwrap();
    assert_eq!(zone.free, zone.managed);
}

/// Whether those of a block of the largest order come first.
fn block_order(pages: &[Page<'_, Zonal>], first: zonal::Pfn) -> bool {
    let inside = |page: &Page<'_, Zonal>| page.pfn().get() / 1024 == first.get() / 1024;
    pages[..2].iter().all(inside) && !pages[2..].iter().any(inside)
}

#[test]
fn memory_that_is_kept_is_not_given_back() {
    let arena = Arc::new(Arena::builder().bytes(16 * MIB).open().unwrap());
    arena.alloc(&movable(Order::MAX)).expect("nothing is in use").fill(1);
    let (one, two) = (arena.keep(), arena.keep());
    assert!(Arc::ptr_eq(one.arena(), &arena));
    for kept in [one, two] {
        for how in [GiveBack::Now, GiveBack::WhenNeeded] {
            assert_eq!(arena.give_back(usize::MAX, how).unwrap(), GivenBack::default());
        }
        assert_eq!(arena.visit_free(usize::MAX, |_, _| panic!("none is shown")), 0);
        drop(kept);
    }
    let given = arena.give_back(usize::MAX, GiveBack::Now).unwrap();
    assert_eq!(given.bytes, Order::MAX.bytes(), "it was in memory all the time");
}

#[test]
fn a_visitor_that_has_memory_kept_sees_no_more() {
    let arena = Arc::new(Arena::builder().bytes(16 * MIB).open().unwrap());
    drop([(); 2].map(|()| arena.alloc(&movable(Order::MAX)).expect("nothing is in use")));
    assert_eq!(arena.visit_free(usize::MAX, |_, _| ()), 2);
    let mut kept = None;
    assert_eq!(arena.visit_free(usize::MAX, |_, _| kept = Some(arena.keep())), 1);
    drop(kept);
    assert_eq!(arena.visit_free(usize::MAX, |_, _| ()), 2);
}

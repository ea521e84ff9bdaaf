//! Blocks that were handed out and become smaller ones.

use zonal::error::FreeError;
use zonal::policy::Policy;
use zonal::{Order, Pfn, Request};
use zonal_testkit::checkers::{Rules, check_all, check_faults};
use zonal_testkit::host::TestHost;
use zonal_testkit::model::Model;
use zonal_testkit::probe::Probe;
use zonal_testkit::shape::{self, Shape};
use zonal_testkit::snapshot::Snapshot;
use zonal_testkit::world::{World, with_world};

/// All invariants, with this block out or none; how many frames are free.
fn check<S: Policy>(world: &World<'_, Probe, S>, out: Option<(Pfn, Order)>) -> u64 {
    let allocator = &world.allocator;
    let mut model = Model::new(allocator.plan());
    out.into_iter().for_each(|(pfn, order)| model.insert(pfn, order));
    let snapshot = Snapshot::of(allocator);
    check_faults(&allocator.platform().faults()).unwrap();
    check_all(&snapshot, &model, &Rules::of::<S>()).unwrap();
    snapshot.zones.iter().map(|zone| zone.free).sum()
}

/// Of every order to every other: what is behind the start is free, and all merges again.
fn to_every_order<S: Policy>() {
    with_world::<Probe, S, _>(Shape::Flat, |world| {
        let allocator = &world.allocator;
        for (order, to) in Order::all().flat_map(|order| Order::all().map(move |to| (order, to))) {
            let first = allocator.alloc_raw(&Request::new(order)).unwrap();
            let before = Snapshot::of(allocator).without_holds();
            let other = shape::order(if order == Order::MAX { 9 } else { order.get() + 1 });
            let wrong = allocator.cut(first, other, to).unwrap_err();
            assert!(matches!(wrong, FreeError::WrongOrder { .. }), "{wrong}");
            assert_eq!(Snapshot::of(allocator).without_holds(), before, "nothing has changed");
            let left = order.min(to);
            allocator.cut(first, order, to).unwrap();
            check(world, Some((first, left)));
            if left < order {
                allocator.free_raw(first, order).expect_err("it is no such block any more");
            }
            allocator.free_raw(first, left).unwrap();
            assert!(allocator.cut(first, left, Order::ZERO).is_err(), "it is free");
            allocator.drain_all();
            assert_eq!(check(world, None), 2048);
        }
        let foreign = allocator.cut(Pfn::new(u64::MAX >> 12), Order::MAX, Order::ZERO).unwrap_err();
        assert!(matches!(foreign, FreeError::Foreign { .. }), "{foreign}");
    });
}

macro_rules! over_presets {
    ($($module:ident: $preset:ty;)*) => {$(
        #[test]
        fn $module() {
            to_every_order::<$preset>();
        }
    )*};
}

with_presets_of_one_zone!(over_presets);

//! Models of the high-atomic reserve: a request that cannot wait adds the pageblock of its block to
//! it while another CPU's request finds nothing else and opens it.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test --release -p zonal-testkit --test models_of_maps loom_reserve -- --nocapture
//! ```
//!
//! The reserve is one per cent of the zone, so the zone has 100 pageblocks, all but one or two of
//! which are held from the start.

use crate::loom_broken_torn::Torn;
use crate::loom_world::{MOVABLE, World, spawn_on};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use zonal::map::{PhysAddr, Region};
use zonal::pcp::Stacks;
use zonal::plan::{Config, Plan};
use zonal::platform::AtomicWord;
use zonal::policy::Policy;
use zonal::policy::dirty::Unlimited;
use zonal::preset::{Linux416, Zonal};
use zonal::{MigrateType, Order, Pfn, Request};
use zonal_testkit::loom_platform::{LoomPlatform, Newest, alone, explore, plan_over, small};

zonal::preset! {
    /// The default preset with stacks of one frame and no dirty limits.
    Mapped = "Mapped", over Zonal { Pcp = Stacks<1, 4>, Dirty = Unlimited }
}

const FRAMES: u64 = 800;
const PAIR: Order = match Order::new(1) {
    Some(order) => order,
    None => Order::ZERO,
};
/// Cannot wait, and is larger than a frame: its pageblock is reserved.
const URGENT: Request = MOVABLE.with_order(PAIR).atomic();
const UNMOVABLE: Request = Request::frame();

fn plan() -> &'static Plan {
    let config =
        Config { highatomic: true, ..small(Config { pcp_batch: Some(2), ..Config::new(2) }) };
    plan_over(&[Region::usable(PhysAddr(0), FRAMES << 12)], config)
}

/// How many pageblocks are in the reserve, by their type.
fn reserved<W: AtomicWord, S: Policy>(world: &World<LoomPlatform<W>, S>) -> u32 {
    let of = |pfn| world.allocator().pageblock_of(Pfn::new(pfn));
    (0..FRAMES)
        .step_by(8)
        .filter(|&pfn| of(pfn).is_some_and(|(_, migrate)| migrate == MigrateType::HighAtomic))
        .count() as u32
}

/// One pageblock is free, and is in the reserve already if it `is_reserved`. An urgent request takes a pair of it and
/// reserves it; the other wants a frame of another type, and is served whichever comes first. In how many runs the
/// pageblock is not reserved at the end, and in how many it is.
fn opened<W: AtomicWord + 'static, S: Policy>(is_reserved: bool, bound: usize) -> [usize; 2] {
    let plan = plan();
    let seen = Arc::<[AtomicUsize; 2]>::default();
    let note = seen.clone();
    let what = if is_reserved { "opened while taken" } else { "opened while reserved" };
    explore(what, Some(bound), move || {
        let world: Rc<World<LoomPlatform<W>, S>> = World::new(plan);
        let rest = world.occupy(&[9, 8, 4, 3]);
        if is_reserved {
            let first = world.ask(&URGENT).expect("eight are free");
            world.give_block(first, PAIR);
            world.allocator().drain_all();
            assert_eq!(world.zone().high_atomic_pageblocks, 1);
        }
        let other = spawn_on(&world, 1, |world| {
            let pfn = world.ask(&UNMOVABLE).expect("I-6: six are free");
            world.give(pfn);
        });
        let urgent = world.ask(&URGENT);
        other.join().unwrap();
        alone();
        let counted = world.zone().high_atomic_pageblocks;
        assert_eq!(counted, reserved(&world), "the reserve is what is counted");
        note[counted as usize].fetch_add(1, Relaxed);
        urgent.into_iter().for_each(|pfn| world.give_block(pfn, PAIR));
        world.vacate(&rest);
        let after = world.settle();
        assert_eq!(after.counted_free, after.free, "I-2: what watermarks see");
    });
    [0, 1].map(|reserved| seen[reserved].load(Relaxed))
}

fn both_sides(seen: [usize; 2]) {
    println!("    reserved at the end in {} runs, not in {}", seen[1], seen[0]);
    assert!(seen[0] > 0 && seen[1] > 0, "the model has one side only");
}

/// Found that a request went without between the moment a pageblock was reserved and the moment it was
/// counted.
///
/// At most 2 preemptions: 2 100 runs, 5 s.
#[test]
fn a_reserve_of_a_map_is_opened() {
    both_sides(opened::<Newest, Mapped>(false, 1));
}

/// At most 1 preemption: some hundred runs, 2 s; 2: 7 113 runs, 20 s.
#[test]
fn a_reserve_of_a_map_is_opened_while_it_is_used() {
    let [opens, _] = opened::<Newest, Mapped>(true, 1);
    assert!(opens > 0, "the model opens nothing");
}

/// At most 2 preemptions: 500 runs, 0.5 s.
#[test]
fn a_reserve_of_lists_is_opened() {
    both_sides(opened::<Newest, Linux416>(false, 2));
}

/// Canary: a claim looks at the type of a pageblock, which is then reserved, and writes it.
#[test]
#[should_panic(expected = "the reserve is what is counted")]
fn canary_torn_types() {
    opened::<Torn, Mapped>(false, 2);
}

//! Models of a stay in pieces ([ADR 85]): a request that claims a pageblock of another type leaves its slot and
//! enters it again, and in between come a drain of its CPU, a request of the other type, an isolation of the
//! pageblock; with slots that let two in, and torn words, as canaries.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test --release -p zonal-testkit --test models_of_maps loom_stay -- --nocapture
//! ```
//!
//! [ADR 85]: https://github.com/zonal-rs/zonal/blob/main/docs/adr/0085-a-stay-in-a-slot-has-pieces.md

use crate::loom_broken_slots::{OpenPieces, Pieces, TornPieces};
use crate::loom_world::{World, spawn_on};
use std::rc::Rc;
use zonal::pcp::Stacks;
use zonal::policy::dirty::Unlimited;
use zonal::preset::Zonal;
use zonal::{CpuId, Host, Order, Pfn, Request};
use zonal_testkit::loom_platform::{bound, explore, small_plan};

zonal::preset! {
    /// One frame stays with each of two CPUs.
    Kept = "Kept", over Zonal { Pcp = Stacks<1, 4>, Dirty = Unlimited }
}

/// What there is, in frames; in pageblocks of eight.
const FRAMES: u64 = 96;
/// Movable blocks that leave the last two pageblocks.
const REST: [u8; 2] = [6, 4];
/// The last pageblock's first frame.
const LAST: u64 = FRAMES - 8;

/// Of movable memory alone five frames of the last pageblock are free. What is held: blocks, frames.
type Held = (Vec<(Pfn, Order)>, Vec<Pfn>);

fn half_free<P: Host + Default + 'static>(world: &World<P, Kept>) -> Held {
    let rest = world.occupy(&REST);
    let mut held = world.take_on(0, 16);
    held.sort_unstable();
    assert!(held[8..].iter().all(|pfn| pfn.get() >= LAST), "{held:?}");
    world.give_on(0, &held.split_off(11));
    world.allocator().drain_all();
    (rest, held)
}

fn all_back<P: Host + Default + 'static>(world: &World<P, Kept>, (rest, held): Held) {
    world.give_on(0, &held);
    world.vacate(&rest);
    world.finish();
}

/// An unmovable frame is asked for while another CPU drains this one's cache and asks for a movable one.
fn claim_and_drain<P: Host + Default + 'static>() {
    let plan = small_plan(FRAMES, 2);
    explore("claim in pieces and drain", bound(2, Some(3)), move || {
        let world: Rc<World<P, Kept>> = World::new(plan);
        let held = half_free(&world);
        let other = spawn_on(&world, 1, |world| {
            world.allocator().drain_cpu(CpuId(0));
            let pfn = world.take().expect("I-6: four are free");
            world.give(pfn);
        });
        let pfn = world.ask(&Request::frame()).expect("I-6: four are free");
        world.give(pfn);
        other.join().unwrap();
        all_back(&world, held);
    });
}

/// At most 3 preemptions, in a preflight at most 2: 9 400 runs, 22 s.
#[test]
fn claim_in_pieces_against_drain() {
    claim_and_drain::<Pieces>();
}

/// Canary: a drain comes in while a piece is under way.
#[test]
#[should_panic(expected = "two are inside")]
fn canary_a_piece_and_a_drain_inside() {
    claim_and_drain::<OpenPieces>();
}

/// An unmovable frame is asked for while another CPU isolates the pageblock that it claims.
fn claim_and_isolation<P: Host + Default + 'static>(preemptions: usize) {
    let plan = small_plan(FRAMES, 2);
    explore("claim in pieces and isolation", Some(preemptions), move || {
        let world: Rc<World<P, Kept>> = World::new(plan);
        let held = half_free(&world);
        let other = spawn_on(&world, 1, |world| {
            let range = Pfn::new(LAST)..Pfn::new(FRAMES);
            // Refused once the claim has made it unmovable.
            world.allocator().isolate(range).ok()
        });
        let pfn = world.ask(&Request::frame());
        // No other pageblock has any.
        match other.join().unwrap() {
            Some(isolated) => {
                let busy = world.allocator().busy_frames(&isolated);
                let ours = 3 + u64::from(pfn.is_some());
                assert_eq!(busy, ours, "a frame of it stayed with the CPU");
                world.allocator().undo_isolation(isolated).expect("its own");
            }
            None => assert!(pfn.is_some(), "neither the claim nor the isolation got it"),
        }
        pfn.into_iter().for_each(|pfn| world.give(pfn));
        all_back(&world, held);
    });
}

/// At most 2 preemptions: 1 351 runs, 1.2 s.
#[test]
fn claim_in_pieces_against_isolation() {
    claim_and_isolation::<Pieces>(2);
}

/// At most 3: 45 s. `RUSTFLAGS="--cfg loom" cargo test --release -p zonal-testkit --test models_of_maps further -- --ignored`.
#[test]
#[ignore = "takes most of a minute"]
fn claim_in_pieces_against_isolation_further() {
    claim_and_isolation::<Pieces>(3);
}

/// Canary: claims and isolations change types past each other.
#[test]
#[should_panic(expected = "a frame of it stayed with the CPU")]
fn canary_a_claim_in_pieces_with_torn_words() {
    claim_and_isolation::<TornPieces>(3);
}

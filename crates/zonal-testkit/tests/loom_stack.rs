//! Models of a CPU's stacks, which its owner reaches outside the slot: S-1 and S-2 with a drain, S-3 with
//! a pageblock that is isolated; and what each says when a fence is left out.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test --release -p zonal-testkit --test models_of_maps loom_stack -- --nocapture
//! ```

use crate::loom_broken_fences::Fences;
use crate::loom_world::{World, spawn_on};
use loom::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::rc::Rc;
use zonal::MigrateType::Movable;
use zonal::pcp::Stacks;
use zonal::pcp::stack::{CpuStack, Home, StackOutside, StackSize};
use zonal::platform::Lock;
use zonal::policy::dirty::Unlimited;
use zonal::policy::pcp::Drainer;
use zonal::preset::Zonal;
use zonal::zone::free_map::{AlreadyFree, Current, MapShape, Start, WordIndex};
use zonal::{CpuId, Order, Pfn, Request};
use zonal_testkit::loom_platform::{LoomLock, bound, explore, small_plan, spawn};

/// Counts the frames that come home, each once.
struct Ledger(AtomicU64);

impl Ledger {
    fn came(&self, mask: u64) {
        let before = self.0.fetch_or(mask, Relaxed);
        assert_eq!(before & mask, 0, "S-1: a frame is popped and drained");
    }
}

impl Home for Ledger {
    fn put(&self, _: WordIndex, mask: u64) -> Result<(), AlreadyFree> {
        self.came(mask);
        Ok(())
    }
    fn release(&self, _: &mut Current) {}
}

/// An owner pops, pushes and pops while another CPU drains, with `frames` on the stack.
fn owner_and_drain<const LIGHT: bool, const HEAVY: bool>(frames: u32) {
    type Slot = LoomLock<CpuStack>;
    let out = Rc::new(StackOutside::<Fences<LIGHT, HEAVY>, 4>::new());
    let mut cpu = CpuStack::new();
    let size = StackSize { high: 4, ..StackSize::default() };
    let shape = MapShape::new(Order::HUGE, 1).expect("a shape");
    cpu.tune(&out, size, Start::default(), (0, shape));
    out.set_owned(true);
    (0..frames).for_each(|index| assert!(out.push_owned(Movable, index)));
    let (slot, home) = (Rc::new(Slot::new(cpu)), Rc::new(Ledger(AtomicU64::new(0))));
    let (there, own) = (out.clone(), home.clone());
    let inside = slot.clone();
    let other = spawn(1, move || {
        inside.with(|cpu| cpu.drain(&there, &*own, Drainer::Other)).expect("nothing is free twice");
    });
    let first = out.pop_owned(Movable);
    // What is pushed is new, or a frame that was drained would come twice. After a drain no more room is found outside
    // the slot, until the owner was inside.
    if !out.push_owned(Movable, frames) {
        slot.with(|_| {
            out.set_owned(true);
            assert!(out.push_owned(Movable, frames));
        });
    }
    let second = out.pop_owned(Movable);
    [first, second].into_iter().flatten().for_each(|index| home.came(1 << index));
    other.join().unwrap();
    slot.with(|cpu| cpu.drain(&out, &*home, Drainer::Other)).expect("nothing is free twice");
    assert_eq!(home.0.load(Relaxed), (1 << (frames + 1)) - 1, "S-2: none is left or lost");
}

/// S-1 and S-2.
///
/// All schedules, in a preflight at most those with 3 preemptions: 112 000 runs, 15 s.
#[test]
fn owner_against_drain() {
    explore("owner against drain", bound(3, None), || owner_and_drain::<true, true>(2));
}

/// The same with one frame: an empty stack is looked into.
///
/// All schedules, in a preflight at most those with 3 preemptions: 88 900 runs, 12 s.
#[test]
fn owner_against_drain_of_one() {
    explore("owner against drain of one", bound(3, None), || owner_and_drain::<true, true>(1));
}

#[test]
#[should_panic = "S-"]
fn no_light_fence_is_found() {
    explore("no light fence", bound(3, None), || owner_and_drain::<false, true>(2));
}

#[test]
#[should_panic = "S-"]
fn no_heavy_fence_is_found() {
    explore("no heavy fence", bound(3, None), || owner_and_drain::<true, false>(2));
}

zonal::preset! {
    /// One frame stays with a CPU of a few dozen frames.
    Kept = "Kept", over Zonal { Pcp = Stacks<1, 4>, Dirty = Unlimited }
}

/// An owner frees a frame, or a block of `order`, while another CPU isolates its pageblock: a frame after two frees before
/// to the pageblock that it remembers, else to one that it looks up.
fn window_and_isolation<const LIGHT: bool, const HEAVY: bool>(order: Order, before: usize) {
    let plan = small_plan(48, 1);
    explore("window and isolation", bound(3, Some(4)), move || {
        let world: Rc<World<Fences<LIGHT, HEAVY>, Kept>> = World::new(plan);
        let mut owner = world.allocator().handle(CpuId(0)).unwrap();
        let request = Request::new(order).migrate(Movable);
        let pfn = owner.alloc_raw(&request).unwrap();
        assert!(pfn < Pfn::new(8), "from the pageblock that is isolated");
        for _ in 0..before {
            owner.free_raw(pfn, order).unwrap();
            assert_eq!(owner.alloc_raw(&request).unwrap(), pfn, "it stayed");
        }
        let other = spawn_on(&world, 1, |world| {
            world.allocator().isolate(Pfn::new(0)..Pfn::new(8)).expect("nothing is in the way")
        });
        owner.free_raw(pfn, order).unwrap();
        let isolated = other.join().unwrap();
        let busy = world.allocator().busy_frames(&isolated);
        assert_eq!(busy, 0, "S-3: it stayed with the CPU");
        world.allocator().undo_isolation(isolated).expect("its own");
        drop(owner);
        world.finish();
    });
}

/// S-3.
///
/// At most 4 preemptions: 11 000 runs, 4 s.
#[test]
fn window_against_isolation() {
    window_and_isolation::<true, true>(Order::ZERO, 2);
}

/// An owner leaves while another CPU drains its stacks and takes what is there: a frame, or a block of `order`.
fn leaving<const LIGHT: bool, const HEAVY: bool>(order: Order) {
    let plan = small_plan(48, 1);
    explore("leaving against drain", Some(3), move || {
        let world: Rc<World<Fences<LIGHT, HEAVY>, Kept>> = World::new(plan);
        let mut owner = world.allocator().handle(CpuId(0)).unwrap();
        let request = Request::new(order).migrate(Movable);
        let pfn = owner.alloc_raw(&request).unwrap();
        owner.free_raw(pfn, order).unwrap();
        let other = spawn_on(&world, 1, |world| world.allocator().drain_cpu(CpuId(0)));
        let again = owner.alloc_raw(&request).unwrap();
        owner.free_raw(again, order).unwrap();
        drop(owner);
        other.join().unwrap();
        world.finish();
    });
}

/// Of two frames, the smallest that is no single one.
const PAIR: Order = match Order::new(1) {
    Some(order) => order,
    None => Order::ZERO,
};

/// At most 3 preemptions: 970 runs, 0.3 s.
#[test]
fn leaving_against_drain() {
    leaving::<true, true>(Order::ZERO);
}

/// S-1 of blocks.
#[test]
fn leaving_with_blocks_against_drain() {
    leaving::<true, true>(PAIR);
}

/// Canary: the drain takes a frame, and the owner with it the second time.
#[test]
#[should_panic(expected = "DoubleFree")]
fn no_light_fence_of_one_that_leaves_is_found() {
    leaving::<false, true>(Order::ZERO);
}

/// Canary: the same of a block.
#[test]
#[should_panic(expected = "DoubleFree")]
fn no_light_fence_of_one_that_leaves_with_blocks_is_found() {
    leaving::<false, true>(PAIR);
}

/// S-3 of blocks.
#[test]
fn block_against_isolation() {
    window_and_isolation::<true, true>(PAIR, 0);
}

#[test]
#[should_panic = "S-3"]
fn no_light_fence_after_a_block_is_found() {
    window_and_isolation::<false, true>(PAIR, 0);
}

#[test]
#[should_panic = "S-3"]
fn no_heavy_fence_after_a_block_is_found() {
    window_and_isolation::<true, false>(PAIR, 0);
}

/// A CPU frees a block by way of its slot, for which its pageblock is looked up before, while another isolates that: a block of the
/// pageblock that blocks come from, or of one before it, of which the last is kept (`elsewhere`).
fn slot_and_isolation(elsewhere: bool) {
    let plan = small_plan(48, 1);
    explore("slot and isolation", bound(3, Some(4)), move || {
        let world: Rc<World<Fences<true, true>, Kept>> = World::new(plan);
        let request = Request::new(PAIR).migrate(Movable);
        // A pageblock has four, so the fifth is of another.
        let count = if elsewhere { 5 } else { 1 };
        let held: Vec<_> =
            (0..count).map(|_| world.allocator().alloc_raw(&request).unwrap()).collect();
        assert!(held[0] < Pfn::new(8), "from the pageblock that is isolated");
        let other = spawn_on(&world, 1, |world| {
            world.allocator().isolate(Pfn::new(0)..Pfn::new(8)).expect("nothing is in the way")
        });
        world.allocator().free_raw(held[0], PAIR).unwrap();
        let isolated = other.join().unwrap();
        let rest = held[1..].iter().filter(|&&pfn| pfn < Pfn::new(8)).count() as u64;
        let busy = world.allocator().busy_frames(&isolated);
        assert_eq!(busy, 2 * rest, "S-3: it stayed with the CPU");
        world.allocator().undo_isolation(isolated).expect("its own");
        held[1..].iter().for_each(|&pfn| world.allocator().free_raw(pfn, PAIR).unwrap());
        world.finish();
    });
}

/// S-3 in the slot.
#[test]
fn block_in_the_slot_against_isolation() {
    slot_and_isolation(false);
    slot_and_isolation(true);
}

/// S-3 where the owner looks the pageblock up.
///
/// At most 4 preemptions, in a preflight at most 3: 12 200 runs, 6 s.
#[test]
fn lookup_against_isolation() {
    window_and_isolation::<true, true>(Order::ZERO, 0);
}

/// An owner frees a frame above its edge while another CPU isolates its pageblock.
fn gathered_and_isolation<const LIGHT: bool, const HEAVY: bool>() {
    let plan = small_plan(48, 1);
    explore("gathered and isolation", Some(3), move || {
        let world: Rc<World<Fences<LIGHT, HEAVY>, Kept>> = World::new(plan);
        let mut owner = world.allocator().handle(CpuId(0)).unwrap();
        let request = Request::frame().migrate(Movable);
        let held: Vec<_> = (0..9).map(|_| owner.alloc_raw(&request).unwrap()).collect();
        let (low, above) = (held[0], held[8]);
        assert!(above >= Pfn::new(8), "of the second pageblock");
        owner.free_raw(low, Order::ZERO).unwrap();
        world.allocator().drain_cpu(CpuId(0));
        // A refill from the first pageblock, which is the edge.
        assert_eq!(owner.alloc_raw(&request).unwrap(), low);
        let other = spawn_on(&world, 1, |world| {
            world.allocator().isolate(Pfn::new(8)..Pfn::new(16)).expect("nothing is in the way")
        });
        owner.free_raw(above, Order::ZERO).unwrap();
        let isolated = other.join().unwrap();
        let busy = world.allocator().busy_frames(&isolated);
        assert_eq!(busy, 0, "S-3: it stayed with the CPU");
        world.allocator().undo_isolation(isolated).expect("its own");
        for &pfn in &held[..8] {
            owner.free_raw(pfn, Order::ZERO).unwrap();
        }
        drop(owner);
        world.finish();
    });
}

#[test]
fn gathered_against_isolation() {
    gathered_and_isolation::<true, true>();
}

#[test]
#[should_panic = "S-3"]
fn no_light_fence_after_a_gathered_frame_is_found() {
    gathered_and_isolation::<false, true>();
}

#[test]
#[should_panic = "S-3"]
fn no_light_fence_after_a_push_is_found() {
    window_and_isolation::<false, true>(Order::ZERO, 2);
}

//! Models of the mark that an arena sets before the first block whose memory the kernel may take goes
//! back to the allocator: relaxed, because who gets the block sees it by what hands the block on. So an
//! arena does (`Arena::give_back`, `Arena::settle` of `zonal-host`): take a block, set the mark, free the
//! block and empty the caches; and who gets a block looks.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test --release -p zonal-testkit --test models_of_lists loom_lazy -- --nocapture
//! ```

use crate::loom_world::{World, spawn_on};
use loom::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use zonal::Order;
use zonal::pcp::Stacks;
use zonal::policy::Policy;
use zonal::policy::dirty::Unlimited;
use zonal::preset::{Linux416, Zonal};
use zonal_testkit::loom_platform::{LoomPlatform, batch_plan, explore};

zonal::preset! {
    /// The default preset with stacks of one frame and no dirty limits.
    Mapped = "Mapped", over Zonal { Pcp = Stacks<1, 4>, Dirty = Unlimited }
}

/// When the mark is set.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mark {
    BeforeTheFree,
    /// Planted bug.
    AfterTheFree,
}

/// One block of `order` is free. CPU 0 gives it back; CPU 1 wants it, and gets it as it was or
/// afterwards.
fn given_back<S: Policy>(order: u8, mark: Mark, bound: usize) {
    let (plan, order) = (batch_plan(16, 2, 2), Order::new(order).expect("an order"));
    let seen = Arc::<[AtomicUsize; 2]>::default();
    let note = seen.clone();
    explore("given back", Some(bound), move || {
        let world: Rc<World<LoomPlatform, S>> = World::new(plan);
        let rest: Vec<_> = std::iter::from_fn(|| world.take_block(order)).collect();
        let (&block, rest) = rest.split_first().expect("one at least");
        world.give_block(block, order);
        world.allocator().drain_all();
        // The mark, and what has been given back: exactly, at any moment.
        let state = Rc::new((AtomicBool::new(false), Cell::new(false)));
        let theirs = state.clone();
        let other = spawn_on(&world, 1, move |world| {
            let block = world.take_block(order)?;
            let (lazy, given) = &*theirs;
            assert!(!given.get() || lazy.load(Relaxed), "its memory may go while it is used");
            Some((block, given.get()))
        });
        if let Some(block) = world.take_block(order) {
            let (lazy, given) = &*state;
            if mark == Mark::BeforeTheFree {
                lazy.store(true, Relaxed);
            }
            given.set(true);
            world.give_block(block, order);
            if mark == Mark::AfterTheFree {
                lazy.store(true, Relaxed);
            }
            world.allocator().drain_all();
        }
        let found = other.join().unwrap();
        note[usize::from(found.is_some_and(|(_, given)| given))].fetch_add(1, Relaxed);
        found.into_iter().for_each(|(block, _)| world.give_block(block, order));
        rest.iter().for_each(|&block| world.give_block(block, order));
        world.finish();
    });
    let [not, given] = [0, 1].map(|at| seen[at].load(Relaxed));
    println!("    in {given} runs it had been given back, not in {not}");
    assert!(given > 0 && not > 0, "the model has one side only");
}

/// At most 1 preemption: 2 400 runs, 0.8 s; with 2 it is 60 000 runs and 15 s.
#[test]
fn of_a_map() {
    given_back::<Mapped>(3, Mark::BeforeTheFree, 1);
}

/// At most 3 preemptions: 5 200 runs, 0.8 s.
#[test]
fn of_lists() {
    given_back::<Linux416>(3, Mark::BeforeTheFree, 3);
}

/// Through the caches.
///
/// At most 1 preemption: 440 runs, 0.4 s.
#[test]
fn frames_of_a_map() {
    given_back::<Mapped>(0, Mark::BeforeTheFree, 1);
}

/// At most 2 preemptions: 2 400 runs, 0.7 s.
#[test]
fn frames_of_lists() {
    given_back::<Linux416>(0, Mark::BeforeTheFree, 2);
}

/// Canary: the block is free before the mark is set.
#[test]
#[should_panic(expected = "its memory may go while it is used")]
fn canary_a_late_mark() {
    given_back::<Mapped>(3, Mark::AfterTheFree, 2);
}

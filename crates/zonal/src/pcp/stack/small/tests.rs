//! Stacks of blocks by themselves.

extern crate std;

use super::*;
use crate::MigrateType::{Cma, Movable, Unmovable};
use crate::pcp::stack::{Current, StackSize, WordIndex};
use crate::platform::single::SingleThread;
use crate::platform::stay::KINDS;
use crate::types::units::ORDERS;
use core::cell::RefCell;
use std::vec::Vec;

const PAGEBLOCK: Order = ORDERS[9];

/// Blocks that come home.
#[derive(Default)]
struct Listed(RefCell<Vec<(u32, Order)>>);

impl Home for Listed {
    fn put(&self, _: WordIndex, _: u64) -> Result<(), AlreadyFree> {
        unreachable!("no single frames")
    }
    fn put_block(&self, frame: Frame, order: Order) -> Result<(), AlreadyFree> {
        self.0.borrow_mut().push((frame.0, order));
        Ok(())
    }
    fn release(&self, _: &mut Current) {}
}

fn stacks(high: u32) -> SmallStacks<SingleThread> {
    let stacks = SmallStacks::new();
    stacks.set_high(high, PAGEBLOCK);
    stacks
}

/// Where most of a share is left they hold eight blocks of each, and all of it no more than a sixteenth of the memory.
#[test]
fn how_many_stay() {
    for (frames, cpus) in [(1 << 18, 2), (1 << 18, 64), (1 << 20, 64), (1 << 14, 2), (1 << 16, 8)] {
        let size = StackSize::for_share(frames, cpus);
        assert!(size.high > 0 && size.small > 0);
        let each = u64::from(size.high) + u64::from(size.small) * FRAMES;
        let all = each * u64::from(cpus) * NR_CACHED_TYPES as u64;
        assert!(size.small == 1 || all * 16 <= frames, "{frames} {cpus}: {size:?}");
    }
    assert_eq!(StackSize::for_share(1 << 18, 2).small, 8);
    assert_eq!(StackSize::for_share(1 << 12, 2).small, 1);
    assert_eq!(StackSize::for_share(1 << 12, 64).small, 0, "no stacks");
}

/// There is one for orders 1 to 3 of each type that can be asked for.
#[test]
fn which_there_are() {
    let stacks = stacks(8);
    let mut all = Vec::new();
    for (migrate, order) in
        MigrateType::ALL.into_iter().flat_map(|migrate| ORDERS.map(|order| (migrate, order)))
    {
        let Some(stack) = stacks.stack(order, migrate) else { continue };
        assert!(migrate.is_requestable() && (1..=3).contains(&order.get()));
        assert!(!all.iter().any(|&other| core::ptr::eq(other, stack)), "one for each");
        all.push(stack);
    }
    assert_eq!(all.len(), KINDS);
}

/// A block that is as large as a pageblock or larger does not stay.
#[test]
fn blocks_are_parts_of_pageblocks() {
    let stacks = SmallStacks::<SingleThread>::new();
    stacks.set_high(8, ORDERS[2]);
    let keeps = |order: usize| stacks.stack(ORDERS[order], Movable).is_some_and(|it| it.push(8));
    assert_eq!([1, 2, 3].map(keeps), [true, false, false]);
}

/// What is taken back, counted and visited has the order of its stack.
#[test]
fn each_has_its_order() {
    let stacks = stacks(8);
    for order in &ORDERS[1..=3] {
        let (stack, at) = (stacks.stack(*order, Unmovable), u32::from(order.get()) * 64);
        let stack = stack.expect("it has one");
        assert!(stack.push(at) && stack.push(at + 8));
        stack.count_freed();
    }
    assert_eq!((stacks.frames(), stacks.freed()), (2 * 14, 14));
    let blocks: Vec<_> = stacks.blocks().collect();
    assert_eq!(blocks[..3], [(64, ORDERS[1]), (72, ORDERS[1]), (128, ORDERS[2])]);
    assert!(!stacks.take_back(128, ORDERS[2]), "not the newest");
    assert!(!stacks.take_back(136, ORDERS[1]), "another order");
    assert!(stacks.take_back(136, ORDERS[2]) && !stacks.take_back(136, ORDERS[2]));
    assert_eq!(stacks.frames(), 2 * 14 - 4);
}

/// A drain gives all blocks of the types that it is told of, each with its order; they go on afterwards.
#[test]
fn a_drain() {
    let (stacks, home) = (stacks(4), Listed::default());
    for (migrate, order, index) in [(Unmovable, 1, 66), (Movable, 1, 70), (Movable, 3, 80)] {
        assert!(stacks.stack(ORDERS[order], migrate).expect("it has one").push(index));
    }
    let mut types = Types::NONE;
    assert!(types.is_empty());
    types.add(Movable);
    for owned in [true, false] {
        let given = SmallDrain::begin(&stacks, types, owned).take(&home, 64);
        assert_eq!(given, Ok(if owned { 2 + 8 } else { 0 }));
    }
    assert_eq!(*home.0.borrow(), [(6, ORDERS[1]), (16, ORDERS[3])]);
    assert_eq!(stacks.frames(), 2, "of the other type");
    let stack = stacks.stack(ORDERS[1], Movable).expect("it has one");
    assert!(!stack.push(70), "shut until the owner comes by");
    stacks.settle();
    assert!(stack.push(70) && stack.pop_owned() == Some(70));
}

/// A drain without its fence leaves them as they were, but shut.
#[test]
fn a_drain_that_is_refused() {
    let stacks = stacks(4);
    let stack = stacks.stack(ORDERS[2], Movable).expect("it has one");
    assert!(stack.push(8));
    let mut types = Types::NONE;
    types.add(Movable);
    let drain = SmallDrain::begin(&stacks, types, true);
    assert_eq!(stack.pop_owned(), None, "stopped");
    drain.leave();
    assert!(!stack.push(12));
    assert_eq!(stack.pop_owned(), Some(8));
}

/// A block stays if it is of the pageblock that its type's last came from.
#[test]
fn a_home_for_each_type() {
    let out = StackOutside::<SingleThread>::new();
    out.small().set_high(4, PAGEBLOCK);
    let stays = |migrate, index| out.small_for((ORDERS[2], migrate), index, PAGEBLOCK).is_some();
    out.set_start(1024, 4096);
    assert!(![0, 1024, u32::MAX - 1023].map(|index| stays(Movable, index)).contains(&true));
    out.small().set_home(Movable, 1024);
    assert!(stays(Movable, 1024) && stays(Movable, 1535));
    assert!(!stays(Movable, 1023) && !stays(Movable, 1536));
    assert!(!stays(Unmovable, 1024) && !stays(Cma, 1024));
    assert!(out.small_for((ORDERS[5], Movable), 1024, PAGEBLOCK).is_none());
    out.set_start(0, 4096);
    assert!(!stays(Movable, 1024), "another start, no home");
}

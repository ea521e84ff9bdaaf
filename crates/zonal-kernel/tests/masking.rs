//! A handler that comes at the worst moment: on a machine that masks it finds locks free, on one that does
//! not (the canary) it finds them held.

use std::cell::Cell;
use zonal::map::PhysAddr;
use zonal::platform::{Lock, Slot};
use zonal::{CpuId, NodeId};
use zonal_kernel::Machine;
use zonal_kernel::irq_lock::IrqLock;
use zonal_kernel::irq_slot::IrqSlot;

thread_local! {
    static ON: Cell<bool> = const { Cell::new(true) };
}

struct Masking;
struct Careless;

macro_rules! machine {
    ($name:ident, $off:expr) => {
        impl Machine for $name {
            fn cpu() -> CpuId {
                CpuId(0)
            }
            fn node(_: CpuId) -> NodeId {
                NodeId(0)
            }
            fn interrupts_off() -> bool {
                ON.replace($off)
            }
            fn interrupts_restore(were_on: bool) {
                ON.set(were_on);
            }
            fn address(_: PhysAddr) -> *mut u8 {
                unreachable!("no frames here")
            }
        }
    };
}
machine!(Masking, false);
machine!(Careless, true);

/// An interrupt at this moment; what its handler says, if it runs.
fn interrupt<R>(handler: impl FnOnce() -> R) -> Option<R> {
    ON.get().then(handler)
}

/// What a handler says that comes inside, and one that comes after: whether it got in.
fn at_a_lock<M: Machine>() -> [Option<bool>; 2] {
    let lock = IrqLock::<(), M>::new(());
    let handler = || interrupt(|| lock.try_with(|()| ()).is_some());
    [lock.with(|()| handler()), handler()]
}

fn at_a_slot<M: Machine>() -> [[Option<bool>; 2]; 2] {
    let slot = <IrqSlot<(), M> as Slot<()>>::new(());
    let handler = || interrupt(|| slot.try_with(|()| ()).is_some());
    let tried = [slot.try_with(|()| handler()).expect("it is free"), handler()];
    [tried, [slot.with(|()| handler()), handler()]]
}

#[test]
fn a_handler_finds_what_it_needs_free() {
    let free = [None, Some(true)];
    assert_eq!(at_a_lock::<Masking>(), free);
    assert_eq!(at_a_slot::<Masking>(), [free; 2]);
}

#[test]
fn a_machine_that_does_not_mask_is_seen() {
    let held = [Some(false), Some(true)];
    assert_eq!(at_a_lock::<Careless>(), held);
    assert_eq!(at_a_slot::<Careless>(), [held; 2]);
}

#[test]
fn sections_nest() {
    let (outer, inner) = (IrqLock::<(), Masking>::new(()), IrqLock::<(), Masking>::new(()));
    outer.with(|()| {
        inner.with(|()| assert!(!ON.get()));
        assert!(!ON.get(), "the outer one is held still");
        assert!(inner.try_with(|()| outer.try_with(|()| ()).is_none()).unwrap());
        assert!(!ON.get());
    });
    assert!(ON.get());
}

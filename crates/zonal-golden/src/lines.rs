//! A platform that notes which cache lines are touched: those of atomics, and one for each lock
//! and CPU slot that is entered. What is read besides (fields written once) is not seen.

use crate::stacks;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use zonal::CpuId;
use zonal::Host;
use zonal::platform::shared_slot::{Guarded, SharedSlot};
use zonal::platform::{AtomicByte, AtomicHalf, AtomicWord, Lock, Platform};

const LINE: usize = 64;

thread_local! {
    static SEEN: RefCell<BTreeSet<usize>> = const { RefCell::new(BTreeSet::new()) };
    static ON: Cell<bool> = const { Cell::new(false) };
}

/// The lines that `f` touches.
pub(crate) fn touched(f: impl FnOnce()) -> usize {
    SEEN.with_borrow_mut(BTreeSet::clear);
    ON.set(true);
    f();
    ON.set(false);
    SEEN.with_borrow(BTreeSet::len)
}

fn note<T>(at: &T) {
    stacks::note(false);
    note_line(at);
}

fn note_write<T>(at: &T) {
    stacks::note(true);
    note_line(at);
}

fn note_line<T>(at: &T) {
    if ON.get() {
        SEEN.with_borrow_mut(|seen| seen.insert(std::ptr::from_ref(at).addr() / LINE));
    }
}

pub(crate) struct SeenByte(AtomicU8);

impl AtomicByte for SeenByte {
    fn new(value: u8) -> Self {
        Self(AtomicU8::new(value))
    }
    fn load(&self, order: Ordering) -> u8 {
        note(self);
        self.0.load(order)
    }
    fn store(&self, value: u8, order: Ordering) {
        note_write(self);
        self.0.store(value, order);
    }
    fn swap(&self, value: u8, order: Ordering) -> u8 {
        note(self);
        self.0.swap(value, order)
    }
    fn compare_exchange(
        &self,
        current: u8,
        new: u8,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u8, u8> {
        note(self);
        self.0.compare_exchange(current, new, success, failure)
    }
}

pub(crate) struct SeenHalf(AtomicU32);

impl AtomicHalf for SeenHalf {
    fn new(value: u32) -> Self {
        Self(AtomicU32::new(value))
    }
    fn load(&self, order: Ordering) -> u32 {
        note(self);
        self.0.load(order)
    }
    fn store(&self, value: u32, order: Ordering) {
        note_write(self);
        self.0.store(value, order);
    }
}

pub(crate) struct SeenWord(AtomicU64);

impl AtomicWord for SeenWord {
    fn new(value: u64) -> Self {
        Self(AtomicU64::new(value))
    }
    fn load(&self, order: Ordering) -> u64 {
        note(self);
        self.0.load(order)
    }
    fn store(&self, value: u64, order: Ordering) {
        note_write(self);
        self.0.store(value, order);
    }
    fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
        note_write(self);
        self.0.fetch_add(value, order)
    }
    fn fetch_or(&self, mask: u64, order: Ordering) -> u64 {
        note(self);
        self.0.fetch_or(mask, order)
    }
    fn fetch_and(&self, mask: u64, order: Ordering) -> u64 {
        note(self);
        self.0.fetch_and(mask, order)
    }
    fn swap(&self, value: u64, order: Ordering) -> u64 {
        note(self);
        self.0.swap(value, order)
    }
    fn compare_exchange(
        &self,
        current: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64> {
        note_write(self);
        self.0.compare_exchange(current, new, success, failure)
    }
}

pub(crate) struct SeenLock<T>(RefCell<T>);

impl<T> Lock<T> for SeenLock<T> {
    fn new(value: T) -> Self {
        Self(RefCell::new(value))
    }
    fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        note(self);
        f(&mut self.0.borrow_mut())
    }
    fn try_with<R>(&self, f: impl FnOnce(&mut T) -> R) -> Option<R> {
        note(self);
        self.0.try_borrow_mut().ok().map(|mut value| f(&mut value))
    }
    fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }
}

/// One CPU.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) node: u8,
}

impl Platform for Seen {
    type Byte = SeenByte;
    type Half = SeenHalf;
    type Word = SeenWord;
    type Lock<T: Send> = SeenLock<T>;
    type Slot<T: Send> = SharedSlot<T, SeenLock<Guarded<T>>>;

    fn cpu(&self) -> CpuId {
        CpuId(0)
    }

    fn node(&self, _: CpuId) -> zonal::NodeId {
        zonal::NodeId(self.node)
    }
}

impl Host for Seen {}

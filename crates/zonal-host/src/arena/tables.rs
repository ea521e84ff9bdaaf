//! The memory an arena's allocator lives in.

use crate::raw_table::RawTable;
use crate::region::RegionError;
use crate::threads::Threads;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU64};
use zonal::plan::Plan;
use zonal::platform::{Platform, Slot};
use zonal::policy::Policy;
use zonal::zone::tables::FreeWords;
use zonal::{OutsideSlot, PerCpuPages, SharedState, Storage, TableSize, Zone};

type Cache<S> = <Threads as Platform>::Slot<PerCpuPages<S>>;

/// A `Box` by address: references into it stay good when this value moves.
#[derive(Debug)]
struct Fixed<T: ?Sized>(NonNull<T>);

impl<T: ?Sized> From<Box<T>> for Fixed<T> {
    fn from(value: Box<T>) -> Self {
        Self(NonNull::from(Box::leak(value)))
    }
}

impl<T: ?Sized> Drop for Fixed<T> {
    fn drop(&mut self) {
        // SAFETY: the address is a box's that was leaked for us, and only we drop it;
        // callers who took references by the functions below have promised that they are gone.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

// SAFETY: owns the `T`, as a box does.
unsafe impl<T: ?Sized + Send> Send for Fixed<T> {}
// SAFETY: gives out no more than a box does.
unsafe impl<T: ?Sized + Sync> Sync for Fixed<T> {}

impl<T: ?Sized> Fixed<T> {
    /// # Safety
    /// The reference must not be used after `self` is dropped, nor beside one of `forever_mut`.
    unsafe fn forever(&self) -> &'static T {
        // SAFETY: the value lives until `self` is dropped, and only shared references exist.
        unsafe { self.0.as_ref() }
    }

    /// # Safety
    /// The reference must not be used after `self` is dropped, nor beside any other.
    unsafe fn forever_mut(&mut self) -> &'static mut T {
        // SAFETY: the value lives until `self` is dropped, and this is the only reference.
        unsafe { self.0.as_mut() }
    }
}

/// See the [module](self).
pub(super) struct Tables<S: Policy> {
    plan: Fixed<Plan>,
    size: TableSize,
    states: RawTable<AtomicU8>,
    pageblocks: RawTable<AtomicU64>,
    free: [RawTable<AtomicU64>; 3],
    zones: Fixed<[Zone<Threads, S>]>,
    caches: Fixed<[Cache<S>]>,
    outside: Fixed<[OutsideSlot<Threads, S>]>,
    shared: Fixed<SharedState<Threads>>,
}

/// # Safety
/// The slice must not be used after the table is dropped.
unsafe fn forever<T: crate::raw_table::Element>(table: &RawTable<T>) -> &'static [T] {
    let slice: *const [T] = table.as_slice();
    // SAFETY: the table's memory is mapped at a fixed address until it is dropped, and reached
    // by shared references only.
    unsafe { &*slice }
}

impl<S: Policy> Tables<S> {
    /// Maps what `plan` needs. O(zones × CPUs).
    pub(super) fn new(plan: Plan) -> Result<Self, RegionError> {
        let size = TableSize::of::<S>(&plan);
        let [first, second, third] = size.free;
        let zones: Box<[_]> = (0..size.zones).map(|_| Zone::vacant()).collect();
        let caches: Box<[_]> =
            (0..size.caches).map(|_| Cache::<S>::new(PerCpuPages::new())).collect();
        let outside: Box<[_]> = (0..size.caches).map(|_| OutsideSlot::new()).collect();
        Ok(Self {
            plan: Box::new(plan).into(),
            size,
            states: RawTable::new(size.frames)?,
            pageblocks: RawTable::new(size.pageblocks)?,
            free: [RawTable::new(first)?, RawTable::new(second)?, RawTable::new(third)?],
            zones: zones.into(),
            caches: caches.into(),
            outside: outside.into(),
            shared: Box::new(SharedState::new()).into(),
        })
    }

    pub(super) const fn size(&self) -> &TableSize {
        &self.size
    }

    /// What an allocator is made of.
    ///
    /// # Safety
    /// To be called once, and nothing of what is returned used after `self` is dropped.
    pub(super) unsafe fn lend(&mut self) -> (&'static Plan, Storage<'static, Threads, S>) {
        // SAFETY: by contract, as for all of the following.
        let plan = unsafe { self.plan.forever() };
        // SAFETY: by contract.
        let states = unsafe { forever(&self.states) };
        // SAFETY: by contract.
        let pageblocks = unsafe { forever(&self.pageblocks) };
        let [first, second, third] = &self.free;
        // SAFETY: by contract.
        let first = unsafe { forever(first) };
        // SAFETY: by contract.
        let second = unsafe { forever(second) };
        // SAFETY: by contract.
        let third = unsafe { forever(third) };
        // SAFETY: by contract; the only reference, since this is called once.
        let zones = unsafe { self.zones.forever_mut() };
        // SAFETY: by contract.
        let caches = unsafe { self.caches.forever() };
        // SAFETY: by contract.
        let outside = unsafe { self.outside.forever() };
        // SAFETY: by contract.
        let shared = unsafe { self.shared.forever() };
        let storage = Storage {
            states,
            pageblocks,
            free: FreeWords([first, second, third]),
            zones,
            caches,
            outside,
            shared,
        };
        (plan, storage)
    }
}

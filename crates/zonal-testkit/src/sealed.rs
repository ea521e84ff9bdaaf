//! Tables whose entries can be sealed: to write one is a panic. For the promise that entries of memory that is
//! not there are only read. A [`Probe`] has such tables, and most worlds seal nothing.
//!
//! ```
//! use std::sync::atomic::Ordering::Relaxed;
//! use zonal::platform::AtomicWord;
//! use zonal_testkit::sealed::SealedWord;
//! let word = SealedWord::new(0);
//! word.seal(true);
//! assert_eq!(word.load(Relaxed), 0);
//! assert!(std::panic::catch_unwind(|| word.fetch_and(1, Relaxed)).is_err());
//! ```

use crate::host::TestHost;
use crate::probe::Probe;
use crate::shape::Shape;
use crate::world::World;
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use zonal::map::PfnRange;
use zonal::plan::Plan;
use zonal::platform::{AtomicByte, AtomicWord};
use zonal::policy::Policy;
use zonal::{Allocator, Storage, TablePart, TableSize};
use zonal_tables::HeapTables;

macro_rules! sealed {
    ($(#[$doc:meta])* $name:ident, $trait:ident, $atomic:ty, $value:ty, $($update:ident)*) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name($atomic, AtomicBool);

        impl $name {
            /// Seals it, or opens it.
            pub fn seal(&self, on: bool) {
                self.1.store(on, Relaxed);
            }

            fn check(&self) {
                assert!(!self.1.load(Relaxed), "an entry of memory that is not there was written");
            }
        }

        impl $trait for $name {
            fn new(value: $value) -> Self {
                Self(<$atomic>::new(value), AtomicBool::new(false))
            }
            zonal::forward_atomic!($value, 0: load);
            fn store(&self, value: $value, order: Ordering) {
                self.check();
                self.0.store(value, order);
            }
            $(fn $update(&self, value: $value, order: Ordering) -> $value {
                self.check();
                self.0.$update(value, order)
            })*
            fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                // Also one that fails: a processor may write then, what was there.
                self.check();
                self.0.compare_exchange(current, new, success, failure)
            }
        }
    };
}

sealed!(
    /// A state byte.
    SealedByte, AtomicByte, AtomicU8, u8, swap
);
sealed!(
    /// A word.
    SealedWord, AtomicWord, AtomicU64, u64, swap fetch_add fetch_or fetch_and
);

/// The tables of a world, to seal them and to open them.
#[derive(Debug)]
pub struct Sealing<'a> {
    plan: &'a Plan,
    states: &'a [SealedByte],
    words: [&'a [SealedWord]; 4],
}

impl<'a> Sealing<'a> {
    fn new<S: Policy>(plan: &'a Plan, storage: &Storage<'a, Probe, S>) -> Self {
        let [first, second, third] = storage.free.0;
        let words = [storage.pageblocks, first, second, third];
        Self { plan, states: storage.states, words }
    }

    fn seal(&self, part: TablePart, elements: Range<u64>, on: bool) {
        let elements = elements.start as usize..elements.end as usize;
        let words = match part {
            TablePart::States => {
                return self.states[elements].iter().for_each(|byte| byte.seal(on));
            }
            TablePart::Pageblocks => self.words[0],
            TablePart::Free(slice) => self.words[1 + slice],
        };
        words[elements].iter().for_each(|word| word.seal(on));
    }

    /// Seals all that comes with memory.
    pub fn seal_all<S: Policy>(&self) {
        let size = TableSize::of::<S>(self.plan);
        for part in TablePart::ALL.into_iter().filter(|part| part.is_by_frames::<S>()) {
            self.seal(part, 0..size.elements(part), true);
        }
    }

    /// Opens what memory in `range` needs.
    pub fn open<S: Policy>(&self, range: PfnRange) {
        TableSize::visit_parts::<S>(self.plan, range, &mut |part, elements| {
            self.seal(part, elements, false);
        });
    }
}

/// Runs `f` with a world whose tables are sealed where there is no memory at the start.
///
/// # Panics
/// If the allocator cannot be built.
pub fn with_sealed<S: Policy, R>(
    shape: Shape,
    plan: &Plan,
    f: impl FnOnce(&World<'_, Probe, S>, &Sealing<'_>) -> R,
) -> R {
    let mut tables = HeapTables::new(plan).expect("room for a small machine's tables");
    let storage = tables.storage();
    let sealing = Sealing::new(plan, &storage);
    sealing.seal_all::<S>();
    plan.map().present().for_each(|range| sealing.open::<S>(range.pfns()));
    let allocator = Allocator::new(<Probe>::for_shape(shape), plan, storage);
    let world = World { shape, allocator: allocator.expect("storage of the sizes asked for") };
    f(&world, &sealing)
}

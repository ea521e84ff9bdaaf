//! Lists of frames freed otherwise than the preset has it, and with hooks at the two passes: where
//! a test waits, or plants a bug.
//!
//! ```
//! use std::cell::Cell;
//! use zonal::policy::bulk_free::Committed;
//! use zonal::preset::Linux413;
//! use zonal::{Pfn, Request};
//! use zonal_testkit::lists::{FreedBy, Hooked, Hooks};
//! use zonal_testkit::probe::Probe;
//! use zonal_testkit::shape::Shape;
//! use zonal_testkit::world::with_world;
//!
//! thread_local! {
//!     static COMMITS: Cell<u32> = const { Cell::new(0) };
//! }
//!
//! struct Counting;
//!
//! impl Hooks for Counting {
//!     fn commit(_: u64, commit: impl FnOnce() -> Committed) -> Committed {
//!         COMMITS.set(COMMITS.get() + 1);
//!         commit()
//!     }
//! }
//!
//! with_world::<Probe, FreedBy<Linux413, Hooked<Counting>>, _>(Shape::Flat, |world| {
//!     let mut list = [Pfn::default(); 10];
//!     world.allocator.alloc_bulk(&Request::frame(), &mut list).unwrap();
//!     assert_eq!(world.allocator.free_bulk(&list).freed, 10);
//!     assert_eq!(COMMITS.get(), 1);
//! });
//! ```

use std::marker::PhantomData;
use zonal::policy::Policy;
use zonal::policy::bulk_free::{BulkFree, Committed, Listed, PrepareCommit};

zonal::preset! {
    /// The preset `S` with lists freed as `B` does.
    pub FreedBy<S: Policy, B: BulkFree> = S::NAME, over S { BulkFree = B }
}

/// What stands between [`PrepareCommit`] and its list; as it is, nothing.
pub trait Hooks: Send + Sync + 'static {
    /// Answers for [`Listed::commit`] of the frames `prepared`, which is `commit`.
    fn commit(prepared: u64, commit: impl FnOnce() -> Committed) -> Committed {
        let _ = prepared;
        commit()
    }
    /// Answers for [`Listed::unprepare`], which is `unprepare`.
    fn unprepare(unprepare: impl FnOnce() -> bool) -> bool {
        unprepare()
    }
}

/// [`PrepareCommit`] with the hooks `H`.
#[derive(Debug)]
pub struct Hooked<H>(PhantomData<fn() -> H>);

impl<H: Hooks> BulkFree for Hooked<H> {
    fn free(list: &mut impl Listed) {
        PrepareCommit::free(&mut List { list, hooks: PhantomData::<fn() -> H> });
    }
}

/// A list with hooks.
struct List<'a, L, H> {
    list: &'a mut L,
    hooks: PhantomData<fn() -> H>,
}

impl<L: Listed, H: Hooks> Listed for List<'_, L, H> {
    fn len(&self) -> usize {
        self.list.len()
    }
    fn one(&mut self, at: usize) {
        self.list.one(at);
    }
    fn run(&mut self, at: usize) -> usize {
        self.list.run(at)
    }
    fn prepare(&mut self, from: usize) -> u64 {
        self.list.prepare(from)
    }
    fn commit(&mut self, from: usize, prepared: u64) -> Committed {
        H::commit(prepared, || self.list.commit(from, prepared))
    }
    fn unprepare(&mut self, at: usize) -> bool {
        H::unprepare(|| self.list.unprepare(at))
    }
    fn direct(&mut self, at: usize) {
        self.list.direct(at);
    }
}

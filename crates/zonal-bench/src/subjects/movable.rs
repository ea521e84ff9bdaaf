//! zonal's presets with pages that compaction can move.
//!
//! Single frames are known to their users by a number in a [`Book`] rather than by pfn, so that
//! compaction may exchange the frame behind it. The frames hold nothing; none is copied. Every
//! allocation and free of a single frame takes the lock of the book, which is most of what the
//! times of such rows measure: they are about blocks.
//!
//! ```
//! use zonal::preset::Zonal;
//! use zonal_bench::subject::{FrameThread, Setup, Subject};
//! use zonal_bench::subjects::movable::Movable;
//! use zonal_bench::subjects::zonal::Shared;
//!
//! let setup = Setup { memory: 64 << 20, threads: 1, touch: false, regions: None };
//! let subject = Movable::<Zonal, Shared>::open(&setup)?;
//! let mut thread = subject.thread(0)?;
//! let page = thread.alloc(0).expect("all is free");
//! assert!(thread.compact(), "a block is free");
//! // SAFETY: from `alloc` with order 0 just above, freed once.
//! unsafe { thread.free(page, 0) };
//! # Ok::<(), zonal_bench::subject::SubjectError>(())
//! ```

use std::marker::PhantomData;
use std::sync::Arc;

use zonal::compact::CompactOutcome;
use zonal::policy::Sound;
use zonal::{Order, Pfn};
use zonal_host::Arena;

use super::zonal::{Way, builder, lock_work_of};
use crate::figures::LockWork;
use crate::pages::{Book, Mover};
use crate::subject::{
    FRAME_BYTES, FrameThread, Group, Path, Profile, Setup, Subject, SubjectError,
};

/// An arena with the preset `S`, reached in the way `W`, that can be compacted.
pub struct Movable<S: Sound, W> {
    arena: Arena<S>,
    mover: Arc<Mover>,
    way: PhantomData<fn() -> W>,
}

/// What names a block of a [`Movable`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named {
    /// A single frame, wherever it is.
    Page(u32),
    /// A larger block, which stays where it is.
    Block(Pfn),
}

impl Default for Named {
    fn default() -> Self {
        Self::Page(u32::MAX)
    }
}

impl<S: Sound, W: Way> Subject for Movable<S, W> {
    const PROFILE: Profile = Profile {
        name: S::NAME,
        path: if matches!(W::PATH, Path::Owned) { Path::Owned } else { Path::Shared },
        group: Group::Zonal,
        note: W::NOTE,
        max_order: Order::MAX.get(),
        managed: true,
        bulk: false,
    };
    type Block = Named;
    type Thread<'a> = MovableThread<'a, S, W>;

    fn open(setup: &Setup) -> Result<Self, SubjectError> {
        let mover = Arc::new(Mover::default());
        let arena = builder::<S>(setup)
            .pager(mover.clone())
            .open()
            .map_err(|error| SubjectError::Init(error.to_string()))?;
        mover.start(Book::new(arena.first(), arena.len() / FRAME_BYTES));
        Ok(Self { arena, mover, way: PhantomData })
    }

    fn thread(&self, _index: usize) -> Result<Self::Thread<'_>, SubjectError> {
        let inner = W::thread(&self.arena)?;
        Ok(MovableThread { inner, arena: &self.arena, mover: &self.mover })
    }

    fn frames(&self) -> Option<usize> {
        Some(self.arena.len() / FRAME_BYTES)
    }

    fn lock_work(&self) -> Option<LockWork> {
        Some(lock_work_of(&self.arena))
    }
}

/// One thread's access to a [`Movable`].
pub struct MovableThread<'a, S: Sound, W: Way> {
    inner: W::Thread<'a, S>,
    arena: &'a Arena<S>,
    mover: &'a Mover,
}

impl<S: Sound, W: Way> FrameThread for MovableThread<'_, S, W> {
    type Block = Named;

    fn alloc(&mut self, order: u8) -> Option<Named> {
        let pfn = self.inner.alloc(order)?;
        if order > 0 {
            return Some(Named::Block(pfn));
        }
        // Not in one expression: the book is not to be locked while something is allocated.
        let page = self.mover.book()?.insert(pfn);
        page.map(Named::Page)
    }

    unsafe fn free(&mut self, block: Named, order: u8) {
        let pfn = match block {
            Named::Block(pfn) => Some(pfn),
            Named::Page(page) => self.mover.book().and_then(|mut book| book.remove(page)),
        };
        if let Some(pfn) = pfn {
            // SAFETY: the caller frees what it allocated, once; for a page, this is the frame
            // that it is in now, and no thread moves it any more.
            unsafe { self.inner.free(pfn, order) };
        }
    }

    fn compact(&mut self) -> bool {
        self.arena.compact(Order::HUGE) == CompactOutcome::Success
    }

    /// Nothing: the frames of this subject hold nothing.
    unsafe fn touch(&mut self, _block: Named) {}
}

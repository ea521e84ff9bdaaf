//! General-purpose allocators, asked for 4096-byte-aligned blocks without being installed as the
//! process's allocator.
//!
//! They are built as their crates recommend: default features, no tuning. Each keeps a heap per
//! thread, takes its memory from the kernel itself and writes into free memory, so their rows
//! include page faults where they give memory back and take it again. A block of order `n` is
//! asked for with the alignment of a page only: less than a frame allocator promises, which is
//! to their advantage.
//!
//! ```
//! assert_eq!(zonal_mallocs::entries::<zonal_bench::program::Quick>().len(), 3);
//! ```

use core::alloc::GlobalAlloc;
use core::marker::PhantomData;

use zonal_bench::program::Programs;
use zonal_bench::subject::{FrameThread, Group, Path, Profile, Setup, Subject, SubjectError};
use zonal_bench::subjects::Entry;
use zonal_bench::subjects::page::{Page, layout};

/// Largest order asked of an allocator without a limit of its own.
const MAX_ORDER: u8 = 10;

/// The three of them.
#[must_use]
pub fn entries<P: Programs>() -> Vec<Entry> {
    vec![
        Entry::of::<Malloc<Mimalloc>, P>(),
        Entry::of::<Malloc<Jemalloc>, P>(),
        Entry::of::<Malloc<Snmalloc>, P>(),
    ]
}

/// Which allocator a [`Malloc`] calls.
pub trait Backend: Send + Sync + 'static {
    /// Its type.
    type Alloc: GlobalAlloc;
    /// Its value.
    const ALLOC: Self::Alloc;
    /// Its name.
    const NAME: &'static str;
    /// What a reader of its row must know.
    const NOTE: &'static str;
}

/// mimalloc (version 3, the default of its crate).
#[derive(Debug)]
pub struct Mimalloc;

impl Backend for Mimalloc {
    type Alloc = mimalloc::MiMalloc;
    const ALLOC: Self::Alloc = mimalloc::MiMalloc;
    const NAME: &'static str = "mimalloc";
    const NOTE: &'static str = "malloc, a heap per thread";
}

/// jemalloc.
#[derive(Debug)]
pub struct Jemalloc;

impl Backend for Jemalloc {
    type Alloc = tikv_jemallocator::Jemalloc;
    const ALLOC: Self::Alloc = tikv_jemallocator::Jemalloc;
    const NAME: &'static str = "tikv-jemallocator";
    const NOTE: &'static str = "malloc, a cache per thread";
}

/// snmalloc, built with its `build_cc` feature, which needs no cmake.
#[derive(Debug)]
pub struct Snmalloc;

impl Backend for Snmalloc {
    type Alloc = snmalloc_rs::SnMalloc;
    const ALLOC: Self::Alloc = snmalloc_rs::SnMalloc;
    const NAME: &'static str = "snmalloc-rs";
    const NOTE: &'static str = "malloc, a heap per thread, remote frees by message";
}

/// A process-wide allocator as a subject.
#[derive(Debug)]
pub struct Malloc<B>(PhantomData<fn() -> B>);

impl<B: Backend> Subject for Malloc<B> {
    const PROFILE: Profile = Profile {
        name: B::NAME,
        path: Path::Shared,
        group: Group::Peer,
        note: B::NOTE,
        max_order: MAX_ORDER,
        managed: false,
        bulk: false,
    };

    type Block = Page;
    type Thread<'a> = MallocThread<B>;

    fn open(_setup: &Setup) -> Result<Self, SubjectError> {
        Ok(Self(PhantomData))
    }

    fn thread(&self, _index: usize) -> Result<Self::Thread<'_>, SubjectError> {
        Ok(MallocThread(PhantomData))
    }

    fn frames(&self) -> Option<usize> {
        None
    }
}

/// One thread's access to a [`Malloc`].
#[derive(Debug)]
pub struct MallocThread<B>(PhantomData<fn() -> B>);

impl<B: Backend> FrameThread for MallocThread<B> {
    type Block = Page;

    #[inline]
    fn alloc(&mut self, order: u8) -> Option<Page> {
        // SAFETY: the layout's size is not zero.
        let block = unsafe { B::ALLOC.alloc(layout(order)) };
        if block.is_null() { None } else { Some(Page(block)) }
    }

    #[inline]
    unsafe fn free(&mut self, block: Page, order: u8) {
        // SAFETY: the caller promises that `block` came from `alloc` with this order, hence from
        // this allocator with this layout, and is freed once.
        unsafe { B::ALLOC.dealloc(block.0, layout(order)) };
    }

    #[inline]
    unsafe fn touch(&mut self, block: Page) {
        // SAFETY: the block is allocated and at least a page long.
        unsafe { block.0.write_volatile(1) };
    }
}

//! References that need no other crate: the plainest shared pool, and what the harness itself
//! costs. They are measured when named, and are no part of `all`.
//!
//! ```
//! use zonal_bench::subject::{Setup, Subject};
//! use zonal_bench::subjects::baseline::FreeList;
//!
//! let list = FreeList::open(&Setup { memory: 1 << 20, threads: 2, touch: false, regions: None })?;
//! assert_eq!(list.frames(), Some(256));
//! # Ok::<(), zonal_bench::subject::SubjectError>(())
//! ```

use crate::memory::Region;
use crate::subject::{FrameThread, Group, Path, Profile, Setup, Subject, SubjectError};
use crate::workload::{BULK_BATCH, TASK_FRAMES};

/// A stack of pfns behind a spin lock: the least a shared page pool can be. It has no
/// orders and notices no double free, so it is a floor for one lock rather than a peer.
#[derive(Debug)]
pub struct FreeList {
    free: spin::Mutex<Vec<u32>>,
    frames: usize,
    region: Option<Region>,
}

impl Subject for FreeList {
    const PROFILE: Profile = Profile {
        name: "free-list",
        path: Path::Shared,
        group: Group::Reference,
        note: "no orders, no checks: a Vec of pfns in a spin::Mutex",
        max_order: 0,
        managed: true,
        bulk: false,
    };

    type Block = u32;
    type Thread<'a> = FreeListThread<'a>;

    fn open(setup: &Setup) -> Result<Self, SubjectError> {
        let most = u32::MAX as usize;
        let count = u32::try_from(setup.frames())
            .map_err(|_| SubjectError::TooLarge { asked: setup.frames(), most })?;
        let region = setup.touch.then(|| Region::reserve(setup.memory)).transpose()?;
        let free = (0..count).rev().collect();
        Ok(Self { free: spin::Mutex::new(free), frames: setup.frames(), region })
    }

    fn thread(&self, _index: usize) -> Result<Self::Thread<'_>, SubjectError> {
        Ok(FreeListThread(self))
    }

    fn frames(&self) -> Option<usize> {
        Some(self.frames)
    }
}

/// One thread's access to a [`FreeList`].
#[derive(Debug)]
pub struct FreeListThread<'a>(&'a FreeList);

impl FrameThread for FreeListThread<'_> {
    type Block = u32;

    #[inline]
    fn alloc(&mut self, order: u8) -> Option<u32> {
        if order == 0 { self.0.free.lock().pop() } else { None }
    }

    #[inline]
    unsafe fn free(&mut self, block: u32, _order: u8) {
        self.0.free.lock().push(block);
    }

    #[inline]
    unsafe fn touch(&mut self, block: u32) {
        if let Some(region) = &self.0.region {
            // SAFETY: `block` is a pfn below the frames the region was reserved for, and it is
            // allocated to this thread.
            unsafe { region.frame(block as usize).write_volatile(1) };
        }
    }
}

/// Hands out numbers and takes nothing back: what the harness itself costs. Read every other row
/// against it.
#[derive(Debug)]
pub struct Null;

impl Subject for Null {
    const PROFILE: Profile = Profile {
        name: "null",
        path: Path::Owned,
        group: Group::Reference,
        note: "no allocator: what the harness costs",
        max_order: 10,
        managed: false,
        bulk: false,
    };

    type Block = u32;
    type Thread<'a> = NullThread;

    fn open(_setup: &Setup) -> Result<Self, SubjectError> {
        Ok(Self)
    }

    fn thread(&self, _index: usize) -> Result<Self::Thread<'_>, SubjectError> {
        Ok(NullThread(0))
    }

    fn frames(&self) -> Option<usize> {
        None
    }
}

/// One thread's counter of [`Null`].
#[derive(Debug)]
pub struct NullThread(u32);

impl FrameThread for NullThread {
    type Block = u32;

    #[inline]
    fn alloc(&mut self, _order: u8) -> Option<u32> {
        self.0 = self.0.wrapping_add(1);
        Some(self.0)
    }

    #[inline]
    unsafe fn free(&mut self, block: u32, _order: u8) {
        self.0 = self.0.wrapping_sub(block & 1);
    }

    #[inline]
    unsafe fn touch(&mut self, _block: u32) {}
}

/// A stack of pfns each thread has to itself: the fast path of a cache that never runs empty or
/// full. No allocator that shares frames can do less.
#[derive(Debug)]
pub struct PrivateStack {
    each: u32,
}

impl Subject for PrivateStack {
    const PROFILE: Profile = Profile {
        name: "private-stack",
        path: Path::Owned,
        group: Group::Reference,
        note: "no allocator: an array of pfns for each thread, shared with none",
        max_order: 0,
        managed: false,
        bulk: true,
    };

    type Block = u32;
    type Thread<'a> = PrivateStackThread;

    fn open(setup: &Setup) -> Result<Self, SubjectError> {
        let each = setup.frames() / setup.threads.max(1);
        // More than a task's worth would only be memory.
        Ok(Self { each: each.min(TASK_FRAMES + BULK_BATCH) as u32 })
    }

    fn thread(&self, index: usize) -> Result<Self::Thread<'_>, SubjectError> {
        let first = index as u32 * self.each;
        Ok(PrivateStackThread { free: (first..first + self.each).rev().collect() })
    }

    fn frames(&self) -> Option<usize> {
        None
    }
}

/// One thread's stack of a [`PrivateStack`].
#[derive(Debug)]
pub struct PrivateStackThread {
    free: Vec<u32>,
}

impl FrameThread for PrivateStackThread {
    type Block = u32;

    #[inline]
    fn alloc(&mut self, _order: u8) -> Option<u32> {
        self.free.pop()
    }

    #[inline]
    unsafe fn free(&mut self, block: u32, _order: u8) {
        self.free.push(block);
    }

    #[inline]
    fn alloc_bulk(&mut self, out: &mut [u32]) -> usize {
        let got = out.len().min(self.free.len());
        let rest = self.free.len() - got;
        out[..got].copy_from_slice(&self.free[rest..]);
        self.free.truncate(rest);
        got
    }

    #[inline]
    unsafe fn free_bulk(&mut self, blocks: &[u32]) {
        self.free.extend_from_slice(blocks);
    }

    #[inline]
    unsafe fn touch(&mut self, _block: u32) {}
}

//! A block of an arena's memory that keeps the arena open.

use super::{Arena, Page};
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::Arc;
use zonal::policy::Policy;
use zonal::preset::Zonal;
use zonal::{AllocError, Order, Pfn, Request};

impl<S: Policy> Arena<S> {
    /// As [`alloc`](Self::alloc), for a page that may outlive every borrow of the arena.
    ///
    /// # Errors
    /// As [`alloc`](Self::alloc).
    pub fn alloc_owned(self: &Arc<Self>, request: &Request) -> Result<OwnedPage<S>, AllocError> {
        self.alloc(request).map(|page| OwnedPage::new(page, self.clone()))
    }
}

impl<'a, S: Policy> Page<'a, S> {
    /// Has the page keep its arena open. O(1).
    ///
    /// # Errors
    /// The page, if it is another arena's.
    pub fn into_owned(self, arena: &Arc<Arena<S>>) -> Result<OwnedPage<S>, Self> {
        if ptr::eq(self.arena(), Arc::as_ptr(arena)) {
            Ok(OwnedPage::new(self, arena.clone()))
        } else {
            Err(self)
        }
    }
}

/// A [`Page`] that holds its arena instead of borrowing it: for what has to be `'static`, such as
/// buffers of I/O that completes later. Freed when dropped; the arena closes with the last one.
///
/// It costs a counted pointer more than a [`Page`]: a locked addition when it is made and another
/// when it is dropped.
///
/// ```
/// use std::sync::Arc;
/// use zonal::Request;
/// use zonal_host::Arena;
/// let arena = Arc::new(Arena::builder().bytes(16 << 20).open()?);
/// let mut page = arena.alloc_owned(&Request::frame())?;
/// drop(arena);
/// page.fill(7);
/// let there = std::thread::spawn(move || page.iter().all(|&byte| byte == 7));
/// assert!(there.join().unwrap());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct OwnedPage<S: Policy = Zonal> {
    arena: Arc<Arena<S>>,
    start: NonNull<u8>,
    order: Order,
}

// SAFETY: the page owns its bytes, and the arena it is freed to may be used and closed from any
// thread.
unsafe impl<S: Policy> Send for OwnedPage<S> where Arena<S>: Send + Sync {}
// SAFETY: a shared page gives shared access to its bytes and its arena only.
unsafe impl<S: Policy> Sync for OwnedPage<S> where Arena<S>: Send + Sync {}

impl<S: Policy> OwnedPage<S> {
    /// `arena` is the page's.
    fn new(page: Page<'_, S>, arena: Arc<Arena<S>>) -> Self {
        let page = ManuallyDrop::new(page);
        Self { arena, start: page.start(), order: page.order() }
    }

    /// The first frame.
    #[must_use]
    pub fn pfn(&self) -> Pfn {
        Pfn::containing(self.start.addr().get() as u64)
    }

    /// The order it was allocated with.
    #[must_use]
    pub const fn order(&self) -> Order {
        self.order
    }

    /// The arena it is from.
    #[must_use]
    pub const fn arena(&self) -> &Arc<Arena<S>> {
        &self.arena
    }

    /// Gives the page up for its numbers and its arena: see [`Page::into_raw`].
    #[must_use = "the numbers are all that is left of the page"]
    pub fn into_raw(self) -> (Arc<Arena<S>>, Pfn, Order) {
        let page = ManuallyDrop::new(self);
        // SAFETY: the page is not used again, and not dropped.
        let arena = unsafe { ptr::read(&raw const page.arena) };
        (arena, page.pfn(), page.order)
    }
}

impl<S: Policy> Deref for OwnedPage<S> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: as for a `Page`, whose block this was; the arena lives as long as `self`.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.order.bytes()) }
    }
}

impl<S: Policy> DerefMut for OwnedPage<S> {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `&mut self` keeps readers of our own out.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.order.bytes()) }
    }
}

impl<S: Policy> AsRef<[u8]> for OwnedPage<S> {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl<S: Policy> AsMut<[u8]> for OwnedPage<S> {
    fn as_mut(&mut self) -> &mut [u8] {
        self
    }
}

impl<S: Policy> Drop for OwnedPage<S> {
    fn drop(&mut self) {
        // SAFETY: the block is ours since the page was made, and there are no references into it.
        let freed = unsafe { self.arena.free_raw(self.pfn(), self.order) };
        debug_assert!(freed.is_ok(), "a page is freed once: {freed:?}");
    }
}

impl<S: Policy> fmt::Debug for OwnedPage<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnedPage").field("pfn", &self.pfn()).field("order", &self.order).finish()
    }
}

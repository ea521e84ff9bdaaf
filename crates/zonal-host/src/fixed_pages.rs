//! Pages as registered buffers of an `io_uring`: the kernel looks their memory up once, and not
//! with each operation.
//!
//! Registering pins the memory, so it is done for pages that are in use, not for a whole arena: a
//! pinned frame that the arena gives back to the kernel would be another one when next used, and
//! the ring would go on reading and writing the old. An [`OwnedPage`] is neither given back nor
//! moved as long as it lives; and those in [`FixedPages`] live as long as that, since all that safe code
//! may change there is their bytes.
//!
//! ```
//! use io_uring::{IoUring, types};
//! use std::fs::File;
//! use std::os::fd::AsRawFd;
//! use std::sync::Arc;
//! use zonal::Request;
//! use zonal_host::Arena;
//! use zonal_host::fixed_pages::FixedPages;
//! let arena = Arc::new(Arena::builder().bytes(16 << 20).open()?);
//! let mut pages = FixedPages::new([arena.alloc_owned(&Request::frame())?]);
//! pages[0].fill(1);
//! // A kernel may have been told not to offer rings, or not to lock memory.
//! let Ok(mut ring) = IoUring::new(8) else { return Ok(()) };
//! // SAFETY: `ring` is dropped before `pages`; nothing refers to the page while it is read into.
//! if unsafe { pages.register(&ring.submitter()) }.is_err() {
//!     return Ok(());
//! }
//! let zeroes = File::open("/dev/zero")?;
//! let read = pages.read(0, types::Fd(zeroes.as_raw_fd())).ok_or("no such page")?;
//! // SAFETY: as above; the file is open until the end.
//! unsafe { ring.submission().push(&read.build()) }?;
//! ring.submit_and_wait(1)?;
//! assert_eq!(ring.completion().next().map(|done| done.result()), Some(4096));
//! assert!(pages[0].iter().all(|&byte| byte == 0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use crate::OwnedPage;
use io_uring::types::Fd;
use io_uring::{Submitter, opcode};
use std::fmt;
use std::io;
use std::ops::{Index, IndexMut};
use zonal::policy::Policy;
use zonal::preset::Zonal;

/// A page's number among those registered: its index.
pub type PageIndex = u16;

/// Pages to be registered with a ring together: see the [module](self).
///
/// An index gives the bytes of a page and not the page, which could be exchanged for another: its frame would
/// be free, and the ring would still write to it.
///
/// ```compile_fail
/// use zonal_host::OwnedPage;
/// use zonal_host::fixed_pages::FixedPages;
/// fn exchanged(pages: &mut FixedPages, other: OwnedPage) -> OwnedPage {
///     std::mem::replace(&mut pages[0], other)
/// }
/// ```
pub struct FixedPages<S: Policy = Zonal> {
    pages: Box<[OwnedPage<S>]>,
}

impl<S: Policy> FixedPages<S> {
    /// These, in this order. The kernel takes up to 16384.
    #[must_use]
    pub fn new(pages: impl IntoIterator<Item = OwnedPage<S>>) -> Self {
        Self { pages: pages.into_iter().collect() }
    }

    /// How many.
    #[must_use]
    pub fn len(&self) -> usize {
        self.pages.len()
    }

    /// Whether there are none, which the kernel refuses to register.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// A page, for its number and order. `None` if there is no such page.
    #[must_use]
    pub fn page(&self, index: PageIndex) -> Option<&OwnedPage<S>> {
        self.pages.get(usize::from(index))
    }

    /// Addresses and lengths as the kernel takes them, for callers that register buffers of other
    /// kinds together with these: see [`register`](Self::register) for what they promise then.
    #[must_use]
    pub fn iovecs(&self) -> Vec<libc::iovec> {
        let iovec = |page: &OwnedPage<S>| libc::iovec {
            iov_base: page.as_ptr().cast_mut().cast(),
            iov_len: page.len(),
        };
        self.pages.iter().map(iovec).collect()
    }

    /// Registers them with a ring that has no registered buffers. O(frames): each is
    /// brought into memory and pinned, which counts against `RLIMIT_MEMLOCK` for users other than
    /// root.
    ///
    /// # Errors
    /// What the kernel has against it: memory to be locked (`ENOMEM`), buffers that are registered
    /// already (`EBUSY`), no pages or too many (`EINVAL`).
    ///
    /// # Safety
    /// `self` must live until the ring's buffers are unregistered or the ring is gone, and while
    /// an operation on a page is under way nothing may refer to its bytes, nor, if it reads from
    /// one, write there.
    pub unsafe fn register(&self, submitter: &Submitter<'_>) -> io::Result<()> {
        // SAFETY: each names a page's memory, mapped as long as `self` lives, by contract longer
        // than the registration.
        unsafe { submitter.register_buffers(&self.iovecs()) }
    }

    /// An operation that fills a page from a file, from its beginning on; the builder sets where
    /// in the file. `None` if there is no such page.
    #[must_use]
    pub fn read(&mut self, index: PageIndex, fd: Fd) -> Option<opcode::ReadFixed> {
        let page = self.pages.get_mut(usize::from(index))?;
        let bytes: &mut [u8] = page;
        Some(opcode::ReadFixed::new(fd, bytes.as_mut_ptr(), bytes.len() as u32, index))
    }

    /// An operation that writes the first `bytes` of a page to a file; the builder sets where in
    /// the file. `None` if there is no such page, or it has fewer.
    #[must_use]
    pub fn write(&self, index: PageIndex, bytes: u32, fd: Fd) -> Option<opcode::WriteFixed> {
        let part = self.pages.get(usize::from(index))?.get(..bytes as usize)?;
        Some(opcode::WriteFixed::new(fd, part.as_ptr(), bytes, index))
    }

    /// The pages, to be used otherwise. Not while they are registered.
    #[must_use]
    pub fn into_pages(self) -> Vec<OwnedPage<S>> {
        self.pages.into_vec()
    }
}

impl<S: Policy> Index<PageIndex> for FixedPages<S> {
    type Output = [u8];

    /// The bytes of a page.
    ///
    /// # Panics
    /// If there is no such page.
    fn index(&self, index: PageIndex) -> &[u8] {
        &self.pages[usize::from(index)]
    }
}

impl<S: Policy> IndexMut<PageIndex> for FixedPages<S> {
    /// The bytes of a page, to write.
    ///
    /// # Panics
    /// If there is no such page.
    fn index_mut(&mut self, index: PageIndex) -> &mut [u8] {
        &mut self.pages[usize::from(index)]
    }
}

impl<S: Policy> fmt::Debug for FixedPages<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FixedPages").field("pages", &self.pages).finish()
    }
}

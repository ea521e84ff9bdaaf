//! Owned pages as buffers of completion-based I/O.

use crate::OwnedPage;
use compio_buf::{IoBuf, IoBufMut, SetLen};
use std::mem::MaybeUninit;
use std::slice;
use zonal::policy::Policy;

/// All bytes of a page count as initialised, as an array's do: a write sends the whole page unless
/// it is given a [`slice`](IoBuf::slice) of it.
///
/// ```
/// use compio_buf::{IoBuf, IoBufMut};
/// use std::sync::Arc;
/// use zonal::Request;
/// use zonal_host::Arena;
/// let arena = Arc::new(Arena::builder().bytes(16 << 20).open()?);
/// let mut page = arena.alloc_owned(&Request::frame().zero())?;
/// page.as_mut_slice()[..5].copy_from_slice(b"hello");
/// assert_eq!(page.slice(..5).as_init(), b"hello");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
impl<S: Policy + 'static> IoBuf for OwnedPage<S> {
    fn as_init(&self) -> &[u8] {
        self
    }
}

impl<S: Policy + 'static> SetLen for OwnedPage<S> {
    /// Nothing: the length is the page's.
    unsafe fn set_len(&mut self, len: usize) {
        debug_assert!(len <= self.len(), "{len} bytes of a page of {}", self.len());
    }
}

/// [`as_uninit`](IoBufMut::as_uninit) is safe to call, and its caller could write `MaybeUninit::uninit()` over what
/// [`as_init`](IoBuf::as_init) shows. The trait has that hole for all buffers whose bytes are initialised, arrays and
/// slices too; its users write initialised bytes only.
impl<S: Policy + 'static> IoBufMut for OwnedPage<S> {
    fn as_uninit(&mut self) -> &mut [MaybeUninit<u8>] {
        let bytes: &mut [u8] = self;
        // SAFETY: the same bytes for as long, with a type that allows more. That nothing uninitialised is written
        // to them is not ours to enforce: see above.
        unsafe { slice::from_raw_parts_mut(bytes.as_mut_ptr().cast(), bytes.len()) }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::Arena;
    use std::sync::Arc;
    use zonal::Request;

    /// As an operation of a ring uses it: by its address, while the buffer may be moved.
    #[test]
    fn a_page_stays_where_it_is_and_is_filled_through_its_address() {
        let arena = Arena::builder().bytes(4 << 20).cpus(1).owners(0).open().unwrap();
        let mut page = Arc::new(arena).alloc_owned(&Request::frame().zero()).unwrap();
        assert_eq!((page.buf_len(), page.buf_capacity()), (4096, 4096));
        let start = page.buf_mut_ptr();
        let mut moved = Box::new(page);
        // SAFETY: the buffer lives, and nothing else refers to it.
        unsafe { start.cast::<u8>().write(9) };
        // SAFETY: all bytes are initialised.
        unsafe { moved.set_len(1) };
        assert_eq!((moved.as_init()[0], moved.buf_len()), (9, 4096));
        assert_eq!(moved.buf_mut_ptr(), start);
        assert_eq!(IoBuf::slice(*moved, ..1).as_init(), [9]);
    }
}

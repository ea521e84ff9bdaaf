//! Tables of atomics on mapped memory: zero from the start, and only the pages that are used
//! take memory.
//!
//! ```
//! use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
//! use zonal_host::raw_table::RawTable;
//! let links = RawTable::<AtomicU64>::new(1 << 28)?; // for a TiB of frames
//! links[1 << 27].store(7, Relaxed);
//! assert_eq!(links[0].load(Relaxed), 0);
//! # Ok::<(), zonal_host::region::RegionError>(())
//! ```

use crate::errno::Errno;
use crate::region::{Region, RegionError};
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::slice;
use std::sync::atomic::{AtomicU8, AtomicU64};

mod sealed {
    /// # Safety
    /// Bytes that are all zero must be a value, whose alignment is at most a frame's.
    pub unsafe trait Zero {}
    // SAFETY: the same representation as u8, for which zero is a value.
    unsafe impl Zero for super::AtomicU8 {}
    // SAFETY: the same representation and size as u64, for which zero is a value.
    unsafe impl Zero for super::AtomicU64 {}
}

/// What a [`RawTable`] may consist of: [`AtomicU8`], [`AtomicU64`].
pub trait Element: sealed::Zero {}
impl Element for AtomicU8 {}
impl Element for AtomicU64 {}

/// A table that derefs to a slice. It may be empty.
pub struct RawTable<T: Element> {
    /// `None` for an empty table.
    region: Option<Region>,
    len: usize,
    marker: PhantomData<[T]>,
}

impl<T: Element> RawTable<T> {
    /// A table of `len` zeroes. O(1).
    ///
    /// # Errors
    /// [`RegionError::NoAddressSpace`], [`RegionError::NoMemory`].
    pub fn new(len: u64) -> Result<Self, RegionError> {
        let too_large = RegionError::NoAddressSpace { bytes: usize::MAX, errno: Errno::NO_MEMORY };
        let len = usize::try_from(len).map_err(|_| too_large)?;
        let bytes = len.checked_mul(size_of::<T>()).ok_or(too_large)?;
        let region = if bytes == 0 { None } else { Some(Region::zeroed(bytes)?) };
        Ok(Self { region, len, marker: PhantomData })
    }

    /// The whole table.
    #[must_use]
    pub fn as_slice(&self) -> &[T] {
        let Some(region) = &self.region else { return &[] };
        // SAFETY: the region is committed in full, and has at least `len` times the size of a
        // `T`, at most isize::MAX bytes, at an address aligned to more than a frame. Its fresh
        // zero bytes are values of `T` (`Zero`), and later ones were written through a `&T`:
        // no other code has the address. It lives as long as `self`.
        unsafe { slice::from_raw_parts(region.base().cast::<T>().as_ptr(), self.len) }
    }

    /// Bytes of the table that are in memory now.
    ///
    /// # Errors
    /// [`RegionError::Os`] if the kernel does not say.
    pub fn resident(&self) -> Result<usize, RegionError> {
        self.region.as_ref().map_or(Ok(0), |region| region.resident(0..region.len()))
    }
}

impl<T: Element> Deref for RawTable<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        self.as_slice()
    }
}

impl<T: Element> fmt::Debug for RawTable<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawTable").field("len", &self.len).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn only_touched_pages_take_memory() {
        let table = RawTable::<AtomicU64>::new(1 << 24).unwrap();
        assert_eq!((table.len(), table.resident()), (1 << 24, Ok(0)));
        for at in [0, 1 << 23, (1 << 24) - 1] {
            assert_eq!(table[at].load(Relaxed), 0);
            table[at].store(at as u64 + 1, Relaxed);
        }
        assert_eq!(table[1 << 23].load(Relaxed), (1 << 23) + 1);
        assert_eq!(table.resident(), Ok(3 * 4096));
    }

    #[test]
    fn sizes() {
        let empty = RawTable::<AtomicU8>::new(0).unwrap();
        assert!(empty.is_empty() && empty.resident() == Ok(0));
        assert_eq!(RawTable::<AtomicU8>::new(5).unwrap().len(), 5);
        let error = RawTable::<AtomicU64>::new(u64::MAX).unwrap_err();
        assert!(matches!(error, RegionError::NoAddressSpace { .. }));
    }
}

//! Where the pages of a file are when they are not in memory.
//!
//! ```
//! use zonal_cache::store::{Store, StoreError};
//! /// A store that has only zeroes, and keeps nothing.
//! struct Zero(u64);
//! impl Store for Zero {
//!     fn len(&self) -> Result<u64, StoreError> { Ok(self.0) }
//!     fn read(&self, offset: u64, pages: &mut [&mut [u8]]) -> Result<u64, StoreError> {
//!         pages.iter_mut().for_each(|page| page.fill(0));
//!         Ok(self.0.saturating_sub(offset).min(pages.iter().map(|page| page.len() as u64).sum()))
//!     }
//!     fn write(&self, _: u64, _: &[&[u8]]) -> Result<(), StoreError> { Err(StoreError::NO_SPACE) }
//!     fn set_len(&self, _: u64) -> Result<(), StoreError> { Err(StoreError::NO_SPACE) }
//!     fn flush(&self) -> Result<(), StoreError> { Ok(()) }
//! }
//! assert_eq!(Zero(5000).read(4096, &mut [&mut [1; 4096]]), Ok(904));
//! ```

use crate::frames::PAGE;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

/// Why a store did not do what it was asked to.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct StoreError(u32);

impl StoreError {
    /// An input or output error (`EIO`).
    pub const IO: Self = Self(5);
    /// No space left (`ENOSPC`).
    pub const NO_SPACE: Self = Self(28);
    /// The store has become shorter than the file, by other means than the file's `truncate`.
    pub const SHRUNK: Self = Self(1 << 31);

    /// The error with this number, as the system counts them.
    #[must_use]
    pub const fn from_code(code: u32) -> Self {
        Self(code)
    }

    /// The number.
    #[must_use]
    pub const fn code(self) -> u32 {
        self.0
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::SHRUNK {
            return f.write_str("the store has become shorter than the file");
        }
        #[cfg(feature = "std")]
        if let Ok(code) = self.0.try_into() {
            return std::io::Error::from_raw_os_error(code).fmt(f);
        }
        write!(f, "the store's error {}", self.0)
    }
}

impl fmt::Debug for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoreError({self})")
    }
}

impl core::error::Error for StoreError {}

#[cfg(feature = "std")]
impl From<std::io::Error> for StoreError {
    /// What the system said; [`IO`](Self::IO) for an error that is not the system's.
    fn from(error: std::io::Error) -> Self {
        let code = error.raw_os_error().and_then(|code| u32::try_from(code).ok());
        code.filter(|&code| code > 0).map_or(Self::IO, Self)
    }
}

/// Pages that wait for their bytes. Dropped, they leave the cache again.
#[must_use = "the pages are not read"]
pub struct LaterRead(pub(crate) Box<dyn Later>);

/// The cache's side of it.
pub(crate) trait Later: Send {
    fn offset(&self) -> u64;
    /// Each a page: no other thread looks at them, and they stay where they are, until this is ended or
    /// dropped.
    fn pieces(&mut self) -> Vec<&mut [u8]>;
    fn end(self: Box<Self>, got: Result<u64, StoreError>);
    /// Has a thread of the host read it.
    fn queue(self: Box<Self>);
}

impl LaterRead {
    /// Where in the store they are.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.0.offset()
    }

    /// Where the bytes go.
    pub fn pieces(&mut self) -> Vec<&mut [u8]> {
        self.0.pieces()
    }

    /// This many bytes are there; if they are too few, or after an error, the store is asked once more, by
    /// [`Store::read`], on a thread of the host or of one who needs the bytes. It does not wait for that where the host
    /// has threads.
    pub fn end(self, got: Result<u64, StoreError>) {
        self.0.end(got);
    }
}

impl fmt::Debug for LaterRead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LaterRead").field("offset", &self.offset()).finish_non_exhaustive()
    }
}

/// What pages are written for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Purpose {
    /// For room, or because they are old: no thread waits for these pages.
    Behind,
    /// A sync waits for them.
    Sync,
}

impl Purpose {
    /// A write for it.
    ///
    /// # Errors
    /// As [`Store::write`].
    pub fn write<T: Store + ?Sized>(
        self,
        store: &T,
        offset: u64,
        pages: &[&[u8]],
    ) -> Result<(), StoreError> {
        match self {
            Self::Behind => store.write(offset, pages),
            Self::Sync => store.write_sync(offset, pages),
        }
    }
}

/// A write of several that a store is [given together](Store::write_each).
#[derive(Clone, Copy, Debug)]
pub struct Write<'a> {
    /// Where in the store they are.
    pub offset: u64,
    /// Pages one after the other, as for [`Store::write`].
    pub pages: &'a [&'a [u8]],
}

/// A file of bytes, or a device. Called on any thread, several at once; never with a lock of the
/// cache held. What is read and written at once does not overlap, but where a file was cut or zeroed: reads that were on
/// their way then may be still when the store is given new bytes for there, and may have any of both.
///
/// Offsets are multiples of 4096, and so are all lengths but the last of a
/// [`write`](Self::write), which may end where the file does. Pieces are aligned to 4096.
pub trait Store: Send + Sync + 'static {
    /// Bytes in the store.
    ///
    /// # Errors
    /// [`StoreError`] if that is not known.
    fn len(&self) -> Result<u64, StoreError>;

    /// Whether there is none.
    ///
    /// # Errors
    /// As [`len`](Self::len).
    fn is_empty(&self) -> Result<bool, StoreError> {
        self.len().map(|len| len == 0)
    }

    /// Whether it is as long as it is: neither a write beyond its end nor [`set_len`](Self::set_len) makes it otherwise, as of a
    /// block device. Asked once, when the store is opened. Of a file on such a store the cache refuses what would change its
    /// length, and asks the store for none of it. The default says no.
    fn has_fixed_len(&self) -> bool {
        false
    }

    /// Fills `pages` with what follows `offset`; how many bytes there are. Fewer than asked for where the store ends, or
    /// where it stopped for reasons of its own: then it is asked again, from the page on in which it stopped, and if it
    /// gets no further it has [ended](StoreError::SHRUNK). What follows them in `pages` may be anything.
    ///
    /// # Errors
    /// [`StoreError`]; `pages` may have been written to.
    fn read(&self, offset: u64, pages: &mut [&mut [u8]]) -> Result<u64, StoreError>;

    /// Takes a read that is to begin by the next [`begin_reads`](Self::begin_reads);
    /// [`LaterRead::end`] says on any thread how it went. Reads that begin together may be joined.
    ///
    /// # Errors
    /// The read, if it cannot be taken now: another thread is then asked to [`read`](Self::read). The default
    /// never can.
    fn read_later(&self, later: LaterRead) -> Result<(), LaterRead> {
        Err(later)
    }

    /// Begins the reads that were taken.
    fn begin_reads(&self) {}

    /// Writes `pages` one after the other from `offset` on. What is beyond the end makes the store
    /// longer, and what is between has zeroes.
    ///
    /// # Errors
    /// [`StoreError`]; any part of the range may have been written.
    fn write(&self, offset: u64, pages: &[&[u8]]) -> Result<(), StoreError>;

    /// The same for a [`sync`](crate::File::sync), which waits for it: a store that has several requests
    /// may have it go first. The default does not tell them apart.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    fn write_sync(&self, offset: u64, pages: &[&[u8]]) -> Result<(), StoreError> {
        self.write(offset, pages)
    }

    /// How many writes the store has on their way at once if it is given them [together](Self::write_each). The default is
    /// one: then pages that are not neighbours are given to it one after the other.
    fn writes_at_once(&self) -> usize {
        1
    }

    /// Does writes of which none overlaps another, in any order, and comes back when all have ended. `ended` is called for each,
    /// with its place in `writes` and how it went; one of which nothing is said has failed. The default does one after
    /// the other.
    ///
    /// ```
    /// use zonal_cache::MemoryStore;
    /// use zonal_cache::store::{Purpose, Store, Write};
    /// let store = MemoryStore::from(vec![0; 3 * 4096]);
    /// let page: [&[u8]; 1] = [&[1; 4096]];
    /// let writes = [0, 8192].map(|offset| Write { offset, pages: &page });
    /// store.write_each(&writes, Purpose::Sync, &mut |_, result| assert_eq!(result, Ok(())));
    /// assert_eq!([0, 4096, 8192].map(|at| store.bytes()[at]), [1, 0, 1]);
    /// ```
    fn write_each(
        &self,
        writes: &[Write<'_>],
        purpose: Purpose,
        ended: &mut dyn FnMut(usize, Result<(), StoreError>),
    ) {
        for (number, write) in writes.iter().enumerate() {
            ended(number, purpose.write(self, write.offset, write.pages));
        }
    }

    /// Makes the store `len` bytes long; new ones are zero.
    ///
    /// # Errors
    /// [`StoreError`]; then it is as long as before.
    fn set_len(&self, len: u64) -> Result<(), StoreError>;

    /// Makes `len` bytes from `offset` on zero, both multiples of 4096, within the store; it may have a hole
    /// there. The default writes zeroes.
    ///
    /// # Errors
    /// [`StoreError`]; any part of the range may be zero.
    fn zero(&self, offset: u64, len: u64) -> Result<(), StoreError> {
        write_zeroes(self, offset, len)
    }

    /// After this all that was written before lasts, whatever happens, and so do the length and zeroes.
    ///
    /// # Errors
    /// [`StoreError`]; then any of what was written since the last flush may be lost.
    fn flush(&self) -> Result<(), StoreError>;
}

#[repr(align(4096))]
struct Zeroes([u8; PAGE]);
static ZEROES: Zeroes = Zeroes([0; PAGE]);
/// Pages of zeroes that are written at once.
const AT_ONCE: u64 = 64;

pub(crate) fn write_zeroes<T: Store + ?Sized>(
    store: &T,
    offset: u64,
    len: u64,
) -> Result<(), StoreError> {
    let pages = len / PAGE as u64;
    let all = [&ZEROES.0[..]; AT_ONCE as usize];
    (0..pages).step_by(AT_ONCE as usize).try_for_each(|page| {
        let count = (pages - page).min(AT_ONCE) as usize;
        store.write(offset + page * PAGE as u64, &all[..count])
    })
}

/// Makes the first `len` bytes zero, which the store has; they end where the file does, or with a page.
pub(crate) fn zero_first<T: Store + ?Sized>(store: &T, len: u64) -> Result<(), StoreError> {
    let rest = len % PAGE as u64;
    let whole = len - rest;
    if whole > 0 {
        store.zero(0, whole)?;
    }
    if rest > 0 { store.write(whole, &[&ZEROES.0[..rest as usize]]) } else { Ok(()) }
}

macro_rules! forward {
    ($($pointer:ident)+) => {$(
        impl<T: Store + ?Sized> Store for $pointer<T> {
            fn len(&self) -> Result<u64, StoreError> {
                (**self).len()
            }
            fn has_fixed_len(&self) -> bool {
                (**self).has_fixed_len()
            }
            fn read(&self, offset: u64, pages: &mut [&mut [u8]]) -> Result<u64, StoreError> {
                (**self).read(offset, pages)
            }
            fn read_later(&self, later: LaterRead) -> Result<(), LaterRead> {
                (**self).read_later(later)
            }
            fn begin_reads(&self) {
                (**self).begin_reads();
            }
            fn write(&self, offset: u64, pages: &[&[u8]]) -> Result<(), StoreError> {
                (**self).write(offset, pages)
            }
            fn write_sync(&self, offset: u64, pages: &[&[u8]]) -> Result<(), StoreError> {
                (**self).write_sync(offset, pages)
            }
            fn writes_at_once(&self) -> usize {
                (**self).writes_at_once()
            }
            fn write_each(
                &self,
                writes: &[Write<'_>],
                purpose: Purpose,
                ended: &mut dyn FnMut(usize, Result<(), StoreError>),
            ) {
                (**self).write_each(writes, purpose, ended);
            }
            fn set_len(&self, len: u64) -> Result<(), StoreError> {
                (**self).set_len(len)
            }
            fn zero(&self, offset: u64, len: u64) -> Result<(), StoreError> {
                (**self).zero(offset, len)
            }
            fn flush(&self) -> Result<(), StoreError> {
                (**self).flush()
            }
        }
    )+};
}

forward!(Arc Box);

//! A store on a real file or a block device.
//!
//! ```
//! use zonal_cache::FileStore;
//! use zonal_cache::store::Store;
//! let directory = tempfile::tempdir()?;
//! let store = FileStore::create(&directory.path().join("file"))?;
//! store.write(0, &[b"bytes"])?;
//! store.flush()?;
//! assert_eq!(store.len()?, 5);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use crate::frames::PAGE;
use crate::ring::Ring;
use crate::store::{LaterRead, Purpose, Store, StoreError, Write, write_zeroes};
use rustix::fs::{AtFlags, FallocateFlags, OFlags, StatxFlags, fallocate, statx};
use rustix::io::{Errno, preadv, pwritev};
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, IoSliceMut, Seek, SeekFrom};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

/// A file. Whole pages go past the kernel's cache (`O_DIRECT`) where the file system lets them, so that
/// they are in memory once; the end of a file that is no whole page goes through it.
///
/// It is opened to be read and written; one that may not be written can still be read.
///
/// A block device has a [fixed length](Store::has_fixed_len).
#[derive(Debug)]
pub struct FileStore {
    file: File,
    /// The same past the kernel's cache.
    direct: Option<File>,
    /// On which reads are on their way.
    ring: Option<Arc<Ring>>,
}

impl FileStore {
    /// A file that is there.
    ///
    /// # Errors
    /// What the system said.
    pub fn open(path: &Path) -> io::Result<Self> {
        let (file, mut options) = open(path)?;
        Ok(Self { file, direct: direct(path, &mut options).ok(), ring: None })
    }

    /// A file that is there, whose whole pages go past the kernel's cache: through it they would be in memory twice, the
    /// second time below no bound of this program's.
    ///
    /// ```
    /// use zonal_cache::{FileStore, NotDirect};
    /// let error = FileStore::open_direct("/proc/uptime".as_ref()).unwrap_err();
    /// assert!(matches!(error, NotDirect::Refused(_)));
    /// ```
    ///
    /// # Errors
    /// [`NotDirect::Open`] if there is no such file, and otherwise why pages would go through the kernel's cache.
    pub fn open_direct(path: &Path) -> Result<Self, NotDirect> {
        let (file, mut options) = open(path).map_err(NotDirect::Open)?;
        Ok(Self { file, direct: Some(direct(path, &mut options)?), ring: None })
    }

    /// A file that is there, not to be written, even if it may be: to write to it is an error.
    ///
    /// # Errors
    /// What the system said.
    pub fn open_read_only(path: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true);
        Ok(Self { file: options.open(path)?, direct: direct(path, &mut options).ok(), ring: None })
    }

    /// A file that is made, or made empty; a block device stays as it is.
    ///
    /// # Errors
    /// What the system said.
    pub fn create(path: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        let file = options.clone().create(true).truncate(true).open(path)?;
        Ok(Self { file, direct: direct(path, &mut options).ok(), ring: None })
    }

    /// The same through the kernel's cache.
    #[must_use]
    pub fn buffered(mut self) -> Self {
        self.direct = None;
        self
    }

    /// The same with what is read ahead on a ring, if there is one, and with dirty pages that are no neighbours: several
    /// requests are on their way at once without a thread for each.
    #[must_use]
    pub fn with_ring(mut self, ring: Option<Arc<Ring>>) -> Self {
        self.ring = ring;
        self
    }

    /// The file, for what this store does not do with it.
    #[must_use]
    pub const fn file(&self) -> &File {
        &self.file
    }

    /// Whether whole pages go past the kernel's cache.
    #[must_use]
    pub const fn is_direct(&self) -> bool {
        self.direct.is_some()
    }
}

/// Whether a file that cannot be opened to be written may be one to be read.
const fn is_for_readers(error: io::ErrorKind) -> bool {
    use io::ErrorKind::{ExecutableFileBusy, PermissionDenied, ReadOnlyFilesystem};
    matches!(error, PermissionDenied | ReadOnlyFilesystem | ExecutableFileBusy)
}

/// The file, and how it could be opened.
fn open(path: &Path) -> io::Result<(File, OpenOptions)> {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    let file = match options.open(path) {
        Err(error) if is_for_readers(error.kind()) => {
            options.write(false);
            options.open(path)?
        }
        opened => opened?,
    };
    Ok((file, options))
}

/// Why whole pages of a file cannot go past the kernel's cache.
#[derive(Debug)]
#[non_exhaustive]
pub enum NotDirect {
    /// The file cannot be opened at all.
    Open(io::Error),
    /// The file system refuses it (`O_DIRECT`).
    Refused(io::Error),
    /// Requests would have to be aligned to more than a page.
    Unaligned {
        /// To how many bytes, in the file or in memory.
        needed: u32,
    },
}

impl fmt::Display for NotDirect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open(error) => error.fmt(f),
            Self::Refused(error) => write!(f, "O_DIRECT is refused: {error}"),
            Self::Unaligned { needed } => {
                write!(f, "O_DIRECT needs an alignment of {needed} bytes: pages have {PAGE}")
            }
        }
    }
}

impl std::error::Error for NotDirect {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Open(error) | Self::Refused(error) => Some(error),
            Self::Unaligned { .. } => None,
        }
    }
}

/// The file once more, if it can be read so.
fn direct(path: &Path, options: &mut OpenOptions) -> Result<File, NotDirect> {
    #[repr(align(4096))]
    struct Aligned([u8; PAGE]);
    let file = options.custom_flags(OFlags::DIRECT.bits() as i32).open(path);
    let file = file.map_err(NotDirect::Refused)?;
    check_alignment(alignment(&file))?;
    // Some file systems say no only then.
    file.read_at(&mut Aligned([0; PAGE]).0, 0).map_err(NotDirect::Refused)?;
    Ok(file)
}

/// To how many bytes direct requests have to be aligned, in the file and in memory; 0 where the file system takes none,
/// and reads and writes through the kernel's cache without a word. `None` if the kernel does not say: it does since Linux
/// 6.1, of some file systems.
fn alignment(file: &File) -> Option<u32> {
    let said = statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).ok()?;
    let says = StatxFlags::from_bits_retain(said.stx_mask).contains(StatxFlags::DIOALIGN);
    says.then_some(said.stx_dio_offset_align.max(said.stx_dio_mem_align))
}

fn check_alignment(needed: Option<u32>) -> Result<(), NotDirect> {
    match needed {
        Some(0) => Err(NotDirect::Refused(Errno::OPNOTSUPP.into())),
        Some(needed) if needed as usize > PAGE => Err(NotDirect::Unaligned { needed }),
        _ => Ok(()),
    }
}

fn error(error: Errno) -> StoreError {
    io::Error::from(error).into()
}

impl Store for FileStore {
    fn len(&self) -> Result<u64, StoreError> {
        // Of a device, too.
        Ok((&self.file).seek(SeekFrom::End(0))?)
    }

    fn has_fixed_len(&self) -> bool {
        self.file.metadata().is_ok_and(|is| is.file_type().is_block_device())
    }

    fn read(&self, offset: u64, pages: &mut [&mut [u8]]) -> Result<u64, StoreError> {
        let file = self.direct.as_ref().unwrap_or(&self.file);
        let want: usize = pages.iter().map(|page| page.len()).sum();
        let mut done = 0;
        while done < want {
            // A piece that was filled in part only is read again from its begin: direct reads are
            // of whole pages.
            let whole = done / PAGE;
            let mut pieces: Vec<IoSliceMut<'_>> =
                pages[whole..].iter_mut().map(|page| IoSliceMut::new(page)).collect();
            match preadv(file, &mut pieces, offset + (whole * PAGE) as u64) {
                Ok(0) => break,
                Ok(got) if whole * PAGE + got <= done => break,
                Ok(got) => done = whole * PAGE + got,
                Err(Errno::INTR) => {}
                Err(other) => return Err(error(other)),
            }
        }
        Ok(done as u64)
    }

    fn read_later(&self, later: LaterRead) -> Result<(), LaterRead> {
        match &self.ring {
            Some(ring) => ring.read(self.direct.as_ref().unwrap_or(&self.file).as_fd(), later),
            None => Err(later),
        }
    }

    fn begin_reads(&self) {
        if let Some(ring) = &self.ring {
            ring.begin();
        }
    }

    fn write(&self, offset: u64, pages: &[&[u8]]) -> Result<(), StoreError> {
        let ragged = usize::from(pages.last().is_some_and(|page| page.len() % PAGE != 0));
        let (whole, tail) = pages.split_at(pages.len() - ragged);
        let file = self.direct.as_ref().unwrap_or(&self.file);
        let mut done = 0;
        while done < whole.len() * PAGE {
            let first = done / PAGE;
            let pieces: Vec<IoSlice<'_>> =
                whole[first..].iter().map(|page| IoSlice::new(page)).collect();
            match pwritev(file, &pieces, offset + (first * PAGE) as u64) {
                Ok(0) => return Err(StoreError::IO),
                // Less than a page: the rest by itself, or the system says why not.
                Ok(put) if put < PAGE => {
                    self.file.write_all_at(whole[first], offset + (first * PAGE) as u64)?;
                    done = (first + 1) * PAGE;
                }
                Ok(put) => done = first * PAGE + put / PAGE * PAGE,
                Err(Errno::INTR) => {}
                Err(other) => return Err(error(other)),
            }
        }
        for page in tail {
            self.file.write_all_at(page, offset + done as u64)?;
        }
        Ok(())
    }

    fn writes_at_once(&self) -> usize {
        self.ring.as_ref().map_or(1, |ring| ring.writes_at_once())
    }

    fn write_each(
        &self,
        writes: &[Write<'_>],
        _: Purpose,
        ended: &mut dyn FnMut(usize, Result<(), StoreError>),
    ) {
        let whole = |write: &Write<'_>| write.pages.iter().all(|page| page.len() % PAGE == 0);
        let by_itself = |number: usize| self.write(writes[number].offset, writes[number].pages);
        let on_ring = |write: &Write<'_>| writes.len() > 1 && whole(write);
        if let Some(ring) = &self.ring {
            let file = self.direct.as_ref().unwrap_or(&self.file).as_fd();
            ring.write(file, writes, on_ring, &mut |number, said| {
                let len: usize = writes[number].pages.iter().map(|page| page.len()).sum();
                match said {
                    Some(Ok(put)) if put == len as u64 => ended(number, Ok(())),
                    // It was not taken, or in part, or the kernel says why not: by a call it says what counts.
                    _ => ended(number, by_itself(number)),
                }
            });
        }
        for (number, write) in writes.iter().enumerate() {
            if self.ring.is_none() || !on_ring(write) {
                ended(number, by_itself(number));
            }
        }
    }

    fn set_len(&self, len: u64) -> Result<(), StoreError> {
        Ok(self.file.set_len(len)?)
    }

    fn zero(&self, offset: u64, len: u64) -> Result<(), StoreError> {
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match fallocate(&self.file, hole, offset, len) {
            Err(Errno::OPNOTSUPP | Errno::NODEV | Errno::NOSYS) => write_zeroes(self, offset, len),
            done => done.map_err(error),
        }
    }

    fn flush(&self) -> Result<(), StoreError> {
        Ok(self.file.sync_data()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alignment_beyond_a_page_is_refused() {
        assert!([None, Some(512), Some(4096)].map(check_alignment).iter().all(Result::is_ok));
        let error = check_alignment(Some(16_384)).unwrap_err();
        assert!(matches!(error, NotDirect::Unaligned { needed: 16_384 }));
        let message = "O_DIRECT needs an alignment of 16384 bytes: pages have 4096";
        assert_eq!(error.to_string(), message);
        let error = check_alignment(Some(0)).unwrap_err();
        assert!(matches!(&error, NotDirect::Refused(_)), "{error}");
    }
}

//! The bytes of files: read and written through the cache.

use std::cell::RefCell;

use fuser::{Errno, FileHandle, WriteFlags};
use rustix::fs::{FallocateFlags, OFlags, SeekFrom, fallocate, seek};
use zonal_cache::evict::Evict;
use zonal_cache::{CacheError, CacheFile};

use crate::contents::NO_DATA;
use crate::shared::{Answer, Handle, Opened, Shared, os, told};

thread_local! {
    /// What a read of several pages is put together in; as large as the largest that was asked for.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Pages written by `write` are to be in the store when it returns.
const SYNC: i32 = OFlags::DSYNC.union(OFlags::SYNC).bits() as i32;

fn file<E: Evict>(handle: &Handle<E>) -> Answer<&Opened<E>> {
    if let Handle::File(opened) = handle { Ok(opened) } else { Err(NO_DATA) }
}

/// Reads up to the end of the file, or fails: the kernel takes what is shorter for that end if it is for its own
/// cache. After an error it reads the pages one by one.
fn read_all<E: Evict>(
    file: &CacheFile<E>,
    into: &mut [u8],
    offset: u64,
) -> Result<usize, CacheError> {
    let mut done = 0;
    while done < into.len() {
        match file.read_at(&mut into[done..], offset + done as u64)? {
            0 => break,
            got => done += got,
        }
    }
    Ok(done)
}

impl<E: Evict> Shared<E> {
    /// Shows `give` the bytes of a range, as far as there are any. With `fill_cache` they are for the kernel's cache:
    /// then an error behind the first is one of the whole range.
    pub(crate) fn read(
        &self,
        handle: FileHandle,
        (offset, len): (u64, usize),
        fill_cache: bool,
        give: impl FnOnce(Answer<&[u8]>),
    ) {
        let handle = match self.handle(handle) {
            Ok(handle) => handle,
            Err(error) => return give(Err(error)),
        };
        let opened = match &*handle {
            Handle::Text(text) => {
                let rest = text.as_bytes().get(offset as usize..).unwrap_or(&[]);
                return give(Ok(&rest[..rest.len().min(len)]));
            }
            Handle::Directory(_) => return give(Err(NO_DATA)),
            Handle::File(opened) => opened,
        };
        let got = BUFFER.with_borrow_mut(|buffer| {
            if buffer.len() < len {
                buffer.resize(len, 0);
            }
            let buffer = &mut buffer[..len];
            if fill_cache {
                read_all(&opened.file, buffer, offset)
            } else {
                opened.file.read_at(buffer, offset)
            }
        });
        // Before the kernel is answered: the release that may follow is to be the last user.
        drop(handle);
        BUFFER.with_borrow(|buffer| {
            give(got.map(|got| &buffer[..got]).map_err(|error| told(&error)));
        });
    }

    pub(crate) fn write(
        &self,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        flags: i32,
        how: WriteFlags,
    ) -> Answer<u32> {
        let handle = self.handle(handle)?;
        let Opened { node, content, file } = file(&handle)?;
        let mut done = file.write_at(data, offset).map_err(|error| told(&error))?;
        let mut rest = Ok(());
        // What comes from its own cache the kernel takes for written, whatever count it is told.
        while how.contains(WriteFlags::FUSE_WRITE_CACHE) && done < data.len() && rest.is_ok() {
            let more = file.write_at(&data[done..], offset + done as u64);
            rest = more.map(|more| done += more).map_err(|error| told(&error));
        }
        content.set_changed();
        if how.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID) {
            Self::clear_set_id(node)?;
        }
        rest?;
        if flags & SYNC != 0 {
            let end = offset + done as u64;
            file.sync_range(offset..end).map_err(|error| told(&error))?;
        }
        Ok(done as u32)
    }

    /// All that was written to the file lasts; with its other attributes unless `data_only`.
    pub(crate) fn sync(&self, handle: FileHandle, data_only: bool) -> Answer<()> {
        let handle = self.handle(handle)?;
        let Ok(Opened { content, file, .. }) = file(&handle) else { return Ok(()) };
        file.sync().map_err(|error| told(&error))?;
        content.settle()?;
        if data_only {
            return Ok(());
        }
        rustix::fs::fsync(content.store.file()).map_err(os)
    }

    /// Where data or a hole begins.
    pub(crate) fn seek(&self, handle: FileHandle, offset: i64, whence: i32) -> Answer<i64> {
        let handle = self.handle(handle)?;
        let opened = file(&handle)?;
        let offset = u64::try_from(offset).map_err(|_| Errno::ENXIO)?;
        // The file below knows of holes, once it knows of the data.
        opened.content.write_back()?;
        let to = match whence {
            3 => SeekFrom::Data(offset),
            4 => SeekFrom::Hole(offset),
            _ => return Err(Errno::EINVAL),
        };
        seek(opened.content.store.file(), to).map(|at| at as i64).map_err(os)
    }

    pub(crate) fn allocate(
        &self,
        handle: FileHandle,
        (offset, len): (u64, u64),
        mode: i32,
    ) -> Answer<()> {
        let handle = self.handle(handle)?;
        let Opened { content, file, .. } = file(&handle)?;
        let mode = FallocateFlags::from_bits_retain(mode as u32);
        let keeps = mode.contains(FallocateFlags::KEEP_SIZE);
        let end = offset.checked_add(len).filter(|&end| end <= i64::MAX as u64);
        let end = end.ok_or(Errno::EFBIG)?;
        let zeroes = mode.intersects(FallocateFlags::PUNCH_HOLE | FallocateFlags::ZERO_RANGE);
        let known =
            FallocateFlags::KEEP_SIZE | FallocateFlags::PUNCH_HOLE | FallocateFlags::ZERO_RANGE;
        if !known.contains(mode) {
            return Err(Errno::EOPNOTSUPP);
        }
        if zeroes {
            file.zero_range(offset..end.min(file.len()).max(offset))
                .map_err(|error| told(&error))?;
        }
        if !mode.contains(FallocateFlags::PUNCH_HOLE) {
            fallocate(content.store.file(), FallocateFlags::KEEP_SIZE, offset, len).map_err(os)?;
        }
        if !keeps && end > file.len() {
            file.truncate(end).map_err(|error| told(&error))?;
        }
        content.set_changed();
        Ok(())
    }
}

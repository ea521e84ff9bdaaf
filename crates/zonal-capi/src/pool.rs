//! User space: a pool of pages on memory of the operating system.

use crate::types::Settings;
use crate::{Code, Inner, number};
use core::ffi::{c_int, c_void};
use zonal::Pfn;
use zonal_host::{Arena, ArenaError};

/// The allocator: what a `zonal *` points at.
#[derive(Debug)]
pub struct Pool(Arena);

impl Pool {
    pub(crate) fn allocator(&self) -> &Inner<'_> {
        // SAFETY: of this arena no page is handed out but by the calls of C, whose callers promise to
        // free what is theirs; nothing is zeroed or moved but by the allocator. Nothing is released, and nothing
        // comes: a pool's map has no offline memory.
        unsafe { self.0.allocator() }
    }

    pub(crate) fn address(&self, pfn: Pfn) -> *mut c_void {
        self.0.address_of(pfn).map_or(core::ptr::null_mut(), |at| at.as_ptr().cast())
    }
}

/// In user space: opens a pool of pages and writes the pointer to it to `allocator`.
///
/// # Safety
/// `config` is null or has as many bytes as its `size` says; `allocator` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_open(config: *const Settings, allocator: *mut *mut Pool) -> c_int {
    // SAFETY: the caller's promise.
    let settings = unsafe { Settings::read(config) };
    number(settings.and_then(|settings| {
        if allocator.is_null() {
            return Err(Code::Null);
        }
        let pool = Box::new(Pool(open(&settings)?));
        // SAFETY: not null, so writable: the caller's promise.
        unsafe { allocator.write(Box::into_raw(pool)) };
        Ok(())
    }))
}

fn open(settings: &Settings) -> Result<Arena, Code> {
    let size = |bytes: u64| usize::try_from(bytes).map_err(|_| Code::Argument);
    let kernels = settings.movable_frames | settings.min_free_frames | settings.tables_below;
    if kernels != 0 || settings.pageblock_order != 0 || settings.bytes == 0 {
        return Err(Code::Argument);
    }
    // No owners: C has no handles of its own.
    let mut builder =
        Arena::builder().bytes(size(settings.bytes)?).reserve(size(settings.reserve)?);
    builder = builder.owners(0);
    if settings.cpus > 0 {
        builder = builder.cpus(settings.cpus);
    }
    builder.open().map_err(|error| match error {
        ArenaError::Plan(_) => Code::Plan,
        ArenaError::Build(_) => Code::Tables,
        _ => Code::Memory,
    })
}

/// Gives the pool's memory back. Null is nothing.
///
/// # Safety
/// `allocator` is null, or from [`zonal_open`] and not closed yet, and not used any more, nor any memory of it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_close(allocator: *mut Pool) {
    if !allocator.is_null() {
        // SAFETY: from `Box::into_raw`, once: the caller's promise.
        drop(unsafe { Box::from_raw(allocator) });
    }
}

//! Frames in a row, and memory that comes and goes.

use crate::types::AllocRequest;
use crate::{Code, Handle, inner, number};
use core::ffi::c_int;
use core::ops::Range;
use zonal::{Bounds, Pfn};

fn range(pfn: u64, frames: u64) -> Result<Range<Pfn>, Code> {
    let end = pfn.checked_add(frames).ok_or(Code::Argument)?;
    Ok(Pfn::new(pfn)..Pfn::new(end))
}

/// Allocates `frames` frames in a row; the request's order does not matter. The first is a multiple of `align` (0: any), the last
/// below `limit` (0: anywhere). Any part is freed by `zonal_free_pages`.
///
/// # Safety
/// As [`zonal_alloc`](crate::zonal_alloc).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_alloc_pages(
    allocator: *const Handle,
    request: *const AllocRequest,
    frames: u64,
    align: u64,
    limit: u64,
    pfn: *mut u64,
) -> c_int {
    // SAFETY: the caller's promise.
    let (zonal, request) = (unsafe { inner(allocator) }, unsafe { AllocRequest::read(request) });
    let bounds = Bounds::ANY.aligned(align.max(1));
    let bounds = if limit == 0 { bounds } else { bounds.below(Pfn::new(limit)) };
    number(zonal.and_then(|zonal| {
        let request = request?;
        if pfn.is_null() {
            return Err(Code::Null);
        }
        let start = zonal.alloc_pages(frames, &request, &bounds)?;
        // SAFETY: not null, so writable: the caller's promise.
        unsafe { pfn.write(start.get()) };
        Ok(())
    }))
}

/// Frees `frames` frames from `pfn` on, any part of what `zonal_alloc_pages` and `zonal_alloc_at` gave; all or none.
///
/// # Safety
/// As [`zonal_free`](crate::zonal_free), for each.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_free_pages(
    allocator: *const Handle,
    pfn: u64,
    frames: u64,
) -> c_int {
    // SAFETY: the caller's promise.
    let zonal = unsafe { inner(allocator) };
    number(zonal.and_then(|zonal| Ok(zonal.free_pages(Pfn::new(pfn), frames)?)))
}

/// Allocates exactly the frames from `pfn` on, if all are free.
///
/// # Safety
/// As [`zonal_alloc`](crate::zonal_alloc).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_alloc_at(allocator: *const Handle, pfn: u64, frames: u64) -> c_int {
    // SAFETY: the caller's promise.
    let zonal = unsafe { inner(allocator) };
    number(zonal.and_then(|zonal| {
        let _taken = zonal.alloc_at(range(pfn, frames)?)?.into_raw();
        Ok(())
    }))
}

/// Makes memory usable that has come: whole pageblocks that the map calls offline. Of other memory, as all of a pool in user
/// space is, the code is [`Argument`](Code::Argument).
///
/// # Safety
/// As [`zonal_alloc`](crate::zonal_alloc); and it is memory, and in use by no other code.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_online(allocator: *const Handle, pfn: u64, frames: u64) -> c_int {
    // SAFETY: the caller's promise.
    let zonal = unsafe { inner(allocator) };
    number(zonal.and_then(|zonal| Ok(zonal.online(range(pfn, frames)?).map(|_| ())?)))
}

/// Takes memory away again that came by [`zonal_online`]: whole pageblocks of which no frame is in use, or whose pages move. Of
/// other memory, as all of a pool in user space is, the code is [`Argument`](Code::Argument).
///
/// # Safety
/// As [`zonal_alloc`](crate::zonal_alloc).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_offline(allocator: *const Handle, pfn: u64, frames: u64) -> c_int {
    // SAFETY: the caller's promise.
    let zonal = unsafe { inner(allocator) };
    number(zonal.and_then(|zonal| Ok(zonal.offline(range(pfn, frames)?)?)))
}

/// In a kernel: makes frames the allocator's that were reserved, or lie in a hole of the map, and are in use no more. They lie between
/// a zone's first and last usable frame, or are to be reclaimed later by the map; others are [`Foreign`](Code::Foreign).
/// In user space a pool has no such memory: the code is [`Argument`](Code::Argument).
///
/// # Safety
/// As [`zonal_online`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_release(allocator: *const Handle, pfn: u64, frames: u64) -> c_int {
    // SAFETY: the caller's promise.
    let zonal = unsafe { inner(allocator) };
    number(zonal.and_then(|zonal| {
        // Beyond a pool's end is other memory of the program. The address of a kernel's frame 0 may be null.
        if cfg!(feature = "std") || pfn == 0 {
            return Err(Code::Argument);
        }
        Ok(zonal.release(range(pfn, frames)?).map(|_| ())?)
    }))
}

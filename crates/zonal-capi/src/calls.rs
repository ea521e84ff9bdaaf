//! Blocks: allocated, freed, singly and in bulk.

use crate::types::AllocRequest;
use crate::{Code, Handle, inner, number};
use core::ffi::{c_int, c_void};
use zonal::{Order, Pfn};

/// Allocates a block and writes the number of its first frame to `pfn`. A null `request` is one unmovable frame.
///
/// # Safety
/// `allocator` is from `zonal_open` or `zonal_boot` and not closed meanwhile; `request` is null or readable; `pfn` is null
/// or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_alloc(
    allocator: *const Handle,
    request: *const AllocRequest,
    pfn: *mut u64,
) -> c_int {
    // SAFETY: the caller's promise.
    let (zonal, request) = (unsafe { inner(allocator) }, unsafe { AllocRequest::read(request) });
    number(try_alloc(zonal, request, pfn))
}

#[inline]
fn try_alloc(
    zonal: Result<&crate::Inner<'_>, Code>,
    request: Result<zonal::Request, Code>,
    pfn: *mut u64,
) -> Result<(), Code> {
    let (zonal, request) = (zonal?, request?);
    if pfn.is_null() {
        return Err(Code::Null);
    }
    let found = zonal.alloc_raw(&request)?;
    // SAFETY: not null, so writable: the promise of `zonal_alloc`'s caller.
    unsafe { pfn.write(found.get()) };
    Ok(())
}

/// Frees the block of `order` that begins with frame `pfn`.
///
/// # Safety
/// As [`zonal_alloc`]; and the block is the caller's, and in use no more, if it is allocated with that order.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_free(allocator: *const Handle, pfn: u64, order: u32) -> c_int {
    // SAFETY: the caller's promise.
    let zonal = unsafe { inner(allocator) };
    let order = u8::try_from(order).ok().and_then(Order::new).ok_or(Code::Argument);
    number(zonal.and_then(|zonal| Ok(zonal.free_raw(Pfn::new(pfn), order?)?)))
}

/// Fills `pfns` with `count` blocks of the request's order; all or none.
///
/// # Safety
/// As [`zonal_alloc`]; `count` numbers can be written at `pfns`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_alloc_bulk(
    allocator: *const Handle,
    request: *const AllocRequest,
    pfns: *mut u64,
    count: usize,
) -> c_int {
    // SAFETY: the caller's promise.
    let (zonal, request) = (unsafe { inner(allocator) }, unsafe { AllocRequest::read(request) });
    if pfns.is_null() {
        return number(if count == 0 { Ok(()) } else { Err(Code::Null) });
    }
    // SAFETY: the caller's promise; a frame number is a number.
    let out = unsafe { core::slice::from_raw_parts_mut(pfns.cast::<Pfn>(), count) };
    number(zonal.and_then(|zonal| Ok(zonal.alloc_bulk(&request?, out)?)))
}

/// Frees `count` single frames. Those that may not be freed are left out; the code is that of the first. How many
/// were freed is written to `freed`, if that is not null.
///
/// # Safety
/// As [`zonal_free`], for each; `count` numbers can be read at `pfns`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_free_bulk(
    allocator: *const Handle,
    pfns: *const u64,
    count: usize,
    freed: *mut usize,
) -> c_int {
    // SAFETY: the caller's promise.
    let zonal = unsafe { inner(allocator) };
    let frames = match pfns.is_null() {
        true if count > 0 => return number(Err(Code::Null)),
        true => &[],
        // SAFETY: the caller's promise; a frame number is a number.
        false => unsafe { core::slice::from_raw_parts(pfns.cast::<Pfn>(), count) },
    };
    let done = zonal.map(|zonal| zonal.free_bulk(frames));
    if !freed.is_null() {
        let count = done.as_ref().map_or(0, |done| done.freed);
        // SAFETY: the caller's promise.
        unsafe { freed.write(count) };
    }
    number(done.and_then(|done| match done.first_refused {
        Some((_, error)) => Err(error.into()),
        None => Ok(()),
    }))
}

/// Gives what all CPUs cache back to the zones; returns the frames.
///
/// # Safety
/// As [`zonal_alloc`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_drain(allocator: *const Handle) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { inner(allocator) }.map_or(0, zonal::Allocator::drain_all)
}

/// Where a frame can be read and written by who holds it; null for one that is not the allocator's.
///
/// # Safety
/// As [`zonal_alloc`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_address(allocator: *const Handle, pfn: u64) -> *mut c_void {
    // SAFETY: the caller's promise.
    let handle = unsafe { allocator.as_ref() };
    handle.map_or(core::ptr::null_mut(), |handle| address(handle, Pfn::new(pfn)))
}

#[cfg(feature = "std")]
fn address(handle: &Handle, pfn: Pfn) -> *mut c_void {
    handle.address(pfn)
}

#[cfg(not(feature = "std"))]
fn address(handle: &Handle, pfn: Pfn) -> *mut c_void {
    let withheld = zonal::frame::FrameState::WITHHELD;
    match handle.is_online(pfn) && handle.frame_state(pfn) != Some(withheld) {
        true => crate::kernel::address(pfn),
        false => core::ptr::null_mut(),
    }
}

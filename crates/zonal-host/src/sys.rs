//! The system calls that may fail, behind one door, so that a test can have any of them refused.
//!
//! [`Kernel`] is a type, not a value: in the crate's own unit tests a shim that counts, notes and
//! refuses, everywhere else [`Linux`], whose functions are the calls and nothing else.

use crate::errno::Errno;
use std::ptr::NonNull;

#[cfg(all(test, not(loom)))]
pub(crate) mod shim;

#[cfg(not(all(test, not(loom))))]
pub(crate) type Kernel = Linux;
#[cfg(all(test, not(loom)))]
pub(crate) type Kernel = shim::Shim;

/// The calls, as the manual has them, with [`Errno`] for the error.
pub(crate) trait Calls {
    /// Anonymous private memory; `at` null: wherever there is room.
    ///
    /// # Safety
    /// With `MAP_FIXED` in `flags`, what is mapped at `at` must be the caller's to replace.
    unsafe fn mmap(at: *mut u8, bytes: usize, prot: i32, flags: i32) -> Result<NonNull<u8>, Errno>;

    /// # Safety
    /// The whole range must be mapped for the caller alone, and not be used any more.
    unsafe fn munmap(at: *mut u8, bytes: usize) -> Result<(), Errno>;

    /// # Safety
    /// The range must be mapped for the caller alone; what uses it must bear the protection.
    unsafe fn mprotect(at: *mut u8, bytes: usize, prot: i32) -> Result<(), Errno>;

    /// # Safety
    /// The range must be mapped for the caller alone; what uses it must bear the advice.
    unsafe fn madvise(at: *mut u8, bytes: usize, advice: i32) -> Result<(), Errno>;

    /// Whether each frame of a mapped range is in memory: the lowest bit of a byte of `map`,
    /// which has one for each frame.
    fn mincore(at: *mut u8, bytes: usize, map: &mut [u8]) -> Result<(), Errno>;

    /// Binds the memory of a mapped range that was not touched yet to the nodes in `mask`.
    fn mbind(at: *mut u8, bytes: usize, mode: i32, mask: &[u64]) -> Result<(), Errno>;

    /// `membarrier(2)` without flags; what it returns.
    fn membarrier(command: i32) -> Result<i32, Errno>;

    /// Reads the calling thread's affinity.
    fn get_affinity(set: &mut libc::cpu_set_t) -> Result<(), Errno>;

    /// Sets the calling thread's affinity.
    fn set_affinity(set: &libc::cpu_set_t) -> Result<(), Errno>;
}

/// The kernel itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Linux;

impl Calls for Linux {
    unsafe fn mmap(at: *mut u8, bytes: usize, prot: i32, flags: i32) -> Result<NonNull<u8>, Errno> {
        let flags = flags | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: anonymous memory at a place that is free, or the caller's by contract.
        let got = unsafe { libc::mmap(at.cast(), bytes, prot, flags, -1, 0) };
        if got == libc::MAP_FAILED {
            return Err(Errno::last());
        }
        NonNull::new(got.cast()).ok_or(Errno::NO_MEMORY)
    }

    unsafe fn munmap(at: *mut u8, bytes: usize) -> Result<(), Errno> {
        // SAFETY: the caller's, and not used, by contract.
        Errno::check(unsafe { libc::munmap(at.cast(), bytes) }.into())
    }

    unsafe fn mprotect(at: *mut u8, bytes: usize, prot: i32) -> Result<(), Errno> {
        // SAFETY: the caller's, to be protected so, by contract.
        Errno::check(unsafe { libc::mprotect(at.cast(), bytes, prot) }.into())
    }

    unsafe fn madvise(at: *mut u8, bytes: usize, advice: i32) -> Result<(), Errno> {
        // SAFETY: the caller's, to be treated so, by contract.
        Errno::check(unsafe { libc::madvise(at.cast(), bytes, advice) }.into())
    }

    fn mincore(at: *mut u8, bytes: usize, map: &mut [u8]) -> Result<(), Errno> {
        let bytes = bytes.min(map.len() * zonal::units::FRAME_SIZE);
        // SAFETY: `map` has a byte for each frame; a range that is not mapped is an error.
        Errno::check(unsafe { libc::mincore(at.cast(), bytes, map.as_mut_ptr()) }.into())
    }

    fn mbind(at: *mut u8, bytes: usize, mode: i32, mask: &[u64]) -> Result<(), Errno> {
        // The kernel reads one bit less than it is told.
        let bits = size_of_val(mask) * 8 + 1;
        let none = 0_usize;
        // SAFETY: the kernel reads `bits - 1` bits of `mask`, and changes where pages come from,
        // not what they hold; a range that is not mapped is an error.
        let done =
            unsafe { libc::syscall(libc::SYS_mbind, at, bytes, mode, mask.as_ptr(), bits, none) };
        Errno::check(done)
    }

    fn membarrier(command: i32) -> Result<i32, Errno> {
        // SAFETY: membarrier takes two integers (and ignores the third) and touches no memory of
        // the caller; an unknown command is an error return.
        let done = unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) };
        if done < 0 { Err(Errno::last()) } else { Ok(done as i32) }
    }

    fn get_affinity(set: &mut libc::cpu_set_t) -> Result<(), Errno> {
        // SAFETY: `set` is as large as is said, and written only during the call. 0 is this
        // thread.
        Errno::check(unsafe { libc::sched_getaffinity(0, size_of_val(set), set) }.into())
    }

    fn set_affinity(set: &libc::cpu_set_t) -> Result<(), Errno> {
        // SAFETY: `set` is as large as is said, and only read. 0 is this thread.
        Errno::check(unsafe { libc::sched_setaffinity(0, size_of_val(set), set) }.into())
    }
}

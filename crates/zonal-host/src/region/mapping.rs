//! A range of addresses that is mapped for one owner, and for that one alone.

use crate::errno::Errno;
use crate::sys::{Calls, Kernel};
use libc::{MAP_FIXED_NOREPLACE, PROT_NONE};
use std::ptr::{self, NonNull};
use zonal::Order;

/// What is mapped, without gaps: unmapped when dropped. `bytes` may be 0, then nothing is.
///
/// It grows after a mapping was made and shrinks before one goes, so whatever fails in between,
/// it names nothing that is not its own.
#[derive(Debug)]
pub(super) struct Mapping {
    pub(super) start: NonNull<u8>,
    pub(super) bytes: usize,
}

/// Where the base of a region is to be: whole largest blocks.
const ALIGN: usize = Order::MAX.bytes();

impl Mapping {
    /// At least `bytes` of address space, not accessible, from the first aligned address on; no
    /// more, unless the kernel refuses to unmap the ends. `bytes` and `ALIGN` are not more than
    /// `usize::MAX` in all.
    pub(super) fn aligned(bytes: usize, flags: i32) -> Result<Self, Errno> {
        let whole = bytes + ALIGN;
        // SAFETY: not a fixed address.
        let start = unsafe { Kernel::mmap(ptr::null_mut(), whole, PROT_NONE, flags) }?;
        let mut mapping = Self { start, bytes: whole };
        let head = mapping.offset();
        if head > 0 {
            // SAFETY: the mapping is ours and nothing uses it.
            if unsafe { Kernel::munmap(start.as_ptr(), head) }.is_ok() {
                mapping.bytes -= head;
                // SAFETY: `head` is below `whole`.
                mapping.start = unsafe { start.add(head) };
            }
        }
        // Should that fail, the end stays with the mapping.
        let _ = mapping.cut_to(mapping.offset() + bytes);
        Ok(mapping)
    }

    /// Bytes before the first aligned address.
    pub(super) fn offset(&self) -> usize {
        self.start.addr().get().next_multiple_of(ALIGN) - self.start.addr().get()
    }

    /// Unmaps all but the first `bytes`; nothing may use the rest.
    pub(super) fn cut_to(&mut self, bytes: usize) -> Result<(), Errno> {
        let rest = self.bytes.saturating_sub(bytes);
        if rest > 0 {
            let at = self.start.as_ptr().wrapping_add(bytes);
            // SAFETY: inside the mapping, which is ours; nothing uses it.
            unsafe { Kernel::munmap(at, rest) }?;
            self.bytes = bytes;
        }
        Ok(())
    }

    /// Maps `bytes` more behind the last, if the addresses are free; whether they were.
    pub(super) fn grow(&mut self, bytes: usize, prot: i32, flags: i32) -> Result<bool, Errno> {
        let at = self.start.as_ptr().wrapping_add(self.bytes);
        // SAFETY: replaces nothing.
        let got = match unsafe { Kernel::mmap(at, bytes, prot, flags | MAP_FIXED_NOREPLACE) } {
            Ok(got) => Self { start: got, bytes },
            Err(Errno::EXISTS) => return Ok(false),
            Err(errno) => return Err(errno),
        };
        if got.start.as_ptr() != at {
            // A kernel that does not know the flag, and has found another place.
            return Ok(false);
        }
        self.bytes += bytes;
        std::mem::forget(got);
        Ok(true)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if self.bytes == 0 {
            return;
        }
        let at = self.start.as_ptr();
        // SAFETY: the mapping is ours, and what uses its memory does so only while we live.
        if unsafe { Kernel::munmap(at, self.bytes) }.is_err() {
            // The addresses are lost, the memory need not be. What comes of it does not matter.
            // SAFETY: as above.
            let _ = unsafe { Kernel::madvise(at, self.bytes, libc::MADV_DONTNEED) };
        }
    }
}

//! Address space for the subjects, and how much memory the machine has.
//!
//! ```
//! let region = zonal_bench::memory::Region::reserve(1 << 30)?;
//! assert!(region.base().addr() % (4 << 20) == 0);
//! # Ok::<(), zonal_bench::subject::SubjectError>(())
//! ```

use core::ptr;
use std::path::Path;
use std::{fs, io};

use crate::subject::SubjectError;

mod group;

/// Alignment of a [`Region`]: an order-10 block, the largest Linux keeps.
const ALIGN: usize = 4 << 20;

/// Reserved address space: readable and writable, zero, and without memory behind a page until
/// that page is touched. Returned to the kernel on drop.
#[derive(Debug)]
pub struct Region {
    mapping: *mut u8,
    mapped: usize,
    base: *mut u8,
    bytes: usize,
}

// SAFETY: a region owns its mapping as a `Vec<u8>` owns its buffer, and has no thread affinity.
unsafe impl Send for Region {}
// SAFETY: a shared region only gives out its address; dereferencing is the user's business.
unsafe impl Sync for Region {}

impl Region {
    /// Reserves `bytes`, aligned to 4 MiB so that every order up to 10 can be naturally aligned.
    ///
    /// # Errors
    ///
    /// [`SubjectError::Reserve`] if the kernel refuses, or if `bytes` is zero or overflows.
    pub fn reserve(bytes: usize) -> Result<Self, SubjectError> {
        let Some(mapped) = bytes.checked_add(ALIGN) else {
            return Err(SubjectError::Reserve { bytes, source: io::ErrorKind::OutOfMemory.into() });
        };
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: an anonymous mapping at an address of the kernel's choice replaces nothing.
        let mapping = unsafe { libc::mmap(ptr::null_mut(), mapped, prot, flags, -1, 0) };
        if mapping == libc::MAP_FAILED {
            return Err(SubjectError::Reserve { bytes, source: io::Error::last_os_error() });
        }
        let mapping = mapping.cast::<u8>();
        mapping.expose_provenance();
        let base = mapping.wrapping_add(mapping.addr().next_multiple_of(ALIGN) - mapping.addr());
        Ok(Self { mapping, mapped, base, bytes })
    }

    /// First byte. Its provenance is exposed, for allocators that work with addresses.
    #[must_use]
    pub fn base(&self) -> *mut u8 {
        self.base
    }

    /// Bytes usable from [`base`](Self::base) on.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The frame with index `frame`; only an address, so any index is fine here.
    #[inline]
    #[must_use]
    pub fn frame(&self, frame: usize) -> *mut u8 {
        self.base.wrapping_add(frame * crate::subject::FRAME_BYTES)
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `reserve` with this address and length, nothing else
        // unmaps it, and the region's user gave it back by dropping it.
        unsafe { libc::munmap(self.mapping.cast(), self.mapped) };
    }
}

/// Memory of the machine, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct MachineMemory {
    /// All of it, or the lowest limit of the control group and those above it.
    pub total: u64,
    /// What can still be used without swapping, within the limits of the control group and those above it.
    pub available: u64,
}

impl MachineMemory {
    /// Reads `/proc/meminfo` and the limits of the control group and those above it, of version 1 or 2. Page
    /// cache that the group did not use lately counts as available.
    ///
    /// # Errors
    ///
    /// If `/proc/meminfo` cannot be read or lacks the two lines.
    pub fn read() -> io::Result<Self> {
        let text = fs::read_to_string("/proc/meminfo")?;
        let line = |name: &str| {
            meminfo(&text, name).ok_or_else(|| {
                io::Error::new(io::ErrorKind::InvalidData, format!("no {name} in /proc/meminfo"))
            })
        };
        let (total, available) = (line("MemTotal:")?, line("MemAvailable:")?);
        Ok(match group::room(Path::new("/")) {
            Some(room) => {
                Self { total: total.min(room.limit), available: available.min(room.left) }
            }
            None => Self { total, available },
        })
    }
}

/// The value, in bytes, of a `/proc/meminfo` line given in kB.
fn meminfo(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meminfo_lines_are_read_in_bytes() {
        let text = "MemTotal:       1024 kB\nMemAvailable:    512 kB\n";
        assert_eq!(meminfo(text, "MemTotal:"), Some(1 << 20));
        assert_eq!(meminfo(text, "MemAvailable:"), Some(512 << 10));
        assert_eq!(meminfo(text, "SwapTotal:"), None);
    }

    #[test]
    fn impossible_reservations_are_refused() {
        assert!(matches!(Region::reserve(usize::MAX), Err(SubjectError::Reserve { .. })));
        assert!(matches!(Region::reserve(1 << 60), Err(SubjectError::Reserve { .. })));
    }

    #[test]
    fn a_region_can_be_written_to_its_last_byte() {
        let region = Region::reserve(8 << 20).expect("8 MiB of address space");
        let last = region.base().wrapping_add(region.bytes() - 1);
        // SAFETY: `last` is inside the region, which is mapped writable.
        unsafe { last.write_volatile(7) };
        // SAFETY: as above.
        assert_eq!(unsafe { last.read_volatile() }, 7);
    }
}

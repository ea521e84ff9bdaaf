//! The memory map of UEFI, as it was when the boot services ended.
//!
//! Firmware says how long a descriptor is, and it may be longer than this version's: [`descriptors`] reads them at that
//! distance. What the boot services and the boot loader used (page tables, the stack, this map) is to be reclaimed
//! later; persistent memory, memory that is not accepted yet, and memory that cannot be cached are not memory for
//! the allocator.
//!
//! ```
//! use uefi_raw::table::boot::{MemoryAttribute, MemoryType};
//! use zonal::map::RegionKind;
//! use zonal_kernel::boot_map::{Entry, uefi::descriptors};
//! let mut bytes = [0; 48];
//! bytes[0] = 7; // conventional memory
//! bytes[8..16].copy_from_slice(&0x10_0000_u64.to_le_bytes());
//! bytes[24..32].copy_from_slice(&256_u64.to_le_bytes());
//! bytes[32] = 8; // may be cached
//! let all: Vec<_> = descriptors(&bytes, 48).collect();
//! assert_eq!((all.len(), all[0].ty), (1, MemoryType::CONVENTIONAL));
//! assert_eq!(all[0].att, MemoryAttribute::WRITE_BACK);
//! assert_eq!((all[0].region().kind, all[0].region().bytes), (RegionKind::Usable, 1 << 20));
//! ```

use super::Entry;
use uefi_raw::table::boot::{MemoryAttribute, MemoryDescriptor, MemoryType};
use zonal::map::{PhysAddr, Region, RegionKind};

/// Bytes of the fields that are known.
const KNOWN: usize = 40;

impl Entry for MemoryDescriptor {
    fn region(&self) -> Region {
        let cached = self.att.contains(MemoryAttribute::WRITE_BACK);
        let kind = match self.ty {
            _ if !cached => RegionKind::Reserved,
            MemoryType::CONVENTIONAL => RegionKind::Usable,
            MemoryType::LOADER_CODE
            | MemoryType::LOADER_DATA
            | MemoryType::BOOT_SERVICES_CODE
            | MemoryType::BOOT_SERVICES_DATA
            | MemoryType::ACPI_RECLAIM => RegionKind::ReclaimLater,
            _ => RegionKind::Reserved,
        };
        // A length that does not fit is refused with the region.
        let bytes = self.page_count.saturating_mul(4096);
        Region { kind, ..Region::usable(PhysAddr(self.phys_start), bytes) }
    }
}

/// The descriptors of a map, each `size` bytes after the one before, as the firmware says. What is left at the end
/// is no descriptor; none for a size below that of the known fields.
pub fn descriptors(map: &[u8], size: usize) -> impl Iterator<Item = MemoryDescriptor> + Clone + '_ {
    let whole = if size < KNOWN { &[] } else { map };
    whole.chunks_exact(size.max(KNOWN)).map(|at| MemoryDescriptor {
        ty: MemoryType(word(at, 0) as u32),
        padding: 0,
        phys_start: word(at, 8),
        virt_start: word(at, 16),
        page_count: word(at, 24),
        att: MemoryAttribute::from_bits_retain(word(at, 32)),
    })
}

/// The little-endian number at `at`.
fn word(bytes: &[u8], at: usize) -> u64 {
    bytes[at..at + 8].iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte))
}

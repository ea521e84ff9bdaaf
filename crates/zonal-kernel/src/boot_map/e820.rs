//! The memory map of a BIOS (its call E820), of PVH, and of all who pass these on.
//!
//! ```
//! use zonal::map::RegionKind;
//! use zonal_kernel::boot_map::{Entry as _, e820::{Entry, packed}};
//! // As the BIOS writes it: 20 bytes an entry.
//! let bytes = [&0_u64.to_le_bytes()[..], &0x9_fc00_u64.to_le_bytes(), &1_u32.to_le_bytes()].concat();
//! let entries: Vec<Entry> = packed(&bytes, 20).collect();
//! assert_eq!(entries, [Entry::usable(0, 0x9_fc00)]);
//! assert_eq!(entries[0].region().kind, RegionKind::Usable);
//! ```

use zonal::map::{PhysAddr, Region, RegionKind};

/// An entry, laid out as PVH does (24 bytes).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct Entry {
    /// Address of its first byte.
    pub start: u64,
    /// Its length in bytes.
    pub bytes: u64,
    /// What it is: see [`region`](super::Entry::region).
    pub kind: u32,
    /// Attributes of a BIOS that has them; 0 with PVH. Not looked at.
    pub attributes: u32,
}

impl Entry {
    /// Memory.
    #[must_use]
    pub const fn usable(start: u64, bytes: u64) -> Self {
        Self { start, bytes, kind: 1, attributes: 0 }
    }
}

impl super::Entry for Entry {
    /// Kind 1 is usable. Kind 3, ACPI's tables, is to be reclaimed later: when the kernel has read them.
    /// Everything else is reserved.
    fn region(&self) -> Region {
        let kind = match self.kind {
            1 => RegionKind::Usable,
            3 => RegionKind::ReclaimLater,
            _ => RegionKind::Reserved,
        };
        Region { kind, ..Region::usable(PhysAddr(self.start), self.bytes) }
    }
}

/// The entries in `bytes`, each `stride` bytes after the one before: 20 as a BIOS and a "zero page"
/// of Linux have it, 24 with attributes. What is left at the end is no entry. None for a stride below 20.
pub fn packed(bytes: &[u8], stride: usize) -> impl Iterator<Item = Entry> + Clone + '_ {
    let whole = if stride < 20 { &[] } else { bytes };
    whole.chunks_exact(stride.max(20)).map(|entry| Entry {
        start: word(entry, 0),
        bytes: word(entry, 8),
        kind: word(entry, 16) as u32,
        attributes: 0,
    })
}

/// The little-endian number at `at`: eight bytes, or as many as there are.
fn word(bytes: &[u8], at: usize) -> u64 {
    bytes[at..].iter().take(8).rev().fold(0, |word, &byte| word << 8 | u64::from(byte))
}

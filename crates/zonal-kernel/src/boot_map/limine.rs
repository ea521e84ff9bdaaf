//! The memory map of Limine, which has taken out the kernel's image and the modules itself. What the
//! boot loader uses (the page tables that the kernel is started with, this map) is to be reclaimed later.

use super::Entry;
use limine::memory_map::{self, EntryType};
use zonal::map::{PhysAddr, Region, RegionKind};

impl Entry for memory_map::Entry {
    fn region(&self) -> Region {
        let kind = match self.entry_type {
            EntryType::USABLE => RegionKind::Usable,
            EntryType::ACPI_RECLAIMABLE | EntryType::BOOTLOADER_RECLAIMABLE => {
                RegionKind::ReclaimLater
            }
            _ => RegionKind::Reserved,
        };
        Region { kind, ..Region::usable(PhysAddr(self.base), self.length) }
    }
}

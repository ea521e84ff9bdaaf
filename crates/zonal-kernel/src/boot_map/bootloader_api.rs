//! The memory map of the crate `bootloader`, which has taken out the kernel's image and all that the boot
//! loader made. That never comes back: the boot loader does not tell it from the image.

use super::Entry;
use bootloader_api::info::{MemoryRegion, MemoryRegionKind};
use zonal::map::{PhysAddr, Region, RegionKind};

/// The types of the firmware's own map, passed on, that are memory with ACPI's tables.
const BIOS_ACPI: u32 = 3;
const UEFI_ACPI: u32 = 9;

impl Entry for MemoryRegion {
    fn region(&self) -> Region {
        let kind = match self.kind {
            MemoryRegionKind::Usable => RegionKind::Usable,
            MemoryRegionKind::UnknownBios(BIOS_ACPI) | MemoryRegionKind::UnknownUefi(UEFI_ACPI) => {
                RegionKind::ReclaimLater
            }
            _ => RegionKind::Reserved,
        };
        let bytes = self.end.saturating_sub(self.start);
        Region { kind, ..Region::usable(PhysAddr(self.start), bytes) }
    }
}

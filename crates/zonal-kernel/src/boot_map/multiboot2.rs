//! The memory map of a boot loader that speaks Multiboot2. The boot loader's own information and the
//! modules lie in memory that it calls available: they have to be among what is in use.

use super::Entry;
use multiboot2::{MemoryArea, MemoryAreaType};
use zonal::map::{PhysAddr, Region, RegionKind};

impl Entry for MemoryArea {
    fn region(&self) -> Region {
        let kind = match self.typ() {
            MemoryAreaType::Available => RegionKind::Usable,
            MemoryAreaType::AcpiAvailable => RegionKind::ReclaimLater,
            _ => RegionKind::Reserved,
        };
        Region { kind, ..Region::usable(PhysAddr(self.start_address()), self.size()) }
    }
}

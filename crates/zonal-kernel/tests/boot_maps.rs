//! Maps as boot loaders gave them, recorded, through to what the allocator may use.

use zonal::NodeId;
use zonal::map::{MapError, PhysAddr, RangeKind, Region, RegionKind, SaneMap};
use zonal_kernel::Error;
use zonal_kernel::boot_map::e820::{Entry, packed};
use zonal_kernel::boot_map::{BootMap, NodeRange};

const MIB: u64 = 1 << 20;

/// Sorted ranges as kind, node, first frame, frames.
fn ranges(map: &SaneMap) -> Vec<(RangeKind, u8, u64, u64)> {
    map.ranges().iter().map(|r| (r.kind, r.node.0, r.start.get(), r.frames())).collect()
}

fn memory(map: &SaneMap) -> Vec<(RangeKind, u8, u64, u64)> {
    ranges(map).into_iter().filter(|(kind, ..)| kind.is_memory()).collect()
}

const fn entry(start: u64, bytes: u64, kind: u32) -> Entry {
    Entry { start, bytes, kind, attributes: 0 }
}

/// QEMU 7.2, q35, 6 GiB, by PVH.
const PVH: [Entry; 10] = [
    entry(0, 0x9_fc00, 1),
    entry(0x9_fc00, 0x400, 2),
    entry(0xf_0000, 0x1_0000, 2),
    entry(0x10_0000, 0x7fee_0000, 1),
    entry(0x7ffe_0000, 0x2_0000, 2),
    entry(0xb000_0000, 0x1000_0000, 2),
    entry(0xfed1_c000, 0x4000, 2),
    entry(0xfffc_0000, 0x4_0000, 2),
    entry(0x1_0000_0000, 0x1_0000_0000, 1),
    entry(0xfd_0000_0000, 0x3_0000_0000, 2),
];

#[test]
fn pvh() {
    use RangeKind::Usable;
    let image = MIB..3 * MIB;
    let map = BootMap::new(PVH, std::slice::from_ref(&image), []).unwrap().sanitise().unwrap();
    let wanted =
        [(Usable, 0, 1, 0x9e), (Usable, 0, 0x300, 0x7_fce0), (Usable, 0, 0x10_0000, 0x10_0000)];
    assert_eq!(memory(&map), wanted);
}

#[test]
fn nodes_cut_what_is_memory_and_no_more() {
    use RangeKind::Usable;
    // The second node begins inside a region; the third has nothing; what none has is node 0's.
    let nodes = [(0, 1 << 30, 0), (1 << 30, 5 << 30, 1), (5 << 30, 5 << 30, 2)]
        .map(|(start, end, node)| NodeRange { bytes: start..end, node: NodeId(node) });
    let map = BootMap::new(PVH, &[], nodes).unwrap().sanitise().unwrap();
    let wanted = [
        (Usable, 0, 1, 0x9e),
        (Usable, 0, 0x100, 0x3_ff00),
        (Usable, 1, 0x4_0000, 0x3_ffe0),
        (Usable, 1, 0x10_0000, 0x4_0000),
        (Usable, 0, 0x14_0000, 0xc_0000),
    ];
    assert_eq!(memory(&map), wanted);
}

/// A cloud machine with 24 GiB: its BIOS's entries, as 20 bytes each.
#[test]
fn bios() {
    let rows: [(u64, u64, u32); 5] = [
        (0, 0x9_fbff, 1),
        (0x9_fc00, 0xf_ffff, 2),
        (0x10_0000, 0xbfff_ffff, 1),
        (0xeec0_0000, 0xfebf_ffff, 2),
        (0x1_0000_0000, 0x6_3fff_ffff, 1),
    ];
    let mut bytes = Vec::new();
    for (first, last, kind) in rows {
        bytes.extend(first.to_le_bytes());
        bytes.extend((last - first + 1).to_le_bytes());
        bytes.extend(kind.to_le_bytes());
    }
    let map = BootMap::new(packed(&bytes, 20), &[], []).unwrap().sanitise().unwrap();
    assert_eq!(map.frames_usable(), 0x9e + 0xb_ff00 + 0x54_0000);
    assert_eq!(packed(&bytes[..bytes.len() - 1], 20).count(), 4, "a part is no entry");
    assert_eq!(packed(&bytes, 19).count(), 0);
    // With attributes, each entry has four bytes more.
    let long: Vec<u8> =
        bytes.chunks(20).flat_map(|entry| [entry, &1_u32.to_le_bytes()].concat()).collect();
    assert!(packed(&bytes, 20).eq(packed(&long, 24)));
}

#[test]
fn acpi_tables_are_reclaimed_later_and_unknown_kinds_are_reserved() {
    let entries = [entry(0, 64 * MIB, 1), entry(64 * MIB, MIB, 3), entry(65 * MIB, MIB, 12)];
    let map = BootMap::new(entries, &[], []).unwrap().sanitise().unwrap();
    let kinds: Vec<_> = ranges(&map).into_iter().map(|(kind, ..)| kind).collect();
    let wanted =
        [RangeKind::Reserved, RangeKind::Usable, RangeKind::ReclaimLater, RangeKind::Reserved];
    assert_eq!(kinds, wanted);
}

#[test]
fn what_comes_later_and_what_is_given_back_later() {
    let map = BootMap::new([entry(0, 64 * MIB, 1)], &[], []).unwrap();
    let map = map.offline(&(32 * MIB..128 * MIB), NodeId(0)).unwrap();
    let initrd = 8 * MIB..16 * MIB;
    let map = map.reclaim_later(&initrd, []).unwrap().sanitise().unwrap();
    let found: Vec<_> =
        memory(&map).into_iter().map(|(kind, _, start, n)| (kind, start, n)).collect();
    let wanted = [
        (RangeKind::Usable, 1, 0x7ff),
        (RangeKind::ReclaimLater, 0x800, 0x800),
        (RangeKind::Usable, 0x1000, 0x3000),
        (RangeKind::Offline, 0x4000, 0x4000),
    ];
    assert_eq!(found, wanted);
}

/// On a machine with nodes, a range that is given back later is cut like the memory that it is in.
#[test]
fn what_is_given_back_later_has_its_nodes() {
    let nodes = [0, 1].map(|n| {
        let start = u64::from(n) * 32 * MIB;
        NodeRange { bytes: start..start + 32 * MIB, node: NodeId(n) }
    });
    let map = BootMap::new([entry(0, 64 * MIB, 1)], &[], nodes.clone()).unwrap();
    let map = map.reclaim_later(&(31 * MIB..33 * MIB), nodes).unwrap().sanitise().unwrap();
    let later: Vec<_> =
        memory(&map).into_iter().filter(|(kind, ..)| *kind == RangeKind::ReclaimLater).collect();
    let kind = RangeKind::ReclaimLater;
    assert_eq!(later, [(kind, 0, 0x1f00, 0x100), (kind, 1, 0x2000, 0x100)]);
}

#[test]
fn impossible_maps_are_refused() {
    let beyond = Region::usable(PhysAddr(u64::MAX - 4095), 8192);
    let error = BootMap::new([beyond], &[], []).unwrap_err();
    assert!(matches!(error, Error::Map(MapError::AddressOverflow { .. })), "{error}");
    let nowhere = NodeRange { bytes: 0..MIB, node: NodeId(200) };
    let error = BootMap::new([entry(0, MIB, 1)], &[], [nowhere]).unwrap_err();
    assert!(matches!(error, Error::Map(MapError::NoSuchNode { .. })), "{error}");
    let nothing = BootMap::new(&[] as &[Entry], &[], []).unwrap();
    assert!(matches!(nothing.sanitise(), Err(Error::Map(MapError::NothingUsable { .. }))));
    let reserved = Region { kind: RegionKind::Reserved, ..Region::usable(PhysAddr(0), MIB) };
    assert!(BootMap::new([reserved], &[], []).unwrap().sanitise().is_err());
    assert!(BootMap::new(vec![entry(0, MIB, 1); 257], &[], []).is_err());
}

/// GRUB 2.06 in QEMU 7.2, q35, 4 GiB: the tag, byte by byte.
#[cfg(feature = "multiboot2")]
#[test]
fn multiboot2() {
    use multiboot2::{BootInformation, BootInformationHeader};
    #[repr(align(8))]
    struct Info([u8; 8 + 256 + 8]);
    let mut info = Info([0; 272]);
    info.0[..4].copy_from_slice(&272_u32.to_le_bytes());
    info.0[8..264].copy_from_slice(include_bytes!("data/multiboot2_map.bin"));
    info.0[268..].copy_from_slice(&8_u32.to_le_bytes());
    let at = info.0.as_ptr().cast::<BootInformationHeader>();
    // SAFETY: aligned, as long as it says, and with the tag that ends it.
    let info = unsafe { BootInformation::load(at) }.unwrap();
    let areas = info.memory_map_tag().unwrap().memory_areas();
    let image = MIB..2 * MIB;
    let map = BootMap::new(areas, std::slice::from_ref(&image), []).unwrap().sanitise().unwrap();
    let starts: Vec<_> = memory(&map).into_iter().map(|(_, _, start, n)| (start, n)).collect();
    assert_eq!(starts, [(1, 0x9e), (0x200, 0x7_fddf), (0x10_0000, 0x8_0000)]);
}

/// Limine in QEMU, 2 GiB: the entries below 2 GiB of a map that a user printed.
#[cfg(feature = "limine")]
#[test]
fn limine() {
    use limine::memory_map::{Entry, EntryType};
    const RECLAIM: EntryType = EntryType::BOOTLOADER_RECLAIMABLE;
    const IMAGE: EntryType = EntryType::EXECUTABLE_AND_MODULES;
    let rows = [
        (0x1000, RECLAIM, 0x5_1000),
        (0x5_2000, EntryType::USABLE, 0x4_d000),
        (0x9_fc00, EntryType::RESERVED, 0x400),
        (0xf_0000, EntryType::RESERVED, 0x1_0000),
        (0x10_0000, EntryType::USABLE, 0x7fe1_b000),
        (0x7ff1_b000, RECLAIM, 0x3000),
        (0x7ff1_e000, IMAGE, 0x8000),
        (0x7ff2_6000, RECLAIM, 0x1_a000),
        (0x7ff4_0000, EntryType::USABLE, 0x1000),
        (0x7ff4_1000, RECLAIM, 0x2000),
        (0x7ff4_3000, EntryType::USABLE, 0x1_b000),
        (0x7ff5_e000, RECLAIM, 0x8_1000),
        (0x7ffd_f000, EntryType::RESERVED, 0x2_1000),
    ];
    let entries = rows.map(|(base, entry_type, length)| Entry { base, length, entry_type });
    // As the boot loader's answer has them: references.
    let answer: Vec<&Entry> = entries.iter().collect();
    let map = BootMap::new(answer.iter(), &[], []).unwrap().sanitise().unwrap();
    assert_eq!(map.frames_usable(), 0x4d + 0x7_fe1b + 1 + 0x1b);
    let later = map.ranges().iter().filter(|r| r.kind == RangeKind::ReclaimLater);
    assert_eq!(later.map(zonal::map::Range::frames).sum::<u64>(), 0x51 + 3 + 0x1a + 2 + 0x81);
    assert_eq!(map.kind_at(zonal::Pfn::new(0x7_ff20)), Some(RangeKind::Reserved));
}

/// The crate `bootloader` begins with the BIOS's map (here the cloud machine's of above) and takes out what it
/// made: not recorded, but put together from that.
#[cfg(feature = "bootloader_api")]
#[test]
fn bootloader_api() {
    use bootloader_api::info::{MemoryRegion, MemoryRegionKind as Kind};
    let rows = [
        (0, 0x1000, Kind::Bootloader),
        (0x1000, 0x9_f000, Kind::Usable),
        (0x9_fc00, 0x10_0000, Kind::UnknownBios(2)),
        (0x10_0000, 0x80_0000, Kind::Bootloader),
        (0x80_0000, 0xbffe_0000, Kind::Usable),
        (0xbffe_0000, 0xc000_0000, Kind::UnknownBios(3)),
        (0xeec0_0000, 0xfec0_0000, Kind::UnknownUefi(11)),
        (0x1_0000_0000, 0x6_4000_0000, Kind::Usable),
    ];
    let regions = rows.map(|(start, end, kind)| MemoryRegion { start, end, kind });
    let map = BootMap::new(regions.iter(), &[], []).unwrap().sanitise().unwrap();
    assert_eq!(map.frames_usable(), 0x9e + 0xb_f7e0 + 0x54_0000);
    assert_eq!(map.kind_at(zonal::Pfn::new(0xb_ffe0)), Some(RangeKind::ReclaimLater));
    assert_eq!(map.kind_at(zonal::Pfn::new(0x400)), Some(RangeKind::Reserved));
}

/// UEFI in QEMU: the entries below 98 MiB of a map that a user's kernel printed, which the crate had booted.
#[cfg(feature = "bootloader_api")]
#[test]
fn bootloader_api_recorded() {
    use bootloader_api::info::{MemoryRegion, MemoryRegionKind as Kind};
    let rows = [
        (0, 0xa_0000, Kind::Usable),
        (0x10_0000, 0x15_6000, Kind::Bootloader),
        (0x15_6000, 0x80_0000, Kind::Usable),
        (0x80_0000, 0x80_8000, Kind::UnknownUefi(10)),
        (0x80_8000, 0x80_b000, Kind::Usable),
        (0x80_b000, 0x80_c000, Kind::UnknownUefi(10)),
        (0x80_c000, 0x81_0000, Kind::Usable),
        (0x81_0000, 0x90_0000, Kind::UnknownUefi(10)),
        (0x90_0000, 0x150_0000, Kind::Usable),
        (0x150_0000, 0x3f3_6000, Kind::Usable),
        (0x3f3_6000, 0x3f5_6000, Kind::Usable),
        (0x3f5_6000, 0x4e1_d000, Kind::Usable),
        (0x4e1_d000, 0x624_6000, Kind::Bootloader),
    ];
    let regions = rows.map(|(start, end, kind)| MemoryRegion { start, end, kind });
    let map = BootMap::new(regions.iter(), &[], []).unwrap().sanitise().unwrap();
    let usable = map.ranges().iter().filter(|range| range.kind == RangeKind::Usable);
    let usable: Vec<_> = usable.map(|range| (range.start.get(), range.frames())).collect();
    assert_eq!(
        usable,
        [(1, 0x9f), (0x156, 0x6aa), (0x808, 3), (0x80c, 4), (0x900, 0x451d)],
        "what continues is one, and the first frame is kept"
    );
    // Tables of the firmware that the system writes: not memory, whatever becomes of the boot loader's.
    assert_eq!(map.kind_at(zonal::Pfn::new(0x810)), Some(RangeKind::Reserved));
}

/// OVMF of edk2 2022.11 in QEMU 7.2, q35, 512 MiB: what `memmap` of its shell prints, in descriptors of 48 bytes. Of 141, many
/// continue each other.
#[cfg(feature = "uefi")]
#[test]
fn uefi_recorded() {
    use RangeKind::{ReclaimLater, Usable};
    use zonal_kernel::boot_map::uefi::descriptors;
    let bytes = include_bytes!("data/ovmf_map.bin");
    let map = BootMap::new(descriptors(bytes, 48), &[], []).unwrap();
    let map = map.sanitise().unwrap();
    let frames = |kind| memory(&map).iter().filter(|at| at.0 == kind).map(|at| at.3).sum::<u64>();
    // As the shell counts them: but frame 0, which is free there.
    assert_eq!(frames(Usable), 120_034 - 1);
    assert_eq!(frames(ReclaimLater), 215 + 975 + 8348 + 18);
    let kinds: Vec<_> = memory(&map).iter().map(|&(kind, _, start, n)| (kind, start, n)).collect();
    assert!(kinds.len() < 40, "{kinds:x?}");
    assert_eq!(kinds.last(), Some(&(ReclaimLater, 0x1_feca + 1, 0x85)));
}

/// More entries than a map has regions, which are few regions.
#[cfg(feature = "uefi")]
#[test]
fn entries_that_continue_each_other_are_one() {
    use RangeKind::{ReclaimLater, Usable};
    use zonal_kernel::boot_map::uefi::descriptors;
    let mut bytes = Vec::new();
    for page in 1..1000_u64 {
        bytes.extend((3 + page % 2).to_le_bytes());
        bytes.extend([page << 12, 0, 1, 0xf, 0].map(u64::to_le_bytes).concat());
    }
    let usable = Region::usable(PhysAddr(4 * MIB), MIB);
    let entries = descriptors(&bytes, 48).map(|at| zonal_kernel::boot_map::Entry::region(&at));
    // Nodes still part them.
    let nodes = [0..2 * MIB, 2 * MIB..8 * MIB].into_iter().zip([NodeId(0), NodeId(1)]);
    let nodes = nodes.map(|(bytes, node)| NodeRange { bytes, node });
    let map = BootMap::new(entries.chain([usable]), &[], nodes).unwrap().sanitise().unwrap();
    let wanted = [(ReclaimLater, 0, 1, 511), (ReclaimLater, 1, 512, 488), (Usable, 1, 1024, 256)];
    assert_eq!(memory(&map), wanted);
}

/// A map of UEFI, not recorded, but put together: descriptors of 48 bytes, as firmware writes them, of which 40 are
/// known.
#[cfg(feature = "uefi")]
#[test]
fn uefi() {
    use RangeKind::{ReclaimLater, Usable};
    use zonal_kernel::boot_map::uefi::descriptors;
    let rows: [(u32, u64, u64, u64); 11] = [
        (3, 0, 1, 0xf),
        (7, 0x1000, 0x9f, 0xf),
        (7, 0x10_0000, 0x700, 0xf),
        (10, 0x80_0000, 8, 0xf),
        (2, 0x80_8000, 0xf8, 0xf),
        (7, 0x90_0000, 0x1_0000, 0xf),
        (9, 0x1090_0000, 0x10, 0xf),
        (6, 0x1091_0000, 0x10, 0x8000_0000_0000_000f),
        // Memory that cannot be cached; persistent memory; a device.
        (7, 0x2000_0000, 0x100, 1),
        (14, 0x3000_0000, 0x100, 0xf),
        (11, 0xffc0_0000, 0x400, 0x8000_0000_0000_0001),
    ];
    let mut bytes = Vec::new();
    for (ty, start, pages, attributes) in rows {
        bytes.extend(u64::from(ty).to_le_bytes());
        bytes.extend([start, 0, pages, attributes, 0x5a5a].map(u64::to_le_bytes).concat());
    }
    let map = BootMap::new(descriptors(&bytes, 48), &[], []).unwrap().sanitise().unwrap();
    let found: Vec<_> =
        memory(&map).into_iter().map(|(kind, _, start, n)| (kind, start, n)).collect();
    let wanted = [
        (Usable, 1, 0x9f),
        (Usable, 0x100, 0x700),
        (ReclaimLater, 0x808, 0xf8),
        (Usable, 0x900, 0x1_0000),
        (ReclaimLater, 0x1_0900, 0x10),
    ];
    assert_eq!(found, wanted);
    assert_eq!(descriptors(&bytes[..bytes.len() - 1], 48).count(), 10, "a part is none");
    assert_eq!(descriptors(&bytes, 39).count(), 0);
    // More pages than there are addresses.
    bytes[120..128].copy_from_slice(&u64::MAX.to_le_bytes());
    assert!(BootMap::new(descriptors(&bytes, 48), &[], []).is_err());
}

//! ACPI's tables as QEMU 7.2 wrote them for four processors and two nodes of 256 MiB, recorded; and the same
//! tables damaged.

mod fake;

use fake::Fake;
use std::sync::Once;
use zonal::NodeId;
use zonal::map::PhysAddr;
use zonal_kernel::Machine;
use zonal_kernel::acpi::{AcpiError, Madt, Slit, Srat, find};

const APIC: &[u8] = include_bytes!("data/apic.bin");
const SRAT: &[u8] = include_bytes!("data/srat.bin");
const SLIT: &[u8] = include_bytes!("data/slit.bin");

#[test]
fn processors() {
    let madt = Madt::new(APIC).unwrap();
    assert_eq!(madt.local_apic(), 0xfee0_0000);
    assert!(madt.apic_ids().eq([0, 1, 2, 3]));
    let nodes = Srat::new(SRAT).unwrap();
    assert!(nodes.cpus().map(|cpu| (cpu.apic_id, cpu.node.0)).eq([(0, 0), (1, 0), (2, 1), (3, 1)]));
}

/// An address with 64 bits stands in an entry of its own; one that is too short for it says nothing.
#[test]
fn the_address_of_the_interrupt_controllers_is_overridden() {
    let head = [&b"APIC"[..], &56_u32.to_le_bytes(), &[0; 28], &0xfee0_0000_u32.to_le_bytes()];
    let head = [&head.concat()[..], &[0; 4]].concat();
    let wide = 0x12_3456_7000_u64.to_le_bytes();
    let with = |entry: &[u8]| {
        let bytes = sealed([&head[..], entry].concat());
        Madt::new(&bytes).unwrap().local_apic()
    };
    assert_eq!(with(&[&[5, 12, 0, 0][..], &wide].concat()), 0x12_3456_7000);
    assert_eq!(with(&[&[5, 8, 0, 0][..], &wide].concat()), 0xfee0_0000);
    assert_eq!(with(&[&[0, 12, 0, 0][..], &wide].concat()), 0xfee0_0000, "a processor");
}

#[test]
fn memory() {
    let srat = Srat::new(SRAT).unwrap();
    let found: Vec<_> = srat.memory().map(|range| (range.bytes, range.node.0)).collect();
    let wanted = [(0..0xa_0000, 0), (0x10_0000..0x1000_0000, 0), (0x1000_0000..0x2000_0000, 1)];
    assert_eq!(found, wanted);
    let distances = Slit::new(SLIT).unwrap().distances().unwrap();
    let rows = [(0, 0), (0, 1), (1, 0), (1, 1)].map(|(a, b)| distances.get(NodeId(a), NodeId(b)));
    assert_eq!(rows, [10, 21, 21, 10]);
}

#[test]
fn errors_say_what_is_wrong() {
    let wrong = AcpiError::Signature { found: *b"SLIT", wanted: *b"SRAT" };
    assert_eq!(Srat::new(SLIT).err(), Some(wrong));
    assert!(wrong.to_string().contains("`SLIT`, not `SRAT`"));
    let short = AcpiError::TooShort { bytes: SRAT.len() - 1 };
    assert_eq!(Srat::new(&SRAT[..SRAT.len() - 1]).err(), Some(short));
    let mut bytes = SRAT.to_vec();
    bytes[60] ^= 1;
    assert_eq!(Srat::new(&bytes).err(), Some(AcpiError::Checksum { table: *b"SRAT" }));
    // What follows the table is not its.
    bytes[60] ^= 1;
    bytes.extend([0xff; 64]);
    assert_eq!(Srat::new(&bytes).unwrap().memory().count(), 3);
}

/// Makes the bytes add up again.
fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes[9] = 0;
    bytes[9] = bytes.iter().fold(0, |sum: u8, &byte| sum.wrapping_sub(byte));
    bytes
}

/// A table of a revision with a processor and 1 GiB of memory on node 0x0101, and a processor with an x2APIC there.
fn srat_of(revision: u8) -> Vec<u8> {
    let mut bytes = [&b"SRAT"[..], &128_u32.to_le_bytes(), &[revision], &[0; 39]].concat();
    bytes.extend([0, 16, 1, 5, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    bytes.extend([1, 40, 1, 1, 0, 0, 0, 0]);
    bytes.extend([0_u64, 1 << 30, 1 << 32].map(u64::to_le_bytes).as_flattened());
    bytes.extend([0; 8]);
    bytes.extend([2, 24, 0, 0, 1, 1, 0, 0, 6, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    sealed(bytes)
}

#[test]
fn domains_of_the_first_revision_have_8_bits() {
    for (revision, node) in [(1, 1), (2, 255)] {
        let bytes = srat_of(revision);
        let srat = Srat::new(&bytes).unwrap();
        assert!(srat.memory().map(|range| range.node.0).eq([node]), "{revision}");
        let cpus: Vec<_> = srat.cpus().map(|cpu| (cpu.apic_id, cpu.node.0)).collect();
        assert_eq!(cpus, [(5, node), (6, 255)], "{revision}");
    }
}

/// Whatever a byte is, what is read ends, and stays inside the table.
#[test]
fn any_byte_may_be_wrong() {
    let mut refused = 0;
    for table in [APIC, SRAT, SLIT] {
        for at in 4..table.len() {
            for value in [0, 1, 2, 8, 40, 127, 255] {
                let mut bytes = table.to_vec();
                bytes[at] = value;
                let bytes = sealed(bytes);
                let most = bytes.len();
                let counts = [
                    Madt::new(&bytes).map(|madt| madt.apic_ids().count()),
                    Srat::new(&bytes).map(|srat| srat.memory().count() + srat.cpus().count()),
                    Slit::new(&bytes).map(|slit| usize::from(slit.distances().is_ok())),
                ];
                refused += usize::from(counts.iter().all(Result::is_err));
                assert!(counts.iter().flatten().all(|&count| count < most));
            }
        }
    }
    assert!(refused > 10, "a wrong length is seen: {refused}");
}

/// Without its length no entry says where the next one begins.
#[test]
fn the_walk_ends_at_an_entry_without_a_length() {
    let processor = |id| [0, 8, 0, id, 1, 0, 0, 0];
    for length in [0, 1] {
        let head = [&b"APIC"[..], &62_u32.to_le_bytes(), &[0; 36]].concat();
        let bytes = sealed([&head[..], &processor(3), &[7, length], &processor(4)].concat());
        assert!(Madt::new(&bytes).unwrap().apic_ids().eq([3]), "{length}");
    }
}

#[test]
fn slit_of_an_impossible_size_is_refused() {
    for nodes in [1_u64, 3, 17, 1 << 40] {
        let mut bytes = SLIT.to_vec();
        bytes[36..44].copy_from_slice(&nodes.to_le_bytes());
        let bytes = sealed(bytes);
        let distances = Slit::new(&bytes).unwrap().distances();
        assert_eq!(distances.is_ok(), nodes == 1, "{nodes}: {distances:?}");
    }
}

/// Puts bytes into the fake machine's memory.
fn put(at: u64, bytes: &[u8]) {
    let to = Fake::address(PhysAddr(at));
    // SAFETY: inside the memory, and no other test has that part.
    unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
}

/// The fake machine has memory from now on.
fn have_memory() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        fake::memory(1 << 20);
    });
}

/// A root table that names these.
fn root_table(name: [u8; 4], width: usize, tables: &[u64]) -> Vec<u8> {
    let mut bytes = vec![0; 36];
    bytes[..4].copy_from_slice(&name);
    bytes[4..8].copy_from_slice(&((36 + width * tables.len()) as u32).to_le_bytes());
    tables.iter().for_each(|at| bytes.extend(&at.to_le_bytes()[..width]));
    sealed(bytes)
}

/// A root pointer of a version.
fn pointer(version: u8, narrow: u32, wide: u64) -> Vec<u8> {
    let mut bytes = b"RSD PTR \0ZONAL ".to_vec();
    bytes.push(version);
    bytes.extend(narrow.to_le_bytes());
    bytes[8] = bytes.iter().fold(0, |sum: u8, &byte| sum.wrapping_sub(byte));
    bytes.extend(36_u32.to_le_bytes());
    bytes.extend(wide.to_le_bytes());
    bytes.extend([0; 4]);
    bytes
}

#[test]
fn tables_are_found_by_both_versions_of_the_root() {
    have_memory();
    put(0x1000, APIC);
    put(0x2003, SRAT);
    put(0x3000, &root_table(*b"RSDT", 4, &[0x1000, 0x2003]));
    put(0x4000, &root_table(*b"XSDT", 8, &[0x2003, 0x1000]));
    put(0x5000, &pointer(0, 0x3000, 0));
    put(0x6000, &pointer(2, 0, 0x4000));
    put(0x7000, &pointer(0, 0x4000, 0));
    // SAFETY: what the pointers lead to was put there, and is not written any more.
    let look = |root, name| unsafe { find::<Fake>(PhysAddr(root), name) };
    for root in [0x5000, 0x6000] {
        assert_eq!(look(root, *b"SRAT").unwrap(), SRAT);
        assert_eq!(look(root, *b"APIC").unwrap(), APIC);
        assert_eq!(look(root, *b"SLIT"), Err(AcpiError::NotFound { table: *b"SLIT" }));
    }
    assert_eq!(look(0x1000, *b"SRAT"), Err(AcpiError::NoRoot));
    let wrong = AcpiError::Signature { found: *b"XSDT", wanted: *b"RSDT" };
    assert_eq!(look(0x7000, *b"SRAT"), Err(wrong));
}

/// Address 0 leads to no table, although one is put there to be found.
#[test]
fn addresses_that_are_0_are_passed_over() {
    have_memory();
    put(0, SRAT);
    put(0x8000, SLIT);
    put(0x9000, &root_table(*b"RSDT", 4, &[0, 0x8000]));
    put(0xa000, &root_table(*b"XSDT", 8, &[0, 0x8000, 0]));
    put(0xb000, &pointer(0, 0x9000, 0));
    put(0xb100, &pointer(2, 0, 0xa000));
    put(0xb200, &pointer(2, 0x9000, 0));
    put(0xb300, &pointer(2, 0, 0));
    // SAFETY: what the pointers lead to was put there, and is not written any more.
    let look = |root, name| unsafe { find::<Fake>(PhysAddr(root), name) };
    for root in [0xb000, 0xb100, 0xb200] {
        assert_eq!(look(root, *b"SLIT"), Ok(SLIT));
        assert_eq!(look(root, *b"SRAT"), Err(AcpiError::NotFound { table: *b"SRAT" }));
    }
    assert_eq!(look(0xb300, *b"SLIT"), Err(AcpiError::NotFound { table: *b"RSDT" }));
}

#[test]
fn a_length_beyond_reason_is_not_followed() {
    have_memory();
    let long =
        |bytes: &[u8], length: u32| [&bytes[..4], &length.to_le_bytes(), &bytes[8..]].concat();
    put(0xc000, &long(SRAT, (1 << 20) + 1));
    put(0xd000, &root_table(*b"RSDT", 4, &[0xc000]));
    put(0xe000, &long(&root_table(*b"XSDT", 8, &[0xc000]), u32::MAX));
    put(0xf000, &pointer(0, 0xd000, 0));
    put(0xf100, &pointer(2, 0, 0xe000));
    for root in [0xf000, 0xf100] {
        // SAFETY: as far as it is read, what the pointers lead to was put there, and is not written any more.
        let found = unsafe { find::<Fake>(PhysAddr(root), *b"SRAT") };
        assert_eq!(found.map(<[u8]>::len), Err(AcpiError::TooShort { bytes: 1 << 20 }));
    }
}

//! Device trees as kernels get them, recorded, and some put together by hand, through to what the allocator may use.
#![cfg(feature = "fdt")]

use zonal::map::{MapError, RangeKind, SaneMap};
use zonal::zonelist::{DistanceError, DistanceMatrix};
use zonal::{NodeId, Pfn};
use zonal_kernel::Error;
use zonal_kernel::boot_map::BootMap;
use zonal_kernel::boot_map::device_tree::{DeviceTree, DeviceTreeError};

/// QEMU 7.2, riscv64, `virt`, 4 processors, 2 nodes of 256 MiB, an initial ramdisk: as `OpenSBI` 1.1 hands it to a
/// kernel, read from the memory of the emulated machine.
const RISCV: &[u8] = include_bytes!("data/qemu_riscv64_virt.dtb");
/// QEMU 7.2, aarch64, `virt,secure=on`, 4 processors, 2 nodes of 256 MiB: its `dumpdtb`, less the zero bytes at the
/// end.
const ARM: &[u8] = include_bytes!("data/qemu_aarch64_virt.dtb");

/// QEMU 7.2, aarch64, `virt`, 3 processors, 3 nodes of 256 MiB, with `-numa dist` for each pair, 0 to 1 another than 1 to
/// 0: its `dumpdtb`, less the zero bytes at the end.
const DISTANCES: &[u8] = include_bytes!("data/qemu_aarch64_distances.dtb");

/// What is memory: node, first frame, frames.
fn memory(map: &SaneMap) -> Vec<(u8, u64, u64)> {
    let memory = map.ranges().iter().filter(|range| range.kind.is_memory());
    memory.map(|r| (r.node.0, r.start.get(), r.frames())).collect()
}

fn map(tree: DeviceTree<'_>) -> Result<SaneMap, Error> {
    BootMap::new(tree.regions(), &[], tree.nodes())?.sanitise()
}

#[test]
fn riscv() {
    let tree = DeviceTree::new(RISCV).unwrap();
    assert_eq!((tree.bytes(), tree.initrd()), (RISCV.len(), Some(0x8820_0000..0x882f_4240)));
    let nodes: Vec<_> = tree.nodes().map(|range| (range.node, range.bytes)).collect();
    let wanted = [0x8000_0000..0x9000_0000, 0x9000_0000..0xa000_0000];
    assert!(nodes.into_iter().eq([NodeId(0), NodeId(1)].into_iter().zip(wanted)));
    // The firmware keeps the first 512 KiB for itself.
    assert_eq!(memory(&map(tree).unwrap()), [(0, 0x8_0080, 0xff80), (1, 0x9_0000, 0x1_0000)]);

    let in_use = [0x8020_0000..0x8040_0000, 0x9fe0_0000..0x9fe0_0000 + tree.bytes() as u64];
    let map = BootMap::new(tree.regions(), &in_use, tree.nodes()).unwrap();
    let map = map.reclaim_later(&tree.initrd().unwrap(), tree.nodes()).unwrap().sanitise().unwrap();
    let wanted = [
        (0, 0x8_0080, 0x180),
        (0, 0x8_0400, 0x7e00),
        (0, 0x8_8200, 0xf5),
        (0, 0x8_82f5, 0x7d0b),
        (1, 0x9_0000, 0xfe00),
        (1, 0x9_fe02, 0x1fe),
    ];
    assert_eq!(memory(&map), wanted);
    assert_eq!(map.kind_at(Pfn::new(0x8_82f4)), Some(RangeKind::ReclaimLater));
}

/// The nodes stand in the wrong order, and there is memory that is not for the kernel, but for the secure world.
#[test]
fn arm() {
    let tree = DeviceTree::new(ARM).unwrap();
    assert_eq!(tree.initrd(), None);
    let map = map(tree).unwrap();
    assert_eq!(memory(&map), [(0, 0x4_0000, 0x1_0000), (1, 0x5_0000, 0x1_0000)]);
    assert_eq!(map.kind_at(Pfn::new(0xe000)), None, "secure memory");
}

#[test]
fn distances() {
    let tree = DeviceTree::new(DISTANCES).unwrap();
    let nodes: Vec<u8> = tree.nodes().map(|range| range.node.0).collect();
    assert_eq!(nodes.len(), 3);
    let table = [10, 16, 32, 17, 10, 28, 32, 28, 10];
    assert_eq!(tree.distances(), DistanceMatrix::from_table(3, &table));
    // The nodes of a tree without such a map are as far apart as nodes are.
    let tree = DeviceTree::new(ARM).unwrap();
    assert_eq!(tree.distances(), Ok(DistanceMatrix::default()));
}

/// Of one direction the other follows, wherever it stands; what is said of it counts more.
#[test]
fn distances_by_hand() {
    let of = |cells: &[u32]| {
        let map = Blob::root()
            .open("distance-map")
            .property("compatible", b"other\0numa-distance-map-v1\0")
            .cells("distance-matrix", cells)
            .close();
        DeviceTree::new(&map.finish()).map(DeviceTree::distances)
    };
    let mut wanted = DistanceMatrix::default();
    for (from, to, distance) in [(0, 1, 30), (1, 0, 40), (2, 0, 50), (0, 2, 50)] {
        wanted.set(NodeId(from), NodeId(to), distance).unwrap();
    }
    assert_eq!(of(&[1, 0, 40, 0, 1, 30, 2, 0, 50, 0, 0, 10]), Ok(Ok(wanted)));
    assert_eq!(of(&[]), Ok(Ok(DistanceMatrix::default())));
    let node = NodeId(1);
    assert_eq!(of(&[1, 1, 11]), Ok(Err(DistanceError::NotLocal { node, distance: 11 })));
    let close = DistanceError::TooClose { from: node, to: NodeId(0), distance: 9 };
    assert_eq!(of(&[0, 1, 9]), Ok(Err(close)));
    for far in [16, 1000] {
        let node = NodeId(far.min(255) as u8);
        assert_eq!(of(&[far, 0, 20]), Ok(Err(DistanceError::NoSuchNode { node })));
    }
    let malformed = DeviceTreeError::Property { name: "distance-matrix" };
    assert_eq!(of(&[0, 1]), Err(malformed));
    assert_eq!(of(&[0, 1, 256]), Err(malformed));
}

/// An entry of the reservation block: put into the recorded tree by hand, which moves what follows.
#[test]
fn reservation_block() {
    let mut tree = RISCV.to_vec();
    let entry = [0x8100_0000_u64, 0x1000].map(u64::to_be_bytes).concat();
    tree.splice(40..40, entry);
    for at in [4, 8, 12] {
        let field = &mut tree[at..at + 4];
        let value = u32::from_be_bytes([field[0], field[1], field[2], field[3]]) + 16;
        field.copy_from_slice(&value.to_be_bytes());
    }
    // More bytes than the tree has are no matter, and its place need not be aligned.
    tree.insert(0, 0);
    tree.extend([0xff; 64]);
    let tree = DeviceTree::new(&tree[1..]).unwrap();
    let wanted = [(0, 0x8_0080, 0xf80), (0, 0x8_1001, 0xefff), (1, 0x9_0000, 0x1_0000)];
    assert_eq!(memory(&map(tree).unwrap()), wanted);
}

/// No part of a tree is one, and no damage of a byte is followed anywhere.
#[test]
fn damaged() {
    for length in 0..RISCV.len() {
        assert_eq!(DeviceTree::new(&RISCV[..length]).err(), Some(DeviceTreeError::NoTree));
    }
    let mut refused = 0;
    let mut bytes = RISCV.to_vec();
    for at in 0..RISCV.len() {
        bytes[at] ^= [0x01, 0x80, 0xff][at % 3];
        match DeviceTree::new(&bytes) {
            Ok(tree) => _ = (map(tree), tree.initrd(), tree.distances()),
            Err(_) => refused += 1,
        }
        bytes[at] = RISCV[at];
    }
    assert!((1500..6500).contains(&refused), "{refused} of {}", RISCV.len());
    let mut old = RISCV.to_vec();
    old[23] = 16;
    assert_eq!(DeviceTree::new(&old).err(), Some(DeviceTreeError::Version(16)));
}

/// A tree put together by hand.
#[derive(Default)]
struct Blob {
    nodes: Vec<u8>,
    names: Vec<u8>,
}

impl Blob {
    fn word(mut self, word: u32) -> Self {
        self.nodes.extend(word.to_be_bytes());
        self
    }

    fn bytes(mut self, bytes: &[u8]) -> Self {
        self.nodes.extend(bytes);
        self.nodes.resize(self.nodes.len().next_multiple_of(4), 0);
        self
    }

    fn open(self, name: &str) -> Self {
        self.word(1).bytes(format!("{name}\0").as_bytes())
    }

    fn close(self) -> Self {
        self.word(2)
    }

    fn property(mut self, name: &str, value: &[u8]) -> Self {
        let at = self.names.len() as u32;
        self.names.extend(format!("{name}\0").into_bytes());
        self.word(3).word(value.len() as u32).word(at).bytes(value)
    }

    fn cells(self, name: &str, cells: &[u32]) -> Self {
        let value: Vec<_> = cells.iter().flat_map(|cell| cell.to_be_bytes()).collect();
        self.property(name, &value)
    }

    fn memory(self, name: &str) -> Self {
        self.open(name).property("device_type", b"memory\0")
    }

    /// With one cell for an address and one for a size.
    fn root() -> Self {
        Self::default().open("").cells("#address-cells", &[1]).cells("#size-cells", &[1])
    }

    fn finish(self) -> Vec<u8> {
        let Self { nodes, names } = self.close().word(9);
        let strings = (56 + nodes.len()) as u32;
        let total = strings + names.len() as u32;
        let head = [0xd00d_feed, total, 56, strings, 40, 17, 16, 0];
        let lengths = [names.len() as u32, nodes.len() as u32, 0, 0, 0, 0];
        let head = head.into_iter().chain(lengths).flat_map(u32::to_be_bytes);
        head.chain(nodes).chain(names).collect()
    }
}

#[test]
fn what_counts_as_memory() {
    let tree = Blob::root()
        // Memory of a crash kernel: a part of it, in two pieces, of which one is empty.
        .memory("memory@0")
        .cells("reg", &[0, 64 << 20])
        .cells("linux,usable-memory", &[16 << 20, 8 << 20, 32 << 20, 0])
        .cells("numa-node-id", &[3])
        .close()
        // Of no node, and of two pieces.
        .memory("memory@8000000")
        .cells("reg", &[128 << 20, 1 << 20, 256 << 20, 1 << 20])
        .property("status", b"ok\0")
        .close()
        // No memory: its name alone says so, its status, the place in the tree.
        .open("memory@10000000")
        .cells("reg", &[512 << 20, 1 << 20])
        .close()
        .memory("memory@20000000")
        .cells("reg", &[768 << 20, 1 << 20])
        .property("status", b"fail\0")
        .close()
        .open("soc")
        .memory("memory@30000000")
        .cells("reg", &[0, 0, 1])
        .close()
        .close()
        // Reserved: with cells of its own, a child without a place, one that is not available.
        .open("reserved-memory")
        .cells("#address-cells", &[2])
        .cells("#size-cells", &[1])
        .open("cma")
        .cells("size", &[1 << 20])
        .property("reusable", b"")
        .close()
        .memory("memory@1000000")
        .cells("reg", &[0, 16 << 20, 4096])
        .close()
        .open("gone@1400000")
        .cells("reg", &[0, 20 << 20, 4096])
        .property("status", b"disabled\0")
        .close()
        .close();
    let tree = tree.finish();
    let tree = DeviceTree::new(&tree).unwrap();
    let wanted = [(3, 0x1001, 0x7ff), (0, 0x8000, 0x100), (0, 0x1_0000, 0x100)];
    assert_eq!(memory(&map(tree).unwrap()), wanted);
    assert_eq!(tree.nodes().count(), 1);
}

#[test]
fn malformed_properties_are_refused() {
    let refused = |name| Some(DeviceTreeError::Property { name });
    let memory = || Blob::root().memory("memory@0");
    let trees = [
        (memory().close(), Some(DeviceTreeError::NoPlace)),
        (memory().cells("reg", &[0]).close(), refused("reg")),
        (memory().cells("reg", &[0, 4096]).property("numa-node-id", &[0]).close(), {
            refused("numa-node-id")
        }),
        (memory().cells("linux,usable-memory", &[0]).close(), refused("linux,usable-memory")),
        (Blob::root().open("chosen").property("linux,initrd-end", &[0; 3]).close(), {
            refused("linux,initrd-end")
        }),
        (
            Blob::root().open("reserved-memory").open("a").property("reg", &[0; 5]).close().close(),
            { refused("reg") },
        ),
        // An end beyond all addresses, a size of three cells, no cells.
        (Blob::default().open("").memory("m").cells("reg", &[u32::MAX, u32::MAX, 2]).close(), {
            refused("reg")
        }),
        (
            Blob::default()
                .open("")
                .cells("#size-cells", &[3])
                .memory("m")
                .cells("reg", &[0; 5])
                .close(),
            refused("reg"),
        ),
        (
            Blob::default()
                .open("")
                .cells("#address-cells", &[0])
                .cells("#size-cells", &[0])
                .memory("m")
                .cells("reg", &[0])
                .close(),
            refused("reg"),
        ),
    ];
    for (at, (tree, wanted)) in trees.into_iter().enumerate() {
        assert_eq!(DeviceTree::new(&tree.finish()).err(), wanted, "tree {at}");
    }
}

#[test]
fn a_node_that_cannot_be_is_refused_with_the_map() {
    let tree = Blob::root().memory("memory@0").cells("reg", &[0, 1 << 20]);
    let tree = tree.cells("numa-node-id", &[1000]).close().finish();
    let error = map(DeviceTree::new(&tree).unwrap()).unwrap_err();
    assert!(matches!(error, Error::Map(MapError::NoSuchNode { .. })), "{error}");
}

//! The memory of a flattened device tree, as boot loaders of ARM and RISC-V pass it on.
//!
//! | of the tree | here |
//! |---|---|
//! | nodes below the root with `device_type = "memory"`, and a status that is none, `okay` or `ok` | usable |
//! | their `linux,usable-memory`, if they have one | instead of their `reg` |
//! | their `numa-node-id` | the node |
//! | children of `/reserved-memory` with a `reg`, also those that may be lent out (`reusable`) | reserved |
//! | the memory reservation block | reserved |
//! | a child of the root that is `compatible` with `numa-distance-map-v1` | [`DeviceTree::distances`] |
//! | `linux,initrd-start` and `-end` of `/chosen` | [`DeviceTree::initrd`] |
//!
//! Children of `/reserved-memory` with a `size` and no place get none: a kernel with drivers that need them allocates
//! them when it has booted. The tree itself lies in memory: it has to be among what is in use.
//!
//! ```
//! # fn kernel(tree_at: *const u8, image: core::ops::Range<u64>) -> Result<(), zonal_kernel::Error> {
//! use zonal_kernel::boot_map::{BootMap, device_tree::DeviceTree};
//! // SAFETY: the boot loader put it there, and no other code writes it.
//! let tree = unsafe { DeviceTree::at(tree_at)? };
//! let own = tree_at as u64..tree_at as u64 + tree.bytes() as u64;
//! let initrd = tree.initrd().unwrap_or(0..0);
//! let map = BootMap::new(tree.regions(), &[image, own, initrd], tree.nodes())?.sanitise()?;
//! # assert!(map.frames_usable() > 100_000);
//! # Ok(())
//! # }
//! # let tree = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/qemu_riscv64_virt.dtb"));
//! # kernel(tree.as_ptr(), 0x8020_0000..0x8040_0000).unwrap();
//! ```

use super::{NodeRange, length};
use core::fmt;
use core::ops::Range;
use core::slice;
use dtoolkit::error::FdtErrorKind;
use dtoolkit::fdt::{Fdt, FdtNode};
use dtoolkit::standard::NodeStandard;
use dtoolkit::{Node, Property, ToCellInt};
use zonal::NodeId;
use zonal::map::{PhysAddr, Region};
use zonal::zonelist::{DistanceError, DistanceMatrix};

/// Bytes of the head.
const HEAD: usize = 40;
/// What it begins with.
const MAGIC: [u8; 4] = [0xd0, 0x0d, 0xfe, 0xed];
/// Where memory may be, in the order of what counts.
const PLACES: [&str; 2] = ["linux,usable-memory", "reg"];
const NODE: &str = "numa-node-id";
const DISTANCE_MAP: &str = "numa-distance-map-v1";
const MATRIX: &str = "distance-matrix";
const INITRD: [&str; 2] = ["linux,initrd-start", "linux,initrd-end"];

/// What is wrong with a device tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum DeviceTreeError {
    /// There is none: another beginning, or fewer bytes than it says that it has.
    NoTree,
    /// It is of a version that this is not the reader for, which is 17.
    Version(u32),
    /// It is not formed as the specification says.
    Malformed,
    /// A property that says something of memory has another form.
    Property {
        /// Its name.
        name: &'static str,
    },
    /// Memory has no place: neither `reg` nor `linux,usable-memory`.
    NoPlace,
}

impl fmt::Display for DeviceTreeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoTree => f.write_str("there is no device tree"),
            Self::Version(version) => write!(f, "the device tree has version {version}, not 17"),
            Self::Malformed => f.write_str("the device tree is malformed"),
            Self::Property { name } => {
                write!(f, "a property `{name}` of memory in the device tree is malformed")
            }
            Self::NoPlace => f.write_str("memory in the device tree has no place"),
        }
    }
}

impl core::error::Error for DeviceTreeError {}

/// A device tree that was looked through once: see the [module](self). A slice, to be copied.
#[derive(Clone, Copy, Debug)]
pub struct DeviceTree<'a>(Fdt<'a>);

impl<'a> DeviceTree<'a> {
    /// The tree at the beginning of `bytes`. Looks at all of it, so that what is asked later cannot fail.
    ///
    /// # Errors
    /// [`DeviceTreeError`].
    pub fn new(bytes: &'a [u8]) -> Result<Self, DeviceTreeError> {
        let length = bytes.first_chunk().and_then(tree_length);
        let own = length.and_then(|length| bytes.get(..length)).ok_or(DeviceTreeError::NoTree)?;
        let tree = Fdt::new(own).map_err(|error| match error.kind {
            FdtErrorKind::UnsupportedVersion(version) => DeviceTreeError::Version(version),
            _ => DeviceTreeError::Malformed,
        })?;
        let tree = Self(tree);
        tree.check()?;
        Ok(tree)
    }

    /// The tree at an address, as a boot loader passes it on.
    ///
    /// # Safety
    /// 40 bytes can be read there, and if they are the head of a tree, as many as that says. They stay, and no code
    /// writes them, as long as the tree is used.
    ///
    /// # Errors
    /// [`DeviceTreeError`].
    pub unsafe fn at(address: *const u8) -> Result<Self, DeviceTreeError> {
        // SAFETY: the caller's promise for the head.
        let head = unsafe { address.cast::<[u8; HEAD]>().read() };
        let length = tree_length(&head).ok_or(DeviceTreeError::NoTree)?;
        // SAFETY: the caller's promise for as many bytes as the head says.
        Self::new(unsafe { slice::from_raw_parts(address, length) })
    }

    /// Its length in bytes.
    #[must_use]
    pub fn bytes(self) -> usize {
        self.0.data().len()
    }

    /// Memory, and what of it is reserved. Costs the length of the tree.
    pub fn regions(self) -> impl Iterator<Item = Region> + Clone + 'a {
        let memory = self.memory().flat_map(move |node| self.places(node));
        let cells = self.reserved_memory().map(|parent| cells(&parent));
        let children = self.reserved().flat_map(move |node| ranges(node, "reg", cells));
        let reserved = children.chain(block(self.0.data()));
        let region = |range: &Range<u64>| Region::usable(PhysAddr(range.start), length(range));
        let reserve = |range: &Range<u64>| Region::reserved(PhysAddr(range.start), length(range));
        let memory = memory.filter(has_bytes).map(move |range| region(&range));
        memory.chain(reserved.filter(has_bytes).map(move |range| reserve(&range)))
    }

    /// The memory of nodes, as far as the tree says. Costs the length of the tree.
    pub fn nodes(self) -> impl Iterator<Item = NodeRange> + Clone + 'a {
        let known = self.memory().filter_map(|memory| Some((memory, number(memory, NODE)?)));
        known.flat_map(move |(memory, node)| {
            // A node beyond what zonal numbers is refused with the map.
            let node = NodeId(u8::try_from(node).unwrap_or(u8::MAX));
            self.places(memory).filter(has_bytes).map(move |bytes| NodeRange { bytes, node })
        })
    }

    /// How far nodes are apart, as [`Config::distances`](zonal::plan::Config::distances) has it. Of a pair that the tree
    /// has in one direction only, the other is the same; what it does not have keeps the default. Costs the
    /// length of the tree.
    ///
    /// # Errors
    /// [`DistanceError`]: more nodes than there may be, or impossible distances.
    pub fn distances(self) -> Result<DistanceMatrix, DistanceError> {
        let mut matrix = DistanceMatrix::default();
        let all = || self.distance_map().into_iter().flat_map(distances_in);
        for [from, to, distance] in all() {
            matrix.set(NodeId(to), NodeId(from), distance)?;
        }
        // What is said of a direction itself counts more.
        for [from, to, distance] in all() {
            matrix.set(NodeId(from), NodeId(to), distance)?;
        }
        Ok(matrix)
    }

    fn distance_map(self) -> Option<FdtNode<'a>> {
        self.0.root().children().find(|node| node.is_compatible(DISTANCE_MAP))
    }

    /// Where the initial ramdisk is, if there is one, in bytes.
    #[must_use]
    pub fn initrd(self) -> Option<Range<u64>> {
        let chosen = self.0.root().child("chosen")?;
        let [start, end] = INITRD.map(|name| address(chosen, name));
        Some(start?..end?).filter(has_bytes)
    }

    /// The nodes that are memory.
    fn memory(self) -> impl Iterator<Item = FdtNode<'a>> + Clone + 'a {
        let is_memory = |node: &FdtNode<'a>| {
            text(*node, "device_type") == Some("memory") && is_available(*node)
        };
        self.0.root().children().filter(is_memory)
    }

    /// Where a node's memory is.
    fn places(self, memory: FdtNode<'a>) -> impl Iterator<Item = Range<u64>> + Clone + 'a {
        let name = PLACES.into_iter().find(|name| memory.property(name).is_some());
        ranges(memory, name.unwrap_or_default(), Some(cells(&self.0.root())))
    }

    fn reserved_memory(self) -> Option<FdtNode<'a>> {
        self.0.root().child("reserved-memory")
    }

    /// The nodes that reserve memory.
    fn reserved(self) -> impl Iterator<Item = FdtNode<'a>> + Clone + 'a {
        let children = self.reserved_memory().map(|parent| parent.children());
        children.into_iter().flatten().filter(|node| is_available(*node))
    }

    /// Looks at all that the others pass over if it is malformed.
    fn check(self) -> Result<(), DeviceTreeError> {
        let root = cells(&self.0.root());
        for memory in self.memory() {
            if !PLACES.iter().any(|name| memory.property(name).is_some()) {
                return Err(DeviceTreeError::NoPlace);
            }
            PLACES.iter().try_for_each(|name| check_ranges(memory, name, root))?;
            check_value(memory, NODE, |node| number(node, NODE).is_some())?;
        }
        if let Some(parent) = self.reserved_memory() {
            let own = cells(&parent);
            self.reserved().try_for_each(|node| check_ranges(node, "reg", own))?;
        }
        if let Some(map) = self.distance_map() {
            check_value(map, MATRIX, |map| {
                let length = map.property(MATRIX).map_or(0, |property| property.value().len());
                length.is_multiple_of(12) && distances_in(map).count() == length / 12
            })?;
        }
        let Some(chosen) = self.0.root().child("chosen") else { return Ok(()) };
        INITRD
            .iter()
            .try_for_each(|name| check_value(chosen, name, |node| address(node, name).is_some()))
    }
}

/// The length in bytes that a head says, if it is one.
fn tree_length(head: &[u8; HEAD]) -> Option<usize> {
    let [a, b, c, d, e, f, g, h, ..] = *head;
    ([a, b, c, d] == MAGIC).then(|| u32::from_be_bytes([e, f, g, h]) as usize)
}

/// What the memory reservation block of a tree reserves. Where it begins and that it ends was looked at with the tree.
fn block(tree: &[u8]) -> impl Iterator<Item = Range<u64>> + Clone + '_ {
    let start = tree.get(16..20).map_or(0, |at| big_endian(at) as usize);
    let entries = tree.get(start..).unwrap_or_default().chunks_exact(16);
    let entries = entries.map(|entry| (big_endian(&entry[..8]), big_endian(&entry[8..])));
    entries.take_while(|entry| *entry != (0, 0)).map(|(start, n)| start..start.saturating_add(n))
}

/// The cells of an address and of a size below a node.
fn cells(node: &FdtNode<'_>) -> [usize; 2] {
    let space = node.address_space();
    [space.address_cells as usize, space.size_cells as usize]
}

/// The ranges that a property has; none if there is no such property, or if it is malformed.
fn ranges<'a>(
    node: FdtNode<'a>,
    name: &str,
    cells: Option<[usize; 2]>,
) -> impl Iterator<Item = Range<u64>> + Clone + use<'a> {
    let property = node.property(name).zip(cells);
    let pairs = property.and_then(|(value, cells)| value.as_prop_encoded_array(cells).ok());
    pairs.into_iter().flatten().filter_map(|pair| {
        let [start, bytes] = pair.map(|cells| cells.to_int::<u64>().ok());
        Some(start?..start?.checked_add(bytes?)?)
    })
}

/// That a property is missing, or all of it is ranges.
fn check_ranges(
    node: FdtNode<'_>,
    name: &'static str,
    cells: [usize; 2],
) -> Result<(), DeviceTreeError> {
    check_value(node, name, |node| {
        let bytes = cells.iter().sum::<usize>().saturating_mul(4).max(1);
        let length = node.property(name).map_or(0, |property| property.value().len());
        length.is_multiple_of(bytes) && ranges(node, name, Some(cells)).count() == length / bytes
    })
}

/// That a property is missing, or `is_fine`.
fn check_value<'a>(
    node: FdtNode<'a>,
    name: &'static str,
    is_fine: impl FnOnce(FdtNode<'a>) -> bool,
) -> Result<(), DeviceTreeError> {
    match node.property(name).is_none() || is_fine(node) {
        true => Ok(()),
        false => Err(DeviceTreeError::Property { name }),
    }
}

/// From, to, distance; nodes beyond what zonal numbers are 255, and what is no distance is left out.
fn distances_in(map: FdtNode<'_>) -> impl Iterator<Item = [u8; 3]> + Clone + '_ {
    let entries = map.property(MATRIX).and_then(|value| value.as_prop_encoded_array([1; 3]).ok());
    entries.into_iter().flatten().filter_map(|entry| {
        let [from, to, distance] = entry.map(|cell| cell.to_int::<u64>().ok());
        let node = |number| u8::try_from(number).unwrap_or(u8::MAX);
        Some([node(from?), node(to?), u8::try_from(distance?).ok()?])
    })
}

fn text<'a>(node: FdtNode<'a>, name: &str) -> Option<&'a str> {
    node.property(name)?.value_as().ok()
}

fn number(node: FdtNode<'_>, name: &str) -> Option<u32> {
    node.property(name)?.value_as().ok()
}

/// An address in one cell or in two.
fn address(node: FdtNode<'_>, name: &str) -> Option<u64> {
    let property = node.property(name)?;
    property.value_as::<u64>().or_else(|_| property.value_as::<u32>().map(u64::from)).ok()
}

/// Whether it is for the kernel to use.
fn is_available(node: FdtNode<'_>) -> bool {
    node.property("status").is_none() || matches!(text(node, "status"), Some("okay" | "ok"))
}

fn has_bytes(range: &Range<u64>) -> bool {
    !range.is_empty()
}

fn big_endian(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

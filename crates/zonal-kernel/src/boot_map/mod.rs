//! From what firmware and boot loaders say of the memory to a map for the allocator.
//!
//! [`BootMap::new`] takes the entries of a boot loader's map, the ranges that are in use (the kernel's
//! image, what it was given at boot), and the memory of each node. The rules:
//!
//! - memory is cut where nodes meet; what no node has is node 0's;
//! - what is in use is reserved, and so is the frame at address 0, whose address would be a null pointer
//!   where memory is mapped as it is;
//! - everything else is as in [`zonal::map`].
//!
//! | entries | feature |
//! |---|---|
//! | [`e820::Entry`]: of a BIOS, and of PVH | |
//! | [`Region`] | |
//! | `multiboot2::MemoryArea` | `multiboot2` |
//! | `limine::memory_map::Entry` | `limine` |
//! | `bootloader_api::info::MemoryRegion` | `bootloader_api` |
//! | `uefi_raw::table::boot::MemoryDescriptor` | `uefi` |
//! | [`Region`]s of a `device_tree::DeviceTree`, which has the nodes, too | `fdt` |
//!
//! ```
//! use zonal::NodeId;
//! use zonal_kernel::boot_map::{BootMap, NodeRange, e820::Entry};
//! let e820 = [Entry::usable(0, 0x9_fc00), Entry::usable(1 << 20, 127 << 20)];
//! let nodes = [(0..64 << 20, 0), (64 << 20..128 << 20, 1)]
//!     .map(|(bytes, node)| NodeRange { bytes, node: NodeId(node) });
//! let map = BootMap::new(&e820, &[1 << 20..3 << 20], nodes)?.sanitise()?;
//! assert_eq!(map.frames_usable(), 0x9e + (125 << 8));
//! # Ok::<(), zonal_kernel::Error>(())
//! ```

#[cfg(feature = "bootloader_api")]
mod bootloader_api;
#[cfg(feature = "fdt")]
pub mod device_tree;
pub mod e820;
#[cfg(feature = "limine")]
mod limine;
#[cfg(feature = "multiboot2")]
mod multiboot2;
#[cfg(feature = "uefi")]
pub mod uefi;

use crate::Error;
use core::ops::Range;
use zonal::NodeId;
use zonal::map::{MapError, MemoryMap, PhysAddr, Region, RegionKind, SaneMap};
use zonal::units::FRAME_SIZE;

/// An entry of a boot loader's memory map.
pub trait Entry {
    /// As a region on node 0.
    fn region(&self) -> Region;
}

impl<E: Entry + ?Sized> Entry for &E {
    fn region(&self) -> Region {
        (**self).region()
    }
}

impl Entry for Region {
    fn region(&self) -> Region {
        *self
    }
}

/// Memory of a node, in bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeRange {
    /// Which bytes.
    pub bytes: Range<u64>,
    /// Whose they are.
    pub node: NodeId,
}

/// A map that has not been sorted yet. See the [module](self). About 6 KiB, and as much again when it is
/// sorted: [`Global::map`](crate::Global::map) needs no stack for either.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BootMap(MemoryMap);

impl BootMap {
    /// A map of these entries, in bytes. Costs entries × nodes.
    ///
    /// # Errors
    /// [`Error::Map`]: more pieces than a map has room for, a node or an address that cannot be.
    pub fn new<N>(
        entries: impl IntoIterator<Item: Entry>,
        in_use: &[Range<u64>],
        nodes: N,
    ) -> Result<Self, Error>
    where
        N: IntoIterator<Item = NodeRange, IntoIter: Clone>,
    {
        let mut map = Self(MemoryMap::new());
        add_all(&mut map.0, entries, in_use, nodes)?;
        Ok(map)
    }

    /// Adds a range, in bytes, that is in use until the kernel has booted: it is handed over by
    /// [`release_reclaim_later`](zonal::Allocator::release_reclaim_later). The nodes are those that
    /// [`new`](Self::new) was given.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn reclaim_later<N>(mut self, range: &Range<u64>, nodes: N) -> Result<Self, Error>
    where
        N: IntoIterator<Item = NodeRange, IntoIter: Clone>,
    {
        add_reclaim_later(&mut self.0, range, nodes)?;
        Ok(self)
    }

    /// Adds a range, in bytes, in which memory of `node` may come later, by
    /// [`online`](zonal::Allocator::online). What is there already stays.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn offline(mut self, range: &Range<u64>, node: NodeId) -> Result<Self, Error> {
        add_offline(&mut self.0, range, node)?;
        Ok(self)
    }

    /// Sorts it into ranges of whole frames: see [`MemoryMap::sanitise`].
    ///
    /// # Errors
    /// [`Error::Map`].
    pub fn sanitise(&self) -> Result<SaneMap, Error> {
        Ok(self.0.sanitise()?)
    }
}

/// Adds what [`BootMap::new`] says.
pub(crate) fn add_all<N>(
    map: &mut MemoryMap,
    entries: impl IntoIterator<Item: Entry>,
    in_use: &[Range<u64>],
    nodes: N,
) -> Result<(), MapError>
where
    N: IntoIterator<Item = NodeRange, IntoIter: Clone>,
{
    let nodes = nodes.into_iter();
    let mut last: Option<Region> = None;
    for region in entries.into_iter().map(|entry| entry.region()) {
        match &mut last {
            Some(last) if continues(last, &region) => last.bytes += region.bytes,
            last => last.replace(region).map_or(Ok(()), |last| add_cut(map, last, &nodes))?,
        }
    }
    last.map_or(Ok(()), |last| add_cut(map, last, &nodes))?;
    map.add(Region::reserved(PhysAddr(0), FRAME_SIZE as u64))?;
    for range in in_use {
        map.add(Region::reserved(PhysAddr(range.start), length(range)))?;
    }
    Ok(())
}

/// Whether one region begins where the other ends, and they are of one kind: firmware tells kinds apart that are
/// one here, in more entries than a map has regions.
fn continues(last: &Region, region: &Region) -> bool {
    let end = last.start.0.checked_add(last.bytes);
    // One that reaches beyond all addresses is refused by itself.
    let fits = last.bytes.checked_add(region.bytes).is_some();
    last.kind == region.kind && last.node == region.node && end == Some(region.start.0) && fits
}

/// Adds what [`BootMap::reclaim_later`] says.
pub(crate) fn add_reclaim_later<N>(
    map: &mut MemoryMap,
    range: &Range<u64>,
    nodes: N,
) -> Result<(), MapError>
where
    N: IntoIterator<Item = NodeRange, IntoIter: Clone>,
{
    let region = Region::usable(PhysAddr(range.start), length(range));
    let region = Region { kind: RegionKind::ReclaimLater, ..region };
    add_cut(map, region, &nodes.into_iter())
}

/// Adds what [`BootMap::offline`] says.
pub(crate) fn add_offline(
    map: &mut MemoryMap,
    range: &Range<u64>,
    node: NodeId,
) -> Result<(), MapError> {
    map.add(Region::offline(PhysAddr(range.start), length(range)).on(node))
}

/// Adds a region, cut where nodes meet.
fn add_cut(
    map: &mut MemoryMap,
    region: Region,
    nodes: &(impl Iterator<Item = NodeRange> + Clone),
) -> Result<(), MapError> {
    let PhysAddr(start) = region.start;
    let Some(end) = start.checked_add(region.bytes) else { return map.add(region) };
    if region.kind == RegionKind::Reserved {
        return map.add(region);
    }
    let mut at = start;
    while at < end {
        let own = nodes.clone().find(|node| node.bytes.contains(&at));
        let (next, node) = own.map_or_else(
            || {
                let later = nodes.clone().map(|node| node.bytes.start);
                (later.filter(|&start| start > at).min().unwrap_or(end), NodeId(0))
            },
            |own| (own.bytes.end, own.node),
        );
        let next = next.min(end);
        map.add(Region { start: PhysAddr(at), bytes: next - at, ..region }.on(node))?;
        at = next;
    }
    Ok(())
}

/// Bytes of a range; 0 if it ends before it starts.
const fn length(range: &Range<u64>) -> u64 {
    range.end.saturating_sub(range.start)
}

//! The boot memory map: what firmware says is there, made sane.
//!
//! A host adds the regions it was given to a [`MemoryMap`], in any order and however they
//! overlap, and [sanitises](MemoryMap::sanitise) it into a [`SaneMap`]: sorted ranges of whole
//! frames that do not overlap. The rules:
//!
//! - empty regions are dropped; regions of one kind and node that touch or overlap are one;
//! - memory shrinks inwards to whole frames, reserved regions grow outwards; a frame of memory of which `ReclaimLater`
//!   has a part is wholly that;
//! - where regions overlap, `Reserved` wins over `ReclaimLater`, that over `Cma`, that over
//!   `Usable`, that over `Offline`: what is there wins over what may come;
//! - a frame that two nodes list, and that is not reserved, is an error: which of the two is
//!   wrong cannot be known.
//!
//! What was changed is in the [`MapReport`]. Nothing here allocates: the tables have room for
//! [`MAX_RANGES`] entries (about 6 KiB each). They live on the caller's stack, or in a
//! [`Draft`](crate::plan::Draft), where nothing is moved.
//!
//! ```
//! use zonal::map::{MemoryMap, PhysAddr, RangeKind, Region};
//! use zonal::{NodeId, Order, Pfn};
//!
//! let map = MemoryMap::from_regions(&[
//!     Region::reserved(PhysAddr(0x9_fc00), 0x6_0400), // firmware, in the middle of a frame
//!     Region::usable(PhysAddr(0), 64 << 20),
//! ])?;
//! let mut map = map.sanitise()?;
//! assert_eq!(map.ranges().len(), 3);
//! assert_eq!(map.kind_at(Pfn::new(0x9e)), Some(RangeKind::Usable));
//! assert_eq!(map.kind_at(Pfn::new(0x9f)), Some(RangeKind::Reserved));
//!
//! // Room for the frame table, from the top.
//! let table = map.carve(160 << 10, Order::ZERO, Some(NodeId(0)), None)?;
//! assert_eq!((table.frames(), table.end), (40, Pfn::new(0x4000)));
//! # Ok::<(), zonal::map::MapError>(())
//! ```

mod error;
mod sane;
mod sanitise;
#[cfg(test)]
mod tests;

pub use error::MapError;
pub use sane::{MapReport, SaneMap};
pub(crate) use sane::{round_down, round_up};

use crate::boot::zonelist::MAX_NODES;
use crate::types::units::{NodeId, Pfn};
use core::fmt;

/// How many regions a [`MemoryMap`], and how many ranges a [`SaneMap`], can hold.
pub const MAX_RANGES: usize = 256;

/// A physical address in bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(transparent)]
pub struct PhysAddr(pub u64);

impl fmt::Display for PhysAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// What a region of the address space is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum RegionKind {
    /// Memory for the allocator.
    #[default]
    Usable,
    /// Not to be touched: firmware, devices, the kernel image, the frame table.
    Reserved,
    /// Memory that something needs while booting (boot-loader data, the initial ramdisk); not
    /// managed at first, given to the allocator when that something is done.
    ReclaimLater,
    /// Memory lent to movable requests until a device wants it.
    Cma,
    /// Memory that is not there and may come later: the frame table and the zones have room for
    /// it, and [`Allocator::online`](crate::Allocator::online) makes it usable.
    Offline,
}

/// The kind of a [`Range`]: the same five as of a [`Region`].
pub use self::RegionKind as RangeKind;

impl RegionKind {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Usable, Self::Reserved, Self::ReclaimLater, Self::Cma, Self::Offline];

    /// Which kind wins where regions overlap: the higher.
    const fn precedence(self) -> u8 {
        match self {
            Self::Offline => 0,
            Self::Usable => 1,
            Self::Cma => 2,
            Self::ReclaimLater => 3,
            Self::Reserved => 4,
        }
    }

    /// Whether the allocator manages such frames from the start.
    #[must_use]
    pub const fn is_usable(self) -> bool {
        matches!(self, Self::Usable | Self::Cma)
    }

    /// Whether such frames are memory that is there from the start, managed then or later.
    #[must_use]
    pub const fn is_present(self) -> bool {
        !matches!(self, Self::Reserved | Self::Offline)
    }

    /// Whether such frames are memory for the allocator, now or later: all but the reserved.
    #[must_use]
    pub const fn is_memory(self) -> bool {
        !matches!(self, Self::Reserved)
    }
}

/// A region as firmware reports it, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Region {
    /// Address of its first byte.
    pub start: PhysAddr,
    /// Its length in bytes.
    pub bytes: u64,
    /// What it is.
    pub kind: RegionKind,
    /// The node it belongs to. For reserved regions only a note.
    pub node: NodeId,
}

impl Region {
    /// Usable memory on node 0.
    #[must_use]
    pub const fn usable(start: PhysAddr, bytes: u64) -> Self {
        Self { start, bytes, kind: RegionKind::Usable, node: NodeId(0) }
    }

    /// A reserved region.
    #[must_use]
    pub const fn reserved(start: PhysAddr, bytes: u64) -> Self {
        Self { start, bytes, kind: RegionKind::Reserved, node: NodeId(0) }
    }

    /// Memory on node 0 that may come later.
    #[must_use]
    pub const fn offline(start: PhysAddr, bytes: u64) -> Self {
        Self { start, bytes, kind: RegionKind::Offline, node: NodeId(0) }
    }

    /// The same region on another node.
    #[must_use]
    pub const fn on(self, node: NodeId) -> Self {
        Self { node, ..self }
    }

    /// Checks what can be said of a region by itself.
    const fn check(&self) -> Result<(), MapError> {
        if self.node.0 as usize >= MAX_NODES {
            return Err(MapError::NoSuchNode { node: self.node, start: self.start });
        }
        // A region may reach the very end of the address space, 2^64, but not beyond.
        if self.bytes > 0 && self.start.0.checked_add(self.bytes - 1).is_none() {
            return Err(MapError::AddressOverflow { start: self.start, bytes: self.bytes });
        }
        Ok(())
    }
}

/// Regions as they come: unsorted, overlapping, misaligned. See the [module](self).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemoryMap {
    regions: [Region; MAX_RANGES],
    len: usize,
}

impl Default for MemoryMap {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryMap {
    /// A map without regions.
    #[must_use]
    pub const fn new() -> Self {
        Self { regions: [Region::usable(PhysAddr(0), 0); MAX_RANGES], len: 0 }
    }

    /// A map of these regions.
    ///
    /// # Errors
    /// As [`add`](Self::add).
    pub const fn from_regions(regions: &[Region]) -> Result<Self, MapError> {
        let mut map = Self::new();
        let mut at = 0;
        while at < regions.len() {
            if let Err(error) = map.add(regions[at]) {
                return Err(error);
            }
            at += 1;
        }
        Ok(map)
    }

    /// Adds a region.
    ///
    /// # Errors
    /// [`MapError::TooManyRegions`] if the map is full, [`MapError::NoSuchNode`] for a node
    /// beyond [`MAX_NODES`], [`MapError::AddressOverflow`] if the region reaches beyond the
    /// address space. The map is unchanged then.
    pub const fn add(&mut self, region: Region) -> Result<(), MapError> {
        if let Err(error) = region.check() {
            return Err(error);
        }
        if self.len == MAX_RANGES {
            return Err(MapError::TooManyRegions { start: region.start });
        }
        self.regions[self.len] = region;
        self.len += 1;
        Ok(())
    }

    /// The regions, as they were added.
    #[must_use]
    pub fn regions(&self) -> &[Region] {
        &self.regions[..self.len]
    }

    /// Sorts, merges and trims the regions into ranges of whole frames that do not overlap; the
    /// rules are in the [module](self). Quadratic in the number of regions.
    ///
    /// # Errors
    /// [`MapError::NodeConflict`] if two nodes list a frame, [`MapError::NothingUsable`] if no
    /// usable frame is left, [`MapError::TooManyRanges`] if more than [`MAX_RANGES`] are.
    pub fn sanitise(&self) -> Result<SaneMap, MapError> {
        let mut sane = SaneMap::EMPTY;
        self.clone().sanitise_into(&mut sane)?;
        Ok(sane)
    }

    /// As [`sanitise`](Self::sanitise), in place: the map has no regions after it, and `sane` is of use
    /// only if it went well.
    pub(crate) fn sanitise_into(&mut self, sane: &mut SaneMap) -> Result<(), MapError> {
        sanitise::sanitise(self, sane)
    }

    /// Forgets the regions.
    pub const fn clear(&mut self) {
        self.len = 0;
    }
}

/// Frames in a row.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct PfnRange {
    /// The first frame.
    pub start: Pfn,
    /// The frame after the last.
    pub end: Pfn,
}

impl PfnRange {
    /// From `start` up to but not including `end`.
    #[must_use]
    pub const fn new(start: Pfn, end: Pfn) -> Self {
        Self { start, end }
    }

    /// How many frames it has; 0 if it ends before it starts.
    #[must_use]
    pub const fn frames(self) -> u64 {
        self.end.get().saturating_sub(self.start.get())
    }

    /// Whether there is no frame in it.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.frames() == 0
    }

    /// Whether `pfn` is in it.
    #[must_use]
    pub const fn contains(self, pfn: Pfn) -> bool {
        self.start.get() <= pfn.get() && pfn.get() < self.end.get()
    }

    /// The frames in both.
    #[must_use]
    pub fn intersect(self, other: Self) -> Self {
        Self { start: self.start.max(other.start), end: self.end.min(other.end) }
    }
}

impl fmt::Display for PfnRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}", self.start, self.end)
    }
}

/// Whole frames of one kind and node in a row; never empty in a [`SaneMap`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Range {
    /// The first frame.
    pub start: Pfn,
    /// The frame after the last.
    pub end: Pfn,
    /// What they are.
    pub kind: RangeKind,
    /// The node they belong to.
    pub node: NodeId,
}

impl Range {
    /// Without kind and node.
    #[must_use]
    pub const fn pfns(&self) -> PfnRange {
        PfnRange { start: self.start, end: self.end }
    }

    /// How many frames.
    #[must_use]
    pub const fn frames(&self) -> u64 {
        self.pfns().frames()
    }

    /// The part of it inside `span`, if any.
    #[must_use]
    pub fn clip(&self, span: PfnRange) -> Option<Self> {
        let PfnRange { start, end } = self.pfns().intersect(span);
        (start < end).then_some(Self { start, end, ..*self })
    }
}

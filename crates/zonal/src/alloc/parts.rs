//! Which parts of the tables belong to which memory, for hosts that bring tables with the memory.
//!
//! The tables of a plan have room for all memory that may come. Those of frames that are not there are only
//! read, by single loads of at most eight bytes, and found to be zero: a host may map them all to one page of
//! zeros that cannot be written, and map memory of its own, zero as well, before the frames come.
//!
//! ```
//! use zonal::map::{MemoryMap, PhysAddr, Region};
//! use zonal::plan::{Config, Plan};
//! use zonal::preset::Zonal;
//! use zonal::TableSize;
//! let later = Region::offline(PhysAddr(1 << 30), 1 << 39);
//! let map = MemoryMap::from_regions(&[Region::usable(PhysAddr(0), 1 << 30), later])?.sanitise()?;
//! let plan = Plan::new(map, Config::new(1), |_, _, _| 1)?;
//! let mut bytes = 0;
//! for range in plan.map().present() {
//!     TableSize::visit_parts::<Zonal>(&plan, range.pfns(), &mut |part, elements| {
//!         bytes += (elements.end - elements.start) * part.element_bytes();
//!     });
//! }
//! // 1.15 bytes a frame, of 262144; with room for 512 GiB beside them all tables have 148 MiB.
//! assert_eq!(bytes / 1024, 295);
//! assert_eq!(TableSize::of::<Zonal>(&plan).table_bytes() >> 20, 148);
//! # Ok::<(), Box<dyn core::error::Error>>(())
//! ```

use crate::alloc::storage::TableSize;
use crate::boot::map::PfnRange;
use crate::boot::plan::Plan;
use crate::policy::FreeMemory;
use crate::policy::Policy;
use crate::zone::tables::NR_FREE_WORDS;
use core::ops::Range;

/// A slice of [`Storage`](crate::Storage) that grows with the memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TablePart {
    /// State bytes.
    States,
    /// Pageblock words.
    Pageblocks,
    /// Words for what is free: the slice with this number.
    Free(usize),
}

impl TablePart {
    /// All of them.
    pub const ALL: [Self; 2 + NR_FREE_WORDS] =
        [Self::States, Self::Pageblocks, Self::Free(0), Self::Free(1), Self::Free(2)];

    /// Bytes of an element, where atomics are as large as what they hold.
    #[must_use]
    pub const fn element_bytes(self) -> u64 {
        match self {
            Self::States => 1,
            Self::Pageblocks | Self::Free(_) => 8,
        }
    }

    /// Whether its elements are those of frames, under the preset `S`. Else it is there from the start, and
    /// much smaller; [`visit_parts`](TableSize::visit_parts) does not speak of it.
    #[must_use]
    pub fn is_by_frames<S: Policy>(self) -> bool {
        match self {
            Self::States | Self::Pageblocks => true,
            Self::Free(slice) => S::Free::BY_FRAMES.get(slice) == Some(&true),
        }
    }
}

impl TableSize {
    /// How many elements a part has.
    #[must_use]
    pub fn elements(&self, part: TablePart) -> u64 {
        match part {
            TablePart::States => self.frames,
            TablePart::Pageblocks => self.pageblocks,
            TablePart::Free(slice) => self.free.get(slice).copied().unwrap_or(0),
        }
    }

    /// Calls `visit` with what of the tables may be written once there is memory in `range`, or there was: a
    /// part and its elements. The pageblocks that memory is in count, whole. What is not visited for
    /// any memory is read as zero and not written. O(zones).
    pub fn visit_parts<S: Policy>(
        plan: &Plan,
        range: PfnRange,
        visit: &mut dyn FnMut(TablePart, Range<u64>),
    ) {
        let (base, order) = (plan.base().get(), plan.config().pageblock_order);
        let index = |pfn: u64| pfn.saturating_sub(base).min(plan.frames());
        let (start, end) = (index(range.start.get()), index(range.end.get()));
        if start >= end {
            return;
        }
        let pageblocks = start >> order.get()..end.div_ceil(order.frames());
        let frames = pageblocks.start << order.get()..pageblocks.end << order.get();
        visit(TablePart::States, frames.clone());
        visit(TablePart::Pageblocks, pageblocks);
        S::Free::words_of(plan, frames, &mut |slice, words| visit(TablePart::Free(slice), words));
    }
}

//! Tables that have memory only where there are frames: the kernel maps their pages, and frames for them come from
//! the memory that they speak of, or from the zones.
//!
//! The mechanism (tables contiguous in addresses, their pages mapped as memory comes) is that of Linux's
//! `sparsemem-vmemmap`.

use super::Frames;
use crate::{Error, Machine};
use core::fmt;
use core::ptr::NonNull;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicU64};
use zonal::error::ResizeError;
use zonal::map::{PfnRange, PhysAddr};
use zonal::plan::Plan;
use zonal::policy::Sound;
use zonal::units::FRAME_SIZE;
use zonal::{NodePolicy, Pfn, Request};
use zonal_tables::sparse::{Layout, PAGE_BYTES};

/// What became of a frame that a kernel was given for its page of the tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum MapTable {
    /// It is mapped at the page.
    Mapped,
    /// It is a table of the processor's now, on the way to the page: another one is wanted.
    Used,
}

/// A kernel that can map the pages of the allocator's tables, so that there are tables only for memory that is
/// there. See [`Booting::boot_sparse`](super::Booting::boot_sparse).
pub trait MapTables: Machine {
    /// Maps a frame at a page of the [`TableRange`], to be read and written by all CPUs, in place of the
    /// frame of zeros that could only be read there. The frame is zero, and the kernel's for good. Called once
    /// for each page that is needed, and again for that page after [`MapTable::Used`], which is answered at most
    /// [`MOST_LEVELS`] times in a row. By one CPU at a time. Must not call the allocator or panic.
    fn map_table(page: *mut u8, frame: PhysAddr) -> MapTable;

    /// Has all CPUs see what was mapped by [`map_table`](Self::map_table) up to now: as a rule, they forget what
    /// they know of the range's pages, of which they may have read the zeros. Before the first call returns that
    /// brings memory. Where other CPUs run it is called with interrupts as the caller of
    /// [`Global::online`](super::Global::online) has them. Must not call the allocator or panic.
    fn tables_mapped();
}

/// The most tables of the processor that are on the way to a page.
pub const MOST_LEVELS: u64 = 4;

/// Addresses for the tables. The end need not be exact: [`Error::TableRange`] says how many bytes would do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TableRange {
    /// The first: a multiple of 4096, and not 0.
    pub start: usize,
    /// How many.
    pub bytes: u64,
}

/// Where the frames for the tables of memory that comes are taken from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TablesFrom {
    /// The first frames of the memory that comes. It needs nothing of what is there, also when that is
    /// exhausted; but those frames stay in use, so their pageblocks do not go offline again.
    Memory,
    /// The zones, from the node of the memory if it has some. All of the memory can go again; its tables stay for
    /// when it comes back.
    Zones,
}

/// What [`Global::tables`](super::Global::tables) says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TablesNow {
    /// Bytes of tables that have memory of their own.
    pub bytes: u64,
    /// Frames that the zones gave.
    pub frames_from_zones: u64,
}

/// The tables of an allocator that was built by [`Booting::boot_sparse`](super::Booting::boot_sparse).
pub(super) struct Sparse {
    start: NonNull<u8>,
    layout: Layout,
    /// A bit for each page that is mapped. Written by who has raised `busy`, or alone at boot.
    mapped: &'static [AtomicU64],
    busy: AtomicBool,
    /// Frames that came from the zones.
    taken: AtomicU64,
    map_table: fn(*mut u8, PhysAddr) -> MapTable,
    tables_mapped: fn(),
}

// SAFETY: the pointer is only a number here, which is passed to the kernel.
unsafe impl Send for Sparse {}
// SAFETY: as above; the rest is atomics and what does not change.
unsafe impl Sync for Sparse {}

/// The range of a kernel, and how it maps there.
pub(super) struct Wanted {
    range: TableRange,
    map_table: fn(*mut u8, PhysAddr) -> MapTable,
    tables_mapped: fn(),
}

impl Wanted {
    pub(super) fn by<M: MapTables>(range: TableRange) -> Self {
        Self { range, map_table: M::map_table, tables_mapped: M::tables_mapped }
    }

    /// Checks that the range has room for the tables of `plan`.
    pub(super) fn layout<S: Sound>(&self, plan: &Plan) -> Result<Layout, Error> {
        let layout = Layout::of::<S>(plan);
        let (given, wanted) = (self.range.bytes, layout.bytes());
        let begins = self.range.start != 0 && self.range.start.is_multiple_of(PAGE_BYTES);
        if given < wanted || !begins {
            return Err(Error::TableRange { given, wanted });
        }
        Ok(layout)
    }

    pub(super) fn begin(self, layout: Layout, mapped: &'static [AtomicU64]) -> Sparse {
        let (start, Self { map_table, tables_mapped, .. }) = (self.start(), self);
        let (busy, taken) = (AtomicBool::new(false), AtomicU64::new(0));
        Sparse { start, layout, mapped, busy, taken, map_table, tables_mapped }
    }

    /// Where the range begins: an address that the kernel has given, and not 0 once there is a
    /// [`layout`](Self::layout).
    pub(super) fn start(&self) -> NonNull<u8> {
        let start = core::ptr::with_exposed_provenance_mut(self.range.start);
        NonNull::new(start).unwrap_or(NonNull::dangling())
    }
}

/// Words of the bits of all pages.
pub(super) const fn bit_words(layout: &Layout) -> u64 {
    layout.pages().div_ceil(64)
}

/// At most how many frames the tables of the memory in `range` take, with the tables of the processor on
/// the way to them.
pub(super) fn most_frames<S: Sound>(
    plan: &Plan,
    layout: &Layout,
    start: NonNull<u8>,
    range: PfnRange,
) -> u64 {
    let first = (start.addr().get() / PAGE_BYTES) as u64;
    let mut frames = 0;
    layout.visit_pages::<S>(plan, range, &mut |pages| {
        let (start, end) = (first + pages.start, first + pages.end);
        // A table of each level has 512 entries.
        let tables = |level: u64| ((end - 1) >> (9 * level)) - (start >> (9 * level)) + 1;
        if start < end {
            frames += end - start + (1..=MOST_LEVELS).map(tables).sum::<u64>();
        }
    });
    frames
}

impl Sparse {
    /// Maps what the tables of memory in `range` need and is not mapped yet, with frames from `next`.
    ///
    /// # Safety
    /// What `next` returns is a frame that is ours for good, and can be written at `M::address`.
    pub(super) unsafe fn bring<M: Machine, S: Sound>(
        &self,
        plan: &Plan,
        range: PfnRange,
        mut next: impl FnMut() -> Result<PhysAddr, Error>,
    ) -> Result<(), Error> {
        let mut result = Ok(());
        self.layout.visit_pages::<S>(plan, range, &mut |pages| {
            for page in pages {
                let (word, bit) = (&self.mapped[page as usize / 64], 1 << (page % 64));
                // Relaxed: only who is bringing, one at a time, reads and writes them.
                if result.is_err() || word.load(Relaxed) & bit != 0 {
                    continue;
                }
                let at = self.start.as_ptr().wrapping_add(page as usize * PAGE_BYTES);
                // SAFETY: the caller's promise.
                result = unsafe { self.map_page::<M>(at, &mut next) };
                if result.is_ok() {
                    word.fetch_or(bit, Relaxed);
                }
            }
        });
        result
    }

    /// # Safety
    /// As [`bring`](Self::bring).
    unsafe fn map_page<M: Machine>(
        &self,
        page: *mut u8,
        next: &mut impl FnMut() -> Result<PhysAddr, Error>,
    ) -> Result<(), Error> {
        loop {
            let frame = next()?;
            // SAFETY: a frame of ours, at its address.
            unsafe { M::address(frame).write_bytes(0, FRAME_SIZE) };
            if (self.map_table)(page, frame) == MapTable::Mapped {
                return Ok(());
            }
        }
    }

    /// Has all CPUs see what was mapped.
    pub(super) fn show(&self) {
        (self.tables_mapped)();
    }

    /// Runs `bring` as the only one who does, and has all CPUs see what it brought.
    fn alone(&self, bring: impl FnOnce() -> Result<(), Error>) -> Result<(), Error> {
        // Acquire, with the release below: each sees the bits of the one before.
        if self.busy.compare_exchange(false, true, Acquire, Relaxed).is_err() {
            return Err(ResizeError::Busy.into());
        }
        let brought = bring();
        self.show();
        self.busy.store(false, Release);
        brought
    }

    /// Brings tables for `range` with frames from the zones.
    pub(super) fn bring_from_zones<M: Machine, S: Sound>(
        &self,
        frames: &Frames<M, S>,
        range: PfnRange,
    ) -> Result<(), Error> {
        let plan = frames.plan();
        let node = plan.map().range_at(range.start).map(|range| range.node);
        let nodes = node.map_or(NodePolicy::Local, NodePolicy::Preferred);
        let request = Request::frame().nodes(nodes);
        let next = || {
            let (pfn, _) = frames.alloc(&request)?.into_raw();
            self.taken.fetch_add(1, Relaxed);
            Ok(PhysAddr(pfn.address()))
        };
        // SAFETY: allocated a moment ago and never freed, so ours for good; memory of the map is
        // written at its address, by the contract of booting.
        self.alone(|| unsafe { self.bring::<M, S>(plan, range, next) })
    }

    /// Brings tables for `range` with its own first frames; returns how many these were. An error comes before
    /// the first is used, unless the kernel uses more tables on the way than it promised.
    ///
    /// # Safety
    /// The range is memory that nothing uses, and can be written at `M::address`.
    pub(super) unsafe fn bring_from_own<M: Machine, S: Sound>(
        &self,
        plan: &Plan,
        range: PfnRange,
    ) -> Result<u64, Error> {
        let (frames, wanted) =
            (range.frames(), most_frames::<S>(plan, &self.layout, self.start, range));
        if wanted >= frames {
            return Err(Error::TablesFill { frames, wanted });
        }
        let mut used = 0;
        let next = || {
            let pfn = Pfn::new(range.start.get() + used);
            used += 1;
            let left = (used < frames).then(|| PhysAddr(pfn.address()));
            left.ok_or(Error::TablesFill { frames, wanted: used })
        };
        // SAFETY: the caller's promise, and each frame is taken once.
        self.alone(|| unsafe { self.bring::<M, S>(plan, range, next) })?;
        Ok(used)
    }

    /// Bytes of the tables that are mapped.
    pub(super) fn bytes(&self) -> u64 {
        let bits = self.mapped.iter().map(|word| u64::from(word.load(Relaxed).count_ones()));
        bits.sum::<u64>() * PAGE_BYTES as u64
    }

    /// Frames that came from the zones.
    pub(super) fn taken(&self) -> u64 {
        self.taken.load(Relaxed)
    }
}

impl fmt::Debug for Sparse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sparse").field("bytes", &self.bytes()).finish_non_exhaustive()
    }
}

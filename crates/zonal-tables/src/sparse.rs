//! Tables that have memory only where there are frames.
//!
//! The tables lie in a range of addresses with room for all memory that may come. Where no memory is, its
//! pages show one frame of zeros, read-only; before memory comes, zeroed frames of its own are mapped at
//! the pages that [`Layout::visit_pages`] names. What does not grow with the memory lies in a piece, as the
//! tables of [`in_piece`](crate::in_piece) do.
//!
//! ```
//! use zonal::map::{MemoryMap, PhysAddr, Region};
//! use zonal::plan::{Config, Plan};
//! use zonal::preset::Zonal;
//! use zonal_tables::sparse::{Layout, PAGE_BYTES};
//!
//! let there = Region::usable(PhysAddr(0), 1 << 30);
//! for room in [64, 256, 512] {
//!     let may_come = Region::offline(PhysAddr(1 << 30), room << 30);
//!     let map = MemoryMap::from_regions(&[there, may_come])?.sanitise()?;
//!     let plan = Plan::new(map, Config::new(1), |_, _, _| 1)?;
//!     let layout = Layout::of::<Zonal>(&plan);
//!     let mut pages = 0;
//!     for range in plan.map().present() {
//!         layout.visit_pages::<Zonal>(&plan, range.pfns(), &mut |range| {
//!             pages += range.end - range.start;
//!         });
//!     }
//!     // 1.15 bytes a frame that is there, whatever may come.
//!     assert_eq!(pages * PAGE_BYTES as u64 / 1024, 300);
//!     assert!(layout.bytes() > (1 + room) * 301_000);
//! }
//! # Ok::<(), Box<dyn core::error::Error>>(())
//! ```

use crate::piece::{PieceTooSmall, Rest, bytes_of, lay_out};
use core::mem::MaybeUninit;
use core::ops::Range;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU8, AtomicU64};
use zonal::map::PfnRange;
use zonal::plan::Plan;
use zonal::platform::Platform;
use zonal::policy::Policy;
use zonal::units::FRAME_SIZE;
use zonal::{Storage, TablePart, TableSize};

/// Bytes of a page of the tables: of a frame.
pub const PAGE_BYTES: usize = FRAME_SIZE;

const PARTS: usize = TablePart::ALL.len();

/// Where in the range of addresses each table begins: at a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    /// In bytes from the start of the range; the last: where the range may end.
    starts: [u64; PARTS + 1],
}

impl Layout {
    /// That of the tables of `plan` under the preset `S`. O(zones).
    #[must_use]
    pub fn of<S: Policy>(plan: &Plan) -> Self {
        let size = TableSize::of::<S>(plan);
        let mut starts = [0; PARTS + 1];
        for (at, part) in TablePart::ALL.into_iter().enumerate() {
            let elements = if part.is_by_frames::<S>() { size.elements(part) } else { 0 };
            let bytes = elements * part.element_bytes();
            starts[at + 1] = starts[at] + bytes.next_multiple_of(PAGE_BYTES as u64);
        }
        Self { starts }
    }

    /// Bytes of the range: a multiple of [`PAGE_BYTES`].
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.starts[PARTS]
    }

    /// Pages of the range.
    #[must_use]
    pub const fn pages(&self) -> u64 {
        self.bytes() / PAGE_BYTES as u64
    }

    fn start(&self, part: TablePart) -> u64 {
        let at = TablePart::ALL.iter().position(|&one| one == part);
        self.starts[at.unwrap_or(PARTS)]
    }

    /// Calls `visit` with the pages, by their numbers from the start of the range on, that must have memory
    /// of their own before there is any in `range`: a few runs, which may overlap. Of `plan`, and of the
    /// preset, that the layout is of. O(zones).
    pub fn visit_pages<S: Policy>(
        &self,
        plan: &Plan,
        range: PfnRange,
        visit: &mut dyn FnMut(Range<u64>),
    ) {
        let page = PAGE_BYTES as u64;
        TableSize::visit_parts::<S>(plan, range, &mut |part, elements| {
            let byte = |element: u64| self.start(part) + element * part.element_bytes();
            visit(byte(elements.start) / page..byte(elements.end).div_ceil(page));
        });
    }
}

/// How many bytes a piece needs for the tables that do not grow with the memory, whatever its alignment.
/// O(zones).
#[must_use]
pub fn piece_bytes<P, S>(plan: &Plan) -> u64
where
    P: Platform<Byte = AtomicU8, Word = AtomicU64>,
    S: Policy,
{
    bytes_of::<P, S>(plan, |part| !part.is_by_frames::<S>())
}

/// Lays the tables of `plan` out: those that grow with the memory from `start` on, as [`Layout::of`] says,
/// the others in `piece`, which is lent for ever and not dropped. O(CPUs × zones).
///
/// # Safety
/// From `start` on, which is a multiple of [`PAGE_BYTES`], the bytes of the layout can be read, for good, and
/// are zero. The pages that [`Layout::visit_pages`] names for the memory that is there, and from before it comes
/// for memory that comes later, can be written, each to a place of its own, and what one CPU writes all CPUs
/// read. No other code writes any of it.
///
/// # Errors
/// [`PieceTooSmall`] says how many bytes would do; then nothing was written.
pub unsafe fn in_range<P, S>(
    plan: &Plan,
    start: NonNull<u8>,
    piece: &'static mut [MaybeUninit<u8>],
) -> Result<Storage<'static, P, S>, PieceTooSmall>
where
    P: Platform<Byte = AtomicU8, Word = AtomicU64>,
    S: Policy,
{
    let layout = Layout::of::<S>(plan);
    let mut rest = Rest::new(piece, piece_bytes::<P, S>(plan))?;
    let place = |part| {
        // SAFETY: inside the range: the layout's bytes are there, by contract.
        unsafe { start.add(layout.start(part) as usize) }
    };
    let states = |_: &mut Rest<'static>, count: u64| {
        let bytes = place(TablePart::States).cast::<AtomicU8>();
        // SAFETY: the layout has room for them; they can be read, are zero, which is a value, and stay, by
        // contract. That some cannot be written does not matter: the allocator only loads those.
        unsafe { core::slice::from_raw_parts(bytes.as_ptr(), count as usize) }
    };
    let words = |rest: &mut Rest<'static>, part: TablePart, count: u64| {
        if !part.is_by_frames::<S>() {
            return &*rest.table(count, || AtomicU64::new(0));
        }
        let words = place(part).cast::<AtomicU64>();
        // SAFETY: as above; aligned, as each table begins at a page. A load of a word is no wider than what
        // the targets load from read-only memory, where pointers have 64 bits.
        unsafe { core::slice::from_raw_parts(words.as_ptr(), count as usize) }
    };
    const { assert!(size_of::<usize>() == 8, "loads of words are wider than those of pointers") };
    Ok(lay_out(&TableSize::of::<S>(plan), &mut rest, states, words))
}

//! The seam at a zone's free memory: what the rest of the allocator may ask of it, whichever way
//! it is kept.
//!
//! The words are blocks, pageblocks, ranges and counts. Outside this room the policies for per-CPU pages
//! alone know which way it is: each works on one, `pcp/linked*.rs` on lists and their links, `pcp/stack/`
//! on a map's bits. Presets name a way, and `policy/sound.rs` those that may be relied on.

use super::{ZoneEvents, ZoneInstance, ZoneView};
use crate::boot::plan::{Plan, ZoneSpec};
use crate::frame::FrameState;
use crate::platform::Platform;
use crate::trace::Trace;
use crate::types::counts::FreeCounts;
use crate::types::error::RangeError;
use crate::types::migrate_type::MigrateType;
use crate::types::request::Request;
use crate::types::units::Order;
use crate::zone::tables::{NR_FREE_WORDS, ZoneTables};
use core::ops::Range;

/// What a request may use beyond free memory of its own migrate type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AllocFlags {
    /// The high-atomic reserve.
    pub high_atomic: bool,
    /// Pageblocks of other migrate types.
    pub fallback: bool,
}

impl AllocFlags {
    /// No reserve, but other migrate types where its own has run out.
    pub const NORMAL: Self = Self { high_atomic: false, fallback: true };
}

/// What a zone publishes at the end of a hold, for those who look without the lock.
#[derive(Clone, Copy, Debug)]
pub struct Published {
    /// Free frames that requests may have.
    pub free: u64,
    /// Of those, the ones in high-atomic and in CMA pageblocks.
    pub special: [u64; 2],
}

/// What a zone has free and what it has counted, at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Snapshot {
    /// Free blocks by order and migrate type.
    pub counts: FreeCounts,
    /// Free frames that requests may have.
    pub free: u64,
    /// Counters.
    pub events: ZoneEvents,
    /// Pageblocks in the high-atomic reserve.
    pub high_atomic_pageblocks: u32,
    /// Single frames whose merging was skipped.
    pub merge_skipped: u32,
}

/// What came of a block that compaction moved away from.
#[derive(Clone, Copy, Debug)]
pub struct Vacated {
    /// A block of the wanted order has formed.
    pub formed: bool,
    /// The request that it was made for took it.
    pub taken: Option<u32>,
}

/// A free place as [`FreeMemory::visit`] meets it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FreePlace {
    /// A free block, of which some table entries have been written.
    Block {
        /// Its order.
        order: Order,
        /// The migrate type that it is free for.
        migrate: MigrateType,
    },
    /// A largest block that is untouched since boot, or was [given back](FreeMemory::free_given_back).
    Untouched,
}

/// A free block's cluster of the 2018 series, for checkers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClusterMembers {
    /// Its number in the zone.
    pub number: u32,
    /// The frame nearest to the tail of the list.
    pub tail: u32,
    /// How many frames.
    pub count: u32,
    /// How many of them are merge-skipped.
    pub skipped: u32,
}

/// A way to keep what is free in a zone. Implemented here only; a preset names one.
///
/// Frames are named by their index in the frame table, and a block by its first frame. Each
/// function takes the zone lock by itself where it needs it; none calls the host (I-7).
pub trait FreeMemory: Sized + Send + Sync + 'static {
    /// What the zone lock guards.
    type Held: Send;
    /// What a zone has of it beside the lock: fixed once the zone is set up, or atomic.
    type Part<P: Platform>: Send + Sync;

    /// Whether the zone lock guards what is free: then a request that the CPU's pages do not serve
    /// takes it.
    const LOCKED: bool;
    /// Whether single frames may stay unmerged for a time (I-5).
    const SKIPS_MERGES: bool;
    /// Whether batches of single frames are cut off in one step and marked later, so that those
    /// who read states by pfn have to hold that off (see [`hold_off_batches`](Self::hold_off_batches)).
    const CUTS_BATCHES: bool;
    /// Whether a full batch goes in as one cluster.
    const JOINS_BATCHES: bool;

    /// Whether a free block of `order` may have a free buddy (I-5).
    #[must_use]
    fn defers(order: Order) -> bool;

    /// Takes a block from its holder, who frees it: the state `from` of the frame at `offset`, which is
    /// allocated, becomes `to`. `false`, and no change, if it has another state or lies outside the
    /// table. Whether of two CPUs that free one block at the same instant just one is told `true`
    /// says each way by itself.
    #[must_use]
    fn release<P: Platform>(
        table: &ZoneTables<'_, P>,
        offset: usize,
        from: FrameState,
        to: FrameState,
    ) -> bool;

    /// How many words each slice of [`FreeWords`](super::tables::FreeWords) needs; `batch` says how
    /// many frames per-CPU pages move at once in a zone, from how many it manages.
    fn words(plan: &Plan, batch: &dyn Fn(u64) -> u32) -> [u64; NR_FREE_WORDS];
    /// Whether the words of a slice are those of single frames or pageblocks, so that they can come with the
    /// memory; else a slice is there from the start.
    const BY_FRAMES: [bool; NR_FREE_WORDS];
    /// Calls `visit` with the words, of slices that come with the memory, that are read or written for frames of
    /// the table's whole pageblocks `frames`: which slice, and which of its words.
    fn words_of(plan: &Plan, frames: Range<u64>, visit: &mut dyn FnMut(usize, Range<u64>));
    /// A zone with nothing free.
    fn vacant() -> Self::Held;
    /// The same, beside the lock.
    fn part<P: Platform>() -> Self::Part<P>;
    /// Sets up zone after zone, in the order of the plan: gives it its words, and makes its usable
    /// memory free. `used` counts the words given out so far.
    fn set_up<P: Platform>(
        zone: &mut ZoneInstance<P, Self>,
        table: &ZoneTables<'_, P>,
        plan: &Plan,
        spec: &ZoneSpec,
        batch: &dyn Fn(u64) -> u32,
        used: &mut [u64; NR_FREE_WORDS],
    );
    /// Sets what follows from a zone's size: the batch of its per-CPU pages, and how many pageblocks
    /// the high-atomic reserve may have.
    fn resize<P: Platform>(view: ZoneView<'_, P, Self>, batch: u32, high_atomic_limit: u32);
    /// Books the work of the hold that ends; the counts to publish, if the lock guards them.
    fn end_hold(held: &mut Self::Held) -> Option<Published>;
    /// Counts work that a hold did for others: a frame or a pageblock looked at.
    fn count_work(held: &mut Self::Held, work: u32);

    /// Takes a block of `order` and marks it allocated.
    fn take_block<P: Platform, T: Trace>(
        view: ZoneView<'_, P, Self>,
        order: Order,
        migrate: MigrateType,
        flags: AllocFlags,
    ) -> Option<u32>;
    /// Frees the block at `index` if it is allocated with `order`, after `freed` was told; `false`,
    /// and no change, if it is not.
    fn free_block<P: Platform>(
        view: ZoneView<'_, P, Self>,
        index: u32,
        order: Order,
        freed: impl FnOnce(),
    ) -> bool;
    /// As [`free_block`](Self::free_block) for memory that the host has taken back: what of it is whole is used
    /// after what was in use since, where free memory is kept so.
    fn free_given_back<P: Platform>(
        view: ZoneView<'_, P, Self>,
        index: u32,
        order: Order,
        freed: impl FnOnce(),
    ) -> bool {
        Self::free_block(view, index, order, freed)
    }
    /// As [`free_block`](Self::free_block), merged at once whatever the policy.
    fn free_block_merged<P: Platform>(
        view: ZoneView<'_, P, Self>,
        index: u32,
        order: Order,
    ) -> bool;

    /// What the frame at `index` heads at this moment: free blocks, and what its state byte says.
    #[must_use]
    #[inline(always)]
    fn state<P: Platform>(view: ZoneView<'_, P, Self>, index: u32) -> FrameState {
        view.table.state(index)
    }
    /// The block that the frame at `index` is in at this moment: its first frame, and what that
    /// heads. `None` for a frame that is nowhere, or untouched, or never managed.
    #[must_use]
    fn locate<P: Platform>(view: ZoneView<'_, P, Self>, index: u32) -> Option<(u32, FrameState)> {
        view.table.locate(index)
    }

    /// Looks at what is free itself for a block of `order` that `request` may have, because nothing
    /// that leads there did. Whether there is one, to which something leads now. Lists mislead no
    /// request.
    #[must_use]
    fn look_again<P: Platform>(view: ZoneView<'_, P, Self>, request: &Request) -> bool {
        let _ = (view, request);
        false
    }

    /// Free blocks by order and migrate type, untouched ones included.
    fn counts<P: Platform>(view: ZoneView<'_, P, Self>) -> FreeCounts;
    /// Free frames of the types that `wanted` names.
    fn frames_of<P: Platform>(
        view: ZoneView<'_, P, Self>,
        wanted: impl Fn(MigrateType) -> bool,
    ) -> u64;
    /// Whether a free block of `order` or larger is there for some request; `cma`: one that may
    /// have CMA frames.
    fn has_block<P: Platform>(view: ZoneView<'_, P, Self>, order: Order, cma: bool) -> bool;
    /// What the zone has and what it has counted, all of one moment.
    fn snapshot<P: Platform>(view: ZoneView<'_, P, Self>) -> Snapshot;
    /// Calls `visit` with every free block, the zone lock held.
    fn visit<P: Platform>(view: ZoneView<'_, P, Self>, visit: &mut dyn FnMut(u32, FreePlace));
    /// Calls `visit` with the free single frames of `migrate` and their clusters; returns how many
    /// entries of the zone's array of clusters are in use. For checkers, the zone lock held.
    fn visit_clusters<P: Platform>(
        view: ZoneView<'_, P, Self>,
        migrate: MigrateType,
        visit: &mut dyn FnMut(u32, Option<ClusterMembers>),
    ) -> u32;

    /// Adds the pageblock of the allocated block at `index` to the high-atomic reserve if there is
    /// room for it.
    fn reserve_high_atomic<P: Platform>(view: ZoneView<'_, P, Self>, index: u32, order: Order);
    /// Gives one pageblock of the reserve that has free frames to `migrate`; `false` if there is
    /// none.
    fn unreserve_high_atomic<P: Platform>(
        view: ZoneView<'_, P, Self>,
        migrate: MigrateType,
    ) -> bool;
    /// Gives pageblocks of the reserve back in the largest block that starts at `group`, below
    /// `end`, if the reserve is larger than its limit; `false` if it is not.
    fn shrink_reserve<P: Platform>(view: ZoneView<'_, P, Self>, group: u32, end: u32) -> bool;

    /// Isolates the pageblock that starts at `start`, which is not set apart any more then; of `frames` none may be allocated in it if its
    /// frames cannot be moved.
    ///
    /// # Errors
    /// [`RangeError::Isolated`], [`RangeError::Unmovable`]; then nothing has changed.
    fn isolate_pageblock<P: Platform>(
        view: ZoneView<'_, P, Self>,
        start: u32,
        frames: &Range<u32>,
    ) -> Result<(), RangeError>;
    /// Gives an isolated pageblock its type back. One of the high-atomic reserve goes back there if it is as
    /// though it had not been isolated (`undo`), and there is room still; else it is movable.
    fn end_isolation<P: Platform>(view: ZoneView<'_, P, Self>, start: u32, undo: bool);
    /// Sets the pageblock that starts at `start` apart while it is evacuated: what is freed there
    /// is kept from requests.
    fn set_apart<P: Platform>(view: ZoneView<'_, P, Self>, start: u32);
    /// Gives the pageblock that is set apart its type back, if there is one.
    fn rejoin<P: Platform>(view: ZoneView<'_, P, Self>);

    /// Whether the largest block at `head` is untouched since boot.
    fn is_untouched<P: Platform>(view: ZoneView<'_, P, Self>, head: u32) -> bool;
    /// Makes the start of `at..end`, in pageblocks of the zone, free, at most `most` blocks of it;
    /// returns where it stopped. One hold.
    fn free_range<P: Platform>(view: ZoneView<'_, P, Self>, at: u32, end: u32, most: u32) -> u32;
    /// Takes what `frames` begins with of the free memory there, in an isolated pageblock, and marks
    /// it frame by frame; returns where it stopped. One hold.
    fn take_isolated<P: Platform>(
        view: ZoneView<'_, P, Self>,
        frames: Range<u32>,
        mark: FrameState,
    ) -> Option<u32>;
    /// Frees single frames that are allocated, merged, in bounded holds.
    fn free_frames<P: Platform>(view: ZoneView<'_, P, Self>, frames: Range<u32>);
    /// Makes the start of `at..end`, pageblocks that are not there, the zone's, movable and free;
    /// returns where it stopped. One hold.
    fn bring<P: Platform>(view: ZoneView<'_, P, Self>, at: u32, end: u32) -> u32;
    /// Makes the start of `at..end`, pageblocks whose frames were all taken, and are in no place,
    /// no zone's; returns where it stopped. One hold.
    fn withdraw<P: Platform>(view: ZoneView<'_, P, Self>, at: u32, end: u32) -> u32;

    /// Takes the free block at `index` as a place to move a block of `order` to, and marks it
    /// allocated; `false` if it is not free with at least that order and less than `wanted`, or
    /// `fits` says no.
    fn take_target<P: Platform>(
        view: ZoneView<'_, P, Self>,
        index: u32,
        order: Order,
        wanted: Order,
        fits: impl Fn() -> bool,
    ) -> bool;
    /// Frees the block at `from`, which the host has moved away from, if it is allocated with
    /// `order`; if a block of `wanted` forms, what was set apart rejoins and `request` takes the
    /// block in the same hold. `None`, and no change, if it is not allocated so.
    fn vacate_block<P: Platform>(
        view: ZoneView<'_, P, Self>,
        from: u32,
        order: Order,
        wanted: Order,
        request: Option<&Request>,
    ) -> Option<Vacated>;
    /// Whether a block of `wanted` has formed around `start`; then as in
    /// [`vacate_block`](Self::vacate_block).
    fn formed_at<P: Platform>(
        view: ZoneView<'_, P, Self>,
        start: u32,
        wanted: Order,
        request: Option<&Request>,
    ) -> Vacated;
    /// Merges the frame at `index` if its merging was skipped and its buddy is free.
    fn merge_at<P: Platform>(view: ZoneView<'_, P, Self>, indexes: Range<u32>) -> u32;
    /// Until [`let_batches`](Self::let_batches) no merge is skipped and no batch is cut off.
    fn hold_off_batches<P: Platform>(view: ZoneView<'_, P, Self>);
    /// Takes back one [`hold_off_batches`](Self::hold_off_batches).
    fn let_batches<P: Platform>(view: ZoneView<'_, P, Self>);
}

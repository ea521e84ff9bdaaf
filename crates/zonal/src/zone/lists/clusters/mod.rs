//! Whether the order-0 frames on the buddy lists belong to clusters, so that a batch can be cut
//! off a list in O(1).
//!
//! - Source: Lu 2018, patch 3 ([`Cut`]) and patch 4 ([`CutAndJoin`]), on Linux 4.16.
//! - Mechanism: neighbours on an order-0 list share a cluster of at most `batch` frames, which
//!   knows its tail and its count. A refill cuts whole clusters off the head of the list under
//!   the zone lock, and clears the frames' states when it has let the lock go. In between they
//!   look free and are on no list: `in_progress` counts the CPUs that are cutting, and a CPU that
//!   looks at single frames by pfn waits, lock in hand, until it is 0. On the way back each frame is
//!   linked, counted and put into its neighbour's cluster by itself under the lock, and the bitmap is
//!   changed by locked instructions, as in the source: that costs the 25 % of parallel free that patch 4
//!   was made for. Patch 4: a full batch of movable frames becomes a cluster of its own, with one
//!   count, linked as it was in the CPU's cache; all others come as in patch 3.
//! - State, guarded by the zone lock: the tails and counts in an array with a bitmap and a
//!   hint to the lowest free entry; a word a frame that names its cluster. `in_progress` is
//!   raised under the lock and lowered without it.
//! - Conflicts with merging single frames, which looks at buddies by pfn: a batch is cut only
//!   while merging is skipped, and merging waits for those who are cutting.
//! - Conflicts with interrupt handlers that allocate or free on a CPU whose cache has an
//!   owner: a handler that comes while the owner is cutting waits for it for ever. Slots that turn
//!   interrupts off are safe; an owner has to do it himself.
//! - An array that is full is not an error: the frame goes on its list without a cluster. Zones
//!   whose batch is 1 have no array.
//! - Counters: `cluster_cuts`, `cluster_joins`, `cluster_waits` in the zone's events.
//! - Tests: `loom_cutting.rs` (and a canary that does not wait), `clusters.rs`, the suites.
//!
//! ```
//! use zonal::policy::cluster::{Clusters, Cut, None};
//! assert_eq!(<None as Clusters>::cluster_words(1 << 20, 31), 0, "off: no memory");
//! let clusters = (1_u64 << 20).div_ceil(31);
//! assert_eq!(<Cut as Clusters>::cluster_words(1 << 20, 31), 1 + clusters.div_ceil(64) + clusters);
//! assert_eq!(<Cut as Clusters>::cluster_words(1 << 9, 1), 0, "small zones have none");
//! ```

use crate::platform::Platform;
mod array;
mod words;

pub use array::{ClusterArray, Members};
use core::fmt;
pub use words::ClusterWords;

/// Whether there are clusters on the order-0 lists, and how they come to be.
pub trait Clusters: Send + Sync + 'static {
    /// Whether frames belong to clusters at all; if not, every function here is empty.
    const CUT: bool;
    /// Whether a full batch of one migrate type goes in as one cluster.
    const JOIN: bool;
    /// What the zone lock guards.
    type Zone: fmt::Debug + Send;
    /// A zone without clusters.
    const VACANT: Self::Zone;

    /// Words of caller's memory that a zone of `managed` frames with this batch needs.
    fn cluster_words(managed: u64, batch: u32) -> u64;
    /// Gives the zone its words, from `first` on, all zero and as many as `cluster_words` says. There
    /// are clusters from [`set_batch`](Self::set_batch) on.
    fn tune(zone: &mut Self::Zone, first: u64, managed: u64, batch: u32);
    /// Lets clusters have `batch` frames, if that is more than before: the zone has grown.
    fn set_batch(zone: &mut Self::Zone, batch: u32);

    /// The frame at `index`, merge-skipped or not, came to one end of an order-0 list;
    /// `neighbour` is the frame that was at that end before. `last`: that end is the tail.
    fn joined<P: Platform>(
        zone: &mut Self::Zone,
        words: ClusterWords<'_, P>,
        index: u32,
        skipped: bool,
        neighbour: Option<u32>,
        last: bool,
    );
    /// The frame at `index` is about to leave its list; `before` is the one nearer to the head.
    fn leaving<P: Platform>(
        zone: &mut Self::Zone,
        words: ClusterWords<'_, P>,
        index: u32,
        skipped: bool,
        before: Option<u32>,
    );
    /// Ends the cluster that begins at `head` if it has at most `most` frames.
    fn end<P: Platform>(
        zone: &mut Self::Zone,
        words: ClusterWords<'_, P>,
        head: u32,
        most: u64,
    ) -> Option<Members>;
    /// A new cluster, by its number; `None` when the array is full.
    fn begin<P: Platform>(
        zone: &mut Self::Zone,
        words: ClusterWords<'_, P>,
        members: Members,
    ) -> Option<u32>;

    /// The number and the members of a listed frame's cluster, for checkers.
    fn find<P: Platform>(
        zone: &Self::Zone,
        words: ClusterWords<'_, P>,
        index: u32,
    ) -> Option<(u32, Members)>;
    /// Entries in use, for checkers. O(entries / 64).
    fn used<P: Platform>(zone: &Self::Zone, words: ClusterWords<'_, P>) -> u32;

    /// This CPU begins to cut; with the zone lock held.
    fn cut<P: Platform>(zone: &Self::Zone, words: ClusterWords<'_, P>) -> Cutting;
    /// Waits until no CPU is cutting; with the zone lock held, so none begins.
    /// `true` if there was one.
    fn wait<P: Platform>(zone: &Self::Zone, words: ClusterWords<'_, P>) -> bool;
}

/// A batch of a zone is being cut off: frames look free that are on no list. Ends by `end`; a CPU that drops
/// it instead makes others wait for ever.
#[derive(Debug)]
#[must_use]
pub struct Cutting {
    word: u64,
}

impl Cutting {
    /// The frames' states are what they should be.
    pub(crate) fn end<P: Platform>(self, words: ClusterWords<'_, P>) {
        words.end_cutting(self.word);
    }
}

/// No clusters: batches are taken off the lists frame by frame.
#[derive(Clone, Copy, Debug)]
pub struct None;

impl Clusters for None {
    const CUT: bool = false;
    const JOIN: bool = false;
    type Zone = ();
    const VACANT: () = ();

    fn cluster_words(_: u64, _: u32) -> u64 {
        0
    }
    fn tune((): &mut (), _: u64, _: u64, _: u32) {}
    fn set_batch((): &mut (), _: u32) {}
    #[inline(always)]
    fn joined<P: Platform>(
        (): &mut (),
        _: ClusterWords<'_, P>,
        _: u32,
        _: bool,
        _: Option<u32>,
        _: bool,
    ) {
    }
    #[inline(always)]
    fn leaving<P: Platform>((): &mut (), _: ClusterWords<'_, P>, _: u32, _: bool, _: Option<u32>) {}
    #[inline(always)]
    fn end<P: Platform>((): &mut (), _: ClusterWords<'_, P>, _: u32, _: u64) -> Option<Members> {
        Option::None
    }
    #[inline(always)]
    fn begin<P: Platform>((): &mut (), _: ClusterWords<'_, P>, _: Members) -> Option<u32> {
        Option::None
    }
    fn find<P: Platform>((): &(), _: ClusterWords<'_, P>, _: u32) -> Option<(u32, Members)> {
        Option::None
    }
    fn used<P: Platform>((): &(), _: ClusterWords<'_, P>) -> u32 {
        0
    }
    #[inline(always)]
    fn cut<P: Platform>((): &(), _: ClusterWords<'_, P>) -> Cutting {
        Cutting { word: 0 }
    }
    #[inline(always)]
    fn wait<P: Platform>((): &(), _: ClusterWords<'_, P>) -> bool {
        false
    }
}

/// Implements [`Clusters`] over [`ClusterArray`].
macro_rules! over_cluster_array {
    ($policy:ty, join: $join:literal) => {
        impl Clusters for $policy {
            const CUT: bool = true;
            const JOIN: bool = $join;
            type Zone = ClusterArray;
            const VACANT: ClusterArray = ClusterArray::VACANT;

            fn cluster_words(managed: u64, batch: u32) -> u64 {
                ClusterArray::words(managed, batch)
            }
            fn tune(zone: &mut ClusterArray, first: u64, managed: u64, batch: u32) {
                *zone = ClusterArray::new(first, managed, batch);
            }
            fn set_batch(zone: &mut ClusterArray, batch: u32) {
                zone.set_batch(batch);
            }
            #[inline(always)]
            fn joined<P: Platform>(
                zone: &mut ClusterArray,
                words: ClusterWords<'_, P>,
                index: u32,
                skipped: bool,
                neighbour: Option<u32>,
                last: bool,
            ) {
                zone.joined(words, index, skipped, neighbour, last);
            }
            fn leaving<P: Platform>(
                zone: &mut ClusterArray,
                words: ClusterWords<'_, P>,
                index: u32,
                skipped: bool,
                before: Option<u32>,
            ) {
                zone.leaving(words, index, skipped, before);
            }
            fn end<P: Platform>(
                zone: &mut ClusterArray,
                words: ClusterWords<'_, P>,
                head: u32,
                most: u64,
            ) -> Option<Members> {
                zone.end(words, head, most)
            }
            fn begin<P: Platform>(
                zone: &mut ClusterArray,
                words: ClusterWords<'_, P>,
                members: Members,
            ) -> Option<u32> {
                zone.begin(words, members)
            }
            fn find<P: Platform>(
                zone: &ClusterArray,
                words: ClusterWords<'_, P>,
                index: u32,
            ) -> Option<(u32, Members)> {
                zone.find(words, index)
            }
            fn used<P: Platform>(zone: &ClusterArray, words: ClusterWords<'_, P>) -> u32 {
                zone.used(words)
            }
            fn cut<P: Platform>(zone: &ClusterArray, words: ClusterWords<'_, P>) -> Cutting {
                words.begin_cutting(zone.first);
                Cutting { word: zone.first }
            }
            fn wait<P: Platform>(zone: &ClusterArray, words: ClusterWords<'_, P>) -> bool {
                zone.wait(words)
            }
        }
    };
}

/// Batches are cut off the list whole; frames that come back join their neighbour's cluster one
/// by one (patch 3).
#[derive(Clone, Copy, Debug)]
pub struct Cut;

/// As [`Cut`], and a full batch of movable frames becomes a cluster at once (patch 4).
#[derive(Clone, Copy, Debug)]
pub struct CutAndJoin;

over_cluster_array!(Cut, join: false);
over_cluster_array!(CutAndJoin, join: true);

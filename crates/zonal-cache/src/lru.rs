//! Under which lock the policy's lists are, and how many pages change them in one hold: types.
//!
//! | type | the lock | a batch | as in |
//! |---|---|---|---|
//! | [`Whole`], the default | one for all | what came together | |
//! | [`PerZone`] | one for each zone | 14 | Linux 3.16 |
//! | [`PerNode`] | one for each node | 15 | Linux 4.8 to 5.10; 14 before 4.15 |
//! | [`PerOwner`] | one for each owner, of which some share | 15 | Linux since 5.11, by memory cgroup |
//!
//! The lists of one lock are a [policy](crate::evict) of their own, whichever it is: the two lists of a zone, the
//! queue and hand of an owner. Which one gives a page up follows from their lengths, in turn.
//!
//! A page that came waits in a batch of its CPU (`pagevec`) until that is full, and is then listed with the
//! others; where no listed page can go, those that wait do. Pages that leave together are taken off, and
//! their frames freed, a batch at a time. A page in a batch is in no list: the policy does not know of it yet.
//!
//! [`OfPreset`] has what the kernel did whose allocator a preset is.
//!
//! ```
//! use zonal::preset::{Linux316, Linux416};
//! use zonal_cache::lru::{LruLock, OfPreset, PerNode};
//! use zonal_cache::{Cache, MemoryStore, TwoLists};
//! fn name<P: OfPreset>() -> (&'static str, usize) { (P::Lru::NAME, P::Lru::BATCH) }
//! assert_eq!((name::<Linux316>(), name::<Linux416>()), (("zone", 14), ("node", 15)));
//! let cache = Cache::<TwoLists, PerNode>::builder().memory(1 << 20).open()?;
//! let file = cache.open(MemoryStore::from(vec![1; 100_000]))?;
//! file.read_at(&mut [0; 100_000], 0)?;
//! assert_eq!(cache.lists().iter().map(|list| list.file).sum::<usize>() + cache.waiting(), 25);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use crate::frames::Frames;
use zonal::Pfn;
use zonal::policy::Policy;
use zonal::preset::{
    Cluster, ClusterFree, FairZone, FairZonePosted, LessDirty, Linux63, Linux316, Linux413,
    Linux416, SkipMerge, SplitZones, SplitZonesByCpu, Trusting, Zonal,
};

/// Lists at most.
pub const MOST_LISTS: usize = 256;
/// Pages of a batch at most.
pub const MOST_BATCH: usize = 31;

/// Where the lock of the lists is: see the [module](self).
pub trait LruLock: Send + Sync + 'static {
    /// What it is called.
    const NAME: &'static str;
    /// Pages that a CPU collects before it lists them, and that leave in one hold; 1 for none: then pages are
    /// listed as they come, and all that leave together leave in one hold. At most [`MOST_BATCH`].
    const BATCH: usize;

    /// Whether pages that came together may be one entry of a list, a [block](crate::evict::Evict::insert_block), which waits in
    /// no batch. Linux has such since 5.16, as large folios.
    const BLOCKS: bool = false;

    /// How many locks there are, over these frames. At most [`MOST_LISTS`].
    fn lists<M: Frames>(frames: &M) -> usize;

    /// Which is that of a page, by its frame and its owner, which is the number of its file. Taken modulo their
    /// count. The same frame and owner give the same each time.
    fn list_of<M: Frames>(frames: &M, frame: Pfn, owner: u64) -> usize;

    /// Whether a list may have pages of a zone: who has pages of that zone go looks at no other. The default says that each may.
    fn may_have<M: Frames>(_frames: &M, _list: usize, _zone: usize) -> bool {
        true
    }
}

/// One lock for all.
#[derive(Clone, Copy, Debug)]
pub struct Whole;

impl LruLock for Whole {
    const NAME: &'static str = "whole";
    const BATCH: usize = 1;
    const BLOCKS: bool = true;
    fn lists<M: Frames>(_: &M) -> usize {
        1
    }
    #[inline(always)]
    fn list_of<M: Frames>(_: &M, _: Pfn, _: u64) -> usize {
        0
    }
}

/// One for each zone.
#[derive(Clone, Copy, Debug)]
pub struct PerZone<const BATCH: usize = 14>;

impl<const BATCH: usize> LruLock for PerZone<BATCH> {
    const NAME: &'static str = "zone";
    const BATCH: usize = BATCH;
    fn lists<M: Frames>(frames: &M) -> usize {
        frames.zones().0
    }
    fn list_of<M: Frames>(frames: &M, frame: Pfn, _: u64) -> usize {
        frames.zone_of(frame).0
    }
    fn may_have<M: Frames>(_: &M, list: usize, zone: usize) -> bool {
        // Of more zones than lists some share one.
        list == zone % MOST_LISTS
    }
}

/// One for each node.
#[derive(Clone, Copy, Debug)]
pub struct PerNode<const BATCH: usize = 15>;

impl<const BATCH: usize> LruLock for PerNode<BATCH> {
    const NAME: &'static str = "node";
    const BATCH: usize = BATCH;
    fn lists<M: Frames>(frames: &M) -> usize {
        frames.zones().1
    }
    fn list_of<M: Frames>(frames: &M, frame: Pfn, _: u64) -> usize {
        frames.zone_of(frame).1
    }
}

/// `LISTS` locks, which owners have by their numbers.
#[derive(Clone, Copy, Debug)]
pub struct PerOwner<const BATCH: usize = 15, const LISTS: usize = 16>;

impl<const BATCH: usize, const LISTS: usize> LruLock for PerOwner<BATCH, LISTS> {
    const NAME: &'static str = "owner";
    const BATCH: usize = BATCH;
    const BLOCKS: bool = true;
    fn lists<M: Frames>(_: &M) -> usize {
        LISTS
    }
    fn list_of<M: Frames>(_: &M, _: Pfn, owner: u64) -> usize {
        (owner % LISTS as u64) as usize
    }
}

/// What the kernel did whose allocator a preset is.
pub trait OfPreset: Policy {
    /// The lock, and the batch of its version.
    type Lru: LruLock;
}

macro_rules! of_presets {
    ($($preset:ty: $lru:ty,)+) => {$(
        impl OfPreset for $preset {
            type Lru = $lru;
        }
    )+};
}

of_presets! {
    Linux316: PerZone<14>,
    FairZonePosted: PerZone<14>,
    FairZone: PerZone<14>,
    LessDirty: PerZone<14>,
    Linux413: PerNode<14>,
    Linux416: PerNode<15>,
    SkipMerge: PerNode<15>,
    Cluster: PerNode<15>,
    ClusterFree: PerNode<15>,
    Linux63: PerOwner<15>,
    SplitZones: PerOwner<15>,
    SplitZonesByCpu: PerOwner<15>,
    // No kernel's: what scales best of these.
    Trusting: PerOwner<15>,
    Zonal: PerOwner<15>,
}

//! Under which lock LRU lists are, and which of these a preset names.

use crate::run::Preset;
use zonal::preset;
use zonal_cache::lru::{self, OfPreset, PerNode, PerOwner, PerZone, Whole};

/// The lock of the LRU lists.
///
/// ```
/// use zonal_sim::run::{LruLock, Preset};
///
/// let of = |preset| LruLock::of(preset).name();
/// assert_eq!((of(Preset::Linux316), of(Preset::Linux416)), ("zone", "node"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LruLock {
    /// One for all.
    Whole,
    /// One for each zone, as in Linux 3.16. Instances of a zone type are one zone here.
    Zone,
    /// One for each node, as in Linux 4.8 to 5.10.
    Node,
    /// Split by owner, as in Linux since 5.11, where each CPU's task is one.
    Split,
    /// None: each CPU lists its own pages, and none takes or waits for a lock.
    None,
}

impl LruLock {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Whole, Self::Zone, Self::Node, Self::Split, Self::None];

    /// Its name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Whole => "whole",
            Self::Zone => "zone",
            Self::Node => "node",
            Self::Split => "split",
            Self::None => "none",
        }
    }

    /// That of the kernel whose allocator the preset is, as the [page cache](OfPreset) has it.
    #[must_use]
    pub fn of(preset: Preset) -> Self {
        match preset {
            Preset::Linux416 | Preset::HugeBatch => named::<preset::Linux416>(),
            Preset::SkipMerge => named::<preset::SkipMerge>(),
            Preset::Cluster => named::<preset::Cluster>(),
            Preset::ClusterFree => named::<preset::ClusterFree>(),
            Preset::Linux63 => named::<preset::Linux63>(),
            Preset::SplitZones => named::<preset::SplitZones>(),
            Preset::Linux413 => named::<preset::Linux413>(),
            Preset::Linux316 => named::<preset::Linux316>(),
            Preset::FairZonePosted => named::<preset::FairZonePosted>(),
            Preset::FairZone => named::<preset::FairZone>(),
            Preset::LessDirty => named::<preset::LessDirty>(),
            Preset::Zonal => named::<preset::Zonal>(),
        }
    }
}

/// What the simulator has for a lock of the page cache.
trait Known: lru::LruLock {
    const KIND: LruLock;
}

impl Known for Whole {
    const KIND: LruLock = LruLock::Whole;
}
impl<const BATCH: usize> Known for PerZone<BATCH> {
    const KIND: LruLock = LruLock::Zone;
}
impl<const BATCH: usize> Known for PerNode<BATCH> {
    const KIND: LruLock = LruLock::Node;
}
impl<const BATCH: usize, const LISTS: usize> Known for PerOwner<BATCH, LISTS> {
    const KIND: LruLock = LruLock::Split;
}

fn named<P: OfPreset<Lru: Known>>() -> LruLock {
    <P::Lru as Known>::KIND
}

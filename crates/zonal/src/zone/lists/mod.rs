//! Free memory on buddy lists, by order and migrate type, as Linux keeps it.
//!
//! Everything here is guarded by the zone lock; what may be done with it held are methods of
//! `ListGuard`, the zone lock's guard. Two policies are the lists' own: when buddies are merged
//! ([`merge`]), and whether single frames belong to the clusters of the 2018 series ([`clusters`]).

mod batch;
mod buddy;
pub mod clusters;
mod fallback;
mod free_area;
mod high_atomic;
pub mod merge;
mod moves;
mod ranges;
mod seam;
mod set_up;
mod untouched;

use crate::frame::links::Links;
use crate::platform::Platform;
use crate::zone::tables::ZoneTables;
use crate::zone::{ZoneGuard, ZoneView};
use clusters::{ClusterWords, Clusters};
use core::marker::PhantomData;
use merge::Merge;

/// Buddy lists, whose blocks are merged as `M` says and whose single frames are clustered as `C`
/// says.
#[derive(Clone, Copy, Debug)]
pub struct BuddyLists<M, C = clusters::None>(PhantomData<(M, C)>);

/// The lock of a zone with buddy lists is held.
pub(crate) type ListGuard<'a, P, M, C> = ZoneGuard<'a, P, BuddyLists<M, C>>;
/// A zone with buddy lists.
pub(crate) type ListView<'a, P, M, C> = ZoneView<'a, P, BuddyLists<M, C>>;

// What each slice of words is for.
/// A link word a frame, used while the frame heads a block on a list of the zone or of a CPU.
const LINKS: usize = 0;
/// The arrays of clusters.
const CLUSTER_ARRAY: usize = 1;
/// A word a frame that names its cluster.
const CLUSTER_OF: usize = 2;

#[inline(always)]
fn cluster_words<'a, P: Platform>(tables: &ZoneTables<'a, P>) -> ClusterWords<'a, P> {
    ClusterWords {
        cluster_array: tables.words(CLUSTER_ARRAY),
        cluster_of: tables.words(CLUSTER_OF),
    }
}

impl<'a, P: Platform, M: Merge, C: Clusters> ListGuard<'a, P, M, C> {
    #[inline(always)]
    fn links(&self) -> Links<'a, P> {
        Links(self.table.words(LINKS))
    }

    #[inline(always)]
    fn cluster_words(&self) -> ClusterWords<'a, P> {
        cluster_words(self.table)
    }
}

/// The link words among a zone's tables, for lists of the zone's frames that a CPU keeps.
#[inline(always)]
pub(crate) fn link_words<'a, P: Platform>(tables: &ZoneTables<'a, P>) -> Links<'a, P> {
    Links(tables.words(LINKS))
}

impl<'a, P: Platform, M: Merge, C: Clusters> ListView<'a, P, M, C> {
    #[inline(always)]
    pub(crate) fn links(&self) -> Links<'a, P> {
        Links(self.table.words(LINKS))
    }
}

//! Looking at every frame, for checkers outside the allocator. Meant for a moment when nothing
//! else runs: what is seen while others allocate is a mixture of moments.
//!
//! ```
//! use zonal::inspect::Place;
//! use zonal::Order;
//! let place = Place::Listed { order: Order::MAX, migrate: zonal::MigrateType::Movable };
//! assert!(matches!(place, Place::Listed { .. }));
//! ```

use crate::alloc::allocator::Allocator;
use crate::frame::FrameState;
use crate::platform::Platform;
use crate::policy::FreeMemory;
use crate::policy::PcpPolicy;
use crate::policy::Policy;
use crate::types::migrate_type::MigrateType;
use crate::types::units::{CpuId, Order, Pfn, ZoneId};
use crate::zone::{ClusterMembers, FreePlace};

/// Where a block was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// On a buddy list.
    Listed {
        /// The order of the list.
        order: Order,
        /// The migrate type of the list.
        migrate: MigrateType,
    },
    /// Untouched since boot, or since its memory was given back: a largest block, of the type of its first pageblock.
    Untouched,
    /// In a CPU's cache.
    Cached {
        /// The CPU.
        cpu: CpuId,
        /// The block's order.
        order: Order,
    },
}

/// A cluster on an order-0 list, as the zone's array of clusters describes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ListCluster {
    /// Its number in the zone.
    pub number: u32,
    /// The frame nearest to the list's tail.
    pub tail: Pfn,
    /// How many frames it has.
    pub count: u32,
    /// How many of them are merge-skipped.
    pub skipped: u32,
}

impl From<FreePlace> for Place {
    fn from(place: FreePlace) -> Self {
        match place {
            FreePlace::Block { order, migrate } => Self::Listed { order, migrate },
            FreePlace::Untouched => Self::Untouched,
        }
    }
}

impl Place {
    /// Frames of the block found there.
    #[must_use]
    pub const fn order(self) -> Order {
        match self {
            Self::Listed { order, .. } | Self::Cached { order, .. } => order,
            Self::Untouched => Order::MAX,
        }
    }
}

impl<'m, P: Platform, S: Policy> Allocator<'m, P, S> {
    /// What a frame is: free, if it heads a free block, otherwise what its state byte says; `None`
    /// outside the table.
    #[must_use]
    pub fn frame_state(&self, pfn: Pfn) -> Option<FrameState> {
        let index = self.table.index(pfn)?;
        let zone = self.table.get_pageblock(index).and_then(|word| self.zone(word.zone()?));
        let bare = || self.table.state(index);
        Some(zone.map_or_else(bare, |zone| S::Free::state(self.view(zone), index)))
    }

    /// Zone and migrate type of a frame's pageblock; `None` for a frame of no zone.
    #[must_use]
    pub fn pageblock_of(&self, pfn: Pfn) -> Option<(ZoneId, MigrateType)> {
        let word = self.table.get_pageblock(self.table.index(pfn)?)?;
        Some((word.zone()?, word.migrate()))
    }

    /// Calls `visit` with the first frame and the place of every block of `zone` that is not
    /// handed out. Holds the zone lock and each cache in turn while it visits: `visit` must
    /// not call the allocator.
    pub fn visit_free(&self, zone: ZoneId, visit: &mut dyn FnMut(Pfn, Place)) {
        let Some(zone) = self.zone(zone) else { return };
        let table = &self.table;
        S::Free::visit(self.view(zone), &mut |index, place| {
            visit(table.pfn(index), place.into());
        });
        for cpu in (0..self.cpus()).map(CpuId) {
            let Some(cache) = self.cache_of(cpu, zone.id) else { continue };
            cache.reach(|own| {
                let (pages, out) = own.parts();
                S::Pcp::visit(pages, out, table, &mut |index, order| {
                    visit(table.pfn(index), Place::Cached { cpu, order });
                });
            });
        }
    }

    /// Calls `visit` with every frame on the order-0 list of `migrate` in `zone`, from the head
    /// on, and the cluster that it belongs to; returns how many entries of
    /// the zone's array of clusters are in use. Holds the zone lock while it visits.
    pub fn visit_clusters(
        &self,
        zone: ZoneId,
        migrate: MigrateType,
        visit: &mut dyn FnMut(Pfn, Option<ListCluster>),
    ) -> u32 {
        let Some(zone) = self.zone(zone) else { return 0 };
        let table = &self.table;
        S::Free::visit_clusters(self.view(zone), migrate, &mut |index, members| {
            let cluster = members.map(|ClusterMembers { number, tail, count, skipped }| {
                ListCluster { number, tail: table.pfn(tail), count, skipped }
            });
            visit(table.pfn(index), cluster);
        })
    }
}

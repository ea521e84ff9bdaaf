//! What the host tells of its pages: how many of a zone's are page cache, dirty, on their way to
//! the disk. Dirty limits are worked out from it.
//!
//! ```
//! use zonal::page_state::PageState;
//! assert_eq!(PageState::Dirty.name(), "nr_dirty");
//! ```

use crate::alloc::allocator::Allocator;
use crate::alloc::entry::Entry;
pub use crate::boot::dirty_limit::DirtyLimit;
use crate::frame::PageblockWord;
use crate::platform::Platform;
pub use crate::policy::dirty::counts::{CpuPageStates, PageStates};
use crate::policy::zone::Zone;
use crate::policy::{Dirty, Policy};
pub use crate::types::page_state::{NR_PAGE_STATES, PageState};
use crate::types::request::Request;
use crate::types::units::{Pfn, ZoneId};
use core::fmt;

/// The frame is not one that the allocator manages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotManaged {
    /// The frame.
    pub pfn: Pfn,
}

impl fmt::Display for NotManaged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pfn {} is in no zone of the allocator", self.pfn)
    }
}

impl core::error::Error for NotManaged {}

impl<'m, P: Platform, S: Policy> Allocator<'m, P, S> {
    /// The host counts `change` pages more (or less) in `state`, in the zone of `pfn`. The count
    /// that dirty limits are worked out from follows with a delay of some pages a CPU. Without
    /// effect under presets without dirty limits. O(1).
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example/mod.rs")); }
    /// use zonal::page_state::PageState;
    /// use zonal::{Request, ZoneId};
    /// # example::with_small::<zonal::preset::Zonal>(|allocator| {
    /// let page = allocator.alloc(&Request::frame().write()).unwrap();
    /// for _ in 0..100 {
    ///     allocator.mod_page_state(page.pfn(), PageState::Dirty, 1).unwrap();
    /// }
    /// let zones = (0..allocator.zone_count() as u8).map(ZoneId);
    /// let dirty = zones.filter_map(|zone| allocator.zone_page_state(zone, PageState::Dirty));
    /// assert!((1..=100).contains(&dirty.sum::<u64>()));
    /// # allocator.free(page).unwrap();
    /// # });
    /// ```
    ///
    /// # Errors
    /// [`NotManaged`] if the frame is in no zone.
    pub fn mod_page_state(
        &self,
        pfn: Pfn,
        state: PageState,
        change: i32,
    ) -> Result<(), NotManaged> {
        self.mod_page_state_through(&mut self.shared_entry(), pfn, state, change)
    }

    pub(crate) fn mod_page_state_through<E: Entry<'m, P, S>>(
        &self,
        entry: &mut E,
        pfn: Pfn,
        state: PageState,
        change: i32,
    ) -> Result<(), NotManaged> {
        let word = self.table.pageblock_at(self.table.offset(pfn));
        let zone = word.and_then(PageblockWord::zone).and_then(|id| self.zone(id));
        let Some(zone) = zone else { return Err(NotManaged { pfn }) };
        let Some(states) = S::Dirty::states(&zone.dirty) else { return Ok(()) };
        // A caller that cannot have the CPU's part tells all at once.
        let counted = entry.enter(zone.id, |own| S::Dirty::count(&mut own.dirty, state, change));
        if let Some(change) = counted.unwrap_or(Some(change.into())) {
            states.add(state, change);
        }
        Ok(())
    }

    /// Pages of a zone that the host counts in `state`, as far as the CPUs have told; `None` for
    /// an unknown zone, and under presets without dirty limits.
    #[must_use]
    pub fn zone_page_state(&self, zone: ZoneId, state: PageState) -> Option<u64> {
        S::Dirty::states(&self.zone(zone)?.dirty).map(|states| states.get(state))
    }

    /// How many pages of a zone may be dirty now, without the quarter that some have more;
    /// `None` for an unknown zone, and under presets without dirty limits.
    #[must_use]
    pub fn dirty_limit(&self, zone: ZoneId) -> Option<u64> {
        let zone = self.zone(zone)?;
        S::Dirty::states(&zone.dirty).map(|_| self.zone_dirty_limit(zone))
    }

    /// Whether the zone may have the request's page dirty too.
    #[inline]
    pub(crate) fn may_be_dirtied(&self, zone: &Zone<P, S>, request: &Request) -> bool {
        let states = S::Dirty::states(&zone.dirty);
        let dirty = || {
            use PageState::{Dirty, Unstable, Writeback};
            states.map_or(0, |states| states.sum([Dirty, Unstable, Writeback]))
        };
        let limit = || self.zone_dirty_limit(zone);
        S::Dirty::within_limit::<P>(&zone.dirty, request.is_less_throttled(), dirty, limit)
    }

    /// A request passes the zone over because of its dirty limit.
    pub(crate) fn passed_over_as_dirty(&self, zone: &Zone<P, S>) {
        S::Dirty::passed_over::<P>(&zone.dirty, || self.zone_dirty_limit(zone));
    }

    fn zone_dirty_limit(&self, zone: &Zone<P, S>) -> u64 {
        let all = || self.zones.iter().map(dirtyable).sum();
        self.plan.config().dirty_limit.pages(dirtyable(zone), all)
    }
}

/// Memory of a zone that could be dirty: what is free, less what it keeps back from page cache,
/// and what is page cache.
fn dirtyable<P: Platform, S: Policy>(zone: &Zone<P, S>) -> u64 {
    let Some(states) = S::Dirty::states(&zone.dirty) else { return 0 };
    let free = zone.free();
    let cache = states.sum([PageState::InactiveFile, PageState::ActiveFile]);
    free.saturating_sub(zone.kept_back()) + cache
}

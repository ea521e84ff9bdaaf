//! What the host tells of its pages: how many of a zone's are page cache, dirty, on their way to
//! the disk. Dirty limits are worked out from it.
//!
//! ```
//! use zonal::page_state::PageState;
//! assert_eq!(PageState::Dirty.name(), "nr_dirty");
//! ```

use crate::allocator::Allocator;
use crate::cpu_delta::{CpuDelta, threshold};
use crate::entry::Entry;
use crate::frame::BlockWord;
use crate::keeper::{Keeper, Tuning};
use crate::platform::{AtomicWord, Platform};
use crate::policy::{Dirty, Policy};
use crate::request::Request;
use crate::units::{Pfn, ZoneId};
use crate::zone::Zone;
use core::fmt;
use core::sync::atomic::Ordering::Relaxed;

/// How many states there are.
pub const NR_PAGE_STATES: usize = 5;

/// Something that a host counts its pages by. A page may be in several at once.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum PageState {
    /// Page cache that was not used lately.
    InactiveFile = 0,
    /// Page cache that was.
    ActiveFile = 1,
    /// Page cache that the disk does not have yet.
    Dirty = 2,
    /// Page cache on its way to the disk.
    Writeback = 3,
    /// Page cache that a server has, but not yet on its disk.
    Unstable = 4,
}

impl PageState {
    /// All of them.
    pub const ALL: [Self; NR_PAGE_STATES] =
        [Self::InactiveFile, Self::ActiveFile, Self::Dirty, Self::Writeback, Self::Unstable];

    /// The name that `/proc/zoneinfo` gives it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::InactiveFile => "nr_inactive_file",
            Self::ActiveFile => "nr_active_file",
            Self::Dirty => "nr_dirty",
            Self::Writeback => "nr_writeback",
            Self::Unstable => "nr_unstable",
        }
    }
}

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

/// A zone's counts of pages, as far as the CPUs have told.
#[derive(Debug)]
pub struct PageStates<P: Platform>([P::Word; NR_PAGE_STATES]);

impl<P: Platform> PageStates<P> {
    pub(crate) fn new() -> Self {
        Self(core::array::from_fn(|_| P::Word::new(0)))
    }

    /// Pages in a state. Not below zero, though a CPU that has not told may make the sum so.
    #[inline]
    pub(crate) fn get(&self, state: PageState) -> u64 {
        self.0[state as usize].load(Relaxed).cast_signed().max(0).cast_unsigned()
    }

    fn add(&self, state: PageState, change: i64) {
        self.0[state as usize].fetch_add(change.cast_unsigned(), Relaxed);
    }

    fn sum<const N: usize>(&self, states: [PageState; N]) -> u64 {
        states.iter().map(|&state| self.get(state)).sum()
    }
}

/// What a CPU has counted in a zone and not told yet.
#[derive(Debug)]
pub struct CpuPageStates {
    deltas: [CpuDelta; NR_PAGE_STATES],
    threshold: i32,
}

impl CpuPageStates {
    pub(crate) const fn new() -> Self {
        Self { deltas: [CpuDelta::ZERO; NR_PAGE_STATES], threshold: 1 }
    }

    pub(crate) fn tune(&mut self, tuning: Tuning) {
        self.threshold = threshold(tuning);
    }

    pub(crate) const fn count(&mut self, state: PageState, change: i32) -> Option<i32> {
        self.deltas[state as usize].add(change, self.threshold)
    }
}

impl<'m, P: Platform, S: Policy> Allocator<'m, P, S> {
    /// The host counts `change` pages more (or less) in `state`, in the zone of `pfn`. The count
    /// that dirty limits are worked out from follows with a delay of some pages a CPU. Without
    /// effect under presets without dirty limits. O(1).
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/report/example.rs")); }
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

    pub(crate) fn mod_page_state_through<E: Entry<P, S>>(
        &self,
        entry: &mut E,
        pfn: Pfn,
        state: PageState,
        change: i32,
    ) -> Result<(), NotManaged> {
        let word = self.table.block_at(self.table.offset(pfn));
        let zone = word.and_then(BlockWord::zone).and_then(|id| self.zone(id));
        let Some(zone) = zone else { return Err(NotManaged { pfn }) };
        let Some(states) = S::Dirty::states(&zone.dirty) else { return Ok(()) };
        // Whoever cannot have the CPU's part tells all at once.
        let counted = entry.enter(zone.id, |own| S::Dirty::count(&mut own.dirty, state, change));
        if let Some(change) = counted.unwrap_or(Some(change)) {
            states.add(state, i64::from(change));
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
    let free = zone.free() + S::Keeper::shared::<P>(&zone.keeper);
    let cache = states.sum([PageState::InactiveFile, PageState::ActiveFile]);
    free.saturating_sub(zone.kept_back()) + cache
}

/// How many pages may be dirty.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DirtyLimit {
    /// So many per cent of the memory that could be: 1 to 100.
    Percent(u8),
    /// So many bytes over all zones, each its share.
    Bytes(u64),
}

impl Default for DirtyLimit {
    /// 20 per cent.
    fn default() -> Self {
        Self::Percent(20)
    }
}

impl DirtyLimit {
    /// The limit of a zone that could have `there` dirty pages, `all` zones so many. A limit in
    /// bytes is rounded up to whole pages.
    #[must_use]
    pub fn pages(self, there: u64, all: impl FnOnce() -> u64) -> u64 {
        match self {
            Self::Percent(percent) => crate::watermark::mul_div(there, u64::from(percent), 100),
            Self::Bytes(bytes) => {
                let pages = bytes.div_ceil(crate::units::FRAME_SIZE as u64);
                crate::watermark::mul_div(pages, there, all())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_by_hand() {
        assert_eq!(DirtyLimit::default().pages(1001, || unreachable!()), 200);
        assert_eq!(DirtyLimit::Percent(100).pages(7, || unreachable!()), 7);
        // 1 MiB and a byte: 257 pages, of which a zone with a quarter of the memory has 64.
        assert_eq!(DirtyLimit::Bytes((1 << 20) + 1).pages(25, || 100), 64);
        assert_eq!(DirtyLimit::Bytes(4096).pages(0, || 0), 0);
    }
}

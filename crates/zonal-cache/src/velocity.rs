//! How much reclaim has looked at, by zone. Source of the idea: the velocities that Gorman's patch series report
//! (pages scanned a second, by zone, directly and by `kswapd`).

use crate::cache::PageCache;
use crate::host::Host;
use crate::inner::Setup;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::Relaxed;
use core::time::Duration;
use zonal::platform::{AtomicWord, Platform};

/// Who has pages go.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum By {
    /// The cache, for a page of its own.
    #[default]
    Cache,
    /// A request of another user of the frames, in its middle.
    Direct,
    /// A thread, because this zone is short.
    Background { zone: usize },
}

impl By {
    const fn column(self) -> Option<usize> {
        match self {
            Self::Cache => None,
            Self::Direct => Some(0),
            Self::Background { .. } => Some(1),
        }
    }
}

/// Pages scanned, pages reclaimed.
type Pair<P> = [<P as Platform>::Word; 2];

/// Of each zone, directly and in the background.
pub(crate) struct ZoneCounters<P: Platform>(Box<[[Pair<P>; 2]]>);

impl<P: Platform> ZoneCounters<P> {
    pub(crate) fn new(zones: usize) -> Self {
        let pair = || [(); 2].map(|()| P::Word::new(0));
        Self((0..zones.max(1)).map(|_| [(); 2].map(|()| pair())).collect())
    }

    fn add(&self, by: By, zone: usize, what: usize, pages: u32) {
        if let Some(column) = by.column() {
            // Relaxed: it orders nothing.
            let _ = self.0[zone % self.0.len()][column][what].fetch_add(pages.into(), Relaxed);
        }
    }

    /// Pages are looked at, whose zone and node `place` says; their zone, or `None` if they are of another than is short.
    pub(crate) fn scanned(
        &self,
        by: By,
        pages: u32,
        place: impl Fn() -> (usize, usize),
    ) -> Option<usize> {
        let zone = match by {
            By::Cache => return Some(0),
            By::Direct => place().0,
            By::Background { zone } => Some(place().0).filter(|&it| it == zone)?,
        };
        self.add(by, zone, 0, pages);
        Some(zone)
    }

    pub(crate) fn reclaimed(&self, by: By, zone: usize) {
        self.add(by, zone, 1, 1);
    }

    fn read(&self) -> impl Iterator<Item = [Scans; 2]> {
        let pair = |[scanned, reclaimed]: &Pair<P>| Scans {
            scanned: scanned.load(Relaxed),
            reclaimed: reclaimed.load(Relaxed),
        };
        self.0.iter().map(move |zone| zone.each_ref().map(pair))
    }
}

/// Pages that reclaim has looked at, and that went.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Scans {
    /// Looked at. One that is looked at twice counts twice.
    pub scanned: u64,
    /// Gone.
    pub reclaimed: u64,
}

/// What reclaim did in a zone since the cache was made: see [`PageCache::reclaim_by_zone`].
///
/// ```
/// use std::time::Duration;
/// use zonal_cache::{Scans, ZoneReclaim};
/// let zone = |scanned| ZoneReclaim {
///     background: Scans { scanned, reclaimed: 0 },
///     time: Duration::from_millis(scanned),
///     ..ZoneReclaim::default()
/// };
/// assert_eq!(zone(900).velocity_since(&zone(400)), (0.0, 1000.0), "500 in half a second");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ZoneReclaim {
    /// In the middle of requests.
    pub direct: Scans,
    /// By a [`Reclaimer`](crate::reclaimer) beside them.
    pub background: Scans,
    /// The time of the host when it was asked.
    pub time: Duration,
}

impl ZoneReclaim {
    /// Pages looked at a second between then and now: directly, and in the background. Zeroes where no time has
    /// passed.
    #[must_use]
    pub fn velocity_since(&self, then: &Self) -> (f64, f64) {
        let time = self.time.saturating_sub(then.time).as_secs_f64();
        let rate = |now: Scans, then: Scans| {
            let pages = now.scanned.saturating_sub(then.scanned) as f64;
            if time > 0.0 { pages / time } else { 0.0 }
        };
        (rate(self.direct, then.direct), rate(self.background, then.background))
    }
}

impl<S: Setup> PageCache<S> {
    /// What reclaim has done, by zone of the frames. What the cache has go for pages of its own is not in it
    /// ([`Stats::evicted`](crate::Stats::evicted)). O(zones).
    #[must_use]
    pub fn reclaim_by_zone(&self) -> Vec<ZoneReclaim> {
        let time = Duration::from_nanos(self.core().host.now());
        let zones = self.core().zones.read();
        zones.map(|[direct, background]| ZoneReclaim { direct, background, time }).collect()
    }
}

//! How little of a zone is free while requests come: a thread looks at it all the time.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use zonal::policy::Policy;
use zonal::{CpuId, ZoneId};
use zonal_host::Arena;

/// Frames that a CPU took and has not counted, at most, where no mark is near.
const LATE: u64 = 64;
/// The largest block that a cache asks for at once: a window of readahead.
const WINDOW: u64 = 32;

/// What was seen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watched {
    /// How often it was looked.
    pub(crate) looks: u64,
    /// How often less was free than the min mark.
    pub(crate) below: u64,
    /// The least that was free, as the marks see it.
    pub(crate) least: u64,
    /// The most frames that the CPUs' caches had, which are not free.
    pub(crate) cached: u64,
    /// The min and the low mark.
    pub(crate) min: u64,
    pub(crate) low: u64,
}

/// Looks at a zone until it is over.
pub(crate) fn watch<S: Policy>(arena: &Arena<S>, zone: ZoneId, over: &AtomicBool) -> Watched {
    let (least, marks) = arena.zone_level(zone).expect("a zone");
    let (looks, below, cached) = (0, 0, 0);
    let mut seen = Watched { looks, below, least, cached, min: marks.min, low: marks.low };
    while !over.load(Relaxed) || seen.looks == 0 {
        let mut free = arena.zone_level(zone).expect("a zone").0;
        // That looks at each CPU's cache, and takes much longer.
        if seen.looks.is_multiple_of(64) {
            let info = arena.zone_info(zone).expect("a zone");
            free = free.min(info.counted_free);
            seen.cached = seen.cached.max(info.cached);
        }
        seen.looks += 1;
        seen.below += u64::from(free < seen.min);
        seen.least = seen.least.min(free);
        thread::yield_now();
    }
    seen
}

/// How far ordinary requests of that many threads may take a zone below its min mark. A request looks at the mark, and
/// then takes what it may: a CPU's cache full at most, or a block. Each of the others may do so after the same look. And
/// what CPUs took before a mark was near they count now.
pub(crate) fn overdraft<S: Policy>(arena: &Arena<S>, zone: ZoneId, threads: u64) -> u64 {
    let (shared, owners) = arena.cpus();
    let cpus = u64::from(shared + owners);
    let caches = (0..cpus as u32).filter_map(|cpu| arena.cache_info(zone, CpuId(cpu)));
    let most = caches.map(|cache| u64::from(cache.high)).max().unwrap_or(0).max(WINDOW);
    let info = arena.zone_info(zone).expect("a zone");
    let far = info.managed.saturating_sub(info.watermarks.high) >= LATE * cpus;
    (threads - 1) * most + if far { LATE * cpus } else { 0 }
}

impl Watched {
    /// # Panics
    /// If less was free than ordinary requests leave which together [overdraw](overdraft) by that much.
    pub(crate) fn assert_kept(&self, overdraft: u64) {
        let kept = self.least + overdraft >= self.min;
        assert!(kept, "requests reached below the min mark by more than {overdraft}: {self:?}");
    }
}

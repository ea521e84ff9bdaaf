//! What a kernel does around its page cache: kswapd, and answers to the allocator.

use crate::any_allocator::AnyAllocator;
use crate::cache::{Disk, SimCache, keep_writing, reclaiming};
use crate::engine;
use crate::host::{Frames, Host};
use crate::machine::Clock;
use crate::mix::page_cache::{AGAIN_MS, PRIORITY, SWAP_CLUSTER};
use crate::outcome::Figure;
use crate::platform::Sim;
use crate::sleeper::Sleeper;
use crate::task::{Work, idle};
use crate::ticks::Ticks;
use crate::workload::Stage;
use core::cell::Cell;
use core::time::Duration;
use std::sync::Arc;
use zonal::slow_path::Shortage;
use zonal::{Immovable, Migration};
use zonal::{Order, ZoneId, ZoneType};
use zonal_cache::host::Host as _;
use zonal_cache::lru::LruLock;

/// How long a page is dirty before it is written whatever else there is, as in Linux.
const AGE: Duration = Duration::from_secs(30);

/// The page cache, and who works for it.
pub(super) struct Kernel<L: LruLock> {
    pub(super) cache: SimCache<L>,
    pub(super) disk: Arc<Disk>,
    pub(super) work: Work,
    clock: Clock,
    zones: Vec<(ZoneId, ZoneType)>,
    kswapd: Sleeper,
    wanted: Cell<bool>,
    wakes: Cell<u64>,
    direct: Cell<u64>,
    streams: u32,
    ended: Cell<u32>,
    arrived: Cell<u32>,
}

impl<L: LruLock> Kernel<L> {
    /// `streams` streams will come.
    pub(super) fn new(
        stage: &Stage<'_>,
        cache: SimCache<L>,
        disk: Arc<Disk>,
        streams: u32,
    ) -> Self {
        Self {
            cache,
            disk,
            work: Work::of(&stage.machine.kernel, stage.spec.preset),
            clock: stage.machine.clock.clone(),
            zones: stage.allocator.zones().map(|zone| (zone.zone, zone.zone_type)).collect(),
            kswapd: Sleeper::default(),
            wanted: Cell::default(),
            wakes: Cell::default(),
            direct: Cell::default(),
            streams,
            ended: Cell::default(),
            arrived: Cell::default(),
        }
    }

    /// `ms` virtual milliseconds.
    pub(super) fn ms(&self, ms: f64) -> Ticks {
        self.clock.of_ms(ms)
    }

    /// Waits until all streams are here.
    pub(super) fn meet(&self) {
        let arrived = self.arrived.get() + 1;
        self.arrived.set(arrived);
        let all = arrived.next_multiple_of(self.streams);
        while self.arrived.get() < all {
            idle(self.ms(AGAIN_MS));
        }
    }

    /// A stream ends.
    pub(super) fn end(&self, host: Sim) {
        self.ended.set(self.ended.get() + 1);
        self.kswapd.wake(self.work.wake);
        host.nudge();
    }

    fn is_over(&self) -> bool {
        self.ended.get() == self.streams
    }

    /// Writes dirty pages, until the streams have ended.
    pub(super) fn flush(&self) {
        keep_writing(&self.cache, AGE, || self.is_over());
    }

    /// Background reclaim, until the streams have ended.
    pub(super) fn kswapd(&self, allocator: &dyn AnyAllocator) {
        while !self.is_over() {
            if !self.wanted.take() {
                self.kswapd.sleep();
                continue;
            }
            self.wakes.set(self.wakes.get() + 1);
            self.balance(allocator);
        }
    }

    /// Frees pages until all zones are above their high watermarks.
    fn balance(&self, allocator: &dyn AnyAllocator) {
        while !self.is_over() {
            let (mut below, mut freed) = (false, 0);
            for (at, (id, _)) in self.zones.iter().enumerate() {
                let Some(zone) = allocator.zone_info(*id) else { continue };
                let enough = zone.watermarks.high + zone.reserve[ZoneType::Movable.index()];
                if zone.free > enough {
                    continue;
                }
                below = true;
                let part = (zone.managed >> PRIORITY).next_multiple_of(SWAP_CLUSTER as u64);
                freed += self.cache.reclaim_zone(at, part as usize);
            }
            if !below {
                return;
            }
            if freed == 0 {
                idle(self.ms(AGAIN_MS));
            }
        }
    }

    /// What happened, as figures.
    pub(super) fn figures(&self) -> Vec<Figure> {
        let end = engine::with(|engine| engine.cpus.iter().map(|cpu| cpu.clock).max());
        let seconds = self.clock.seconds(end.flatten().unwrap_or_default());
        let (asked, reclaim) = (self.cache.frames().asked(), self.cache.reclaim_by_zone());
        let of = |ty: ZoneType, f: &dyn Fn(usize) -> u64| {
            let zones = self.zones.iter().enumerate().filter(|(_, (_, is))| *is == ty);
            zones.map(|(at, _)| f(at)).sum::<u64>() as f64
        };
        let both =
            |f: &dyn Fn(usize) -> u64| [ZoneType::Dma32, ZoneType::Normal].map(|ty| of(ty, f));
        let allocs = both(&|at| asked.by_zone[at]);
        let scans = both(&|at| reclaim[at].direct.scanned + reclaim[at].background.scanned);
        let percent = |[part, rest]: [f64; 2]| part * 100.0 / (part + rest).max(1.0);
        let pages = asked.by_zone.iter().sum::<u64>();
        vec![
            Figure::new("pages", pages as f64, "count"),
            Figure::new("dma32_allocs", allocs[0], "count"),
            Figure::new("normal_allocs", allocs[1], "count"),
            Figure::new("dma32_share", percent(allocs), "percent"),
            Figure::new("dma32_velocity", scans[0] / seconds, "1/s"),
            Figure::new("normal_velocity", scans[1] / seconds, "1/s"),
            Figure::new("dma32_velocity_share", percent(scans), "percent"),
            Figure::new("kswapd_wakes", self.wakes.get() as f64, "count"),
            Figure::new("direct_reclaims", self.direct.get() as f64, "count"),
            Figure::new("alloc_cycles", asked.took.exact_cycles() / pages.max(1) as f64, "cycles"),
        ]
    }
}

impl<L: LruLock> Host for Kernel<L> {
    fn wake_reclaim(&self) {
        self.wanted.set(true);
        self.kswapd.wake(self.work.wake);
    }

    fn reclaim(&self, _: &dyn Frames, _: &Shortage) -> u64 {
        self.direct.set(self.direct.get() + 1);
        reclaiming(|| self.cache.reclaim(SWAP_CLUSTER)) as u64
    }

    fn wake_compaction(&self, _: Order) {}

    fn migrate(&self, _: &Migration) -> Result<(), Immovable> {
        Err(Immovable)
    }
}

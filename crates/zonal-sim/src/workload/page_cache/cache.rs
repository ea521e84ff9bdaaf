//! The page cache as reclaim, the flusher and the streams share it.

use crate::any_allocator::AnyAllocator;
use crate::cache::Disk;
use crate::engine;
use crate::host::{Frames, Host};
use crate::lru::Lru;
use crate::machine::Clock;
use crate::mix::page_cache::{AGAIN_MS, BACKGROUND, DIRTY, FLUSH, PRIORITY, SWAP_CLUSTER};
use crate::outcome::Figure;
use crate::sleeper::Sleeper;
use crate::task::{Pages, Work, idle};
use crate::ticks::Ticks;
use crate::workload::Stage;
use core::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use zonal::page_state::PageState;
use zonal::slow_path::Shortage;
use zonal::{Immovable, Migration};
use zonal::{Order, Pfn, ZoneId, ZoneType};

/// A page of a file: a frame, and which of all pages that were ever in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Page {
    pfn: Pfn,
    id: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Clean,
    Dirty,
    Writeback,
}

/// What a frame holds; `id` 0: nothing.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    id: u32,
    state: State,
}

/// A zone as reclaim sees it.
#[derive(Debug)]
struct Zone {
    id: ZoneId,
    zone_type: ZoneType,
    from: u64,
    to: u64,
    /// Oldest first; pages that have left are found out when it is their turn.
    list: VecDeque<Page>,
    allocated: u64,
    scanned: u64,
}

#[derive(Debug, Default)]
struct Tables {
    held: Vec<Held>,
    zones: Vec<Zone>,
    /// Oldest first, as in the lists.
    dirty: VecDeque<Page>,
    last: u32,
}

impl Tables {
    fn zone(&mut self, pfn: Pfn) -> Option<&mut Zone> {
        self.zones.iter_mut().find(|zone| (zone.from..zone.to).contains(&pfn.get()))
    }
}

/// What happened.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    pages: u64,
    /// What the allocator took for them.
    took: Ticks,
    wakes: u64,
    direct: u64,
}

/// The page cache.
pub(super) struct Cache {
    tables: RefCell<Tables>,
    pub(super) disk: Disk,
    pages: Pages,
    work: Work,
    lru: Rc<Lru>,
    clock: Clock,
    /// Frames that files cannot have.
    used: u64,
    /// Pages that are dirty, and on their way to the disk.
    dirty: Cell<u64>,
    writeback: Cell<u64>,
    counts: Cell<Counts>,
    /// What each CPU has spent in direct reclaim.
    reclaiming: Vec<Cell<Ticks>>,
    kswapd: Sleeper,
    wanted: Cell<bool>,
    flusher: Sleeper,
    /// Reclaim finds nothing but dirty pages.
    pressed: Cell<bool>,
    streams: Cell<u32>,
    ended: Cell<u32>,
    arrived: Cell<u32>,
}

impl Cache {
    pub(super) fn new(stage: &Stage<'_>, disk: Disk, used: u64) -> Self {
        let zones = stage.allocator.zones().map(|zone| Zone {
            id: zone.zone,
            zone_type: zone.zone_type,
            from: zone.start.get(),
            to: zone.start.get() + zone.spanned,
            list: VecDeque::new(),
            allocated: 0,
            scanned: 0,
        });
        let held = vec![Held::default(); stage.pages.frames as usize];
        let tables = Tables { held, zones: zones.collect(), ..Tables::default() };
        Self {
            tables: RefCell::new(tables),
            disk,
            pages: stage.pages,
            work: Work::of(&stage.machine.kernel, stage.spec.preset),
            lru: Rc::clone(&stage.lru),
            clock: stage.machine.clock.clone(),
            used,
            dirty: Cell::default(),
            writeback: Cell::default(),
            counts: Cell::default(),
            reclaiming: (0..stage.spec.tasks).map(|_| Cell::default()).collect(),
            kswapd: Sleeper::default(),
            wanted: Cell::default(),
            flusher: Sleeper::default(),
            pressed: Cell::default(),
            streams: Cell::default(),
            ended: Cell::default(),
            arrived: Cell::default(),
        }
    }

    /// `streams` streams will come.
    pub(super) fn expect(&self, streams: u32) {
        self.streams.set(streams);
    }

    /// `ms` virtual milliseconds.
    pub(super) fn ms(&self, ms: f64) -> Ticks {
        self.clock.of_ms(ms)
    }

    /// Waits until all streams are here.
    pub(super) fn meet(&self) {
        let arrived = self.arrived.get() + 1;
        self.arrived.set(arrived);
        let all = arrived.next_multiple_of(self.streams.get());
        while self.arrived.get() < all {
            idle(self.ms(AGAIN_MS));
        }
    }

    /// A stream ends.
    pub(super) fn end(&self) {
        self.ended.set(self.ended.get() + 1);
        self.kswapd.wake(self.work.wake);
        self.flusher.wake(self.work.wake);
    }

    fn is_over(&self) -> bool {
        self.ended.get() == self.streams.get()
    }

    /// What a CPU has spent in direct reclaim.
    pub(super) fn reclaiming(&self, cpu: usize) -> Ticks {
        self.reclaiming.get(cpu).map(Cell::get).unwrap_or_default()
    }

    /// The allocator took that long for a request.
    pub(super) fn count_request(&self, took: Ticks, served: bool) {
        self.update(|counts| {
            counts.pages += u64::from(served);
            counts.took += took;
        });
    }

    fn update(&self, f: impl FnOnce(&mut Counts)) {
        let mut counts = self.counts.get();
        f(&mut counts);
        self.counts.set(counts);
    }

    fn held(&self, page: Page) -> Option<State> {
        let held = self.tables.borrow().held[self.pages.index(page.pfn) as usize];
        (held.id == page.id).then_some(held.state)
    }

    fn set_state(&self, page: Page, state: State) {
        self.tables.borrow_mut().held[self.pages.index(page.pfn) as usize].state = state;
    }

    /// Whether a page is cached still.
    pub(super) fn has(&self, page: Page) -> bool {
        self.held(page).is_some()
    }

    /// Whether it is on its way to the disk.
    pub(super) fn is_written_back(&self, page: Page) -> bool {
        self.held(page) == Some(State::Writeback)
    }

    /// A frame gets a page.
    pub(super) fn enter(&self, pfn: Pfn) -> Page {
        let mut tables = self.tables.borrow_mut();
        tables.last += 1;
        let id = tables.last;
        let held = Held { id, state: State::Clean };
        let before = core::mem::replace(&mut tables.held[self.pages.index(pfn) as usize], held);
        assert_eq!(before.id, 0, "the allocator handed out a frame that is in use");
        if let Some(zone) = tables.zone(pfn) {
            zone.allocated += 1;
        }
        Page { pfn, id }
    }

    /// Puts pages on the lists of their zones.
    pub(super) fn list(&self, frames: &dyn Frames, cpu: u32, batch: &[Page]) {
        let pfns: Vec<_> = batch.iter().map(|page| page.pfn).collect();
        self.lru.add(&self.pages, cpu, &pfns);
        for &page in batch {
            frames.count(page.pfn, PageState::InactiveFile, 1);
            if let Some(zone) = self.tables.borrow_mut().zone(page.pfn) {
                zone.list.push_back(page);
            }
        }
    }

    /// Forgets those pages that are still cached; their frames. None is under writeback.
    pub(super) fn leave(&self, frames: &dyn Frames, batch: &[Page]) -> Vec<Pfn> {
        let mut left = Vec::with_capacity(batch.len());
        for &page in batch {
            let Some(state) = self.held(page) else { continue };
            if state == State::Dirty {
                self.dirty.set(self.dirty.get() - 1);
                frames.count(page.pfn, PageState::Dirty, -1);
            }
            frames.count(page.pfn, PageState::InactiveFile, -1);
            let at = self.pages.index(page.pfn) as usize;
            self.tables.borrow_mut().held[at] = Held::default();
            left.push(page.pfn);
        }
        left
    }

    /// A page was written to.
    pub(super) fn dirty(&self, frames: &dyn Frames, page: Page) {
        self.set_state(page, State::Dirty);
        self.tables.borrow_mut().dirty.push_back(page);
        self.dirty.set(self.dirty.get() + 1);
        frames.count(page.pfn, PageState::Dirty, 1);
        if self.exceed(self.dirty.get(), BACKGROUND) {
            self.wake_flusher(false);
        }
    }

    /// Whether `pages` are more than `thousandths` of what files may have.
    fn exceed(&self, pages: u64, thousandths: u64) -> bool {
        pages * 1000 > (self.pages.frames - self.used) * thousandths
    }

    /// Whether writers have to wait for the disk.
    pub(super) fn is_throttled(&self) -> bool {
        self.exceed(self.dirty.get() + self.writeback.get(), DIRTY)
    }

    /// The flusher has something to do; if `pressed`, whatever is dirty.
    pub(super) fn wake_flusher(&self, pressed: bool) {
        self.pressed.set(self.pressed.get() | pressed);
        self.flusher.wake(self.work.wake);
    }

    /// Writes dirty pages, oldest first, until the streams have ended.
    pub(super) fn flush(&self, frames: &dyn Frames) {
        while !self.is_over() {
            let behind = self.exceed(self.dirty.get(), BACKGROUND);
            if !self.pressed.take() && !behind {
                self.flusher.sleep();
                continue;
            }
            let batch = self.take_dirty();
            // All of them before anything is counted, which may let another task run: a page of the
            // batch that looked dirty still could be deleted, and would be no longer dirty twice.
            batch.iter().for_each(|page| self.set_state(*page, State::Writeback));
            let many = batch.len() as u64;
            self.dirty.set(self.dirty.get() - many);
            self.writeback.set(self.writeback.get() + many);
            for page in &batch {
                frames.count(page.pfn, PageState::Dirty, -1);
                frames.count(page.pfn, PageState::Writeback, 1);
            }
            let done = self.disk.transfer(engine::now(), batch.len());
            idle(done.since(engine::now()));
            for page in batch {
                self.set_state(page, State::Clean);
                frames.count(page.pfn, PageState::Writeback, -1);
            }
            self.writeback.set(self.writeback.get() - many);
        }
    }

    /// The oldest dirty pages, as many as the flusher writes at once.
    fn take_dirty(&self) -> Vec<Page> {
        let mut batch = Vec::with_capacity(FLUSH);
        while batch.len() < FLUSH {
            let Some(page) = self.tables.borrow_mut().dirty.pop_front() else { break };
            if self.held(page) == Some(State::Dirty) {
                batch.push(page);
            }
        }
        batch
    }

    /// Background reclaim, until the streams have ended.
    pub(super) fn kswapd(&self, allocator: &dyn AnyAllocator) {
        while !self.is_over() {
            if !self.wanted.take() {
                self.kswapd.sleep();
                continue;
            }
            self.update(|counts| counts.wakes += 1);
            self.balance(allocator);
        }
    }

    /// Frees pages until all zones are above their high watermarks.
    fn balance(&self, allocator: &dyn AnyAllocator) {
        let zones = self.tables.borrow().zones.len();
        while !self.is_over() {
            let (mut below, mut freed) = (false, 0);
            for at in 0..zones {
                let id = self.tables.borrow().zones[at].id;
                let Some(zone) = allocator.zone_info(id) else { continue };
                let enough = zone.watermarks.high + zone.reserve[ZoneType::Movable.index()];
                if zone.free > enough {
                    continue;
                }
                below = true;
                let part = self.tables.borrow().zones[at].list.len() >> PRIORITY;
                let chunks = part.div_ceil(SWAP_CLUSTER).max(1);
                freed += (0..chunks).map(|_| self.shrink(allocator, at)).sum::<u64>();
            }
            if !below {
                return;
            }
            if freed == 0 {
                self.wake_flusher(true);
                idle(self.ms(AGAIN_MS));
            }
        }
    }

    /// Frees some of the oldest clean pages of a zone. Returns how many.
    fn shrink(&self, frames: &dyn Frames, at: usize) -> u64 {
        let batch = self.oldest(at);
        let freed = self.leave(frames, &batch);
        self.lru.delete(&self.pages, engine::cpu(), &freed);
        freed.iter().for_each(|_| self.work.charge_drop());
        frames.free(&freed);
        freed.len() as u64
    }

    /// Takes up to [`SWAP_CLUSTER`] of a zone's oldest clean pages off its list. Those that are
    /// not clean go to its other end.
    fn oldest(&self, at: usize) -> Vec<Page> {
        let mut batch = Vec::with_capacity(SWAP_CLUSTER);
        let most = self.tables.borrow().zones[at].list.len();
        for _ in 0..most {
            if batch.len() == SWAP_CLUSTER {
                break;
            }
            let Some(page) = self.tables.borrow_mut().zones[at].list.pop_front() else { break };
            let Some(state) = self.held(page) else { continue };
            let zone = &mut self.tables.borrow_mut().zones[at];
            zone.scanned += 1;
            match state {
                State::Clean => batch.push(page),
                State::Dirty | State::Writeback => zone.list.push_back(page),
            }
        }
        batch
    }

    /// What happened, as figures.
    pub(super) fn figures(&self) -> Vec<Figure> {
        let end = engine::with(|engine| engine.cpus.iter().map(|cpu| cpu.clock).max());
        let seconds = self.clock.seconds(end.flatten().unwrap_or_default());
        let tables = self.tables.borrow();
        let of = |ty: ZoneType, f: &dyn Fn(&Zone) -> u64| {
            tables.zones.iter().filter(|zone| zone.zone_type == ty).map(f).sum::<u64>() as f64
        };
        let (dma32, normal) = (ZoneType::Dma32, ZoneType::Normal);
        let allocs = [dma32, normal].map(|ty| of(ty, &|zone| zone.allocated));
        let scans = [dma32, normal].map(|ty| of(ty, &|zone| zone.scanned));
        let percent = |[part, rest]: [f64; 2]| part * 100.0 / (part + rest).max(1.0);
        let counts = self.counts.get();
        let per_page = counts.took.exact_cycles() / counts.pages.max(1) as f64;
        vec![
            Figure::new("dma32_allocs", allocs[0], "count"),
            Figure::new("normal_allocs", allocs[1], "count"),
            Figure::new("dma32_share", percent(allocs), "percent"),
            Figure::new("dma32_velocity", scans[0] / seconds, "1/s"),
            Figure::new("normal_velocity", scans[1] / seconds, "1/s"),
            Figure::new("dma32_velocity_share", percent(scans), "percent"),
            Figure::new("kswapd_wakes", counts.wakes as f64, "count"),
            Figure::new("direct_reclaims", counts.direct as f64, "count"),
            Figure::new("alloc_cycles", per_page, "cycles"),
        ]
    }
}

impl Host for Cache {
    fn wake_reclaim(&self) {
        self.wanted.set(true);
        self.kswapd.wake(self.work.wake);
    }

    /// The zones from the last on, until one has given something.
    fn reclaim(&self, frames: &dyn Frames, _: &Shortage) -> u64 {
        self.update(|counts| counts.direct += 1);
        let began = engine::now();
        let zones = self.tables.borrow().zones.len();
        let freed = (0..zones).rev().map(|at| self.shrink(frames, at)).find(|freed| *freed > 0);
        if freed.is_none() {
            self.wake_flusher(true);
        }
        if let Some(spent) = self.reclaiming.get(engine::cpu() as usize) {
            spent.set(spent.get() + (engine::now() - began));
        }
        freed.unwrap_or(0)
    }

    fn wake_compaction(&self, _: Order) {}

    fn migrate(&self, _: &Migration) -> Result<(), Immovable> {
        Err(Immovable)
    }
}

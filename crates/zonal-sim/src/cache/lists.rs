//! The lists of a page cache: those of Linux, and what they cost there.

use crate::engine;
use crate::task::spend;
use zonal::Pfn;
use zonal::platform::AtomicByte;
use zonal_cache::TwoLists;
use zonal_cache::evict::{Evict, Told, Verdict};
use zonal_cache::frames::Frames;
use zonal_cache::lru::{LruLock, MOST_LISTS};
use zonal_cache::table::SlotId;

/// [`TwoLists`], whose links are on the `struct page`s of the pages that they join.
pub(crate) struct Lists(TwoLists);

impl Lists {
    /// Charges a change of the links of a page and of its neighbours, made by `change`.
    fn relink<R>(
        &mut self,
        id: SlotId,
        is_new: bool,
        change: impl FnOnce(&mut TwoLists) -> R,
    ) -> R {
        let before = if is_new { [None; 2] } else { self.0.neighbours(id) };
        let result = change(&mut self.0);
        let after = if is_new { self.0.neighbours(id) } else { [None; 2] };
        engine::with_cpu(|engine, cpu| {
            let cost = engine.cache.list_cost(is_new);
            engine.spend(cpu, cost);
            let Some(pages) = engine.cache.pages else { return };
            for slot in [Some(id)].into_iter().chain(before).chain(after).flatten() {
                let Some(frame) = engine.space.frame_of(slot.0 as usize) else { continue };
                let pfn = pages.pfn(frame);
                let line = pages.line(pfn);
                engine.touch_line(cpu, line, pages.class, true, || pages.home(pfn));
            }
        });
        result
    }
}

impl Evict for Lists {
    const NAME: &'static str = TwoLists::NAME;
    const MOST: u8 = TwoLists::MOST;

    fn new(slots: usize) -> Self {
        Self(TwoLists::new(slots))
    }

    fn beside(&self, slots: usize, pages: usize) -> Self {
        Self(self.0.beside(slots, pages))
    }

    fn insert(&mut self, id: SlotId, key: u64) {
        self.relink(id, true, |lists| lists.insert(id, key));
    }

    fn remove(&mut self, id: SlotId) {
        self.relink(id, false, |lists| lists.remove(id));
    }

    fn replace(&mut self, old: SlotId, new: SlotId) {
        self.relink(old, false, |lists| lists.replace(old, new));
    }

    fn scan_told<'m, B: AtomicByte + 'm>(
        &mut self,
        mark: &impl Fn(SlotId) -> &'m B,
        take: &mut impl FnMut(SlotId) -> Verdict,
        told: &mut impl FnMut(Told, SlotId),
    ) -> bool {
        let unlist = engine::with(|engine| engine.cache.list_cost(false)).unwrap_or_default();
        // A page that is looked at is taken off its list, as Linux isolates it, whatever becomes of it.
        let mut take = |id: SlotId| {
            spend(unlist);
            take(id)
        };
        self.0.scan_told(mark, &mut take, told)
    }

    fn is_active(&self, id: SlotId) -> bool {
        self.0.is_active(id)
    }
}

/// A lock for each task of the machine, whose files have numbers in turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PerTask<const BATCH: usize>;

/// Tasks that have a lock each, of `zones` for each.
fn tasks(zones: usize) -> usize {
    engine::with(|engine| engine.cpus.len().min(MOST_LISTS / zones)).unwrap_or(1)
}

impl<const BATCH: usize> LruLock for PerTask<BATCH> {
    const NAME: &'static str = "task";
    const BATCH: usize = BATCH;
    fn lists<M: Frames>(_: &M) -> usize {
        tasks(1)
    }
    fn list_of<M: Frames>(_: &M, _: Pfn, owner: u64) -> usize {
        (owner % tasks(1) as u64) as usize
    }
}

/// A lock for each task's pages of each zone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PerTaskOfZone<const BATCH: usize>;

impl<const BATCH: usize> LruLock for PerTaskOfZone<BATCH> {
    const NAME: &'static str = "task and zone";
    const BATCH: usize = BATCH;
    fn lists<M: Frames>(frames: &M) -> usize {
        tasks(frames.zones().0) * frames.zones().0
    }
    fn list_of<M: Frames>(frames: &M, frame: Pfn, owner: u64) -> usize {
        let zones = frames.zones().0;
        (owner % tasks(zones) as u64) as usize * zones + frames.zone_of(frame).0
    }
    fn may_have<M: Frames>(frames: &M, list: usize, zone: usize) -> bool {
        list % frames.zones().0 == zone
    }
}

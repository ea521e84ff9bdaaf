//! The policy of the lists of processes: two lists as the page cache has them, and what they cost in Linux.

use crate::engine;
use crate::memory;
use zonal::platform::AtomicByte;
use zonal_cache::TwoLists;
use zonal_cache::evict::{Evict, Told, Verdict};
use zonal_cache::owned::OnList;
use zonal_cache::table::SlotId;

/// [`TwoLists`] of frames, whose links are on the `struct page`s of the pages that they join. Nothing is reclaimed from
/// them, so that they remember no page that went.
pub(super) struct ProcessLists(TwoLists, Beside);

/// What the lock of Linux's lists guards besides, so that it has as many lines here: heads and counts of five lists.
#[derive(Clone, Copy, Default)]
#[expect(dead_code, reason = "it takes room, and nothing else")]
struct Beside([u64; 9]);

const _: () = assert!(size_of::<OnList<ProcessLists>>() == 192, "three lines");

impl ProcessLists {
    /// The pages beside one on its list, the older one first.
    pub(super) fn neighbours(&self, id: SlotId) -> [Option<SlotId>; 2] {
        self.0.neighbours(id)
    }

    /// What this computer has of a page will be needed soon.
    pub(super) fn prefetch(&self, id: SlotId) {
        memory::prefetch(self.0.address(id));
    }
}

/// Charges writing to the `struct page`s of a page and of others, beside what listing or unlisting costs.
fn charge(is_new: bool, id: SlotId, others: [Option<SlotId>; 2]) {
    engine::with_cpu(|engine, cpu| {
        let cost = engine.cache.list_cost(is_new);
        engine.spend(cpu, cost);
        let Some(pages) = engine.cache.pages else { return };
        for SlotId(index) in [Some(id)].into_iter().chain(others).flatten() {
            let pfn = pages.pfn(index);
            let line = pages.line(pfn);
            engine.touch_line(cpu, line, pages.class, true, || pages.home(pfn));
        }
    });
}

impl Evict for ProcessLists {
    const NAME: &'static str = TwoLists::NAME;
    const MOST: u8 = TwoLists::MOST;

    fn new(slots: usize) -> Self {
        Self(TwoLists::with_ghosts(slots, 0), Beside::default())
    }

    fn beside(&self, slots: usize, _: usize) -> Self {
        Self(self.0.beside(slots, 0), self.1)
    }

    fn insert(&mut self, id: SlotId, key: u64) {
        self.0.insert(id, key);
        charge(true, id, self.0.neighbours(id));
    }

    fn remove(&mut self, id: SlotId) {
        let [older, newer] = self.0.neighbours(id);
        self.0.remove(id);
        charge(false, id, [newer, older]);
    }

    fn replace(&mut self, old: SlotId, new: SlotId) {
        self.0.replace(old, new);
    }

    fn scan_told<'m, B: AtomicByte + 'm>(
        &mut self,
        mark: &impl Fn(SlotId) -> &'m B,
        take: &mut impl FnMut(SlotId) -> Verdict,
        told: &mut impl FnMut(Told, SlotId),
    ) -> bool {
        self.0.scan_told(mark, take, told)
    }

    fn is_active(&self, id: SlotId) -> bool {
        self.0.is_active(id)
    }
}

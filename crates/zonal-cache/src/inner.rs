//! What all files of a cache have in common: the table, the policy, the slots that are free.

use crate::error::CacheError;
use crate::events::Tally;
use crate::evict::{Evict, Verdict};
use crate::file::FileCore;
use crate::frames::Frames;
use crate::host::{Host, Part};
use crate::lists::Lists;
use crate::lru::LruLock;
use crate::scan::Patience;
use crate::slots::{Bare, Slots};
use crate::stats::Counters;
use crate::table::{Claimed, Key, Settled, SlotId, Table, Taken, Token};
use crate::velocity::{By, ZoneCounters};
use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::slice;
use core::sync::atomic::Ordering::Relaxed;
use zonal::Pfn;
use zonal::platform::{AtomicWord, Lock, Platform};

/// What a cache is made of.
pub trait Setup: Sized + Send + Sync + 'static {
    /// Who waits, wakes and locks.
    type Host: Host;
    /// Where frames come from.
    type Frames: Frames;
    /// Which page goes.
    type Evict: Evict;
    /// Under which lock that is kept, and in which batches it changes.
    type Lru: LruLock;
}

/// No frame: slots that have none say so by this number.
const NO_FRAME: Pfn = Pfn::new(0);
/// Nanoseconds that a page is taken to need for writing before one was written: a slow disk's, so that
/// writers do not run into the limit while it is found out.
const PAGE_TIME: u64 = 250_000;
/// Frames that are asked for at once: more than a request of a window has.
const AT_ONCE: usize = 64;
/// Dirty pages that a scan remembers.
pub(crate) const SOME: usize = 8;

/// Slots that are in no use.
pub(crate) struct Pool {
    free: Vec<Claimed>,
    /// Those beyond the bound.
    retired: Vec<Claimed>,
    /// How many may be in use: never less than are.
    bound: usize,
    /// How many may be in use when the bound that was asked for last is reached.
    target: usize,
    /// How many are.
    used: usize,
}

pub(crate) struct Core<S: Setup> {
    pub(crate) host: S::Host,
    pub(crate) frames: S::Frames,
    pub(crate) table: Table<S::Host>,
    pub(crate) lists: Lists<S>,
    pool: <S::Host as Host>::Mutex<Pool>,
    pub(crate) files: <S::Host as Host>::Mutex<BTreeMap<u64, Arc<FileCore<S>>>>,
    /// The bound as it was when it changed last.
    hint: <S::Host as Platform>::Word,
    next_file: <S::Host as Platform>::Word,
    /// Dirty pages of all files.
    pub(crate) dirty: <S::Host as Platform>::Word,
    /// Nanoseconds that a page took to be written, of late.
    pub(crate) page_time: <S::Host as Platform>::Word,
    pub(crate) counters: Counters<S::Host>,
    pub(crate) zones: ZoneCounters<S::Host>,
    pub(crate) limits: Limits,
    /// For work of other threads.
    pub(crate) this: Weak<Self>,
}

/// How much of what there may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Pages of a readahead window.
    pub(crate) window: u32,
    /// Pages of a block, if it is said.
    pub(crate) block: Option<u32>,
    /// Dirty pages in 100, from which on a writer writes back itself.
    pub(crate) dirty_percent: u64,
    /// And from which on the host's writer does, if it has one.
    pub(crate) background_percent: u64,
    /// Of 200 what anonymous pages count for.
    pub(crate) swappiness: u64,
}

/// What a scan met that it could not take. Noted with the policy's lock held, where no heap is asked.
#[derive(Default)]
pub(crate) struct Met {
    /// Who scans.
    pub(crate) by: By,
    /// The file that the page is to be of; 0 for none.
    pub(crate) own: u64,
    /// A page is to be written to; whether by one who is less throttled.
    writes: Option<bool>,
    pub(crate) dirty: [Option<Key>; SOME],
    pub(crate) moving: bool,
}

impl Met {
    pub(crate) fn by(by: By) -> Self {
        Self { by, ..Self::default() }
    }

    /// For a page of a file.
    pub(crate) fn of(own: u64) -> Self {
        Self { own, ..Self::default() }
    }

    /// For one that is to be written to.
    pub(crate) fn writing(own: u64, less_throttled: bool) -> Self {
        Self { writes: Some(less_throttled), ..Self::of(own) }
    }

    pub(crate) fn note_moving(&mut self, tally: &mut Tally) {
        tally.moving += 1;
        self.moving = true;
    }

    /// A page that has to be written first; its key is a hint.
    pub(crate) fn note_dirty(&mut self, key: Key, tally: &mut Tally) {
        tally.dirty += 1;
        if let Some(place) = self.dirty.iter_mut().find(|place| place.is_none()) {
            *place = Some(key);
            return;
        }
        // Many pages of one file leave a place for another's: the store of that one may hang.
        let noted =
            |dirty: &[Option<Key>], file: u64| dirty.iter().flatten().any(|it| it.file == file);
        if !noted(&self.dirty, key.file)
            && let Some(at) = (1..SOME)
                .rev()
                .find(|&at| self.dirty[at].is_some_and(|it| noted(&self.dirty[..at], it.file)))
        {
            self.dirty[at] = Some(key);
        }
    }
}

impl<S: Setup> Core<S> {
    pub(crate) fn new(
        this: Weak<Self>,
        host: S::Host,
        frames: S::Frames,
        (bound, most): (usize, usize),
        limits: Limits,
    ) -> Self {
        let (table, mut free) = Table::new(most, host.lanes());
        // Room for all, so that no heap is asked with the pool's lock held. The first slots are at the end.
        let mut retired = Vec::with_capacity(most);
        retired.extend(free.drain(..most - bound));
        Self {
            lists: Lists::new(&frames, most, bound),
            zones: ZoneCounters::new(frames.zones().0),
            host,
            frames,
            table,
            pool: Lock::new(Pool { free, retired, bound, target: bound, used: 0 }),
            files: Lock::new(BTreeMap::new()),
            hint: AtomicWord::new(bound as u64),
            next_file: AtomicWord::new(1),
            dirty: AtomicWord::new(0),
            page_time: AtomicWord::new(PAGE_TIME),
            counters: Counters::new(),
            limits,
            this,
        }
    }

    /// Tells the host where its memory is, from where it does not move any more.
    pub(crate) fn place(&self) {
        self.table.place_on(&self.host);
        self.lists.place_on(&self.host);
        self.host.placed(Part::Common, slice::from_ref(self));
    }

    pub(crate) fn new_file_number(&self) -> u64 {
        // Relaxed: only that they differ.
        self.next_file.fetch_add(1, Relaxed)
    }

    /// Pages that there may be, and that are.
    pub(crate) fn bound(&self) -> (usize, usize) {
        self.pool.with(|pool| (pool.bound, pool.used))
    }

    /// About how many pages there may be, without a lock.
    pub(crate) fn bound_hint(&self) -> u64 {
        self.hint.load(Relaxed)
    }

    /// Slots with frames, up to `most`, as many as can be had at once.
    pub(crate) fn take_slots_at_once(&self, most: usize) -> Slots<'_, S> {
        self.some_at_once(most, &mut Met::default())
    }

    fn some_at_once(&self, most: usize, met: &mut Met) -> Slots<'_, S> {
        let mut slots = self.free_some(most, met.writes);
        if slots.list.len() < most {
            let mut more = self.evict_some(most - slots.list.len(), met);
            slots.list.append(&mut more.list);
        }
        // They are taken from the end: neighbours in memory become neighbours in the file.
        slots.list.reverse();
        slots
    }

    /// At least one slot with a frame, and up to `most`, where the rest can be had at once.
    pub(crate) fn take_slots(&self, most: usize, mut met: Met) -> Result<Slots<'_, S>, CacheError> {
        let mut slots = self.some_at_once(most, &mut met);
        if slots.list.is_empty() {
            let claimed = self.one_in_time(met)?;
            slots.list.push(claimed);
        }
        Ok(slots)
    }

    /// A slot with a frame: a free one, or that of a clean page.
    pub(crate) fn one_at_once(&self, met: &mut Met) -> Option<Claimed> {
        self.free_some(1, met.writes).pop().or_else(|| self.evict_one(met))
    }

    /// Free slots, up to `most`, with frames for them, which are neighbours as far as that can be had.
    fn free_some(&self, most: usize, writes: Option<bool>) -> Slots<'_, S> {
        let mut slots = Slots::none(self);
        // The slots go back if the frames panic, or if the arena is empty though the bound allows more.
        let mut bare = Bare { core: self, list: Vec::new() };
        // Room for all, so that no heap is asked with the pool's lock held.
        bare.list.reserve(most);
        slots.list.reserve(most);
        self.pool.with(|pool| {
            let some = most.min(pool.free.len());
            bare.list.extend(pool.free.drain(pool.free.len() - some..));
            pool.used += some;
        });
        // Those in a row may be a block. The lowest is taken first.
        bare.list.sort_unstable_by_key(|claimed| Reverse(claimed.id()));
        while !bare.list.is_empty() {
            let mut frames = [NO_FRAME; AT_ONCE];
            let some = bare.list.len().min(AT_ONCE);
            self.counters.asked.add(1);
            let got = match writes.map(|less| self.frames.alloc_to_write(less)) {
                Some(Some(frame)) => {
                    frames[0] = frame;
                    1
                }
                Some(None) => 0,
                None => self.frames.alloc_some(&mut frames[..some]),
            };
            for &frame in &frames[..got] {
                if let Some(mut claimed) = bare.list.pop() {
                    self.table.set_frame(&mut claimed, frame);
                    self.host.framed(claimed.id(), frame);
                    slots.list.push(claimed);
                }
            }
            if got == 0 || (got < some && writes.is_none()) {
                break;
            }
        }
        slots
    }

    /// Has a clean page go; its slot and frame.
    fn evict_one(&self, met: &mut Met) -> Option<Claimed> {
        let mut got = self.evict_some(1, met);
        got.pop()
    }

    /// Has up to `most` clean pages go; their slots and frames.
    fn evict_some(&self, most: usize, met: &mut Met) -> Slots<'_, S> {
        // What is in it goes back if the policy panics. Room now, so that no heap is asked under a lock.
        let mut got = Slots::none(self);
        got.list.reserve(most);
        let count = self.scan(most, Patience::Waits, met, &mut |claimed| got.push(claimed));
        self.counters.evicted.add(count as u64);
        for claimed in &mut got.list {
            // The mark of the page that left is not the next one's.
            let frame = self.table.frame_of(claimed);
            self.table.set_frame(claimed, frame);
        }
        got
    }

    /// Takes a page that the policy offers, if that can be, and gives it to `put`.
    pub(crate) fn offered(
        &self,
        id: SlotId,
        met: &mut Met,
        tally: &mut Tally,
        put: &mut dyn FnMut(Claimed),
    ) -> Verdict {
        let Some(zone) = self.looked_at(id, 1, met.by, tally) else { return Verdict::Kept };
        match self.table.claim(id) {
            Taken::Claimed(claimed) => {
                tally.taken += 1;
                self.zones.reclaimed(met.by, zone);
                put(claimed);
                return Verdict::Taken;
            }
            Taken::Dirty(key) => met.note_dirty(key, tally),
            Taken::Moving => met.note_moving(tally),
            Taken::InUse => {}
        }
        Verdict::Kept
    }

    /// Counts a look at pages that may go, whose zone is that of the first; which that is, or `None` if another is short.
    pub(crate) fn looked_at(
        &self,
        first: SlotId,
        pages: u32,
        by: By,
        tally: &mut Tally,
    ) -> Option<usize> {
        tally.scanned += pages;
        tally.some = Some(first);
        let place = || self.frames.zone_of(self.table.frame_in(first));
        let zone = self.zones.scanned(by, pages, place);
        if zone.is_none() {
            tally.skipped += pages;
        }
        zone
    }

    /// Puts slots without a frame back.
    pub(crate) fn put_back(&self, slots: impl IntoIterator<Item = Claimed>) {
        self.pool.with(|pool| {
            for mut claimed in slots {
                self.table.forget_frame(&mut claimed);
                let beyond = pool.used + pool.free.len() > pool.target;
                pool.used -= 1;
                if beyond { &mut pool.retired } else { &mut pool.free }.push(claimed);
            }
        });
    }

    /// Pages have left the index and all who looked at them: their frames and slots are free. They leave the lists and
    /// go back to where frames come from in batches of the [list's lock](LruLock::BATCH), or all together.
    pub(crate) fn release(&self, slots: Vec<Claimed>) {
        if S::Lru::BATCH == 1 || slots.len() <= S::Lru::BATCH {
            return self.release_batch(slots);
        }
        let mut slots = slots.into_iter();
        while slots.len() > 0 {
            let pages = self.pages_of_entries(slots.as_slice(), S::Lru::BATCH);
            self.release_batch(slots.by_ref().take(pages).collect());
        }
    }

    fn release_batch(&self, mut slots: Vec<Claimed>) {
        if slots.is_empty() {
            return;
        }
        self.unlist(&slots);
        let frames: Vec<Pfn> = slots.iter().map(|claimed| self.table.frame_of(claimed)).collect();
        // SAFETY: each is the frame of a slot that this thread has alone, and whose frame is forgotten
        // below; references into it are made with a token of the slot only.
        unsafe { self.frames.free(&frames) };
        self.counters.freed.add(frames.len() as u64);
        // The lowest is taken first: what is in a row may be a block again.
        slots.sort_unstable_by_key(|claimed| Reverse(claimed.id()));
        self.put_back(slots);
    }

    /// The same for one, where there is one.
    #[inline(always)]
    pub(crate) fn release_one(&self, claimed: Option<Claimed>) {
        if let Some(claimed) = claimed {
            self.release_slow(claimed);
        }
    }

    #[cold]
    fn release_slow(&self, claimed: Claimed) {
        self.release(Vec::from([claimed]));
    }

    /// What there is of a token, or why not; `None` to look anew.
    pub(crate) fn settled<T>(&self, settled: Settled<T>) -> Option<Result<T, CacheError>> {
        let (result, claimed) = match settled {
            Settled::Done(token) => return Some(Ok(token)),
            Settled::Gone(claimed) => (None, claimed),
            Settled::Failed(code, claimed) => {
                let error = crate::store::StoreError::from_code(code);
                (Some(Err(CacheError::Store(error))), claimed)
            }
            Settled::Crowded(claimed) => (Some(Err(CacheError::Crowded)), claimed),
        };
        self.release_one(claimed);
        result
    }

    /// Lowers the bound to what is in use, or raises it; what it is, if that is more than `bound`. `None` also if another
    /// call has asked for another one since. Who gives up leaves it there.
    fn above(&self, bound: usize, gives_up: bool) -> Option<usize> {
        self.pool.with(|pool| {
            if pool.target != bound {
                return None;
            }
            pool.bound = bound.max(pool.used);
            self.hint.store(pool.bound as u64, Relaxed);
            if gives_up {
                pool.target = pool.bound;
            }
            (pool.bound > bound).then_some(pool.bound)
        })
    }

    /// Has at most `bound` pages from now on. Of two calls at once the bound is what the later asked for.
    pub(crate) fn set_bound(&self, bound: usize) -> Result<(), CacheError> {
        debug_assert!(bound <= self.table.len(), "the caller has checked that");
        self.pool.with(|pool| {
            pool.target = bound;
            while pool.used + pool.free.len() < bound
                && let Some(claimed) = pool.retired.pop()
            {
                pool.free.push(claimed);
            }
            while pool.used + pool.free.len() > bound
                && let Some(claimed) = pool.free.pop()
            {
                pool.retired.push(claimed);
            }
        });
        while self.above(bound, false).is_some() {
            let mut met = Met::default();
            let gone = match self.evict_one(&mut met) {
                Some(claimed) => Ok(claimed),
                None => self.one_in_time(met),
            };
            let Ok(claimed) = gone else {
                let now = self.above(bound, true);
                return now
                    .map_or(Ok(()), |now| Err(CacheError::InUse { asked: bound, bound: now }));
            };
            self.release(Vec::from([claimed]));
        }
        Ok(())
    }
}

impl<S: Setup> Drop for Core<S> {
    fn drop(&mut self) {
        // What is still cached; no handle is left, and so no thread inside.
        let keys: Vec<Key> =
            (0..self.table.len()).filter_map(|slot| self.table.peek(slot)).collect();
        let mut free = Vec::new();
        for hold in keys.into_iter().filter_map(|key| self.table.hold(key)) {
            self.detach(&hold);
            free.extend(self.table.leave_hold(hold));
        }
        self.release(free);
    }
}

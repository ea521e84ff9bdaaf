//! A file with bytes on the simulated disk.

use super::{CPUS, Lie};
use crate::cache::Disk;
use crate::engine;
use crate::task::idle;
use crate::ticks::Ticks;
use core::ops::Range;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use zonal_cache::frames::PAGE;
use zonal_cache::store::{Store, StoreError};

/// What is behind what a short read gave.
const JUNK: u8 = 0xA5;
/// Of this number of requests of a kind one fails, or reads less, while the disk has faults.
const RARE: u32 = 10;

/// What went wrong on demand, and what met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) reads: u64,
    pub(super) short: u64,
    pub(super) writes: u64,
    pub(super) lens: u64,
    pub(super) flushes: u64,
    /// Requests that were on their way while others were.
    pub(super) beside: u64,
    /// Writes that met a read of what had been cut off or zeroed since that read began.
    pub(super) met: u64,
}

impl Counts {
    pub(super) const fn with(self, other: Self) -> Self {
        Self {
            reads: self.reads + other.reads,
            short: self.short + other.short,
            writes: self.writes + other.writes,
            lens: self.lens + other.lens,
            flushes: self.flushes + other.flushes,
            beside: self.beside + other.beside,
            met: self.met + other.met,
        }
    }
}

/// A request on its way.
#[derive(Clone, Debug)]
struct Request {
    bytes: Range<u64>,
    writes: bool,
    /// Requests that there had been when the virtual CPU began the step that it is part of.
    since: u64,
}

/// A page that was written since the last flush; whether it lasts by the next one that goes well, even if one before
/// fails: where the length was cut.
type Lasts = bool;

#[derive(Debug)]
struct Halves {
    /// What reads see.
    volatile: Vec<u8>,
    /// What is left if the power goes.
    durable: Vec<u8>,
    pending: BTreeMap<u64, Lasts>,
    /// What is on its way, by number.
    moving: BTreeMap<u64, Request>,
    /// Where bytes were cut off or zeroed, and after how many requests that was over, once it is.
    gone: Vec<(Range<u64>, u64)>,
    /// Requests that there had been when the virtual CPUs began their steps.
    steps: [u64; CPUS],
    number: u64,
    dice: fastrand::Rng,
    faulty: bool,
    counts: Counts,
    /// For [`Lie::Late`]: a page that was taken and is not there yet.
    late: Option<(u64, Vec<u8>)>,
    /// What broke the rules of a store.
    wrong: Option<String>,
}

/// Bytes on a disk, in two halves; the time is that of the disk's queue.
#[derive(Debug)]
pub(super) struct ByteFile {
    disk: Arc<Disk>,
    halves: Mutex<Halves>,
    lie: Lie,
}

impl Halves {
    /// Whether the next request of a kind fails.
    fn fails(&mut self) -> bool {
        self.faulty && self.dice.u32(..RARE) == 0
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        let end = at + bytes.len();
        if self.volatile.len() < end {
            // What is between has zeroes, which last as the length does.
            self.resize(end);
        }
        self.volatile[at..end].copy_from_slice(bytes);
        self.pending.entry((at / PAGE) as u64).or_insert(false);
    }

    fn resize(&mut self, len: usize) {
        let (from, to) = (len.min(self.volatile.len()), len.max(self.volatile.len()));
        self.volatile.resize(len, 0);
        self.pending.extend((from / PAGE..to.div_ceil(PAGE)).map(|page| (page as u64, true)));
    }

    fn flush(&mut self) {
        self.durable.resize(self.volatile.len(), 0);
        for page in core::mem::take(&mut self.pending).into_keys() {
            let at = (page as usize * PAGE).min(self.volatile.len());
            let end = (at + PAGE).min(self.volatile.len());
            self.durable[at..end].copy_from_slice(&self.volatile[at..end]);
        }
    }
}

impl Request {
    /// Whether both are at the same bytes, and one writes.
    const fn meets(&self, other: &Self) -> bool {
        (self.writes || other.writes)
            && self.bytes.start < other.bytes.end
            && other.bytes.start < self.bytes.end
    }
}

/// A request on its way, until dropped.
struct Moving<'a>(&'a ByteFile, u64);

impl Drop for Moving<'_> {
    fn drop(&mut self) {
        if let Ok(mut halves) = self.0.halves.lock() {
            halves.moving.remove(&self.1);
        }
    }
}

impl ByteFile {
    /// A file with these bytes, which last; `seed` says what goes wrong while it has faults.
    pub(super) fn new(disk: &Arc<Disk>, bytes: Vec<u8>, seed: u64, lie: Lie) -> Arc<Self> {
        let halves = Halves {
            durable: bytes.clone(),
            volatile: bytes,
            pending: BTreeMap::new(),
            moving: BTreeMap::new(),
            gone: Vec::new(),
            steps: [0; CPUS],
            number: 0,
            dice: fastrand::Rng::with_seed(seed),
            faulty: false,
            counts: Counts::default(),
            late: None,
            wrong: None,
        };
        Arc::new(Self { disk: disk.clone(), halves: Mutex::new(halves), lie })
    }

    /// No virtual CPU lets others go on while it has this.
    fn halves(&self) -> MutexGuard<'_, Halves> {
        self.halves.lock().expect("whole")
    }

    /// Has faults from now on, or none.
    pub(super) fn set_faulty(&self, faulty: bool) {
        self.halves().faulty = faulty;
    }

    pub(super) fn counts(&self) -> Counts {
        self.halves().counts
    }

    pub(super) fn wrong(&self) -> Option<String> {
        self.halves().wrong.clone()
    }

    /// What lasts.
    pub(super) fn durable(&self) -> Vec<u8> {
        self.halves().durable.clone()
    }

    /// What reads see.
    pub(super) fn volatile(&self) -> Vec<u8> {
        self.halves().volatile.clone()
    }

    /// A virtual CPU begins a step.
    pub(super) fn step(&self, cpu: usize) {
        let mut halves = self.halves();
        halves.steps[cpu] = halves.number;
    }

    /// From now on bytes go from the file by other means than a write, until [`are_gone`](Self::are_gone).
    pub(super) fn go(&self, bytes: Range<u64>) -> usize {
        let mut halves = self.halves();
        halves.gone.push((bytes, u64::MAX));
        halves.gone.len() - 1
    }

    pub(super) fn are_gone(&self, which: usize) {
        let mut halves = self.halves();
        halves.gone[which].1 = halves.number;
    }

    /// A request for bytes goes on its way. No write may meet another, nor a read, but one of bytes that have gone from
    /// the file since: the cache promises that to its stores.
    fn begin(&self, bytes: Range<u64>, writes: bool) -> Moving<'_> {
        let cpu = engine::cpu() as usize;
        let mut halves = self.halves();
        let since = halves.steps.get(cpu).copied().unwrap_or(halves.number);
        let own = Request { bytes, writes, since };
        let (mut met, mut wrong) = (0, None);
        for other in halves.moving.values().filter(|other| other.meets(&own)) {
            let read = if other.writes { &own } else { other };
            let both_write = own.writes && other.writes;
            let was_gone = |(bytes, over): &(Range<u64>, u64)| {
                *over >= read.since && bytes.start < read.bytes.end && read.bytes.start < bytes.end
            };
            if both_write || !halves.gone.iter().any(was_gone) {
                wrong = Some(format!("{own:?} meets {other:?}"));
            }
            met += 1;
        }
        halves.wrong = halves.wrong.take().or(wrong);
        halves.counts.met += met;
        halves.counts.beside += u64::from(!halves.moving.is_empty());
        halves.number += 1;
        let number = halves.number;
        halves.moving.insert(number, own);
        Moving(self, number)
    }

    /// Puts `pages` pages into the disk's queue; `each` moves one of them when its time has come, and may say that it was the
    /// last. A request without pages waits for those before it.
    fn queue(&self, pages: usize, mut each: impl FnMut(usize) -> bool) {
        let is_on_cpu = engine::with_cpu(|_, _| ()).is_some();
        let began = engine::now();
        let done = if is_on_cpu { self.disk.transfer(began, pages) } else { began };
        let parts = pages.max(1) as u64;
        for at in 0..pages.max(1) {
            let due = began + Ticks(done.since(began).0 / parts * (at as u64 + 1));
            idle(due.since(engine::now()));
            if at < pages && !each(at) {
                return;
            }
        }
    }

    /// Moves a page to the disk.
    fn put(&self, at: u64, page: &[u8]) {
        let mut halves = self.halves();
        if let Some((at, page)) = halves.late.take() {
            halves.put(at as usize, &page);
        }
        if self.lie == Lie::Late {
            halves.late = Some((at, page.to_vec()));
        } else {
            halves.put(at as usize, page);
        }
    }

    /// Which page of a write of `pages` goes where page `at` is to be.
    fn taken_for(&self, at: usize, pages: usize) -> usize {
        if self.lie == Lie::Swapped && pages > 1 && at < 2 { 1 - at } else { at }
    }
}

impl Store for ByteFile {
    fn len(&self) -> Result<u64, StoreError> {
        Ok(self.halves().volatile.len() as u64)
    }

    fn read(&self, offset: u64, pages: &mut [&mut [u8]]) -> Result<u64, StoreError> {
        let len = pages.len() * PAGE;
        let _moving = self.begin(offset..offset + len as u64, false);
        let (fails, mut most) = {
            let mut halves = self.halves();
            let is_short = pages.len() > 1 && halves.fails();
            let most = if is_short { halves.dice.usize(PAGE..len) } else { len };
            (halves.fails(), most)
        };
        let (asked, mut got) = (most, 0);
        self.queue(pages.len(), |at| {
            let halves = self.halves();
            let there = halves.volatile.get(offset as usize + at * PAGE..).unwrap_or(&[]);
            let part = there.len().min(most).min(PAGE);
            pages[at][..part].copy_from_slice(&there[..part]);
            pages[at][part..].fill(JUNK);
            got += part;
            most -= part;
            // What follows a page that is not whole is nothing that was asked for.
            most = if part < PAGE { 0 } else { most };
            true
        });
        let mut halves = self.halves();
        if fails {
            halves.counts.reads += 1;
            return Err(StoreError::IO);
        }
        halves.counts.short += u64::from(asked < len);
        match self.lie {
            Lie::Read if got > 100 && offset == 3 * PAGE as u64 => pages[0][100] ^= 1,
            Lie::Whole if asked < len => return Ok(len as u64),
            _ => {}
        }
        Ok(got as u64)
    }

    fn write(&self, offset: u64, pages: &[&[u8]]) -> Result<(), StoreError> {
        let len: usize = pages.iter().map(|page| page.len()).sum();
        let _moving = self.begin(offset..offset + len as u64, true);
        if self.lie == Lie::Lost && pages.len() == 1 {
            return Ok(());
        }
        // Of one that fails a part is there.
        let (fails, few) = {
            let mut halves = self.halves();
            let fails = halves.fails();
            (fails, if fails { halves.dice.usize(..pages.len()) } else { pages.len() })
        };
        self.queue(pages.len(), |at| {
            if at < few {
                let taken = pages[self.taken_for(at, pages.len())];
                let taken = &taken[..taken.len().min(pages[at].len())];
                self.put(offset + (at * PAGE) as u64, taken);
            }
            at < few
        });
        if fails {
            self.halves().counts.writes += 1;
            return if self.lie == Lie::Refused { Ok(()) } else { Err(StoreError::NO_SPACE) };
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> Result<(), StoreError> {
        // Before and after it others go on.
        self.queue(0, |_| true);
        {
            let mut halves = self.halves();
            if halves.fails() {
                halves.counts.lens += 1;
                return Err(StoreError::NO_SPACE);
            }
            if self.lie == Lie::Cut && len < halves.volatile.len() as u64 {
                // It keeps what it should have cut off.
            } else {
                halves.resize(len as usize);
            }
        }
        self.queue(0, |_| true);
        Ok(())
    }

    /// Zeroes last as the length does: as a hole in a file.
    fn zero(&self, offset: u64, len: u64) -> Result<(), StoreError> {
        let _moving = self.begin(offset..offset + len, true);
        let mut pages = offset / PAGE as u64..(offset + len) / PAGE as u64;
        let few = {
            let mut halves = self.halves();
            let fails = halves.fails();
            halves.counts.writes += u64::from(fails);
            if fails { halves.dice.u64(..pages.end - pages.start) } else { len / PAGE as u64 }
        };
        self.queue(0, |_| true);
        let mut halves = self.halves();
        for page in pages.by_ref().take(few as usize) {
            halves.put(page as usize * PAGE, &[0; PAGE]);
            halves.pending.insert(page, true);
        }
        if pages.is_empty() { Ok(()) } else { Err(StoreError::NO_SPACE) }
    }

    fn flush(&self) -> Result<(), StoreError> {
        self.queue(0, |_| true);
        let mut halves = self.halves();
        if halves.fails() {
            // What was written is lost unless it is written again, or where the length was changed.
            halves.counts.flushes += 1;
            halves.pending.retain(|_, lasts| *lasts);
            return Err(StoreError::IO);
        }
        if self.lie != Lie::Flush {
            halves.flush();
        }
        Ok(())
    }
}

//! A file of a cache, and the handles of it.

use crate::error::CacheError;
use crate::frames::PAGE;
use crate::gate::Gate;
use crate::host::Host;
use crate::inner::{Core, Setup};
use crate::later::LoadLater;
use crate::reach::Reach;
use crate::recent::Recent;
use crate::store::{Store, StoreError};
use crate::table::{Key, Kind};
use crate::window::Window;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use zonal::platform::{AtomicByte, AtomicWord, Lock, Platform};

/// How a handle is going to read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum Advice {
    /// As it turns out: windows open where reads follow each other.
    #[default]
    Normal = 0,
    /// From front to back: windows are twice as long.
    Sequential = 1,
    /// Here and there: nothing is read ahead.
    Random = 2,
    /// Each page once: a page goes as soon as it was read to its end, by [`File::read_at`] or by a [`File::pin`] that is
    /// dropped, if it is clean and had no other use. What is written stays as ever: it has to reach the store first.
    UseOnce = 3,
}

impl Advice {
    const ALL: [Self; 4] = [Self::Normal, Self::Sequential, Self::Random, Self::UseOnce];
}

/// What a file's handles have in common.
pub(crate) struct FileCore<S: Setup> {
    pub(crate) number: u64,
    pub(crate) store: Box<dyn Store>,
    /// The store's length never changes, nor does the file's.
    pub(crate) is_fixed: bool,
    /// Bytes in the file.
    pub(crate) len: <S::Host as Platform>::Word,
    /// Bytes that the store has for certain.
    pub(crate) stored: <S::Host as Platform>::Word,
    pub(crate) reach: Reach<S::Host>,
    /// Not 0: the file was unlinked, and what the store has is none of it. Changed with `flush` closed.
    pub(crate) stale: <S::Host as Platform>::Word,
    /// Writers share it, who changes the length or unlinks the file has it alone. Outside of `flush`.
    pub(crate) size: Gate<S::Host>,
    /// Who writes pages back shares it, who flushes or discards pages has it alone.
    pub(crate) flush: Gate<S::Host>,
    pub(crate) state: <S::Host as Host>::Mutex<State>,
    pub(crate) handles: <S::Host as Platform>::Word,
    /// What the host says of pages that it was asked to write: see `asked.rs`.
    pub(crate) cleaning: Arc<<S::Host as Platform>::Byte>,
    /// Loads that no thread has begun yet.
    pub(crate) later: <S::Host as Host>::Mutex<VecDeque<LoadLater<S>>>,
}

/// What of a file has not reached the store.
#[derive(Default)]
pub(crate) struct State {
    /// Pages that are dirty, or about to be, and since when.
    pub(crate) dirty: BTreeMap<u64, u64>,
    /// Pages that are on their way to the store, or about to be, and since when they were dirty: no other thread
    /// takes them off the list, if they have become dirty again.
    pub(crate) moving: BTreeMap<u64, u64>,
    /// Pages that were written since the last flush that went well.
    pub(crate) unflushed: BTreeSet<u64>,
    /// Pages that left that list since then because they had left memory.
    pub(crate) forgotten: u64,
    /// Pages that a flush that failed did not find in memory.
    pub(crate) lost: u64,
    /// Errors of writing so far, and the last.
    pub(crate) errors: u64,
    pub(crate) error: Option<StoreError>,
}

impl<S: Setup> FileCore<S> {
    pub(crate) fn key(&self, index: u64) -> Key {
        Key { file: self.number, index }
    }

    pub(crate) fn kind(&self) -> Kind {
        self.key(0).kind()
    }

    #[inline(always)]
    pub(crate) fn len(&self) -> u64 {
        // Acquire: with the release of a writer that made it longer.
        self.len.load(Acquire)
    }

    /// The file is `end` long at least.
    pub(crate) fn grow(&self, end: u64) {
        grow(&self.len, end);
    }

    /// Puts a page on the list of those to be written back, unless it is there.
    pub(crate) fn set_dirty(&self, core: &Core<S>, index: u64) {
        self.set_dirty_since(core, index, core.host.now());
    }

    /// The same for one that was dirty at a moment before.
    pub(crate) fn set_dirty_since(&self, core: &Core<S>, index: u64, moment: u64) {
        self.state.with(|state| {
            let before = state.dirty.len();
            let since = state.dirty.entry(index).or_insert(moment);
            *since = (*since).min(moment);
            let new = state.dirty.len() > before;
            // With the lock held, here and below: no page is counted out before it was counted in. Relaxed: the lock orders
            // what is of one file.
            let _ = core.dirty.fetch_add(u64::from(new), Relaxed);
        });
    }

    /// Takes pages of `first..end` off that list that are to leave without being written; the gate is closed.
    pub(crate) fn take_dirty(&self, core: &Core<S>, (first, end): (u64, u64)) {
        self.state.with(|state| {
            let mut rest = state.dirty.split_off(&first);
            let mut beyond = rest.split_off(&end);
            state.dirty.append(&mut beyond);
            let _ = core.dirty.fetch_add((rest.len() as u64).wrapping_neg(), Relaxed);
        });
    }

    /// Takes pages off that list that are to be written, which no other thread writes just now: up to `most`, from
    /// `first` on and before `end`, dirty since `before` at least.
    pub(crate) fn take_to_write(
        &self,
        core: &Core<S>,
        (first, end): (u64, u64),
        most: usize,
        before: u64,
    ) -> Vec<u64> {
        self.state.with(|state| {
            let range = state.dirty.range(first..end.max(first));
            let old = range
                .filter(|(index, since)| **since <= before && !state.moving.contains_key(index));
            let taken: Vec<u64> = old.map(|(&index, _)| index).take(most).collect();
            for &index in &taken {
                let since = state.dirty.remove(&index).unwrap_or(before);
                state.moving.insert(index, since);
            }
            let _ = core.dirty.fetch_add((taken.len() as u64).wrapping_neg(), Relaxed);
            taken
        })
    }
}

/// Has a word be `least` at least.
pub(crate) fn grow<W: AtomicWord>(word: &W, least: u64) {
    let mut seen = word.load(Relaxed);
    while seen < least {
        // Release: with the acquire of who reads the length, for the bytes that are there now.
        match word.compare_exchange(seen, least, Release, Relaxed) {
            Ok(_) => return,
            Err(now) => seen = now,
        }
    }
}

/// An open file: reads and writes go through the cache. A clone is another handle: with a window of
/// its own, and told of errors by itself. A thread should have its own.
///
/// When the last handle goes, pages that are dirty are written back, without a flush. Those that
/// cannot be written stay in memory, and the store with them, until [`PageCache::sync`](crate::PageCache::sync)
/// could, the host's writer, or one who needs their room. [`sync`](Self::sync) first is how to know.
pub struct File<S: Setup> {
    pub(crate) core: Arc<Core<S>>,
    pub(crate) file: Arc<FileCore<S>>,
    pub(crate) window: <S::Host as Host>::Mutex<Window>,
    /// The page that was looked at last, plus 1: looks at the same page again are one use.
    pub(crate) last: <S::Host as Platform>::Word,
    /// Pages that it copied a short while ago.
    pub(crate) recent: Recent,
    advice: <S::Host as Platform>::Byte,
    /// Where a range ends at most that is read without a look at the advice: anywhere, or nowhere if pages are to go.
    pub(crate) at_once: <S::Host as Platform>::Word,
    /// Not 0: it has a quarter more of the dirty limits.
    less_throttled: <S::Host as Platform>::Byte,
    /// Errors of which this handle was told.
    told: <S::Host as Platform>::Word,
    /// Nanoseconds that the handle's writers are to pause for.
    pub(crate) debt: <S::Host as Platform>::Word,
}

impl<S: Setup> File<S> {
    pub(crate) fn open(core: Arc<Core<S>>, store: Box<dyn Store>) -> Result<Self, CacheError> {
        let len = store.len()?;
        if len > i64::MAX as u64 {
            return Err(CacheError::OffsetTooLarge { offset: len });
        }
        Ok(Self::with(core, store, Kind::File, (len, len)))
    }

    /// A file of `len` bytes, of which the store has `stored`. If those are fewer, what it has beyond is not the
    /// file's.
    pub(crate) fn with(
        core: Arc<Core<S>>,
        store: Box<dyn Store>,
        kind: Kind,
        (len, stored): (u64, u64),
    ) -> Self {
        let owner = core.new_file_number();
        let number = kind.number(owner);
        // Where threads wait is a number that others may have too.
        let place = owner as usize;
        let file = Arc::new(FileCore {
            number,
            is_fixed: store.has_fixed_len(),
            store,
            len: AtomicWord::new(len),
            stored: AtomicWord::new(stored),
            reach: Reach::default(),
            stale: AtomicWord::new(u64::from(stored < len)),
            size: Gate::new(place),
            flush: Gate::new(place.wrapping_add(1)),
            state: Lock::new(State::default()),
            // Before others know of the file: one without a handle is let go.
            handles: AtomicWord::new(1),
            cleaning: Arc::new(AtomicByte::new(0)),
            later: Lock::new(VecDeque::new()),
        });
        core.files.with(|files| files.insert(number, file.clone()));
        Self::new(core, file)
    }

    /// A handle that is counted already.
    fn new(core: Arc<Core<S>>, file: Arc<FileCore<S>>) -> Self {
        let told = file.state.with(|state| state.errors);
        Self {
            core,
            file,
            window: Lock::new(Window::new()),
            last: AtomicWord::new(0),
            recent: Recent::new(),
            advice: AtomicByte::new(Advice::Normal as u8),
            at_once: AtomicWord::new(i64::MAX as u64),
            less_throttled: AtomicByte::new(0),
            told: AtomicWord::new(told),
            debt: AtomicWord::new(0),
        }
    }

    /// Bytes in the file. O(1).
    #[must_use]
    pub fn len(&self) -> u64 {
        self.file.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How this handle is going to read.
    pub fn advise(&self, advice: Advice) {
        self.advice.store(advice as u8, Relaxed);
        let end = if advice == Advice::UseOnce { 0 } else { i64::MAX as u64 };
        self.at_once.store(end, Relaxed);
    }

    pub(crate) fn advice(&self) -> Advice {
        Advice::ALL[usize::from(self.advice.load(Relaxed)) & 3]
    }

    /// Whether this handle has a quarter more of the dirty limits than others: for those who must get on, and who write
    /// so that others can (Linux: `PF_LESS_THROTTLE`, real-time tasks). It is slowed later, writes back itself later,
    /// and may have a frame of a zone that is at its limit for others.
    pub fn throttle_less(&self, less: bool) {
        self.less_throttled.store(u8::from(less), Relaxed);
    }

    pub(crate) fn is_less_throttled(&self) -> bool {
        self.less_throttled.load(Relaxed) != 0
    }

    /// The last error of writing, if this handle was not told of one so late.
    pub(crate) fn new_error(&self) -> Option<StoreError> {
        let (errors, error) = self.file.state.with(|state| (state.errors, state.error));
        // Relaxed: the lock has ordered what counts.
        if self.told.swap(errors, Relaxed) == errors { None } else { error }
    }

    /// Bytes from `offset` on, of `len`, that are in the range of offsets.
    pub(crate) fn checked_end(offset: u64, len: usize) -> Result<u64, CacheError> {
        let end = offset.checked_add(len as u64).filter(|&end| end <= i64::MAX as u64);
        end.ok_or(CacheError::OffsetTooLarge { offset })
    }
}

impl<S: Setup> Clone for File<S> {
    fn clone(&self) -> Self {
        let _ = self.file.handles.fetch_add(1, Relaxed);
        let clone = Self::new(self.core.clone(), self.file.clone());
        clone.advise(self.advice());
        clone.throttle_less(self.is_less_throttled());
        clone
    }
}

impl<S: Setup> Drop for File<S> {
    fn drop(&mut self) {
        // Release and acquire: what other handles did comes before.
        if self.file.handles.fetch_add(1_u64.wrapping_neg(), AcqRel) == 1 {
            self.file.close(&self.core);
        }
    }
}

impl<S: Setup> fmt::Debug for File<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("File")
            .field("number", &self.file.number)
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

/// The pages that a range of bytes touches: the first, and the one after the last.
pub(crate) const fn pages_of(offset: u64, end: u64) -> (u64, u64) {
    (offset / PAGE as u64, end.div_ceil(PAGE as u64))
}

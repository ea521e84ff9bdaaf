//! Reading: by a copy, or by a look at the pages.

use crate::discard::Which;
use crate::error::CacheError;
use crate::evict::touch;
use crate::file::{Advice, File, pages_of};
use crate::frames::{Frames, PAGE, span};
use crate::inner::{Met, Setup};
use crate::load::Load;
use crate::page::Page;
use crate::pinned::{Over, Pinned, Rest, Several};
use crate::table::{Reader, Seen, Token};
use crate::window::Plan;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::Ordering::Relaxed;
use zonal::platform::{AtomicByte, AtomicWord, Lock};

/// Pages that one request to a store reads at most for the thread that waits for it.
const MOST: u64 = 64;
/// Pages of a request that reads ahead. A window is several, which are on their way at once.
const PIECE: u64 = 32;
/// The part of the cache that a window may be: that one and the next are a tenth then, which is what a policy may have for pages
/// that were not used yet.
const UNUSED_WINDOWS: u64 = 20;
/// Pages of what a thread wants that are asked for at once.
const WANTED: u64 = 1024;
/// Bytes of a pinned page that are expected to be looked at at once.
const LOOKED_AT: usize = 128;

impl<S: Setup> File<S> {
    /// Copies bytes from `offset` on into `into`; how many. Fewer than fit where the file ends, or before a
    /// page that cannot be had: the error is that of the read which begins there. Where pages are in
    /// memory that takes no lock and costs two locked instructions a page.
    ///
    /// # Errors
    /// [`CacheError::Store`] as the store said for the first page, [`CacheError::NoRoom`] if there is
    /// no room for it, [`CacheError::OffsetTooLarge`].
    #[inline]
    pub fn read_at(&self, into: &mut [u8], offset: u64) -> Result<usize, CacheError> {
        let (index, from) = (offset / PAGE as u64, (offset % PAGE as u64) as usize);
        let (upto, end) = (from + into.len(), offset.saturating_add(into.len() as u64));
        // As in `pin`: what of it is in one page that is at hand.
        if offset < end
            && upto <= PAGE
            && end <= self.file.len()
            && end <= self.at_once.load(Relaxed)
            && self.copied(index, from..upto, into)
        {
            return Ok(into.len());
        }
        self.read_any(into, offset)
    }

    /// Copies from a page that no lock is needed for; whether there is one.
    #[inline(always)]
    fn copied(&self, index: u64, part: Range<usize>, into: &mut [u8]) -> bool {
        let recent = S::Frames::HAS_BYTES && self.recent.remember(index);
        let fetched = if recent { part.start..part.start } else { part.clone() };
        let Some(page) = self.at_hand(index, fetched) else { return false };
        self.copy(&page[span::<S::Frames>(part)], into, recent);
        true
    }

    #[inline(always)]
    fn copy(&self, page: &[u8], into: &mut [u8], recent: bool) {
        if S::Frames::HAS_BYTES {
            self.core.frames.read(page, into, recent);
        }
    }

    /// The same for bytes of several pages, or none, or of one that is not at hand, or that goes when it was read.
    #[inline(never)]
    fn read_any(&self, into: &mut [u8], offset: u64) -> Result<usize, CacheError> {
        let end = Self::checked_end(offset, into.len())?.min(self.file.len());
        let once = self.advice() == Advice::UseOnce;
        let mut done = 0;
        let mut at = offset;
        // Pages that were read to their end and are to go.
        let mut over = offset / PAGE as u64..offset / PAGE as u64;
        while at < end {
            let (index, from) = (at / PAGE as u64, (at % PAGE as u64) as usize);
            let part = (PAGE - from).min((end - at) as usize);
            let into = &mut into[done..done + part];
            if !self.copied(index, from..from + part, into) {
                match self.missed(index, end) {
                    Ok(page) => self.copy(&page[span::<S::Frames>(from..from + part)], into, false),
                    Err(_) if done > 0 => break,
                    Err(error) => return Err(error),
                }
            }
            done += part;
            at += part as u64;
            if once && (from + part == PAGE || at == self.file.len()) {
                over.end = index + 1;
                if over.end - over.start == PIECE {
                    self.let_go(&over);
                    over.start = over.end;
                }
            }
        }
        if !over.is_empty() {
            self.let_go(&over);
        }
        Ok(done)
    }

    /// Bytes of the file without a copy, as they are now: they stay in memory, and as they are, until this
    /// is dropped, whatever is written to the file meanwhile. The range ends where the file does.
    ///
    /// What is pinned counts for the bound. With [`Advice::UseOnce`] pages go when it is dropped, those that it has to their
    /// end. A thread that pins all of it and then reads more is told
    /// [`CacheError::NoRoom`].
    ///
    /// # Errors
    /// As [`read_at`](Self::read_at), for any page of the range; then nothing is pinned.
    /// [`CacheError::OffsetTooLarge`] also where the range ends before it begins. More than the bound is
    /// [`CacheError::NoRoom`] at once.
    #[inline(always)]
    pub fn pin(&self, range: Range<u64>) -> Result<Pinned<'_, S>, CacheError> {
        let (index, from) = (range.start / PAGE as u64, (range.start % PAGE as u64) as usize);
        let end = range.end.min(self.file.len());
        if range.start < end
            && (end - 1) / PAGE as u64 == index
            && range.end <= self.at_once.load(Relaxed)
            && let upto = ((end - 1) % PAGE as u64) as usize + 1
            && let Some(page) = self.pin_one(index, from)
        {
            return Ok(Pinned::one(page, from..upto));
        }
        // Taken apart and put together: where what is above is inlined it is in registers then, and not beside what this
        // call leaves in memory.
        let Some((first, rest, inside)) = self.pin_any(range)? else { return Ok(Pinned::none()) };
        Ok(Pinned::several(first, rest, inside))
    }

    /// A page that no lock is needed for, by a call whose result is in registers where it is not inlined.
    #[inline]
    fn pin_one(&self, index: u64, from: usize) -> Option<Page<'_, S>> {
        // Near the end of a page that is a line of the next one too, which does no harm.
        self.at_hand(index, from..from + LOOKED_AT)
    }

    /// The same for several pages, or none, or one that is not at hand, or that goes when it was used.
    #[inline(never)]
    fn pin_any(&self, range: Range<u64>) -> Result<Option<Several<'_, S>>, CacheError> {
        let len = range.end.checked_sub(range.start);
        let len = len.and_then(|len| len.try_into().ok());
        let offset = range.start;
        let len = len.ok_or(CacheError::OffsetTooLarge { offset })?;
        let end = Self::checked_end(offset, len)?.min(self.file.len());
        let from = (offset % PAGE as u64) as usize;
        if end <= offset {
            return Ok(None);
        }
        let (first, last) = pages_of(offset, end);
        let page = |index: u64, from: usize| {
            let upto = (end - index * PAGE as u64).min(PAGE as u64) as usize;
            // Where it is looked at first is at its begin.
            self.page(index, end, from..upto.min(from + LOOKED_AT))
        };
        // Without the lock of the bound: pages that are there take none.
        let bound = self.core.bound_hint();
        if last - first > bound {
            return Err(CacheError::NoRoom { bound: bound as usize });
        }
        let front = page(first, from)?;
        let mut rest = Vec::with_capacity((last - first - 1) as usize);
        for index in first + 1..last {
            rest.push(page(index, 0)?);
        }
        let upto = (end - (last - 1) * PAGE as u64) as usize;
        let over = self.over(offset, end);
        let rest =
            (!rest.is_empty() || over.is_some()).then(|| Box::new(Rest { pages: rest, over }));
        Ok(Some((front, rest, from..upto)))
    }

    /// Pages that are used once, and not needed once all up to `end` was looked at.
    fn over(&self, offset: u64, end: u64) -> Option<Over<'_, S>> {
        if self.advice() != Advice::UseOnce {
            return None;
        }
        let (first, mut last) = pages_of(offset, end);
        if end < self.file.len() {
            last = end / PAGE as u64;
        }
        (first < last).then(|| Over { file: self, pages: first..last })
    }

    /// A page, read if need be. `end` is where the request ends, `part` what of the page will be looked at.
    #[inline(always)]
    fn page(&self, index: u64, end: u64, part: Range<usize>) -> Result<Page<'_, S>, CacheError> {
        self.at_hand(index, part).map_or_else(|| self.missed(index, end), Ok)
    }

    /// A page that no lock is needed for.
    #[inline(always)]
    fn at_hand(&self, index: u64, part: Range<usize>) -> Option<Page<'_, S>> {
        let core = &*self.core;
        let expect = |low| core.frames.expect(low, part.clone());
        let (seen, marked) = match core.table.see(&core.host, self.file.key(index), expect) {
            Ok(found) => found,
            Err(free) => {
                core.release_one(free);
                return None;
            }
        };
        self.used(index, &seen);
        let seen = if marked { self.marked(index, seen) } else { seen };
        Some(Page::new(core, seen))
    }

    #[cold]
    #[inline(never)]
    fn missed(&self, index: u64, end: u64) -> Result<Page<'_, S>, CacheError> {
        let reader = self.miss(index, end)?;
        let seen = self.core.table.seen(reader);
        self.used(index, &seen);
        Ok(Page::new(&self.core, self.marked(index, seen)))
    }

    /// Looks at the same page again are one use.
    #[inline(always)]
    fn used(&self, index: u64, page: &Seen<'_, S::Host>) {
        // Relaxed: a hint of this handle.
        if self.last.load(Relaxed) != index + 1 {
            self.last.store(index + 1, Relaxed);
            touch::<S::Evict, _>(page.mark());
        }
    }

    /// Has the next window read if this reader is the first at a page with a marker.
    #[cold]
    #[inline(never)]
    fn marked<'a>(&'a self, index: u64, seen: Seen<'a, S::Host>) -> Seen<'a, S::Host> {
        // The store may panic.
        let page = Page::new(&self.core, seen);
        if page.take_marker() {
            self.read_ahead(index);
        }
        page.into_seen()
    }

    /// Pages of one request that may be on their way: those of a cache that is small leave room for others.
    fn fair(&self) -> u64 {
        (self.core.bound_hint() / 8).max(1)
    }

    /// How long a window may be, of requests of `wanted` pages: one that is longer than the limit has as much read ahead as it is
    /// long itself.
    fn most(&self, wanted: u64) -> u64 {
        let most = match self.advice() {
            Advice::Normal | Advice::UseOnce => u64::from(self.core.limits.window),
            Advice::Sequential => u64::from(self.core.limits.window) * 2,
            Advice::Random => 0,
        };
        let fair = (self.core.bound_hint() / UNUSED_WINDOWS).max(1);
        // In whole pieces, or in one that makes a block.
        let fair =
            if fair >= PIECE { fair - fair % PIECE } else { (fair + 1).next_power_of_two() / 2 };
        let most = if most == 0 { 0 } else { most.max(wanted) };
        most.min(fair)
    }

    /// A page that a lock is needed for: it is not there, or being read or written.
    fn miss(&self, index: u64, end: u64) -> Result<Reader, CacheError> {
        let core = &*self.core;
        loop {
            if let Some(hold) = core.table.hold(self.file.key(index)) {
                self.file.read_if_queued(index);
                match core.settled(core.table.read(&core.host, hold)) {
                    Some(result) => return result,
                    None => continue,
                }
            }
            let (_, last) = pages_of(0, end);
            let fair = self.fair();
            let wanted = last.saturating_sub(index).clamp(1, WANTED.min(fair));
            let before = self.last.load(Relaxed);
            let most = self.most(wanted);
            let pages = self.pages();
            let plan = self.window.with(|window| {
                window.read_to(before, last);
                let plan = window.miss(index, wanted, most);
                window.clip(plan, pages)
            });
            // What is read ahead, and the rest of what is wanted, is begun before this thread waits for what it wants first.
            let own = plan.pages.min(wanted.clamp(PIECE, MOST)).max(1);
            let mut slots = core.take_slots(own as usize, Met::of(self.file.number))?;
            let load = Load::begin(&self.core, &self.file, index, &mut slots, plan.marker);
            drop(slots);
            if !load.is_empty() {
                let begun = load.len() as u64;
                if plan.pages > begun {
                    let (first, pages) = (plan.first + begun, plan.pages - begun);
                    self.start(Plan { first, pages, marker: plan.marker });
                }
                // The first use of a page is its coming, and no hit.
                self.last.store(index + 1, Relaxed);
                if let Some(reader) = load.fill()? {
                    return Ok(reader);
                }
            }
        }
    }

    /// How many pages the file has.
    fn pages(&self) -> u64 {
        pages_of(0, self.file.len()).1
    }

    /// The mark was met at `index`: has the next window read by another thread.
    fn read_ahead(&self, index: u64) {
        if self.most(1) > 0 {
            let pages = self.pages();
            let plan = self.window.with(|window| {
                let most = self.most(window.wanted());
                let plan = window.marker(index, most);
                window.clip(plan, pages)
            });
            self.start(plan);
        }
    }

    /// Has pages read that are not there, by another thread, as far as there is room at once.
    fn start(&self, plan: Plan) {
        self.load_later(plan);
        self.file.store.begin_reads();
    }

    fn load_later(&self, plan: Plan) {
        let mut index = plan.first;
        let end = plan.first + plan.pages;
        while index < end {
            if let Some(hold) = self.core.table.hold(self.file.key(index)) {
                self.core.release_one(self.core.table.leave_hold(hold));
                index += 1;
                continue;
            }
            let mut slots = self.core.take_slots_at_once((end - index).min(PIECE) as usize);
            if slots.is_empty() {
                return;
            }
            let load = Load::begin(&self.core, &self.file, index, &mut slots, plan.marker);
            drop(slots);
            index += load.len().max(1) as u64;
            if !load.is_empty() {
                load.fill_later();
            }
        }
    }

    /// Has the pages of a range read soon, as far as there is room, without waiting for them.
    pub fn will_need(&self, range: Range<u64>) {
        let (first, last) = pages_of(range.start, range.end.min(self.file.len()));
        let most = self.core.bound_hint() / 2;
        let pages = last.saturating_sub(first).min(most);
        self.start(Plan { first, pages, marker: None });
    }

    /// Pages that were read to their end go, those that are clean and were not used before.
    #[cold]
    pub(crate) fn let_go(&self, pages: &Range<u64>) {
        let mut free = Vec::new();
        for index in pages.clone() {
            let Some(hold) = self.core.table.hold(self.file.key(index)) else { continue };
            if self.core.table.mark(hold.id()).load(Relaxed) == 0 {
                let _ = self.core.table.detach_clean(&hold);
            }
            free.extend(self.core.table.leave_hold(hold));
        }
        self.core.release(free);
    }

    /// Takes the pages of a range that are clean out of memory; how many. Those that are dirty, or on
    /// their way, stay; those that are pinned stay in memory until they are not. What is read next
    /// comes from the store.
    pub fn invalidate(&self, range: Range<u64>) -> u64 {
        let (first, last) = pages_of(range.start, range.end);
        let (free, count) = self.file.take_out(&self.core, first..last, Which::Clean);
        self.core.release(free);
        count
    }
}

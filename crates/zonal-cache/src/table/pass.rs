//! From one token to another.

#![expect(clippy::needless_pass_by_value, reason = "who gives a token away has it no more")]

use super::word::{HOLD, READER, Word};
use super::{Claimed, Hold, Key, Reader, SlotId, Table, Writeback, Writer};
use crate::host::Host;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use zonal::platform::{AtomicByte, AtomicWord, Lock};

/// What became of a hold.
#[derive(Debug)]
#[must_use]
pub enum Settled<T> {
    /// What was asked for.
    Done(T),
    /// The page has left the index; it may be there anew. With a slot, if that is the caller's to free.
    Gone(Option<Claimed>),
    /// The store could not fill the page, for this reason.
    Failed(u32, Option<Claimed>),
    /// More readers than can be counted are there.
    Crowded(Option<Claimed>),
}

/// What became of an attempt to take a page out.
#[derive(Debug)]
#[must_use]
pub enum Taken {
    /// It is the caller's.
    Claimed(Claimed),
    /// Readers or others are there.
    InUse,
    /// A writer, a load or a writeback is under way, which ends by itself.
    Moving,
    /// It has to be written first.
    Dirty(Key),
}

/// What became of an attempt to take a page out by its key.
#[derive(Debug)]
#[must_use]
pub enum TakenOut {
    /// It is the caller's. Whether it was dirty.
    Claimed(Claimed, bool),
    /// Others are there, or it is dirty: it has to be [held](Table::hold).
    Kept,
    /// There is none.
    NotThere,
}

impl<P: Host> Table<P> {
    /// Changes the word of a slot; what it was. `change` gives `None` to leave it.
    fn change(&self, id: SlotId, change: impl Fn(Word) -> Option<u64>) -> Option<Word> {
        let word = &self.slot(id).word;
        let mut seen = word.load(Relaxed);
        loop {
            let new = change(Word(seen))?;
            // Acquire and release: with the same of the other thread that was or will be there.
            match word.compare_exchange(seen, new, AcqRel, Relaxed) {
                Ok(_) => return Some(Word(seen)),
                Err(now) => seen = now,
            }
        }
    }

    /// Ends a look; one locked instruction. The slot, if it is the caller's to free now.
    #[inline(always)]
    #[must_use]
    pub fn leave(&self, reader: Reader) -> Option<Claimed> {
        self.seen(reader).leave(self)
    }

    /// Ends a hold. The slot, if it is the caller's to free now.
    #[must_use]
    pub fn leave_hold(&self, hold: Hold) -> Option<Claimed> {
        let before = self.slot(hold.0).word.fetch_add(HOLD.wrapping_neg(), AcqRel);
        self.last(hold.0, before, HOLD)
    }

    /// Waits until no writer has the page.
    fn wait(&self, host: &P, hold: &Hold) -> Word {
        let word = &self.slot(hold.0).word;
        loop {
            // Acquire: with the release of the writer.
            let seen = word.load(Acquire);
            if !Word(seen).has(Word::WRITER) {
                return Word(seen);
            }
            let waiting = seen | Word::WAITERS;
            if seen != waiting && word.compare_exchange(seen, waiting, Relaxed, Relaxed).is_err() {
                continue;
            }
            let both = Word::WRITER | Word::WAITERS;
            host.wait(hold.0.0 as usize, &|| word.load(Acquire) & both == both);
        }
    }

    /// What a page that is not to be used any more says to one who has a hold.
    fn gone<T>(&self, hold: Hold, seen: Word) -> Settled<T> {
        // Relaxed: written before the flag was set with release.
        let code = self.slot(hold.0).code.load(Relaxed) as u32;
        let free = self.leave_hold(hold);
        if seen.has(Word::FAILED) { Settled::Failed(code, free) } else { Settled::Gone(free) }
    }

    /// Waits until the bytes are there, and looks at them.
    pub fn read(&self, host: &P, hold: Hold) -> Settled<Reader> {
        loop {
            let seen = self.wait(host, &hold);
            if seen.has(Word::DETACHED) {
                return self.gone(hold, seen);
            }
            let into = |now: Word| now.is_readable().then(|| now.0 - HOLD + READER);
            if self.change(hold.0, into).is_some() {
                return Settled::Done(Reader::at_word(hold.0));
            }
            if seen.has(Word::UPTODATE) && seen.readers() == HOLD - 1 {
                return Settled::Crowded(self.leave_hold(hold));
            }
        }
    }

    /// Waits until the bytes are there and no other writes them; then no reader comes in any more.
    /// Those that are there already may stay: see [`has_readers`](Self::has_readers).
    pub fn write(&self, host: &P, hold: Hold) -> Settled<Writer> {
        loop {
            let seen = self.wait(host, &hold);
            if seen.has(Word::DETACHED) {
                return self.gone(hold, seen);
            }
            let into = |now: Word| {
                let free = now.has(Word::UPTODATE) && !now.has(Word::WRITER | Word::DETACHED);
                free.then_some(now.0 | Word::WRITER)
            };
            if self.change(hold.0, into).is_some() {
                return Settled::Done(Writer(hold.0));
            }
        }
    }

    /// Whether the page has left the index.
    pub(crate) fn is_detached(&self, writer: &Writer) -> bool {
        // Relaxed: who has seen what came after it left, has that order already.
        Word(self.slot(writer.0).word.load(Relaxed)).has(Word::DETACHED)
    }

    /// Whether readers are there, who must not see a write.
    #[must_use]
    pub fn has_readers(&self, writer: &Writer) -> bool {
        self.is_read(writer.0)
    }

    /// The bytes are there, and `dirty` if they are newer than the store's. Whether they were not before.
    /// The slot, if it is the caller's to free.
    pub fn finish(&self, host: &P, writer: Writer, dirty: bool) -> (bool, Option<Claimed>) {
        let before = self.end(host, writer.0, |now| {
            // What is detached is of no use to the store.
            let dirty = dirty && !now.has(Word::DETACHED);
            (now.0 - HOLD) | Word::UPTODATE | if dirty { Word::DIRTY } else { 0 }
        });
        let became = dirty && !before.has(Word::DIRTY | Word::DETACHED);
        (became, self.last(writer.0, before.0, HOLD))
    }

    /// As [`finish`](Self::finish) for bytes that are the store's, with a look at them. With a `marker` the first
    /// reader that comes to the page has the next window read ahead.
    pub fn filled(&self, host: &P, writer: Writer, marker: bool) -> Reader {
        let marker = if marker { Word::MARKER } else { 0 };
        self.end(host, writer.0, |now| (now.0 - HOLD + READER) | Word::UPTODATE | marker);
        Reader::at_word(writer.0)
    }

    /// The store could not fill the page: it leaves the index, and all who wait for it are told `code`.
    #[must_use]
    pub fn fail(&self, host: &P, writer: Writer, code: u32) -> Option<Claimed> {
        // Relaxed: the release of `end` follows.
        self.slot(writer.0).code.store(u64::from(code), Relaxed);
        self.out(host, writer, Word::FAILED)
    }

    /// The page is not filled after all: it leaves the index, and those who wait for it look anew.
    #[must_use]
    pub fn abandon(&self, host: &P, writer: Writer) -> Option<Claimed> {
        self.out(host, writer, 0)
    }

    fn out(&self, host: &P, writer: Writer, flag: u64) -> Option<Claimed> {
        let hold = Hold(writer.0);
        let _ = self.detach(&hold);
        let before = self.end(host, writer.0, |now| (now.0 - HOLD) | flag);
        self.last(writer.0, before.0, HOLD)
    }

    /// Ends a writer's part, by `change`, and wakes those who wait. What was before.
    fn end(&self, host: &P, id: SlotId, change: impl Fn(Word) -> u64) -> Word {
        let over = |now| Some(change(now) & !(Word::WRITER | Word::WAITERS));
        let before = self.change(id, over).unwrap_or(Word(0));
        if before.has(Word::WAITERS) {
            host.wake(id.0 as usize);
        }
        before
    }

    /// Puts another slot in the place of one that readers have; the readers keep what they see. The
    /// caller has copied the bytes. Whether the old one was dirty, which it is no more; and the old one,
    /// if the readers have left meanwhile.
    ///
    /// # Errors
    /// Both, if the page has left the index: the writer is to be finished.
    pub fn replace(
        &self,
        host: &P,
        old: Writer,
        new: Claimed,
    ) -> Result<(Writer, bool, Option<Claimed>), (Writer, Claimed)> {
        let (from, to) = (self.slot(old.0), self.slot(new.0));
        let key = from.key();
        let chain = self.chain(key);
        let swapped = self.shard(chain).with(|()| {
            // Only who has the chain's lock detaches.
            if Word(from.word.load(Relaxed)).has(Word::DETACHED) {
                return false;
            }
            to.set_key(key);
            to.mark.store(from.mark.load(Relaxed), Relaxed);
            // Release: with the acquire of those who count themselves in.
            let spread = from.word.load(Relaxed) & Word::SPREAD;
            to.word.store(Word::WRITER | Word::UPTODATE | HOLD | spread, Release);
            self.unlink(old.0, chain, Some(new.0));
            let _ = from.word.fetch_or(Word::DETACHED, Release);
            true
        });
        if !swapped {
            return Err((old, new));
        }
        let before = self.end(host, old.0, |now| (now.0 - HOLD) & !Word::DIRTY);
        Ok((Writer(new.0), before.has(Word::DIRTY), self.last(old.0, before.0, HOLD)))
    }

    /// Begins to write a dirty page back: from now on it is clean, and what is written to it makes it
    /// dirty again.
    ///
    /// # Errors
    /// It is not dirty, or (true) has left the index; the hold is left, and the slot is the caller's if
    /// there is one.
    pub fn start_writeback(
        &self,
        host: &P,
        hold: Hold,
    ) -> Result<Writeback, (bool, Option<Claimed>)> {
        loop {
            let seen = self.wait(host, &hold);
            if seen.has(Word::DETACHED) || !seen.has(Word::DIRTY) {
                return Err((seen.has(Word::DETACHED), self.leave_hold(hold)));
            }
            let into = |now: Word| {
                let can = now.is_readable() && now.has(Word::DIRTY);
                can.then(|| ((now.0 - HOLD + READER) & !Word::DIRTY) | Word::WRITEBACK)
            };
            if self.change(hold.0, into).is_some() {
                return Ok(Writeback(hold.0));
            }
            P::relax();
        }
    }

    /// Ends a writeback. After one that failed (`well` is false) the page is dirty again, unless a newer one
    /// took its place: whether it became so. And the slot, if it is the caller's to free.
    #[must_use]
    pub fn written(&self, writeback: Writeback, well: bool) -> (bool, Option<Claimed>) {
        let over = |now: Word| {
            let stays = !well && !now.has(Word::DETACHED);
            let dirty = if stays { Word::DIRTY } else { 0 };
            Some(((now.0 - READER) & !Word::WRITEBACK) | dirty)
        };
        let before = self.change(writeback.0, over).unwrap_or(Word(0));
        let became = !well && !before.has(Word::DETACHED | Word::DIRTY);
        (became, self.last(writeback.0, before.0, READER))
    }

    /// Makes a page dirty again whose bytes the store may have lost. Whether it was not.
    #[must_use]
    pub fn redirty(&self, hold: &Hold) -> bool {
        let into = |now: Word| {
            let can = now.has(Word::UPTODATE) && !now.has(Word::DETACHED | Word::DIRTY);
            can.then_some(now.0 | Word::DIRTY)
        };
        self.change(hold.0, into).is_some()
    }
}

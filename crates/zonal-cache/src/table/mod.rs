//! Which page is in which slot, and who may do what with it.
//!
//! A cache with a bound has a fixed number of slots, as the buffer pool of a database has, and their
//! memory is never anything else. So a thread may look at any slot at any time: it finds one by the
//! index, counts itself in, and then compares the key again. If the slot has been given to another page
//! in between, it counts itself out and looks once more. Readers take no lock and need no epochs.
//!
//! The index is a hash table whose chains run through the slots. Chains are changed under one of
//! [`SHARDS`] locks and read without. A reader may be led astray by a slot that moved to another
//! chain, and then misses what is there: before it believes that, it looks again with the lock. Where neighbours have
//! slots in a row it guesses the slot, before any chain: see `stretches.rs`.
//!
//! # What a thread may do is what it has
//!
//! | token | others may | ends by |
//! |---|---|---|
//! | [`Reader`] | read | [`leave`](Table::leave) |
//! | [`Hold`] | read, write | [`read`](Table::read), [`write`](Table::write), [`leave_hold`](Table::leave_hold), … |
//! | [`Writer`] | nothing | [`finish`](Table::finish), [`fail`](Table::fail), [`abandon`](Table::abandon), [`replace`](Table::replace) |
//! | [`Writeback`] | read | [`written`](Table::written) |
//! | [`Claimed`] | nothing; the index does not have it | [`insert`](Table::insert), or its frame is freed |
//!
//! Readers of a page that several CPUs look at count themselves by CPU, not at its slot: see `lanes.rs`.
//!
//! A token that is dropped instead is a page that stays as it is for ever: the cache above wraps them in
//! guards.
//!
//! ```
//! use zonal::Pfn;
//! use zonal_cache::Threads;
//! use zonal_cache::table::{Key, Table};
//! let host = Threads::new();
//! let (table, mut free) = Table::<Threads>::new(2, 0);
//! let key = Key { file: 1, index: 7 };
//! let mut claimed = free.pop().unwrap();
//! table.set_frame(&mut claimed, Pfn::new(100));
//! let writer = table.insert(claimed, key).unwrap();
//! assert!(table.enter(&host, key).is_err(), "not up to date");
//! table.finish(&host, writer, false);
//! let reader = table.enter(&host, key).unwrap();
//! assert_eq!(table.frame_of(&reader), Pfn::new(100));
//! assert!(table.leave(reader).is_none());
//! ```

mod bytes;
mod chains;
mod lanes;
mod pass;
mod seen;
mod slot;
mod spread;
mod stretches;
mod word;

pub use pass::{Settled, Taken, TakenOut};
pub(crate) use seen::Seen;
pub use slot::{Claimed, Hold, Key, Reader, SlotId, Token, Writeback, Writer};
pub(crate) use slot::{KINDS, Kind};
pub(crate) use spread::Seems;

use crate::host::{Host, Part};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use core::ptr;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use lanes::Lanes;
use slot::{NONE, Slot};
use stretches::Stretches;
use word::{HOLD, READER, Word};
use zonal::Pfn;
use zonal::platform::{AtomicByte, AtomicHalf, AtomicWord, Lock};

/// Locks of the index. More than CPUs that miss at once.
pub const SHARDS: usize = 64;
/// Slots that are looked at without the lock. Chains have one or two; one that is longer is that of a
/// reader that was led astray.
const HOPS: u32 = 64;

/// The table: see the [module](self).
pub struct Table<P: Host> {
    slots: Box<[Slot<P>]>,
    /// The first slot of each chain, `NONE` for none. Written under the chain's lock.
    heads: Box<[P::Half]>,
    shards: Box<[P::Mutex<()>]>,
    /// Where readers of pages that several CPUs look at are counted.
    lanes: Lanes<P>,
    /// There are 2 to the power of 64 less this many chains.
    shift: u32,
    /// The low half of the number of each slot's frame, as it was last set, and of that of each chain's first slot: for who
    /// has the bytes fetched while chain and slot are. No words of the host: what they say decides nothing.
    lows: Box<[AtomicU32]>,
    hints: Box<[AtomicU32]>,
    /// Which neighbours have slots and frames in a row.
    stretches: Stretches,
}

impl<P: Host> Table<P> {
    /// A table of `slots`, and all of them to be used. At most 2³¹. Readers of a page that several CPUs look at count
    /// themselves in at one of `lanes`, rounded up to a power of 2, by their CPU; with 0 always at its slot. A lane takes
    /// 4 bytes for each slot.
    ///
    /// # Panics
    /// If `slots` is more than that.
    #[must_use]
    pub fn new(slots: usize, lanes: u32) -> (Self, Vec<Claimed>) {
        assert!(slots <= 1 << 31, "slots are counted in 31 bits");
        let heads = Self::chains(slots);
        let table = Self {
            shift: 64 - heads.ilog2(),
            slots: (0..slots as u32).map(|slot| Slot::new(SlotId(slot))).collect(),
            heads: (0..heads).map(|_| P::Half::new(NONE)).collect(),
            shards: (0..SHARDS.min(heads)).map(|_| P::Mutex::new(())).collect(),
            lanes: Lanes::new(lanes, slots),
            lows: (0..slots).map(|_| AtomicU32::new(0)).collect(),
            hints: (0..heads).map(|_| AtomicU32::new(0)).collect(),
            stretches: Stretches::new(Self::stretches(slots)),
        };
        // The lowest number is taken first.
        let free = (0..slots as u32).rev().map(|slot| Claimed(SlotId(slot))).collect();
        (table, free)
    }

    /// Tells the host where it is.
    pub(crate) fn place_on(&self, host: &P) {
        host.placed(Part::Slots, &self.slots);
        host.placed(Part::Chains, &self.heads);
        host.placed(Part::ChainLocks, &self.shards);
    }

    /// How many slots there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    #[inline(always)]
    fn slot(&self, id: SlotId) -> &Slot<P> {
        &self.slots[id.0 as usize]
    }

    /// The number of a slot of this table.
    fn id_of(&self, slot: &Slot<P>) -> SlotId {
        let bytes = ptr::from_ref(slot).addr() - self.slots.as_ptr().addr();
        SlotId((bytes / size_of::<Slot<P>>()) as u32)
    }

    /// Looks at a page whose bytes are there, without a lock; one locked instruction.
    ///
    /// # Errors
    /// The page has to be asked for by [`hold`](Self::hold): it is not there, or a writer has it, or
    /// this thread was led astray. In the last case it may have become the last reader of a page that
    /// had left the index: then its slot is the caller's to free.
    #[inline(always)]
    pub fn enter(&self, host: &P, key: Key) -> Result<Reader, Option<Claimed>> {
        self.see(host, key, |_| ()).map(|(seen, _)| seen.into_reader(self))
    }

    /// The same with the slot at hand, and whether the page probably has a [marker](Seen::take_marker); `expect` is told the low half of the number of the frame that the page probably has, before its slot is
    /// looked at: the line of the slot and those of the bytes are then on their way together. It may be any number.
    ///
    /// # Errors
    /// As [`enter`](Self::enter).
    #[inline(always)]
    pub(crate) fn see(
        &self,
        host: &P,
        key: Key,
        expect: impl Fn(u32),
    ) -> Result<(Seen<'_, P>, bool), Option<Claimed>> {
        let slot = self.look(key, expect).ok_or(None)?;
        let (seen, word) = self.count_in(host, slot)?;
        // No slot changes its key while a reader is there.
        let marked = word.has(Word::MARKER);
        if slot.is(key) { Ok((seen, marked)) } else { Err(seen.leave(self)) }
    }

    /// Counts a reader in, at the word or at a lane.
    #[inline(always)]
    fn count_in<'a>(
        &'a self,
        host: &P,
        slot: &'a Slot<P>,
    ) -> Result<(Seen<'a, P>, Word), Option<Claimed>> {
        let mut seen = slot.word.load(Relaxed);
        loop {
            if !Word(seen).is_readable() {
                return Err(None);
            }
            if Word(seen).has(Word::SPREAD) {
                return self.enter_lane(host, slot);
            }
            if Word(seen).readers() > 0 && self.spread_word(slot, &mut seen) {
                continue;
            }
            // Acquire: with the release of the writer that finished, for the bytes, and of the insertion,
            // for the key.
            match slot.word.compare_exchange(seen, seen + READER, Acquire, Relaxed) {
                Ok(_) => return Ok((Seen::new(slot, None), Word(seen))),
                Err(now) => seen = now,
            }
        }
    }

    /// A reader with its slot at hand.
    #[inline(always)]
    #[expect(clippy::needless_pass_by_value, reason = "who gives a token away has it no more")]
    pub(crate) fn seen(&self, reader: Reader) -> Seen<'_, P> {
        Seen::new(self.slot(reader.id), self.lanes.count(reader.lane, reader.id))
    }

    /// Holds the page with this key, whatever is being done with it. `None` if it is not there.
    /// Takes the lock of a chain.
    #[must_use]
    pub fn hold(&self, key: Key) -> Option<Hold> {
        self.shard(self.chain(key)).with(|()| {
            let id = self.find(key)?;
            // What is in a chain is neither claimed nor detached. Acquire: with the release of the
            // insertion.
            let _ = self.slot(id).word.fetch_add(HOLD, AcqRel);
            Some(Hold(id))
        })
    }

    /// Puts a page that has no bytes yet into the index; its writer is to fill it.
    ///
    /// # Errors
    /// The slot, if the page is there already.
    pub fn insert(&self, claimed: Claimed, key: Key) -> Result<Writer, Claimed> {
        let chain = self.chain(key);
        self.shard(chain).with(|()| {
            if self.find(key).is_some() {
                return Err(claimed);
            }
            let id = claimed.0;
            self.slot(id).set_key(key);
            // Release: with the acquire of all who count themselves in, for the key.
            self.slot(id).word.store(Word::WRITER | HOLD, Release);
            self.link(id, chain);
            Ok(Writer(id))
        })
    }

    /// Takes a page out that is clean and at rest, for another to have its slot. Takes the lock
    /// of a chain.
    pub fn claim(&self, id: SlotId) -> Taken {
        let slot = self.slot(id);
        let chain = self.chain(slot.key());
        self.shard(chain).with(|()| {
            // Acquire: with the release of the insertion, for the key.
            let seen = slot.word.load(Acquire);
            let moving = Word(seen).has(Word::WRITER | Word::WRITEBACK | Word::CLAIMED);
            // It may have come to its page after the key was read above.
            if moving || self.chain(slot.key()) != chain {
                return Taken::Moving;
            }
            if !Word(seen).is_alone() || Word(seen).has(Word::DETACHED) {
                return Taken::InUse;
            }
            if Word(seen).has(Word::DIRTY) {
                return Taken::Dirty(slot.key());
            }
            if !self.claim_word(id, seen) {
                return Taken::InUse;
            }
            self.unlink(id, chain, None);
            Taken::Claimed(Claimed(id))
        })
    }

    /// Takes the page with this key out that no other thread is at; a dirty one only if `even_dirty` says so. It
    /// takes the lock of a chain once, where a hold that is detached and left takes it twice.
    pub fn take_out(&self, key: Key, even_dirty: bool) -> TakenOut {
        let chain = self.chain(key);
        self.shard(chain).with(|()| {
            let Some(id) = self.find(key) else { return TakenOut::NotThere };
            let word = &self.slot(id).word;
            let seen = word.load(Relaxed);
            let dirty = Word(seen).has(Word::DIRTY);
            let others = Word::WRITER | Word::WRITEBACK | Word::CLAIMED | Word::DETACHED;
            if !Word(seen).is_alone() || Word(seen).has(others) || dirty && !even_dirty {
                return TakenOut::Kept;
            }
            if !self.claim_word(id, seen) {
                return TakenOut::Kept;
            }
            self.unlink(id, chain, None);
            TakenOut::Claimed(Claimed(id), dirty)
        })
    }

    /// Takes a page out of the index for good, with whatever it holds. It is free when the last of
    /// those who are there has left. Whether it was dirty.
    #[must_use]
    pub fn detach(&self, hold: &Hold) -> bool {
        self.detach_if(hold, 0).is_some_and(|before| before.has(Word::DIRTY))
    }

    /// The same for a page that is clean and at rest; whether it was.
    #[must_use]
    pub fn detach_clean(&self, hold: &Hold) -> bool {
        self.detach_if(hold, Word::WRITER | Word::DIRTY | Word::WRITEBACK).is_some()
    }

    /// The same for a page that is not dirty and not on its way to the store, though it may be being read;
    /// whether it was.
    #[must_use]
    pub fn detach_unwritten(&self, hold: &Hold) -> bool {
        self.detach_if(hold, Word::DIRTY | Word::WRITEBACK).is_some()
    }

    /// What it was, if it was none of `unless` and in the index.
    fn detach_if(&self, hold: &Hold, unless: u64) -> Option<Word> {
        let slot = self.slot(hold.0);
        let chain = self.chain(slot.key());
        self.shard(chain).with(|()| {
            let mut seen = slot.word.load(Relaxed);
            loop {
                if Word(seen).has(unless | Word::DETACHED) {
                    return None;
                }
                let gone = (seen | Word::DETACHED) & !Word::DIRTY;
                match slot.word.compare_exchange(seen, gone, AcqRel, Relaxed) {
                    Ok(_) => break,
                    Err(now) => seen = now,
                }
            }
            self.unlink(hold.0, chain, None);
            Some(Word(seen))
        })
    }

    /// The mark of a slot.
    #[must_use]
    pub fn mark(&self, id: SlotId) -> &P::Byte {
        &self.slot(id).mark
    }

    /// What was noted of the use of a block that begins with this slot.
    pub(crate) fn block_mark(&self, id: SlotId) -> &P::Byte {
        &self.slot(id).block_mark
    }

    /// Where the page of a slot is among the lists.
    pub(crate) fn place(&self, id: SlotId) -> &P::Word {
        &self.slot(id).place
    }

    /// The page in a slot, for who knows that it stays.
    pub(crate) fn key_in(&self, id: SlotId) -> Key {
        self.slot(id).key()
    }

    /// The frame of a slot, for who knows that it stays.
    pub(crate) fn frame_in(&self, id: SlotId) -> Pfn {
        Pfn::new(self.slot(id).frame.load(Relaxed))
    }

    /// The frame of a page.
    #[inline(always)]
    #[must_use]
    pub fn frame_of(&self, token: &impl Token) -> Pfn {
        // Relaxed: written while one thread had the slot; a thread with a token came after.
        Pfn::new(self.slot(token.id()).frame.load(Relaxed))
    }

    /// Gives a slot that is not in use a frame.
    pub fn set_frame(&self, claimed: &mut Claimed, frame: Pfn) {
        let slot = self.slot(claimed.0);
        slot.frame.store(frame.get(), Relaxed);
        slot.mark.store(0, Relaxed);
        self.lows[claimed.0.0 as usize].store(frame.get() as u32, Relaxed);
    }

    /// Has a slot that is not in use forget its frame.
    pub(crate) fn forget_frame(&self, claimed: &mut Claimed) {
        self.slot(claimed.0).frame.store(0, Relaxed);
    }

    /// The page that a token is about.
    #[must_use]
    pub fn key_of(&self, token: &impl Token) -> Key {
        self.slot(token.id()).key()
    }

    /// The page in a slot as it looks just now, `None` if it is in no use. For walks over all.
    #[must_use]
    pub fn peek(&self, number: usize) -> Option<Key> {
        let slot = self.slots.get(number)?;
        let idle = Word(slot.word.load(Relaxed)).has(Word::CLAIMED | Word::DETACHED);
        (!idle).then(|| slot.key())
    }

    /// The state of a slot in words, for messages.
    #[must_use]
    pub fn describe(&self, token: &impl Token) -> impl fmt::Debug {
        Word(self.slot(token.id()).word.load(Relaxed))
    }
}

impl<P: Host> fmt::Debug for Table<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table").field("slots", &self.slots.len()).finish_non_exhaustive()
    }
}

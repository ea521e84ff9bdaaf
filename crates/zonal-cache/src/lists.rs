//! The lists of a cache, each under its lock, and the pages that wait to be listed.
//!
//! Where a page is says the slot's `place`: on no list, in a batch, or on a list, and which. It goes
//!
//! - from none to a batch, by who puts the page there;
//! - from a batch to its list, by who lists the batch, with the list's lock held, by an exchange;
//! - from a batch to none, by who has the page's slot alone, by an exchange;
//! - from a list to none, by who has the slot alone, with the list's lock held.
//!
//! So an entry of a batch is no more than a hint: if the page has left meanwhile its place is another, and if the slot
//! has another page that waits, that one is listed a little early. It may be listed so even while another thread takes it
//! from the batch that it waits in: who frees a slot takes it off a list, wherever it was taken from.
//!
//! Locks: that of a batch outside that of a list, and that outside those of the index. Reclaim, which may come from
//! inside any of these, tries the first two.

use crate::evict::Evict;
use crate::held::{Held, ListStats, Size, share};
use crate::host::{Host, Part};
use crate::inner::{Core, Setup};
use crate::lru::{LruLock, MOST_BATCH, MOST_LISTS};
use crate::place::{self, CODE, LIST, LISTED, WAITS, kind_of};
use crate::table::{Claimed, Key, SlotId, Token};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use zonal::platform::{AtomicByte, AtomicWord, Lock, Platform};

/// Batches. More CPUs share them.
const BATCHES: usize = 16;
/// How often a lock is tried: another thread has it for a scan at most, and this one may have it.
const TRIES: u32 = 256;
/// And how often after a pause of this many nanoseconds: where threads are more than CPUs, the one that has it may
/// be waiting for its turn.
const PAUSES: u32 = 100;
const PAUSE: u64 = 500_000;
/// And how often after one that is twice as long as the one before, two seconds in all: where there is far more to do than
/// CPUs can, and the one that has it is of less weight than others, its turn comes late.
const LONGER: u32 = 12;

/// On lines of its own.
#[repr(align(128))]
pub(crate) struct List<S: Setup> {
    held: <S::Host as Host>::Mutex<Held<S::Evict>>,
    /// Pages that may go, as they were when the lock was dropped last.
    pages: <S::Host as Platform>::Word,
}

pub(crate) struct Batch {
    pub(crate) slots: [SlotId; MOST_BATCH],
    pub(crate) count: usize,
}

#[repr(align(128))]
pub(crate) struct Waiting<S: Setup>(pub(crate) <S::Host as Host>::Mutex<Batch>);

pub(crate) struct Lists<S: Setup> {
    pub(crate) lists: Box<[List<S>]>,
    pub(crate) waiting: Box<[Waiting<S>]>,
    /// How often a list was chosen.
    turn: <S::Host as Platform>::Word,
    /// The mark of a block whose pages differ: none.
    pub(crate) no_mark: <S::Host as Platform>::Byte,
}

impl<S: Setup> Lists<S> {
    /// Lists over `slots`, of which `bound` may be in use to begin with.
    pub(crate) fn new(frames: &S::Frames, slots: usize, bound: usize) -> Self {
        const { assert!(S::Lru::BATCH >= 1 && S::Lru::BATCH <= MOST_BATCH, "a batch fits") };
        let count = S::Lru::lists(frames).clamp(1, MOST_LISTS);
        let size = Size { slots, most: slots.div_ceil(count), first: bound.div_ceil(count) };
        let whole = S::Evict::new(slots);
        let list = |_| {
            let held = Held::new(size.beside(&whole), size);
            List { held: Lock::new(held), pages: AtomicWord::new(0) }
        };
        let batches = if S::Lru::BATCH > 1 { BATCHES } else { 0 };
        let batch = || Batch { slots: [SlotId(0); MOST_BATCH], count: 0 };
        Self {
            lists: (0..count).map(list).collect(),
            waiting: (0..batches).map(|_| Waiting(Lock::new(batch()))).collect(),
            turn: AtomicWord::new(0),
            no_mark: AtomicByte::new(0),
        }
    }

    /// How many there are.
    pub(crate) const fn count(&self) -> usize {
        self.lists.len()
    }

    /// Tells the host where they are.
    pub(crate) fn place_on(&self, host: &S::Host) {
        host.placed(Part::Lists, &self.lists);
        host.placed(Part::Batches, &self.waiting);
    }

    pub(crate) fn stats(&self) -> Vec<ListStats> {
        let of = |list: &List<S>| list.held.with(|held| held.stats());
        self.lists.iter().map(of).collect()
    }

    pub(crate) fn refaults(&self) -> u64 {
        self.lists.iter().map(|list| list.held.with(|held| held.refaults())).sum()
    }

    /// The list that a page is to go from next: by their lengths, in turn.
    pub(crate) fn next(&self) -> usize {
        let [_, _, ..] = &self.lists[..] else { return 0 };
        // Relaxed: hints.
        let all: u64 = self.lists.iter().map(|list| list.pages.load(Relaxed)).sum();
        let turn = self.turn.fetch_add(1, Relaxed);
        let mut at = share(turn, all);
        for (number, list) in self.lists.iter().enumerate() {
            let pages = list.pages.load(Relaxed);
            if at < pages {
                return number;
            }
            at -= pages;
        }
        0
    }
}

impl<S: Setup> List<S> {
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut Held<S::Evict>) -> R) -> R {
        self.held.with(|held| self.inside(held, f))
    }

    /// The same, or `None` if the lock cannot be had soon.
    pub(crate) fn try_with<R>(
        &self,
        host: &S::Host,
        mut f: impl FnMut(&mut Held<S::Evict>) -> R,
    ) -> Option<R> {
        retry(host, || self.held.try_with(|held| self.inside(held, &mut f)))
    }

    fn inside<R>(&self, held: &mut Held<S::Evict>, f: impl FnOnce(&mut Held<S::Evict>) -> R) -> R {
        held.count_hold();
        let result = f(held);
        // Relaxed: a hint for those who choose a list.
        self.pages.store(held.evictable() as u64, Relaxed);
        result
    }
}

pub(crate) fn retry<H: Host, R>(host: &H, mut attempt: impl FnMut() -> Option<R>) -> Option<R> {
    for turn in 0..TRIES + PAUSES + LONGER {
        if let Some(result) = attempt() {
            return Some(result);
        }
        match turn.checked_sub(TRIES) {
            None => H::relax(),
            Some(pauses) => host.pause(PAUSE << pauses.saturating_sub(PAUSES)),
        }
    }
    None
}

impl<S: Setup> Core<S> {
    /// The code of a page's place.
    fn code_of(&self, id: SlotId, key: Key) -> u64 {
        let count = self.lists.lists.len();
        let list = if count == 1 {
            0
        } else {
            S::Lru::list_of(&self.frames, self.table.frame_in(id), key.owner()) % count
        };
        place::code(key.kind(), list)
    }

    pub(crate) fn list(&self, code: u64) -> &List<S> {
        &self.lists.lists[(code & LIST) as usize % self.lists.lists.len()]
    }

    /// Pages came, this thread's alone still.
    pub(crate) fn listed<T: Token>(&self, tokens: &[T]) {
        for token in tokens {
            // After a policy has panicked, or from a hint that was two pages'.
            if self.table.place(token.id()).load(Relaxed) != 0 {
                self.unlist_one(token.id());
            }
        }
        let code_of = |token: &T| self.code_of(token.id(), self.table.key_of(token));
        let mut rest = tokens;
        while let [first, ..] = rest {
            let code = code_of(first);
            let run = rest.iter().take_while(|it| code_of(it) == code).count();
            let (mut now, later) = rest.split_at(run);
            let most = self.most_order(now, code);
            if S::Lru::BATCH > 1 {
                while let [first, ..] = now {
                    let order = self.order_of_row(now, most);
                    if order == 0 {
                        self.wait_in_batch(first.id(), code);
                    } else {
                        self.list(code).with(|held| self.list_row(held, code, now, order));
                    }
                    now = &now[1 << order..];
                }
            } else {
                self.list(code).with(|held| {
                    while !now.is_empty() {
                        let order = self.order_of_row(now, most);
                        now = &now[self.list_row(held, code, now, order)..];
                    }
                });
            }
            rest = later;
        }
    }

    /// Puts a page into the batch of this CPU, and lists that if it is full.
    fn wait_in_batch(&self, id: SlotId, code: u64) {
        let number = self.host.cpu().0 as usize % BATCHES;
        self.lists.waiting[number].0.with(|batch| {
            if batch.count == S::Lru::BATCH {
                self.list_batch(batch);
            }
            // Release: with the acquire of who lists it, for the key.
            self.table.place(id).store(WAITS | code, Release);
            batch.slots[batch.count] = id;
            batch.count += 1;
        });
    }

    /// Lists the pages of a batch. If a policy panics they stay in it, and those that are listed already are passed
    /// over the next time.
    fn list_batch(&self, batch: &mut Batch) {
        let code_of = |id: &SlotId| self.table.place(*id).load(Acquire) & CODE;
        let mut rest = &batch.slots[..batch.count];
        while let [first, ..] = rest {
            let code = code_of(first);
            let run = rest.iter().take_while(|id| code_of(id) == code).count();
            let (now, later) = rest.split_at(run.max(1));
            self.list(code).with(|held| {
                for &id in now {
                    let place = self.table.place(id);
                    // Acquire: with the release of who put it there, for the key, which stays: who takes the page
                    // off needs the lock from here on.
                    let waits =
                        place.compare_exchange(WAITS | code, place::single(code), AcqRel, Relaxed);
                    if waits.is_ok() {
                        held.insert(kind_of(code), id, self.table.key_in(id).hash());
                        self.tell_insertion(held, kind_of(code), id, id);
                    }
                }
            });
            rest = later;
        }
        batch.count = 0;
    }

    /// Pages that no thread can find any more leave their lists.
    pub(crate) fn unlist(&self, slots: &[Claimed]) {
        let mut rest = slots;
        while let [first, ..] = rest {
            let Some(code) = self.listed_on(first.id()) else {
                rest = &rest[1..];
                continue;
            };
            let on = |it: &&Claimed| self.listed_on(it.id()) == Some(code);
            let more = rest[1..].iter().take_while(on).count();
            let (mut now, later) = rest.split_at(1 + more);
            self.list(code).with(|held| {
                while !now.is_empty() {
                    now = &now[self.unlist_row(held, code, now)..];
                }
            });
            rest = later;
        }
    }

    fn unlist_one(&self, id: SlotId) {
        if let Some(code) = self.listed_on(id) {
            self.list(code).with(|held| {
                self.unlist_page(held, kind_of(code), id);
            });
        }
    }

    /// The same if the list's lock can be had soon. If not, the slot stays on the list until it has a page again, which
    /// [`listed`](Self::listed) sees, or until the list offers it in vain.
    pub(crate) fn try_unlist(&self, id: SlotId) {
        if let Some(code) = self.listed_on(id) {
            let _ = self.list(code).try_with(&self.host, |held| {
                self.unlist_page(held, kind_of(code), id);
            });
        }
    }

    /// The code of the list that a page of this thread's is on. One that waits does so no more.
    fn listed_on(&self, id: SlotId) -> Option<u64> {
        let place = self.table.place(id);
        let mut seen = place.load(Acquire);
        if seen & WAITS != 0 {
            // An error is one who lists the batch just now.
            match place.compare_exchange(seen, 0, AcqRel, Acquire) {
                Ok(_) => return None,
                Err(now) => seen = now,
            }
        }
        (seen & LISTED != 0).then_some(seen & CODE)
    }

    /// A page is about to move to another slot. On the same list it keeps its place there.
    pub(crate) fn moved<T: Token>(&self, old: &T, new: &Claimed) {
        let key = self.table.key_of(old);
        let code = self.code_of(new.id(), key);
        let (from, to) = (self.table.place(old.id()), self.table.place(new.id()));
        if self.listed_on(old.id()) == Some(code) {
            return self.list(code).with(|held| {
                self.isolate(held, kind_of(code), old.id());
                // Where the policy panics, the old one may be on the list still.
                to.store(place::single(code), Relaxed);
                if let Some(policy) = held.policy(kind_of(code)) {
                    policy.replace(old.id(), new.id());
                }
                from.store(0, Relaxed);
                self.tell_insertion(held, kind_of(code), new.id(), new.id());
            });
        }
        self.unlist_one(old.id());
        self.list(code).with(|held| {
            to.store(place::single(code), Relaxed);
            held.insert(kind_of(code), new.id(), key.hash());
            self.tell_insertion(held, kind_of(code), new.id(), new.id());
        });
    }

    /// Pages that wait to be listed, and entries of those that have left.
    pub(crate) fn waiting(&self) -> usize {
        let waits = |number: &usize| {
            let id = SlotId(*number as u32);
            self.table.place(id).load(Relaxed) & WAITS != 0
        };
        (0..self.table.len()).filter(waits).count()
    }
}

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
//! has another page that waits, that one is listed a little early.
//!
//! Locks: that of a batch outside that of a list, and that outside those of the index. Reclaim, which may come from
//! inside any of these, tries the first two.

use crate::evict::{Evict, Verdict};
use crate::host::Host;
use crate::inner::{Core, Met, Setup};
use crate::lru::{LruLock, MOST_BATCH, MOST_LISTS};
use crate::table::{Claimed, SlotId, Token};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use zonal::platform::{AtomicWord, Lock, Platform};

/// In a batch; in the low bits the list that the page will be on.
const WAITS: u64 = 1 << 32;
/// On the list of that number.
const LISTED: u64 = 1 << 33;
const LIST: u64 = WAITS - 1;
/// Batches. More CPUs share them.
const BATCHES: usize = 16;
/// How often a lock is tried: another thread has it for a scan at most, and this one may have it.
const TRIES: u32 = 256;

/// What the lock of a list guards.
pub(crate) struct Held<E> {
    policy: E,
    /// Pages on it; after a policy has panicked about.
    pages: usize,
    holds: u64,
}

/// On lines of its own.
#[repr(align(128))]
struct List<S: Setup> {
    held: <S::Host as Host>::Mutex<Held<S::Evict>>,
    /// Pages as they were when the lock was dropped last.
    pages: <S::Host as Platform>::Word,
}

struct Batch {
    slots: [SlotId; MOST_BATCH],
    count: usize,
}

#[repr(align(128))]
struct Waiting<S: Setup>(<S::Host as Host>::Mutex<Batch>);

pub(crate) struct Lists<S: Setup> {
    lists: Box<[List<S>]>,
    waiting: Box<[Waiting<S>]>,
    /// How often a list was chosen.
    turn: <S::Host as Platform>::Word,
}

/// A list of a cache: see [`PageCache::lists`](crate::PageCache::lists).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ListStats {
    /// Pages of files.
    pub file: usize,
    /// How often the lock was held.
    pub holds: u64,
}

impl<S: Setup> Lists<S> {
    pub(crate) fn new(frames: &S::Frames, slots: usize) -> Self {
        const { assert!(S::Lru::BATCH >= 1 && S::Lru::BATCH <= MOST_BATCH, "a batch fits") };
        let count = S::Lru::lists(frames).clamp(1, MOST_LISTS);
        let first = S::Evict::new(slots);
        let more: Vec<S::Evict> =
            (1..count).map(|_| first.beside(slots, slots.div_ceil(count))).collect();
        let list = |policy| List {
            held: Lock::new(Held { policy, pages: 0, holds: 0 }),
            pages: AtomicWord::new(0),
        };
        let batches = if S::Lru::BATCH > 1 { BATCHES } else { 0 };
        let batch = || Batch { slots: [SlotId(0); MOST_BATCH], count: 0 };
        Self {
            lists: [first].into_iter().chain(more).map(list).collect(),
            waiting: (0..batches).map(|_| Waiting(Lock::new(batch()))).collect(),
            turn: AtomicWord::new(0),
        }
    }

    pub(crate) fn stats(&self) -> Vec<ListStats> {
        let of = |list: &List<S>| {
            list.held.with(|held| ListStats { file: held.pages, holds: held.holds })
        };
        self.lists.iter().map(of).collect()
    }

    /// The list that a page is to go from next: by their lengths, in turn.
    fn next(&self) -> usize {
        let [_, _, ..] = &self.lists[..] else { return 0 };
        // Relaxed: hints.
        let all: u64 = self.lists.iter().map(|list| list.pages.load(Relaxed)).sum();
        let turn = self.turn.fetch_add(1, Relaxed);
        // Multiples of the golden ratio are spread evenly, whatever the lengths.
        let mixed = turn.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut at = ((u128::from(mixed) * u128::from(all)) >> 64) as u64;
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
    fn with<R>(&self, f: impl FnOnce(&mut Held<S::Evict>) -> R) -> R {
        self.held.with(|held| self.inside(held, f))
    }

    /// The same, or `None` if the lock cannot be had soon.
    fn try_with<R>(&self, mut f: impl FnMut(&mut Held<S::Evict>) -> R) -> Option<R> {
        retry::<S, R>(|| self.held.try_with(|held| self.inside(held, &mut f)))
    }

    fn inside<R>(&self, held: &mut Held<S::Evict>, f: impl FnOnce(&mut Held<S::Evict>) -> R) -> R {
        held.holds += 1;
        let result = f(held);
        // Relaxed: a hint for those who choose a list.
        self.pages.store(held.pages as u64, Relaxed);
        result
    }
}

fn retry<S: Setup, R>(mut attempt: impl FnMut() -> Option<R>) -> Option<R> {
    for _ in 0..TRIES {
        if let Some(result) = attempt() {
            return Some(result);
        }
        <S::Host as Platform>::relax();
    }
    None
}

/// Whether a scan waits for locks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patience {
    /// As long as it takes.
    Waits,
    /// This thread may have them.
    Tries,
}

impl<S: Setup> Core<S> {
    /// The list of a page.
    fn list_of(&self, id: SlotId, owner: u64) -> u64 {
        let count = self.lists.lists.len();
        if count == 1 {
            return 0;
        }
        (S::Lru::list_of(&self.frames, self.table.frame_in(id), owner) % count) as u64
    }

    /// Pages came, this thread's alone still.
    pub(crate) fn listed<T: Token>(&self, tokens: &[T]) {
        for token in tokens {
            // After a policy has panicked, or from a hint that was two pages'.
            if self.table.place(token.id()).load(Relaxed) != 0 {
                self.unlist_one(token.id());
            }
        }
        let mut rest = tokens;
        while let [first, ..] = rest {
            let list = self.list_of(first.id(), self.table.key_of(first).file);
            if S::Lru::BATCH > 1 {
                self.wait_in_batch(first.id(), list);
                rest = &rest[1..];
                continue;
            }
            let same = |it: &&T| self.list_of(it.id(), self.table.key_of(*it).file) == list;
            let run = rest.iter().take_while(same).count();
            let (now, later) = rest.split_at(run);
            self.lists.lists[list as usize].with(|held| {
                for token in now {
                    let id = token.id();
                    self.table.place(id).store(LISTED | list, Relaxed);
                    held.pages += 1;
                    held.policy.insert(id, self.table.key_of(token).hash());
                }
            });
            rest = later;
        }
    }

    /// Puts a page into the batch of this CPU, and lists that if it is full.
    fn wait_in_batch(&self, id: SlotId, list: u64) {
        let number = self.host.cpu().0 as usize % BATCHES;
        self.lists.waiting[number].0.with(|batch| {
            if batch.count == S::Lru::BATCH {
                self.list_batch(batch);
            }
            // Release: with the acquire of who lists it, for the key.
            self.table.place(id).store(WAITS | list, Release);
            batch.slots[batch.count] = id;
            batch.count += 1;
        });
    }

    /// Lists the pages of a batch. If a policy panics they stay in it, and those that are listed already are passed
    /// over the next time.
    fn list_batch(&self, batch: &mut Batch) {
        let slots = &batch.slots[..batch.count];
        let list_of = |id: &SlotId| self.table.place(*id).load(Acquire) & LIST;
        let mut rest = slots;
        while let [first, ..] = rest {
            let list = list_of(first);
            let run = rest.iter().take_while(|id| list_of(id) == list).count();
            let (now, later) = rest.split_at(run.max(1));
            self.lists.lists[list as usize % self.lists.lists.len()].with(|held| {
                for &id in now {
                    let place = self.table.place(id);
                    // Acquire: with the release of who put it there, for the key, which stays: who takes the page
                    // off needs the lock from here on.
                    let waits =
                        place.compare_exchange(WAITS | list, LISTED | list, AcqRel, Relaxed);
                    if waits.is_ok() {
                        held.pages += 1;
                        held.policy.insert(id, self.table.key_in(id).hash());
                    }
                }
            });
            rest = later;
        }
        batch.count = 0;
    }

    /// Pages that no thread can find any more leave their lists.
    pub(crate) fn unlist(&self, slots: &[Claimed]) {
        let most = if S::Lru::BATCH > 1 { S::Lru::BATCH } else { usize::MAX };
        let mut rest = slots;
        while let [first, ..] = rest {
            let Some(list) = self.listed_on(first.id()) else {
                rest = &rest[1..];
                continue;
            };
            let on = |it: &&Claimed| self.listed_on(it.id()) == Some(list);
            let run = rest.iter().take(most).take_while(on).count();
            let (now, later) = rest.split_at(run);
            self.lists.lists[list].with(|held| {
                for claimed in now {
                    self.table.place(claimed.id()).store(0, Relaxed);
                    held.pages = held.pages.saturating_sub(1);
                    held.policy.remove(claimed.id());
                }
            });
            rest = later;
        }
    }

    fn unlist_one(&self, id: SlotId) {
        if let Some(list) = self.listed_on(id) {
            self.lists.lists[list].with(|held| {
                self.table.place(id).store(0, Relaxed);
                held.pages = held.pages.saturating_sub(1);
                held.policy.remove(id);
            });
        }
    }

    /// The list that a page of this thread's is on. One that waits does so no more.
    fn listed_on(&self, id: SlotId) -> Option<usize> {
        let place = self.table.place(id);
        let seen = place.load(Acquire);
        if seen & WAITS != 0 && place.compare_exchange(seen, 0, AcqRel, Acquire).is_ok() {
            return None;
        }
        let now = place.load(Acquire);
        (now & LISTED != 0).then_some((now & LIST) as usize)
    }

    /// A page is about to move to another slot. On the same list it keeps its place there.
    pub(crate) fn moved<T: Token>(&self, old: &T, new: &Claimed) {
        let list = self.list_of(new.id(), self.table.key_of(old).file);
        let key = self.table.key_of(old).hash();
        let (from, to) = (self.table.place(old.id()), self.table.place(new.id()));
        if self.listed_on(old.id()) == Some(list as usize) {
            return self.lists.lists[list as usize].with(|held| {
                // Where the policy panics, the old one may be on the list still.
                to.store(LISTED | list, Relaxed);
                held.policy.replace(old.id(), new.id());
                from.store(0, Relaxed);
            });
        }
        self.unlist_one(old.id());
        self.lists.lists[list as usize].with(|held| {
            to.store(LISTED | list, Relaxed);
            held.pages += 1;
            held.policy.insert(new.id(), key);
        });
    }

    /// Has up to `most` clean pages go, and gives them to `put`. How many.
    pub(crate) fn scan(
        &self,
        most: usize,
        patience: Patience,
        met: &mut Met,
        put: &mut dyn FnMut(Claimed),
    ) -> usize {
        let lists = &self.lists.lists;
        let first = self.lists.next();
        let mut count = 0;
        for at in (first..lists.len()).chain(0..first) {
            if count == most {
                return count;
            }
            let mut work = |held: &mut Held<S::Evict>| {
                while count < most && self.scan_one(held, met, put) {
                    count += 1;
                }
            };
            match patience {
                Patience::Waits => lists[at].with(work),
                Patience::Tries => lists[at].try_with(&mut work).unwrap_or(()),
            }
        }
        if count < most && S::Lru::BATCH > 1 {
            count += self.scan_batches(most - count, patience, met, put);
        }
        count
    }

    /// Has a page of a list go, whose lock is held; whether one went.
    fn scan_one(
        &self,
        held: &mut Held<S::Evict>,
        met: &mut Met,
        put: &mut dyn FnMut(Claimed),
    ) -> bool {
        let mut taken = None;
        let mut take = |id| {
            // A policy that goes on after it was given one has no more.
            if taken.is_some() {
                return Verdict::Kept;
            }
            let verdict = self.offered(id, met, &mut *put);
            if verdict == Verdict::Taken {
                taken = Some(id);
            }
            verdict
        };
        held.policy.scan(&|id| self.table.mark(id), &mut take);
        // Not before: if the policy panics the page is on its list still.
        if let Some(id) = taken {
            self.table.place(id).store(0, Relaxed);
            held.pages = held.pages.saturating_sub(1);
        }
        taken.is_some()
    }

    /// The same for pages that wait to be listed, the newest first.
    fn scan_batches(
        &self,
        most: usize,
        patience: Patience,
        met: &mut Met,
        put: &mut dyn FnMut(Claimed),
    ) -> usize {
        let mut count = 0;
        for waiting in &self.lists.waiting {
            let mut work = |batch: &mut Batch| {
                for at in (0..batch.count).rev() {
                    if count == most {
                        return;
                    }
                    let id = batch.slots[at];
                    let place = self.table.place(id);
                    if place.load(Acquire) & WAITS == 0 {
                        continue;
                    }
                    if self.offered(id, met, &mut *put) == Verdict::Taken {
                        // This thread has the slot alone, and the lock of its batch; a hint of it in another
                        // may have it listed meanwhile, which who frees the page sees.
                        let seen = place.load(Acquire);
                        if seen & WAITS != 0 {
                            let _ = place.compare_exchange(seen, 0, AcqRel, Acquire);
                        }
                        count += 1;
                    }
                }
            };
            match patience {
                Patience::Waits => waiting.0.with(work),
                Patience::Tries => {
                    retry::<S, ()>(|| waiting.0.try_with(&mut work)).unwrap_or(());
                }
            }
        }
        count
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

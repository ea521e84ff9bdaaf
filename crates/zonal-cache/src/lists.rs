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

use crate::events::Tally;
use crate::evict::{Evict, Told, Verdict};
use crate::held::{Held, ListStats, Size, share};
use crate::host::{Host, Part};
use crate::inner::{Core, Met, Setup};
use crate::lru::{LruLock, MOST_BATCH, MOST_LISTS};
use crate::table::{Claimed, Key, Kind, SlotId, Token};
use crate::velocity::By;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use zonal::platform::{AtomicWord, Lock, Platform};

/// In a batch; in the low bits the list that the page will be on.
const WAITS: u64 = 1 << 32;
/// On the list of that number.
const LISTED: u64 = 1 << 33;
/// The number of the list.
const LIST: u64 = 0xffff;
/// What kind of page, above the number; with it the `code` of a place.
const KIND: u32 = 16;
const CODE: u64 = WAITS - 1;
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
struct List<S: Setup> {
    held: <S::Host as Host>::Mutex<Held<S::Evict>>,
    /// Pages that may go, as they were when the lock was dropped last.
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
        }
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
    fn next(&self) -> usize {
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
    fn with<R>(&self, f: impl FnOnce(&mut Held<S::Evict>) -> R) -> R {
        self.held.with(|held| self.inside(held, f))
    }

    /// The same, or `None` if the lock cannot be had soon.
    fn try_with<R>(
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

fn retry<H: Host, R>(host: &H, mut attempt: impl FnMut() -> Option<R>) -> Option<R> {
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

/// Whether a scan waits for locks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patience {
    /// As long as it takes.
    Waits,
    /// This thread may have them.
    Tries,
}

const fn kind_of(code: u64) -> Kind {
    Kind::of_number((code & CODE) >> KIND)
}

impl<S: Setup> Core<S> {
    /// The code of a page's place.
    fn code_of(&self, id: SlotId, key: Key) -> u64 {
        let kind = key.kind() as u64;
        let count = self.lists.lists.len();
        let list = if count == 1 {
            0
        } else {
            S::Lru::list_of(&self.frames, self.table.frame_in(id), key.owner()) % count
        };
        kind << KIND | list as u64
    }

    fn list(&self, code: u64) -> &List<S> {
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
            if S::Lru::BATCH > 1 {
                self.wait_in_batch(first.id(), code);
                rest = &rest[1..];
                continue;
            }
            let run = rest.iter().take_while(|it| code_of(it) == code).count();
            let (now, later) = rest.split_at(run);
            self.list(code).with(|held| {
                for token in now {
                    self.table.place(token.id()).store(LISTED | code, Relaxed);
                    held.insert(kind_of(code), token.id(), self.table.key_of(token).hash());
                    self.tell_insertion(held, kind_of(code), token.id());
                }
            });
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
                        place.compare_exchange(WAITS | code, LISTED | code, AcqRel, Relaxed);
                    if waits.is_ok() {
                        held.insert(kind_of(code), id, self.table.key_in(id).hash());
                        self.tell_insertion(held, kind_of(code), id);
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
            let Some(code) = self.listed_on(first.id()) else {
                rest = &rest[1..];
                continue;
            };
            let on = |it: &&Claimed| self.listed_on(it.id()) == Some(code);
            let more = rest[1..].iter().take(most - 1).take_while(on).count();
            let (now, later) = rest.split_at(1 + more);
            self.list(code).with(|held| {
                for claimed in now {
                    self.table.place(claimed.id()).store(0, Relaxed);
                    held.remove(kind_of(code), claimed.id());
                }
            });
            rest = later;
        }
    }

    fn unlist_one(&self, id: SlotId) {
        if let Some(code) = self.listed_on(id) {
            self.list(code).with(|held| {
                self.table.place(id).store(0, Relaxed);
                held.remove(kind_of(code), id);
            });
        }
    }

    /// The same if the list's lock can be had soon. If not, the slot stays on the list until it has a page again, which
    /// [`listed`](Self::listed) sees, or until the list offers it in vain.
    pub(crate) fn try_unlist(&self, id: SlotId) {
        if let Some(code) = self.listed_on(id) {
            let _ = self.list(code).try_with(&self.host, |held| {
                self.table.place(id).store(0, Relaxed);
                held.remove(kind_of(code), id);
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
                // Where the policy panics, the old one may be on the list still.
                to.store(LISTED | code, Relaxed);
                if let Some(policy) = held.policy(kind_of(code)) {
                    policy.replace(old.id(), new.id());
                }
                from.store(0, Relaxed);
                self.tell_insertion(held, kind_of(code), new.id());
            });
        }
        self.unlist_one(old.id());
        self.list(code).with(|held| {
            to.store(LISTED | code, Relaxed);
            held.insert(kind_of(code), new.id(), key.hash());
            self.tell_insertion(held, kind_of(code), new.id());
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
            if let By::Background { zone } = met.by
                && !S::Lru::may_have(&self.frames, at, zone)
            {
                continue;
            }
            let mut work = |held: &mut Held<S::Evict>| {
                let (before, mut tallies) = (count, [Tally::default(); 2]);
                while count < most && self.scan_one(held, met, &mut tallies, put) {
                    count += 1;
                }
                let kinds = [Kind::File, Kind::Anon].into_iter().zip(&tallies);
                kinds.for_each(|(kind, tally)| self.tell_scan(kind, most - before, tally));
            };
            match patience {
                Patience::Waits => lists[at].with(work),
                Patience::Tries => {
                    lists[at].try_with(&self.host, &mut work).unwrap_or(());
                }
            }
        }
        if count < most && S::Lru::BATCH > 1 {
            count += self.scan_batches(most - count, patience, met, put);
        }
        count
    }

    /// Has a page of a list go, whose lock is held, of the kind whose turn it is or of the other; whether one went.
    fn scan_one(
        &self,
        held: &mut Held<S::Evict>,
        met: &mut Met,
        tallies: &mut [Tally; 2],
        put: &mut dyn FnMut(Claimed),
    ) -> bool {
        let first = held.first(self.limits.swappiness);
        let other = if first == Kind::File { Kind::Anon } else { Kind::File };
        self.scan_kind(held, first, met, tallies, put)
            || self.scan_kind(held, other, met, tallies, put)
    }

    fn scan_kind(
        &self,
        held: &mut Held<S::Evict>,
        kind: Kind,
        met: &mut Met,
        tallies: &mut [Tally; 2],
        put: &mut dyn FnMut(Claimed),
    ) -> bool {
        let Some(policy) = held.policy_there(kind) else { return false };
        let tally = &mut tallies[kind as usize];
        let (mut taken, mut told) = (None, Tally::default());
        let mut take = |id| {
            // A policy that goes on after it was given one has no more.
            if taken.is_some() {
                return Verdict::Kept;
            }
            let verdict = self.offered(id, met, tally, &mut *put);
            if verdict == Verdict::Taken {
                taken = Some(id);
            }
            verdict
        };
        let mut tell = |what, id| match what {
            Told::Activated => {
                told.activated += 1;
                self.tell_activation(id);
            }
            Told::StaysActive => (told.stays_active, told.some) = (told.stays_active + 1, Some(id)),
            Told::Deactivated => (told.deactivated, told.some) = (told.deactivated + 1, Some(id)),
        };
        policy.scan_told(&|id| self.table.mark(id), &mut take, &mut tell);
        // It was looked at, too, and not offered.
        tally.activated += told.activated;
        tally.scanned += told.activated;
        // These were active ones.
        tally.stays_active += told.stays_active;
        tally.deactivated += told.deactivated;
        tally.some = tally.some.or(told.some);
        // Not before: if the policy panics the page is on its list still.
        if let Some(id) = taken {
            self.table.place(id).store(0, Relaxed);
            held.gone(kind);
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
                    let seen = place.load(Acquire);
                    if seen & WAITS == 0 || kind_of(seen) == Kind::Kept {
                        continue;
                    }
                    if self.offered(id, met, &mut Tally::default(), &mut *put) == Verdict::Taken {
                        // This thread has the slot alone, and the lock of its batch; a hint of it in another
                        // may have it listed meanwhile, which who frees the page, or gives the slot another, sees.
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
                    retry(&self.host, || waiting.0.try_with(&mut work)).unwrap_or(());
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

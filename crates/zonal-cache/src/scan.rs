//! Pages that are to go: which of them the policies of the lists offer, and whether they can.

use crate::events::Tally;
use crate::evict::{Evict, Told, Verdict, block_at};
use crate::held::{self, Held};
use crate::inner::{Core, Met, Setup};
use crate::lists::{Batch, retry};
use crate::lru::LruLock;
use crate::place::{WAITS, kind_of};
use crate::table::{Claimed, Kind};
use crate::velocity::By;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use zonal::platform::{AtomicWord, Lock};

/// Whether a scan waits for locks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patience {
    /// As long as it takes.
    Waits,
    /// This thread may have them.
    Tries,
}

impl<S: Setup> Core<S> {
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
                while count < most {
                    let went = self.scan_one(held, most - count, met, &mut tallies, put);
                    if went == 0 {
                        break;
                    }
                    count += went;
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

    /// Has a page or a block of a list go, whose lock is held, of the kind whose turn it is or of the other; how many went, which
    /// are `room` at most.
    fn scan_one(
        &self,
        held: &mut Held<S::Evict>,
        room: usize,
        met: &mut Met,
        tallies: &mut [Tally; 2],
        put: &mut dyn FnMut(Claimed),
    ) -> usize {
        let first = held.first(self.limits.swappiness);
        let other = if first == Kind::File { Kind::Anon } else { Kind::File };
        match self.scan_kind(held, (first, room), met, tallies, put) {
            0 => self.scan_kind(held, (other, room), met, tallies, put),
            went => went,
        }
    }

    fn scan_kind(
        &self,
        held: &mut Held<S::Evict>,
        (kind, room): (Kind, usize),
        met: &mut Met,
        tallies: &mut [Tally; 2],
        put: &mut dyn FnMut(Claimed),
    ) -> usize {
        let Some(policy) = held.policy_there(kind) else { return 0 };
        let tally = &mut tallies[kind as usize];
        let (mut taken, mut blocks, mut told) = (None, 0, Tally::default());
        let mut take = |id| {
            // A policy that goes on after it was given one has no more.
            if taken.is_some() {
                return Verdict::Kept;
            }
            let order = self.order_at(id);
            let (verdict, left) = match order {
                0 => (self.offered(id, met, tally, &mut *put), 0),
                _ => self.offered_block((id, order), room, (&mut *met, &mut *tally), &mut *put),
            };
            match verdict {
                Verdict::Taken => taken = Some(((id, order), left)),
                Verdict::Split => {
                    self.halved(id, order);
                    blocks += held::more_blocks(order);
                }
                Verdict::Kept => {}
            }
            verdict
        };
        let mut tell = |what, id| {
            let order = self.order_at(id);
            let pages = 1 << order;
            match what {
                Told::Activated => {
                    told.activated += pages;
                    block_at(id, order).for_each(|id| self.tell_activation(id));
                }
                Told::StaysActive => {
                    (told.stays_active, told.some) = (told.stays_active + pages, Some(id));
                }
                Told::Deactivated => {
                    (told.deactivated, told.some) = (told.deactivated + pages, Some(id));
                }
            }
        };
        policy.scan_told(&|id| self.mark_of(id), &mut take, &mut tell);
        // It was looked at, too, and not offered.
        tally.activated += told.activated;
        tally.scanned += told.activated;
        // These were active ones.
        tally.stays_active += told.stays_active;
        tally.deactivated += told.deactivated;
        tally.some = tally.some.or(told.some);
        // Not before: if the policy panics the page is on its list still.
        held.count_blocks(blocks);
        match taken {
            None => 0,
            Some(((id, 0), _)) => {
                self.table.place(id).store(0, Relaxed);
                held.gone(kind, 1);
                1
            }
            Some((piece, left)) => {
                self.block_went(held, kind, piece, left);
                (1 << piece.1) - left.count_ones() as usize
            }
        }
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
}

//! Pages that came together are one on their list, a block, as long as what happens to them is one and the same.
//!
//! A window of a file that is read in sequence has its pages in slots in a row and, where the memory has such blocks, in frames
//! in a row. As many of them as such a block has, which is a power of two, are one entry of their list. They are found, read,
//! pinned and written each by itself as ever; but they are listed, looked at, become active and go as one: a stream moves
//! blocks of 128 KiB through the cache, whose frames stay together.
//!
//! A block is halved, and so are its halves, where a part of it differs: pages of it were used and others were not, some are
//! dirty or pinned, fewer are to go than it has, or one has to leave by itself. So which page goes is decided by what is known of
//! each page, and a block is never kept for one of its pages, nor gone for the others. What was halved stays so.
//!
//! How often a block was used its first slot says beside that of each page (`block_mark`): together they are what a page has.
//! All of it changes with the list's lock held, but for the marks of pages, which are hints.

use crate::events::Tally;
use crate::evict::{Evict, Verdict, block_at, hits};
use crate::frames::Frames;
use crate::held::Held;
use crate::inner::{Core, Met, Setup};
use crate::lru::LruLock;
use crate::place::{self, MOST_ORDER, kind_of};
use crate::table::{Claimed, Key, Kind, Seems, SlotId, Token};
use crate::velocity::By;
use core::sync::atomic::Ordering::Relaxed;
use zonal::platform::{AtomicByte, AtomicWord, Platform};

/// The order of the smallest block: fewer pages are what the first window has.
const LEAST: u32 = 2;
/// Of this many pages of a list a block has one at most, so that a policy that has a part for new pages has several blocks
/// there.
const PART: u64 = 32;

type Byte<S> = <<S as Setup>::Host as Platform>::Byte;

/// Whether these pages begin with all of a piece.
fn begin_with<T: Token>(tokens: &[T], first: SlotId, order: u32) -> bool {
    tokens.len() >= 1 << order
        && tokens.iter().zip(block_at(first, order)).all(|(token, id)| token.id() == id)
}

impl<S: Setup> Core<S> {
    /// Whether there may be blocks at all. Where not, nothing is looked at for them: on virtual CPUs each look is charged.
    pub(crate) const BLOCKS: bool = S::Lru::BLOCKS && S::Evict::BLOCKS;

    /// The order of the piece that begins with a slot which is on a list.
    #[inline(always)]
    pub(crate) fn order_at(&self, first: SlotId) -> u32 {
        if Self::BLOCKS { place::order_of(self.table.place(first).load(Relaxed)) } else { 0 }
    }

    /// The order of the largest block that pages which come to a list may be; below [`LEAST`] none may.
    pub(crate) fn most_order<T>(&self, tokens: &[T], code: u64) -> u32 {
        let may = Self::BLOCKS && kind_of(code) == Kind::File;
        if !may || tokens.len() < 1 << LEAST {
            return 0;
        }
        let part = || self.bound_hint() / (self.lists.count() as u64 * PART);
        let most = self.limits.block.map_or_else(part, u64::from);
        most.checked_ilog2().map_or(0, |order| order.min(MOST_ORDER))
    }

    /// The order of the block that the first of these pages, which came together to one list, begin: `most` at most.
    pub(crate) fn order_of_row<T: Token>(&self, tokens: &[T], most: u32) -> u32 {
        if most < LEAST {
            return 0;
        }
        let first = &tokens[0];
        let (frame, key) = (self.table.frame_of(first).get(), self.table.key_of(first));
        let most = most.min(frame.trailing_zeros());
        let follows = |(token, at): &(&T, u64)| {
            u64::from(token.id().0) == u64::from(first.id().0) + at
                && self.table.frame_of(*token).get() == frame + at
                && self.table.key_of(*token) == Key { index: key.index + at, ..key }
        };
        let row = tokens.iter().zip(0..1 << most).take_while(follows).count();
        Some(row.ilog2()).filter(|&order| order >= LEAST).unwrap_or(0)
    }

    /// Lists pages of this thread's, as many from the first on as are one; how many.
    pub(crate) fn list_row<T: Token>(
        &self,
        held: &mut Held<S::Evict>,
        code: u64,
        tokens: &[T],
        order: u32,
    ) -> usize {
        let (first, kind) = (tokens[0].id(), kind_of(code));
        if order == 0 {
            self.table.place(first).store(place::single(code), Relaxed);
            held.insert(kind, first, self.table.key_of(&tokens[0]).hash());
        } else {
            for (id, within) in block_at(first, order).zip(0..) {
                self.table.place(id).store(place::in_block(code, order, within), Relaxed);
            }
            self.table.block_mark(first).store(0, Relaxed);
            held.insert_block(kind, first, order, &|id| self.table.key_in(id).hash());
        }
        block_at(first, order).for_each(|id| self.tell_insertion(held, kind, id, first));
        1 << order
    }

    /// The piece of a page that is on a list, whose lock is held.
    fn piece(&self, id: SlotId) -> (SlotId, u32) {
        if !Self::BLOCKS {
            return (id, 0);
        }
        place::piece_of(id, |id| self.table.place(id).load(Relaxed))
    }

    /// The piece that begins with a slot has become two, as its policy knows.
    pub(crate) fn halved(&self, first: SlotId, order: u32) {
        let half = order - 1;
        let second = SlotId(first.0 + (1 << half));
        let used = self.table.block_mark(first).load(Relaxed);
        for id in [first, second] {
            let word = self.table.place(id);
            word.store(place::with_piece(word.load(Relaxed), half), Relaxed);
            self.table.block_mark(id).store(used, Relaxed);
            if half == 0 && used > 0 {
                let mark = self.table.mark(id);
                mark.store((hits(mark) + used).min(S::Evict::MOST), Relaxed);
            }
        }
    }

    /// Has a page that is on a list be a piece by itself. Its list's lock is held.
    pub(crate) fn isolate(&self, held: &mut Held<S::Evict>, kind: Kind, id: SlotId) {
        loop {
            let (first, order) = self.piece(id);
            if order == 0 {
                return;
            }
            held.halve(kind, first, order);
            self.halved(first, order);
        }
    }

    /// A page leaves its list, whose lock is held.
    pub(crate) fn unlist_page(&self, held: &mut Held<S::Evict>, kind: Kind, id: SlotId) {
        self.isolate(held, kind, id);
        self.table.place(id).store(0, Relaxed);
        held.remove(kind, id, 0);
    }

    /// Pages of this thread's leave their list, whose lock is held: a block, if all of it is here, else the first; how many.
    pub(crate) fn unlist_row(
        &self,
        held: &mut Held<S::Evict>,
        code: u64,
        slots: &[Claimed],
    ) -> usize {
        let (id, kind) = (slots[0].id(), kind_of(code));
        let (first, order) = self.piece(id);
        if order > 0 && begin_with(slots, first, order) {
            block_at(first, order).for_each(|id| self.table.place(id).store(0, Relaxed));
            held.remove(kind, first, order);
            return 1 << order;
        }
        self.unlist_page(held, kind, id);
        1
    }

    /// How many of these pages are `entries` of lists, as it looks without a lock.
    pub(crate) fn pages_of_entries(&self, slots: &[Claimed], entries: usize) -> usize {
        let mut count = 0;
        for _ in 0..entries {
            let Some(claimed) = slots.get(count) else { break };
            let order = self.order_at(claimed.id());
            let is_whole = begin_with(&slots[count..], claimed.id(), order);
            count += if is_whole { 1 << order } else { 1 };
        }
        count
    }

    /// The mark of a piece: what the policy sees of its use.
    pub(crate) fn mark_of(&self, id: SlotId) -> &Byte<S> {
        match self.order_at(id) {
            0 => self.table.mark(id),
            order => self.mark_of_block(id, order),
        }
    }

    #[inline(never)]
    fn mark_of_block(&self, first: SlotId, order: u32) -> &Byte<S> {
        let Some(uses) = self.uses(first, order) else {
            self.lists.no_mark.store(0, Relaxed);
            return &self.lists.no_mark;
        };
        let mark = self.table.block_mark(first);
        if uses > 0 {
            block_at(first, order).for_each(|id| self.table.mark(id).store(0, Relaxed));
            mark.store((mark.load(Relaxed) + uses).min(S::Evict::MOST), Relaxed);
        }
        mark
    }

    /// How often each page of a block was used since its mark was asked for; `None` if they differ.
    fn uses(&self, first: SlotId, order: u32) -> Option<u8> {
        let mut uses = block_at(first, order).map(|id| hits(self.table.mark(id)));
        let one = uses.next()?;
        uses.all(|other| other == one).then_some(one)
    }

    /// Takes the pages of a block that the policy offers, of which `room` may go, if all can be taken, and gives them to `put`.
    /// Those that could not be taken after all, a bit each.
    #[inline(never)]
    pub(crate) fn offered_block(
        &self,
        (first, order): (SlotId, u32),
        room: usize,
        (met, tally): (&mut Met, &mut Tally),
        put: &mut dyn FnMut(Claimed),
    ) -> (Verdict, u64) {
        let pages = 1_usize << order;
        let is_wanted = match met.by {
            By::Background { zone } => self.frames.zone_of(self.table.frame_in(first)).0 == zone,
            By::Cache | By::Direct => true,
        };
        let can = block_at(first, order).filter(|&id| self.table.may_leave(id)).count();
        if can == 0 || !is_wanted {
            self.stays((first, order), met, tally);
            return (Verdict::Kept, 0);
        }
        if can < pages || room < pages || self.uses(first, order).is_none() {
            return (Verdict::Split, 0);
        }
        let mut left = u64::MAX >> (u64::BITS as usize - pages);
        let all = left;
        for (at, id) in block_at(first, order).enumerate() {
            if self.offered(id, met, tally, put) == Verdict::Taken {
                left &= !(1 << at);
            }
        }
        (if left == all { Verdict::Kept } else { Verdict::Taken }, left)
    }

    /// Counts the pages of a block of which none can go, and notes of each why: as of single pages, but without a lock.
    fn stays(&self, (first, order): (SlotId, u32), met: &mut Met, tally: &mut Tally) {
        if self.looked_at(first, 1 << order, met.by, tally).is_none() {
            return;
        }
        for id in block_at(first, order) {
            match self.table.seems(id) {
                Seems::Dirty => met.note_dirty(self.table.key_in(id), tally),
                Seems::Moving => met.note_moving(tally),
                // What became free just now is offered again.
                Seems::InUse | Seems::Free => {}
            }
        }
    }

    /// A block has gone, as its policy knows, but for the pages that `left` has a bit of, which are listed anew, each by itself.
    #[inline(never)]
    pub(crate) fn block_went(
        &self,
        held: &mut Held<S::Evict>,
        kind: Kind,
        (first, order): (SlotId, u32),
        left: u64,
    ) {
        let code = self.table.place(first).load(Relaxed) & place::CODE;
        held.gone(kind, 1 << order);
        for (at, id) in block_at(first, order).enumerate() {
            if left >> at & 1 == 0 {
                self.table.place(id).store(0, Relaxed);
                continue;
            }
            // Another thread came to it while the block went.
            self.table.place(id).store(place::single(code), Relaxed);
            held.insert(kind, id, self.table.key_in(id).hash());
        }
    }
}

#[cfg(all(test, feature = "std"))]
mod tests {
    use super::*;
    use crate::{Cache, MemoryStore, S3Fifo};
    use alloc::vec;

    #[test]
    fn what_a_block_was_used_its_pages_were() {
        let cache = Cache::<S3Fifo>::builder().memory(1 << 20).block(32).io_threads(0);
        let cache = cache.open().expect("a cache");
        let file = cache.open(MemoryStore::from(vec![1; 32 * 4096])).expect("a file");
        file.will_need(0..32 * 4096);
        let core = cache.core();
        let hold = core.table.hold(file.file.key(0)).expect("it is there");
        let (first, code) = (hold.id(), core.table.place(hold.id()).load(Relaxed) & place::CODE);
        assert_eq!(place::order_of(core.table.place(first).load(Relaxed)), 5);
        let at = |within: u32| SlotId(first.0 + within);
        let used = |within: u32| hits(core.table.mark(at(within)));
        let set = |within: u32, uses: u8| core.table.mark(at(within)).store(uses, Relaxed);
        (0..32).for_each(|within| set(within, 2));
        assert_eq!((hits(core.mark_of(first)), used(0), used(31)), (2, 0, 0));
        // The policy has seen a use of it; one page is used again, and they differ.
        core.mark_of(first).store(1, Relaxed);
        set(5, 1);
        assert_eq!(hits(core.mark_of(first)), 0);
        core.mark_of(first).store(3, Relaxed);
        core.list(code).with(|held| core.isolate(held, Kind::File, at(5)));
        assert_eq!((used(4), used(5)), (1, 2), "each by itself");
        let pieces = [0, 6, 8, 16].map(|within| hits(core.mark_of(at(within))));
        assert_eq!(pieces, [1; 4]);
        assert_eq!(cache.lists()[0].blocks, 4);
        core.release_one(core.table.leave_hold(hold));
    }
}

//! Freeing a list of single frames: what a policy for lists can do with it.

use crate::alloc::allocator::Allocator;
use crate::alloc::entry::Entry;
use crate::frame::PageblockWord;
use crate::frame::{ALLOCATED, CACHED};
use crate::pcp::per_cpu_pages::InSlot;
use crate::platform::stay::Stay;
use crate::platform::{Platform, StayOf};
use crate::policy::bulk_free::{CHUNK, Committed, Listed, positions};
use crate::policy::pcp::Stop;
use crate::policy::{BulkFree, Policy, Trace};
use crate::policy::{FreeMemory, PcpPolicy};
use crate::trace::{Event, Point, or_undo};
use crate::types::error::{BulkFreed, FreeError};
use crate::types::units::{Order, Pfn};

impl<'m, P: Platform, S: Policy> Allocator<'m, P, S> {
    #[inline(always)]
    pub(crate) fn free_bulk_through<E: Entry<'m, P, S>>(
        &self,
        entry: &mut E,
        frames: &[Pfn],
    ) -> BulkFreed {
        let result = BulkFreed::default();
        let mut list = Freeing { allocator: self, entry, frames, result };
        S::BulkFree::free(&mut list);
        list.result.freed = frames.len() - list.result.refused;
        list.result
    }
}

/// The frames of the first run of ones in a set of `frames` that is not empty, and where it begins.
#[inline(always)]
fn first_run(frames: &[Pfn], set: u64) -> (&[Pfn], u32) {
    let at = set.trailing_zeros();
    let run = (set >> at).trailing_ones();
    (frames.get(at as usize..(at + run) as usize).unwrap_or_default(), at)
}

/// A list on its way back.
struct Freeing<'a, 'm, P: Platform, S: Policy, E> {
    allocator: &'a Allocator<'m, P, S>,
    entry: &'a mut E,
    frames: &'a [Pfn],
    result: BulkFreed,
}

impl<'m, P: Platform, S: Policy, E: Entry<'m, P, S>> Freeing<'_, 'm, P, S, E> {
    /// Reports the frame at `at`.
    #[cold]
    #[inline(never)]
    fn refused(&mut self, at: usize, error: FreeError) {
        self.result.refused += 1;
        if self.result.first_refused.is_none_or(|(first, _)| at < first) {
            self.result.first_refused = Some((at, error));
        }
    }

    /// The frame at `at` is not allocated by itself: reports why.
    #[cold]
    #[inline(never)]
    fn refuse(&mut self, at: usize) {
        let (pfn, allocator) = (self.frames[at], self.allocator);
        let index = allocator.table.index(pfn);
        let foreign = FreeError::Foreign { pfn };
        let error = index.map_or(foreign, |index| allocator.refusal(pfn, index, Order::ZERO));
        self.refused(at, error);
    }

    /// Says that a frame is freed, before anyone else can have it.
    #[inline(always)]
    fn emit(pfn: Pfn) {
        S::Trace::emit(Point::Free, move || Event::Free { pfn, order: Order::ZERO });
        Self::emit_batched(pfn);
    }

    #[inline(always)]
    fn emit_batched(pfn: Pfn) {
        S::Trace::emit(Point::FreeBatched, move || Event::FreeBatched { pfn });
    }

    /// A [run](Listed::run), or as much of it as is done in one stay in the slot; and whether that stay has made room for the
    /// first frame, and nothing else.
    #[inline(always)]
    fn piece(&mut self, at: usize) -> (usize, bool) {
        let (allocator, frames) = (self.allocator, &self.frames[at..]);
        let frames = &frames[..frames.len().min(StayOf::<P>::LIST_FRAMES)];
        let Some(&first) = frames.first() else { return (0, false) };
        let table = &allocator.table;
        let word = table.pageblock_at(table.offset(first));
        let Some((zone, migrate)) = word.and_then(PageblockWord::cached_in) else {
            return (0, false);
        };
        let cpu = self.entry.cpu();
        let freed = self.entry.enter(zone, move |own| {
            let (mut done, mut made_room) = (0, false);
            loop {
                let (cache, out) = own.parts();
                let bulk = S::Pcp::push_bulk(cache, out, table, migrate, word, &frames[done..]);
                own.kept_of_list(bulk.done as u64);
                let kept = &frames[done..done + bulk.done];
                done += bulk.done;
                let tell = || kept.iter().for_each(|&pfn| Self::emit(pfn));
                if bulk.stop != Stop::Edge {
                    tell();
                    break;
                }
                // The last one is on its way to the zone, and gets there in any case; or others make room.
                or_undo(tell, || allocator.spill(own.reborrow(), zone, cpu, migrate));
                allocator.spill(own.reborrow(), zone, cpu, migrate);
                // Frames that go to the zone, and then as many as there are in a stay, would be too much for one.
                if StayOf::<P>::LIST != usize::MAX {
                    made_room = done == 0;
                    break;
                }
            }
            own.events.bulk_entries += u64::from(done > 0);
            (done, made_room)
        });
        freed.unwrap_or((0, false))
    }
}

impl<'m, P: Platform, S: Policy, E: Entry<'m, P, S>> Listed for Freeing<'_, 'm, P, S, E> {
    #[inline(always)]
    fn len(&self) -> usize {
        self.frames.len()
    }

    #[inline(always)]
    fn one(&mut self, at: usize) {
        let pfn = self.frames[at];
        match self.allocator.free_through::<E, true>(self.entry, pfn, Order::ZERO) {
            Ok(()) => Self::emit_batched(pfn),
            Err(error) => self.refused(at, error),
        }
    }

    #[inline(always)]
    fn run(&mut self, at: usize) -> usize {
        let (mut done, mut made_room) = (0, false);
        loop {
            let (piece, room) = self.piece(at + done);
            done += piece;
            // Once: a handler that comes in between may take the room.
            if StayOf::<P>::LIST == usize::MAX || piece == 0 && (made_room || !room) {
                return done;
            }
            made_room = piece == 0;
        }
    }

    #[inline(always)]
    fn prepare(&mut self, from: usize) -> u64 {
        let (table, frames) = (&self.allocator.table, &self.frames[from..]);
        let mut prepared = 0;
        for (bit, &pfn) in frames.iter().take(CHUNK).enumerate() {
            let ours = S::Free::release(table, table.offset(pfn), ALLOCATED, CACHED);
            prepared |= u64::from(ours) << bit;
        }
        let all = u64::MAX >> (CHUNK - frames.len().clamp(1, CHUNK));
        if prepared != all {
            positions(from, prepared ^ all).for_each(|at| self.refuse(at));
        }
        prepared
    }

    #[inline(always)]
    fn commit(&mut self, from: usize, prepared: u64) -> Committed {
        let (allocator, frames) = (self.allocator, &self.frames[from..]);
        let table = &allocator.table;
        let word = |frames: &[Pfn]| table.pageblock_at(table.offset(*frames.first()?));
        let first = prepared & prepared.wrapping_neg();
        let none = Committed { rest: prepared ^ first, uncached: first };
        let zone_of_first = word(first_run(frames, prepared).0).and_then(PageblockWord::cached_in);
        let Some((zone, _)) = zone_of_first else { return none };
        let cpu = self.entry.cpu();
        // The first frame of a run, whose pageblock has `word`, and those after it whose pageblocks have it
        // too. The first one's word is not read again: it may have changed.
        let alike = |run: &[Pfn], word| {
            let same = |pfn: &&Pfn| table.pageblock_at(table.offset(**pfn)) == word;
            1 + run.iter().skip(1).take_while(same).count()
        };
        let keep = |own: &mut InSlot<'_, P, S>, run: &[Pfn], list| {
            own.kept_of_list(run.len() as u64);
            for &pfn in run {
                // No truncation: the frame was prepared, so the offset is an index.
                let (cache, out) = own.parts();
                if S::Pcp::push(cache, out, table, list, table.offset(pfn) as u32) {
                    allocator.spill(own.reborrow(), zone, cpu, list);
                }
            }
        };
        let take_back = |set| {
            for at in positions(0, set) {
                table.replace_state_at(table.offset(frames[at]), CACHED, ALLOCATED);
            }
        };
        let entered = self.entry.enter(zone, move |own| {
            let (mut todo, mut left) = (prepared, Committed { rest: 0, uncached: 0 });
            while todo != 0 {
                let lowest = todo & todo.wrapping_neg();
                let (run, at) = first_run(frames, todo);
                // Read inside the slot: a CPU that isolates a pageblock drains the slot after it.
                let word = word(run);
                let mut done = 1;
                match word.and_then(PageblockWord::cached_in) {
                    None => left.uncached |= lowest,
                    Some((other, _)) if other != zone => left.rest |= lowest,
                    Some((_, list)) => {
                        done = alike(run, word);
                        let run = &run[..done];
                        let prepared = todo | left.rest | left.uncached;
                        or_undo(
                            || run.iter().copied().for_each(Self::emit),
                            || take_back(prepared),
                        );
                        keep(own, run, list);
                    }
                }
                todo &= !(u64::MAX >> (CHUNK - done.clamp(1, CHUNK)) << at);
            }
            let kept = prepared != left.rest | left.uncached;
            own.events.bulk_entries += u64::from(kept);
            left
        });
        // Busy: the others may find it free again. Each time fewer are left, so there is an end.
        entered.filter(|left| left.rest != prepared).unwrap_or(none)
    }

    #[cold]
    fn unprepare(&mut self, at: usize) -> bool {
        let table = &self.allocator.table;
        table.replace_state_at(table.offset(self.frames[at]), CACHED, ALLOCATED)
    }

    #[cold]
    fn direct(&mut self, at: usize) {
        let pfn = self.frames[at];
        match self.allocator.free_direct(pfn, Order::ZERO, false) {
            Ok(()) => Self::emit_batched(pfn),
            Err(error) => self.refused(at, error),
        }
    }
}

//! Ranges of frames: made free, taken, brought, withdrawn.

use super::bits::low_bits;
use super::mapped::MapView;
use super::shape::{Frame, WordIndex};
use crate::boot::plan::{Plan, ZoneSpec};
use crate::frame::{FrameState, PageblockWord};
use crate::platform::{AtomicWord, Platform};
use crate::types::migrate_type::MigrateType;
use crate::types::units::{Order, largest_piece};
use core::ops::Range;
use core::sync::atomic::Ordering::Relaxed;

impl<P: Platform> MapView<'_, P> {
    /// Makes the zone's usable memory free, before the zone is shared: whole pageblocks of ordinary
    /// memory stay untouched.
    pub(super) fn fill(&self, plan: &Plan, spec: &ZoneSpec) {
        self.take_over(plan, spec, |start, end, _| {
            self.free_range(start, end, u32::MAX);
        });
    }

    /// Frees the start of `at..end`, which was never handed out, at most `most` blocks of it; returns
    /// where it stopped. Whole ordinary pageblocks count as untouched.
    pub(super) fn free_range(&self, mut at: u32, end: u32, most: u32) -> u32 {
        let (map, own) = (self.map_apart(), self.table.pageblock_order());
        for _ in 0..most {
            if at >= end {
                break;
            }
            let order = largest_piece(at, end, own);
            let pageblock = self.pageblock(at);
            let untouched = order == own && map.type_of(pageblock).is_requestable();
            if untouched && map.put_untouched(pageblock).is_ok() {
                self.zone.count_free(order.frames() as i64);
                // Its type may have changed meanwhile.
                self.reconcile_special(self.frame(at), order);
            } else {
                let _counted_if_refused = self.free_counted(self.frame(at), order);
            }
            at += order.size();
        }
        at
    }

    /// Frees single frames that are allocated.
    pub(super) fn free_singles(&self, frames: Range<u32>) {
        let (mut at, own) = (frames.start, self.table.pageblock_order());
        while at < frames.end {
            let order = largest_piece(at, frames.end, own);
            let piece = at..at + order.size();
            piece.clone().for_each(|at| self.table.set_state(at, FrameState::INNER));
            self.free_counted(self.frame(at), order);
            self.zone.part.events.direct_free.fetch_add(order.frames(), Relaxed);
            at = piece.end;
        }
    }

    /// Takes what `frames` begins with of the free block there, in an isolated pageblock, and marks
    /// it frame by frame; returns where it stopped.
    pub(super) fn take_isolated(&self, frames: Range<u32>, mark: FrameState) -> Option<u32> {
        let map = self.map_apart();
        let pageblock = self.pageblock(frames.start);
        let (head, order) = map.run_at(self.frame(frames.start))?;
        if map.type_of(pageblock) != MigrateType::Isolate {
            return None;
        }
        let end = (self.index(head) + order.size()).min(frames.end);
        let mut at = frames.start;
        for (word, mask) in pieces(self.frame(at), end - at) {
            let taken = map.take_isolated(word, mask);
            // What another CPU took of it meanwhile ends the run.
            let run = (taken >> mask.trailing_zeros()).trailing_ones();
            let keep = if run == 64 { u64::MAX } else { ((1 << run) - 1) << mask.trailing_zeros() };
            if taken & !keep != 0 {
                let put_back = map.free_frames(word, taken & !keep);
                debug_assert!(put_back.is_ok(), "frames were freed while this CPU had them");
            }
            (at..at + run).for_each(|at| self.table.set_state(at, mark));
            at += run;
            if run < mask.count_ones() {
                break;
            }
        }
        let taken = at - frames.start;
        self.count(self.frame(frames.start), Order::ZERO, -i64::from(taken));
        self.zone.part.events.direct_alloc.fetch_add(u64::from(taken), Relaxed);
        (taken > 0).then_some(at)
    }

    /// Makes `at..end`, pageblocks that are not there, the zone's, movable, untouched and free.
    pub(super) fn bring(&self, at: u32, end: u32) -> u32 {
        let size = self.table.pageblock_order().size();
        for start in (at..end).step_by(size as usize) {
            self.table.set_pageblock(start, PageblockWord::new(self.zone.id, MigrateType::Movable));
        }
        self.free_range(at, end, u32::MAX)
    }

    /// Makes `at..end`, pageblocks whose frames were all taken, and are in no place, no zone's.
    pub(super) fn withdraw(&self, at: u32, end: u32) -> u32 {
        (at..end).for_each(|index| self.table.set_state(index, FrameState::INNER));
        for start in (at..end).step_by(self.table.pageblock_order().size() as usize) {
            self.table.set_pageblock(start, PageblockWord::NONE);
        }
        // They were counted as handed out.
        self.zone.part.events.direct_free.fetch_add(u64::from(end - at), Relaxed);
        end
    }

    /// Takes the free block of at least `order`, and less than `wanted`, at `index` as a place to
    /// move a block to, and marks it allocated. `false` if it is not what it looked like.
    pub(super) fn take_target(&self, index: u32, order: Order, wanted: Order) -> bool {
        let Some((head, found)) = self.run_at(index) else { return false };
        let frame = self.frame(index);
        if head != index
            || !(order..wanted).contains(&found)
            || !self.map().take_exact_open(frame, order)
        {
            return false;
        }
        self.hand_out(frame, order);
        true
    }
}

/// The words that `count` frames from `first` on lie in, and which bits of each.
fn pieces(first: Frame, count: u32) -> impl Iterator<Item = (WordIndex, u64)> {
    let (mut at, end) = (first.0, first.0 + count);
    core::iter::from_fn(move || {
        let (word, bit) = Frame(at).word();
        let here = (end - at).min(64 - bit.trailing_zeros());
        at += here;
        (here > 0).then(|| (word, low_bits(here) << bit.trailing_zeros()))
    })
}

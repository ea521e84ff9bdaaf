//! One frame into the map, where it joins a word that stays part of a pageblock: what frames that are freed
//! far from each other need, in line. All else is out of line and begins with what the word was.

use super::bits::order_in_part;
use super::hints::Kind;
use super::mapped::MapView;
use super::shape::{Frame, MapShape, Pageblock, WORD_ORDER};
use crate::frame::{FrameState, PageblocksView};
use crate::platform::{AtomicWord, Platform};
use crate::types::migrate_type::MigrateType;
use core::sync::atomic::Ordering::SeqCst;

/// A zone's words, found once, for frames that are freed one by one.
pub(crate) struct Singles<'m, P: Platform> {
    view: MapView<'m, P>,
    shape: MapShape,
    pageblocks: PageblocksView<'m, P>,
    lines: &'m [P::Word],
    /// The first section's hints of the first type, and all that follow.
    hints: &'m [P::Word],
}

impl<'m, P: Platform> MapView<'m, P> {
    /// The zone's.
    #[inline(always)]
    pub(crate) fn singles(self) -> Singles<'m, P> {
        let (first, shape) = self.extent();
        let pageblocks = self.table.view_from(first);
        let (lines, hints) = self.map().lines_and_hints();
        Singles { view: self, shape, pageblocks, lines, hints }
    }
}

impl<P: Platform> Singles<'_, P> {
    /// As [`put_cached`](MapView::put_cached), of one frame; whether it was freed.
    #[inline(always)]
    pub(crate) fn put(&self, frame: Frame) -> bool {
        let (shape, at) = (self.shape, frame.0 as usize);
        // Before the bit: who takes it writes the state anew.
        self.pageblocks.set_state(at, FrameState::INNER);
        let before = self.lines[at >> WORD_ORDER].fetch_or(1 << (at % 64), SeqCst);
        let now = before | 1 << (at % 64);
        if now == before || now == u64::MAX || shape.p() < WORD_ORDER {
            return self.put_further(frame, before);
        }
        let pageblock = frame.pageblock(shape);
        // After the bit (M-5).
        let Some(migrate) = self.pageblocks.requestable_after(pageblock.0 as usize) else {
            return self.put_further(frame, before);
        };
        let (section, hint) = (pageblock.place().0 as usize, pageblock.0 % u64::BITS);
        let first = section * shape.section_stride() + migrate * shape.p() as usize;
        let order = order_in_part(now, frame.0 % u64::BITS);
        // The loads come after the bit that they speak of: see the map's `file`.
        let hints =
            self.hints[first].load(SeqCst) & self.hints[first + order as usize].load(SeqCst);
        if hints >> hint & 1 == 0 {
            self.raise(pageblock, migrate, order);
        }
        true
    }

    fn put_further(&self, frame: Frame, before: u64) -> bool {
        let (word, bit) = frame.word();
        self.view.put_further(word, bit, before) == bit
    }

    /// Raises the hints of a requestable type, by its index, for a pageblock with a run of an order.
    #[cold]
    #[inline(never)]
    fn raise(&self, pageblock: Pageblock, migrate: usize, order: u32) {
        let of_type = MigrateType::from_number(migrate as u8);
        for kind in of_type.into_iter().flat_map(|it| [0, order].map(|at| Kind::of_order(it, at))) {
            self.view.map_apart().set(kind, pageblock);
        }
    }
}

//! Runs of just the order that is wanted, in pageblocks that have nothing larger: what a CPU takes before it splits a larger
//! run of its current pageblock.
//!
//! A list of blocks by size splits the smallest that will do, wherever it lies. A CPU that has a current pageblock would
//! split what this has, as large as it may be, while runs that fit stand open elsewhere; and where blocks live about
//! equally long, what it puts there keeps the pageblock from becoming whole. A pageblock with larger runs is left to
//! empty; one whose largest run is the one that is wanted has no better use for it (ADR 122).

use super::FreeMap;
use super::hints::{Kind, Start, is_hinted};
use super::shape::{Frame, Pageblock, SECTION};
use crate::platform::{AtomicWord, Platform};
use crate::types::migrate_type::MigrateType;
use crate::types::units::Order;
use core::ops::Range;
use core::sync::atomic::Ordering::Relaxed;

impl<P: Platform> FreeMap<'_, P> {
    /// Takes a block of `order`, of 1 at least and below a word, that is a maximal run, from the first pageblock before the current
    /// one, `own`, whose runs are none of them larger. `None`: none is known. O(sections between the two), as hints of larger
    /// runs are not summed up.
    #[inline(never)]
    pub(crate) fn take_fitting(
        &self,
        own: Pageblock,
        (migrate, order): (MigrateType, Order),
        start: Start,
    ) -> Option<Frame> {
        if !is_hinted(migrate) || order >= self.shape().order() {
            return None;
        }
        let step = u32::from(order.get());
        let kind = Kind::Run(migrate, step);
        while let Some(pageblock) = self.find_fitting((migrate, step), start, own) {
            if let Some(frame) = self.take_led(None, pageblock, (migrate, order, step)) {
                return Some(frame);
            }
            // As in `take_block`.
            self.lower_stale(kind, pageblock, (migrate, self.orders_in(pageblock)));
        }
        None
    }

    /// The first pageblock from the start on, and before `end`, with runs of an order and none of a larger one.
    fn find_fitting(
        &self,
        wanted: (MigrateType, u32),
        start: Start,
        end: Pageblock,
    ) -> Option<Pageblock> {
        let (first, last) = (start.pageblock.0, self.shape().pageblocks());
        let found = match first <= end.0 {
            true => self.find_fitting_in(wanted, first..end.0),
            false => self
                .find_fitting_in(wanted, first..last)
                .or_else(|| self.find_fitting_in(wanted, 0..end.0)),
        };
        found.filter(|&pageblock| start.is_own(pageblock))
    }

    fn find_fitting_in(
        &self,
        (migrate, step): (MigrateType, u32),
        mut range: Range<u32>,
    ) -> Option<Pageblock> {
        while !range.is_empty() {
            let Pageblock(found) = self.find_from(Kind::Run(migrate, step), range.start)?;
            let section = found / SECTION;
            // Relaxed: a first look, as all of a search are.
            let mut orders = self.hints_in(section, migrate).iter().map(|word| word.load(Relaxed));
            let fitting = orders.nth(step as usize).unwrap_or(0);
            let larger = orders.fold(0, |any, word| any | word);
            let here = fitting & !larger & u64::MAX << (found % SECTION);
            if here != 0 {
                let found = section * SECTION + here.trailing_zeros();
                return (found < range.end).then_some(Pageblock(found));
            }
            range.start = (section + 1) * SECTION;
        }
        None
    }
}

//! The look at the bits themselves, before a request that may wait is refused.

use super::FreeMap;
use super::hints::Kind;
use super::shape::{Pageblock, SECTION};
use super::whole::WholeClass;
use crate::platform::{AtomicWord, Platform};
use crate::types::migrate_type::MigrateType;
use crate::types::units::Order;
use core::sync::atomic::Ordering::SeqCst;

/// What a look at all lines found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LastLook {
    /// A block, in this pageblock, whose hints are raised now: search again.
    Found(Pageblock),
    /// No such block was free at one moment of each section's look.
    Nothing,
    /// None was found, but a CPU kept a section busy that may have had one in its hand: look again.
    Unsettled,
}

/// How often a section is looked at before it is said to be busy.
const TRIES: u32 = 4;

impl<P: Platform> FreeMap<'_, P> {
    /// Looks at every line, and at `whole`, for a free block of `order`, up to the pageblock order,
    /// of a type that `usable` says yes to. Hints it raises on the way are for others, too.
    ///
    /// It reads all words of the map (16,000 a 4 GiB with pageblocks of order 9), for a pageblock the
    /// words of `whole` only (160): a request does so
    /// once before it is refused, and again only if something was found that then was lost, a
    /// fixed number of times.
    #[cold]
    pub fn last_look(&self, usable: impl Fn(MigrateType) -> bool, order: Order) -> LastLook {
        let mut unsettled = false;
        for section in 0..self.shape().sections() {
            let mut settled = false;
            for _ in 0..TRIES {
                let before = self.quiet(section);
                if let Some(pageblock) = self.look_at_section(section, &usable, order) {
                    return LastLook::Found(pageblock);
                }
                if before.is_some() && self.quiet(section) == before {
                    settled = true;
                    break;
                }
                P::relax();
            }
            unsettled |= !settled;
        }
        if unsettled { LastLook::Unsettled } else { LastLook::Nothing }
    }

    fn look_at_section(
        &self,
        section: u32,
        usable: &impl Fn(MigrateType) -> bool,
        order: Order,
    ) -> Option<Pageblock> {
        let first = section * SECTION;
        let end = (first + SECTION).min(self.shape().pageblocks());
        let mut pageblocks =
            (first..end).map(Pageblock).filter(|&pageblock| self.is_own(pageblock));
        pageblocks.find(|&pageblock| {
            let migrate = self.type_of(pageblock);
            if !usable(migrate) {
                return false;
            }
            // A line that is full is made a whole pageblock by who filled it.
            if order < self.shape().order() && self.orders_in(pageblock) >> order.get() != 0 {
                self.settle(pageblock);
                self.hints_of(migrate).for_each(|kind| self.repair(kind, section));
                return true;
            }
            let whole = self.whole_class(pageblock);
            if whole.is_some_and(|class| class != WholeClass::Isolated) {
                WholeClass::ALL.into_iter().for_each(|class| {
                    self.repair(Kind::Whole(class), section);
                });
                return true;
            }
            false
        })
    }

    /// The CPU that has set a bit may not have come to the levels above yet.
    fn repair(&self, kind: Kind, section: u32) {
        if self.bitmap_word(kind, 0, section).load(SeqCst) != 0 {
            self.repair_above(kind, section);
        }
    }
}

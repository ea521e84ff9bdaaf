//! The migrate type in a pageblock's word, where the frame table keeps it.

use super::shape::Pageblock;
use super::{FreeMap, WholeClass};
use crate::platform::{AtomicWord, Platform};
use crate::types::migrate_type::MigrateType;
use core::sync::atomic::Ordering::SeqCst;

/// Where the type stands in a pageblock's word.
const SHIFT: u32 = 16;
/// The type, and the list of a per-CPU cache that follows from it.
const FIELDS: u64 = 0xff_00ff;

/// The fields of a type.
const fn fields(migrate: MigrateType) -> u64 {
    let list = match migrate {
        MigrateType::Unmovable => 1,
        MigrateType::Movable | MigrateType::Cma => 2,
        MigrateType::Reclaimable => 3,
        MigrateType::HighAtomic | MigrateType::Isolate => 0,
    };
    (migrate as u64) << SHIFT | list
}

impl<P: Platform> FreeMap<'_, P> {
    /// The type of a pageblock.
    ///
    /// Sequentially consistent: the look after the bits of M-5, whose partner is the exchange in
    /// [`set_type`](Self::set_type).
    #[must_use]
    #[inline(always)]
    pub fn type_of(&self, pageblock: Pageblock) -> MigrateType {
        let word = self.type_word(pageblock).load(SeqCst);
        MigrateType::from_number((word >> SHIFT) as u8).unwrap_or(MigrateType::Isolate)
    }

    /// Changes the type of a pageblock, whatever it is; what is free in it goes by the new one from
    /// now on, and what a CPU takes by the old one at the same time it puts back. To isolate it is
    /// to make it [`Isolate`](MigrateType::Isolate): then frees into it stay. O(words of a line +
    /// hints of a type).
    pub fn set_type(&self, pageblock: Pageblock, to: MigrateType) {
        while !self.change_type(pageblock, self.type_of(pageblock), to) {}
    }

    /// As [`set_type`](Self::set_type) if the type is `from`. `false`, and no change, if it is not.
    #[must_use]
    pub fn change_type(&self, pageblock: Pageblock, from: MigrateType, to: MigrateType) -> bool {
        if !self.exchange_type(pageblock, from, to) {
            return false;
        }
        if from != to {
            // M-5: frees and takes that read `from` had changed their bits before that, so this
            // sees them; those that come later read `to`.
            self.move_whole(pageblock, from);
            self.lower_all(pageblock, from);
            self.settle(pageblock);
        }
        true
    }

    /// Changes the type of a pageblock that the caller owns as a whole, or all of whose frames it
    /// has: nothing is filed. `false`, and no change, if another CPU isolated it meanwhile, if
    /// CMA or the high-atomic reserve has it, or if that reserve had it and it is to be so again: then it would not be counted.
    #[must_use]
    pub fn claim_owned(&self, pageblock: Pageblock, to: MigrateType) -> bool {
        loop {
            let from = self.type_of(pageblock);
            if from == to {
                return true;
            }
            if [from, to].map(WholeClass::of) != [WholeClass::Ordinary; 2] {
                return false;
            }
            if self.exchange_type(pageblock, from, to) {
                // Frames may have been freed into it at the same time (by mistake, or because the
                // caller has only part of it).
                self.lower_all(pageblock, from);
                self.settle(pageblock);
                return true;
            }
        }
    }

    /// Changes the type to `to` if at least half of the pageblock is free; otherwise `false`, and
    /// no change. For a CPU that found nothing of its own type (Linux's claim).
    #[must_use]
    pub fn claim_if_half_free(&self, pageblock: Pageblock, to: MigrateType) -> bool {
        let from = self.type_of(pageblock);
        let half = self.shape().pageblock_frames() / 2;
        WholeClass::of(from) == WholeClass::Ordinary
            && self.free_in(pageblock) >= half
            && self.change_type(pageblock, from, to)
    }

    /// Whether the type was `from` and is `to` now. The other fields of the word stay.
    fn exchange_type(&self, pageblock: Pageblock, from: MigrateType, to: MigrateType) -> bool {
        let word = self.type_word(pageblock);
        let mut seen = word.load(SeqCst);
        while (seen >> SHIFT) as u8 == from as u8 {
            match word.compare_exchange(seen, seen & !FIELDS | fields(to), SeqCst, SeqCst) {
                Ok(_) => return true,
                Err(now) => seen = now,
            }
        }
        false
    }
}

//! Pageblocks that are free as a whole: who clears the bit owns all frames.

use super::FreeMap;
use super::frees::AlreadyFree;
use super::hints::{Kind, Start};
use super::shape::Pageblock;
use crate::platform::Platform;
use crate::types::migrate_type::MigrateType;

/// How many classes there are.
pub(super) const NR_CLASSES: usize = 5;

/// Which whole pageblocks are looked for together: each is in the bitmap of one class.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum WholeClass {
    /// Unmovable, movable or reclaimable: any of the three may claim it.
    Ordinary = 0,
    /// As ordinary, and never touched since boot or since it was given back: nothing of it is in
    /// memory yet, so it is used last, the lowest first, by all CPUs.
    Untouched = 1,
    /// Lent to movable requests only.
    Cma = 2,
    /// For high-order requests that cannot wait.
    HighAtomic = 3,
    /// For none.
    Isolated = 4,
}

impl WholeClass {
    /// All of them.
    pub const ALL: [Self; NR_CLASSES] =
        [Self::Ordinary, Self::Untouched, Self::Cma, Self::HighAtomic, Self::Isolated];

    /// The class of touched pageblocks of a type.
    #[must_use]
    #[inline(always)]
    pub const fn of(migrate: MigrateType) -> Self {
        if migrate.is_requestable() {
            return Self::Ordinary;
        }
        match migrate {
            MigrateType::Unmovable | MigrateType::Movable | MigrateType::Reclaimable => {
                Self::Ordinary
            }
            MigrateType::HighAtomic => Self::HighAtomic,
            MigrateType::Cma => Self::Cma,
            MigrateType::Isolate => Self::Isolated,
        }
    }

    /// The classes in which a request of the type finds whole pageblocks, touched ones first.
    pub(super) const fn for_type(migrate: MigrateType) -> &'static [Self] {
        match migrate {
            MigrateType::HighAtomic => &[Self::HighAtomic],
            MigrateType::Cma => &[Self::Cma],
            MigrateType::Isolate => &[],
            _ => &[Self::Ordinary, Self::Untouched],
        }
    }

    /// Whether pageblocks of the type may be in the class.
    const fn may_hold(self, migrate: MigrateType) -> bool {
        let class = Self::of(migrate) as u8;
        self as u8 == class || (self as u8 == Self::Untouched as u8 && class == 0)
    }
}

impl<P: Platform> FreeMap<'_, P> {
    /// Takes the first whole pageblock of a class from the start on; untouched ones from the map's
    /// first on, whatever the start. Its frames are the caller's, its type is what it was
    /// ([`claim_owned`](Self::claim_owned) changes it). O(words that a search reads).
    #[inline]
    #[must_use]
    pub fn take_whole(&self, class: WholeClass, start: Start) -> Option<Pageblock> {
        let untouched = class == WholeClass::Untouched;
        let pageblock = if untouched { Pageblock(0) } else { start.pageblock };
        let start = Start { pageblock, ..start };
        self.take_whole_inside(class, start, |_| ()).map(|(pageblock, ())| pageblock)
    }

    /// The same from the start on for all classes, with something done before each try.
    #[inline]
    pub(super) fn take_whole_inside<G>(
        &self,
        class: WholeClass,
        start: Start,
        enter: impl Fn(Pageblock) -> G,
    ) -> Option<(Pageblock, G)> {
        loop {
            let (pageblock, guard) = self.win_inside(Kind::Whole(class), start, &enter)?;
            if self.keep_whole(class, pageblock) {
                return Some((pageblock, guard));
            }
        }
    }

    /// Takes this pageblock if it is whole, whatever its class, which is returned. For who wants a
    /// range: isolation of what is contiguous, give-back, memory that goes.
    #[must_use]
    pub fn take_whole_at(&self, pageblock: Pageblock) -> Option<WholeClass> {
        WholeClass::ALL.into_iter().find(|&class| {
            self.clear(Kind::Whole(class), pageblock) && self.keep_whole(class, pageblock)
        })
    }

    /// M-5: the type is read after the bit was cleared. If it was changed meanwhile the pageblock
    /// is put back under the new one.
    #[inline(always)]
    pub(super) fn keep_whole(&self, class: WholeClass, pageblock: Pageblock) -> bool {
        let keeps = class.may_hold(self.type_of(pageblock));
        if !keeps {
            self.put_whole_back(pageblock);
        }
        keeps
    }

    /// Puts a whole pageblock back that was taken, and has another type now.
    #[cold]
    #[inline(never)]
    pub(super) fn put_whole_back(&self, pageblock: Pageblock) {
        let transit = self.in_transit(pageblock);
        self.set_whole(pageblock);
        drop(transit);
        self.was_put_back(pageblock);
    }

    /// Whether the pageblock is whole now. A snapshot.
    #[must_use]
    pub fn is_whole(&self, pageblock: Pageblock) -> bool {
        self.whole_class(pageblock).is_some()
    }

    /// The class in which the pageblock is whole now. A snapshot.
    #[must_use]
    pub fn whole_class(&self, pageblock: Pageblock) -> Option<WholeClass> {
        let (section, bit) = pageblock.place();
        WholeClass::ALL.into_iter().find(|&class| self.whole_word(class, section) & bit != 0)
    }

    /// Gives a pageblock that the caller owns as a whole to the untouched ones: memory that comes,
    /// or whose contents were given back. O(1).
    ///
    /// # Errors
    /// [`AlreadyFree`] if it is whole; then nothing has changed.
    pub fn put_untouched(&self, pageblock: Pageblock) -> Result<(), AlreadyFree> {
        self.put_apart(WholeClass::Untouched, pageblock)
    }

    /// Puts a pageblock that the caller owns into the class of its type.
    pub(super) fn set_whole(&self, pageblock: Pageblock) -> bool {
        self.put_apart(WholeClass::of(self.type_of(pageblock)), pageblock).is_ok()
    }

    /// As [`put_whole`](Self::put_whole), out of line: for all but the free of a huge page.
    #[inline(never)]
    pub(super) fn put_apart(
        &self,
        class: WholeClass,
        pageblock: Pageblock,
    ) -> Result<(), AlreadyFree> {
        self.put_whole(class, pageblock)
    }

    #[inline]
    pub(super) fn put_whole(
        &self,
        class: WholeClass,
        pageblock: Pageblock,
    ) -> Result<(), AlreadyFree> {
        self.set_in(class, pageblock)?;
        // M-5: a CPU that changed the type before this look may have looked for the bit before it was
        // set. One that changes it later sees the bit.
        if class.may_hold(self.type_of(pageblock)) { Ok(()) } else { self.refile(class, pageblock) }
    }

    /// A pageblock was put into the wrong class.
    #[cold]
    pub(super) fn refile(&self, from: WholeClass, pageblock: Pageblock) -> Result<(), AlreadyFree> {
        let mut class = from;
        while self.clear(Kind::Whole(class), pageblock) {
            class = WholeClass::of(self.type_of(pageblock));
            self.set_in(class, pageblock)?;
            if class.may_hold(self.type_of(pageblock)) {
                break;
            }
        }
        Ok(())
    }

    /// Sets the bit of a class, unless that of a class that it would be twice in is set.
    #[inline]
    fn set_in(&self, class: WholeClass, pageblock: Pageblock) -> Result<(), AlreadyFree> {
        let other = match class {
            WholeClass::Ordinary => WholeClass::Untouched,
            _ => WholeClass::Ordinary,
        };
        let (section, bit) = pageblock.place();
        if self.whole_word(other, section) & bit != 0 || self.set(Kind::Whole(class), pageblock) {
            return Err(AlreadyFree { first: pageblock.first_frame(self.shape()), bits: u64::MAX });
        }
        Ok(())
    }

    /// The type of the pageblock was `from`: if it is whole, it goes to the class of its type now.
    pub(super) fn move_whole(&self, pageblock: Pageblock, from: MigrateType) {
        let class = WholeClass::of(from);
        let places: &[_] = match class {
            WholeClass::Ordinary => &[WholeClass::Ordinary, WholeClass::Untouched],
            _ => &[class],
        };
        for &class in places {
            if class.may_hold(self.type_of(pageblock)) {
                continue;
            }
            let transit = self.in_transit(pageblock);
            if self.clear(Kind::Whole(class), pageblock) {
                self.set_whole(pageblock);
            }
            drop(transit);
        }
    }
}

//! The zone lock: what may be done while it is held.

use super::tables::ZoneTables;
use super::{FreeMemory, ZoneInstance};
use crate::platform::{Lock, Platform};
use core::ops::{Deref, DerefMut};

/// The zone lock is held. Carries the tables, so that what the lock guards and the words that it
/// guards there are always those of one zone.
///
/// Holding it says that no other CPU changes what is free in the zone, or the word of one of its
/// pageblocks; it says nothing of frames that are cached or allocated.
pub struct ZoneGuard<'a, P: Platform, F: FreeMemory> {
    pub(crate) zone: &'a ZoneInstance<P, F>,
    pub(crate) table: &'a ZoneTables<'a, P>,
    held: &'a mut F::Held,
}

impl<'a, P: Platform, F: FreeMemory> ZoneGuard<'a, P, F> {
    #[inline(always)]
    pub(super) fn new(
        zone: &'a ZoneInstance<P, F>,
        table: &'a ZoneTables<'a, P>,
        held: &'a mut F::Held,
    ) -> Self {
        Self { zone, table, held }
    }
}

impl<P: Platform, F: FreeMemory> Deref for ZoneGuard<'_, P, F> {
    type Target = F::Held;

    #[inline(always)]
    fn deref(&self) -> &F::Held {
        self.held
    }
}

impl<P: Platform, F: FreeMemory> DerefMut for ZoneGuard<'_, P, F> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut F::Held {
        self.held
    }
}

/// A zone beside the tables that it works over: where its free memory is asked for anything.
pub struct ZoneView<'a, P: Platform, F: FreeMemory> {
    pub(crate) zone: &'a ZoneInstance<P, F>,
    pub(crate) table: &'a ZoneTables<'a, P>,
}

impl<P: Platform, F: FreeMemory> Clone for ZoneView<'_, P, F> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: Platform, F: FreeMemory> Copy for ZoneView<'_, P, F> {}

impl<P: Platform, F: FreeMemory> ZoneView<'_, P, F> {
    /// Runs `f` with the zone lock held and books the hold.
    #[inline]
    pub(crate) fn lock<R>(&self, f: impl FnOnce(&mut ZoneGuard<'_, P, F>) -> R) -> R {
        self.zone.held.with(|held| {
            let result = f(&mut ZoneGuard::new(self.zone, self.table, held));
            if let Some(counts) = F::end_hold(held) {
                self.zone.publish(counts);
            }
            result
        })
    }
}

//! The zone lock: what may be done while it is held.

use super::tables::ZoneTables;
use super::{FreeMemory, ZoneInstance};
use crate::frame::FrameKind;
use crate::platform::{Lock, Platform};
use crate::types::error::RangeError;
use crate::types::migrate_type::MigrateType;
use core::ops::{Deref, DerefMut, Range};

/// The zone lock is held. Carries the tables, so that what the lock guards and the words that it
/// guards there are always those of one zone.
///
/// Holding it says that no other CPU isolates a pageblock or changes the reserve; and where it guards
/// what is free ([`FreeMemory::LOCKED`]), that no other CPU changes that, or the word of a pageblock. It
/// says nothing of frames that are cached or allocated.
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

impl<P: Platform, F: FreeMemory> ZoneGuard<'_, P, F> {
    /// The type of the pageblock that starts at `start`, if it may be isolated; of `frames` none may
    /// be allocated in it if its frames cannot be moved. Work: its frames.
    pub(super) fn check_isolation(
        &mut self,
        start: u32,
        frames: &Range<u32>,
    ) -> Result<MigrateType, RangeError> {
        let migrate = self.table.pageblock(start).migrate();
        if migrate == MigrateType::Isolate {
            return Err(RangeError::Isolated { pfn: self.table.pfn(start) });
        }
        if !migrate.is_for_movable() {
            let end = start + self.table.pageblock_order().size();
            let part = start.max(frames.start)..end.min(frames.end);
            F::count_work(self.held, part.len() as u32);
            if let Some(at) = self.first_allocated(part) {
                return Err(RangeError::Unmovable { pfn: self.table.pfn(at) });
            }
        }
        Ok(migrate)
    }

    /// The first frame of `part` that is in an allocated block.
    fn first_allocated(&self, part: Range<u32>) -> Option<u32> {
        let (view, mut at) = (ZoneView { zone: self.zone, table: self.table }, part.start);
        while at < part.end {
            match F::locate(view, at) {
                Some((_, state)) if state.kind() == FrameKind::Allocated => return Some(at),
                Some((head, state)) => at = head + state.order().size(),
                None => at += 1,
            }
        }
        None
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

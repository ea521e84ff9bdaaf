//! Blocks larger than a frame: which pageblock is the CPU's current one for them.

use super::CpuStack;
use crate::platform::Platform;
use crate::types::migrate_type::MigrateType;
use crate::types::units::Order;
use crate::zone::free_map::{Current, Frame, FreeMap, Start};

impl CpuStack {
    /// Where this CPU begins to look, and its current pageblock for blocks of the order, if it may
    /// have one.
    pub fn current_for(
        &mut self,
        migrate: MigrateType,
        order: Order,
    ) -> (Start, Option<&mut Current>) {
        let most = self.size.currents as usize;
        let room =
            |all: &[Current]| all.iter().filter(|one| one.pageblock().is_some()).count() < most;
        let has = |own: &Current| own.pageblock().is_some();
        let at = migrate.index();
        let may =
            order > Order::ZERO && (self.current.get(at).is_some_and(has) || room(&self.current));
        (self.start, self.current.get_mut(at).filter(|_| may))
    }

    /// The pageblock that it has for blocks of the type, if it has one.
    #[inline]
    pub(super) fn current_mut(&mut self, migrate: MigrateType) -> Option<&mut Current> {
        self.current.get_mut(migrate.index())
    }

    /// Takes a block of any order for a request of the type, of its own memory or else of another
    /// type's. `None`: the hints lead to none.
    pub fn take_block<P: Platform>(
        &mut self,
        map: &FreeMap<'_, P>,
        migrate: MigrateType,
        order: Order,
    ) -> Option<Frame> {
        let (start, current) = self.current_for(migrate, order);
        let own = map.take_own(migrate, order, start, current);
        own.or_else(|| Some(map.take_other(migrate, order, start)?.0))
    }
}

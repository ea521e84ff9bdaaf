//! Blocks larger than a frame: which pageblock is the CPU's current one for them.

use super::{CpuStack, StackOutside};
use crate::platform::Platform;
use crate::types::migrate_type::MigrateType;
use crate::types::units::Order;
use crate::zone::free_map::{Current, Frame, FreeMap, MapShape, Pageblock, Start};

/// The largest order of blocks that come from a current pageblock.
const LARGEST: u8 = 4;

/// Whether blocks of an order come from a current pageblock. Larger ones come from where they fit: of a current one they would split what
/// is largest, and leave it in pieces.
#[inline(always)]
pub(super) fn has_current(order: Order) -> bool {
    (1..=LARGEST).contains(&order.get())
}

impl CpuStack {
    /// Where this CPU begins to look, and its current pageblock for blocks of the order, if it may
    /// have one.
    pub fn current_for(
        &mut self,
        migrate: MigrateType,
        order: Order,
    ) -> (Start, Option<&mut Current>) {
        let at = migrate.index();
        let has = |own: &Current| own.pageblock().is_some();
        let may = has_current(order) && (self.current.get(at).is_some_and(has) || self.has_room());
        (self.start, self.current.get_mut(at).filter(|_| may))
    }

    /// Whether it may keep one pageblock more to itself.
    fn has_room(&self) -> bool {
        let kept = self.current.iter().chain(&self.opened);
        kept.filter(|one| one.pageblock().is_some()).count() < self.size.currents as usize
    }

    /// The pageblock that its refills of a type have opened, if it may keep one.
    pub(super) fn opened_for(&mut self, migrate: MigrateType) -> Option<&mut Current> {
        let at = migrate.index();
        let may = self.opened.get(at)?.pageblock().is_some() || self.has_room();
        self.opened.get_mut(at).filter(|_| may)
    }

    /// The pageblock that it takes blocks of the order and type from, if there may be one.
    #[inline(always)]
    pub(super) fn current_of(
        &mut self,
        migrate: MigrateType,
        order: Order,
    ) -> Option<&mut Current> {
        self.current_mut(migrate).filter(|_| has_current(order))
    }

    /// The pageblock that it has for blocks of the type, if it has one.
    #[inline]
    pub(super) fn current_mut(&mut self, migrate: MigrateType) -> Option<&mut Current> {
        self.current.get_mut(migrate.index())
    }

    /// Whether a pageblock is one that it takes blocks or frames of the type from. Its hints are low, whatever is free there.
    #[inline(always)]
    pub(super) fn is_kept_to_itself(&self, migrate: MigrateType, pageblock: Pageblock) -> bool {
        let at = migrate.index();
        let both = [self.current.get(at), self.opened.get(at)];
        both.iter().flatten().any(|one| one.pageblock() == Some(pageblock))
    }

    /// Blocks of the type are on its stacks.
    pub(super) const fn keeps_small(&mut self, migrate: MigrateType) {
        self.small.add(migrate);
    }

    /// A larger block of the type was taken at a frame: what is freed of its pageblock may stay.
    pub(super) fn took<P: Platform, const N: usize>(
        &mut self,
        out: &StackOutside<P, N>,
        migrate: MigrateType,
        frame: Frame,
        shape: MapShape,
    ) {
        let first = frame.pageblock(shape).first_frame(shape);
        out.small().set_home(migrate, self.index(first));
        self.small.add(migrate);
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
        own.or_else(|| map.take_other(migrate, order, start)?.0)
    }
}

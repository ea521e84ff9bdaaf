//! Keeping a part that is being evacuated apart: what is freed in it stays out of the lists that
//! requests see, or others would take it as fast as pages move out.
//!
//! A pageblock that is set apart has the type isolate, so frees into it go to lists of its own.
//! Unlike an isolation that somebody holds a token of, this one may be revoked at any moment, by
//! whoever has the zone lock and finds no single frame anywhere else (I-6).

use crate::alloc::allocator::Allocator;
use crate::frame::FrameTable;
use crate::platform::Platform;
use crate::policy::Policy;
use crate::types::migrate_type::MigrateType;
use crate::zone::instance::Zone;
use crate::zone::lists::buddy::Buddy;

/// A pageblock is set apart, if nobody has revoked it; ends when dropped, whatever the host did.
pub(super) struct Apart<'a, 'm, P: Platform, S: Policy> {
    allocator: &'a Allocator<'m, P, S>,
    zone: &'m Zone<P, S>,
}

impl<'a, 'm, P: Platform, S: Policy> Apart<'a, 'm, P, S> {
    /// Sets the pageblock that starts at `start` apart. There is one at most in a zone: the one
    /// compaction that runs there made it.
    pub(super) fn new(
        allocator: &'a Allocator<'m, P, S>,
        zone: &'m Zone<P, S>,
        start: u32,
    ) -> Self {
        zone.with_buddy(|buddy| buddy.set_apart(&allocator.table, start));
        Self { allocator, zone }
    }
}

impl<P: Platform, S: Policy> Drop for Apart<'_, '_, P, S> {
    fn drop(&mut self) {
        self.zone.with_buddy(|buddy| buddy.rejoin(&self.allocator.table));
    }
}

impl<S: Policy> Buddy<S> {
    /// Work: the frames of a pageblock, and its free blocks.
    fn set_apart<P: Platform>(&mut self, table: &FrameTable<'_, P>, start: u32) {
        let before = table.pageblock(start).migrate();
        if self.apart.is_none() && (before.is_requestable() || before == MigrateType::Cma) {
            self.withdraw_block(table, start, before);
            self.apart = Some(start);
        }
    }

    /// Gives the pageblock that is set apart its type back, if there is one. Work: as above.
    pub(crate) fn rejoin<P: Platform>(&mut self, table: &FrameTable<'_, P>) {
        if let Some(start) = self.apart.take() {
            self.restore_block(table, start);
        }
    }
}

//! A zone's memory that is there from the start: whose pageblocks it is in, and which of it is usable.

use super::{FreeMemory, ZoneView};
use crate::boot::map::{Range, RangeKind};
use crate::boot::plan::{Plan, ZoneSpec};
use crate::frame::PageblockWord;
use crate::platform::Platform;
use crate::types::migrate_type::MigrateType;

impl<P: Platform, F: FreeMemory> ZoneView<'_, P, F> {
    /// Makes the pageblocks of the memory that is there the zone's, and calls `free` with the first
    /// index, the index after the last, and the type of each range of it that is usable. Before the
    /// zone is shared. O(pageblocks).
    pub(super) fn take_over(
        &self,
        plan: &Plan,
        spec: &ZoneSpec,
        mut free: impl FnMut(u32, u32, MigrateType),
    ) {
        let (zone, table) = (self.zone, self.table);
        let step = table.pageblock_order().size();
        for range in plan.ranges_of(spec.id).filter(|range| range.kind.is_present()) {
            let Some((start, last)) = self.bounds(&range) else { continue };
            let first_pageblock = table.pageblock_start(start);
            zone.widen_span((first_pageblock, table.pageblock_start(last) + step));
            let migrate = match range.kind {
                RangeKind::Cma => MigrateType::Cma,
                _ => MigrateType::Movable,
            };
            for at in (first_pageblock..=last).step_by(step as usize) {
                // Memory of two usable kinds in one pageblock was made one by the plan; what is
                // reclaimed later takes the type of what is there. A word that says so already
                // stays: it may have a note of what is counted.
                let (word, own) = (table.pageblock(at), PageblockWord::new(spec.id, migrate));
                if word != own && (range.kind.is_usable() || word.zone().is_none()) {
                    table.set_pageblock(at, own);
                }
            }
            if range.kind.is_usable() {
                free(start, last + 1, migrate);
            }
        }
    }

    /// First and last index of a range.
    fn bounds(self, range: &Range) -> Option<(u32, u32)> {
        let start = self.table.index(range.start)?;
        (range.frames() > 0).then(|| (start, start + (range.frames() - 1) as u32))
    }
}

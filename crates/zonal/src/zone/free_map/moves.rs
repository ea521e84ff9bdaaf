//! What becomes of the place that compaction moved a page away from.

use super::mapped::MapView;
use crate::boot::watermark::watermark_ok;
use crate::platform::Platform;
use crate::types::mark::Mark;
use crate::types::migrate_type::MigrateType;
use crate::types::request::Request;
use crate::types::units::Order;
use crate::zone::Vacated;

impl<P: Platform> MapView<'_, P> {
    /// Whether a block of `wanted` is free around `at`; then what was set apart rejoins, and the
    /// request takes the block if it can. Other CPUs may be faster: they have it then.
    pub(super) fn end_of_move(&self, at: u32, wanted: Order, request: Option<&Request>) -> Vacated {
        let formed = self.run_at(at).is_some_and(|(_, order)| order >= wanted);
        if formed {
            self.rejoin();
        }
        // What a caller has isolated meanwhile is no block for others.
        let formed = formed && self.map().type_of(self.pageblock(at)) != MigrateType::Isolate;
        let taken = request.filter(|_| formed).and_then(|request| self.capture(at, request));
        Vacated { formed, taken }
    }

    /// Takes the block around `index` for the request that it was made for, if its pageblock is of
    /// the request's type and the watermark allows it.
    fn capture(&self, index: u32, request: &Request) -> Option<u32> {
        let (wanted, map) = (request.order(), self.map());
        let frame = self.frame(index & !(wanted.size() - 1));
        let (own, migrate) = (request.migrate_type(), map.type_of(self.pageblock(index)));
        if migrate != own && !(migrate == MigrateType::Cma && request.may_use_cma()) {
            return None;
        }
        let (mark, reserve) = (self.zone.mark(Mark::Min), self.zone.reserve(request.limit()));
        let free = self.zone.usable(request);
        let fits = watermark_ok(free, wanted, mark, reserve, request.access(), |_| true);
        if !fits || !map.take_exact_open(frame, wanted) {
            return None;
        }
        // Its other pageblocks may have had other types.
        if migrate == own {
            map.claim_block(frame.pageblock(map.shape()), wanted, own);
        }
        Some(self.hand_out(frame, wanted))
    }
}

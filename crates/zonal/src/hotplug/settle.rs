//! What follows from the sizes of zones, worked out again when they have changed.

use crate::alloc::allocator::Allocator;
use crate::alloc::build::batch;
use crate::platform::Platform;
use crate::policy::zone::Zone;
use crate::policy::{FreeMemory, PcpPolicy, Policy};
use crate::types::units::Order;

impl<'m, P: Platform, S: Policy> Allocator<'m, P, S> {
    /// Makes everything that follows from sizes fit them: reserves everywhere, watermarks in the zones
    /// that are to be `marked`, caches in those that were `resized`.
    pub(super) fn settle(
        &self,
        resized: impl Fn(&Zone<P, S>) -> bool,
        marked: impl Fn(&Zone<P, S>) -> bool,
    ) {
        let shares = self.plan.shares(|at| self.zones.get(at).map_or(0, |zone| zone.managed()));
        let zones = || {
            let marks = |spec, managed| shares.marks(self.plan.config(), spec, managed);
            let both = self.zones.iter().zip(self.plan.zones());
            both.map(move |(zone, spec)| (zone, marks(spec, zone.managed())))
        };
        for (zone, marks) in zones() {
            if marked(zone) {
                zone.set_watermarks(marks.watermarks);
            }
            zone.set_reserve(marks.reserve);
        }
        for (zone, marks) in zones() {
            let resized = resized(zone);
            if resized || (S::Pcp::BY_WATERMARK && marked(zone)) {
                self.size_caches(zone, marks.watermarks.low);
            }
            if !resized {
                continue;
            }
            let managed = zone.managed();
            let reserve = self.plan.high_atomic_limit(managed);
            S::Free::resize(self.view(zone), batch::<S>(self.plan)(managed), reserve);
            let ((start, end), largest) = (zone.span(), Order::MAX.size());
            for group in (start & !(largest - 1)..end).step_by(largest as usize) {
                if !S::Free::shrink_reserve(self.view(zone), group, end) {
                    break;
                }
            }
            // What has come is in front of the scanners.
            zone.compaction.start_over();
        }
    }
}

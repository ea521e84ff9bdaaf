//! Whether compaction can help at all: enough memory, and in pieces too small.

use crate::platform::Platform;
use crate::types::counts::fragmentation_permille;
use crate::types::mark::Mark;
use crate::types::units::Order;
use crate::zone::{FreeMemory, ZoneView};

/// Below this index, in thousandths, a request fails for want of memory rather than because of
/// fragmentation (Linux's `extfrag_threshold`).
pub(super) const EXTFRAG_THRESHOLD: u32 = 500;
impl<P: Platform, F: FreeMemory> ZoneView<'_, P, F> {
    /// Whether the zone has what compaction needs to form a block of `order`: twice its frames
    /// above the watermark, and many small pieces rather than few frames. `keep`: what the
    /// request must leave beside the watermark.
    pub(super) fn is_suitable(&self, order: Order, keep: u64) -> bool {
        let costly = order.is_costly();
        let mark = self.zone.mark(if costly { Mark::Low } else { Mark::Min });
        let needed = mark.saturating_add(keep).saturating_add(2 * order.frames());
        if self.zone.free() <= needed {
            return false;
        }
        let counts = F::counts(*self);
        !costly || fragmentation_permille(&counts, order) > EXTFRAG_THRESHOLD
    }
}

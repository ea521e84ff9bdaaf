//! Finding the block that a frame is in.

use super::state::{FrameKind, FrameState};
use super::table::FrameTable;
use crate::platform::Platform;
use crate::types::units::Order;

impl<P: Platform> FrameTable<'_, P> {
    /// The block that the frame at `index` is in: its first frame and that one's state. `None` for
    /// a frame that is nowhere at this moment, or untouched, or never managed.
    pub(crate) fn locate(&self, index: u32) -> Option<(u32, FrameState)> {
        Order::all().find_map(|order| {
            let head = index & !(order.size() - 1);
            let state = self.state(head);
            let covers = match state.kind() {
                FrameKind::Free | FrameKind::Cached | FrameKind::Allocated => {
                    state.order() >= order
                }
                FrameKind::Inner
                | FrameKind::Isolated
                | FrameKind::Withheld
                | FrameKind::Damaged => false,
            };
            covers.then_some((head, state))
        })
    }
}

//! Blocks that fit where a pageblock has nothing larger, before a larger run of the current one is split: several at once,
//! as a refill of frames.
//!
//! - Source: zonal's own (ADR 122, ADR 123).
//! - Mechanism: a look at the hints finds a pageblock whose largest runs are just what is wanted, and a look at its line takes all
//!   that may stay with the CPU. The next requests for such a block take those.
//! - State: what is not handed out is on a [stack](super::small), with the state cached. In the slot.
//! - Conflicts: a host where blocks do not stay takes none.

use super::StackOutside;
use super::cpu::StackCpu;
use super::frames::FrameStack;
use super::home::tell;
use crate::frame::FrameState;
use crate::platform::{Platform, StayOf};
use crate::trace::Trace;
use crate::types::migrate_type::MigrateType;
use crate::types::units::Order;
use crate::zone::free_map::{Fitting, MapView};

impl StackCpu {
    /// Takes a block that fits elsewhere, where the current pageblock has larger runs at most, and more of them for its stack, which is
    /// empty. Its index, and how many frames the map gave.
    #[inline(always)]
    pub(super) fn take_fitting<P: Platform, T: Trace, const N: usize>(
        &mut self,
        out: &StackOutside<P, N>,
        (view, stay): (MapView<'_, P>, &StayOf<P>),
        (order, migrate, slack): (Order, MigrateType, u64),
    ) -> Option<(u32, u64)> {
        let held = self.stack.current_of(migrate, order)?;
        let own = held.pageblock()?;
        // One that is twice as large the current pageblock may have as well.
        let larger = order.up().is_some_and(|next| !held.may_have_just(next));
        let stack = out.small().stack(order, migrate).inspect(|stack| stack.settle());
        // Of the last frames each CPU takes its share, as in a refill.
        let share = (slack >> order.get()) / u64::from(self.cpus.max(1));
        let most = stack.filter(|stack| stack.has_room()).map_or(0, |_| self.size.small);
        let most = share.min(most.into()) as u32;
        let start = self.start_now(view, stay);
        let fitting = view.map().take_fitting(own, (migrate, order, larger), (start, most));
        let first = fitting.frames().next()?;
        match stack.filter(|_| most > 0) {
            Some(stack) => self.keep_fitting::<P, T, _>(stack, view, (order, migrate), &fitting),
            None => Some(self.taken::<P, T>(view, (order, migrate), slack, first)),
        }
    }

    /// Puts all on their stack, and takes the lowest off.
    #[inline(always)]
    fn keep_fitting<P: Platform, T: Trace, const M: usize>(
        &mut self,
        stack: &FrameStack<P, M>,
        view: MapView<'_, P>,
        (order, migrate): (Order, MigrateType),
        fitting: &Fitting,
    ) -> Option<(u32, u64)> {
        self.stack.keeps_small(migrate);
        let came = (fitting.frames().len() as u64) << order.get();
        for frame in fitting.frames().rev() {
            let index = view.index(frame);
            view.table.set_state(index, FrameState::cached(order));
            let pushed = stack.push(index);
            debug_assert!(pushed, "more came than there is room for");
        }
        self.count(view, -(came as i64));
        tell::<P, T, M>(view, (order, migrate), stack);
        let index = stack.pop()?;
        view.table.set_state(index, FrameState::allocated(order));
        Some((index, came))
    }
}

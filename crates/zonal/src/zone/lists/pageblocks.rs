//! Taking the free frames of one pageblock after the other, for caches that keep to themselves
//! (the idea: `LLFree`'s per-CPU trees, Wrenger 2023).

use super::ListGuard;
use super::clusters::Clusters;
use super::merge::Merge;
use crate::frame::FrameKind;
use crate::platform::Platform;
use crate::types::migrate_type::MigrateType;
use crate::types::units::Order;

impl<P: Platform, M: Merge, C: Clusters> ListGuard<'_, P, M, C> {
    /// A pageblock with memory for `migrate`: the one of the smallest free block, so that
    /// pageblocks in use fill up before another is opened; then untouched memory and CMA for
    /// movable requests. Names a free block in it, which is cut to the pageblock if larger.
    pub(crate) fn next_pageblock(&mut self, migrate: MigrateType) -> Option<u32> {
        let movable = migrate == MigrateType::Movable;
        if self.area.smallest(Order::ZERO, migrate).is_none() && movable {
            self.grow();
        }
        let cma = movable.then_some(MigrateType::Cma);
        [Some(migrate), cma].into_iter().flatten().find_map(|migrate| {
            let order = self.area.smallest(Order::ZERO, migrate)?;
            let index = self.area.first(order, migrate)?;
            if order > self.table.pageblock_order() {
                self.cut_out_pageblock(index);
            }
            Some(index)
        })
    }

    /// Takes the free frames of the pageblock of `index`, as many as `out` has room for, and
    /// leaves them inner; returns how many. They stand in `out` in ascending order. Work: a
    /// state for each frame of the pageblock at most, and the blocks taken.
    pub(crate) fn take_pageblock(&mut self, index: u32, out: &mut [u32]) -> usize {
        self.wait_for_window();
        let migrate = self.table.pageblock(index).migrate();
        let mut at = self.table.pageblock_start(index);
        let end = (at + self.table.pageblock_order().frames() as u32).min(self.table.frames());
        let (mut done, mut looked) = (0, 0);
        while at < end && done < out.len() {
            let state = self.table.state(at);
            looked += 1;
            let mut order = state.order();
            if state.kind() == FrameKind::Free {
                let fits = Order::new((out.len() - done).ilog2() as u8).unwrap_or(Order::MAX);
                self.remove(at, order, migrate);
                if order > fits {
                    self.expand(at, order, fits, migrate);
                    order = fits;
                }
                let frames = out[done..].iter_mut().zip(at..).take(1 << order.get());
                frames.for_each(|(place, frame)| *place = frame);
                done += 1 << order.get();
            }
            at += if state.kind() == FrameKind::Free { order.size() } else { state.step() };
        }
        self.area.count_work(looked);
        done
    }
}

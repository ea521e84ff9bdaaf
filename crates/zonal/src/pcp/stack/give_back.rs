//! What a CPU keeps goes back to the map: all of it in a drain; where its owner leaves, the holes.

use super::StackOutside;
use super::cpu::StackCpu;
use super::home::MapHome;
use crate::frame::Release;
use crate::platform::stay::Stay;
use crate::platform::{Platform, StayOf};
use crate::policy::pcp::{Drainer, ZoneContext};
use crate::zone::free_map::Mapped;

impl StackCpu {
    /// Gives everything back; how many frames.
    #[inline(always)]
    pub(super) fn drain<P: Platform, R: Release, const N: usize>(
        &mut self,
        ctx: &ZoneContext<'_, P, Mapped>,
        out: &StackOutside<P, N>,
        by: Drainer,
    ) -> u64 {
        // What an owner pushed before it was tuned still lies there.
        self.place(out, ctx);
        ctx.view.recount_missed();
        let home = MapHome::<_, R>::new(ctx.view);
        let given = self.stack.drain(out, &home, by);
        let blocks = self.stack.uncounted();
        self.count_blocks(blocks);
        self.uncounted += home.freed(given);
        let kept = self.drain_kept(ctx.view);
        self.fold(ctx.view);
        u64::from(given.unwrap_or(0)) + kept
    }

    /// Its owner leaves: what is on stacks stays for the next one, or for a drain. Holes go back, as of their pageblocks nothing else is
    /// free, and the CPU is none of those any more that keep some. How many frames went.
    #[inline(always)]
    pub(super) fn leave<P: Platform>(&mut self, ctx: &ZoneContext<'_, P, Mapped>) -> u64 {
        match StayOf::<P>::BLOCKS > 0 {
            true => self.leave_holes(ctx.view),
            false => 0,
        }
    }
}

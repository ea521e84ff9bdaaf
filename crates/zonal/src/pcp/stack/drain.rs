//! The drain's side of a CPU's stacks: it stops and shuts them, makes one heavy fence for all, and takes what they hold.

use super::Home;
use super::frames::FrameStack;
use super::passage::UNCOUNTED;
use super::small::{SmallDrain, SmallStacks, Types};
use crate::platform::{FenceUnsupported, Platform};
use crate::zone::free_map::AlreadyFree;

/// A drain of several stacks at once: from [`begin`](Self::begin) on none gives its owner anything, until
/// they are [taken](Self::take).
pub(super) struct Drain<'a, P: Platform, const N: usize, const STACKS: usize> {
    stacks: [&'a FrameStack<P, N>; STACKS],
    /// What their heads were.
    heads: [u32; STACKS],
    /// Those of blocks of a few frames.
    small: SmallDrain<'a, P>,
    /// One of pageblocks that are not counted, and what its head was.
    uncounted: &'a FrameStack<P, UNCOUNTED>,
    uncounted_head: u32,
}

impl<'a, P: Platform, const N: usize, const STACKS: usize> Drain<'a, P, N, STACKS> {
    /// Stops the stacks; for who is in the slot, which an owner may be outside of if it is `owned`.
    ///
    /// # Errors
    /// [`FenceUnsupported`] if the host refuses the fence; then the stacks are as before, but shut.
    pub(super) fn begin(
        stacks: [&'a FrameStack<P, N>; STACKS],
        (small, types): (&'a SmallStacks<P>, Types),
        uncounted: &'a FrameStack<P, UNCOUNTED>,
        owned: bool,
    ) -> Result<Self, FenceUnsupported> {
        let heads = stacks.map(FrameStack::head);
        let uncounted_head = uncounted.head();
        let small = SmallDrain::begin(small, types, owned);
        if owned {
            stacks.iter().for_each(|stack| {
                stack.stop();
                stack.shut();
            });
            uncounted.stop();
            // S-1, with the light one of `pop_owned`; S-3, with the one of `Window::push`.
            if let Err(refused) = P::heavy_fence() {
                stacks.iter().zip(heads).for_each(|(stack, head)| stack.go_on(head));
                small.leave();
                uncounted.go_on(uncounted_head);
                return Err(refused);
            }
        }
        Ok(Self { stacks, heads, small, uncounted, uncounted_head })
    }

    /// Gives what is on the stacks to `home`, and lets them go on; how many frames, and how many pageblocks are
    /// counted by the caller from now on.
    pub(super) fn take(self, home: &impl Home, first: u32) -> (Result<u32, AlreadyFree>, u32) {
        let mut outcome = Ok(0);
        for (stack, head) in self.stacks.iter().zip(self.heads) {
            let top = stack.above(head);
            let given = stack.give(home, first, head..top);
            outcome = given.and_then(|frames| Ok(outcome? + frames));
            stack.go_on(top);
        }
        let given = self.small.take(home, first);
        outcome = given.and_then(|frames| Ok(outcome? + frames));
        let top = self.uncounted.above(self.uncounted_head);
        self.uncounted.go_on(top);
        (outcome, top - self.uncounted_head)
    }
}

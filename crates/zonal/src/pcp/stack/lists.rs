//! Lists of frames onto a stack and off it: what follows each other at once.

use super::StackOutside;
use super::cpu::StackCpu;
use super::frames::{FrameStack, RUN};
use crate::frame::{ALLOCATED, CACHED, PageblockWord};
use crate::platform::{Direction, Platform};
use crate::types::migrate_type::MigrateType;
use crate::types::units::Pfn;
use crate::zone::tables::ZoneTables;

/// Frames that hosts replace together, if they begin at a multiple of it.
const ALIGNED: usize = RUN / 2;

/// Takes up to `frames.len()` frames off a stack and marks them allocated; how many. For who is in the slot.
#[inline(always)]
pub(super) fn pop<P: Platform, const N: usize>(
    stack: &FrameStack<P, N>,
    table: &ZoneTables<'_, P>,
    frames: &mut [Pfn],
) -> usize {
    let mut done = 0;
    stack.pop_bulk(frames.len(), |index, len, direction| {
        let lowest = direction.after(index, len as u32 - 1).min(index);
        table.fill_states(lowest, len, ALLOCATED);
        let (places, first) = (&mut frames[done..done + len], table.pfn(index).get());
        match direction {
            Direction::Up => {
                places.iter_mut().zip(0..).for_each(|(at, up)| *at = Pfn::new(first + up));
            }
            // No wrap: the frames are there.
            Direction::Down => {
                let pfn = |down| Pfn::new(first.wrapping_sub(down));
                places.iter_mut().zip(0..).for_each(|(at, down)| *at = pfn(down));
            }
        }
        done += len;
    })
}

/// What the head of a list is.
pub(super) enum Head {
    /// Frames that follow each other and are kept by now: their number.
    Kept(usize),
    /// As many are to be looked at one by one before the next look, and at least one.
    Single(usize),
}

/// Where a list of frames goes.
pub(super) struct List<'a, 'm, P: Platform, const N: usize> {
    pub(super) cpu: &'a StackCpu,
    pub(super) out: &'a StackOutside<P, N>,
    pub(super) table: &'a ZoneTables<'m, P>,
    pub(super) migrate: MigrateType,
    /// The word of the frames' pageblock.
    pub(super) word: Option<PageblockWord>,
}

impl<P: Platform, const N: usize> List<'_, '_, P, N> {
    /// Keeps [`RUN`] frames from the start of `frames` and marks them cached, if they follow each other, their
    /// pageblock has the word, and its frames stay. For who is in the slot.
    #[inline(always)]
    pub(super) fn push(&self, frames: &[Pfn]) -> Head {
        let Some((run, direction)) = run_of(frames) else { return Head::Single(RUN) };
        let lowest = match direction {
            Direction::Up => run[0],
            Direction::Down => run[RUN - 1],
        };
        let (table, offset) = (self.table, self.table.offset(lowest));
        if !offset.is_multiple_of(ALIGNED) {
            let over = offset % ALIGNED;
            return Head::Single(if direction == Direction::Up { ALIGNED - over } else { over });
        }
        let own = table.same_pageblock(offset, offset + RUN - 1)
            && table.pageblock_at(offset) == self.word;
        // Truncated where it is no index, and then no state is replaced.
        let frame = self.cpu.stack.frame(offset as u32);
        let stays = own && self.out.is_inside(self.migrate, self.cpu.stack.index(frame));
        let stack = self.out.stack(self.migrate).filter(|_| stays);
        let Some(room) = stack.and_then(FrameStack::room_for_run) else {
            return Head::Single(RUN);
        };
        let kept = table.replace_run_at(offset, RUN, ALLOCATED, CACHED);
        if kept == RUN {
            room.push(self.table.offset(run[0]) as u32, direction);
            return Head::Kept(RUN);
        }
        // One of them may not be freed; those before it in the list are freed one by one.
        table.fill_states(offset as u32, kept, ALLOCATED);
        Head::Single(RUN)
    }
}

/// The first [`RUN`] frames of a list, if they follow each other, and which way.
#[inline(always)]
fn run_of(frames: &[Pfn]) -> Option<(&[Pfn; RUN], Direction)> {
    let run = frames.first_chunk::<RUN>()?;
    let (first, last) = (run[0].get(), run[RUN - 1].get());
    let other = |numbers: [u64; RUN]| {
        run.iter().zip(numbers).fold(0, |other, (pfn, number)| other | (pfn.get() ^ number))
    };
    // A look at the last tells most that do not follow each other.
    if last == first.wrapping_add(RUN as u64 - 1) {
        (other(core::array::from_fn(|at| first.wrapping_add(at as u64))) == 0)
            .then_some((run, Direction::Up))
    } else if last == first.wrapping_sub(RUN as u64 - 1) {
        (other(core::array::from_fn(|at| first.wrapping_sub(at as u64))) == 0)
            .then_some((run, Direction::Down))
    } else {
        None
    }
}

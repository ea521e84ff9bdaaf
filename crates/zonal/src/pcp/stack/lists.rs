//! Lists of frames onto a stack and off it: what follows each other at once.

use super::StackOutside;
use super::cpu::StackCpu;
use super::frames::{FrameStack, RUN};
use crate::frame::{ALLOCATED, CACHED, PageblockWord};
use crate::platform::{Direction, Platform};
use crate::types::migrate_type::MigrateType;
use crate::types::units::Pfn;
use crate::zone::tables::ZoneTables;

/// Frames that are worth to be kept together.
const WORTH_IT: usize = 3;

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
    /// Frames that follow each other, for which there is no room: the index of the first.
    NoRoom(u32),
    /// As many are to be looked at one by one before the next look, and at least one.
    Single(usize),
}

/// Where a list of frames goes.
pub(super) struct List<'a, 'm, P: Platform, const N: usize> {
    pub(super) cpu: &'a mut StackCpu,
    pub(super) out: &'a StackOutside<P, N>,
    pub(super) table: &'a ZoneTables<'m, P>,
    pub(super) migrate: MigrateType,
    /// The word of the frames' pageblock.
    pub(super) word: Option<PageblockWord>,
}

/// Frames of the table that follow each other, in one of its aligned pieces of [`RUN`].
struct Run {
    /// Where the first is, and the lowest.
    first: usize,
    lowest: usize,
    len: usize,
    direction: Direction,
}

impl Run {
    /// Of as many frames of a list from an offset on: those that lie in the piece of the first.
    #[inline(always)]
    fn new(first: usize, (len, direction): (usize, Direction)) -> Self {
        match direction {
            Direction::Up => {
                Self { first, lowest: first, len: len.min(RUN - first % RUN), direction }
            }
            Direction::Down => {
                let len = len.min(first % RUN + 1);
                // No wrap: not more than there are in the piece.
                Self { first, lowest: first - (len - 1), len, direction }
            }
        }
    }
}

impl<P: Platform, const N: usize> List<'_, '_, P, N> {
    /// Keeps frames from the start of `frames` and marks them cached, if some follow each other, their pageblock
    /// has the word, and there is a place for them: the stack, or beside those that are gathered. For who is in
    /// the slot.
    #[inline(always)]
    pub(super) fn push(&mut self, frames: &[Pfn]) -> Head {
        let Some(found) = whole_run_of(frames) else { return self.push_part(frames, None) };
        let lowest = match found {
            Direction::Up => frames[0],
            Direction::Down => frames[RUN - 1],
        };
        let offset = self.table.offset(lowest);
        // Truncated where it is no index, and then no state is replaced.
        let frame = self.cpu.stack.frame(offset as u32);
        let stays = self.is_own(offset, RUN) && self.cpu.stack.is_inside(self.migrate, frame);
        let stack = self.out.stack(self.migrate).filter(|_| stays);
        let Some(room) = stack.and_then(FrameStack::room_for_run) else {
            return self.push_part(frames, Some(found));
        };
        if !self.mark(offset, RUN) {
            return Head::Single(RUN);
        }
        room.push(self.table.offset(frames[0]) as u32, found);
        Head::Kept(RUN)
    }

    /// What is no whole piece, or does not lie on the stack in one.
    #[inline]
    fn push_part(&mut self, frames: &[Pfn], found: Option<Direction>) -> Head {
        let found = found.map(|direction| (RUN, direction)).or_else(|| short_run_of(frames));
        let (Some(&first), Some(found)) = (frames.first(), found) else {
            return Head::Single(RUN);
        };
        let run = Run::new(self.table.offset(first), found);
        if run.len < WORTH_IT || !self.is_own(run.lowest, run.len) {
            return Head::Single(run.len);
        }
        let (index, frame) = (run.first as u32, self.cpu.stack.frame(run.lowest as u32));
        let marked;
        if self.cpu.stack.is_inside(self.migrate, frame) {
            let Some(stack) = self.out.stack(self.migrate) else { return Head::Single(RUN) };
            if !stack.has_room_for(run.len as u32) {
                let sheds = stack.sheds(run.len as u32);
                return if sheds { Head::NoRoom(index) } else { Head::Single(RUN) };
            }
            marked = self.mark(run.lowest, run.len);
            if marked {
                stack.push_some(index, run.len as u32, run.direction);
            }
        } else {
            // No word of the map has a part of a pageblock that is smaller.
            let (word, bit) = frame.word();
            let mask = (bit << run.len).wrapping_sub(bit);
            match self.cpu.stack.may_gather(word, mask) {
                Some(true) => {}
                Some(false) => return Head::NoRoom(index),
                None => return Head::Single(RUN),
            }
            marked = self.mark(run.lowest, run.len);
            if marked {
                self.cpu.stack.gather(word, mask);
            }
        }
        if marked { Head::Kept(run.len) } else { Head::Single(run.len) }
    }

    /// Whether frames from an offset on are all of a pageblock that has the word.
    #[inline(always)]
    fn is_own(&self, lowest: usize, len: usize) -> bool {
        self.table.same_pageblock(lowest, lowest.wrapping_add(len - 1))
            && self.table.pageblock_at(lowest) == self.word
    }

    /// Marks frames cached, if all may be freed.
    #[inline(always)]
    fn mark(&self, lowest: usize, len: usize) -> bool {
        let marked = self.table.replace_run_at(lowest, len, ALLOCATED, CACHED);
        if marked != len {
            // Those before it in the list are freed one by one.
            self.table.fill_states(lowest as u32, marked, ALLOCATED);
        }
        marked == len
    }
}

/// Which way the first [`RUN`] frames of a list follow each other, if they do.
#[inline(always)]
fn whole_run_of(frames: &[Pfn]) -> Option<Direction> {
    let run = frames.first_chunk::<RUN>()?;
    let (first, last) = (run[0].get(), run[RUN - 1].get());
    let other = |numbers: [u64; RUN]| {
        run.iter().zip(numbers).fold(0, |other, (pfn, number)| other | (pfn.get() ^ number))
    };
    // A look at the last tells most that do not follow each other.
    if last == first.wrapping_add(RUN as u64 - 1) {
        (other(core::array::from_fn(|at| first.wrapping_add(at as u64))) == 0)
            .then_some(Direction::Up)
    } else if last == first.wrapping_sub(RUN as u64 - 1) {
        (other(core::array::from_fn(|at| first.wrapping_sub(at as u64))) == 0)
            .then_some(Direction::Down)
    } else {
        None
    }
}

/// How many frames of a list follow each other from its start on, [`RUN`] at most, and which way; `None` if the second
/// does not follow the first.
#[inline]
fn short_run_of(frames: &[Pfn]) -> Option<(usize, Direction)> {
    let [first, second, ..] = frames else { return None };
    let (first, second) = (first.get(), second.get());
    let (step, direction) = match second.wrapping_sub(first) {
        1 => (1, Direction::Up),
        u64::MAX => (u64::MAX, Direction::Down),
        _ => return None,
    };
    let mut wanted = first;
    let follows = |pfn: &&Pfn| {
        let follows = pfn.get() == wanted;
        wanted = wanted.wrapping_add(step);
        follows
    };
    Some((frames.iter().take(RUN).take_while(follows).count(), direction))
}

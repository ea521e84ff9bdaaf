//! Lists of frames onto a stack and off it: what follows each other at once.

use super::StackOutside;
use super::cpu::StackCpu;
use super::frames::{FrameStack, RUN, WORD};
use crate::frame::{ALLOCATED, CACHED, PageblockWord};
use crate::platform::stay::Stay;
use crate::platform::{AtomicHalf, Direction, Platform, StayOf};
use crate::types::migrate_type::MigrateType;
use crate::types::units::Pfn;
use crate::zone::tables::ZoneTables;
use core::sync::atomic::Ordering::Release;

/// Frames that are worth to be kept together.
const WORTH_IT: usize = 3;
/// And those that are worth a look of their own.
const LONG: usize = 2 * RUN;

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
    pub(super) cpu: &'a StackCpu,
    pub(super) out: &'a StackOutside<P, N>,
    pub(super) table: &'a ZoneTables<'m, P>,
    pub(super) migrate: MigrateType,
    /// The word of the frames' pageblock.
    pub(super) word: Option<PageblockWord>,
}

/// The places above the newest frame of a stack, all of them for frames.
pub(super) struct Room<'a, P: Platform, const LEN: usize> {
    pub(super) places: &'a [P::Half; LEN],
    pub(super) top: &'a P::Half,
    pub(super) at: u32,
}

impl<P: Platform, const LEN: usize> Room<'_, P, LEN> {
    /// Puts `LEN` frames from `index` on on the stack; for who is in the slot, with no owner outside.
    #[inline(always)]
    pub(super) fn push(self, index: u32, direction: Direction) {
        P::write_run(self.places, index, direction);
        self.top.store(self.at + LEN as u32, Release);
    }
}

/// Frames of the table that follow each other, in one of its aligned pieces of [`RUN`].
struct Run {
    lowest: usize,
    len: usize,
}

impl Run {
    /// Of as many frames of a list from an offset on: those that lie in the piece of the first.
    #[inline(always)]
    fn new(first: usize, len: usize, direction: Direction) -> Self {
        match direction {
            Direction::Up => Self { lowest: first, len: len.min(RUN - first % RUN) },
            Direction::Down => {
                let len = len.min(first % RUN + 1);
                // No wrap: not more than there are in the piece.
                Self { lowest: first - (len - 1), len }
            }
        }
    }
}

impl<P: Platform, const N: usize> List<'_, '_, P, N> {
    /// Keeps frames from the start of `frames` and marks them cached, if some follow each other, their pageblock
    /// has the word, and there is a place for them: the stack, or beside those that are gathered. For who is in
    /// the slot.
    #[inline(always)]
    pub(super) fn push(&self, frames: &[Pfn]) -> Head {
        let Some(&first) = frames.first() else { return Head::Single(1) };
        let offset = self.table.offset(first);
        // Before looks at many of them. Of what follows in the same pageblock it is the same.
        let stack = self.place(offset as u32);
        let Some(stack) = stack.filter(|stack| stack.has_room_for(RUN as u32)) else {
            let sheds = begins(frames).is_some() && self.out.gathered().sheds(RUN as u32);
            if sheds && self.is_own(offset, 1) {
                return Head::NoRoom(offset as u32);
            }
            return self.push_part(frames, None);
        };
        // As many as a word of the map has: a look at their last tells most that are none.
        if StayOf::<P>::COPIES
            && let Some(direction) = run_of::<WORD>(frames)
            && self.push_run::<WORD>(stack, frames, direction)
        {
            return Head::Kept(WORD);
        }
        let long = run_of::<LONG>(frames);
        if let Some(direction) = long
            && self.push_run::<LONG>(stack, frames, direction)
        {
            return Head::Kept(LONG);
        }
        let found = long.or_else(|| run_of::<RUN>(frames));
        if let Some(direction) = found
            && self.push_run::<RUN>(stack, frames, direction)
        {
            return Head::Kept(RUN);
        }
        self.push_part(frames, found)
    }

    /// What a frame is kept on: see [`StackOutside::stack_for`].
    #[inline(always)]
    fn place(&self, index: u32) -> Option<&FrameStack<P, N>> {
        self.out.stack_for(self.migrate, index, self.cpu.stack.order)
    }

    /// Keeps the first `LEN` frames on a stack that has room for [`RUN`] of the first's pageblock, which follow each other, if it can be done at once.
    #[inline(always)]
    fn push_run<const LEN: usize>(
        &self,
        stack: &FrameStack<P, N>,
        frames: &[Pfn],
        direction: Direction,
    ) -> bool {
        let lowest = match direction {
            Direction::Up => frames[0],
            Direction::Down => frames[LEN - 1],
        };
        let offset = self.table.offset(lowest);
        let fits = LEN == RUN || stack.has_room_for(LEN as u32);
        if !fits || !self.is_own(offset, LEN) || !self.mark(offset, LEN) {
            return false;
        }
        // Truncated where it is no index, and then no state was replaced.
        let index = self.table.offset(frames[0]) as u32;
        match stack.room_for_run::<LEN>() {
            Some(room) => room.push(index, direction),
            None => stack.push_some(index, LEN as u32, direction),
        }
        true
    }

    /// What is no whole run, or has no place as one.
    #[inline]
    fn push_part(&self, frames: &[Pfn], found: Option<Direction>) -> Head {
        let (Some(&first), Some(direction)) = (frames.first(), found.or_else(|| begins(frames)))
        else {
            return Head::Single(RUN);
        };
        let first = self.table.offset(first);
        let index = first as u32;
        let len = if found.is_some() { RUN } else { short_run_of(frames, direction) };
        let run = Run::new(first, len, direction);
        if run.len < WORTH_IT || !self.is_own(run.lowest, run.len) {
            return Head::Single(run.len);
        }
        let stack = self.place(index);
        let Some(stack) = stack.filter(|stack| stack.has_room_for(run.len as u32)) else {
            return Head::Single(RUN);
        };
        if !self.mark(run.lowest, run.len) {
            return Head::Single(run.len);
        }
        stack.push_some(index, run.len as u32, direction);
        Head::Kept(run.len)
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

/// Which way the first `LEN` frames of a list follow each other, if they do.
#[inline(always)]
fn run_of<const LEN: usize>(frames: &[Pfn]) -> Option<Direction> {
    let run = frames.first_chunk::<LEN>()?;
    let (first, last) = (run[0].get(), run[LEN - 1].get());
    let other = |numbers: [u64; LEN]| {
        run.iter().zip(numbers).fold(0, |other, (pfn, number)| other | (pfn.get() ^ number))
    };
    // A look at the last tells most that do not follow each other.
    if last == first.wrapping_add(LEN as u64 - 1) {
        (other(core::array::from_fn(|at| first.wrapping_add(at as u64))) == 0)
            .then_some(Direction::Up)
    } else if last == first.wrapping_sub(LEN as u64 - 1) {
        (other(core::array::from_fn(|at| first.wrapping_sub(at as u64))) == 0)
            .then_some(Direction::Down)
    } else {
        None
    }
}

/// Which way the second frame of a list follows the first, if it does.
#[inline]
fn begins(frames: &[Pfn]) -> Option<Direction> {
    let [first, second, ..] = frames else { return None };
    match second.get().wrapping_sub(first.get()) {
        1 => Some(Direction::Up),
        u64::MAX => Some(Direction::Down),
        _ => None,
    }
}

/// How many frames of a list follow each other from its start on, [`RUN`] at most.
#[inline]
fn short_run_of(frames: &[Pfn], direction: Direction) -> usize {
    let step = match direction {
        Direction::Up => 1,
        Direction::Down => u64::MAX,
    };
    let mut wanted = frames.first().map_or(0, |pfn| pfn.get());
    let follows = |pfn: &&Pfn| {
        let follows = pfn.get() == wanted;
        wanted = wanted.wrapping_add(step);
        follows
    };
    frames.iter().take(RUN).take_while(follows).count()
}

//! Frames of a stack on their way into the map: neighbours of a word at once.

use super::Home;
use super::frames::WORD;
use crate::platform::{AtomicHalf, Direction, Platform};
use crate::zone::free_map::{AlreadyFree, Frame, WordIndex};
use core::sync::atomic::Ordering::Relaxed;

/// The frames of one word that were added last, to be given once one of another word comes.
pub(super) struct Words<'h, H> {
    home: &'h H,
    /// One of them.
    last: Frame,
    /// The others of its word, as bits. [`NONE`](Self::NONE): there is no last one either.
    others: u64,
    outcome: Result<(), AlreadyFree>,
}

impl<'h, H: Home> Words<'h, H> {
    /// With this, no frame is in the last one's word.
    const NONE: (Frame, u64) = (Frame(u32::MAX), u64::MAX);

    /// None yet.
    #[inline(always)]
    pub(super) const fn to(home: &'h H) -> Self {
        let (last, others) = Self::NONE;
        Self { home, last, others, outcome: Ok(()) }
    }

    /// Adds one that mostly is of another word than those before and after it.
    #[inline(always)]
    pub(super) fn add_one(&mut self, frame: Frame) {
        let last = core::mem::replace(&mut self.last, frame);
        if last.word().0 == frame.word().0 {
            self.others |= last.word().1;
        } else if self.others == 0 {
            self.outcome = self.home.put_one(last).and(self.outcome);
        } else {
            self.give(last);
        }
    }

    /// Adds `LEN` frames that follow each other, a word's at most.
    #[inline(always)]
    pub(super) fn add_run<const LEN: usize>(&mut self, first: Frame, direction: Direction) {
        const { assert!(LEN <= WORD, "they lie in two words at most") }
        let lowest = match direction {
            Direction::Up => first,
            Direction::Down => Frame(first.0.wrapping_sub(LEN as u32 - 1)),
        };
        let (word, bit) = lowest.word();
        let (all, at) = (u64::MAX >> (WORD - LEN), bit.trailing_zeros());
        // Those that the word has no room for are the lowest of the next.
        let low = (word, all << at);
        let high = (WordIndex(word.0 + 1), if at == 0 { 0 } else { all >> (u64::BITS - at) });
        let parts = if direction == Direction::Up { [low, high] } else { [high, low] };
        for (word, mask) in parts.into_iter().filter(|&(_, mask)| mask != 0) {
            self.add(word, mask);
        }
    }

    /// Adds some of one word.
    #[inline(always)]
    fn add(&mut self, word: WordIndex, mask: u64) {
        if word != self.last.word().0 {
            self.give(self.last);
            self.last = Frame(word.first_frame().0 + mask.trailing_zeros());
        }
        self.others |= mask;
    }

    /// All have been added.
    #[inline(always)]
    pub(super) fn finish(mut self) -> Result<(), AlreadyFree> {
        self.give(self.last);
        self.outcome
    }

    /// Gives `last`, and the others of its word.
    #[inline(never)]
    fn give(&mut self, last: Frame) {
        let others = core::mem::take(&mut self.others);
        if (last, others) != Self::NONE {
            let (word, bit) = last.word();
            self.outcome = self.home.put(word, others | bit).and(self.outcome);
        }
    }
}

/// The first of a word's frames and which way they go, if they follow each other over `places` and go on at the start
/// of `rest`: where a stack's places go round.
#[cold]
#[inline(never)]
pub(super) fn run_across<P: Platform>(
    places: &[P::Half],
    rest: &[P::Half],
) -> Option<(u32, Direction)> {
    let rest = rest.get(..WORD.checked_sub(places.len())?)?;
    let (first, next) = (places.first()?.load(Relaxed), rest.first()?.load(Relaxed));
    let follows = |way: &Direction| way.after(first, places.len() as u32) == next;
    let way = [Direction::Up, Direction::Down].into_iter().find(follows)?;
    (P::is_run(places, way) && P::is_run(rest, way)).then_some((first, way))
}

//! How long a CPU stays in a slot at once: as long as it takes, or for a piece of the work, and then again. A host
//! that masks interrupts in its slots lets them in between.
//!
//! A search for free memory follows hints, and where memory has just run out many of them are stale. In pieces
//! it looks at a fixed number of places, leaves the slot and enters it again, until it has found
//! something or looked everywhere. Nothing of it is held in between: a hint that led nowhere is gone, and what
//! had no hint at all is remembered by the request, which does not look there again.
//!
//! ```
//! use zonal::platform::stay::{InPieces, Stay, Unbounded};
//! assert_eq!((Unbounded::LIST, InPieces::LIST), (usize::MAX, 32), "frames of a list");
//! assert_eq!(size_of::<Unbounded>(), 0, "costs nothing");
//! ```

use crate::types::migrate_type::NR_CACHED_TYPES;
use core::cell::Cell;

/// How long that is: [`Unbounded`] or [`InPieces`]. What costs what is in `stay::cost`.
pub trait Stay: sealed::Sealed + Sized {
    /// Frames of a list that are freed one by one in one stay, at most; it ends as well when frames go on to the zone.
    const LIST: usize;
    /// The most in one stay where some follow each other, which takes less.
    const LIST_FRAMES: usize;
    /// The part of what a full CPU keeps that goes to the zone at once.
    const SPILT: u32;
    /// Blocks of each small order and type that stay with a CPU, at most; 0: one of all together.
    const BLOCKS: u32;
    /// One of something for each small order and type of which blocks stay.
    #[doc(hidden)]
    type Kinds<T: Send + Sync>: AsRef<[T]> + Send + Sync;
    /// Makes them.
    #[doc(hidden)]
    fn kinds<T: Send + Sync>(make: impl FnMut(usize) -> T) -> Self::Kinds<T>;
    /// Whether code for what is done most often stands wherever that is done; otherwise it is there once, and called:
    /// a kernel pays for code that it does not run, in cache and in memory.
    const COPIES: bool;
    /// One that has not begun, and has no bound before it does.
    const NEW: Self;
    /// The next piece of it.
    #[doc(hidden)]
    fn next(&self) -> Self;
    /// That piece is over.
    #[doc(hidden)]
    fn note(&self, piece: &Self);
    /// Whether the last piece was over before the work was.
    #[doc(hidden)]
    fn goes_on(&self) -> bool;
    /// Whether it looks for something of this kind (below 64) now: there is time, and it has not found that there
    /// is none.
    #[doc(hidden)]
    fn looks(&self, kind: usize) -> bool;
    /// Whether it does not, as far as can be told at once.
    #[doc(hidden)]
    fn skips(&self, kind: usize) -> bool;
    /// The same of kinds that follow each other: whether it looks for none of them.
    #[doc(hidden)]
    fn skips_all(&self, first: usize, count: u32) -> bool;
    /// There is none.
    #[doc(hidden)]
    fn found_none(&self, kind: usize);
    /// The piece is over.
    #[doc(hidden)]
    fn is_over(&self) -> bool;
    /// Whether it tries pageblocks of another type, each kind of which is tried once.
    #[doc(hidden)]
    fn tries(&self, kind: usize) -> bool;
    /// Whether any of the kinds that follow each other is still to be tried.
    #[doc(hidden)]
    fn tries_any(&self, first: usize, count: u32) -> bool;
    /// One was tried.
    #[doc(hidden)]
    fn tried(&self, kind: usize);
    /// Whether there is time for something; if not, the piece is over.
    #[doc(hidden)]
    fn affords(&self, cost: u32) -> bool;
    /// That took as long.
    #[doc(hidden)]
    fn spend(&self, cost: u32);
    /// There is something again where there was none, for the next piece to find. Whether this one is over by
    /// that.
    #[doc(hidden)]
    fn ends(&self) -> bool;
}

/// Small orders times types.
pub(crate) const KINDS: usize = SMALL_ORDERS * NR_CACHED_TYPES;
/// The orders from 1 on of which blocks may stay with a CPU.
pub(crate) const SMALL_ORDERS: usize = 3;

/// What something takes that is done in a slot at once, in about a hundred instructions. The longest of each kind is
/// meant, but for those that turn out to be short.
pub(crate) mod cost {
    /// A piece.
    pub(super) const PIECE: u32 = 34;
    /// A look for a hint, from somewhere to the end.
    pub(crate) const LOOK: u32 = 5;
    /// Free frames of a line taken.
    pub(crate) const HARVEST: u32 = 20;
    /// A line with next to nothing.
    pub(crate) const VISIT: u32 = 6;
    /// A block taken from a line, or not.
    pub(crate) const BLOCK: u32 = 18;
    /// A whole pageblock opened and filed.
    pub(crate) const WHOLE: u32 = 24;
    /// A pageblock of another type claimed.
    pub(crate) const CLAIM: u32 = 18;
    /// One that cannot be claimed.
    pub(crate) const NO_CLAIM: u32 = 5;
    /// Coming to other types, past all that is known of the own one: a frame, a block.
    pub(crate) const OTHERS: [u32; 2] = [4, 6];
}

/// What is no kind of hint: that there is nothing of the own type, and of those that it may use as such.
pub(crate) const OWN: usize = 63;

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Unbounded {}
    impl Sealed for super::InPieces {}
}

/// As long as it takes. For hosts whose handlers need not wait.
#[derive(Debug)]
pub struct Unbounded;

impl Stay for Unbounded {
    const LIST: usize = usize::MAX;
    const LIST_FRAMES: usize = usize::MAX;
    const SPILT: u32 = 2;
    const BLOCKS: u32 = 8;
    type Kinds<T: Send + Sync> = [T; KINDS];
    const COPIES: bool = true;
    const NEW: Self = Self;

    #[inline(always)]
    fn kinds<T: Send + Sync>(mut make: impl FnMut(usize) -> T) -> [T; KINDS] {
        // One by one: `from_fn` has it on the stack three times where nothing is optimised.
        [make(0), make(1), make(2), make(3), make(4), make(5), make(6), make(7), make(8)]
    }

    #[inline(always)]
    fn next(&self) -> Self {
        Self
    }
    #[inline(always)]
    fn note(&self, _: &Self) {}
    #[inline(always)]
    fn goes_on(&self) -> bool {
        false
    }
    #[inline(always)]
    fn looks(&self, _: usize) -> bool {
        true
    }
    #[inline(always)]
    fn skips(&self, _: usize) -> bool {
        false
    }
    #[inline(always)]
    fn skips_all(&self, _: usize, _: u32) -> bool {
        false
    }
    #[inline(always)]
    fn tries_any(&self, _: usize, _: u32) -> bool {
        true
    }
    #[inline(always)]
    fn found_none(&self, _: usize) {}
    #[inline(always)]
    fn is_over(&self) -> bool {
        false
    }
    #[inline(always)]
    fn tries(&self, _: usize) -> bool {
        true
    }
    #[inline(always)]
    fn tried(&self, _: usize) {}
    #[inline(always)]
    fn affords(&self, _: u32) -> bool {
        true
    }
    #[inline(always)]
    fn spend(&self, _: u32) {}
    #[inline(always)]
    fn ends(&self) -> bool {
        false
    }
}

/// Piece by piece.
#[derive(Debug)]
pub struct InPieces {
    /// What is left of this piece, or [`NO_BOUND`].
    left: Cell<u32>,
    /// Kinds of which there were none.
    none: Cell<u64>,
    /// And of other types, those that were tried.
    tried: Cell<u64>,
}

const NO_BOUND: u32 = u32::MAX;

impl InPieces {
    #[inline(always)]
    fn is_bound(&self) -> bool {
        self.left.get() != NO_BOUND
    }
}

impl Stay for InPieces {
    const LIST: usize = 32;
    const LIST_FRAMES: usize = 64;
    const SPILT: u32 = 4;
    // A drain gives all of them back in one stay.
    const BLOCKS: u32 = 0;
    type Kinds<T: Send + Sync> = [T; 0];
    const COPIES: bool = false;
    const NEW: Self = Self { left: Cell::new(NO_BOUND), none: Cell::new(0), tried: Cell::new(0) };

    #[inline(always)]
    fn kinds<T: Send + Sync>(_: impl FnMut(usize) -> T) -> [T; 0] {
        []
    }

    #[inline]
    fn next(&self) -> Self {
        let left = Cell::new(cost::PIECE);
        Self { left, none: self.none.clone(), tried: self.tried.clone() }
    }
    #[inline]
    fn note(&self, piece: &Self) {
        self.left.set(piece.left.get());
        self.none.set(piece.none.get());
        self.tried.set(piece.tried.get());
    }
    #[inline]
    fn goes_on(&self) -> bool {
        self.is_over()
    }
    #[inline(never)]
    fn looks(&self, kind: usize) -> bool {
        let looks = !self.skips(kind) && self.affords(cost::LOOK);
        if looks {
            self.spend(cost::LOOK);
        }
        looks
    }
    #[inline(always)]
    fn skips(&self, kind: usize) -> bool {
        self.none.get() >> kind & 1 != 0 || self.is_over()
    }
    #[inline]
    fn skips_all(&self, first: usize, count: u32) -> bool {
        let all = (1 << count) - 1;
        self.is_over() || self.none.get() >> first & all == all
    }
    #[inline]
    fn tries_any(&self, first: usize, count: u32) -> bool {
        let all = (1 << count) - 1;
        !self.is_over() && self.tried.get() >> first & all != all
    }
    #[inline(always)]
    fn is_over(&self) -> bool {
        self.left.get() == 0
    }
    #[inline(never)]
    fn found_none(&self, kind: usize) {
        // Without a bound it looks again each time.
        if self.is_bound() {
            self.none.set(self.none.get() | 1 << kind);
        }
    }
    #[inline]
    fn tries(&self, kind: usize) -> bool {
        self.tried.get() >> kind & 1 == 0 && !self.is_over()
    }
    #[inline]
    fn tried(&self, kind: usize) {
        if self.is_bound() {
            self.tried.set(self.tried.get() | 1 << kind);
        }
    }
    #[inline(never)]
    fn affords(&self, cost: u32) -> bool {
        let affords = self.left.get() >= cost;
        if !affords {
            self.left.set(0);
        }
        affords
    }
    #[inline(never)]
    fn spend(&self, cost: u32) {
        if self.is_bound() {
            self.left.set(self.left.get().saturating_sub(cost));
        }
    }
    #[inline]
    fn ends(&self) -> bool {
        let ends = self.is_bound();
        if ends {
            self.left.set(0);
            self.none.set(0);
        }
        ends
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_ends_and_the_next_goes_on() {
        let stay = InPieces::NEW;
        let pieces = (0..).take_while(|at| *at == 0 || stay.goes_on()).map(|_| {
            let piece = stay.next();
            for kind in 0..30 {
                if piece.looks(kind) {
                    piece.found_none(kind);
                }
            }
            stay.note(&piece);
        });
        assert_eq!(pieces.count(), 5, "6 looks each");
        assert_eq!((stay.none.get(), stay.goes_on()), ((1 << 30) - 1, false));
        let piece = stay.next();
        assert!(piece.ends() && piece.skips(7) && !piece.looks(7), "it is over");
        stay.note(&piece);
        assert!(stay.next().looks(7), "there may be some again");
    }

    #[test]
    fn what_takes_longer_waits_for_the_next_piece() {
        let (stay, mut visits) = (InPieces::NEW, 0);
        let piece = stay.next();
        while piece.looks(0) && piece.affords(cost::HARVEST) {
            piece.spend(cost::VISIT);
            visits += 1;
        }
        assert_eq!((visits, piece.is_over()), (1, true));
        stay.note(&piece);
        assert!(stay.goes_on());
    }

    /// Or it would never be done.
    #[test]
    fn a_piece_that_begins_with_it_gets_it_done() {
        let [frame, block] = cost::OTHERS;
        let own = [cost::HARVEST, cost::BLOCK, cost::WHOLE].map(|cost| (0, cost));
        let others = [(frame, cost::HARVEST), (block, cost::BLOCK)];
        let claims = [frame, block].map(|before| (before, cost::CLAIM));
        for (before, cost) in own.into_iter().chain(others).chain(claims) {
            let stay = InPieces::NEW;
            let piece = stay.next();
            piece.spend(before);
            assert!(piece.looks(0), "{before} {cost}");
            // From the start to the end, and from the first to the start.
            piece.spend(cost::LOOK);
            assert!(piece.affords(cost), "{before} {cost}");
        }
    }

    #[test]
    fn without_a_bound_nothing_is_remembered() {
        let stay = InPieces::NEW;
        for _ in 0..1000 {
            assert!(stay.looks(3) && stay.tries(3) && stay.affords(1000));
            assert!(!stay.skips_all(3, 1) && stay.tries_any(3, 1));
            stay.found_none(3);
            stay.tried(3);
        }
        assert!(!stay.ends() && !stay.goes_on());
    }
}

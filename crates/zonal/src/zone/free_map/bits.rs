//! Aligned runs of set bits in a word.

use super::shape::WORD_ORDER;

/// For each order the bits at which a run may start.
const STARTS: [u64; 7] = [
    u64::MAX,
    0x5555_5555_5555_5555,
    0x1111_1111_1111_1111,
    0x0101_0101_0101_0101,
    0x0001_0001_0001_0001,
    0x0000_0001_0000_0001,
    1,
];

/// The lowest `count` bits, 0 to 64.
#[inline(always)]
pub(super) const fn low_bits(count: u32) -> u64 {
    if count >= 64 { u64::MAX } else { (1 << count) - 1 }
}

/// The lowest `count` set bits of `word`; all if there are no more.
pub(super) const fn lowest_set(word: u64, count: u32) -> u64 {
    if word.count_ones() <= count {
        return word;
    }
    let (mut rest, mut taken) = (word, 0);
    while taken < count && rest != 0 {
        rest &= rest - 1;
        taken += 1;
    }
    word & !rest
}

/// The starts of aligned runs of 2^`order` set bits; `order` 0 to 6.
#[inline]
pub(super) const fn aligned_runs(word: u64, order: u32) -> u64 {
    Runs::of(order).ends(word) >> ((1 << order) - 1)
}

/// Aligned runs of an order, for a look at several words.
#[derive(Clone, Copy)]
pub(super) struct Runs {
    first: u64,
    last: u64,
}

impl Runs {
    /// Of 2^`order` bits; `order` 0 to 6.
    #[inline(always)]
    pub(super) const fn of(order: u32) -> Self {
        let first = STARTS[order as usize];
        Self { first, last: first << ((1 << order) - 1) }
    }

    /// The last bit of each run of set bits.
    #[inline(always)]
    pub(super) const fn ends(self, word: u64) -> u64 {
        // One is added to the bits before the last of each place: where all are set, it arrives in that.
        ((word & !self.last) + self.first) & word & self.last
    }
}

/// The starts of runs of 2^`order` that are in no larger aligned run of the word; `order` 0 to 6.
#[inline]
pub(super) const fn exact_runs(word: u64, order: u32) -> u64 {
    let runs = aligned_runs(word, order);
    if order == WORD_ORDER {
        return runs;
    }
    let larger = aligned_runs(word, order + 1);
    runs & !(larger | larger << (1 << order))
}

/// The orders, 0 to 6, of the maximal aligned runs in `word`: bit k for order k.
#[inline]
pub(super) const fn orders_of(word: u64) -> u16 {
    let (mut orders, mut order) = (0, 0);
    let mut runs = word;
    while order < WORD_ORDER && runs != 0 {
        let pairs = runs & runs >> (1 << order) & STARTS[order as usize + 1];
        if runs & !(pairs | pairs << (1 << order)) != 0 {
            orders |= 1 << order;
        }
        runs = pairs;
        order += 1;
    }
    if runs == 0 { orders } else { orders | 1 << order }
}

/// The order of the maximal aligned run that the set bit `bit` (its number) is in.
#[inline(always)]
pub(super) const fn order_at(word: u64, bit: u32) -> u32 {
    let mut order = 0;
    while order < WORD_ORDER {
        let size = 2 << order;
        let run = low_bits(size) << (bit & !(size - 1));
        if word & run != run {
            break;
        }
        order += 1;
    }
    order
}

/// The same of a word that is not full, without a branch: where words are as frames come at random, no processor
/// foresees how far it goes.
#[inline(always)]
pub(super) const fn order_in_part(word: u64, bit: u32) -> u32 {
    let taken = !word;
    // How the next that are taken, above and below, differ from the bit: a run of order k around it has none of
    // them if that is in bit k or one that is higher.
    let above = (taken & u64::MAX << bit).trailing_zeros() ^ bit;
    let below = match (taken & !(u64::MAX << bit)).checked_ilog2() {
        Some(below) => below ^ bit,
        None => u64::BITS,
    };
    ((if above < below { above } else { below }) | 1).ilog2()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The maximal aligned run around each set bit, found frame by frame.
    fn slow(word: u64, bit: u32) -> u32 {
        (0..=6)
            .rev()
            .find(|&order| {
                let start = bit >> order << order;
                (start..start + (1 << order)).all(|at| word >> at & 1 == 1)
            })
            .expect("the bit itself is set")
    }

    #[test]
    fn runs_are_what_a_look_at_every_bit_finds() {
        let mut word = 0x0123_4567_89ab_cdef_u64;
        for turn in 0..2000 {
            word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(turn | 1);
            // Long runs, too.
            let word = [word, word | word >> 1, word | !word >> 9, !0, 0, !0 << (turn % 64)]
                [turn as usize % 6];
            let mut orders = 0_u16;
            for bit in (0..64).filter(|bit| word >> bit & 1 == 1) {
                let order = slow(word, bit);
                orders |= 1 << order;
                assert_eq!(order_at(word, bit), order, "{word:#x} {bit}");
                let in_part = if word == u64::MAX { order } else { order_in_part(word, bit) };
                assert_eq!(in_part, order, "{word:#x} {bit}");
                let start = bit >> order << order;
                assert_eq!(exact_runs(word, order) >> start & 1, 1, "{word:#x} {bit}");
                assert_eq!(aligned_runs(word, order) >> start & 1, 1, "{word:#x} {bit}");
            }
            assert_eq!(orders_of(word), orders, "{word:#x}");
            let frames: u32 = (0..=6).map(|k| exact_runs(word, k).count_ones() << k).sum();
            assert_eq!(frames, word.count_ones(), "{word:#x}");
        }
    }

    #[test]
    fn lowest_bits() {
        assert_eq!((low_bits(0), low_bits(3), low_bits(64)), (0, 7, u64::MAX));
        assert_eq!((lowest_set(0b1011_0100, 2), lowest_set(0b11, 9)), (0b1_0100, 0b11));
    }
}

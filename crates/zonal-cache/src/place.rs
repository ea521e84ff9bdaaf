//! Where a page is among the lists, in a word of its slot.
//!
//! ```text
//! bit 60 … 56   order of the block that it came in; 0 for none
//! bit 53 … 48   the how manieth it was there
//! bit 43 … 40   order of the piece that begins here
//! bit 34        a piece of a block begins here
//! bit 33        on a list
//! bit 32        in a batch
//! bit 17, 16    what kind of page
//! bit 15 … 0    the list
//! ```
//!
//! A block that came together is on its list as one piece, of which each half may become a piece of its own, and so on. The
//! bits about pieces change with the list's lock held; with it, a page's piece is found in as many steps as halves were made.

use crate::table::{Kind, SlotId};

/// In a batch; in the low bits the list that the page will be on.
pub(crate) const WAITS: u64 = 1 << 32;
/// On the list of that number.
pub(crate) const LISTED: u64 = 1 << 33;
/// The number of the list.
pub(crate) const LIST: u64 = 0xffff;
/// What kind of page, above the number; with it the `code` of a place.
const KIND: u32 = 16;
pub(crate) const CODE: u64 = WAITS - 1;
const FIRST: u64 = 1 << 34;
const ORDER: u32 = 40;
const ORDERS: u64 = 15 << ORDER;
const WITHIN: u32 = 48;
const CAME: u32 = 56;
/// The order of the largest block: a position in one has six bits.
pub(crate) const MOST_ORDER: u32 = 6;

/// The code of a list and a kind.
pub(crate) const fn code(kind: Kind, list: usize) -> u64 {
    (kind as u64) << KIND | list as u64
}

/// The kind of a code, or of a place.
pub(crate) const fn kind_of(code: u64) -> Kind {
    Kind::of_number((code & CODE) >> KIND)
}

/// A page that is on a list by itself.
pub(crate) const fn single(code: u64) -> u64 {
    LISTED | code
}

/// The page of a block at a position in it.
pub(crate) const fn in_block(code: u64, order: u32, within: u32) -> u64 {
    let first = if within == 0 { FIRST | (order as u64) << ORDER } else { 0 };
    LISTED | code | first | (within as u64) << WITHIN | (order as u64) << CAME
}

/// The same place, where a piece of that order begins from now on.
pub(crate) const fn with_piece(place: u64, order: u32) -> u64 {
    place & !ORDERS | FIRST | (order as u64) << ORDER
}

/// The order of the piece that begins at a place; 0 for a page that is listed by itself.
pub(crate) const fn order_of(place: u64) -> u32 {
    ((place & ORDERS) >> ORDER) as u32
}

/// The piece of the page at `id`, by the places of these slots: its first slot, and its order.
pub(crate) fn piece_of(id: SlotId, place: impl Fn(SlotId) -> u64) -> (SlotId, u32) {
    let own = place(id);
    let (came, within) = ((own >> CAME) as u32 & 7, (own >> WITHIN) as u32 & 63);
    // Pieces begin at multiples of their size. The first that is met coming from the page is its own: up to there all are
    // pages of it.
    for order in 0..=came {
        let begin = within & !((1 << order) - 1);
        let first = SlotId(id.0 - (within - begin));
        let seen = place(first);
        if seen & FIRST != 0 && begin + (1 << order_of(seen)) > within {
            return (first, order_of(seen));
        }
    }
    // In no block.
    (id, 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_place_says_what_it_was_made_of() {
        let code = code(Kind::Anon, 17);
        assert_eq!((kind_of(code), code & LIST), (Kind::Anon, 17));
        assert_eq!(single(code) & CODE, code);
        assert_eq!(in_block(code, MOST_ORDER, 63) & CODE, code);
        assert_eq!(order_of(in_block(code, MOST_ORDER, 0)), MOST_ORDER);
        assert_eq!(order_of(with_piece(in_block(code, 5, 16), 4)), 4);
        assert_eq!(order_of(single(code)), 0);
    }

    proptest! {
        /// Pieces that are halved at random, between others that came before and behind.
        #[test]
        fn a_page_finds_its_piece(
            order in 1..=MOST_ORDER,
            halves in prop::collection::vec(any::<u32>(), 0..40),
        ) {
            let (code, before) = (code(Kind::File, 0), 8_u32);
            let pages = 1_u32 << order;
            let mut places: alloc::vec::Vec<u64> = (0..8).map(|at| in_block(code, 3, at)).collect();
            places.extend((0..pages).map(|at| in_block(code, order, at)));
            places.extend((0..8).map(|at| in_block(code, 3, at)));
            let mut pieces = alloc::vec![(0, order)];
            for half in halves {
                let at = half as usize % pieces.len();
                let (begin, order) = pieces[at];
                if order > 0 {
                    let second = begin + (1 << (order - 1));
                    pieces[at].1 -= 1;
                    pieces.push((second, order - 1));
                    for begin in [begin, second] {
                        let place = &mut places[(before + begin) as usize];
                        *place = with_piece(*place, order - 1);
                    }
                }
            }
            for (begin, order) in pieces {
                for at in begin..begin + (1 << order) {
                    let found = piece_of(SlotId(before + at), |id| places[id.0 as usize]);
                    prop_assert_eq!(found, (SlotId(before + begin), order));
                }
            }
        }
    }
}

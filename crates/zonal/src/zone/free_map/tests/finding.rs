//! Finding a pageblock by its hint.

use super::*;

/// A search finds the first bit from a place on, whatever levels there are, and lowers hints above that are stale.
#[test]
fn a_search_finds_what_a_look_at_every_bit_does() {
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = move |below: u32| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random % u64::from(below)) as u32
    };
    // One, two and three levels; a section that is not full; one, and two words above.
    for pageblocks in [100, 128, 129, 192, 200, 4096, 4100, 8192, 8193, 20_000] {
        let map = map(3, pageblocks);
        let kind = Kind::Run(Movable, 2);
        let mut set = vec![false; pageblocks as usize];
        for turn in 0..2000 {
            // Few at times, and none.
            let at = next(pageblocks);
            if turn % 200 < 60 {
                map.set(kind, Pageblock(at));
                set[at as usize] = true;
            } else if let Some(at) = map.find(kind, Start::new(Pageblock(at), 0)) {
                map.clear(kind, at);
                set[at.0 as usize] = false;
            }
            let from = next(pageblocks + 1);
            let wanted = (from..pageblocks).find(|&at| set[at as usize]).map(Pageblock);
            assert_eq!(map.find_from(kind, from), wanted, "{pageblocks} from {from}");
            assert_eq!(map.find_from(Kind::Run(Movable, 1), from), None, "another kind");
        }
    }
}

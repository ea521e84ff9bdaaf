//! Pageblocks of one type for requests of another, and runs of several.

use super::*;

/// Pageblocks of which every second frame is free.
fn crumbs(pageblocks: u32) -> FreeMap<'static, SingleThread> {
    let map = map(6, pageblocks);
    for word in 0..pageblocks {
        map.free_frames(WordIndex(word), 0x5555_5555_5555_5555).expect("nothing is free yet");
    }
    map
}

#[test]
fn a_claim_is_of_what_serves() {
    let (map, start) = (crumbs(4), Start::default());
    let types = || (0..4).map(|pageblock| map.type_of(Pageblock(pageblock))).collect::<Vec<_>>();
    for least in 1..6 {
        assert_eq!(map.claim_other(Movable, Unmovable, least, start), None);
        assert_eq!(map.take_other(Unmovable, order(least), start), None);
        assert_eq!(types(), [Movable; 4]);
    }
    assert_eq!(map.claim_other(Movable, Unmovable, 0, start), Some((Pageblock(0), Order::ZERO)));
    assert_eq!(types(), [Unmovable, Movable, Movable, Movable]);
    map.free_frames(WordIndex(2), 2).expect("it is held");
    assert_eq!(map.claim_other(Movable, Reclaimable, 1, start), Some((Pageblock(2), order(1))));
}

/// Not by who had the pageblock when it was: it is in no count.
#[test]
fn what_has_left_the_reserve_is_not_back_by_a_claim() {
    let map = map(6, 4);
    map.set_type(Pageblock(1), HighAtomic);
    assert!(map.claim_owned(Pageblock(1), HighAtomic));
    map.set_type(Pageblock(1), Movable);
    assert!(!map.claim_owned(Pageblock(1), HighAtomic));
    assert_eq!(map.type_of(Pageblock(1)), Movable);
    assert!(map.claim_owned(Pageblock(1), Unmovable));
}

/// Where a largest block is two sections it is two from an even one on, wherever the search begins.
#[test]
fn runs_of_two_sections() {
    for sections in 2..8 {
        for first in 0..sections {
            let map = map(3, sections * 64);
            for pageblock in (0..sections * 64).map(Pageblock) {
                map.free_block(pageblock.first_frame(map.shape()), order(3)).expect("not free yet");
            }
            let start = Start::new(Pageblock(first * 64), 0);
            let mut found = Vec::new();
            while let Some(frame) = map.take_own(Movable, Order::MAX, start, None) {
                assert_eq!(frame.0 % 1024, 0, "{sections} sections, from {first}");
                found.push(frame);
            }
            assert_eq!(found.len() as u32, sections / 2, "{sections} sections, from {first}");
        }
    }
}

/// A block is a request's only if all of its pageblocks are for requests once it was taken.
#[test]
fn what_was_isolated_goes_back() {
    for (p, wanted) in [(3, 0), (3, 10), (6, 3), (6, 6), (6, 7), (9, 8), (9, 10)] {
        let pageblocks = 128;
        let map = map(p, pageblocks);
        for at in (0..pageblocks).map(Pageblock) {
            map.free_block(at.first_frame(map.shape()), order(p)).expect("not free yet");
        }
        let free = || (0..pageblocks).map(|at| map.free_in(Pageblock(at))).sum::<u32>();
        let (before, last) = (free(), Frame((1 << wanted) - 1).pageblock(map.shape()));
        for shut in [Isolate, HighAtomic] {
            map.set_type(last, shut);
            assert!(
                !map.take_exact_open(Frame(0), order(wanted)),
                "order {wanted} of {p}, {shut:?}"
            );
            assert_eq!(free(), before);
        }
        for open in [Movable, Cma] {
            map.set_type(last, open);
            assert!(
                map.take_exact_open(Frame(0), order(wanted)),
                "order {wanted} of {p}, {open:?}"
            );
            assert_eq!(free(), before - (1 << wanted));
            map.free_block(Frame(0), order(wanted)).expect("it is held");
        }
    }
}

/// Until it is known that they stay, a last look at either section sees that frames are in a hand (M-1).
#[test]
fn what_may_go_back_counts_in_both_sections() {
    let map = map(3, 128);
    for at in (0..128).map(Pageblock) {
        map.free_block(at.first_frame(map.shape()), order(3)).expect("not free yet");
    }
    let begun = || [0, 1].map(|section| map.quiet(section).expect("no call is under way") >> 32);
    for shut in [0, 127] {
        map.set_type(Pageblock(shut), Isolate);
        let before = begun();
        assert!(!map.take_exact_open(Frame(0), order(10)));
        let more = [0, 1].map(|section| begun()[section] - before[section]);
        assert!(more.into_iter().all(|calls| calls > 1), "not around the look: {more:?}");
        map.set_type(Pageblock(shut), Movable);
    }
}

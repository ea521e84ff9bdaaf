//! What is taken before a larger run of the current pageblock is split.

use super::*;

const SIZE: u32 = 64;

/// Frees runs of some orders in a pageblock, each at a multiple of 16 frames from the first on.
fn with_runs(map: &FreeMap<'static, SingleThread>, pageblock: u32, orders: &[u32]) {
    for (&run, at) in orders.iter().zip((0..).step_by(16)) {
        map.free_block(Frame(pageblock * SIZE + at), order(run)).expect("it was not free");
    }
}

/// A fit in a map of 200 pageblocks, looked for from one on and up to another.
fn fit(map: &FreeMap<'static, SingleThread>, wanted: u32, from: u32, own: u32) -> Option<u32> {
    let start = Start::new(Pageblock(from), 0);
    map.take_fitting(Pageblock(own), (Movable, order(wanted)), start).map(|frame| frame.0)
}

#[test]
fn the_first_that_has_nothing_larger() {
    let map = map(6, 200);
    for (pageblock, orders) in
        [(3, &[1, 3][..]), (70, &[2, 4]), (71, &[0, 1]), (72, &[1, 1]), (190, &[2, 0, 1])]
    {
        with_runs(&map, pageblock, orders);
    }
    assert_eq!(fit(&map, 1, 0, 71), None, "before the current one");
    assert_eq!(fit(&map, 1, 0, 73), Some(71 * SIZE + 16), "3 has a larger run");
    assert_eq!(fit(&map, 1, 0, 73), Some(72 * SIZE));
    assert_eq!(fit(&map, 1, 0, 73), Some(72 * SIZE + 16));
    assert_eq!(fit(&map, 1, 0, 199), None, "190 has a larger run");
    assert_eq!(fit(&map, 2, 0, 199), Some(190 * SIZE));
    assert_eq!(fit(&map, 1, 0, 199), Some(190 * SIZE + 32), "and now no larger one");
    assert_eq!(fit(&map, 3, 0, 199), Some(3 * SIZE + 16), "the largest there is");
    assert_eq!(map.free_in(Pageblock(71)), 1, "of order 0");
}

#[test]
fn around_the_end() {
    let map = map(6, 200);
    with_runs(&map, 5, &[2]);
    with_runs(&map, 150, &[2]);
    assert_eq!(fit(&map, 2, 100, 4), Some(150 * SIZE));
    assert_eq!(fit(&map, 2, 100, 4), None, "5 comes after it");
    assert_eq!(fit(&map, 2, 100, 6), Some(5 * SIZE));
    with_runs(&map, 99, &[2]);
    assert_eq!(fit(&map, 2, 100, 99), None);
    let part = Start::new(Pageblock(64), 0).with_part(1);
    with_runs(&map, 130, &[2]);
    let in_part = || map.take_fitting(Pageblock(150), (Movable, order(2)), part);
    assert_eq!(in_part(), Some(Frame(99 * SIZE)));
    assert_eq!(in_part(), None, "130 is not of its part");
}

/// Hints that lead to nothing are lowered, and do not come back.
#[test]
fn stale_hints_are_lowered() {
    let map = map(6, 200);
    for pageblock in [10, 80, 81] {
        map.set(Kind::Run(Movable, 2), Pageblock(pageblock));
    }
    with_runs(&map, 82, &[2]);
    assert_eq!(fit(&map, 2, 0, 100), Some(82 * SIZE));
    assert!(map.find(Kind::Run(Movable, 2), Start::default()).is_none());
}

/// Other types, and orders that have no hints.
#[test]
fn what_has_no_hints() {
    let map = map(6, 200);
    with_runs(&map, 10, &[2]);
    for migrate in [Unmovable, Reclaimable, HighAtomic, Isolate] {
        let taken = map.take_fitting(Pageblock(99), (migrate, order(2)), Start::default());
        assert_eq!(taken, None);
    }
    assert_eq!(fit(&map, 6, 0, 99), None, "a pageblock");
    assert_eq!(fit(&map, 9, 0, 99), None);
    assert_eq!(fit(&map, 2, 0, 99), Some(10 * SIZE));
}

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
    let taken = map.take_fitting(Pageblock(own), (Movable, order(wanted), true), (start, 1));
    taken.frames().next().map(|frame| frame.0)
}

#[test]
fn the_first_whose_largest_run_fits() {
    let map = map(6, 200);
    for (pageblock, orders) in
        [(3, &[1, 3][..]), (70, &[2, 4]), (71, &[0, 1]), (72, &[1, 1]), (190, &[3, 0, 1])]
    {
        with_runs(&map, pageblock, orders);
    }
    assert_eq!(fit(&map, 1, 0, 71), None, "before the current one");
    assert_eq!(fit(&map, 1, 0, 73), Some(71 * SIZE + 16), "3 has a larger run");
    assert_eq!(fit(&map, 1, 0, 73), Some(72 * SIZE));
    assert_eq!(fit(&map, 1, 0, 73), Some(72 * SIZE + 16));
    assert_eq!(fit(&map, 1, 0, 199), None, "3 and 190 have runs two orders larger");
    assert_eq!(fit(&map, 3, 0, 199), Some(3 * SIZE + 16), "the largest there is");
    assert_eq!(fit(&map, 1, 0, 199), Some(3 * SIZE), "and now no larger one");
    assert_eq!(map.free_in(Pageblock(71)), 1, "of order 0");
}

/// Of a run that is twice as large, where none is just as large: the rest is what comes next.
#[test]
fn half_of_the_next_larger() {
    let map = map(6, 200);
    with_runs(&map, 20, &[2, 1, 2]);
    with_runs(&map, 30, &[1]);
    assert_eq!(fit(&map, 1, 0, 199), Some(30 * SIZE), "just as large");
    assert_eq!(fit(&map, 1, 0, 199), Some(20 * SIZE + 16), "the same beside larger ones");
    for at in [0, 2, 32, 34] {
        assert_eq!(fit(&map, 1, 0, 199), Some(20 * SIZE + at), "the rest before another");
    }
    assert_eq!(fit(&map, 1, 0, 199), None);
    with_runs(&map, 40, &[5]);
    assert_eq!(fit(&map, 4, 0, 199), Some(40 * SIZE));
    assert_eq!(fit(&map, 5, 0, 199), None);
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
    let in_part = || {
        let taken = map.take_fitting(Pageblock(150), (Movable, order(2), false), (part, 1));
        taken.frames().next()
    };
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
        let wanted = (migrate, order(2), true);
        let taken = map.take_fitting(Pageblock(99), wanted, (Start::default(), 1));
        assert_eq!(taken.frames().len(), 0);
    }
    assert_eq!(fit(&map, 6, 0, 99), None, "a pageblock");
    assert_eq!(fit(&map, 9, 0, 99), None);
    assert_eq!(fit(&map, 2, 0, 99), Some(10 * SIZE));
}

/// As many at once as are wanted, of one pageblock; the hint goes with the last.
#[test]
fn several_at_once() {
    let map = map(9, 40);
    let free = |pageblock: u32, at, k| {
        let frame = Frame(pageblock * 512 + at);
        map.free_block(frame, order(k)).expect("it was not free");
    };
    for at in [8, 24, 60, 200, 204, 500] {
        free(3, at, 2);
    }
    free(3, 100, 0);
    free(4, 8, 2);
    let fit = |most| {
        let wanted = (Movable, order(2), false);
        let taken = map.take_fitting(Pageblock(39), wanted, (Start::default(), most));
        taken.frames().map(|frame| frame.0).collect::<Vec<u32>>()
    };
    let of = |pageblock: u32, all: &[u32]| -> Vec<u32> {
        all.iter().map(|at| pageblock * 512 + at).collect()
    };
    assert_eq!(fit(2), of(4, &[8]), "3 has a run of order 3");
    free(4, 8, 2);
    assert!(map.take_exact(Frame(3 * 512 + 204), order(2)));
    map.settle(Pageblock(3));
    map.clear(Kind::Run(Movable, 3), Pageblock(3));
    assert_eq!(fit(2), of(3, &[8, 24]));
    assert_eq!(fit(1), of(3, &[60]));
    assert_eq!(fit(8), of(3, &[200, 500]));
    assert_eq!(fit(8), of(4, &[8]));
    assert_eq!(fit(8), [0; 0]);
    assert_eq!((map.free_in(Pageblock(3)), map.free_in(Pageblock(4))), (1, 0));
    assert!(map.find(Kind::Run(Movable, 2), Start::default()).is_none());
    assert_eq!(map.find(Kind::Free(Movable), Start::default()), Some(Pageblock(3)));
}

/// Of a pageblock that has another type since the look at its hints nothing is kept.
#[test]
fn what_is_of_another_type_goes_back() {
    let map = map(6, 200);
    with_runs(&map, 10, &[2, 2]);
    map.set(Kind::Run(Unmovable, 2), Pageblock(10));
    let wanted = (Unmovable, order(2), true);
    let taken = map.take_fitting(Pageblock(99), wanted, (Start::default(), 8));
    assert_eq!((taken.frames().len(), map.free_in(Pageblock(10))), (0, 8));
    assert!(map.find(Kind::Run(Unmovable, 2), Start::default()).is_none(), "filed where it is");
    assert_eq!(fit(&map, 2, 0, 99), Some(10 * SIZE));
}

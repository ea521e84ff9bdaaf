//! In which order a refill takes what is free.

use super::*;

/// Frames that a refill of `want` takes, in their order.
fn refilled(map: &FreeMap<'_, SingleThread>, want: u32) -> Vec<u32> {
    refilled_from(map, Start::default(), want)
}

fn refilled_from(map: &FreeMap<'_, SingleThread>, start: Start, want: u32) -> Vec<u32> {
    let mut frames = vec![];
    map.refill(Movable, want, start, None, &mut |word: WordIndex, bits: u64| {
        let bits = (0..64).filter(|bit| bits >> bit & 1 == 1);
        frames.extend(bits.map(|bit| word.first_frame().0 + bit));
    });
    frames
}

/// Where the nearest lines have a frame each, a refill visits 32 of them, then goes to those that have runs, and
/// comes back for the others before it opens a whole pageblock.
#[test]
fn a_refill_goes_from_crumbs_to_runs_and_back() {
    let map = map(6, 60);
    let free = |frame| map.free_block(Frame(frame), Order::ZERO).expect("it was not free");
    let crumb = |pageblock: u32| pageblock * 64 + 7;
    (0..40).map(crumb).for_each(free);
    for (first, k) in [(41 * 64, 4), (41 * 64 + 16, 2), (50 * 64, 1), (55 * 64, 6)] {
        map.free_block(Frame(first), order(k)).expect("it was not free");
    }
    let (near, far) = ((0..32).map(crumb), (32..40).map(crumb));
    // Pairs before larger runs, and the twenty are of orders 4 and 2.
    let runs = (50 * 64..50 * 64 + 2).chain(41 * 64..41 * 64 + 20);
    let wanted: Vec<u32> = near.chain(runs).chain(far).chain(55 * 64..55 * 64 + 8).collect();
    assert_eq!(refilled(&map, 70), wanted);
}

/// Pageblocks without runs come first, up to the first that may become whole; then all in their order.
#[test]
fn a_refill_leaves_runs_to_blocks() {
    let map = map(9, 40);
    let free = |pageblock: u32, at, k| {
        let frame = Frame(pageblock * 512 + at);
        map.free_block(frame, order(k)).expect("it was not free");
    };
    let some = |pageblock: u32| [1, 9, 33, 60].map(|at| pageblock * 512 + at);
    for pageblock in [2, 4, 6, 20] {
        some(pageblock).into_iter().for_each(|frame| free(0, frame, 0));
    }
    free(3, 64, 2);
    free(5, 2, 1);
    free(7, 128, 6);
    let (pair, four) = (5 * 512 + 2..5 * 512 + 4, 3 * 512 + 64..3 * 512 + 68);
    let crumbs = || some(2).into_iter().chain(some(4)).chain(pair.clone()).chain(some(6));
    let large = 7 * 512 + 128..7 * 512 + 192;
    let wanted: Vec<u32> = crumbs().chain(four).chain(large).chain(some(20)).collect();
    assert_eq!(refilled(&map, 100), wanted, "20 lies behind the first that may become whole");

    wanted.iter().for_each(|&frame| free(0, frame, 0));
    let start = Start::new(Pageblock(5), 0);
    let crumbs = pair.chain(some(6));
    assert_eq!(refilled_from(&map, start, 6), crumbs.collect::<Vec<u32>>(), "from the start on");
    let next = refilled_from(&map, start, 6);
    assert_eq!(next.first(), Some(&(7 * 512 + 128)), "not 2 and 4, which come after it");
}

/// The pageblock that a CPU has opened ends its search for crumbs, as for all else.
#[test]
fn crumbs_behind_the_opened_pageblock_wait() {
    let map = map(6, 60);
    let free = |frame| map.free_block(Frame(frame), Order::ZERO).expect("it was not free");
    map.free_block(Frame(10 * 64), order(6)).expect("it was not free");
    let mut opened = Current::default();
    let mut refill = |want| {
        let mut words = vec![];
        let each = &mut |word: WordIndex, _| words.push(word.0);
        map.refill(Movable, want, Start::default(), Some(&mut opened), each);
        words
    };
    assert_eq!(refill(8), [10], "a whole one, in part");
    [5 * 64, 20 * 64].into_iter().for_each(free);
    assert_eq!(refill(8), [5, 10]);
    assert_eq!(refill(60), [10, 20]);
}

/// Lines that bring four frames each are taken in their order, however many they are.
#[test]
fn a_refill_takes_lines_in_their_order_that_have_some() {
    let map = map(6, 60);
    let free = |frame| map.free_block(Frame(frame), Order::ZERO).expect("it was not free");
    let some = |pageblock: u32| [1, 9, 33, 60].map(|at| pageblock * 64 + at);
    (0..40).flat_map(some).for_each(free);
    (50 * 64..50 * 64 + 16).for_each(free);
    let wanted: Vec<u32> = (0..40).flat_map(some).chain(50 * 64..50 * 64 + 4).collect();
    assert_eq!(refilled(&map, 164), wanted);
}

/// A CPU with a part of its own leaves what is in use elsewhere alone while there is a whole pageblock, and takes it
/// where there is none.
#[test]
fn a_part_comes_before_whole_pageblocks_and_they_before_the_rest() {
    let map = map(6, 200);
    let start = Start::new(Pageblock(64), 1).with_part(1);
    let free = |frame, k| map.free_block(Frame(frame), order(k)).expect("it was not free");
    let [before, inside, behind] = [63, 127, 128].map(|pageblock| pageblock * 64 + 9);
    [before, inside, behind].into_iter().for_each(|frame| free(frame, 0));
    free(150 * 64, 6);
    let whole = 150 * 64..151 * 64;
    let wanted: Vec<u32> = [inside].into_iter().chain(whole).chain([behind, before]).collect();
    assert_eq!(refilled_from(&map, start, 100), wanted);
    wanted.iter().for_each(|&frame| free(frame, 0));

    let two = || map.take_own(Movable, order(1), start, None).map(|frame| frame.0);
    [63 * 64, 126 * 64, 131 * 64].into_iter().for_each(|frame| free(frame, 1));
    assert_eq!(two(), Some(126 * 64), "inside");
    assert_eq!(two(), Some(150 * 64), "a whole one");
    free(150 * 64, 1);
    assert_eq!(map.take_own(Movable, order(6), start, None), Some(Frame(150 * 64)), "whole again");
    assert_eq!([two(), two(), two()], [Some(131 * 64), Some(63 * 64), None]);
}

/// Whole pageblocks that were never touched are opened in the part first.
#[test]
fn a_part_opens_untouched_pageblocks_of_its_own() {
    let map = map(6, 200);
    for at in [5, 70, 71] {
        map.put_untouched(Pageblock(at)).expect("it is not free");
    }
    let start = Start::new(Pageblock(64), 1);
    assert_eq!(refilled_from(&map, start.with_part(1), 64).first(), Some(&(70 * 64)));
    assert_eq!(refilled_from(&map, start, 64).first(), Some(&(5 * 64)), "the map's first");
}

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

/// Where the nearest lines have a frame each, a refill visits 16 of them, then goes to those that have runs, and
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
    let (near, far) = ((0..16).map(crumb), (16..40).map(crumb));
    // Pairs before larger runs, and the twenty are of orders 4 and 2.
    let runs = (50 * 64..50 * 64 + 2).chain(41 * 64..41 * 64 + 20);
    let wanted: Vec<u32> = near.chain(runs).chain(far).chain(55 * 64..55 * 64 + 8).collect();
    assert_eq!(refilled(&map, 70), wanted);
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

//! Current pageblocks.

use super::*;

#[test]
fn current_pageblocks() {
    let map = map(6, 4);
    for pageblock in 0..2 {
        map.free_block(Frame(pageblock * 64), order(5)).expect("free it");
    }
    let (start, two) = (Start::default(), order(1));
    let (mut one, mut other) = (Current::default(), Current::default());
    let take = |held: &mut Current| {
        map.take_block(Movable, two, start, Some(held)).expect("there is room").0 / 64
    };
    assert_eq!([take(&mut one), take(&mut other), take(&mut one)], [0, 1, 0]);
    assert_eq!(map.take_block(Movable, two, start, None), None, "both are held");
    assert!(matches!(map.last_look(|_| true, two), LastLook::Found(Pageblock(0))));
    map.release(&mut one);
    map.release(&mut other);
    assert!(map.take_block(Movable, order(4), start, Some(&mut one)).is_some());
}

/// What is remembered of a current pageblock leads to the smallest run that will do, whatever others
/// did there meanwhile.
#[test]
fn current_pageblocks_are_remembered() {
    let map = map(8, 2);
    let (start, mut held) = (Start::default(), Current::default());
    map.free_block(Frame(64), order(3)).expect("free it");
    map.free_block(Frame(130), order(1)).expect("free it");
    map.free_block(Frame(192), order(6)).expect("free it");
    assert_eq!(map.take_beside(&mut held, Movable, order(0)), None, "there is no current one");
    let mut take =
        |number| map.take_block(Movable, order(number), start, Some(&mut held)).unwrap().0;
    assert_eq!(
        [take(0), take(0), take(0), take(1)],
        [130, 131, 64, 66],
        "the smallest that will do"
    );
    assert_eq!([take(3), take(4), take(0), take(5)], [192, 208, 65, 224]);
    let mut beside =
        |number| map.take_beside(&mut held, Movable, order(number)).map(|frame| frame.0);
    assert_eq!([beside(3), beside(2), beside(2), beside(0)], [Some(200), Some(68), None, None]);
    map.free_block(Frame(224), order(5)).expect("it was held");
    assert_eq!(beside(5), None, "it was not told");
    map.put_beside(&mut held, Frame(224));
    let mut beside =
        |number| map.take_beside(&mut held, Movable, order(number)).map(|frame| frame.0);
    assert_eq!(map.take_block(Movable, order(4), start, None).map(|frame| frame.0), Some(224));
    assert_eq!([beside(5), beside(4), beside(4)], [None, Some(240), None], "half of it is gone");
}

//! Stacks over a small map.

extern crate std;

use super::*;
use crate::MigrateType::{Cma, HighAtomic, Isolate, Movable, Reclaimable, Unmovable};
use crate::Order;
use crate::platform::single::SingleThread;
use crate::zone::free_map::{MapMemory, MapTables};
use core::sync::atomic::AtomicU64;
use std::boxed::Box;
use std::vec::Vec;

type Map = FreeMap<'static, SingleThread>;

fn order(number: u8) -> Order {
    Order::new(number).expect("an order")
}

/// A map of movable pageblocks of 64 frames, all free.
fn map(pageblocks: u32) -> Map {
    let shape = MapShape::new(order(6), pageblocks).expect("a shape");
    let words = |count| &*(0..count).map(|_| AtomicU64::new(0)).collect::<Vec<_>>().leak();
    let memory = MapMemory {
        lines: words(shape.line_words()),
        sections: words(shape.section_words()),
        summaries: words(shape.summary_words()),
        types: words(pageblocks as usize),
    };
    let tables = Box::new(MapTables::new(shape, memory).expect("it fits"));
    let map = Box::leak(tables).map();
    for pageblock in (0..pageblocks).map(Pageblock) {
        map.set_type(pageblock, Movable);
        map.free_block(pageblock.first_frame(shape), order(6)).expect("nothing is free yet");
    }
    map
}

/// Both parts of a CPU's. The map begins at some frame of the table.
struct Cpu {
    own: CpuStack,
    out: StackOutside<SingleThread>,
}

const FIRST: u32 = 7 << 9;

impl Cpu {
    fn pop(&mut self, migrate: MigrateType) -> Option<Frame> {
        let index = self.out.stack(migrate)?.pop()?;
        Some(self.own.frame(index))
    }

    fn refill(&mut self, map: &Map, migrate: MigrateType) -> Came {
        self.own.refill(&self.out, map, migrate, u32::MAX, |_, _| ())
    }

    fn free(&mut self, map: &Map, migrate: MigrateType, frame: Frame) -> Result<u32, AlreadyFree> {
        self.own.free(&self.out, map, migrate, frame)
    }

    fn held(&self) -> u32 {
        self.own.held(&self.out)
    }

    fn drain(&mut self, map: &Map) -> Result<u32, AlreadyFree> {
        self.own.drain(&self.out, map, Drainer::Other)
    }
}

fn cpu(high: u32, currents: u32) -> Cpu {
    let mut cpu = Cpu { own: CpuStack::new(), out: StackOutside::new() };
    let shape = MapShape::new(order(6), 8).expect("a shape");
    cpu.own.tune(
        &cpu.out,
        StackSize { high, small: 0, currents },
        Start::default(),
        (FIRST, shape),
    );
    cpu
}

fn take(cpu: &mut Cpu, map: &Map, migrate: MigrateType) -> u32 {
    let frame = cpu.pop(migrate);
    let frame = frame.or_else(|| {
        cpu.refill(map, migrate);
        cpu.pop(migrate)
    });
    frame.expect("there is memory").0
}

fn free_frames(map: &Map) -> u64 {
    map.free_by_type().iter().sum()
}

#[test]
fn sizes() {
    let size = |frames, cpus| StackSize::for_share(frames, cpus).high;
    assert_eq!([size(1 << 18, 1), size(1 << 18, 8), size(1 << 20, 64)], [256, 128, 64]);
    assert_eq!([size(1 << 18, 170), size(1 << 18, 340), size(1 << 18, 400)], [32, 16, 0]);
    for (frames, cpus) in [(1 << 18, 64), (5000, 3), (1 << 14, 20), (1 << 30, 1000), (100, 1)] {
        let all = u64::from(size(frames, cpus)) * 3 * u64::from(cpus);
        assert!(all * 16 <= frames, "{frames} {cpus}: {all}");
    }
    let shape = MapShape::new(Order::HUGE, 512).expect("a shape");
    let currents = |cpus| StackSize::default().with_currents(shape, cpus).currents;
    assert_eq!([currents(1), currents(2), currents(4), currents(8), currents(9)], [6, 4, 2, 1, 0]);
}

/// Frames leave ascending, and what is freed at or below the edge comes back; above it goes home.
#[test]
fn the_edge() {
    let map = map(8);
    let mut far = cpu(16, 0);
    // Something from the fourth pageblock on.
    let held: Vec<u32> = (0..64 * 3 + 16).map(|_| take(&mut far, &map, Movable)).collect();
    assert!(held.is_sorted());
    let mut near = cpu(16, 0);
    near.free(&map, Movable, Frame(0)).expect("it is held");
    near.out.flush(&map, FIRST).expect("it was held");
    near.free(&map, Movable, Frame(1)).expect("it is held");
    near.out.flush(&map, FIRST).expect("it was held");
    assert_eq!(near.held(), 0, "no refill yet: no edge");
    assert_eq!([take(&mut near, &map, Movable), near.held()], [0, 15], "filled");
    near.drain(&map).expect("it was held");
    map.free_frames(WordIndex(0), 0b1100).expect("they are held");
    // A refill from the first pageblock alone: it is the edge.
    let mut low = cpu(3, 0);
    assert_eq!([take(&mut low, &map, Movable), low.held()], [1, 2], "filled");
    low.free(&map, Movable, Frame(1)).expect("it is held");
    assert_eq!((low.held(), low.pop(Movable)), (3, Some(Frame(1))));
    let above = 64;
    low.free(&map, Movable, Frame(above)).expect("it is held");
    low.free(&map, Movable, Frame(above + 2)).expect("it is held");
    assert_eq!((low.held(), map.free_in(Pageblock(1))), (4, 0), "two are gathered");
    low.free(&map, Movable, Frame(above + 64)).expect("it is held");
    assert_eq!((low.held(), map.free_in(Pageblock(1))), (5, 0), "as many as it may hold");
    low.free(&map, Movable, Frame(above + 65)).expect("it is held");
    assert_eq!([1, 2].map(|at| map.free_in(Pageblock(at))), [2, 1], "there was no room");
    low.drain(&map).expect("all were held");
    assert_eq!((low.held(), map.free_in(Pageblock(2))), (0, 2));
}

/// Above the edge four frames are gathered from anywhere, and then more of the last one's pageblock.
#[test]
fn gathers_few_from_anywhere() {
    let map = map(8);
    let (mut far, mut own) = (cpu(16, 0), cpu(16, 0));
    (0..64 * 3).for_each(|_| _ = take(&mut far, &map, Movable));
    let in_map = || [0, 1, 2].map(|at| map.free_in(Pageblock(at)));
    let before = in_map();
    for frame in [0, 64, 128, 2, 4, 6] {
        own.free(&map, Movable, Frame(frame)).expect("it is held");
    }
    assert_eq!((own.held(), in_map()), (6, before), "four, and two beside the fourth");
    own.free(&map, Movable, Frame(66)).expect("it is held");
    assert_eq!((own.held(), in_map()), (1, [4, 1, 1]), "then all but what came");
}

/// A full stack gives its oldest half away; all comes back in the end.
#[test]
fn spills_and_drains() {
    let map = map(4);
    let mut cpu = cpu(32, 3);
    let mut held: Vec<u32> = (0..100).map(|_| take(&mut cpu, &map, Movable)).collect();
    let pair = cpu.own.take_block(&map, Movable, order(1)).expect("there is room");
    assert!(cpu.held() <= 32);
    for frame in held.drain(..) {
        let pageblock = Frame(frame).pageblock(map.shape());
        cpu.free(&map, map.type_of(pageblock), Frame(frame)).expect("it is held");
        assert!(cpu.held() <= 33, "{}", cpu.held());
    }
    map.free_block(pair, order(1)).expect("it is held");
    let before = cpu.held();
    assert!(before >= 16);
    assert_eq!(cpu.drain(&map), Ok(before));
    assert_eq!(free_frames(&map), 256);
    assert!((0..4).all(|pageblock| map.is_whole(Pageblock(pageblock))));
}

#[test]
fn without_a_stack() {
    let map = map(2);
    let mut cpu = cpu(0, 0);
    assert_eq!([take(&mut cpu, &map, Movable), take(&mut cpu, &map, Movable)], [0, 1]);
    cpu.free(&map, Movable, Frame(0)).expect("it is held");
    assert_eq!((cpu.held(), free_frames(&map)), (0, 127));
}

/// A type that has nothing claims what is half free, or takes a batch.
#[test]
fn other_types() {
    let map = map(2);
    let mut cpu = cpu(4, 0);
    let two = cpu.own.take_block(&map, Movable, order(5)).expect("half a pageblock");
    cpu.own.take_block(&map, Movable, order(6)).expect("the other one");
    let came = cpu.refill(&map, Unmovable);
    let (frame, fallback) = (cpu.pop(Unmovable), came.fallback.expect("of another type"));
    assert_eq!((frame, came.frames), (Some(Frame(32)), 4));
    assert_eq!((fallback.from, fallback.order, fallback.claimed), (Movable, order(5), true));
    assert_eq!(map.type_of(Pageblock(0)), Unmovable, "claimed");
    // Less than half is free now: a batch, and a block.
    let came = cpu.refill(&map, Reclaimable);
    assert!(came.fallback.is_some_and(|fallback| !fallback.claimed));
    assert_eq!(
        (cpu.pop(Reclaimable).expect("some are left"), map.type_of(Pageblock(0))),
        (Frame(36), Unmovable)
    );
    assert_eq!(cpu.own.take_block(&map, Reclaimable, order(3)), Some(Frame(40)));
    assert_eq!(map.type_of(Pageblock(0)), Unmovable);
    map.free_block(two, order(5)).expect("it is held");
    assert_eq!(cpu.own.take_block(&map, Reclaimable, order(4)).map(|frame| frame.0), Some(48));
    assert_eq!(map.type_of(Pageblock(0)), Reclaimable, "claimed");
    assert_eq!(cpu.refill(&map, HighAtomic).frames, 0);
}

/// CMA frames go to the movable stack; what is isolated goes home at once.
#[test]
fn lent_and_isolated() {
    let map = map(2);
    let mut cpu = cpu(8, 0);
    map.set_type(Pageblock(0), Cma);
    let mut other = CpuStack::new();
    let frame = other.take_block(&map, Cma, order(0)).expect("it is whole");
    assert_eq!((frame, map.free_in(Pageblock(0))), (Frame(0), 63));
    cpu.own.take_block(&map, Movable, order(6)).expect("the other one");
    assert!(cpu.refill(&map, Movable).lent);
    assert_eq!(cpu.pop(Movable), Some(Frame(1)));
    cpu.free(&map, Cma, Frame(0)).expect("it is held");
    assert_eq!(cpu.pop(Movable), Some(Frame(0)), "on the stack");
    map.set_type(Pageblock(0), Isolate);
    cpu.free(&map, Isolate, Frame(0)).expect("it is held");
    cpu.drain(&map).expect("all are held");
    assert_eq!(map.free_in(Pageblock(0)), 63);
    assert_eq!(cpu.refill(&map, Movable).frames, 0);
}

/// The map is the second witness: what is free there is refused, all else is freed.
#[test]
fn frames_that_are_free_already() {
    let map = map(2);
    let mut cpu = cpu(8, 0);
    let frame = take(&mut cpu, &map, Movable);
    cpu.drain(&map).expect("all are held");
    // Frames 0 and 20; 20 is free.
    cpu.out.set_start(0, 0);
    cpu.free(&map, Movable, Frame(frame)).expect("it is held");
    cpu.free(&map, Movable, Frame(20)).expect("only gathered");
    let error = cpu.out.flush(&map, FIRST).expect_err("it was free");
    assert_eq!((error.first, error.bits), (Frame(0), 1 << 20));
    assert_eq!(free_frames(&map), 128, "the other one is freed");
}

/// What an owner leaves outside the slot is drained, whatever it was about to do.
#[test]
fn drains_meet_owners() {
    let map = map(4);
    let mut cpu = cpu(8, 0);
    cpu.out.set_owned(true);
    take(&mut cpu, &map, Movable);
    let stack = cpu.out.stack(Movable).expect("it has one");
    assert_eq!(stack.pop_owned().map(|index| index - FIRST), Some(1));
    let place = stack.room().expect("two were taken");
    assert_eq!((cpu.own.drain(&cpu.out, &map, Drainer::Other), stack.pop_owned()), (Ok(6), None));
    // What it was about to push lies above what was drained, and may not stay (S-3); no more comes until it is in the slot.
    stack.push_owned(place, FIRST + 1);
    assert!(!stack.is_open_still(place) && stack.room().is_none(), "shut");
    assert_eq!((stack.len(), stack.frames().next()), (1, Some(FIRST + 1)));
    assert!(cpu.out.reopen() && !cpu.out.reopen(), "once");
    let (order, at) = (order(0), FIRST + 1);
    assert!(cpu.out.take_back(at, order) && !cpu.out.take_back(at, order));
    assert!(stack.room().is_some_and(|place| stack.is_open_still(place)));
    stack.settle();
    assert!((0..8).all(|at| {
        let place = stack.room();
        place.inspect(|&place| stack.push_owned(place, FIRST + at)).is_some()
    }));
    assert!(stack.room().is_none(), "full");
    assert_eq!(
        cpu.own.drain(&cpu.out, &map, Drainer::Other).map_err(|error| error.bits),
        Err(0xfc)
    );
    assert_eq!(free_frames(&map), 256);
}

/// A home that keeps a list of the indexes that come.
#[derive(Default)]
struct Listed(core::cell::RefCell<Vec<u32>>);

impl Home for Listed {
    fn put(&self, word: WordIndex, mask: u64) -> Result<(), AlreadyFree> {
        let bits = (0..64).filter(|bit| mask >> bit & 1 == 1);
        self.0.borrow_mut().extend(bits.map(|bit| FIRST + word.first_frame().0 + bit));
        Ok(())
    }

    fn release(&self, _: &mut Current) {}
}

/// Frames in runs up and down and by themselves, pushed, shed, popped in bulk and drained, beside a list.
#[test]
fn runs_and_single_frames_leave_as_they_came() {
    let mut dice = 7_u64;
    let mut draw = |below: u64| {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        ((dice >> 33) % below) as u32
    };
    let cpu = cpu(256, 0);
    let (stack, mut model) = (cpu.out.stack(Movable).expect("it has one"), Vec::new());
    // Each frame once, so that what is given by words can be told.
    let mut next = FIRST;
    for _ in 0..20_000 {
        match draw(4) {
            0 => {
                let (first, len) = (next + draw(3), draw(40));
                next = first + len;
                let down = draw(2) == 0;
                for at in 0..len {
                    let index = if down { first + len - 1 - at } else { first + at };
                    stack.settle();
                    if stack.push(index) {
                        model.push(index);
                    }
                }
            }
            1 => {
                let (most, mut popped) = (draw(60) as usize, Vec::new());
                let count = stack.pop_bulk(most, |index, len, direction| {
                    popped.extend((0..len as u32).map(|at| direction.after(index, at)));
                });
                let rest = model.len() - most.min(model.len());
                assert_eq!((count, popped.len()), (popped.len(), model.len() - rest));
                popped.reverse();
                assert_eq!(popped, model.split_off(rest));
            }
            way => {
                let count = if way == 2 { draw(60) } else { u32::MAX };
                let words = Listed::default();
                let given = match way {
                    2 => stack.shed(&words, FIRST, count),
                    _ => cpu.out.drain(&words, FIRST, (Drainer::Other, Types::NONE)).0,
                };
                let mut gone: Vec<_> = model.drain(..model.len().min(count as usize)).collect();
                let mut of_words = words.0.into_inner();
                assert_eq!(given, Ok(of_words.len() as u32));
                gone.sort_unstable();
                of_words.sort_unstable();
                assert_eq!(of_words, gone);
            }
        }
        assert!(stack.frames().eq(model.iter().copied()));
    }
    assert!(next > FIRST + 50_000, "much came by");
}

/// A start that moves leaves what is on the stack there, and what is freed next goes into the map: until the next refill, after
/// which the edge counts from the new start.
#[test]
fn a_start_that_moves() {
    let map = map(8);
    let mut cpu = cpu(16, 0);
    let first = take(&mut cpu, &map, Movable);
    assert_eq!((first, cpu.held()), (0, 15));
    let start = Start::new(Pageblock(4), 0).with_part(1);
    cpu.own.begin_at(&cpu.out, start, map.shape());
    assert_eq!((cpu.own.start(), cpu.held()), (start, 15));
    assert_eq!(cpu.free(&map, Movable, Frame(first)), Ok(0), "gathered");
    assert_eq!(cpu.held(), 16);
    let held: Vec<u32> = (0..15).map(|_| cpu.pop(Movable).expect("it is there").0).collect();
    assert_eq!(held, (1..16).collect::<Vec<_>>());
    assert_eq!(cpu.refill(&map, Movable).frames, 16);
    let own = cpu.pop(Movable).expect("it was refilled").0;
    assert_eq!(own, 4 * 64, "of its own part, though there is a line in use before it");
    assert!(cpu.out.is_inside(Movable, FIRST + own) && !cpu.out.is_inside(Movable, FIRST + 1));
}

/// An owner that frees, and whose stack others empty before it is full, does not wander off.
#[test]
fn places_stay_low() {
    let (map, mut cpu) = (map(8), cpu(16, 0));
    cpu.out.set_owned(true);
    let stack = |cpu: &Cpu| cpu.out.stack(Movable).expect("a stack").head();
    for _ in 0..2000 {
        let frame =
            map.take_own(Movable, Order::ZERO, Start::default(), None).expect("all is free");
        assert!(cpu.out.push_owned(Movable, cpu.own.index(frame)));
        cpu.drain(&map).expect("nothing is free twice");
        cpu.out.reopen();
        assert!(stack(&cpu) <= 2 * MAX_HIGH as u32);
    }
}

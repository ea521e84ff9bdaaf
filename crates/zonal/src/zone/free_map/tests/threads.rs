//! Threads that take and free all orders of a small map, near exhaustion, while types change.
//!
//! Short in the test; `THREADS_TURNS=10000000 cargo test --release -p zonal --lib near_exhaustion` is long.

use super::*;
use core::sync::atomic::AtomicU8;
use core::sync::atomic::Ordering::{AcqRel, SeqCst};
use std::sync::Barrier;
use std::thread;

const THREADS: u32 = 4;

type Map = FreeMap<'static, SingleThread>;

/// One thread: what it holds, and the flags of all frames.
struct Worker<'a> {
    map: &'a Map,
    /// 1: a thread has the frame.
    taken: &'a [AtomicU8],
    number: u32,
    random: u64,
    held: Vec<(Frame, u32)>,
    current: Current,
    opened: [Current; 3],
    /// Frames that it may hold.
    room: u32,
}

impl Worker<'_> {
    fn below(&mut self, bound: u32) -> u32 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        ((self.random >> 33) % u64::from(bound)) as u32
    }

    fn frames(&self) -> u32 {
        self.held.iter().map(|(_, k)| 1 << k).sum()
    }

    fn took(&mut self, frame: Frame, k: u32) {
        for at in frame.0..frame.0 + (1 << k) {
            assert_eq!(self.taken[at as usize].swap(1, AcqRel), 0, "{at} was handed out twice");
        }
        self.held.push((frame, k));
    }

    fn free(&mut self, at: usize) {
        let (frame, k) = self.held.swap_remove(at);
        for at in frame.0..frame.0 + (1 << k) {
            assert_eq!(self.taken[at as usize].swap(0, AcqRel), 1);
        }
        self.map.free_block(frame, order(k)).expect("it was held");
    }

    fn step(&mut self) {
        let (map, shape) = (self.map, self.map.shape());
        let migrate = [Movable, Unmovable][self.below(2) as usize];
        let pageblock = self.below(shape.pageblocks());
        let start = Start::new(Pageblock(pageblock), self.number as u16);
        let start = if pageblock.is_multiple_of(2) { start } else { start.with_part(1) };
        let full = self.frames() >= self.room;
        match self.below(20) {
            0..=6 if !self.held.is_empty() => {
                let at = self.below(self.held.len() as u32) as usize;
                self.free(at);
            }
            7 if self.number == 0 => map.set_type(Pageblock(pageblock), migrate),
            8 if self.number == 0 => {
                // Isolated for a moment.
                let before = map.type_of(Pageblock(pageblock));
                map.set_type(Pageblock(pageblock), Isolate);
                thread::yield_now();
                map.set_type(Pageblock(pageblock), before);
            }
            9 => {
                map.release(&mut self.current);
                self.opened.iter_mut().for_each(|opened| map.release(opened));
            }
            _ if full => (0..4).for_each(|_| {
                if let Some(last) = self.held.len().checked_sub(1) {
                    self.free(last);
                }
            }),
            10 | 11 => {
                let want = 1 + self.below(200);
                let keeps = self.number.is_multiple_of(2);
                let opened = self.opened.get_mut(migrate.index()).filter(|_| keeps);
                let mut frames = Vec::new();
                let harvest = map.refill(migrate, want, start, opened, &mut |word, bits| {
                    let bits = (0..64).filter(|bit| bits >> bit & 1 == 1);
                    frames.extend(bits.map(|bit| Frame(word.first_frame().0 + bit)));
                });
                assert!(harvest.frames == frames.len() as u32 && harvest.frames <= want);
                frames.into_iter().for_each(|frame| self.took(frame, 0));
            }
            12 => {
                let k = shape.p() + self.below((11 - shape.p()).min(2));
                if let Some(first) = map.take_large(order(k), start) {
                    self.took(first.first_frame(shape), k);
                }
            }
            _ => {
                let k = self.below(shape.p());
                let holds = self.number.is_multiple_of(2);
                let found =
                    map.take_block(migrate, order(k), start, holds.then_some(&mut self.current));
                let found = found.or_else(|| {
                    let current = holds.then_some(&mut self.current);
                    map.split_whole(migrate, order(k), start, current)
                });
                if let Some(frame) = found {
                    self.took(frame, k);
                }
            }
        }
    }
}

/// Rounds of `turns` for each thread; between them the map is looked at while all stand still.
fn run(p: u32, pageblocks: u32, rounds: u32, turns: u32) {
    let map = map(p, pageblocks);
    for pageblock in (0..pageblocks).map(Pageblock) {
        map.put_untouched(pageblock).expect("nothing is free yet");
    }
    let frames = pageblocks << p;
    let taken: Vec<_> = (0..frames).map(|_| AtomicU8::new(0)).collect();
    let barrier = Barrier::new(THREADS as usize);
    let work = |number: u32| {
        let room = frames / THREADS - frames / THREADS / 50;
        let (map, taken, random) = (&map, &taken[..], u64::from(number * 7919 + p));
        let (held, current, opened) = (Vec::new(), Current::NONE, Default::default());
        let mut worker = Worker { map, taken, number, random, held, current, opened, room };
        for _ in 0..rounds {
            (0..turns).for_each(|_| worker.step());
            map.release(&mut worker.current);
            worker.opened.iter_mut().for_each(|opened| map.release(opened));
            if barrier.wait().is_leader() {
                check(map, taken);
            }
            barrier.wait();
        }
        while let Some(last) = worker.held.len().checked_sub(1) {
            worker.free(last);
        }
    };
    thread::scope(|scope| {
        (0..THREADS).for_each(|number| drop(scope.spawn(move || work(number))));
    });
    assert!((0..pageblocks).all(|pageblock| map.is_whole(Pageblock(pageblock))), "all whole again");
}

fn check(map: &Map, taken: &[AtomicU8]) {
    for pageblock in (0..map.shape().pageblocks()).map(Pageblock) {
        let first = pageblock.first_frame(map.shape()).0 as usize;
        let frames = &taken[first..first + map.shape().pageblock_frames() as usize];
        let free = frames.iter().filter(|flag| flag.load(SeqCst) == 0).count() as u32;
        assert_eq!(map.free_in(pageblock), free, "{pageblock:?}: frames were lost");
        check_hints(map, pageblock, free, false);
    }
}

#[test]
fn threads_near_exhaustion() {
    let turns = std::env::var("THREADS_TURNS").ok().and_then(|turns| turns.parse().ok());
    let turns = turns.unwrap_or(8_000) / 20;
    for (p, pageblocks) in [(3, 200), (6, 16), (8, 8), (9, 16), (10, 4)] {
        run(p, pageblocks, 20, turns);
    }
}

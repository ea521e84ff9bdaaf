//! How whole free memory stays on the map: batches or single blocks that live and die for rounds,
//! and the index of unusable free memory for orders 9 and 3, mean over the rounds, beside that of
//! a plain bitmap with address-ordered first fit.
//!
//! A round allocates half the zone in frames. What is to die first dies whenever more than `fill`
//! per cent are in use, freed by any CPU; lifetimes are Pareto, shape 1.1, from 64 allocations up.
//! A batch has 16 × Pareto(1.1) frames, at most a twentieth of the zone, from one CPU, and dies at
//! once. Orders by frames: 80 % order 0, 15 % orders 1 to 3, 5 % order 9. No arena: frames are
//! numbers.
//!
//! ```text
//! cargo run --release -p zonal --example ageing_index -- [fill] [cpus] [MiB] [stack] [seed] [rounds]
//! ```
//!
//! `stack` 0: as large as the CPU's share of the zone says. With 1 GiB, two CPUs, 85 %, order 9, three
//! seeds: batches 0.048 to 0.050 (first fit 0.040 to 0.044), with types 0.071 to 0.092 (0.036 to
//! 0.044), single blocks by frames 0.054 to 0.063 (0.056 to 0.060), by requests 0.036 to 0.039
//! (0.137 to 0.179).

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::atomic::AtomicU64;
use zonal::MigrateType::{self, Movable, Reclaimable, Unmovable};
use zonal::Order;
use zonal::pcp::stack::{CpuStack, StackSize};
use zonal::platform::single::SingleThread;
use zonal::zone::free_map::{Frame, FreeMap, LastLook, MapMemory, MapShape, Pageblock, Start};

/// What is allocated, and how it dies.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Mix {
    Batches,
    BatchesWithTypes,
    Frames,
    Requests,
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn unit(&mut self) -> f64 {
        ((self.next() >> 11) as f64 + 1.0) / (1_u64 << 53) as f64
    }

    fn pareto(&mut self, least: f64) -> f64 {
        least * self.unit().powf(-1.0 / 1.1)
    }
}

type Blocks = Vec<(Frame, Order)>;

/// The lowest aligned free run, whatever the fit: what address order alone can do.
struct FirstFit {
    words: Vec<u64>,
    /// For each order a word before which there is no run.
    from: [usize; 11],
}

impl FirstFit {
    fn new(frames: u64) -> Self {
        Self { words: vec![u64::MAX; frames as usize / 64], from: [0; 11] }
    }

    fn take(&mut self, order: Order) -> Option<Frame> {
        let k = order.index();
        let step = (1 << k.max(6)) / 64;
        let mut at = self.from[k] / step * step;
        while at < self.words.len() {
            let start = if k >= 6 {
                self.words[at..at + step].iter().all(|&word| word == u64::MAX).then_some(0)
            } else {
                let run = (1_u64 << (1 << k)) - 1;
                let mut starts = (0..64).step_by(1 << k);
                starts.find(|start| self.words[at] >> start & run == run)
            };
            if let Some(start) = start {
                self.from[k] = at;
                let frame = Frame(at as u32 * 64 + start);
                self.flip(frame, order);
                return Some(frame);
            }
            at += step;
        }
        self.from[k] = at;
        None
    }

    fn free(&mut self, frame: Frame, order: Order) {
        self.flip(frame, order);
        for from in &mut self.from {
            *from = (*from).min(frame.0 as usize / 64 / 16 * 16);
        }
    }

    fn flip(&mut self, frame: Frame, order: Order) {
        let (at, k) = (frame.0 as usize / 64, order.index());
        if k >= 6 {
            self.words[at..at + (1 << k) / 64].iter_mut().for_each(|word| *word = !*word);
        } else {
            self.words[at] ^= ((1_u64 << (1 << k)) - 1) << (frame.0 % 64);
        }
    }

    fn index(&self, order: Order) -> f64 {
        let free: u32 = self.words.iter().map(|word| word.count_ones()).sum();
        let step = 1 << order.index();
        let bit = |at: usize| self.words[at / 64] >> (at % 64) & 1 == 1;
        let starts = (0..self.words.len() * 64).step_by(step);
        let runs = starts.filter(|&start| (start..start + step).all(bit)).count();
        1.0 - (runs * step) as f64 / f64::from(free.max(1))
    }
}

struct Zone {
    first_fit: Option<FirstFit>,
    map: FreeMap<'static, SingleThread>,
    cpus: Vec<CpuStack>,
    used: u64,
    refused: [u64; 11],
}

impl Zone {
    fn new(frames: u64, settings: &Settings, first_fit: bool) -> Self {
        let (cpus, stack) = (settings.cpus, settings.stack);
        let shape = MapShape::new(Order::HUGE, (frames / 512) as u32).expect("a zone");
        let words = |count: usize| {
            let words: &[_] = (0..count + 7).map(|_| AtomicU64::new(0)).collect::<Vec<_>>().leak();
            let skip = words.as_ptr().addr().next_multiple_of(64) - words.as_ptr().addr();
            &words[skip / 8..skip / 8 + count]
        };
        let memory = MapMemory {
            lines: words(shape.line_words()),
            sections: words(shape.section_words()),
            summaries: words(shape.summary_words()),
            types: words(shape.blocks() as usize),
        };
        let map = FreeMap::new(shape, memory).expect("it fits");
        for block in (0..shape.blocks()).map(Pageblock) {
            map.set_type(block, Movable);
            map.put_untouched(block).expect("nothing is free yet");
        }
        let own = StackSize::for_share(frames, cpus as u32);
        let high = if stack > 0 { stack } else { own.high };
        let size = StackSize { high, ..own }.with_currents(shape, cpus as u32);
        let cpu = |at| {
            let mut cpu = CpuStack::new();
            cpu.tune(size, Start { block: Pageblock(0), spread: at as u32 }, shape);
            cpu
        };
        let first_fit = first_fit.then(|| FirstFit::new(frames));
        Self { first_fit, map, cpus: (0..cpus).map(cpu).collect(), used: 0, refused: [0; 11] }
    }

    fn drain_all(&mut self) {
        for cpu in &mut self.cpus {
            cpu.drain(&self.map).expect("nothing is freed twice");
        }
    }

    fn try_take(&mut self, cpu: usize, migrate: MigrateType, order: Order) -> Option<Frame> {
        let (cpu, map) = (&mut self.cpus[cpu], &self.map);
        if order == Order::ZERO {
            let frame = cpu.pop(migrate);
            return frame.or_else(|| {
                cpu.refill(map, migrate, u32::MAX);
                cpu.pop(migrate)
            });
        }
        cpu.take_block(map, migrate, order)
    }

    fn take(&mut self, cpu: usize, migrate: MigrateType, order: Order) -> Option<Frame> {
        if let Some(first_fit) = &mut self.first_fit {
            let found = first_fit.take(order);
            self.refused[order.index()] += u64::from(found.is_none());
            self.used += found.map_or(0, |_| order.frames());
            return found;
        }
        let mut found = self.try_take(cpu, migrate, order);
        if found.is_none() {
            self.drain_all();
            found = self.try_take(cpu, migrate, order);
        }
        if found.is_none() {
            assert_eq!(self.map.last_look(|_| true, order), LastLook::Nothing, "a hint was lost");
            self.refused[order.index()] += 1;
        }
        self.used += found.map_or(0, |_| order.frames());
        found
    }

    fn free(&mut self, cpu: usize, (frame, order): (Frame, Order)) {
        self.used -= order.frames();
        if let Some(first_fit) = &mut self.first_fit {
            return first_fit.free(frame, order);
        }
        let freed = if order == Order::ZERO {
            let migrate = self.map.type_of(frame.pageblock(self.map.shape()));
            self.cpus[cpu].free(&self.map, migrate, frame)
        } else {
            self.map.free_block(frame, order)
        };
        freed.expect("nothing is freed twice");
    }

    /// The index for an order, of what is free in the map.
    fn index(&self, order: Order) -> f64 {
        if let Some(first_fit) = &self.first_fit {
            return first_fit.index(order);
        }
        let (mut free, mut usable) = (0_u64, 0_u64);
        for block in (0..self.map.shape().blocks()).map(Pageblock) {
            self.map.visit_free(block, |_, run| {
                free += run.frames();
                usable += if run >= order { run.frames() } else { 0 };
            });
        }
        1.0 - usable as f64 / free.max(1) as f64
    }
}

/// One of the shares 80, 15, 5 as an order: 0, one of 1 to 3, 9.
fn draw_order(random: &mut Random, mix: Mix) -> Order {
    let mut weights = [0.80, 0.05, 0.05, 0.05, 0.05];
    let orders = [0, 1, 2, 3, 9];
    if mix != Mix::Requests {
        for (weight, order) in weights.iter_mut().zip(orders) {
            *weight /= f64::from(1 << order);
        }
    }
    let mut place = random.unit() * weights.iter().sum::<f64>();
    for (weight, order) in weights.into_iter().zip(orders) {
        place -= weight;
        if place <= 0.0 {
            return Order::new(order).expect("an order");
        }
    }
    Order::HUGE
}

fn draw_type(random: &mut Random, mix: Mix, order: Order) -> MigrateType {
    let movable = mix != Mix::BatchesWithTypes
        || order == Order::HUGE
        || (order == Order::ZERO && random.below(4) != 0);
    if movable { Movable } else { [Unmovable, Reclaimable][random.below(2)] }
}

/// What lives: each entry dies at once.
struct Living {
    dying: BinaryHeap<Reverse<(u64, usize)>>,
    entries: Vec<Blocks>,
    vacant: Vec<usize>,
}

impl Living {
    /// Frees what is to die first.
    fn die(&mut self, zone: &mut Zone, cpu: usize) -> bool {
        let Some(Reverse((_, at))) = self.dying.pop() else { return false };
        self.entries[at].drain(..).for_each(|block| zone.free(cpu, block));
        self.vacant.push(at);
        true
    }

    fn add(&mut self, blocks: Blocks, dies: u64) {
        let at = self.vacant.pop().unwrap_or_else(|| {
            self.entries.push(Vec::new());
            self.entries.len() - 1
        });
        self.entries[at] = blocks;
        self.dying.push(Reverse((dies, at)));
    }
}

struct Outcome {
    /// For orders 9 and 3, and for order 9 over the second half of the rounds.
    index: [f64; 3],
    zone: Zone,
    whole: usize,
}

fn age(mix: Mix, settings: &Settings, first_fit: bool) -> Outcome {
    let frames = settings.mib << 8;
    let mut zone = Zone::new(frames, settings, first_fit);
    let mut random = Random(settings.seed);
    let (dying, entries, vacant) = (BinaryHeap::new(), Vec::new(), Vec::new());
    let mut living = Living { dying, entries, vacant };
    let (mut now, mut indexes) = (0, Vec::new());
    let most = frames * settings.fill / 100;
    let single = matches!(mix, Mix::Frames | Mix::Requests);
    for _ in 0..settings.rounds {
        let mut allocated = 0;
        while allocated < frames / 2 {
            let wanted = if single { 1.0 } else { random.pareto(16.0) };
            let wanted = wanted.min(frames as f64 / 20.0) as u64;
            let cpu = random.below(settings.cpus);
            let (mut blocks, mut size) = (Vec::new(), 0);
            while size < wanted {
                let order = draw_order(&mut random, mix);
                let migrate = draw_type(&mut random, mix, order);
                while zone.used + order.frames() > most
                    && living.die(&mut zone, random.below(settings.cpus))
                {}
                blocks.extend(zone.take(cpu, migrate, order).map(|frame| (frame, order)));
                size += order.frames();
                now += 1;
            }
            allocated += size;
            living.add(blocks, now + random.pareto(64.0).min(1e15) as u64);
        }
        let orders = [9, 3].map(|order| Order::new(order).expect("an order"));
        indexes.push(orders.map(|order| zone.index(order)));
    }
    let mean = |of: &[[f64; 2]], at: usize| {
        of.iter().map(|index| index[at]).sum::<f64>() / of.len() as f64
    };
    let index = [mean(&indexes, 0), mean(&indexes, 1), mean(&indexes[indexes.len() / 2..], 0)];
    let whole = (0..zone.map.shape().blocks()).filter(|&at| zone.map.is_whole(Pageblock(at)));
    Outcome { index, whole: whole.count(), zone }
}

struct Settings {
    fill: u64,
    cpus: usize,
    mib: u64,
    stack: u32,
    seed: u64,
    rounds: u32,
}

fn main() {
    let mut numbers = std::env::args().skip(1).map(|arg| arg.parse().expect("a number"));
    let mut next = |default: u64| numbers.next().unwrap_or(default);
    let settings = Settings {
        fill: next(85),
        cpus: next(2) as usize,
        mib: next(1024),
        stack: next(0) as u32,
        seed: next(1),
        rounds: next(60) as u32,
    };
    let Settings { fill, cpus, mib, seed, .. } = settings;
    println!("{mib} MiB, {cpus} CPUs, {fill} % full, seed {seed}");
    for mix in [Mix::Batches, Mix::BatchesWithTypes, Mix::Frames, Mix::Requests] {
        let Outcome { index: [nine, three, later], zone, whole } = age(mix, &settings, false);
        let plain = age(mix, &settings, true);
        let held: u32 = zone.cpus.iter().map(CpuStack::held).sum();
        let refused = zone.refused.iter().zip(plain.zone.refused);
        let refused: Vec<_> =
            refused.enumerate().filter(|(_, (map, plain))| **map + plain > 0).collect();
        println!(
            "{:<17} order 9: {nine:.3} (later {later:.3}), order 3: {three:.3}; first fit {:.3}, {:.3}; \
             whole {whole}, cached {held}, refused (order, (map, first fit)) {refused:?}",
            format!("{mix:?}"),
            plain.index[0],
            plain.index[1],
        );
    }
}

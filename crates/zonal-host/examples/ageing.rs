//! How whole free memory stays under presets: batches or single blocks that live and die for rounds,
//! and the index of unusable free memory for orders 9 and 3, mean over the rounds (0: every free
//! frame is in a block of that order; a fresh boot has 0). Beside them a plain bitmap with
//! address-ordered first fit, which knows no types: what address order alone can do.
//!
//! A round allocates half the zone in frames. What is to die first dies whenever more than `fill` per
//! cent are in use, freed by any CPU; lifetimes are Pareto, shape 1.1, from 64 allocations up. A
//! batch has 16 × Pareto(1.1) frames, at most a twentieth of the zone, from one CPU, and dies at
//! once. Orders by frames: 80 % order 0, 15 % orders 1 to 3, 5 % order 9; by requests the same shares
//! of requests. With types: order 9 and three quarters of order 0 are movable. CPUs are handles of
//! one thread; frames are numbers.
//!
//! ```text
//! cargo run --release -p zonal-host --example ageing -- [fill] [cpus] [MiB] [seed] [rounds]
//! ```
//!
//! Another seed, more memory or other CPUs are no less valid: the defaults are no workload to tune to.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::error::Error;
use zonal::MigrateType::{self, Movable, Reclaimable, Unmovable};
use zonal::error::FreeError;
use zonal::map::{MemoryMap, PhysAddr, Region};
use zonal::plan::{Config, Plan};
use zonal::policy::{Policy, Split};
use zonal::preset::{Linux416, Zonal, ZonalDepot};
use zonal::report::unusable_permille;
use zonal::{Allocator, CpuHandle, CpuId, FreeCounts, Order, Pfn, Request, ZoneId};
use zonal_host::Threads;
use zonal_tables::HeapTables;

/// What is allocated, and how it dies.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Mix {
    Batches,
    BatchesWithTypes,
    Frames,
    Requests,
}

struct Settings {
    fill: u64,
    cpus: u32,
    mib: u64,
    seed: u64,
    rounds: u64,
}

impl Settings {
    fn frames(&self) -> u64 {
        self.mib << 8
    }
}

/// The orders of the index.
const INDEXED: [Order; 2] = [Order::HUGE, Order::for_frames(8).expect("order 3")];

/// Steele's splitmix.
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

    fn order(&mut self, mix: Mix) -> Order {
        let mut weights = [0.80, 0.05, 0.05, 0.05, 0.05];
        let orders = [0, 1, 2, 3, 9];
        if mix != Mix::Requests {
            for (weight, order) in weights.iter_mut().zip(orders) {
                *weight /= f64::from(1 << order);
            }
        }
        let mut place = self.unit() * weights.iter().sum::<f64>();
        for (weight, order) in weights.into_iter().zip(orders) {
            place -= weight;
            if place <= 0.0 {
                return Order::new(order).unwrap_or(Order::HUGE);
            }
        }
        Order::HUGE
    }

    fn request(&mut self, mix: Mix) -> Request {
        let order = self.order(mix);
        let movable = mix != Mix::BatchesWithTypes
            || order == Order::HUGE
            || (order == Order::ZERO && self.below(4) != 0);
        let other: MigrateType = [Unmovable, Reclaimable][self.below(2)];
        Request::new(order).migrate(if movable { Movable } else { other })
    }
}

type Blocks = Vec<(Pfn, Order)>;

/// What lives: each entry dies at once.
#[derive(Default)]
struct Living {
    dying: BinaryHeap<Reverse<(u64, usize)>>,
    entries: Vec<Blocks>,
    vacant: Vec<usize>,
}

impl Living {
    /// What dies first.
    fn die(&mut self) -> Option<Blocks> {
        let Reverse((_, at)) = self.dying.pop()?;
        self.vacant.push(at);
        Some(std::mem::take(&mut self.entries[at]))
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

/// What is aged.
trait Memory {
    fn take(&mut self, cpu: usize, request: &Request) -> Option<Pfn>;
    fn free(&mut self, cpu: usize, pfn: Pfn, order: Order) -> Result<(), FreeError>;
    /// The index for orders 9 and 3.
    fn index(&self) -> [f64; 2];
}

/// An allocator, by a handle for each CPU.
struct Handles<'a, 'm, S: Policy> {
    allocator: &'a Allocator<'m, Threads, S>,
    cpus: Vec<CpuHandle<'a, 'm, Threads, S>>,
}

impl<S: Policy> Memory for Handles<'_, '_, S> {
    fn take(&mut self, cpu: usize, request: &Request) -> Option<Pfn> {
        self.cpus[cpu].alloc_raw(request).ok()
    }

    fn free(&mut self, cpu: usize, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        self.cpus[cpu].free_raw(pfn, order)
    }

    fn index(&self) -> [f64; 2] {
        let mut blocks = FreeCounts::default();
        let ids = (0..self.allocator.zone_count() as u8).map(ZoneId);
        for zone in ids.filter_map(|id| self.allocator.zone_info(id)) {
            for (sum, counts) in blocks.iter_mut().flatten().zip(zone.blocks.iter().flatten()) {
                *sum += counts;
            }
        }
        let permille = unusable_permille(&blocks);
        INDEXED.map(|order| f64::from(permille[order.index()]) / 1000.0)
    }
}

/// The lowest aligned free run, whatever the fit.
struct FirstFit {
    words: Vec<u64>,
    /// For each order a word before which there is no run.
    from: [usize; 11],
}

impl FirstFit {
    fn new(frames: u64) -> Self {
        Self { words: vec![u64::MAX; frames as usize / 64], from: [0; 11] }
    }

    fn first(&mut self, order: Order) -> Option<Pfn> {
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
                let frame = Pfn::new(at as u64 * 64 + start);
                self.flip(frame, order);
                return Some(frame);
            }
            at += step;
        }
        self.from[k] = at;
        None
    }

    fn give(&mut self, frame: Pfn, order: Order) {
        self.flip(frame, order);
        for from in &mut self.from {
            *from = (*from).min(frame.get() as usize / 64 / 16 * 16);
        }
    }

    fn flip(&mut self, frame: Pfn, order: Order) {
        let (at, k) = (frame.get() as usize / 64, order.index());
        if k >= 6 {
            self.words[at..at + (1 << k) / 64].iter_mut().for_each(|word| *word = !*word);
        } else {
            self.words[at] ^= ((1_u64 << (1 << k)) - 1) << (frame.get() % 64);
        }
    }

    fn unusable(&self, order: Order) -> f64 {
        let free: u32 = self.words.iter().map(|word| word.count_ones()).sum();
        let step = 1 << order.index();
        let bit = |at: usize| self.words[at / 64] >> (at % 64) & 1 == 1;
        let starts = (0..self.words.len() * 64).step_by(step);
        let runs = starts.filter(|&start| (start..start + step).all(bit)).count();
        1.0 - (runs * step) as f64 / f64::from(free.max(1))
    }
}

impl Memory for FirstFit {
    fn take(&mut self, _: usize, request: &Request) -> Option<Pfn> {
        self.first(request.order())
    }

    fn free(&mut self, _: usize, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        self.give(pfn, order);
        Ok(())
    }

    fn index(&self) -> [f64; 2] {
        INDEXED.map(|order| self.unusable(order))
    }
}

/// The memory, and what is out of it.
struct World<'a, M> {
    memory: M,
    settings: &'a Settings,
    living: Living,
    random: Random,
    used: u64,
    now: u64,
    refused: [u64; 11],
}

impl<M: Memory> World<'_, M> {
    fn cpu(&mut self) -> usize {
        self.random.below(self.settings.cpus as usize)
    }

    /// Allocates one entry of `size` frames at least, and lets die what is in the way.
    fn live(&mut self, mix: Mix, size: u64) -> Result<u64, FreeError> {
        let most = self.settings.frames() * self.settings.fill / 100;
        let cpu = self.cpu();
        let (mut blocks, mut taken) = (Vec::new(), 0);
        while taken < size {
            let request = self.random.request(mix);
            let order = request.order();
            while self.used + order.frames() > most {
                let Some(dead) = self.living.die() else { break };
                let by = self.cpu();
                for (pfn, order) in dead {
                    self.memory.free(by, pfn, order)?;
                    self.used -= order.frames();
                }
            }
            if let Some(pfn) = self.memory.take(cpu, &request) {
                blocks.push((pfn, order));
                self.used += order.frames();
            } else {
                self.refused[order.index()] += 1;
            }
            taken += order.frames();
            self.now += 1;
        }
        self.living.add(blocks, self.now + self.random.pareto(64.0).min(1e15) as u64);
        Ok(taken)
    }
}

/// Ages `memory` and prints its row.
fn age(name: &str, memory: impl Memory, mix: Mix, settings: &Settings) -> Result<(), FreeError> {
    let (living, random) = (Living::default(), Random(settings.seed));
    let mut world = World { memory, settings, living, random, used: 0, now: 0, refused: [0; 11] };
    let frames = settings.frames();
    let single = matches!(mix, Mix::Frames | Mix::Requests);
    let mut means = [0.0; 2];
    for _ in 0..settings.rounds {
        let mut allocated = 0;
        while allocated < frames / 2 {
            let size = if single { 1.0 } else { world.random.pareto(16.0) };
            allocated += world.live(mix, size.min(frames as f64 / 20.0) as u64)?;
        }
        let now = world.memory.index();
        means.iter_mut().zip(now).for_each(|(mean, now)| *mean += now / settings.rounds as f64);
    }
    let refused = world.refused.iter().enumerate().filter(|(_, times)| **times > 0);
    println!(
        "{:<17} {name:<10} order 9: {:.3}, order 3: {:.3}; refused (order, times) {:?}",
        format!("{mix:?}"),
        means[0],
        means[1],
        refused.collect::<Vec<_>>(),
    );
    Ok(())
}

/// Ages the preset `S`.
fn age_preset<S: Policy>(mix: Mix, settings: &Settings) -> Result<(), Box<dyn Error>> {
    let memory = Region::usable(PhysAddr(1 << 32), settings.mib << 20);
    let map = MemoryMap::from_regions(&[memory])?.sanitise()?;
    let plan = Plan::new(map, Config::new(settings.cpus), <S as Policy>::Split::instances)?;
    let mut tables = HeapTables::new(&plan)?;
    let allocator = Allocator::<_, S>::new(Threads::new(), &plan, tables.storage())?;
    let cpus = (0..settings.cpus).map(|cpu| allocator.handle(CpuId(cpu)));
    let cpus = cpus.collect::<Result<_, _>>()?;
    Ok(age(S::NAME, Handles { allocator: &allocator, cpus }, mix, settings)?)
}

fn main() -> Result<(), Box<dyn Error>> {
    let numbers: Result<Vec<u64>, _> = std::env::args().skip(1).map(|arg| arg.parse()).collect();
    let numbers = numbers?;
    let given = |at: usize, default: u64| numbers.get(at).copied().unwrap_or(default);
    let settings = Settings {
        fill: given(0, 85),
        cpus: given(1, 2) as u32,
        mib: given(2, 1024),
        seed: given(3, 1),
        rounds: given(4, 60),
    };
    let Settings { fill, cpus, mib, seed, rounds } = settings;
    println!("{mib} MiB, {cpus} CPUs, {fill} % full, seed {seed}, {rounds} rounds");
    for mix in [Mix::Batches, Mix::BatchesWithTypes, Mix::Frames, Mix::Requests] {
        age_preset::<Zonal>(mix, &settings)?;
        age_preset::<Linux416>(mix, &settings)?;
        age_preset::<ZonalDepot>(mix, &settings)?;
        age("first fit", FirstFit::new(settings.frames()), mix, &settings)?;
    }
    Ok(())
}

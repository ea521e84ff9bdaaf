//! Processes as a build or a boot has them, one CPU's at a time: page faults, file pages, page
//! tables, kernel stacks, slabs, exits.
//!
//! The steps and numbers are those of [`mix::kbuild`](crate::mix::kbuild); a [`Mix`] says what
//! differs. Reading a file page into the cache costs what a page fault costs; page tables, stacks
//! and slabs cost only their allocation. An exit unmaps the pages in batches, then frees the page
//! tables, then the stack.

use crate::any_allocator::AnyAllocator;
use crate::mix::kbuild::{
    BURST, DROP, FAULTS_PER_TABLE, JOBS, LARGE, SLAB_ORDERS, SMALL, STACK_ORDER,
};
use crate::outcome::Figure;
use crate::task::{Task, count};
use fastrand::Rng;
use std::collections::VecDeque;
use zonal::migrate::NR_CACHED_TYPES;
use zonal::{MigrateType, Order, Pfn, Request};

/// What one kind of work does differently from another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mix {
    /// One process in this many is small.
    pub(crate) small_one_in: usize,
    /// One page fault in this many reads a file.
    pub(crate) cache_one_in: usize,
    /// Frames that a CPU's part of the page cache keeps.
    pub(crate) cache_frames: usize,
    /// Slab blocks of a CPU that live.
    pub(crate) slab_blocks: usize,
    /// One process in this many never exits; 0: all do.
    pub(crate) stays_one_in: usize,
}

/// Memory of the kernel's own.
#[derive(Clone, Copy)]
pub(crate) struct Block {
    pfn: Pfn,
    order: Order,
}

struct Process {
    faults_left: usize,
    /// Faults that it had before the run began.
    behind: usize,
    mapped: Vec<Pfn>,
    tables: Vec<Block>,
    stack: Block,
}

/// The processes of one CPU.
pub(crate) struct Processes<'a> {
    pub(crate) task: Task<'a>,
    pub(crate) random: Rng,
    mix: Mix,
    running: Vec<Process>,
    /// Those that wait for ever.
    daemons: Vec<Process>,
    cache: VecDeque<Pfn>,
    slabs: Vec<Block>,
    /// Processes that may still be started.
    pub(crate) to_start: usize,
}

/// Why a request does not fail.
pub(crate) const MEMORY: &str = "the workload asked for enough memory";

impl<'a> Processes<'a> {
    pub(crate) fn new(task: Task<'a>, random: Rng, mix: Mix, to_start: usize) -> Self {
        Self {
            task,
            random,
            mix,
            running: Vec::new(),
            daemons: Vec::new(),
            cache: VecDeque::new(),
            slabs: Vec::new(),
            to_start,
        }
    }

    pub(crate) fn one_in(&mut self, n: usize) -> bool {
        n > 0 && self.random.usize(..n) == 0
    }

    fn block(&mut self, order: u8, migrate: MigrateType) -> Block {
        let order = Order::new(order).expect("a small order");
        let pfn = self.task.ask(&Request::new(order).migrate(migrate)).expect(MEMORY);
        Block { pfn, order }
    }

    /// Gives blocks back.
    pub(crate) fn give(&mut self, blocks: &[Block]) {
        for block in blocks {
            self.task.give(&[block.pfn], block.order);
        }
    }

    fn start(&mut self) {
        let (least, most) = if self.one_in(self.mix.small_one_in) { SMALL } else { LARGE };
        let faults_left = self.random.usize(least..=most);
        let stack = self.block(STACK_ORDER, MigrateType::Unmovable);
        let (mapped, tables) = (Vec::new(), Vec::new());
        self.running.push(Process { faults_left, behind: 0, mapped, tables, stack });
    }

    /// Processes as one finds them at any moment: the longer one takes, the likelier it is there,
    /// at any point of its way. They [catch up](Self::catch_up) with that.
    pub(crate) fn begin_midway(&mut self) {
        while self.running.len() < JOBS {
            self.start();
            let Some(mut process) = self.running.pop() else { return };
            let faults = process.faults_left;
            if self.random.usize(..LARGE.1) < faults {
                process.behind = self.random.usize(..faults);
                process.faults_left -= process.behind;
                self.running.push(process);
            } else {
                self.exit(&process);
            }
        }
    }

    /// A process has some of the faults that it is behind with. `false` if none is.
    pub(crate) fn catch_up(&mut self) -> bool {
        let Some(at) = self.running.iter().position(|process| process.behind > 0) else {
            return false;
        };
        let mut process = self.running.swap_remove(at);
        let faults = process.behind.min(BURST);
        process.behind -= faults;
        (0..faults).for_each(|_| self.fault(&mut process));
        self.running.push(process);
        true
    }

    /// One process runs for a while. `false` if there is none left.
    pub(crate) fn burst(&mut self) -> bool {
        while self.running.len() < JOBS && self.to_start > 0 {
            self.to_start -= 1;
            self.start();
        }
        if self.running.is_empty() {
            return false;
        }
        let at = self.random.usize(..self.running.len());
        let mut process = self.running.swap_remove(at);
        let faults = self.random.usize(1..=BURST).min(process.faults_left);
        process.faults_left -= faults;
        for _ in 0..faults {
            self.fault(&mut process);
        }
        count("faults", faults as u64);
        if self.cache.len() > self.mix.cache_frames {
            let oldest: Vec<_> = self.cache.drain(..DROP).collect();
            self.task.release(&oldest, Order::ZERO);
        }
        self.grow_slabs();
        if process.faults_left > 0 {
            self.running.push(process);
        } else if self.one_in(self.mix.stays_one_in) {
            self.daemons.push(process);
        } else {
            self.exit(&process);
        }
        true
    }

    fn fault(&mut self, process: &mut Process) {
        // None to twice of it, so that CPUs do not keep in step.
        let part = 2.0 * self.random.f64();
        self.task.compute(part);
        if self.one_in(self.mix.cache_one_in) {
            self.read_page();
            return;
        }
        if process.mapped.len().is_multiple_of(FAULTS_PER_TABLE) {
            process.tables.push(self.block(0, MigrateType::Unmovable));
        }
        process.mapped.push(self.task.fault().expect(MEMORY));
    }

    /// A page of a file comes into the page cache.
    pub(crate) fn read_page(&mut self) {
        let page = self.task.fault().expect(MEMORY);
        self.cache.push_back(page);
    }

    /// Drops cache pages at random until `keep` are left, so that what is free lies scattered.
    pub(crate) fn scatter(&mut self, keep: usize) {
        self.task.list();
        let mut pages: Vec<_> = self.cache.drain(..).collect();
        self.random.shuffle(&mut pages);
        let dropped = pages.split_off(keep.min(pages.len()));
        self.task.release(&dropped, Order::ZERO);
        self.cache = pages.into();
    }

    /// A block for kernel objects, of the usual orders.
    pub(crate) fn slab(&mut self, migrate: MigrateType) -> Block {
        let mut percent = self.random.usize(..100);
        let order = SLAB_ORDERS.iter().find(|(_, share)| {
            let found = percent < *share;
            percent = percent.saturating_sub(*share);
            found
        });
        self.block(order.map_or(0, |(order, _)| *order), migrate)
    }

    fn grow_slabs(&mut self) {
        let kinds = [MigrateType::Unmovable, MigrateType::Reclaimable];
        let kind = kinds[self.random.usize(..kinds.len())];
        let slab = self.slab(kind);
        self.keep(slab);
        if self.slabs.len() > self.mix.slab_blocks {
            let at = self.random.usize(..self.slabs.len());
            let dead = self.slabs.swap_remove(at);
            self.give(&[dead]);
        }
    }

    /// Kernel objects stay for a while.
    pub(crate) fn keep(&mut self, slab: Block) {
        self.slabs.push(slab);
    }

    fn exit(&mut self, process: &Process) {
        self.task.unmap(&process.mapped, Order::ZERO);
        self.give(&process.tables);
        self.give(&[process.stack]);
    }

    /// Everything ends and gives back what it has.
    pub(crate) fn end(mut self) {
        self.task.list();
        let running = core::mem::take(&mut self.running);
        let daemons = core::mem::take(&mut self.daemons);
        for process in running.iter().chain(&daemons) {
            self.exit(process);
        }
        let cache: Vec<_> = self.cache.drain(..).collect();
        self.task.release(&cache, Order::ZERO);
        let slabs = core::mem::take(&mut self.slabs);
        self.give(&slabs);
    }
}

/// How per-CPU lists gave frames back to the zones; all 0 under presets without such lists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Batches {
    calls: u64,
    single: [u64; NR_CACHED_TYPES],
}

impl Batches {
    /// Since the allocator was made.
    pub(crate) fn of(allocator: &dyn AnyAllocator) -> Self {
        let mut sum = Self::default();
        for zone in allocator.zones() {
            sum.calls += zone.events.free_batches;
            for (sum, count) in sum.single.iter_mut().zip(zone.events.single_type) {
                *sum += count;
            }
        }
        sum
    }

    /// What was counted since `before`.
    pub(crate) fn since(&self, before: &Self) -> Self {
        let single = core::array::from_fn(|at| self.single[at] - before.single[at]);
        Self { calls: self.calls - before.calls, single }
    }

    /// Counts, named as in the source, and shares of all calls.
    pub(crate) fn figures(&self) -> Vec<Figure> {
        let of = |migrate: MigrateType| self.single[migrate.index()];
        let single = [
            ("single_mt", self.single.iter().sum()),
            ("single_mt_unmovable", of(MigrateType::Unmovable)),
            ("single_mt_movable", of(MigrateType::Movable)),
            ("single_mt_reclaimable", of(MigrateType::Reclaimable)),
        ];
        let mut figures = vec![Figure::new("free_pcppages_bulk_calls", self.calls as f64, "count")];
        for (name, count) in single {
            figures.push(Figure::new(name, count as f64, "count"));
            let percent = count as f64 * 100.0 / self.calls.max(1) as f64;
            figures.push(Figure::new(&format!("{name}_percent"), percent, "percent"));
        }
        figures
    }
}

//! The suite: random commands, and threads at random, for any host and preset.
//!
//! ```
//! use zonal::platform::single::SingleThread;
//! use zonal_testkit::preset::TinyZonal;
//! zonal_testkit::suite::random_commands::<SingleThread, TinyZonal>(2, None);
//! ```

use crate::checkers::{Rules, check_all, check_faults};
use crate::cluster_check::check_clusters;
use crate::command::commands;
use crate::host::TestHost;
use crate::model::Model;
use crate::runner::run_commands;
use crate::shape::Shape;
use crate::snapshot::Snapshot;
use crate::world::{World, with_world};
use proptest::prelude::*;
use proptest::test_runner::{Config, FileFailurePersistence, TestRunner};
use std::sync::atomic::{AtomicU32, Ordering};
use zonal::policy::Policy;
use zonal::{Allocator, CpuHandle, CpuId, MigrateType, Order, Pfn, Request};

/// Cases a property gets: `given`, times `ZONAL_TEST_EFFORT` where that is set.
///
/// # Panics
/// If the variable is set to something that is not a number.
#[must_use]
pub fn effort(given: u32) -> u32 {
    match std::env::var("ZONAL_TEST_EFFORT") {
        Ok(times) => given * times.parse::<u32>().expect("ZONAL_TEST_EFFORT is a number"),
        Err(_) => given,
    }
}

/// Runs `cases` random command sequences over all shapes, with all checkers after every
/// command. Failing cases are kept in the file `seeds`, and run first the next time.
///
/// # Panics
/// With the shortest failing sequence, as source, if an invariant is broken.
pub fn random_commands<P: TestHost, S: Policy>(cases: u32, seeds: Option<&'static str>) {
    let persistence = seeds.map(FileFailurePersistence::Direct);
    let mut runner = TestRunner::new(Config {
        cases,
        failure_persistence: persistence.map(|file| Box::new(file) as Box<_>),
        max_shrink_iters: 4000,
        ..Config::default()
    });
    let shapes = prop::sample::select(Shape::ALL.to_vec());
    let result = runner.run(&(shapes, commands(60)), |(shape, commands)| {
        run_commands::<P, S>(shape, &commands)
            .map_err(|failure| TestCaseError::fail(failure.to_string()))
    });
    if let Err(error) = result {
        panic!("{} on {}: {error}", S::NAME, P::NAME);
    }
}

/// What a thread of [`threads_at_random`] does.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    /// Threads; each plays one CPU.
    pub threads: u32,
    /// Operations each does.
    pub operations: u32,
    /// Frames that each holds at most.
    pub quota: u64,
    /// The largest order.
    pub most: Order,
    /// Whether the even threads use owned handles.
    pub owned: bool,
    /// Whether a single frame must always be had: the quotas leave enough.
    pub never_fails: bool,
}

/// A generator of pseudo-random numbers: Marsaglia's xorshift, 64 bits.
#[derive(Clone, Copy, Debug)]
pub struct Dice(u64);

impl Dice {
    /// From a seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A number below `bound`.
    pub const fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }
}

/// Whether a frame is taken, one word a frame: a frame handed out twice is seen at once (I-3).
struct Ledger<'a> {
    base: Pfn,
    owners: &'a [AtomicU32],
}

impl Ledger<'_> {
    /// Acquire and release: the thread that takes a frame comes after the one that gave it up.
    fn swap(&self, pfn: Pfn, order: Order, from: u32, to: u32) {
        for frame in 0..order.frames() {
            let at = (pfn.get() - self.base.get() + frame) as usize;
            let was = self.owners[at].swap(to, Ordering::AcqRel);
            assert_eq!(was, from, "I-3: pfn {pfn} + {frame} changes hands from {from} to {to}");
        }
    }
}

/// One thread: its way in and what it holds.
struct Worker<'w, 'm, P: TestHost, S: Policy> {
    allocator: &'w Allocator<'m, P, S>,
    handle: Option<CpuHandle<'w, 'm, P, S>>,
    ledger: Ledger<'w>,
    name: u32,
    dice: Dice,
    held: Vec<(Pfn, Order)>,
    frames: u64,
}

impl<P: TestHost, S: Policy> Worker<'_, '_, P, S> {
    fn run(&mut self, work: &Work) {
        // Now growing to the quota and staying there for a while, now giving most back.
        let mut growing = true;
        for _ in 0..work.operations {
            if self.dice.below(if growing { 2000 } else { 300 }) == 0 {
                growing = !growing;
            }
            match self.dice.below(100) {
                at if at < if growing { 80 } else { 30 } => self.alloc(work),
                0..=96 => self.free_one(),
                97 | 98 => self.bulk(work),
                _ => {
                    self.allocator.drain_cpu(CpuId(self.dice.below(4) as u32));
                }
            }
        }
        while !self.held.is_empty() {
            self.free_one();
        }
        drop(self.handle.take());
        check_faults(&self.allocator.platform().faults()).expect("no faults");
    }

    fn request(&mut self, work: &Work) -> Request {
        let order = if self.dice.below(3) > 0 { 0 } else { self.dice.below(11) as u8 };
        let order = Order::new(order).unwrap_or(Order::ZERO).min(work.most);
        Request::new(order).migrate(MigrateType::ALL[self.dice.below(3) as usize])
    }

    fn alloc(&mut self, work: &Work) {
        let request = self.request(work);
        let order = request.order();
        if self.frames + order.frames() > work.quota {
            return self.free_one();
        }
        let block = match &mut self.handle {
            Some(handle) => handle.alloc_raw(&request),
            None => self.allocator.alloc_raw(&request),
        };
        match block {
            Ok(pfn) => self.take(pfn, order),
            Err(error) if work.never_fails && order == Order::ZERO => {
                panic!("I-6: with {} of {} frames held: {error}", self.frames, work.quota)
            }
            Err(_) => {}
        }
    }

    fn take(&mut self, pfn: Pfn, order: Order) {
        self.ledger.swap(pfn, order, 0, self.name);
        self.held.push((pfn, order));
        self.frames += order.frames();
    }

    fn free_one(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let nth = self.dice.below(self.held.len() as u64) as usize;
        let (pfn, order) = self.held.swap_remove(nth);
        self.ledger.swap(pfn, order, self.name, 0);
        self.frames -= order.frames();
        let freed = match &mut self.handle {
            Some(handle) => handle.free_raw(pfn, order),
            None => self.allocator.free_raw(pfn, order),
        };
        freed.expect("a block that is ours can be freed");
    }

    /// Takes many single frames and gives most of them back.
    fn bulk(&mut self, work: &Work) {
        let room = work.quota.saturating_sub(self.frames).min(700);
        let mut out = vec![Pfn::default(); self.dice.below(room + 1) as usize];
        let request = Request::frame().migrate(MigrateType::Movable);
        let got = match &mut self.handle {
            Some(handle) => handle.alloc_bulk(&request, &mut out),
            None => self.allocator.alloc_bulk(&request, &mut out),
        };
        if got.is_err() {
            return;
        }
        out.iter().for_each(|&pfn| self.take(pfn, Order::ZERO));
        let keep = self.held.len() - self.dice.below(out.len() as u64 + 1) as usize;
        let back: Vec<Pfn> = self.held.split_off(keep).into_iter().map(|(pfn, _)| pfn).collect();
        back.iter().for_each(|&pfn| self.ledger.swap(pfn, Order::ZERO, self.name, 0));
        self.frames -= back.len() as u64;
        let freed = match &mut self.handle {
            Some(handle) => handle.free_bulk(&back),
            None => self.allocator.free_bulk(&back),
        };
        assert_eq!((freed.freed, freed.refused), (back.len(), 0), "{freed:?}");
    }
}

/// Threads allocate and free at random; every frame handed out is entered in a ledger. At the
/// end everything is freed and drained, all checkers run, and if the shape's pageblocks are of
/// the largest order, memory must have merged to what it was at the start.
///
/// # Panics
/// If an invariant is broken.
pub fn threads_at_random<P: TestHost + Sync, S: Policy>(shape: Shape, seed: u64, work: Work)
where
    for<'m> World<'m, P, S>: Sync,
{
    threads_beside::<P, S>(shape, seed, work, |_| ());
}

/// As [`threads_at_random`], while `other` does something on a thread of its own.
///
/// # Panics
/// If an invariant is broken.
pub fn threads_beside<P: TestHost + Sync, S: Policy>(
    shape: Shape,
    seed: u64,
    work: Work,
    other: impl Fn(&Allocator<'_, P, S>) + Sync,
) where
    for<'m> World<'m, P, S>: Sync,
{
    with_world::<P, S, _>(shape, |world| {
        let allocator = &world.allocator;
        let fresh = all_blocks(&Snapshot::of(allocator));
        let plan = allocator.plan();
        let owners: Vec<_> = (0..plan.frames()).map(|_| AtomicU32::new(0)).collect();
        std::thread::scope(|scope| {
            for thread in 0..work.threads {
                let owners = &owners;
                scope.spawn(move || {
                    let cpu = CpuId(thread % world.allocator.cpus());
                    world.allocator.platform().switch_cpu(cpu);
                    let owned = work.owned && thread % 2 == 0;
                    Worker {
                        allocator: &world.allocator,
                        handle: owned.then(|| world.allocator.handle(cpu).ok()).flatten(),
                        ledger: Ledger { base: world.allocator.plan().base(), owners },
                        name: thread + 1,
                        dice: Dice::new(seed * 64 + u64::from(thread)),
                        held: Vec::new(),
                        frames: 0,
                    }
                    .run(&work);
                });
            }
            let other = &other;
            scope.spawn(move || other(&world.allocator));
        });
        allocator.drain_all();
        let after = Snapshot::of(allocator);
        let model = Model::new(plan).as_in(allocator);
        check_all(&after, &model, &Rules::of::<S>()).expect("all invariants hold");
        check_clusters(allocator).expect("clusters are what the array says");
        if plan.config().pageblock_order == Order::MAX {
            assert_eq!(all_blocks(&after), fresh, "all memory merges back");
        }
    });
}

/// First frame and order of every block that is free, by pfn.
#[must_use]
pub fn all_blocks(snapshot: &Snapshot) -> Vec<(Pfn, Order)> {
    let mut blocks: Vec<_> =
        snapshot.found.iter().map(|block| (block.pfn, block.place.order())).collect();
    blocks.sort_unstable();
    blocks
}

//! One run: a world from a swarm, rounds of virtual CPUs, and every checker in between.

use crate::cpu::{Cpu, State};
use crate::host::{Explored, Parts, Sound, WithSimSlots};
use crate::swarm::{PRESETS, Swarm};
use std::fmt;
use zonal::plan::Config;
use zonal::policy::Policy;
use zonal::preset::{
    Cluster, ClusterFree, FairZone, FairZonePosted, LessDirty, Linux63, Linux316, Linux413,
    Linux416, SkipMerge, SplitZones, SplitZonesByCpu, Zonal,
};
use zonal::{Order, Request};
use zonal_sim::explore::{Body, Options, alone, explore};
use zonal_testkit::checkers::{Checked, Rules, Violation, check_all, check_faults};
use zonal_testkit::cluster_check::check_clusters;
use zonal_testkit::host::TestHost;
use zonal_testkit::preset::{TinySplit, TinyZonal};
use zonal_testkit::shape::plan;
use zonal_testkit::snapshot::Snapshot;
use zonal_testkit::world::{World, with_plan};

/// Accesses of a round after which it is asked to end, and after as many again given up.
const ACCESSES: u64 = 20_000_000;

/// What a run did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ran {
    /// A hash of all choices of the schedule, and of all blocks handed out and moved.
    pub(crate) trace: u64,
    /// Refusals that were checked because no other CPU was inside (I-6).
    pub(crate) alone: u32,
    /// Refusals of single frames that were checked whichever CPU was inside (I-6).
    pub(crate) among: u32,
    /// Commands of its CPUs: each call's result was checked, and all of memory after each round.
    pub(crate) steps: u64,
}

impl Ran {
    pub(crate) fn add(&mut self, other: &Self) {
        self.alone += other.alone;
        self.among += other.among;
        self.steps += other.steps;
    }
}

/// What went wrong in a run.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) swarm: Box<Swarm>,
    pub(crate) violation: Violation,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Swarm { seed, test, .. } = *self.swarm;
        writeln!(f, "seed {seed}: {}", self.violation)?;
        writeln!(f, "  on {}, {:?}", PRESETS[self.swarm.preset], self.swarm)?;
        writeln!(
            f,
            "  again: {}ZONAL_EXPLORE_SEED={seed} cargo test --release -p zonal-explore --lib \
             {test} -- --nocapture",
            self.swarm.named()
        )?;
        write!(f, "  once it is understood: add it to crates/zonal-explore/explore_seeds.txt")
    }
}

/// Runs a swarm on the host and the preset that it names.
pub(crate) fn run_swarm(swarm: &Swarm, loud: bool) -> Result<Ran, Failure> {
    match swarm.preset {
        0 => run::<Sound, Linux416>(swarm, loud),
        1 => run::<Sound, SkipMerge>(swarm, loud),
        2 => run::<Sound, Cluster>(swarm, loud),
        3 => run::<Sound, ClusterFree>(swarm, loud),
        4 => run::<Sound, SplitZones>(swarm, loud),
        5 => run::<Sound, SplitZonesByCpu>(swarm, loud),
        6 => run::<Sound, Zonal>(swarm, loud),
        7 => run::<Sound, TinyZonal>(swarm, loud),
        8 => run::<Sound, TinySplit>(swarm, loud),
        9 => run::<Sound, Linux316>(swarm, loud),
        10 => run::<Sound, LessDirty>(swarm, loud),
        11 => run::<WithSimSlots, TinyZonal>(swarm, loud),
        12 => run::<Sound, FairZone>(swarm, loud),
        13 => run::<Sound, Linux413>(swarm, loud),
        14 => run::<Sound, FairZonePosted>(swarm, loud),
        _ => run::<Sound, Linux63>(swarm, loud),
    }
}

/// Runs a swarm on a host and a preset.
pub(crate) fn run<K: Parts, S: Policy>(swarm: &Swarm, loud: bool) -> Result<Ran, Failure> {
    let config = swarm.shape.config();
    let pcp_batch = swarm.batch.or(config.pcp_batch);
    let config = Config { cpus: swarm.caches, pcp_batch, ..config };
    let plan = plan::<S>(&swarm.shape.regions(), config);
    with_plan::<Explored<K>, S, _>(swarm.shape, &plan, |world| {
        let ran = rounds(world, swarm, loud);
        let ledger = &world.allocator.platform().ledger;
        match ledger.violation().map_or(ran, Err) {
            Ok(ran) => Ok(ran),
            Err(violation) => Err(Failure { swarm: Box::new(swarm.clone()), violation }),
        }
    })
}

fn rounds<K: Parts, S: Policy>(
    world: &World<'_, Explored<K>, S>,
    swarm: &Swarm,
    loud: bool,
) -> Result<Ran, Violation> {
    let host = world.allocator.platform();
    let seeds = (0..swarm.cpus).map(|cpu| swarm.seed ^ u64::from(cpu + 1) << 40);
    let mut states: Vec<State> = seeds.map(State::new).collect();
    fill(world, swarm, &mut states);
    host.manners.set(swarm.manners);
    for round in 0..swarm.rounds {
        let bodies = states.iter_mut().zip(0..).map(|(state, number)| -> Body<'_> {
            let allocator = &world.allocator;
            let mut cpu = Cpu { number, swarm, allocator, state, handle: None, off: None, loud };
            Box::new(move || cpu.run())
        });
        play(host, swarm, u64::from(round), bodies.collect())?;
        by_one(world, swarm, || check(world))?;
    }
    // Each gives back what it has, all at once.
    let bodies = states.iter_mut().zip(0..).map(|(state, number)| -> Body<'_> {
        let allocator = &world.allocator;
        let mut cpu = Cpu { number, swarm, allocator, state, handle: None, off: None, loud };
        Box::new(move || cpu.give_all())
    });
    play(host, swarm, u64::from(swarm.rounds), bodies.collect())?;
    by_one(world, swarm, || {
        world.allocator.drain_all();
        check(world)?;
        all_is_back(world)
    })?;
    Ok(Ran {
        trace: host.ledger.hash(),
        alone: host.alone.get(),
        among: host.among.get(),
        steps: host.steps.get(),
    })
}

/// Takes memory for the CPUs in turn, before anything runs at once.
fn fill<K: Parts, S: Policy>(
    world: &World<'_, Explored<K>, S>,
    swarm: &Swarm,
    states: &mut [State],
) {
    let allocator = &world.allocator;
    let most = allocator.plan().managed() * swarm.filled / 100;
    let (mut frames, mut refused) = (0, 0);
    for turn in 0.. {
        let cpus = states.len();
        let state = &mut states[turn % cpus];
        let order = swarm.orders[state.dice.usize(..swarm.orders.len())].min(3);
        let migrate = zonal::MigrateType::ALL[swarm.types[state.dice.usize(..swarm.types.len())]];
        let order = Order::new(order).unwrap_or(Order::ZERO);
        if frames + order.frames() > most || refused > cpus {
            return;
        }
        let Ok(pfn) = allocator.alloc_raw(&Request::new(order).migrate(migrate)) else {
            refused += 1;
            continue;
        };
        frames += order.frames();
        allocator.platform().commit(order.frames());
        state.frames += order.frames();
        let movable = migrate == zonal::MigrateType::Movable;
        state.held.push(allocator.platform().ledger.take(pfn, order, movable));
    }
}

/// Runs the CPUs to their end.
fn play<K: Parts>(host: &Explored<K>, swarm: &Swarm, round: u64, bodies: Vec<Body<'_>>) -> Checked {
    let seed = swarm.seed.wrapping_mul(31).wrapping_add(round);
    let (switch_in_1024, slow) = (swarm.switch_in_1024, swarm.slow);
    let explored = explore(Options { seed, switch_in_1024, slow, accesses: ACCESSES }, bodies);
    match explored {
        Ok(explored) => host.ledger.trace(explored.trace),
        // What was seen first is the cause of it.
        Err(error) => host.ledger.fail("run", error.to_string()),
    }
    host.ledger.violation().map_or(Ok(()), Err)
}

/// What one CPU does alone: lists that go round in circles end that, too.
fn by_one<K: Parts, S: Policy>(
    world: &World<'_, Explored<K>, S>,
    swarm: &Swarm,
    f: impl FnOnce() -> Checked,
) -> Checked {
    let host = world.allocator.platform();
    play(host, swarm, 0, vec![Box::new(|| host.ledger.check(alone(f)))])
}

/// No CPU is in the allocator: everything must be as it should (I-1, I-2, I-5, I-7).
fn check<K: Parts, S: Policy>(world: &World<'_, Explored<K>, S>) -> Checked {
    let (allocator, host) = (&world.allocator, world.allocator.platform());
    check_faults(&host.faults())?;
    let snapshot = Snapshot::of(allocator);
    check_all(&snapshot, &host.ledger.model(allocator.plan()), &Rules::of::<S>())?;
    check_clusters(allocator)
}

/// All was freed and drained (I-3).
fn all_is_back<K: Parts, S: Policy>(world: &World<'_, Explored<K>, S>) -> Checked {
    let zones = (0..world.allocator.zone_count() as u8).map(zonal::ZoneId);
    let free: u64 =
        zones.filter_map(|id| world.allocator.zone_info(id)).map(|zone| zone.free).sum();
    let managed = world.allocator.plan().managed();
    if free == managed {
        return Ok(());
    }
    let detail = format!("{free} of {managed} frames are free after all was freed and drained");
    Err(Violation { rule: "I-3", detail })
}

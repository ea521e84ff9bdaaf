//! The random commands get to where the bugs would be: into every place and event.

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use zonal::inspect::Place;
use zonal::policy::FreeMemory;
use zonal::policy::Policy;
use zonal::preset::{Cluster, ClusterFree, Linux416, SkipMerge};
use zonal::{MigrateType, Order};
use zonal_testkit::checkers::Rules;
use zonal_testkit::command::{Command, commands, from_bytes};
use zonal_testkit::preset::TinyZonal;
use zonal_testkit::probe::Probe;
use zonal_testkit::runner::Runner;
use zonal_testkit::shape::Shape;
use zonal_testkit::snapshot::Snapshot;
use zonal_testkit::suite::Dice;
use zonal_testkit::world::with_world;

/// How often each thing was seen after a command.
#[derive(Default, Debug)]
struct Reached {
    /// At most what a fill leaves.
    full: u32,
    cached_blocks: u32,
    reserve: u32,
    free_reserve: u32,
    claimed: u32,
    stolen: u32,
    pledges: u32,
    two_caches: u32,
    skipped: u32,
    skip_merged: u32,
    cuts: u32,
    joins: u32,
}

impl Reached {
    fn note(&mut self, command: &Command, seen: &Snapshot) {
        let any = |what: &dyn Fn(Place) -> bool| {
            u32::from(seen.found.iter().any(|found| what(found.place)))
        };
        let reserved =
            |place| matches!(place, Place::Listed { migrate: MigrateType::HighAtomic, .. });
        let block = |place| matches!(place, Place::Cached { order, .. } if order > Order::ZERO);
        let left: u64 = seen.found.iter().map(|found| found.place.order().frames()).sum();
        self.full += u32::from(left <= 40);
        self.cached_blocks += any(&block);
        self.free_reserve += any(&reserved);
        self.two_caches +=
            u32::from(seen.caches.iter().filter(|(_, cache)| cache.count > 0).count() > 1);
        for zone in &seen.zones {
            self.reserve += u32::from(zone.high_atomic_pageblocks > 0);
            self.claimed += u32::from(zone.events.claimed > 0);
            self.stolen += u32::from(zone.events.stolen > 0);
            self.skipped += u32::from(zone.merge_skipped > 0);
            self.skip_merged += u32::from(zone.events.skip_merged > 0);
            self.cuts += u32::from(zone.events.cluster_cuts > 0);
            self.joins += u32::from(zone.events.cluster_joins > 0);
        }
        self.pledges += u32::from(matches!(command, Command::Pledge { .. }));
    }
}

fn reached<S: Policy>(mut next: impl FnMut() -> (Shape, Vec<Command>)) -> Reached {
    let mut reached = Reached::default();
    for _ in 0..60 {
        let (shape, commands) = next();
        with_world::<Probe, S, _>(shape, |world| {
            let mut runner = Runner::new(world, Rules::of::<S>());
            for command in &commands {
                runner.step(command).unwrap();
                reached.note(command, runner.snapshot());
            }
            runner.finish().unwrap();
        });
    }
    reached
}

/// Whether caches have blocks of more than a frame.
fn check(reached: &Reached, blocks: bool) {
    let Reached { full, cached_blocks, reserve, free_reserve, .. } = *reached;
    let Reached { claimed, stolen, pledges, two_caches, .. } = *reached;
    let always = [full, reserve, free_reserve, claimed, stolen, pledges, two_caches];
    assert!(always.iter().all(|&times| times > 5), "{reached:?}");
    assert_eq!(cached_blocks > 5, blocks, "{reached:?}");
}

/// What the preset `S` does beside that.
fn check_lists<S: Policy>(reached: &Reached) {
    let Reached { skipped, skip_merged, cuts, joins, .. } = *reached;
    let wanted = [
        S::Free::SKIPS_MERGES,
        S::Free::SKIPS_MERGES,
        S::Free::CUTS_BATCHES,
        S::Free::JOINS_BATCHES,
    ];
    assert_eq!([skipped, skip_merged, cuts, joins].map(|times| times > 5), wanted, "{reached:?}");
}

fn generated<S: Policy>() -> Reached {
    let mut runner = TestRunner::deterministic();
    let mut shapes = Shape::ALL.into_iter().cycle();
    reached::<S>(|| {
        let tree = commands(60).new_tree(&mut runner).expect("a sequence");
        (shapes.next().expect("endless"), tree.current())
    })
}

fn decoded<S: Policy>() -> Reached {
    let (mut dice, mut shape) = (Dice::new(7), 0);
    reached::<S>(|| {
        let mut bytes: Vec<u8> = (0..300).map(|_| dice.below(256) as u8).collect();
        bytes[0] = shape;
        shape += 1;
        from_bytes(&bytes, 100)
    })
}

#[test]
fn generated_commands_go_everywhere() {
    check(&generated::<Linux416>(), false);
    check(&generated::<TinyZonal>(), true);
}

fn generated_for_lists<S: Policy>() {
    let reached = generated::<S>();
    check(&reached, false);
    check_lists::<S>(&reached);
}

#[test]
fn generated_commands_skip_cut_and_join() {
    generated_for_lists::<SkipMerge>();
    generated_for_lists::<Cluster>();
    generated_for_lists::<ClusterFree>();
}

#[test]
fn decoded_commands_go_everywhere() {
    check(&decoded::<Linux416>(), false);
    check(&decoded::<TinyZonal>(), true);
}

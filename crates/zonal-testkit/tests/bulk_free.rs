//! Lists of frames: every policy frees what would be freed one by one and refuses the rest; how
//! often the caches are entered for it; and what others see of a list that is half-way.

#[path = "bulk_free/between.rs"]
mod between;

use between::Pausing;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::cell::{Cell, RefCell};
use zonal::error::FreeError;
use zonal::platform::Platform;
use zonal::policy::bulk_free::{BulkFree, CHUNK, Listed, OneByOne, PrepareCommit, Runs};
use zonal::policy::trace::{Event, Point};
use zonal::policy::{Policy, Trace};
use zonal::preset::{Cluster, Linux416, SplitZones, Traced, Zonal};
use zonal::report::VmStat;
use zonal::{BulkFreed, CpuEvents, CpuId, MigrateType, NodeId, Order, Pfn, Request, ZoneId};
use zonal_testkit::checkers::{Rules, check_all, check_faults};
use zonal_testkit::host::TestHost;
use zonal_testkit::lists::FreedBy;
use zonal_testkit::model::Model;
use zonal_testkit::probe::Probe;
use zonal_testkit::shape::Shape;
use zonal_testkit::snapshot::Snapshot;
use zonal_testkit::suite::effort;
use zonal_testkit::world::{World, with_world};

type W<'m, S> = World<'m, Probe, S>;

/// The preset `S` with lists freed as the thread has it, and every free recorded: one type, so that the
/// allocator is compiled once for each preset.
type With<S> = Traced<FreedBy<S, Chosen>, Frees>;

/// The policy that a thread chose.
struct Chosen;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    OneByOne,
    PrepareCommit,
    Runs,
    /// Waits before it commits.
    Pausing,
}

thread_local! {
    static WAY: Cell<Way> = const { Cell::new(Way::PrepareCommit) };
}

impl BulkFree for Chosen {
    fn free(list: &mut impl Listed) {
        match WAY.get() {
            Way::OneByOne => OneByOne::free(list),
            Way::PrepareCommit => PrepareCommit::free(list),
            Way::Runs => Runs::free(list),
            Way::Pausing => Pausing::free(list),
        }
    }
}

/// Keeps the frees and list frees of a thread.
struct Frees;

thread_local! {
    static SEEN: RefCell<[Vec<Pfn>; 2]> = const { RefCell::new([Vec::new(), Vec::new()]) };
}

impl Trace for Frees {
    fn is_on(point: Point) -> bool {
        matches!(point, Point::Free | Point::FreeBatched)
    }
    fn record(event: &Event) {
        SEEN.with_borrow_mut(|[free, batched]| match *event {
            Event::Free { pfn, order: Order::ZERO } => free.push(pfn),
            Event::FreeBatched { pfn } => batched.push(pfn),
            _ => {}
        });
    }
}

/// What was recorded since the last call, sorted.
fn seen() -> [Vec<Pfn>; 2] {
    let mut seen = SEEN.take();
    seen.iter_mut().for_each(|pfns| pfns.sort_unstable());
    seen
}

/// A frame of a list.
#[derive(Clone, Copy, Debug)]
enum Member {
    /// Part of a block that was handed out, by its number and by the frame in it. Single frames
    /// are what may be freed.
    Out { nth: usize, inner: u64 },
    /// What the list has before it.
    Twice { nth: usize },
    /// Whatever is there: free, in a hole, outside the table.
    Any { at: u64 },
}

/// How the list is freed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum How {
    Shared,
    Owned,
    /// While another owner has the CPU's caches.
    Busy,
}

#[derive(Clone, Debug)]
struct Play {
    shape: Shape,
    /// CPU, migrate type, zone limit, order and number of blocks that are taken.
    taken: Vec<(u32, usize, usize, u8, usize)>,
    list: Vec<Member>,
    /// All single frames that are out besides, at the end of the list.
    and_all: bool,
    how: How,
    cpu: u32,
}

fn plays() -> impl Strategy<Value = Play> {
    let order = prop_oneof![6 => Just(0_u8), 1 => 1..4_u8];
    let taken = prop::collection::vec((0..4_u32, 0..3_usize, 0..4_usize, order, 1..60_usize), 1..6);
    let member = prop_oneof![
        12 => (any::<usize>(), 0..8_u64).prop_map(|(nth, inner)| Member::Out { nth, inner }),
        1 => any::<usize>().prop_map(|nth| Member::Twice { nth }),
        1 => any::<u64>().prop_map(|at| Member::Any { at }),
    ];
    let how = prop_oneof![2 => Just(How::Shared), 1 => Just(How::Owned), 1 => Just(How::Busy)];
    let list = prop::collection::vec(member, 0..3 * CHUNK);
    (prop::sample::select(Shape::ALL.to_vec()), taken, list, any::<bool>(), how, 0..4_u32).prop_map(
        |(shape, taken, list, and_all, how, cpu)| Play { shape, taken, list, and_all, how, cpu },
    )
}

impl Play {
    fn take<S: Policy>(&self, world: &W<'_, S>, model: &mut Model<'_>) {
        let allocator = &world.allocator;
        for &(cpu, ty, limit, order, count) in &self.taken {
            allocator.platform().switch_cpu(CpuId(cpu % allocator.cpus()));
            let request = Request::new(Order::new(order).unwrap())
                .migrate(MigrateType::ALL[ty])
                .zone_limit(zonal::ZoneType::ALL[limit]);
            for _ in 0..count {
                let Ok(pfn) = allocator.alloc_raw(&request) else { break };
                model.insert(pfn, request.order());
            }
        }
        allocator.platform().switch_cpu(CpuId(self.cpu % allocator.cpus()));
    }

    fn list(&self, model: &Model<'_>) -> Vec<Pfn> {
        let mut list: Vec<Pfn> = Vec::new();
        for &member in &self.list {
            let pfn = match member {
                Member::Out { nth, inner } => {
                    model.nth(nth).map(|(pfn, order)| Pfn::new(pfn.get() + inner % order.frames()))
                }
                Member::Twice { nth } => list.get(nth % list.len().max(1)).copied(),
                Member::Any { at } => {
                    let plan = model.plan();
                    let span = plan.frames() + 64;
                    Some(Pfn::new(plan.base().get().saturating_sub(32) + at % span))
                }
            };
            list.extend(pfn);
        }
        if self.and_all {
            let singles = model.iter().filter(|(_, order)| *order == Order::ZERO);
            list.extend(singles.map(|(pfn, _)| pfn));
        }
        list
    }
}

/// What the answer must be, and which frames are freed: the model asked one by one.
fn expected(model: &mut Model<'_>, list: &[Pfn]) -> (BulkFreed, Vec<Pfn>) {
    let (mut answer, mut freed) = (BulkFreed::default(), Vec::new());
    for (at, &pfn) in list.iter().enumerate() {
        match model.verdict(pfn, Order::ZERO) {
            Ok(()) => {
                model.remove(pfn);
                freed.push(pfn);
                answer.freed += 1;
            }
            Err(error) => {
                answer.refused += 1;
                answer.first_refused.get_or_insert((at, error));
            }
        }
    }
    freed.sort_unstable();
    (answer, freed)
}

/// Counters of all caches, and frames freed past them.
fn booked<S: Policy>(world: &World<'_, Probe, S>) -> (CpuEvents, u64) {
    let allocator = &world.allocator;
    let zones = || (0..allocator.zone_count() as u8).map(ZoneId);
    let caches = zones().flat_map(|id| (0..allocator.cpus()).map(move |cpu| (id, CpuId(cpu))));
    let events = caches.map(|(id, cpu)| allocator.cache_info(id, cpu).unwrap().events);
    let direct = zones().map(|id| allocator.zone_info(id).unwrap().events.direct_free).sum();
    (events.fold(CpuEvents::default(), CpuEvents::plus), direct)
}

/// All invariants, with what the model has out.
fn check<S: Policy>(world: &World<'_, Probe, S>, model: &Model<'_>)
where
    Probe: TestHost,
{
    check_faults(&world.allocator.platform().faults()).unwrap();
    check_all(&Snapshot::of(&world.allocator), model, &Rules::of::<S>()).unwrap();
}

/// Whether a policy enters caches `entries` times for `frames` frames of them, of a list of `list`
/// frames in `zones` zones.
type Entries = fn(entries: u64, frames: u64, list: u64, zones: u64) -> bool;

fn play<S: Policy>(play: &Play, way: Way, entries_fit: Entries) {
    WAY.set(way);
    with_world::<Probe, With<S>, _>(play.shape, |world| {
        let allocator = &world.allocator;
        let mut model = Model::new(allocator.plan());
        play.take(world, &mut model);
        let list = play.list(&model);
        let (answer, freed) = expected(&mut model, &list);
        let (before, direct_before) = booked(world);
        let zones: std::collections::BTreeSet<_> =
            freed.iter().filter_map(|&pfn| allocator.pageblock_of(pfn)).map(|(id, _)| id).collect();
        let cpu = allocator.platform().cpu();
        seen();
        let got = match play.how {
            How::Shared => allocator.free_bulk(&list),
            How::Owned => allocator.handle(cpu).unwrap().free_bulk(&list),
            How::Busy => {
                let _owner = allocator.handle(cpu).unwrap();
                allocator.free_bulk(&list)
            }
        };
        assert_eq!(got, answer, "{}, {way:?}", S::NAME);
        assert_eq!(seen(), [freed.clone(), freed.clone()], "one event of each kind a frame");
        let (after, direct) = booked(world);
        let frames = after.bulk_frames - before.bulk_frames;
        assert_eq!(after.free - before.free, frames);
        assert_eq!(frames + direct - direct_before, freed.len() as u64);
        if play.how == How::Busy {
            assert_eq!(frames, 0, "past the caches");
        }
        let entries = after.bulk_entries - before.bulk_entries;
        let (list, zones) = (list.len() as u64, zones.len() as u64);
        assert!(
            entries_fit(entries, frames, list, zones),
            "{entries} entries for {frames} frames of {list} in {zones} zones"
        );
        check(world, &model);
        allocator.drain_all();
        check(world, &model);
    });
}

fn same_as_one_by_one<S: Policy>() {
    let one: Entries = |entries, frames, _, _| entries == frames;
    let two: Entries = |entries, frames, list, zones| {
        entries <= frames && entries <= list.div_ceil(CHUNK as u64) * zones
    };
    let runs: Entries = |entries, frames, _, _| entries <= frames;
    let config = Config { cases: effort(150), failure_persistence: None, ..Config::default() };
    let result = TestRunner::new(config).run(&plays(), |case| {
        play::<S>(&case, Way::OneByOne, one);
        play::<S>(&case, Way::PrepareCommit, two);
        play::<S>(&case, Way::Runs, runs);
        Ok(())
    });
    result.unwrap_or_else(|error| panic!("{}: {error}", S::NAME));
}

#[test]
fn same_as_one_by_one_linux416() {
    same_as_one_by_one::<Linux416>();
}

#[test]
fn same_as_one_by_one_cluster() {
    same_as_one_by_one::<Cluster>();
}

#[test]
fn same_as_one_by_one_split_zones() {
    same_as_one_by_one::<SplitZones>();
}

#[cfg(feature = "matrix")]
#[test]
fn same_as_one_by_one_tiny_zonal() {
    same_as_one_by_one::<zonal_testkit::preset::TinyZonal>();
}

/// Toggles for 1000 frames that a task frees in lists of 14, all of one zone and type.
fn toggles(way: Way) -> u64 {
    WAY.set(way);
    with_world::<Probe, With<Linux416>, _>(Shape::Flat, |world| {
        let mut out = vec![Pfn::default(); 1008];
        world.allocator.alloc_bulk(&Request::frame(), &mut out).unwrap();
        let all = out.chunks(14).map(|list| world.allocator.free_bulk(list).freed).sum::<usize>();
        assert_eq!(all, 1008);
        let events = booked(world).0;
        assert_eq!(events.bulk_frames, 1008);
        let text = VmStat(&world.allocator).to_string();
        let lines = [
            "zonal_bulk_free_frames 1008",
            &format!("zonal_bulk_free_entries {}", events.bulk_entries),
        ];
        assert!(lines.iter().all(|line| text.lines().any(|l| l == *line)), "{text}");
        events.bulk_entries
    })
}

#[test]
fn toggles_by_policy() {
    assert_eq!(
        [toggles(Way::OneByOne), toggles(Way::PrepareCommit), toggles(Way::Runs)],
        [1008, 72, 72]
    );
}

/// Frames of two zones in turns: an entry for each run, or two for each chunk.
#[test]
fn zones_in_turns() {
    fn entries(way: Way) -> u64 {
        WAY.set(way);
        with_world::<Probe, With<Linux416>, _>(Shape::TwoNodes, |world| {
            let allocator = &world.allocator;
            let of = |node| {
                let request = Request::frame().nodes(zonal::NodePolicy::Preferred(NodeId(node)));
                let mut out = vec![Pfn::default(); 100];
                allocator.alloc_bulk(&request.this_node(), &mut out).unwrap();
                out
            };
            let list: Vec<Pfn> = of(0).into_iter().zip(of(1)).flat_map(|(a, b)| [a, b]).collect();
            assert_eq!(allocator.free_bulk(&list).freed, 200);
            booked(world).0.bulk_entries
        })
    }
    assert_eq!(entries(Way::OneByOne), 200);
    assert_eq!(entries(Way::PrepareCommit), 8, "four chunks, two zones");
    assert_eq!(entries(Way::Runs), 200);
}

/// Of a pair of one frame the second is refused, in one chunk or in two.
#[test]
fn the_second_of_a_pair_is_refused() {
    fn pairs(way: Way) {
        WAY.set(way);
        for distance in [1, CHUNK - 1, CHUNK, 2 * CHUNK] {
            with_world::<Probe, With<Linux416>, _>(Shape::Flat, |world| {
                let mut list = vec![Pfn::default(); 3 * CHUNK];
                world.allocator.alloc_bulk(&Request::frame(), &mut list).unwrap();
                let order = Order::ZERO;
                let pfn = list[0];
                list.insert(distance, pfn);
                let freed = world.allocator.free_bulk(&list);
                let error = FreeError::DoubleFree { pfn, order };
                assert_eq!(freed.first_refused, Some((distance, error)));
                assert_eq!((freed.freed, freed.refused), (3 * CHUNK, 1));
            });
        }
    }
    pairs(Way::OneByOne);
    pairs(Way::PrepareCommit);
    pairs(Way::Runs);
}

/// Frames that follow each other, up and down, fewer and more than a word of the map has, and one among them that is free.
#[test]
fn one_of_a_run_is_refused() {
    WAY.set(Way::Runs);
    let (request, lens) = (Request::frame().migrate(MigrateType::Movable), [16, 33, 64, 65, 200]);
    with_world::<Probe, With<Zonal>, _>(Shape::Huge, |world| {
        let mut handle = world.allocator.handle(CpuId(0)).unwrap();
        for (len, at) in lens.into_iter().flat_map(|len| (0..=len).map(move |at| (len, at))) {
            let mut list = vec![Pfn::default(); len];
            handle.alloc_bulk(&request, &mut list).unwrap();
            list.sort_unstable();
            assert!(list.is_sorted_by(|a, b| a < b), "none is had twice");
            if at % 2 == 0 {
                list.reverse();
            }
            let single = list.get(at).map(|&pfn| handle.free_raw(pfn, Order::ZERO).unwrap());
            let answer = handle.free_bulk(&list);
            let refused = usize::from(single.is_some());
            assert_eq!((answer.freed, answer.refused), (len - refused, refused));
            assert_eq!(answer.first_refused.map(|(at, _)| at), single.map(|()| at));
        }
        drop(handle);
        check(world, &Model::new(world.allocator.plan()));
    });
}

//! The presets of the 2018 series step by step: what is skipped and when, how a batch is cut off
//! its list and comes back to it, and what the zone's array says of it.

#[path = "clusters/model.rs"]
mod model;

use zonal::frame::FrameState;
use zonal::info::ZoneInfo;
use zonal::plan::Config;
use zonal::policy::Policy;
use zonal::preset::{Cluster, ClusterFree, Linux413, Linux416, SkipMerge};
use zonal::{CompactMode, CompactOutcome, CpuId, MigrateType, Order, Pfn, Request};
use zonal::{TableSize, ZoneId, ZoneType};
use zonal_testkit::cluster_check::check_clusters;
use zonal_testkit::probe::{Probe, take_prefetches};
use zonal_testkit::shape::{Shape, order, plan};
use zonal_testkit::world::{World, with_plan};

type W<'m, S> = World<'m, Probe, S>;

const ZONE: ZoneId = ZoneId(0);
const MOVABLE: Request =
    Request::frame().migrate(MigrateType::Movable).zone_limit(ZoneType::Movable);
/// Finds nothing of its own type in these worlds.
const UNMOVABLE: Request = Request::frame();

/// A world of [`Shape::Scrap`] (96 frames, one CPU, pageblocks of 8), all handed out, by pfn.
fn scrap<S: Policy>(batch: u32, f: impl FnOnce(&W<'_, S>, &[Pfn])) {
    let config = Config { pcp_batch: Some(batch), ..Shape::Scrap.config() };
    let plan = plan::<S>(&Shape::Scrap.regions(), config);
    with_plan::<Probe, S, _>(Shape::Scrap, &plan, |world| {
        let mut out: Vec<Pfn> =
            (0..96).map(|_| world.allocator.alloc_raw(&MOVABLE).expect("a frame")).collect();
        out.sort_unstable();
        f(world, &out);
        assert_eq!(check_clusters(&world.allocator), Ok(()));
    });
}

fn zone<S: Policy>(world: &W<'_, S>) -> ZoneInfo {
    world.allocator.zone_info(ZONE).expect("a zone")
}

/// Frees frames and drains the cache: the first of them is deepest in the list.
fn free<S: Policy>(world: &W<'_, S>, frames: &[Pfn]) {
    for &pfn in frames {
        world.allocator.free_raw(pfn, Order::ZERO).expect("held");
    }
    world.allocator.drain_cpu(CpuId(0));
}

/// The frames of each cluster on a list, from the head on; a frame without one is alone.
fn clusters<S: Policy>(world: &W<'_, S>, migrate: MigrateType) -> Vec<(Option<u32>, Vec<Pfn>)> {
    let mut found: Vec<(Option<u32>, Vec<Pfn>)> = Vec::new();
    world.allocator.visit_clusters(ZONE, migrate, &mut |pfn, cluster| {
        let number = cluster.map(|cluster| cluster.number);
        match found.last_mut() {
            Some((last, frames)) if number.is_some() && *last == number => frames.push(pfn),
            _ => found.push((number, vec![pfn])),
        }
    });
    found
}

/// The movable list from its head on.
fn flat<S: Policy>(world: &W<'_, S>) -> Vec<Pfn> {
    clusters(world, MigrateType::Movable).into_iter().flat_map(|(_, frames)| frames).collect()
}

fn sizes<S: Policy>(world: &W<'_, S>, migrate: MigrateType) -> Vec<usize> {
    clusters(world, migrate).iter().map(|(_, frames)| frames.len()).collect()
}

fn state<S: Policy>(world: &W<'_, S>, pfn: Pfn) -> FrameState {
    world.allocator.frame_state(pfn).expect("in the table")
}

fn skipped_and_marked<S: Policy>() {
    scrap::<S>(4, |world, out| {
        free(world, &out[..8]);
        assert!(out[..8].iter().all(|&pfn| state(world, pfn) == FrameState::MERGE_SKIPPED));
        assert_eq!((zone(world).merge_skipped, zone(world).blocks[0][1]), (8, 8));
        let off = world.allocator.disable_clusters(ZONE);
        // Buddies of frames that were skipped before: they merge with them.
        free(world, &out[8..16]);
        let info = zone(world);
        assert_eq!((info.merge_skipped, info.blocks[3][1]), (8, 1), "not with what was skipped");
        drop(off);
        free(world, &out[16..18]);
        assert_eq!(zone(world).merge_skipped, 10, "skipped again");
        // A block of which one half was skipped.
        free(world, &out[20..21]);
        let off = world.allocator.disable_clusters(ZONE);
        free(world, &out[21..22]);
        drop(off);
        let info = zone(world);
        assert_eq!((info.merge_skipped, info.blocks[1][1]), (10, 1), "with its buddy");
    });
}

fn backed_off_compaction_merges<S: Policy>() {
    scrap::<S>(4, |world, out| {
        let whole = order(5);
        let failed = world.allocator.compact_zone(ZONE, whole, CompactMode::Sync);
        assert_eq!(failed, CompactOutcome::Complete, "all is handed out");
        let backed_off = world.allocator.compact_zone(ZONE, whole, CompactMode::Sync);
        assert_eq!(backed_off, CompactOutcome::BackedOff);
        free(world, &out[..8]);
        let info = zone(world);
        assert_eq!((info.merge_skipped, info.blocks[3][1]), (0, 1), "merged as it came");
        let cuts = info.events.cluster_cuts;
        world.allocator.alloc_raw(&MOVABLE).expect("a frame");
        assert_eq!(zone(world).events.cluster_cuts, cuts, "nothing is cut either");
        free(world, &out[32..64]);
        let formed = world.allocator.compact_zone(ZONE, order(4), CompactMode::Sync);
        assert_eq!(formed, CompactOutcome::Success, "it backs off no longer");
    });
}

/// By the source's test: what was considered since the last back-off counts, and each new one resets it.
fn a_new_back_off_skips_again<S: Policy>() {
    scrap::<S>(4, |world, out| {
        let compact = || world.allocator.compact_zone(ZONE, order(5), CompactMode::Sync);
        assert_eq!(compact(), CompactOutcome::Complete, "all is handed out");
        free(world, &out[..4]);
        assert_eq!(zone(world).merge_skipped, 4, "put off, and nothing was considered since");
        assert_eq!(compact(), CompactOutcome::BackedOff);
        free(world, &out[8..12]);
        assert_eq!((zone(world).merge_skipped, zone(world).blocks[2][1]), (4, 1), "considered");
        assert_eq!(compact(), CompactOutcome::Complete, "and put off anew");
        let before = zone(world).merge_skipped;
        free(world, &out[16..20]);
        assert_eq!(zone(world).merge_skipped, before + 4);
    });
}

fn buddies_are_prefetched<S: Policy>(skipping: usize, merging: usize) {
    scrap::<S>(4, |world, out| {
        let freed = |frames: &[Pfn]| {
            let _ = take_prefetches();
            free(world, frames);
            take_prefetches()
        };
        assert_eq!(freed(&out[..4]), skipping, "{}", S::NAME);
        // One fails, where it can be made at all, and the next is considered.
        for _ in 0..2 {
            let _ = world.allocator.compact_zone(ZONE, order(5), CompactMode::Sync);
        }
        assert_eq!(freed(&out[8..12]), merging, "{}", S::NAME);
    });
}

#[test]
fn the_base_of_2018_prefetches_buddies() {
    buddies_are_prefetched::<Linux416>(4, 4);
    buddies_are_prefetched::<Linux413>(0, 0);
    buddies_are_prefetched::<SkipMerge>(0, 4);
    buddies_are_prefetched::<Cluster>(0, 4);
    buddies_are_prefetched::<ClusterFree>(0, 4);
}

fn guards_nest<S: Policy>() {
    scrap::<S>(4, |world, out| {
        let one = world.allocator.disable_clusters(ZONE).expect("a zone");
        let two = world.allocator.disable_clusters(ZONE).expect("a zone");
        drop(one);
        free(world, &out[..2]);
        assert_eq!(zone(world).merge_skipped, 0, "one is left");
        drop(two);
        free(world, &out[2..4]);
        assert_eq!(zone(world).merge_skipped, 2);
        assert!(world.allocator.disable_clusters(ZoneId(7)).is_none());

        // A disable without its enable: merging is on for good, and nothing is lost.
        std::mem::forget(world.allocator.disable_clusters(ZONE));
        free(world, &out[4..]);
        drop(world.allocator.disable_clusters(ZONE));
        assert_eq!(zone(world).merge_skipped, 2, "as before");
        let cuts = zone(world).events.cluster_cuts;
        let again: Vec<Pfn> =
            (0..96).map(|_| world.allocator.alloc_raw(&MOVABLE).unwrap()).collect();
        assert_eq!(zone(world).events.cluster_cuts, cuts);
        free(world, &again);
        world.allocator.drain_all();
        assert_eq!((zone(world).free, zone(world).blocks[6][1]), (96, 1));
    });
}

/// Work of the holds of one refill, from zero on: those of `zone_info` itself do none.
fn holds_of_a_refill<S: Policy>() -> Vec<(usize, u64)> {
    let mut holds = Vec::new();
    scrap::<S>(31, |world, out| {
        // No two are buddies: nothing merges under any preset.
        let some: Vec<Pfn> = out.iter().copied().step_by(2).collect();
        free(world, &some[..31]);
        let before = zone(world).events.holds;
        world.allocator.alloc_raw(&MOVABLE).expect("a frame");
        let cached = zone(world).cached;
        assert_eq!(cached, 30, "a whole batch");
        let after = zone(world).events.holds;
        let more = (1..13).map(|at| (at, after[at] - before[at]));
        holds = more.filter(|&(_, holds)| holds > 0).collect();
    });
    holds
}

/// A batch of 31 is cut off in one list operation; one by one it takes 31.
#[test]
fn a_refill_works_by_clusters() {
    let below = |work: usize| (u32::BITS - (work as u32).leading_zeros()) as usize;
    assert_eq!(holds_of_a_refill::<Linux416>(), [(below(31), 1)]);
    assert_eq!(holds_of_a_refill::<SkipMerge>(), [(below(31), 1)]);
    assert_eq!(holds_of_a_refill::<Cluster>(), [(below(1), 1)]);
    assert_eq!(holds_of_a_refill::<ClusterFree>(), [(below(1), 1)]);
}

fn at_most_a_batch<S: Policy>() {
    scrap::<S>(5, |world, out| {
        free(world, &out[..13]);
        assert_eq!(sizes(world, MigrateType::Movable), [3, 5, 5]);
        let head = clusters(world, MigrateType::Movable)[0].1.clone();
        let before = zone(world).events.cluster_cuts;
        // The batch is 5: the head's three, then five more.
        let first = world.allocator.alloc_raw(&MOVABLE).expect("a frame");
        assert_eq!((first, zone(world).cached), (head[0], 7));
        assert_eq!(zone(world).events.cluster_cuts, before + 2);
        assert_eq!(sizes(world, MigrateType::Movable), [5]);
        assert_eq!(zone(world).merge_skipped, 5, "what was cut is not free any more");
    });
}

/// Frames leave a cluster at its tail, at its head and in the middle.
#[test]
fn frames_leave_their_cluster() {
    scrap::<Cluster>(6, |world, out| {
        let frames: Vec<Pfn> = (0..6).map(|at| out[at * 8]).collect();
        free(world, &frames);
        let cluster = || {
            let mut found = clusters(world, MigrateType::Movable);
            assert_eq!(found.len(), 1);
            found.pop().expect("one").1
        };
        let mut left: Vec<Pfn> = frames.iter().rev().copied().collect();
        assert_eq!(cluster(), left);
        for at in [5, 0, 2, 2, 1] {
            // Its buddy comes, and they merge.
            let off = world.allocator.disable_clusters(ZONE);
            free(world, &[Pfn::new(left.remove(at).get() + 1)]);
            drop(off);
            assert_eq!(cluster(), left);
            assert_eq!(check_clusters(&world.allocator), Ok(()), "the tail");
        }
    });
}

/// A single frame whose parent could soon merge goes to the tail of its list: its cluster has a
/// new tail.
#[test]
fn frames_join_at_the_tail() {
    scrap::<Cluster>(4, |world, out| {
        free(world, &[out[8], out[16]]);
        let off = world.allocator.disable_clusters(ZONE);
        free(world, &[out[2], out[3]]);
        free(world, &[out[0]]);
        drop(off);
        let found = clusters(world, MigrateType::Movable);
        let frames: Vec<Vec<Pfn>> = found.into_iter().map(|(_, frames)| frames).collect();
        assert_eq!(frames, [[out[16], out[8], out[0]]]);
        assert_eq!(check_clusters(&world.allocator), Ok(()), "the tail");
        let first = world.allocator.alloc_raw(&MOVABLE).expect("a frame");
        assert_eq!((first, zone(world).events.cluster_cuts), (out[16], 1), "and is cut so");
    });
}

/// An array of 6400, all in use, again and again: those that became free are found.
#[test]
fn entries_are_used_again() {
    let config = Config { pcp_batch: Some(2), ..Shape::Huge.config() };
    let plan = plan::<Cluster>(&Shape::Huge.regions(), config);
    with_plan::<Probe, Cluster, _>(Shape::Huge, &plan, |world| {
        for round in 0..3 {
            let out: Vec<Pfn> =
                (0..12800).map(|_| world.allocator.alloc_raw(&MOVABLE).expect("a frame")).collect();
            free(world, &out);
            let found = clusters(world, MigrateType::Movable);
            let whole =
                found.iter().filter(|(number, frames)| number.is_some() && frames.len() == 2);
            assert_eq!((found.len(), whole.count()), (6400, 6400), "round {round}");
            assert_eq!(check_clusters(&world.allocator), Ok(()));
        }
    });
}

/// An array of twelve for batches of 8, and all in use by clusters that share pageblocks: those that
/// change their type find none, stay without a cluster, and are found all the same.
#[test]
fn an_array_that_is_full() {
    scrap::<Cluster>(8, |world, out| {
        // Cluster `at` has a frame of eight different pageblocks.
        let deal = |at: usize| (0..8).map(move |nth| (nth + at) % 12 * 8 + at % 8);
        let mut given: Vec<Pfn> = (0..12).flat_map(deal).map(|at| out[at]).collect();
        let mut seen = std::collections::HashSet::new();
        given.retain(|pfn| seen.insert(*pfn));
        given.extend(out.iter().filter(|pfn| !seen.contains(pfn)));
        free(world, &given);
        assert_eq!(sizes(world, MigrateType::Movable), [8; 12]);
        // Past the cache: it belongs to an owner.
        let owner = world.allocator.handle(CpuId(0)).expect("a CPU");
        let held = world.allocator.alloc_raw(&UNMOVABLE).expect("a pageblock is claimed");
        drop(owner);
        assert_eq!(zone(world).events.claimed, 1);
        let without = clusters(world, MigrateType::Unmovable);
        assert_eq!(without.len(), 7, "all of it is moved");
        assert!(without.iter().all(|(number, _)| number.is_none()), "{without:?}");
        let cuts = zone(world).events.cluster_cuts;
        let rest = [(); 7].map(|()| world.allocator.alloc_raw(&UNMOVABLE).expect("a frame"));
        assert!(rest.iter().all(|pfn| pfn.get() / 8 == held.get() / 8), "of that pageblock");
        assert_eq!(zone(world).events.cluster_cuts, cuts, "there is nothing to cut");
        for &pfn in rest.iter().chain([&held]) {
            world.allocator.free_raw(pfn, Order::ZERO).expect("held");
        }
        world.allocator.drain_all();
        assert_eq!(zone(world).free, 96);
        assert_eq!(check_clusters(&world.allocator), Ok(()));
    });
}

fn batch_of_one<S: Policy>() {
    let config = Config { pcp_batch: Some(1), ..Shape::Scrap.config() };
    let plan = plan::<S>(&Shape::Scrap.regions(), config);
    assert_eq!(TableSize::of::<S>(&plan).free[1], 0, "no array");
    scrap::<S>(1, |world, out| {
        free(world, out);
        assert!(clusters(world, MigrateType::Movable).iter().all(|(number, _)| number.is_none()));
        let again = (0..96).filter(|_| world.allocator.alloc_raw(&MOVABLE).is_ok()).count();
        assert_eq!((again, zone(world).events.cluster_cuts), (96, 0));
    });
}

/// A full batch of movable frames goes in as one cluster, the coldest at its tail; a part of a
/// batch, and a batch of another type, frame by frame.
#[test]
fn full_batches_join() {
    scrap::<ClusterFree>(4, |world, out| {
        free(world, &out[..1]);
        free(world, &out[8..14]);
        let joins = zone(world).events.cluster_joins;
        assert_eq!(joins, 1, "of six frames four");
        let mut expected = [&out[..1], &out[8..14]].concat();
        expected.reverse();
        assert_eq!((flat(world), sizes(world, MigrateType::Movable)), (expected, vec![2, 4, 1]));

        free(world, &[&out[16..64], &out[0..0]].concat());
        let held: Vec<Pfn> =
            (0..8).map(|_| world.allocator.alloc_raw(&UNMOVABLE).unwrap()).collect();
        let joins = zone(world).events.cluster_joins;
        world.allocator.drain_cpu(CpuId(0));
        free(world, &held);
        assert_eq!(zone(world).events.cluster_joins, joins, "not movable");
    });
}

/// The movable list from its head on, after frames were freed from one place of memory and another
/// and one type and another, with batches whole and in parts.
fn list_after_frees<S: Policy>() -> Vec<Pfn> {
    let mut list = Vec::new();
    scrap::<S>(4, |world, out| {
        let order: Vec<Pfn> = (0..96).map(|at| out[at * 37 % 96]).collect();
        free(world, &order[..7]);
        free(world, &order[7..8]);
        free(world, &order[8..20]);
        let held: Vec<Pfn> =
            (0..3).map(|_| world.allocator.alloc_raw(&UNMOVABLE).expect("claimed")).collect();
        world.allocator.drain_cpu(CpuId(0));
        free(world, &[&order[20..22], &held[..2], &order[22..40]].concat());
        list = flat(world);
    });
    list
}

/// A batch that goes back as a chain is where it would be frame by frame.
#[test]
fn chains_keep_the_order() {
    let one_by_one = list_after_frees::<SkipMerge>();
    assert!(one_by_one.len() > 20, "{one_by_one:?}");
    assert_eq!(list_after_frees::<Cluster>(), one_by_one);
    assert_eq!(list_after_frees::<ClusterFree>(), one_by_one);
}

/// The pageblock of a full batch changed its type while the batch was cached: its frames are
/// not on the movable list.
fn claimed_batches<S: Policy>() {
    scrap::<S>(4, |world, out| {
        free(world, &out[..4]);
        for &pfn in &out[4..8] {
            world.allocator.free_raw(pfn, Order::ZERO).expect("held");
        }
        assert_eq!(zone(world).cached, 4, "as movable frames");
        let mut owner = world.allocator.handle(CpuId(0)).expect("a CPU");
        // Past the cache: it belongs to the owner.
        let held = world.allocator.alloc_raw(&UNMOVABLE).expect("a pageblock is claimed");
        owner.free_raw(held, Order::ZERO).expect("held");
        drop(owner);
        assert_eq!(zone(world).events.claimed, 1);
        let joins = zone(world).events.cluster_joins;
        world.allocator.drain_cpu(CpuId(0));
        assert_eq!(zone(world).events.cluster_joins, joins);
        assert_eq!(sizes(world, MigrateType::Movable), [0; 0]);
        let listed: usize = sizes(world, MigrateType::Unmovable).iter().sum();
        assert_eq!(listed, 8, "on the list of their pageblock");
    });
}

#[test]
fn claimed_batches_do_not_join() {
    claimed_batches::<Cluster>();
    claimed_batches::<ClusterFree>();
}

/// Batches given back, and those of one type, as the source counts them.
fn counted<S: Policy>() {
    scrap::<S>(4, |world, out| {
        let counts = |world: &W<'_, S>| {
            let events = zone(world).events;
            (events.free_batches, events.single_type)
        };
        assert_eq!(counts(world), (0, [0; 3]));
        free(world, &out[..14]);
        assert_eq!(counts(world), (4, [0, 3, 0]), "three full batches and a part of one");
        free(world, &out[14..16]);
        for ty in [0, 2] {
            // Claims a pageblock that is free as a whole.
            let request = Request::frame().migrate(MigrateType::ALL[ty]);
            let held = [(); 4].map(|()| world.allocator.alloc_raw(&request).expect("a frame"));
            world.allocator.drain_cpu(CpuId(0));
            let mut expected = counts(world);
            free(world, &held);
            expected.0 += 1;
            expected.1[ty] += 1;
            assert_eq!(counts(world), expected);
        }
        // Two types in one cache.
        let held = world.allocator.alloc_raw(&UNMOVABLE).unwrap();
        world.allocator.drain_cpu(CpuId(0));
        let before = counts(world);
        free(world, &[held, out[40], out[42], out[44]]);
        assert_eq!(counts(world), (before.0 + 1, before.1), "of two types");
    });
}

macro_rules! on_presets {
    ($($module:ident: $preset:ty;)*) => {$(
        mod $module {
            use super::*;
            #[test]
            fn single_frames_are_skipped_and_marked() { skipped_and_marked::<$preset>(); }
            #[test]
            fn not_while_compaction_backs_off() { backed_off_compaction_merges::<$preset>(); }
            #[test]
            fn again_after_a_new_back_off() { a_new_back_off_skips_again::<$preset>(); }
            #[test]
            fn disabling_nests() { guards_nest::<$preset>(); }
            #[test]
            fn small_zones_have_no_clusters() { batch_of_one::<$preset>(); }
            #[test]
            fn batches_are_counted() { counted::<$preset>(); }
        }
    )*};
}

on_presets! {
    skip_merge: SkipMerge;
    cluster: Cluster;
    cluster_free: ClusterFree;
}

#[test]
fn linux416_counts_batches_too() {
    counted::<Linux416>();
}

#[test]
fn clusters_have_at_most_a_batch() {
    at_most_a_batch::<Cluster>();
}

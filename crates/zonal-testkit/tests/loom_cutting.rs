//! Batches that are being cut off, in the presets that cut clusters: from the moment a batch is cut off its list
//! until its states are written, its frames look free and are on no list. Modelled on the
//! shipped core, with each reader that might take them for free, and with policies that do not wait
//! as canaries.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test --release -p zonal-testkit --test models_of_lists loom_cutting -- --nocapture
//! ```
//!
//! All together 72 s on two busy CPUs. One pageblock and batches of two: a frame under loom costs.

use crate::loom_broken::NoRelease;
use crate::loom_broken_clusters::{MergesAtOnce, NeverWaits, only_merges};
use crate::loom_broken_slots::Open;
use crate::loom_world::{World, spawn_on};
use std::rc::Rc;
use zonal::compact::CompactMode;
use zonal::error::FreeError;
use zonal::plan::Plan;
use zonal::policy::cluster::{Clusters, Cut, CutAndJoin};
use zonal::policy::{bulk_free::Runs, merge::SkipSingles};
use zonal::preset::Cluster;
use zonal::zone::lists::BuddyLists;
use zonal::{CpuId, Host, Order, Pfn, Request, ZoneId};
use zonal_testkit::loom_platform::{LoomPlatform, Newest, batch_plan, bound, explore};

zonal::preset! {
    /// [`Cluster`] with other clusters.
    With<C: Clusters> = "With", over Cluster {
        Free = BuddyLists<SkipSingles, C>,
        BulkFree = Runs,
    }
}

/// Words that return what was written last: the counts that are hints are not what is modelled
/// here, states and what is being cut are.
type Loom = LoomPlatform<Newest>;
type Model<C, P = Loom> = World<P, With<C>>;

const ZONE: ZoneId = ZoneId(0);
/// Claims a pageblock when its type has nothing.
const UNMOVABLE: Request = Request::frame();

/// A world whose frames are all held but `free`, which are on the movable list, the first of
/// them at its head, in clusters of two, merge-skipped. Returns what is held, by pfn.
fn world<C: Clusters, P: Host + Default + 'static>(
    plan: &'static Plan,
    free: &[u64],
) -> (Rc<Model<C, P>>, Vec<Pfn>) {
    let world = Model::<C, P>::new(plan);
    let mut held = world.take_on(0, plan.frames() as usize);
    held.sort_unstable();
    // A spill gives the coldest first, and what is given last is at the head.
    for &pfn in free.iter().rev() {
        world.give(Pfn::new(pfn));
    }
    world.allocator().drain_cpu(CpuId(0));
    held.retain(|pfn| !free.contains(&pfn.get()));
    let zone = world.zone();
    assert_eq!((zone.free, zone.merge_skipped), (free.len() as u64, free.len() as u64));
    (world, held)
}

/// All blocks go back, and all is well.
fn end<C: Clusters, P: Host>(world: &Model<C, P>, held: impl IntoIterator<Item = Pfn>) {
    held.into_iter().for_each(|pfn| world.give(pfn));
    let after = world.settle();
    assert_eq!(after.events.refused, 0, "no copies without misuse");
}

/// One cuts a batch off; the other's request finds nothing of its own type, and the pageblock
/// changes its type with all that is free in it.
fn claim<C: Clusters, P: Host + Default + 'static>(bound: Option<usize>) {
    let plan = batch_plan(8, 2, 2);
    explore("claim", bound, move || {
        let (world, held) = world::<C, P>(plan, &[1, 4, 2, 7, 5, 3]);
        let other = spawn_on(&world, 1, |world| world.ask(&UNMOVABLE));
        let mine = world.take();
        let theirs = other.join().unwrap();
        assert!(mine.is_some() && theirs.is_some(), "I-6: six are free");
        end(&world, held.into_iter().chain(mine).chain(theirs));
    });
}

/// See [`claim`].
///
/// At most 5 preemptions, in a preflight at most 3: 8 500 runs, 3.3 s.
#[test]
fn a_pageblock_changes_its_type() {
    claim::<Cut, Loom>(bound(3, Some(5)));
}

/// Canary: [`claim`] by a thread that does not wait.
#[test]
#[should_panic(expected = "I-")]
fn canary_claim() {
    claim::<NeverWaits, Loom>(Some(2));
}

/// Canary: [`claim`] when the end of the cut does not release what was written in it.
#[test]
#[should_panic(expected = "I-")]
fn canary_no_release() {
    claim::<Cut, LoomPlatform<NoRelease>>(Some(2));
}

/// Gives `pfn` and all else that CPU 1 has back to the lists.
fn give_past<C: Clusters>(world: &Model<C>, pfn: Pfn) {
    world.give(pfn);
    world.allocator().drain_cpu(CpuId(1));
}

/// One cuts a batch off; the other disables clusters and frees the buddy of the first that is
/// being cut: single frames merge then.
fn merge<C: Clusters>(bound: Option<usize>) {
    let plan = batch_plan(8, 2, 2);
    explore("merge", bound, move || {
        let (world, mut held) = world::<C, Loom>(plan, &[2, 5, 1, 7]);
        let buddy = held.remove(1);
        assert_eq!(buddy, Pfn::new(3));
        let other = spawn_on(&world, 1, move |world| {
            let off = world.allocator().disable_clusters(ZONE);
            give_past(world, buddy);
            drop(off);
        });
        let mine = world.take();
        assert!(mine.is_some(), "I-6: four are free");
        other.join().unwrap();
        end(&world, held.into_iter().chain(mine));
    });
}

/// See [`merge`].
///
/// All schedules, in a preflight at most those with 3 preemptions: 9 600 runs, 2.9 s.
#[test]
fn clusters_are_disabled_and_a_frame_merges() {
    merge::<Cut>(bound(3, None));
}

/// Canary: [`merge`] by a thread that does not wait.
#[test]
#[should_panic(expected = "I-")]
fn canary_merge() {
    merge::<NeverWaits>(Some(2));
}

/// After a compaction in vain the zone backs off: from the next attempt on single frames merge, though clusters are
/// enabled again and a batch may have been cut off in between. The source says that merging
/// cannot begin while a batch is being cut off, because compaction waits; but what puts it off
/// does not.
fn back_off<C: Clusters>(bound: Option<usize>) {
    let plan = batch_plan(16, 2, 2);
    explore("back_off", bound, move || {
        let (world, mut held) = world::<C, Loom>(plan, &[2, 5, 1, 7, 9, 11]);
        let buddy = held.remove(1);
        let other = spawn_on(&world, 1, move |world| {
            let block = Order::new(1).expect("an order");
            let _ = world.allocator().compact_zone(ZONE, block, CompactMode::Sync);
            // The next attempt is put off, and that ends the skipping, unless too little is free by now.
            let _ = world.allocator().compact_in_background(block);
            only_merges(true);
            give_past(world, buddy);
            only_merges(false);
        });
        let mine = world.take();
        assert!(mine.is_some(), "I-6: four are free");
        other.join().unwrap();
        end(&world, held.into_iter().chain(mine));
    });
}

/// See [`back_off`].
///
/// At most 3 preemptions: 4 900 runs, 3 s; 4: 47 900 runs, 27 s.
#[test]
fn compaction_backs_off_and_a_frame_merges() {
    back_off::<Cut>(Some(3));
}

/// Canary: [`back_off`] with the source's rule: who scans or disables waits, who merges does not.
#[test]
#[should_panic(expected = "I-")]
fn canary_back_off() {
    back_off::<MergesAtOnce>(Some(3));
}

/// One cuts a batch off; the other merges what was skipped, frame by frame.
fn drain<C: Clusters>(bound: Option<usize>) {
    let plan = batch_plan(8, 2, 2);
    explore("drain", bound, move || {
        let (world, held) = world::<C, Loom>(plan, &[2, 3, 0, 1]);
        let other = spawn_on(&world, 1, |world| world.allocator().drain_all());
        let mine = world.take();
        assert!(mine.is_some(), "I-6: four are free");
        other.join().unwrap();
        end(&world, held.into_iter().chain(mine));
    });
}

/// See [`drain`].
///
/// All schedules, in a preflight at most those with 3 preemptions: 38 400 runs, 11.8 s.
#[test]
fn a_drain_merges_what_was_skipped() {
    drain::<Cut>(bound(3, None));
}

/// Canary: [`drain`] by a thread that does not wait.
#[test]
#[should_panic(expected = "a held block can be freed: DoubleFree")]
fn canary_drain() {
    drain::<NeverWaits>(Some(2));
}

/// One cuts a batch off and another, while a request for a larger block has compaction merge. By
/// a request, because that empties the caches before its attempt is considered, which ends the
/// cutting: a batch can be cut off in between.
fn compact<C: Clusters>(bound: Option<usize>) {
    let plan = batch_plan(8, 2, 2);
    explore("compact", bound, move || {
        let (world, held) = world::<C, Loom>(plan, &[2, 3, 0, 1]);
        let order = Order::new(2).expect("an order");
        let other = spawn_on(&world, 1, move |world| world.take_block(order));
        let mine = world.take();
        let theirs = other.join().unwrap();
        assert!(mine.is_some() || theirs.is_some(), "I-6: four are free");
        theirs.into_iter().for_each(|pfn| world.give_block(pfn, order));
        end(&world, held.into_iter().chain(mine));
    });
}

/// See [`compact`].
///
/// At most 3 preemptions, in a preflight at most 2: 13 100 runs, 2.7 s; 4: 204 700 runs, 28 s.
#[test]
fn compaction_merges_what_was_skipped() {
    compact::<Cut>(bound(2, Some(3)));
}

/// Canary: [`compact`] by a thread that does not wait.
#[test]
#[should_panic(expected = "a held block can be freed: DoubleFree")]
fn canary_compact() {
    compact::<NeverWaits>(Some(2));
}

/// Two are cutting at once; a third changes the pageblock's type.
fn two_cut<C: Clusters>() {
    let plan = batch_plan(8, 3, 2);
    explore("two cut at once", bound(2, Some(3)), move || {
        let (world, held) = world::<C, Loom>(plan, &[1, 4, 2, 7, 5, 3]);
        let others = [1, 2].map(|cpu| spawn_on(&world, cpu, World::take));
        let mine = world.ask(&UNMOVABLE);
        let theirs = others.map(|other| other.join().unwrap());
        assert!(mine.is_some() && theirs.iter().all(Option::is_some), "I-6: six are free");
        end(&world, held.into_iter().chain(mine).chain(theirs.into_iter().flatten()));
    });
}

/// At most 3 preemptions, in a preflight at most 2: 47 400 runs, 27 s.
#[test]
fn two_cut_at_once() {
    two_cut::<Cut>();
}

/// Canary: the third does not wait for the two.
#[test]
#[should_panic(expected = "I-")]
fn canary_two_cut() {
    two_cut::<NeverWaits>();
}

/// The other frees on the same CPU, past the cache that is being filled: a frame whose buddy
/// may be being cut off, and, by mistake, one that is free on its list, being cut off, or in
/// the cache.
fn frees<P: Host + Default + 'static>() {
    let plan = batch_plan(8, 2, 2);
    explore("frees around a cut", bound(3, None), move || {
        let (world, mut held) = world::<Cut, P>(plan, &[2, 5, 1, 7]);
        let buddy = held.remove(1);
        let other = spawn_on(&world, 0, move |world| {
            world.give(buddy);
            let (pfn, order) = (Pfn::new(5), Order::ZERO);
            let twice = world.allocator().free_raw(pfn, order);
            assert_eq!(twice, Err(FreeError::DoubleFree { pfn, order }), "I-4");
        });
        let mine = world.take();
        other.join().unwrap();
        end(&world, held.into_iter().chain(mine));
    });
}

/// All schedules, in a preflight at most those with 3 preemptions: 30 800 runs, 16 s.
#[test]
fn frees_around_a_cut() {
    frees::<Loom>();
}

/// Canary: who frees is in the cache that is being filled.
#[test]
#[should_panic(expected = "two are inside")]
fn canary_frees() {
    frees::<Open>();
}

/// An array of eight, all in use by clusters of a frame of each pageblock: when one pageblock changes
/// its type, its frames find no entry, unless a batch is cut off in time.
fn full<C: Clusters>() {
    let free: Vec<u64> = (0..8).flat_map(|at| [at, at + 8]).collect();
    let plan = batch_plan(16, 2, 2);
    explore("the array is full", Some(3), move || {
        let (world, held) = world::<C, Loom>(plan, &free);
        let other = spawn_on(&world, 1, |world| world.ask(&UNMOVABLE));
        let mine = world.take();
        let theirs = other.join().unwrap();
        assert!(mine.is_some() && theirs.is_some(), "I-6: all were free");
        end(&world, held.into_iter().chain(mine).chain(theirs));
    });
}

/// At most 3 preemptions: 3 100 runs, 1.4 s.
#[test]
fn the_array_is_full() {
    full::<Cut>();
}

/// Canary: who claims does not wait.
#[test]
#[should_panic(expected = "a held block can be freed: DoubleFree")]
fn canary_full() {
    full::<NeverWaits>();
}

/// Two disable clusters, one of them twice, while one cuts and one frees.
fn disabled<C: Clusters>() {
    let plan = batch_plan(8, 3, 2);
    explore("disabled and enabled", bound(2, Some(3)), move || {
        let (world, mut held) = world::<C, Loom>(plan, &[2, 5, 1, 7]);
        let buddy = held.remove(1);
        let others = [
            spawn_on(&world, 1, move |world| {
                let off = world.allocator().disable_clusters(ZONE);
                give_past(world, buddy);
                drop(off);
                None
            }),
            spawn_on(&world, 2, World::take),
        ];
        let off = [(); 2].map(|()| world.allocator().disable_clusters(ZONE));
        drop(off);
        let theirs = others.map(|other| other.join().unwrap());
        end(&world, held.into_iter().chain(theirs.into_iter().flatten()));
    });
}

/// At most 3 preemptions, in a preflight at most 2: 38 000 runs, 24 s.
#[test]
fn disabled_and_enabled_around_it_all() {
    disabled::<Cut>();
}

/// Canary: who disables clusters does not wait.
#[test]
#[should_panic(expected = "I-")]
fn canary_disabled() {
    disabled::<NeverWaits>();
}

/// A full batch goes back as one cluster while the pageblock changes its type: it does not go
/// on the list of the old type.
fn joins<P: Host + Default + 'static>() {
    let plan = batch_plan(8, 2, 2);
    explore("a batch joins", bound(2, Some(4)), move || {
        let (world, held) = world::<CutAndJoin, P>(plan, &[1, 4, 2, 7]);
        let (batch, held) = held.split_at(2);
        world.give_on(0, batch);
        let other = spawn_on(&world, 1, |world| world.ask(&UNMOVABLE));
        world.allocator().drain_cpu(CpuId(0));
        let mine = world.take();
        let theirs = other.join().unwrap();
        assert!(mine.is_some() && theirs.is_some(), "I-6: six are free");
        end(&world, held.iter().copied().chain(mine).chain(theirs));
    });
}

/// At most 4 preemptions, in a preflight at most 2: 29 800 runs, 11 s.
#[test]
fn a_batch_joins_while_its_pageblock_is_claimed() {
    joins::<Loom>();
}

/// Canary: the end of the cut does not release what was written in it.
#[test]
#[should_panic(expected = "I-")]
fn canary_joins() {
    joins::<LoomPlatform<NoRelease>>();
}

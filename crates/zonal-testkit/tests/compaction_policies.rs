//! What compaction evacuates next, and what it merges: the policies side by side.

use super::ledger::{Dice, Ledger, MOVABLE, ZONE, events, fragmented};
use std::collections::BTreeMap;
use zonal::policy::Policy;
use zonal::preset::{Cluster, ClusterFree, Linux416, SkipMerge, Zonal};
use zonal::{CompactMode, CompactOutcome, CpuId, Order, Pfn};
use zonal_testkit::mover::Moving;
use zonal_testkit::probe::Probe;
use zonal_testkit::shape::{Shape, order};
use zonal_testkit::world::with_world;

/// Presets that differ in what is evacuated next, and in nothing else.
type InOrder = Linux416;
type Cheapest = super::compaction_together::Turns;

/// (blocks formed, frames moved) for as many order-9 blocks as can be had. One page in
/// `pinned` stays where it is (0: none).
fn harvest<S: Policy>(seed: u64, percent: u64, pinned: u64) -> (u64, u64) {
    let mut result = (0, 0);
    with_world::<Probe, S, _>(Shape::Huge, |world| {
        let (mut ledger, mut dice) = (Ledger::new(world), Dice(seed));
        ledger.fill(&MOVABLE);
        // Pageblocks of different fullness.
        for (name, (pfn, _)) in ledger.pages.clone() {
            let spread = pfn.get() / 512 * 7 % 40;
            if dice.below(100) >= percent + spread - 20 {
                ledger.give(name);
            }
        }
        world.allocator.drain_all();
        let movers = world.allocator.platform().movers();
        for (pfn, order, name) in movers.blocks() {
            if pinned > 0 && dice.below(pinned) == 0 {
                // Known to no mover: it is refused.
                movers.drop_block(pfn);
                movers.adopt(Pfn::new(1 << 40 | name), order, name);
            }
        }
        movers.set(Moving::Obeys);
        while world.allocator.alloc_raw(&MOVABLE.with_order(Order::HUGE)).is_ok() {
            result.0 += 1;
        }
        result.1 = world.allocator.zone_info(ZONE).unwrap().compaction.migrate_success;
    });
    result
}

#[test]
fn the_cheapest_block_moves_fewer_pages() {
    for pinned in [0, 2000] {
        let (mut in_order, mut cheapest) = ((0, 0), (0, 0));
        for seed in 0..8 {
            let add =
                |sum: &mut (u64, u64), (blocks, moved)| *sum = (sum.0 + blocks, sum.1 + moved);
            add(&mut in_order, harvest::<InOrder>(seed, 60, pinned));
            add(&mut cheapest, harvest::<Cheapest>(seed, 60, pinned));
        }
        println!(
            "1 page in {pinned} stays: in order {in_order:?}, cheapest {cheapest:?} (blocks, moved)"
        );
        assert!(cheapest.0 >= in_order.0, "no fewer blocks");
        // Moves per block, cross-multiplied: at most four fifths.
        assert!(5 * cheapest.1 * in_order.0 <= 4 * in_order.1 * cheapest.0, "fewer moves");
    }
}

/// Exactly one page stays: exactly one block is given up, for one question.
#[test]
fn a_page_that_stays_costs_one_block() {
    fragmented::<Cheapest>(Shape::Huge, 60, Moving::Obeys, |ledger| {
        let platform = ledger.world.allocator.platform();
        let pinned = platform.movers().blocks().into_iter().map(|(pfn, ..)| pfn);
        let mut first_of_each = BTreeMap::new();
        pinned.for_each(|pfn| {
            first_of_each.entry(pfn.get() / 512).or_insert(pfn);
        });
        // All blocks but one begin with a page that stays.
        let open = 0x4000 / 512 + 11;
        let mut kept = Vec::new();
        for (&block, &pfn) in first_of_each.iter().filter(|(block, _)| **block != open) {
            kept.push((block, pfn, platform.movers().drop_block(pfn).unwrap()));
        }
        let outcome = ledger.compact(Order::HUGE, CompactMode::Sync);
        assert_eq!(outcome, CompactOutcome::Success);
        let calls = platform.take_calls().migrations;
        let refused = events(ledger).migrate_fail;
        assert!(refused <= 24, "each is asked once");
        let moved: Vec<_> = calls.iter().filter(|page| page.from.get() / 512 == open).collect();
        assert_eq!(moved.len() as u64, events(ledger).migrate_success, "and nothing else moved");
        for (_, pfn, (order, name)) in kept {
            platform.movers().adopt(pfn, order, name);
        }
    });
}

/// Asynchronous compactions until all memory, which is free, has a block of 32 frames; `drained`:
/// caches were emptied before the first.
fn passes<S: Policy>(drained: bool) -> u64 {
    let mut passes = 1;
    with_world::<Probe, S, _>(Shape::Flat, |world| {
        let mut ledger = Ledger::new(world);
        ledger.fill(&MOVABLE);
        ledger.thin_out(&mut Dice(1), 0);
        let cpus = if drained { world.allocator.cpus() } else { 0 };
        for cpu in 0..cpus {
            world.allocator.drain_cpu(CpuId(cpu));
        }
        while ledger.compact(order(5), CompactMode::Async) != CompactOutcome::Success {
            passes += 1;
            assert!(passes < 100, "{}: it does not end", S::NAME);
        }
        ledger.finish();
    });
    passes
}

/// Of frames whose merging was skipped, asynchronous compaction merges four in a block and pass.
#[test]
fn skipped_frames_are_merged_by_fours() {
    let all = |drained| {
        [passes::<SkipMerge>(drained), passes::<Cluster>(drained), passes::<ClusterFree>(drained)]
    };
    assert_eq!(all(true), [32 / 4; 3]);
    // The first attempt is considered, as in the source, before it empties the caches: what comes
    // out of them merges.
    assert_eq!(all(false), [1; 3]);
    assert_eq!([passes::<Linux416>(true), passes::<Zonal>(true)], [1, 1]);
}

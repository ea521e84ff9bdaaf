//! Compaction, with hosts that move pages, refuse, lie, panic, or take for ever.

use super::ledger::{Dice, Ledger, MOVABLE, W, ZONE, events, fragmented};
use std::panic::{AssertUnwindSafe, catch_unwind};
use zonal::policy::FreeMemory;
use zonal::policy::{Compact, Policy};
use zonal::watermark::Watermarks;
use zonal::{CompactMode, CompactOutcome, CpuId, MigrateType, Order, Request, ZoneId};
use zonal_testkit::host::TestHost;
use zonal_testkit::mover::Moving;
use zonal_testkit::probe::Probe;
use zonal_testkit::shape::{Shape, order};
use zonal_testkit::world::with_world;

fn blocks_form<S: Policy>(mode: CompactMode) {
    for (shape, wanted) in [
        (Shape::Huge, Order::HUGE),
        (Shape::Flat, order(5)),
        (Shape::Whole, order(7)),
        (Shape::Flat, order(7)),
        (Shape::Flat, order(3)),
    ] {
        fragmented::<S>(shape, 60, Moving::Obeys, |ledger| {
            let request = MOVABLE.with_order(wanted).no_wait();
            assert!(ledger.world.allocator.alloc_raw(&request).is_err(), "it has to be made");
            assert_eq!(ledger.compact(wanted, mode), CompactOutcome::Success, "{shape:?} {wanted}");
            let moved = events(ledger).migrate_success;
            assert!(moved > 0);
            assert_eq!(ledger.compact(wanted, mode), CompactOutcome::Success, "it is there");
            assert_eq!(events(ledger).migrate_success, moved, "nothing more was moved");
            assert!(ledger.take(&request).is_some(), "and can be had");
        });
    }
}

/// What asynchronous compaction leaves alone.
fn async_keeps_out_of_unmovable_pageblocks<S: Policy>() {
    with_world::<Probe, S, _>(Shape::Whole, |world| {
        let mut ledger = Ledger::new(world);
        ledger.fill(&Request::frame());
        ledger.thin_out(&mut Dice(3), 60);
        world.allocator.drain_all();
        world.allocator.platform().movers().set(Moving::Obeys);
        let outcome = ledger.compact(order(6), CompactMode::Async);
        assert_ne!(outcome, CompactOutcome::Success);
        assert!(world.allocator.platform().take_calls().migrations.is_empty());
        // Synchronous compaction asks, but there is nowhere to go.
        let outcome = ledger.compact(order(6), CompactMode::Sync);
        assert_eq!(outcome, CompactOutcome::Complete);
        ledger.finish();
    });
}

fn refusals_are_believed_and_backed_off<S: Policy>() {
    fragmented::<S>(Shape::Huge, 60, Moving::Refuses, |ledger| {
        let wanted = Order::HUGE;
        let outcome = ledger.compact(wanted, CompactMode::Async);
        assert_eq!(outcome, CompactOutcome::Complete);
        let calls = ledger.world.allocator.platform().take_calls();
        assert!(calls.migrations.iter().all(|page| !page.may_wait));
        // Each block begins with a page; where the scanners meet, the last is not asked for.
        assert!((20..=25).contains(&calls.migrations.len()), "one page of each aligned block");
        assert_eq!(events(ledger).migrate_fail, calls.migrations.len() as u64);
        let outcome = ledger.compact(wanted, CompactMode::Sync);
        assert_eq!(outcome, CompactOutcome::Complete);
        let calls = ledger.world.allocator.platform().take_calls();
        assert!(!calls.migrations.is_empty() && calls.migrations.iter().all(|page| page.may_wait));
        for shift in [1, 2, 3].map(|shift: u64| shift.min(S::Compact::MAX_BACKOFF_SHIFT)) {
            for _ in 0..(1 << shift) - 1 {
                let outcome = ledger.compact(wanted, CompactMode::Sync);
                assert_eq!(outcome, CompactOutcome::BackedOff);
            }
            assert_eq!(ledger.compact(order(8), CompactMode::Async), CompactOutcome::Complete);
            let outcome = ledger.compact(wanted, CompactMode::Sync);
            assert_eq!(outcome, CompactOutcome::Complete);
        }
        assert_eq!(events(ledger).migrate_success, 0);
        ledger.world.allocator.platform().movers().set(Moving::Obeys);
        let attempts = 1 << S::Compact::MAX_BACKOFF_SHIFT.min(4);
        let outcomes: Vec<_> =
            (0..attempts).map(|_| ledger.compact(wanted, CompactMode::Sync)).collect();
        let (last, before) = outcomes.split_last().unwrap();
        assert!(before.iter().all(|&outcome| outcome == CompactOutcome::BackedOff));
        assert_eq!(*last, CompactOutcome::Success);
        let block = ledger.take(&MOVABLE.with_order(wanted)).unwrap();
        ledger.give(block);
    });
}

/// The host frees one of the two blocks behind the allocator's back.
fn mismatches_are_counted<S: Policy>(moving: Moving) {
    fragmented::<S>(Shape::Huge, 60, moving, |ledger| {
        let platform = ledger.world.allocator.platform();
        let outcome = ledger.world.allocator.compact_zone(ZONE, Order::HUGE, CompactMode::Async);
        let mismatches = platform.take_calls().migrations;
        assert!(!mismatches.is_empty());
        for mismatch in &mismatches {
            if moving == Moving::FreesOld {
                // It said that the page is in its new place: so it is.
                let (order, name) = platform.movers().drop_block(mismatch.from).unwrap();
                platform.movers().adopt(mismatch.to, order, name);
            }
        }
        ledger.lied_to = true;
        assert_eq!(events(ledger).migrate_mismatches, mismatches.len() as u64);
        assert_eq!(events(ledger).migrate_success, 0);
        assert_ne!(outcome, CompactOutcome::BackedOff);
        ledger.check();
    });
}

fn a_panic_loses_nothing<S: Policy>() {
    fragmented::<S>(Shape::Huge, 60, Moving::Panics, |ledger| {
        let allocator = &ledger.world.allocator;
        for mode in [CompactMode::Async, CompactMode::Sync] {
            let compact = || allocator.compact_zone(ZONE, Order::HUGE, mode);
            assert!(catch_unwind(AssertUnwindSafe(compact)).is_err());
        }
        ledger.check();
        ledger.world.allocator.platform().movers().set(Moving::Obeys);
        let outcome = ledger.compact(Order::HUGE, CompactMode::Sync);
        assert_eq!(outcome, CompactOutcome::Success, "no compaction is running any more");
    });
}

fn requests_wait_for_compaction<S: Policy>() {
    fragmented::<S>(Shape::Huge, 60, Moving::Obeys, |ledger| {
        let allocator = &ledger.world.allocator;
        let huge = MOVABLE.with_order(Order::HUGE);
        for request in [huge.no_wait(), huge.atomic()] {
            assert!(allocator.alloc_raw(&request).is_err());
            let calls = allocator.platform().take_calls();
            assert!(calls.migrations.is_empty(), "it cannot wait");
            assert_eq!(calls.compaction_woken, [(ZONE, Order::HUGE)]);
        }
        let block = ledger.take(&huge).expect("made by compaction");
        let calls = allocator.platform().take_calls();
        assert!(!calls.migrations.is_empty());
        assert!(calls.reclaims.is_empty(), "compaction was enough");
        // For this block, and by presets that stay ahead for the next one.
        let woken = 1 + usize::from(S::Compact::STAYS_AHEAD);
        assert_eq!(calls.compaction_woken, vec![(ZONE, Order::HUGE); woken]);
        let seen = events(ledger);
        assert_eq!((seen.stall, seen.success, seen.fail), (1, 1, 0));
        ledger.check();
        // Other migrate types are served as well.
        let unmovable = ledger.take(&Request::new(Order::HUGE)).expect("made by compaction");
        ledger.check();
        allocator.platform().take_calls();
        let frames: Vec<_> =
            std::iter::from_fn(|| allocator.alloc_raw(&Request::frame()).ok()).collect();
        let calls = allocator.platform().take_calls();
        assert!(
            calls.migrations.is_empty() && calls.compaction_woken.is_empty(),
            "not for one frame"
        );
        frames.into_iter().for_each(|pfn| allocator.free_raw(pfn, Order::ZERO).unwrap());
        ledger.give(block);
        ledger.give(unmovable);
    });
}

/// A host that cannot move: nothing to gain but merges.
fn without_a_host<S: Policy>() {
    fragmented::<S>(Shape::Flat, 60, Moving::Cannot, |ledger| {
        let expected = match S::Free::SKIPS_MERGES {
            true => CompactOutcome::Complete,
            false => CompactOutcome::Unavailable,
        };
        assert_eq!(ledger.compact(order(6), CompactMode::Async), expected);
        let allocator = &ledger.world.allocator;
        assert!(allocator.alloc_raw(&MOVABLE.with_order(order(6))).is_err());
        let missing = allocator.compact_zone(ZoneId(9), order(6), CompactMode::Sync);
        assert_eq!(missing, CompactOutcome::Unavailable, "no such zone");
        let one = allocator.compact_zone(ZONE, Order::ZERO, CompactMode::Sync);
        assert_eq!(one, CompactOutcome::NotSuitable);
    });
}

/// What is cached or merge-skipped only has to be put together.
fn merging_alone_forms_blocks<S: Policy>() {
    for moving in [Moving::Cannot, Moving::Refuses] {
        with_world::<Probe, S, _>(Shape::Flat, |world| {
            let mut ledger = Ledger::new(world);
            ledger.fill(&MOVABLE);
            ledger.thin_out(&mut Dice(1), 0);
            world.allocator.platform().movers().set(moving);
            let outcome = ledger.compact(order(5), CompactMode::Sync);
            assert_eq!(outcome, CompactOutcome::Success);
            assert!(world.allocator.platform().take_calls().migrations.is_empty());
            ledger.finish();
        });
    }
}

fn too_little_memory_is_not_suitable<S: Policy>() {
    fragmented::<S>(Shape::Huge, 93, Moving::Obeys, |ledger| {
        let outcome = ledger.compact(Order::HUGE, CompactMode::Sync);
        assert_eq!(outcome, CompactOutcome::NotSuitable, "less than twice the block is free");
        assert!(ledger.world.allocator.platform().take_calls().migrations.is_empty());
    });
}

/// The background compactor leaves a zone alone that has a frame too little above its low mark.
fn too_little_room_for_the_background<S: Policy>() {
    with_world::<Probe, S, _>(Shape::Huge, |world| {
        let mut ledger = Ledger::new(world);
        ledger.fill(&MOVABLE);
        ledger.thin_out(&mut Dice(1), 80);
        let allocator = &world.allocator;
        allocator.platform().movers().set(Moving::Obeys);
        let mark = |low| allocator.set_watermarks(ZONE, Watermarks { min: 0, low, high: low });
        // Where bounds follow from the low mark, setting it empties the caches.
        assert!(mark(0));
        let free = allocator.zone_info(ZONE).unwrap().free;
        let low = free.checked_sub(2 * Order::HUGE.frames()).expect("that much is free");
        assert!(mark(low));
        let outcome = allocator.compact_in_background(Order::HUGE);
        assert_eq!(outcome, CompactOutcome::NotSuitable);
        ledger.finish();
    });
}

/// Called again and again, the background compactor makes most of the free memory usable, or one
/// block.
fn the_background_rests_when_it_is_done<S: Policy>() {
    fragmented::<S>(Shape::Huge, 40, Moving::Obeys, |ledger| {
        let allocator = &ledger.world.allocator;
        let unusable = || {
            let blocks = allocator.zone_info(ZONE).unwrap().blocks;
            zonal::report::unusable_permille(&blocks)[Order::HUGE.index()]
        };
        assert!(unusable() > 900);
        let mut calls = 0;
        loop {
            match allocator.compact_in_background(Order::HUGE) {
                CompactOutcome::Success | CompactOutcome::PartialSkipped => calls += 1,
                outcome => {
                    assert_eq!(outcome, CompactOutcome::NotSuitable, "nothing more to do");
                    break;
                }
            }
            assert!(calls < 100);
        }
        if S::Compact::STAYS_AHEAD {
            assert!(unusable() <= 500, "{}", unusable());
        } else {
            let blocks = allocator.zone_info(ZONE).unwrap().blocks;
            let there: u32 = blocks[Order::HUGE.index()..].iter().flatten().sum();
            assert_eq!(there, 1, "one was missing");
        }
        assert_eq!(events(ledger).daemon_wake, calls);
        ledger.check();
    });
}

/// Pages of several orders, random frees, random wishes: the model holds, and every page is
/// where its moves have put it.
fn random_histories<S: Policy>(shape: Shape) {
    for seed in 0..12 {
        with_world::<Probe, S, _>(shape, |world| {
            let (mut ledger, mut dice) = (Ledger::new(world), Dice(seed));
            let movers = world.allocator.platform().movers();
            movers.set(Moving::Obeys);
            for _ in 0..60 {
                let migrate = MigrateType::ALL[dice.below(3) as usize];
                let one = Order::new(dice.below(4) as u8).unwrap();
                world.allocator.platform().switch_cpu(CpuId(dice.below(2) as u32));
                match dice.below(7) {
                    0 => ledger.fill(&Request::new(one).migrate(migrate)),
                    1 | 2 => {
                        let percent = dice.below(100);
                        ledger.thin_out(&mut dice, percent);
                    }
                    3 => {
                        let wanted = Order::new(1 + dice.below(9) as u8).unwrap();
                        let mode = [CompactMode::Async, CompactMode::Sync][dice.below(2) as usize];
                        let outcome = ledger.compact(wanted, mode);
                        let found = || has_block(ledger.world, wanted);
                        assert!(outcome != CompactOutcome::Success || found());
                    }
                    4 => {
                        let wanted = Order::new(dice.below(10) as u8).unwrap();
                        ledger.take(&Request::new(wanted).migrate(migrate));
                    }
                    5 => {
                        let _ = world.allocator.compact_in_background(Order::new(4).unwrap());
                    }
                    _ => drop(world.allocator.drain_all()),
                }
                let moving = [Moving::Obeys, Moving::Obeys, Moving::Refuses, Moving::Cannot];
                movers.set(moving[dice.below(4) as usize]);
                ledger.check();
            }
            ledger.finish();
        });
    }
}

fn has_block<S: Policy>(world: &W<'_, S>, wanted: Order) -> bool {
    let blocks = world.allocator.zone_info(ZONE).unwrap().blocks;
    blocks[wanted.index()..].iter().flatten().any(|&count| count > 0)
}

/// One round: fills 90 % of memory, frees half at random, takes every order-9 block that requests
/// and compaction by hand can make, and frees everything. One page in `pinned` stays where it is
/// (0: none). Returns the blocks, and how many the free frames would have been.
fn round<S: Policy>(ledger: &mut Ledger<'_, '_, S>, dice: &mut Dice, pinned: u64) -> (u64, u64) {
    let allocator = &ledger.world.allocator;
    let movers = allocator.platform().movers();
    let zones = || (0..allocator.plan().zones().len()).map(|zone| ZoneId(zone as u8));
    let managed: u64 = zones().map(|zone| allocator.zone_info(zone).unwrap().managed).sum();
    for _ in 0..managed * 9 / 10 {
        ledger.take(&MOVABLE).expect("a tenth is left");
    }
    ledger.thin_out(dice, 50);
    let possible = (managed - ledger.pages.len() as u64) / Order::HUGE.frames();
    let mut stay = movers.blocks();
    stay.retain(|_| pinned > 0 && dice.below(pinned) == 0);
    for &(pfn, ..) in &stay {
        movers.drop_block(pfn);
    }
    let huge = MOVABLE.with_order(Order::HUGE);
    let compact = |zone| allocator.compact_zone(zone, Order::HUGE, CompactMode::Sync);
    let mut blocks = 0;
    // No request asks twice: what is put off because of an earlier round is lost to this one.
    while ledger.take(&huge).is_some()
        || (zones().map(compact).filter(|&outcome| outcome == CompactOutcome::Success).count() > 0
            && ledger.take(&huge).is_some())
    {
        blocks += 1;
    }
    stay.iter().for_each(|&(pfn, order, name)| movers.adopt(pfn, order, name));
    ledger.check();
    ledger.thin_out(dice, 0);
    (blocks, possible)
}

/// What earlier rounds have left behind (positions, hints, back-off) keeps no later round from
/// what the first could do. In every third one some pages stay.
fn rounds_are_alike<S: Policy>(pinned: u64) {
    with_world::<Probe, S, _>(Shape::Huge, |world| {
        let (mut ledger, mut dice) = (Ledger::new(world), Dice(11));
        world.allocator.platform().movers().set(Moving::Obeys);
        let rounds: Vec<_> = (0..12)
            .map(|n| round(&mut ledger, &mut dice, if n % 3 == 1 { pinned } else { 0 }))
            .collect();
        // In every zone two blocks' worth of free frames is what compaction needs to begin.
        let (first, possible) = rounds[0];
        let zones = world.allocator.plan().zones().len() as u64;
        assert!(first + 2 * zones >= possible && first > possible / 2, "{rounds:?}");
        for (n, &(blocks, possible)) in rounds.iter().enumerate() {
            assert!((12..15).contains(&possible), "{rounds:?}");
            let free_of_pins = pinned == 0 || n % 3 != 1;
            // How free frames fall to several zones is chance: a block more or less in each.
            let alike = 10 * (blocks + zones - 1) >= 9 * first;
            assert!(!free_of_pins || alike, "round {n}: {rounds:?}");
        }
        ledger.finish();
    });
}

macro_rules! on_presets {
    ($($module:ident: $preset:ty;)*) => {$(
        mod $module {
            use super::*;
            #[test]
            fn blocks_form_async() { blocks_form::<$preset>(CompactMode::Async); }
            #[test]
            fn blocks_form_sync() { blocks_form::<$preset>(CompactMode::Sync); }
            #[test]
            fn unmovable_pageblocks() { async_keeps_out_of_unmovable_pageblocks::<$preset>(); }
            #[test]
            fn refusals() { refusals_are_believed_and_backed_off::<$preset>(); }
            #[test]
            fn mismatch_of_the_old_block() { mismatches_are_counted::<$preset>(Moving::FreesOld); }
            #[test]
            fn mismatch_of_the_new_block() { mismatches_are_counted::<$preset>(Moving::FreesNew); }
            #[test]
            fn panics() { a_panic_loses_nothing::<$preset>(); }
            #[test]
            fn slow_path() { requests_wait_for_compaction::<$preset>(); }
            #[test]
            fn cannot() { without_a_host::<$preset>(); }
            #[test]
            fn merges() { merging_alone_forms_blocks::<$preset>(); }
            #[test]
            fn no_memory() { too_little_memory_is_not_suitable::<$preset>(); }
            #[test]
            fn too_little_room() { too_little_room_for_the_background::<$preset>(); }
            #[test]
            fn background() { the_background_rests_when_it_is_done::<$preset>(); }
            #[test]
            fn rounds() { rounds_are_alike::<$preset>(0); }
            #[test]
            fn rounds_with_pages_that_stay() { rounds_are_alike::<$preset>(400); }
            #[test]
            fn histories() { random_histories::<$preset>(Shape::Flat); }
            #[test]
            fn histories_with_small_pageblocks() { random_histories::<$preset>(Shape::Blocks3); }
            #[test]
            fn histories_with_large_pageblocks() { random_histories::<$preset>(Shape::Whole); }
        }
    )*};
}

with_presets_of_one_zone!(on_presets);

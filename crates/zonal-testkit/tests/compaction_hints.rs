//! When compaction forgets which pageblocks have something in them that stays.

use super::ledger::{Dice, Ledger, MOVABLE, events, fragmented};
use std::collections::BTreeSet;
use zonal::Migration;
use zonal::policy::Policy;
use zonal::preset::{Cluster, ClusterFree, Linux416, SkipMerge};
use zonal::{CompactMode, CompactOutcome, Order};
use zonal_testkit::mover::Moving;
use zonal_testkit::shape::Shape;

type L<'w, 'm, S> = Ledger<'w, 'm, S>;

const HUGE: Order = Order::HUGE;

/// What the host was asked to move since the last call.
fn asked<S: Policy>(ledger: &L<'_, '_, S>) -> Vec<Migration> {
    ledger.world.allocator.platform().take_calls().migrations
}

/// A request in vain; what the host was asked to move for it.
fn request<S: Policy>(ledger: &L<'_, '_, S>) -> Vec<Migration> {
    assert!(ledger.world.allocator.alloc_raw(&MOVABLE.with_order(HUGE)).is_err());
    asked(ledger)
}

/// Background work in vain.
fn background<S: Policy>(ledger: &L<'_, '_, S>) -> (CompactOutcome, Vec<Migration>) {
    let outcome = ledger.world.allocator.compact_in_background(HUGE);
    (outcome, asked(ledger))
}

/// What the asynchronous attempt of a request finds, its synchronous one does not ask for again;
/// the next request does.
fn the_next_request_forgets<S: Policy>() {
    fragmented::<S>(Shape::Huge, 60, Moving::Refuses, |ledger| {
        let first = request(ledger);
        assert!(first.len() > 20 && first.iter().all(|page| !page.may_wait), "{}", first.len());
        let second = request(ledger);
        assert!(second.len() > 20, "{}", second.len());
        assert!(second.iter().all(|page| page.may_wait), "of the two attempts one is put off");
    });
}

/// It does not take a scan of the whole zone.
fn a_meeting_is_enough<S: Policy>() {
    fragmented::<S>(Shape::Huge, 60, Moving::Obeys, |ledger| {
        assert_eq!(ledger.compact(HUGE, CompactMode::Async), CompactOutcome::Success);
        let block = ledger.take(&MOVABLE.with_order(HUGE)).unwrap();
        let platform = ledger.world.allocator.platform();
        platform.movers().set(Moving::Refuses);
        asked(ledger);
        let (outcome, first) = (ledger.compact(HUGE, CompactMode::Async), asked(ledger));
        assert_eq!(outcome, CompactOutcome::PartialSkipped, "from where it was");
        let (outcome, second) = (ledger.compact(HUGE, CompactMode::Async), asked(ledger));
        assert_eq!(outcome, CompactOutcome::Complete, "the whole zone");
        assert!(!first.is_empty());
        for page in &first {
            assert!(second.iter().any(|again| again.from == page.from), "hints were forgotten");
        }
        ledger.give(block);
    });
}

/// Background work neither forgets nor outdates what it found itself, except after the longest
/// back-off: until then it asks for no page of a pageblock that it has gone through.
fn background_work_believes_hints<S: Policy>() {
    fragmented::<S>(Shape::Huge, 60, Moving::Refuses, |ledger| {
        let mut hinted = BTreeSet::<u64>::new();
        for backed_off in [0, 1, 3, 7, 15, 31, 63] {
            for _ in 0..backed_off {
                assert_eq!(background(ledger), (CompactOutcome::BackedOff, Vec::new()));
            }
            let (outcome, pages) = background(ledger);
            assert_eq!(outcome, CompactOutcome::Complete);
            let asked: Vec<_> = pages.iter().map(|page| page.from.get() / HUGE.frames()).collect();
            let again = asked.iter().any(|block| hinted.contains(block));
            assert_eq!(again, backed_off == 63, "asked again after {backed_off} were put off");
            // Where the scanners met it has not gone through.
            hinted.extend(asked.iter().filter(|&block| Some(block) != asked.last()));
            assert!(!hinted.is_empty());
        }
    });
}

/// Once the scanners of a request have met, background work forgets before it sleeps.
fn background_work_forgets_before_it_sleeps<S: Policy>() {
    fragmented::<S>(Shape::Huge, 60, Moving::Refuses, |ledger| {
        assert!(!request(ledger).is_empty());
        assert_eq!(background(ledger), (CompactOutcome::BackedOff, Vec::new()), "it sleeps");
        let (outcome, pages) = background(ledger);
        assert_eq!(outcome, CompactOutcome::Complete);
        assert!(pages.len() > 20, "it forgot: {}", pages.len());
    });
}

/// What of memory changes between two requests is found, whatever was noted before.
fn hints_keep_nothing_from_the_next_request<S: Policy>() {
    fragmented::<S>(Shape::Huge, 60, Moving::Refuses, |ledger| {
        request(ledger);
        ledger.world.allocator.platform().movers().set(Moving::Obeys);
        ledger.thin_out(&mut Dice(5), 90);
        let block = ledger.take(&MOVABLE.with_order(HUGE)).expect("pages move again");
        assert!(events(ledger).migrate_success > 0);
        ledger.give(block);
    });
}

macro_rules! on_presets {
    ($($module:ident: $preset:ty;)*) => {$(
        mod $module {
            use super::*;
            #[test]
            fn next_request() { the_next_request_forgets::<$preset>(); }
            #[test]
            fn part_of_a_zone() { a_meeting_is_enough::<$preset>(); }
            #[test]
            fn back_off() { background_work_believes_hints::<$preset>(); }
            #[test]
            fn sleep() { background_work_forgets_before_it_sleeps::<$preset>(); }
            #[test]
            fn pages_that_move_again() { hints_keep_nothing_from_the_next_request::<$preset>(); }
        }
    )*};
}

on_presets! {
    linux416: Linux416;
    skip_merge: SkipMerge;
    cluster: Cluster;
    cluster_free: ClusterFree;
}

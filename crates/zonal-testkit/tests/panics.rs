//! Every callback of the host panics in turn, and fails, and every call of a trace sink panics: no frame
//! is lost (I-3).
//!
//! ```text
//! cargo test --release -p zonal-testkit --test all every_single_callback -- --ignored --nocapture
//! ```

pub(crate) mod sink;

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use zonal::map::RangeKind;
use zonal::policy::Policy;
use zonal::preset::{ClusterFree, Linux416, SplitZones, Zonal};
use zonal::{CpuId, MigrateType, Order, Pfn, Request, ZoneId};
use zonal_testkit::checkers::{Rules, check_all, check_faults};
use zonal_testkit::host::TestHost;
use zonal_testkit::model::Model;
use zonal_testkit::mover::Moving;
use zonal_testkit::probe::Probe;
use zonal_testkit::shape::Shape;
use zonal_testkit::snapshot::Snapshot;
use zonal_testkit::world::{World, with_world};

const MOVABLE: Request = Request::frame().migrate(MigrateType::Movable);

/// What the scenario holds, beside what the host can move.
struct Held<'w, 'm, S: Policy> {
    world: &'w World<'m, Probe, S>,
    blocks: BTreeSet<(Pfn, Order)>,
    /// Frees by the host when it is asked to reclaim.
    pledged: BTreeSet<(Pfn, Order)>,
    named: u64,
}

impl<S: Policy> Held<'_, '_, S> {
    fn host(&self) -> &Probe {
        self.world.allocator.platform()
    }

    /// Runs one call; the planted panic ends it and nothing else.
    fn call<R>(&self, call: impl FnOnce() -> R) -> Option<R> {
        let armed = self.host().is_to_panic();
        match catch_unwind(AssertUnwindSafe(call)) {
            Ok(result) => Some(result),
            Err(_) if armed && !self.host().is_to_panic() => None,
            Err(other) => std::panic::resume_unwind(other),
        }
    }

    fn alloc(&mut self, request: &Request) -> bool {
        let allocator = &self.world.allocator;
        let Some(Ok(pfn)) = self.call(|| allocator.alloc_raw(request)) else { return false };
        self.blocks.insert((pfn, request.order()));
        true
    }

    /// Takes blocks until there is none, the last of which wakes compaction, and frees them.
    fn use_up(&mut self, request: &Request) {
        let before = self.blocks.clone();
        while self.alloc(request) {}
        for (pfn, order) in self.blocks.difference(&before) {
            self.world.allocator.free_raw(*pfn, *order).unwrap();
        }
        self.blocks = before;
    }

    /// Memory full of movable pages, of which every second goes: what is free is in pieces.
    fn shatter(&mut self) {
        let allocator = &self.world.allocator;
        let mut pages = Vec::new();
        while let Some(Ok(pfn)) = self.call(|| allocator.alloc_raw(&MOVABLE.no_wait())) {
            pages.push(pfn);
        }
        for (nth, pfn) in pages.into_iter().enumerate() {
            if nth % 2 == 0 {
                self.call(|| allocator.free_raw(pfn, Order::ZERO)).unwrap().unwrap();
            } else {
                self.named += 1;
                self.host().movers().adopt(pfn, Order::ZERO, self.named);
            }
        }
    }

    /// Memory that may come, or go again.
    fn later(&self) -> Vec<std::ops::Range<Pfn>> {
        let ranges = self.world.allocator.plan().map().ranges();
        let later = ranges.iter().filter(|range| range.kind == RangeKind::Offline);
        later.map(|range| range.start..range.end).collect()
    }

    fn scenario(&mut self) {
        let allocator = &self.world.allocator;
        self.host().movers().set(Moving::Obeys);
        for range in self.later() {
            self.call(|| allocator.online(range).expect("it has not come yet"));
        }
        self.alloc(&Request::frame().zero());
        self.alloc(&Request::new(Order::HUGE).zero());
        self.use_up(&Request::new(Order::HUGE));
        self.shatter();
        let four = Order::new(4).unwrap();
        self.alloc(&MOVABLE.with_order(four));
        self.alloc(&MOVABLE.with_order(four).zero());
        let mut pfns = [Pfn::new(0); 40];
        if let Some(Ok(())) = self.call(|| allocator.alloc_bulk(&MOVABLE.zero(), &mut pfns)) {
            self.blocks.extend(pfns.map(|pfn| (pfn, Order::ZERO)));
        }
        for frames in [40, 700] {
            let request = MOVABLE.zero();
            let found = self.call(|| allocator.alloc_contiguous(frames, &request));
            if let Some(Ok(token)) = found {
                allocator.free_contiguous(token).unwrap();
            }
        }
        // Across instances, where the preset splits.
        let base = allocator.plan().base().get();
        let range = Pfn::new(base)..Pfn::new(base + 1536);
        if let Some(Ok(token)) = self.call(|| allocator.alloc_range(range)) {
            allocator.free_contiguous(token).unwrap();
        }
        let _ = self.call(|| allocator.compact_in_background(four));
        for range in self.later() {
            // Refused, where something in it is not the host's to move.
            let _ = self.call(|| allocator.offline(range));
        }
        while self.alloc(&Request::frame().zero()) {}
        // The host has something to give when it is asked for the next one.
        if let Some((pfn, order)) = self.blocks.pop_last() {
            assert!(self.host().pledge(pfn, order));
            self.pledged.insert((pfn, order));
        }
        while self.alloc(&Request::frame()) {}
    }

    /// All is as it was before.
    fn undo(self) {
        let allocator = &self.world.allocator;
        self.host().panic_at(0);
        let redeemed: BTreeSet<_> = self.host().redeemed().into_iter().collect();
        for (pfn, order) in self.blocks.iter().chain(self.pledged.difference(&redeemed)) {
            allocator.free_raw(*pfn, *order).unwrap();
        }
        for (pfn, order, _) in self.host().movers().blocks() {
            allocator.free_raw(pfn, order).unwrap();
        }
        allocator.drain_all();
        check_faults(&self.host().faults()).unwrap();
        let model = Model::new(allocator.plan()).as_in(allocator);
        check_all(&Snapshot::of(allocator), &model, &Rules::of::<S>()).unwrap();
        for id in 0..allocator.zone_count() {
            let zone = allocator.zone_info(ZoneId(id as u8)).unwrap();
            assert_eq!((zone.free, zone.isolated), (zone.managed, 0), "{zone:?}");
        }
    }
}

/// What a callback does in its turn.
#[derive(Clone, Copy, Debug)]
enum Turn {
    Panics,
    Fails,
}

/// The callbacks of the scenario take their turns, each further on by `part` of those before it (`None`:
/// each); returns how many there are.
fn at_every_index<S: Policy>(shape: Shape, turn: Turn, part: Option<u64>) -> u64 {
    let mut index = 1;
    loop {
        let panicked = with_world::<Probe, S, _>(shape, |world| {
            let host = world.allocator.platform();
            host.switch_cpu(CpuId(0));
            match turn {
                Turn::Panics => host.panic_at(index),
                Turn::Fails => host.fail_at(index),
            }
            let (blocks, pledged) = (BTreeSet::new(), BTreeSet::new());
            let mut held = Held { world, blocks, pledged, named: 0 };
            held.scenario();
            let panicked = !host.is_to_panic();
            held.undo();
            panicked
        });
        if !panicked {
            return index - 1;
        }
        index += 1 + part.map_or(0, |part| index / part);
    }
}

fn on_presets(turn: Turn, part: Option<u64>) {
    let seen = [
        at_every_index::<Zonal>(Shape::Flat, turn, part),
        at_every_index::<Zonal>(Shape::Later, turn, part),
        at_every_index::<Linux416>(Shape::Flat, turn, part),
        at_every_index::<ClusterFree>(Shape::Flat, turn, part),
        at_every_index::<SplitZones>(Shape::Instances, turn, part),
    ];
    println!("{turn:?} at one of {seen:?} callbacks");
    assert!(seen.iter().all(|&callbacks| callbacks > 100), "{seen:?}");
}

/// The first ones one by one, then a sixteenth further each time: thousands are alike.
#[test]
fn no_callback_that_panics_loses_a_frame() {
    on_presets(Turn::Panics, Some(16));
}

#[test]
fn no_callback_that_fails_loses_a_frame() {
    on_presets(Turn::Fails, Some(16));
}

#[test]
#[ignore = "takes minutes: all of the thousands"]
fn every_single_callback() {
    on_presets(Turn::Panics, None);
    on_presets(Turn::Fails, None);
}

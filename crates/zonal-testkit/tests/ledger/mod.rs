//! Pages that a host can move, each with a name, and where every one of them is.

use std::collections::BTreeMap;
use zonal::policy::Policy;
use zonal::{CompactMode, CompactOutcome, MigrateType, Order, Pfn, Request, ZoneId};
use zonal_testkit::checkers::{Rules, check_all, check_faults};
use zonal_testkit::host::TestHost;
use zonal_testkit::model::Model;
use zonal_testkit::mover::Moving;
use zonal_testkit::probe::Probe;
use zonal_testkit::shape::Shape;
use zonal_testkit::snapshot::Snapshot;
use zonal_testkit::world::{World, with_world};

pub(crate) type W<'m, S> = World<'m, Probe, S>;
pub(crate) const ZONE: ZoneId = ZoneId(0);
pub(crate) const MOVABLE: Request = Request::frame().migrate(MigrateType::Movable);

/// Numbers that look random.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

/// Which blocks are out, and who is in them.
pub(crate) struct Ledger<'w, 'm, S: Policy> {
    pub(crate) world: &'w W<'m, S>,
    /// Where every page is, by its name.
    pub(crate) pages: BTreeMap<u64, (Pfn, Order)>,
    next: u64,
    /// Pages were moved in other ways than by the host's obedience.
    pub(crate) lied_to: bool,
}

impl<'w, 'm, S: Policy> Ledger<'w, 'm, S> {
    pub(crate) fn new(world: &'w W<'m, S>) -> Self {
        Self { world, pages: BTreeMap::new(), next: 0, lied_to: false }
    }

    /// Allocates a page that the host can move.
    pub(crate) fn take(&mut self, request: &Request) -> Option<u64> {
        let pfn = self.world.allocator.alloc_raw(request).ok()?;
        self.follow();
        Some(self.enter(pfn, request.order()))
    }

    fn enter(&mut self, pfn: Pfn, order: Order) -> u64 {
        self.next += 1;
        self.world.allocator.platform().movers().adopt(pfn, order, self.next);
        self.pages.insert(self.next, (pfn, order));
        self.next
    }

    pub(crate) fn give(&mut self, name: u64) {
        let (pfn, order) = self.pages.remove(&name).unwrap();
        let movers = self.world.allocator.platform().movers();
        assert_eq!(movers.drop_block(pfn), Some((order, name)), "the page is where it should be");
        self.world.allocator.free_raw(pfn, order).unwrap();
    }

    pub(crate) fn fill(&mut self, request: &Request) {
        while self.take(request).is_some() {}
    }

    /// Frees single pages at random until `percent` of a hundred are left.
    pub(crate) fn thin_out(&mut self, dice: &mut Dice, percent: u64) {
        let names: Vec<u64> = self.pages.keys().copied().collect();
        for name in names {
            if dice.below(100) >= percent {
                self.give(name);
            }
        }
    }

    /// Brings every page to where the host has moved it.
    pub(crate) fn follow(&mut self) {
        let movers = self.world.allocator.platform().movers();
        if movers.take_moved().is_empty() && !self.lied_to {
            return;
        }
        for (pfn, order, name) in movers.blocks() {
            let page = self.pages.get_mut(&name).expect("a page that is out");
            assert_eq!(page.1, order, "a page keeps its order");
            page.0 = pfn;
        }
    }

    pub(crate) fn model(&self) -> Model<'m> {
        let mut model = Model::new(self.world.allocator.plan());
        self.pages.values().for_each(|&(pfn, order)| model.insert(pfn, order));
        model
    }

    /// Every invariant holds, and every page is where its last move put it.
    pub(crate) fn check(&mut self) {
        self.follow();
        let snapshot = Snapshot::of(&self.world.allocator);
        check_faults(&self.world.allocator.platform().faults()).unwrap();
        check_all(&snapshot, &self.model(), &Rules::of::<S>()).unwrap();
    }

    pub(crate) fn compact(&mut self, order: Order, mode: CompactMode) -> CompactOutcome {
        let outcome = self.world.allocator.compact_zone(ZONE, order, mode);
        self.check();
        outcome
    }

    /// Frees everything; all must be there.
    pub(crate) fn finish(mut self) {
        self.follow();
        let names: Vec<u64> = self.pages.keys().copied().collect();
        names.into_iter().for_each(|name| self.give(name));
        self.world.allocator.drain_all();
        self.check();
        let info = self.world.allocator.zone_info(ZONE).unwrap();
        assert_eq!(info.free, info.managed);
    }
}

/// Runs `f` on memory of which `percent` of a hundred single frames are out, all movable, and
/// none cached.
pub(crate) fn fragmented<S: Policy>(
    shape: Shape,
    percent: u64,
    moving: Moving,
    f: impl FnOnce(&mut Ledger<'_, '_, S>),
) {
    with_world::<Probe, S, _>(shape, |world| {
        let mut ledger = Ledger::new(world);
        ledger.fill(&MOVABLE);
        ledger.thin_out(&mut Dice(7), percent);
        world.allocator.drain_all();
        world.allocator.platform().take_calls();
        ledger.check();
        world.allocator.platform().movers().set(moving);
        f(&mut ledger);
        world.allocator.platform().movers().set(Moving::Cannot);
        ledger.check();
        ledger.finish();
    });
}

pub(crate) fn events<S: Policy>(ledger: &Ledger<'_, '_, S>) -> zonal::CompactEvents {
    ledger.world.allocator.zone_info(ZONE).unwrap().compaction
}

//! The same for a trace sink: what was to be allocated is free, what was to be freed is allocated still.

use super::{CpuId, MigrateType, Order, Pfn, Policy, Probe, Request, Rules, TestHost as _, ZoneId};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{Receiver, Sender};
use zonal::error::FreeError;
use zonal::policy::trace::{Event, Point, Trace};
use zonal::preset::{ClusterFree, Linux416, Traced, Zonal};
use zonal_testkit::checkers::check_all;
use zonal_testkit::model::Model;
use zonal_testkit::shape::{Shape, order};
use zonal_testkit::snapshot::Snapshot;
use zonal_testkit::suite::effort;
use zonal_testkit::world::{World, with_world};

thread_local! {
    /// Calls until one panics; 0: none does.
    static FUSE: Cell<u64> = const { Cell::new(0) };
    /// Where this thread waits when it has taken a block from a zone: it says so, and goes on when told to.
    pub(crate) static PAUSE: RefCell<Option<(Sender<()>, Receiver<()>)>> = const { RefCell::new(None) };
}

/// Panics at one of its calls, or pauses before what is done with a block: one type, so that the allocator is compiled
/// once for each preset.
pub(crate) struct Fuse;

impl Trace for Fuse {
    fn is_on(_: Point) -> bool {
        true
    }
    fn record(event: &Event) {
        if event.point() == Point::AllocZoneLocked
            && let Some((here, go_on)) = PAUSE.take()
        {
            here.send(()).unwrap();
            go_on.recv().unwrap();
        }
        let left = FUSE.get();
        FUSE.set(left.saturating_sub(1));
        assert!(left != 1, "planted");
    }
}

/// Runs one call; the planted panic ends it and nothing else.
fn call<R>(call: impl FnOnce() -> R) -> Option<R> {
    let armed = FUSE.get() > 0;
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(result) => Some(result),
        Err(_) if armed && FUSE.get() == 0 => None,
        Err(other) => resume_unwind(other),
    }
}

type W<'m, S> = World<'m, Probe, Traced<S, Fuse>>;

/// A way to the allocator: an owner's, or the one that all share.
trait Way {
    fn alloc(&mut self, request: &Request) -> Option<Pfn>;
    fn free(&mut self, pfn: Pfn, order: Order) -> Result<(), FreeError>;
    fn alloc_bulk(&mut self, request: &Request, out: &mut [Pfn]) -> bool;
    fn free_bulk(&mut self, frames: &[Pfn]);
}

impl<S: Policy> Way for zonal::CpuHandle<'_, '_, Probe, Traced<S, Fuse>> {
    fn alloc(&mut self, request: &Request) -> Option<Pfn> {
        self.alloc_raw(request).ok()
    }
    fn free(&mut self, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        self.free_raw(pfn, order)
    }
    fn alloc_bulk(&mut self, request: &Request, out: &mut [Pfn]) -> bool {
        zonal::CpuHandle::alloc_bulk(self, request, out).is_ok()
    }
    fn free_bulk(&mut self, frames: &[Pfn]) {
        assert_eq!(zonal::CpuHandle::free_bulk(self, frames).refused, 0);
    }
}

impl<S: Policy> Way for &W<'_, S> {
    fn alloc(&mut self, request: &Request) -> Option<Pfn> {
        self.allocator.alloc_raw(request).ok()
    }
    fn free(&mut self, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        self.allocator.free_raw(pfn, order)
    }
    fn alloc_bulk(&mut self, request: &Request, out: &mut [Pfn]) -> bool {
        self.allocator.alloc_bulk(request, out).is_ok()
    }
    fn free_bulk(&mut self, frames: &[Pfn]) {
        assert_eq!(self.allocator.free_bulk(frames).refused, 0);
    }
}

/// Blocks that are held, in the order in which they came.
#[derive(Default)]
struct Held(Vec<(Pfn, Order)>);

impl Held {
    fn alloc(&mut self, way: &mut impl Way, request: &Request) -> bool {
        let Some(Some(pfn)) = call(|| way.alloc(request)) else { return false };
        self.0.push((pfn, request.order()));
        true
    }

    /// Frees what came from `from` on, every `step`th.
    fn free(&mut self, way: &mut impl Way, from: usize, step: usize) {
        let late = self.0.split_off(from);
        for (at, (pfn, order)) in late.into_iter().enumerate() {
            if at % step > 0 {
                self.0.push((pfn, order));
            } else if call(|| way.free(pfn, order)).is_none() {
                // It is allocated still.
                way.free(pfn, order).unwrap();
            } else {
                // It was freed.
            }
        }
    }

    fn bulk(way: &mut impl Way, request: &Request) {
        let mut frames = [Pfn::new(0); 100];
        if call(|| way.alloc_bulk(request, &mut frames)) != Some(true) {
            return;
        }
        // In an order that takes several pageblocks and edges.
        frames.sort_unstable_by_key(|pfn| pfn.get().wrapping_mul(0x9e37_79b9_7f4a_7c15));
        if call(|| way.free_bulk(&frames)).is_some() {
            return;
        }
        let mut twice = BTreeSet::new();
        for pfn in frames {
            match way.free(pfn, Order::ZERO) {
                Ok(()) => assert!(twice.insert(pfn)),
                Err(error) => assert!(matches!(error, FreeError::DoubleFree { .. }), "{error}"),
            }
        }
    }

    fn scenario(&mut self, way: &mut impl Way) {
        let movable = Request::frame().migrate(MigrateType::Movable);
        for request in [Request::frame(), movable] {
            let from = self.0.len();
            (0..90).for_each(|_| _ = self.alloc(way, &request));
            self.free(way, from, 2);
            Self::bulk(way, &request);
            self.free(way, from, 1);
        }
        let from = self.0.len();
        for request in [movable, movable.atomic(), Request::frame()] {
            self.alloc(way, &request.with_order(order(3)));
            self.alloc(way, &request.with_order(Order::HUGE));
        }
        self.free(way, from, 1);
        // The last of these pageblocks passes an owner's slot.
        for _ in 0..3 {
            self.alloc(way, &movable.with_order(order(5)));
            self.free(way, from, 1);
        }
        // All memory, of which every third goes; then the other type has to take from it.
        while self.alloc(way, &movable) {}
        self.free(way, from, 3);
        while self.alloc(way, &Request::frame()) {}
        self.free(way, from, 1);
    }
}

/// One run in which the call `index` of the sink panics; whether there was one.
fn at_index<S: Policy>(shape: Shape, index: u64, owned: bool) -> bool {
    with_world::<Probe, Traced<S, Fuse>, _>(shape, |world| {
        let allocator = &world.allocator;
        allocator.platform().switch_cpu(CpuId(0));
        FUSE.set(index);
        let mut held = Held::default();
        if owned {
            held.scenario(&mut allocator.handle(CpuId(0)).unwrap());
        } else {
            held.scenario(&mut &*world);
        }
        let panicked = FUSE.replace(0) == 0;
        held.free(&mut &*world, 0, 1);
        allocator.drain_all();
        let model = Model::new(allocator.plan());
        check_all(&Snapshot::of(allocator), &model, &Rules::of::<Traced<S, Fuse>>()).unwrap();
        for id in 0..allocator.zone_count() {
            let zone = allocator.zone_info(ZoneId(id as u8)).unwrap();
            assert_eq!((zone.free, zone.isolated), (zone.managed, 0), "call {index}: {zone:?}");
        }
        panicked
    })
}

/// Each call further on by a part of those before it: thousands are alike. More effort, smaller parts.
fn at_many<S: Policy>(shape: Shape) {
    for owned in [false, true] {
        let mut index = 1;
        while at_index::<S>(shape, index, owned) {
            index += 1 + index / u64::from(effort(4));
        }
        assert!(index > 1000, "the sink was called {index} times");
    }
}

#[test]
fn no_sink_that_panics_loses_a_frame() {
    at_many::<Zonal>(Shape::Flat);
    at_many::<Linux416>(Shape::Flat);
    at_many::<ClusterFree>(Shape::Huge);
}

#[cfg(feature = "matrix")]
#[test]
fn no_sink_that_panics_loses_a_frame_of_linux63() {
    at_many::<zonal::preset::Linux63>(Shape::Flat);
}

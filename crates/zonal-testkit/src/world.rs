//! An allocator with its tables, for the time of a closure.
//!
//! ```
//! use zonal::Request;
//! use zonal::platform::single::SingleThread;
//! use zonal_testkit::preset::TinyZonal;
//! use zonal_testkit::shape::Shape;
//! use zonal_testkit::world::with_world;
//! with_world::<SingleThread, TinyZonal, _>(Shape::Flat, |world| {
//!     let block = world.allocator.alloc(&Request::frame()).unwrap();
//!     world.allocator.free(block).unwrap();
//! });
//! ```

use crate::host::Host;
use crate::shape::Shape;
use zonal::plan::Plan;
use zonal::platform::{AtomicByte, AtomicWord, Platform, Slot};
use zonal::policy::Policy;
use zonal::{Allocator, Common, CpuZone, Exchange, Storage, TableSize, Zone};

/// An allocator and what it was made of.
pub struct World<'m, P: Platform, S: Policy> {
    /// The shape, if it was made from one; some shape with as many CPUs otherwise.
    pub shape: Shape,
    /// The allocator.
    pub allocator: Allocator<'m, P, S>,
}

/// Runs `f` with a world of `shape`.
///
/// # Panics
/// If the allocator cannot be built.
pub fn with_world<P: Host, S: Policy, R>(shape: Shape, f: impl FnOnce(&World<'_, P, S>) -> R) -> R {
    with_plan(shape, &shape.plan::<S>(), f)
}

/// Runs `f` with a world over `plan`; the host is that of `shape`.
///
/// # Panics
/// If the allocator cannot be built.
pub fn with_plan<P: Host, S: Policy, R>(
    shape: Shape,
    plan: &Plan,
    f: impl FnOnce(&World<'_, P, S>) -> R,
) -> R {
    let size = TableSize::of::<S>(plan);
    let words = |count: u64| (0..count).map(|_| P::Word::new(0)).collect::<Vec<_>>();
    let states: Vec<_> = (0..size.frames).map(|_| P::Byte::new(0)).collect();
    let (links, pageblocks) = (words(size.frames), words(size.pageblocks));
    let (cluster_links, clusters) = (words(size.clusters), words(size.cluster_words));
    let mut zones: Vec<_> = (0..size.zones).map(|_| Zone::vacant()).collect();
    let cache = |_| <P::Slot<CpuZone<S>> as Slot<_>>::new(CpuZone::new());
    let caches: Vec<_> = (0..size.caches).map(cache).collect();
    let exchanges: Vec<_> = (0..size.caches).map(|_| Exchange::new()).collect();
    let common = Common::new();
    let storage = Storage {
        states: &states,
        links: &links,
        pageblocks: &pageblocks,
        cluster_links: &cluster_links,
        clusters: &clusters,
        zones: &mut zones,
        caches: &caches,
        exchanges: &exchanges,
        common: &common,
    };
    let allocator = Allocator::new(P::for_shape(shape), plan, storage);
    let world = World { shape, allocator: allocator.expect("storage of the sizes asked for") };
    f(&world)
}

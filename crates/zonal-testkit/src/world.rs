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

use crate::host::TestHost;
use crate::shape::Shape;
use zonal::plan::Plan;
use zonal::platform::Platform;

use zonal::Allocator;
use zonal::policy::Policy;
use zonal_tables::HeapTables;

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
pub fn with_world<P: TestHost, S: Policy, R>(
    shape: Shape,
    f: impl FnOnce(&World<'_, P, S>) -> R,
) -> R {
    with_plan(shape, &shape.plan::<S>(), f)
}

/// Runs `f` with a world over `plan`; the host is that of `shape`.
///
/// # Panics
/// If the allocator cannot be built.
pub fn with_plan<P: TestHost, S: Policy, R>(
    shape: Shape,
    plan: &Plan,
    f: impl FnOnce(&World<'_, P, S>) -> R,
) -> R {
    let (mut f, mut result) = (Some(f), None);
    in_world(shape, plan, &mut |world| {
        if let Some(f) = f.take() {
            result = Some(f(world));
        }
    });
    result.expect("it was called")
}

/// Apart, as tests have more closures than there are worlds: what makes a world is compiled for each of these, not
/// of those.
#[inline(never)]
fn in_world<P: TestHost, S: Policy>(
    shape: Shape,
    plan: &Plan,
    f: &mut dyn FnMut(&World<'_, P, S>),
) {
    let mut tables = HeapTables::new(plan).expect("room for a small machine's tables");
    let allocator = Allocator::new(P::for_shape(shape), plan, tables.storage());
    let world = World { shape, allocator: allocator.expect("storage of the sizes asked for") };
    f(&world);
}

//! S-3 after the drain: an owner whose stacks were shut opens them again, and forgets where it freed before.

use zonal::map::{MemoryMap, PhysAddr, Region};
use zonal::plan::{Config, Plan};
use zonal::platform::single::SingleThread;
use zonal::policy::{Policy, Split};
use zonal::preset::Zonal;
use zonal::{Allocator, CpuId, MigrateType, Order, Pfn, Request};
use zonal_tables::HeapTables;

/// A pageblock is isolated, which drains its owner; who then is in the slot for another pageblock, before it frees the last frame
/// of the isolated one, which it remembered as the one that it last freed to.
#[test]
fn an_owner_forgets_where_it_freed_before_a_drain() {
    let map = MemoryMap::from_regions(&[Region::usable(PhysAddr(16 << 20), 64 << 20)]).unwrap();
    let split = <Zonal as Policy>::Split::instances;
    let plan = Plan::new(map.sanitise().unwrap(), Config::new(1), split).unwrap();
    let mut tables = HeapTables::new(&plan).unwrap();
    let allocator = Allocator::<_, Zonal>::new(SingleThread, &plan, tables.storage()).unwrap();
    let mut owner = allocator.handle(CpuId(0)).unwrap();
    let request = Request::frame().migrate(MigrateType::Movable);
    let pageblock = plan.config().pageblock_order.frames();
    let held: Vec<Pfn> = (0..2 * pageblock).map(|_| owner.alloc_raw(&request).unwrap()).collect();
    let start = held[0].get() / pageblock * pageblock;
    let first = Pfn::new(start)..Pfn::new(start + pageblock);
    let (mut inside, mut outside): (Vec<_>, Vec<_>) =
        held.into_iter().partition(|pfn| first.contains(pfn));
    assert_eq!(inside.len() as u64, pageblock, "all of it");
    let (last, other) = (inside.pop().unwrap(), outside.pop().unwrap());
    inside.iter().for_each(|&pfn| owner.free_raw(pfn, Order::ZERO).unwrap());
    let isolated = allocator.isolate(first).expect("nothing is in the way");
    assert_eq!(allocator.busy_frames(&isolated), 1, "the last one");
    owner.free_raw(other, Order::ZERO).unwrap();
    owner.free_raw(last, Order::ZERO).unwrap();
    assert_eq!(allocator.busy_frames(&isolated), 0, "it stayed with the CPU");
    allocator.undo_isolation(isolated).expect("its own");
    outside.iter().for_each(|&pfn| owner.free_raw(pfn, Order::ZERO).unwrap());
}

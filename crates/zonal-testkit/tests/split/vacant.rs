//! Instances whose memory is all to come.

use super::{MOVABLE, on};
use zonal::map::{PhysAddr, Region, RegionKind};
use zonal::plan::{Config, MovableShare, SplitConfig};
use zonal::preset::SplitZones;
use zonal::{CpuId, ZoneType};
use zonal_testkit::probe::Probe;
use zonal_testkit::shape::{Shape, plan};
use zonal_testkit::world::with_plan;

/// Where the first of two Movable instances has no memory yet its CPUs begin at the other one.
#[test]
fn home_zones_beside_an_instance_without_memory() {
    let at = |pfn: u64, frames: u64| Region::usable(PhysAddr(pfn << 12), frames << 12);
    let offline = Region { kind: RegionKind::Offline, ..at(0x2000, 0x800) };
    let split = SplitConfig { instance_frames: 0x800, ..Shape::Later.config().split };
    let config =
        Config { movable: MovableShare::Frames(0x1000), split, ..Shape::Instances.config() };
    let plan = plan::<SplitZones>(&[at(0x1000, 0x1000), offline, at(0x2800, 0x800)], config);
    let movable = plan.zones().iter().filter(|zone| zone.zone_type == ZoneType::Movable);
    let managed: Vec<_> = movable.map(|zone| zone.managed).collect();
    assert_eq!(managed, [0, 0x800]);
    with_plan::<Probe, SplitZones, _>(Shape::Instances, &plan, |world| {
        let allocator = &world.allocator;
        for cpu in 0..4 {
            on(world, cpu);
            for limit in [ZoneType::Normal, ZoneType::Movable] {
                let pfn = allocator.alloc_raw(&MOVABLE.zone_limit(limit)).unwrap();
                let home = allocator.home_zone(CpuId(cpu), limit);
                assert_eq!(home, allocator.plan().zone_at(pfn), "CPU {cpu}, {limit:?}");
            }
        }
    });
}

//! Dirty limits: where pages go that will be written.

use zonal::map::{PhysAddr, Region};
use zonal::page_state::{DirtyLimit, NotManaged, PageState};
use zonal::plan::{Config, Plan, PlanError};
use zonal::policy::{Policy, Split};
use zonal::preset::{FairZone, LessDirty, Linux316, Linux416, Zonal};
use zonal::units::FRAME_SIZE;
use zonal::watermark::{MinFree, WatermarkConfig};
use zonal::{CpuId, Pfn, Request, ZoneId, ZoneType};
use zonal_testkit::host::TestHost;
use zonal_testkit::probe::Probe;
use zonal_testkit::shape::{Shape, plan};
use zonal_testkit::world::{World, with_plan};

type W<'m, S> = World<'m, Probe, S>;

const DMA32: ZoneId = ZoneId(0);
const NORMAL: ZoneId = ZoneId(1);

fn config() -> Config {
    Config {
        dma32_limit: Pfn::new(2048),
        watermarks: WatermarkConfig {
            min_free: MinFree::Frames(64),
            scale_factor: 100,
            boost_factor: 0,
        },
        lowmem_ratio: [0; 4],
        ..Shape::TwoNodes.config()
    }
}

fn region() -> Region {
    Region::usable(PhysAddr(0), 8192 * FRAME_SIZE as u64)
}

/// DMA32 of 2048 frames and Normal of 6144.
fn with<S: Policy, R>(config: Config, f: impl FnOnce(&W<'_, S>) -> R) -> R {
    let plan = plan::<S>(&[region()], config);
    with_plan::<Probe, S, R>(Shape::TwoNodes, &plan, f)
}

/// A frame of the zone, for the host to count by.
const fn in_zone(zone: ZoneId) -> Pfn {
    if zone.0 == 0 { Pfn::new(100) } else { Pfn::new(4000) }
}

/// Makes the zone's count what it should be, whatever the CPU still keeps to itself.
fn set_count<S: Policy>(world: &W<'_, S>, zone: ZoneId, state: PageState, wanted: u64) {
    let allocator = &world.allocator;
    // More than any CPU keeps to itself at once, so all of it is told.
    let there = allocator.zone_page_state(zone, state).unwrap();
    let change = wanted as i32 - there as i32;
    for change in [change + 1000, -1000] {
        allocator.mod_page_state(in_zone(zone), state, change).unwrap();
    }
    assert_eq!(allocator.zone_page_state(zone, state), Some(wanted));
}

/// The zone that a request is served from; the frame goes back.
fn served<S: Policy>(world: &W<'_, S>, request: &Request) -> ZoneId {
    let pfn = world.allocator.alloc_raw(request).unwrap();
    world.allocator.free_raw(pfn, zonal::Order::ZERO).unwrap();
    world.allocator.plan().zone_at(pfn).unwrap()
}

fn over_limit<S: Policy>(world: &W<'_, S>, zone: ZoneId) {
    let pages = world.allocator.zone_info(zone).unwrap().pages.unwrap();
    let limit = pages.dirty_limit.max(pages.cached_limit.unwrap_or(0));
    set_count(world, zone, PageState::Dirty, limit + 1);
}

/// Makes the preset know the limits as they are.
fn settle<S: Policy>(world: &W<'_, S>) {
    for limit in [ZoneType::Dma32, ZoneType::Normal] {
        let request = Request::frame().write().less_throttled().zone_limit(limit);
        served(world, &request);
    }
}

fn passes_over<S: Policy>() {
    with::<S, _>(config(), |world| {
        let write = Request::frame().write();
        settle(world);
        over_limit(world, NORMAL);
        for _ in 0..10 {
            assert_eq!(served(world, &write), DMA32, "{}", S::NAME);
        }
        // Not the business of others.
        let others: Vec<_> = (0..60).map(|_| served(world, &Request::frame())).collect();
        assert!(others.contains(&NORMAL), "{}", S::NAME);
        // What is on its way, and what a server has not yet, count as well.
        set_count(world, NORMAL, PageState::Dirty, 0);
        assert_eq!(served(world, &write), NORMAL, "{}", S::NAME);
        over_limit(world, NORMAL);
        let over = world.allocator.zone_page_state(NORMAL, PageState::Dirty).unwrap();
        set_count(world, NORMAL, PageState::Dirty, 0);
        set_count(world, NORMAL, PageState::Writeback, over / 2);
        set_count(world, NORMAL, PageState::Unstable, over - over / 2);
        assert_eq!(served(world, &write), DMA32, "{}", S::NAME);
        assert!(world.allocator.platform().take_calls().woken.is_empty(), "{}", S::NAME);
    });
}

#[test]
fn zones_over_their_limit_are_passed_over() {
    passes_over::<Linux316>();
    passes_over::<FairZone>();
    passes_over::<LessDirty>();
    passes_over::<Zonal>();
}

/// When every zone is over its limit the page is had all the same: with a cached limit above the
/// low watermark, with an exact one only after reclaim was woken.
#[test]
fn the_second_pass_has_no_limit() {
    fn woken<S: Policy>() -> usize {
        with::<S, _>(config(), |world| {
            settle(world);
            over_limit(world, NORMAL);
            over_limit(world, DMA32);
            let _ = world.allocator.platform().take_calls();
            let pfn = world.allocator.alloc_raw(&Request::frame().write()).unwrap();
            assert!(world.allocator.plan().zone_at(pfn).is_some());
            // No zone is short, so reclaim is not woken even then; but watermarks may say so.
            world.allocator.platform().take_calls().woken.len()
        })
    }
    assert_eq!(woken::<LessDirty>(), 0);
    assert_eq!(woken::<Zonal>(), 0);
    // Memory is plenty: reclaim is not woken for the sake of the limit.
    assert_eq!(woken::<Linux316>(), 0);
}

/// A pass in vain is followed by one that is neither fair nor has a limit: the first zone has the frame,
/// although its batch is used up.
#[test]
fn the_rescan_drops_fairness_with_the_limit() {
    fn first<S: Policy>() {
        with::<S, _>(config(), |world| {
            settle(world);
            let share = |zone| world.allocator.zone_info(zone).unwrap().fair.unwrap();
            while !share(NORMAL).depleted {
                world.allocator.alloc_raw(&Request::frame()).unwrap();
            }
            assert!(!share(DMA32).depleted);
            over_limit(world, NORMAL);
            over_limit(world, DMA32);
            let pfn = world.allocator.alloc_raw(&Request::frame().write()).unwrap();
            assert_eq!(world.allocator.plan().zone_at(pfn), Some(NORMAL));
        });
    }
    first::<LessDirty>();
}

#[test]
fn less_throttled_tasks_have_a_quarter_more() {
    fn quarter<S: Policy>() {
        with::<S, _>(config(), |world| {
            let write = Request::frame().write();
            settle(world);
            let limit = world.allocator.dirty_limit(NORMAL).unwrap();
            set_count(world, NORMAL, PageState::Dirty, limit + limit / 4);
            let of = |request: &Request| served(world, request);
            assert_eq!(of(&write), DMA32, "{}", S::NAME);
            assert_eq!(of(&write.less_throttled()), NORMAL, "{}", S::NAME);
            set_count(world, NORMAL, PageState::Dirty, limit + limit / 4 + 1);
            assert_eq!(of(&write.less_throttled()), DMA32, "{}", S::NAME);
        });
    }
    quarter::<Linux316>();
    quarter::<LessDirty>();
    quarter::<Zonal>();
}

/// The cached limit is what it was when a zone was last over it, or a request with a quarter more
/// came by.
#[test]
fn the_cached_limit_is_worked_out_again_when_it_matters() {
    with::<LessDirty, _>(config(), |world| {
        let write = Request::frame().write();
        let known = || world.allocator.zone_info(NORMAL).unwrap().pages.unwrap();
        assert_eq!(known().cached_limit, Some(0), "no request asked yet");
        assert_eq!(served(world, &write), NORMAL, "nothing is dirty: within any limit");
        assert_eq!(known().cached_limit, Some(0));
        set_count(world, NORMAL, PageState::Dirty, 1);
        assert_eq!(served(world, &write), DMA32, "over the limit of 0");
        let first = known();
        assert!(first.dirty_limit > 1000, "{first:?}");
        assert!(first.cached_limit.unwrap().abs_diff(first.dirty_limit) <= 62, "{first:?}");
        assert_eq!(served(world, &write), NORMAL, "and now it is known");
        // The limit grows with the page cache: no request notices until a zone is over it.
        set_count(world, NORMAL, PageState::InactiveFile, 10_000);
        assert_eq!(served(world, &write), NORMAL);
        assert_eq!(known().cached_limit, first.cached_limit);
        set_count(world, NORMAL, PageState::Dirty, first.dirty_limit + 100);
        assert_eq!(served(world, &write), DMA32, "the old limit");
        assert_eq!(served(world, &write), NORMAL, "the new one");
        // It shrinks: one with a quarter more finds out.
        set_count(world, NORMAL, PageState::InactiveFile, 0);
        served(world, &write.less_throttled());
        assert_eq!(served(world, &write), DMA32);
        assert!(known().cached_limit.unwrap().abs_diff(first.dirty_limit) <= 62);
    });
    with::<Linux316, _>(config(), |world| {
        settle(world);
        let limit = world.allocator.dirty_limit(NORMAL).unwrap();
        set_count(world, NORMAL, PageState::Dirty, limit + 100);
        assert_eq!(served(world, &Request::frame().write()), DMA32);
        set_count(world, NORMAL, PageState::InactiveFile, 10_000);
        assert_eq!(served(world, &Request::frame().write()), NORMAL, "exact: known at once");
    });
}

#[test]
fn limits_follow_the_configuration() {
    fn limits(limit: DirtyLimit) -> [u64; 2] {
        with::<LessDirty, _>(Config { dirty_limit: limit, ..config() }, |world| {
            set_count(world, NORMAL, PageState::ActiveFile, 1000);
            [DMA32, NORMAL].map(|zone| world.allocator.dirty_limit(zone).unwrap())
        })
    }
    let keep = |world: &W<'_, LessDirty>, zone| {
        let info = world.allocator.zone_info(zone).unwrap();
        info.free - info.watermarks.high
    };
    let there =
        with::<LessDirty, _>(config(), |world| [keep(world, DMA32), keep(world, NORMAL) + 1000]);
    assert_eq!(limits(DirtyLimit::Percent(20)), there.map(|pages| pages / 5));
    assert_eq!(limits(DirtyLimit::Percent(100)), there);
    let all = there[0] + there[1];
    assert_eq!(limits(DirtyLimit::Bytes(4096 * 500)), there.map(|pages| 500 * pages / all));
    for percent in [0, 101, 255] {
        let config = Config { dirty_limit: DirtyLimit::Percent(percent), ..config() };
        assert_eq!(config.check(), Err(PlanError::DirtyLimit { percent }));
        let map = zonal::map::MemoryMap::from_regions(&[region()]).unwrap().sanitise().unwrap();
        let error = Plan::new(map, config, <Zonal as Policy>::Split::instances).unwrap_err();
        assert!(error.to_string().contains("1 to 100 per cent"), "{error}");
    }
}

#[test]
fn what_is_counted() {
    with::<Zonal, _>(config(), |world| {
        let allocator = &world.allocator;
        let foreign = Pfn::new(1 << 30);
        let error = allocator.mod_page_state(foreign, PageState::Dirty, 1).unwrap_err();
        assert_eq!(error, NotManaged { pfn: foreign });
        assert!(error.to_string().contains("in no zone"), "{error}");
        // Each CPU keeps some to itself; none is lost.
        for cpu in [0, 1, 0, 1] {
            allocator.platform().switch_cpu(CpuId(cpu));
            for _ in 0..500 {
                allocator.mod_page_state(in_zone(NORMAL), PageState::ActiveFile, 1).unwrap();
            }
        }
        let told = allocator.zone_page_state(NORMAL, PageState::ActiveFile).unwrap();
        assert!((1900..=2000).contains(&told), "{told}");
        assert_eq!(allocator.zone_page_state(DMA32, PageState::ActiveFile), Some(0));
        // A CPU that takes back what another counted: never below zero.
        for _ in 0..2000 {
            allocator.mod_page_state(in_zone(NORMAL), PageState::ActiveFile, -1).unwrap();
        }
        let left = allocator.zone_page_state(NORMAL, PageState::ActiveFile).unwrap();
        assert!(left <= 100, "{left}");
        // An owner counts in its own part; others cannot have it and tell at once.
        let mut owner = allocator.handle(CpuId(1)).unwrap();
        owner.mod_page_state(in_zone(DMA32), PageState::Dirty, 1).unwrap();
        assert_eq!(allocator.zone_page_state(DMA32, PageState::Dirty), Some(0), "not told yet");
        allocator.mod_page_state(in_zone(DMA32), PageState::Dirty, 3).unwrap();
        assert_eq!(allocator.zone_page_state(DMA32, PageState::Dirty), Some(3));
        let text = zonal::report::ZoneStatus(allocator).to_string();
        assert!(text.contains("nr_dirty     3\n"), "{text}");
    });
    with::<Linux416, _>(config(), |world| {
        let allocator = &world.allocator;
        allocator.mod_page_state(in_zone(NORMAL), PageState::Dirty, 5).unwrap();
        assert_eq!(allocator.zone_page_state(NORMAL, PageState::Dirty), None, "not counted");
        assert_eq!(allocator.dirty_limit(NORMAL), None);
    });
}

//! Per-CPU lists as of Linux 6.3: which orders stay, how many frames, how many go back.

use zonal::map::{PhysAddr, Region};
use zonal::plan::Config;
use zonal::preset::Linux63;
use zonal::watermark::{MinFree, WatermarkConfig, Watermarks};
use zonal::{CpuId, MigrateType, Order, Pfn, Request, ZoneId};
use zonal_testkit::probe::Probe;
use zonal_testkit::shape::{Shape, order, plan};
use zonal_testkit::world::{World, with_plan};

type W<'m> = World<'m, Probe, Linux63>;
const ZONE: ZoneId = ZoneId(0);

fn with(config: Config, f: impl FnOnce(&W<'_>)) {
    let plan = plan::<Linux63>(&Shape::Huge.regions(), config);
    with_plan::<Probe, Linux63, _>(Shape::Huge, &plan, f);
}

fn cached(world: &W<'_>) -> u64 {
    world.allocator.cache_info(ZONE, CpuId(0)).unwrap().count
}

#[test]
fn orders_0_to_3_and_9_stay() {
    with(Config { pcp_high: Some(4096), ..Shape::Huge.config() }, |world| {
        for n in 0..=10 {
            let order = order(n);
            let pfn = world.allocator.alloc_raw(&Request::new(order)).unwrap();
            world.allocator.drain_all();
            world.allocator.free_raw(pfn, order).unwrap();
            let stays = if n <= 3 || n == 9 { order.frames() } else { 0 };
            assert_eq!(cached(world), stays, "order {n}");
            world.allocator.drain_all();
            assert_eq!(cached(world), 0);
        }
    });
}

/// A refill takes a batch of frames, in two blocks at least.
#[test]
fn a_refill_is_a_batch_of_frames() {
    let config = Config { pcp_batch: Some(31), pcp_high: Some(4096), ..Shape::Huge.config() };
    with(config, |world| {
        for (n, blocks) in [(0, 31), (1, 15), (2, 7), (3, 3), (9, 2)] {
            // Of movable memory there is plenty: no other type's is needed.
            let request = Request::new(order(n)).migrate(MigrateType::Movable);
            world.allocator.alloc_raw(&request).unwrap();
            assert_eq!(cached(world), (blocks - 1) * order(n).frames(), "order {n}");
            world.allocator.drain_all();
        }
    });
}

#[test]
fn high_is_the_low_watermark_by_cpus() {
    let watermarks = WatermarkConfig { min_free: MinFree::Frames(1600), ..Default::default() };
    with(Config { watermarks, ..Shape::Huge.config() }, |world| {
        let low = world.allocator.zone_info(ZONE).unwrap().watermarks.low;
        let cpus = u64::from(world.allocator.cpus());
        let high = u64::from(world.allocator.cache_info(ZONE, CpuId(0)).unwrap().high);
        assert_eq!((low, high), (2000, low / cpus));
    });
    with(Shape::Huge.config(), |world| {
        let info = world.allocator.cache_info(ZONE, CpuId(0)).unwrap();
        assert_eq!((info.batch, info.high), (3, 12), "four batches where there is no watermark");
    });
}

/// What goes back doubles while nothing is allocated, and a block of order 1 to 3 takes all with it.
#[test]
fn the_free_factor() {
    let config = Config { pcp_batch: Some(8), pcp_high: Some(100), ..Shape::Huge.config() };
    with(config, |world| {
        let take = |n: u8, count: usize| -> Vec<Pfn> {
            (0..count)
                .map(|_| world.allocator.alloc_raw(&Request::new(order(n))).unwrap())
                .collect()
        };
        let (frames, block) = (take(0, 400), take(2, 1));
        world.allocator.drain_all();
        let mut gone = Vec::new();
        let mut before = 0;
        for &pfn in &frames {
            world.allocator.free_raw(pfn, Order::ZERO).unwrap();
            let now = cached(world);
            if now <= before {
                gone.push(before + 1 - now);
            }
            before = now;
        }
        assert_eq!(gone[..5], [8, 16, 32, 64, 92]);
        world.allocator.free_raw(block[0], order(2)).unwrap();
        assert_eq!(cached(world), 0);
    });
}

/// Of a zone of a GiB the batch is the largest of all, and it goes back in one hold.
#[test]
fn a_large_zone_has_the_batch_of_6_3() {
    let none = WatermarkConfig { min_free: MinFree::None, ..WatermarkConfig::default() };
    let (dma_limit, dma32_limit) = (Pfn::new(0), Pfn::new(0));
    let config = Config { dma_limit, dma32_limit, watermarks: none, ..Config::new(1) };
    let plan = plan::<Linux63>(&[Region::usable(PhysAddr(0), 1 << 30)], config);
    with_plan::<Probe, Linux63, _>(Shape::Scrap, &plan, |world| {
        let allocator = &world.allocator;
        let info = allocator.cache_info(ZONE, CpuId(0)).unwrap();
        assert_eq!((info.batch, info.high), (63, 252));
        let request = Request::frame().migrate(MigrateType::Movable);
        let first = allocator.alloc_raw(&request).unwrap();
        assert_eq!(cached(world), 62);
        let rest = (1..252).map(|_| allocator.alloc_raw(&request).unwrap());
        let frames: Vec<_> = std::iter::once(first).chain(rest).collect();
        allocator.drain_all();
        let batches = || allocator.zone_info(ZONE).unwrap().events.free_batches;
        let before = batches();
        frames.into_iter().for_each(|pfn| allocator.free_raw(pfn, Order::ZERO).unwrap());
        assert_eq!((cached(world), batches()), (252 - 63, before + 1));
    });
}

/// High follows the low watermark wherever it is set.
#[test]
fn high_follows_a_watermark_that_is_set() {
    with(Shape::Huge.config(), |world| {
        let allocator = &world.allocator;
        let frames: Vec<_> =
            (0..9).map(|_| allocator.alloc_raw(&Request::frame()).unwrap()).collect();
        frames.into_iter().for_each(|pfn| allocator.free_raw(pfn, Order::ZERO).unwrap());
        assert!(cached(world) > 0);
        for low in [3000, 1000] {
            let marks = Watermarks { min: 500, low, high: 4000 };
            assert!(allocator.set_watermarks(ZONE, marks));
            for cpu in (0..allocator.cpus()).map(CpuId) {
                let info = allocator.cache_info(ZONE, cpu).unwrap();
                assert_eq!(u64::from(info.high), low / u64::from(allocator.cpus()), "{cpu:?}");
            }
            assert_eq!(cached(world), 0, "emptied");
        }
        let out_of_order = Watermarks { min: 2, low: 1, high: 3 };
        assert!(!allocator.set_watermarks(ZONE, out_of_order));
        assert_eq!(allocator.cache_info(ZONE, CpuId(0)).unwrap().high, 500, "as it was");
    });
}

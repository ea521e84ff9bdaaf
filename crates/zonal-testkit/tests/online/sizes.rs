//! Whatever comes, in pieces and in any order: sizes are as if it had been there.

use super::*;
use zonal::policy::FreeMemory;

/// A machine of chunks of 256 frames, each there, later there, or never; in which pieces and in
/// which order the later ones come, and how much is for movable requests.
#[derive(Clone, Debug)]
struct Machine {
    chunks: Vec<u8>,
    pieces: Vec<(u64, u64)>,
    movable: u64,
}

const CHUNK: u64 = 256;

fn machines() -> impl Strategy<Value = Machine> {
    let chunk = prop_oneof![3 => Just(0_u8), 3 => Just(1_u8), 1 => Just(2_u8)];
    let movable = prop_oneof![3 => Just(0_u64), 1 => 1..3000_u64];
    (proptest::collection::vec(chunk, 8..40), movable, any::<u64>()).prop_map(
        |(chunks, movable, seed)| {
            let mut dice = zonal_testkit::suite::Dice::new(seed);
            let mut pieces: Vec<(u64, u64)> = Vec::new();
            for (at, _) in chunks.iter().enumerate().filter(|(_, kind)| **kind == 1) {
                let start = at as u64 * CHUNK;
                match pieces.last_mut() {
                    Some(last) if last.1 == start && dice.below(3) > 0 => last.1 += CHUNK,
                    _ if dice.below(3) == 0 => {
                        pieces.extend([(start, start + 96), (start + 96, start + CHUNK)]);
                    }
                    _ => pieces.push((start, start + CHUNK)),
                }
            }
            for at in (1..pieces.len()).rev() {
                pieces.swap(at, dice.below(at as u64 + 1) as usize);
            }
            Machine { chunks, pieces, movable }
        },
    )
}

impl Machine {
    /// The plan, with the later memory there or not; `None` if there is no such machine.
    fn plan<S: Policy>(&self, later: RegionKind) -> Option<Plan> {
        let mut map = MemoryMap::new();
        let half = self.chunks.len() / 2;
        for (at, chunk) in self.chunks.iter().enumerate() {
            let kind = [RegionKind::Usable, later];
            if let Some(&kind) = kind.get(usize::from(*chunk)) {
                let node = u8::from(at >= half);
                map.add(frames(at as u64 * CHUNK, CHUNK, kind, node)).unwrap();
            }
        }
        let watermarks =
            WatermarkConfig { min_free: MinFree::Frames(100), ..WatermarkConfig::default() };
        let movable = match self.movable {
            0 => MovableShare::None,
            frames => MovableShare::Frames(frames),
        };
        let config = Config {
            watermarks,
            movable,
            dma_limit: Pfn::new(1024),
            dma32_limit: Pfn::new(3000),
            pcp_batch: None,
            ..Shape::Later.config()
        };
        Plan::new(map.sanitise().ok()?, config, S::Split::instances).ok()
    }
}

/// All of a zone that follows from its memory, and the bounds of its caches.
type Size = (Pfn, u64, u64, u64, u64, Watermarks, [u64; 4], [u64; 6], Vec<(u32, u32)>);

fn size<S: Policy>(allocator: &Allocator<'_, Probe, S>, zone: &ZoneInfo) -> Size {
    let cpus = (0..allocator.cpus()).map(CpuId);
    let bounds = |cpu| allocator.cache_info(zone.zone, cpu).map(|cache| (cache.batch, cache.high));
    (
        zone.start,
        zone.spanned,
        zone.present,
        zone.managed,
        zone.free,
        zone.watermarks,
        zone.reserve,
        allocator.pageblock_counts(zone.zone),
        cpus.filter_map(bounds).collect(),
    )
}

fn sizes<S: Policy>(world: &W<'_, S>) -> Vec<Size> {
    let zones = check(world, []).zones;
    zones.iter().map(|zone| size(&world.allocator, zone)).collect()
}

/// What has come is as if it had been there from the start; what has gone, as if it had never
/// come.
pub(crate) fn as_from_the_start<S: Policy>() {
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: effort(40),
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let seen = std::cell::Cell::new(0);
    let result = runner.run(&machines(), |machine| {
        let plans = (machine.plan::<S>(Off), machine.plan::<S>(RegionKind::Usable));
        let (Some(grows), Some(whole)) = plans else { return Ok(()) };
        seen.set(seen.get() + 1);
        assert_eq!(grows.zones().len(), whole.zones().len());
        assert_eq!(grows.managed() + grows.later(), whole.managed());
        let tables = [&grows, &whole].map(|plan| TableSize::of::<S>(plan));
        assert_eq!(tables[0].frames, tables[1].frames);
        assert!((0..3).all(|slice| tables[0].free[slice] >= tables[1].free[slice]));
        let expected = with_plan::<Probe, S, _>(Shape::Later, &whole, |world| {
            let blocks = check(world, []).zones.iter().map(|zone| zone.blocks).collect::<Vec<_>>();
            (sizes(world), blocks)
        });
        with_plan::<Probe, S, _>(Shape::Later, &grows, |world| {
            let allocator = &world.allocator;
            let before = sizes(world);
            for &(start, end) in &machine.pieces {
                // In between the caches are used.
                let held = (0..70).filter_map(|_| allocator.alloc_raw(&MOVABLE).ok()).collect();
                let onlined = allocator.online(pfns(start, end)).unwrap();
                assert_eq!(onlined.frames, end - start);
                free_all(world, held);
            }
            assert_eq!(sizes(world), expected.0);
            let blocks: Vec<_> = check(world, []).zones.iter().map(|zone| zone.blocks).collect();
            assert_eq!(blocks, expected.1);
            for &(start, end) in &machine.pieces {
                let mut at = start;
                // It may lie in two types or on two nodes.
                while at < end {
                    let zone = allocator.plan().zone_at(Pfn::new(at));
                    let same = |pfn: &u64| allocator.plan().zone_at(Pfn::new(*pfn)) == zone;
                    let until = (at..end).step_by(32).take_while(same).last().unwrap() + 32;
                    allocator.offline(pfns(at, until)).unwrap();
                    at = until;
                }
            }
            allocator.drain_all();
            assert_eq!(sizes(world), before);
        });
        Ok(())
    });
    if let Err(error) = result {
        panic!("{}: {error}", S::NAME);
    }
    assert!(seen.get() >= 20, "most machines are possible: {}", seen.get());
}

/// A zone becomes large enough for batches, and for clusters on its order-0 lists.
pub(crate) fn batches_grow<S: Policy>() {
    let config = Config { pcp_batch: None, pageblock_order: Order::HUGE, ..Shape::Flat.config() };
    let zones =
        |kind| [frames(0x1000, 0x1000, RegionKind::Usable, 0), frames(0x2000, 0x1f000, kind, 0)];
    let bounds = |world: &W<'_, S>| {
        let of = |zone: &ZoneInfo| world.allocator.cache_info(zone.zone, CpuId(0));
        let zones = check(world, []).zones;
        zones.iter().filter_map(of).map(|cache| (cache.batch, cache.high)).collect::<Vec<_>>()
    };
    let from_the_start = plan::<S>(&zones(RegionKind::Usable), config);
    let expected = with_plan::<Probe, S, _>(Shape::Flat, &from_the_start, bounds);
    with_plan::<Probe, S, _>(Shape::Flat, &plan::<S>(&zones(Off), config), |world| {
        let allocator = &world.allocator;
        let cuts = || {
            let held: Vec<_> = (0..2000).map(|_| allocator.alloc_raw(&MOVABLE).unwrap()).collect();
            free_all(world, held);
            let held: Vec<_> = (0..2000).map(|_| allocator.alloc_raw(&MOVABLE).unwrap()).collect();
            free_all(world, held);
            check(world, []).zones.iter().map(|zone| zone.events.cluster_cuts).sum::<u64>()
        };
        assert!(bounds(world) != expected);
        assert_eq!(cuts(), 0, "batches of one frame");
        allocator.online(pfns(0x2000, 0x21000)).unwrap();
        assert_eq!(bounds(world), expected);
        assert_eq!(cuts() > 0, S::Free::CUTS_BATCHES);
    });
}

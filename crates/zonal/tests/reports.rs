//! The reports, parsed back and compared with what the allocator says and with each other.

/// What the examples are built with.
mod example;

use example::{with_allocator, with_small};
use zonal::info::ZoneInfo;
use zonal::map::{PhysAddr, Region, RegionKind};
use zonal::migrate::NR_MIGRATE_TYPES;
use zonal::plan::{Config, MovableShare};
use zonal::platform::single::SingleThread;
use zonal::policy::Policy;
use zonal::policy::split::OnNode;
use zonal::preset::{Linux416, Zonal};
use zonal::report::{BuddyInfo, PageTypeInfo, UnusableFree, VmStat, ZoneStatus, unusable_permille};
use zonal::units::NR_ORDERS;
use zonal::{
    Allocator, CpuId, FreeCounts, MigrateType, NodeId, NodePolicy, Order, Pfn, Request, ZoneId,
    ZoneType,
};

const MIB: u64 = 1 << 20;

/// Two nodes, every zone type, holes, CMA, two CPUs.
fn with_machine<S: Policy>(run: impl FnOnce(&Allocator<'_, SingleThread, S>)) {
    let cma = RegionKind::Cma;
    let regions = [
        Region::usable(PhysAddr(0), 128 * MIB),
        Region::reserved(PhysAddr(0), MIB),
        Region { kind: cma, ..Region::usable(PhysAddr(96 * MIB), 8 * MIB) },
        Region::usable(PhysAddr(160 * MIB), 63 * MIB + 4096 * 3).on(NodeId(1)),
    ];
    let config = Config {
        dma32_limit: Pfn::containing(64 * MIB),
        movable: MovableShare::Frames(16 * 256),
        ..Config::new(2)
    };
    with_allocator(&regions, config, run);
}

/// Blocks of several orders and types, some held, some freed, through both ways in; returns
/// how many frames are held at the end.
fn exercise<S: Policy>(allocator: &Allocator<'_, SingleThread, S>) -> u64 {
    let mut handle = allocator.handle(CpuId(1)).unwrap();
    let types = [MigrateType::Unmovable, MigrateType::Movable, MigrateType::Reclaimable];
    // More than two clusters are freed, so that some wait to be merged.
    let mut frames = [Pfn::default(); 1500];
    handle.alloc_bulk(&Request::frame(), &mut frames).unwrap();
    assert_eq!(handle.free_bulk(&frames).refused, 0);
    let mut held = Vec::new();
    for round in 0..1500_usize {
        let order = Order::new([0, 0, 0, 0, 1, 2, 3, 5, 0][round % 9]).unwrap();
        let limit = ZoneType::ALL[round % 4];
        let request = Request::new(order).migrate(types[round % 3]).zone_limit(limit);
        let block = match round % 2 {
            0 => allocator.alloc(&request).unwrap(),
            _ => handle.alloc(&request).unwrap(),
        };
        held.push(block);
        if round % 5 == 4 {
            let freed = held.swap_remove(round * 7 % held.len());
            allocator.free(freed).unwrap();
            let freed = held.swap_remove(round * 3 % held.len());
            handle.free(freed).unwrap();
        }
    }
    let huge =
        Request::new(Order::HUGE).migrate(MigrateType::Movable).zone_limit(ZoneType::Movable);
    held.push(allocator.alloc(&huge).unwrap());
    held.into_iter().map(|block| block.into_raw().1.frames()).sum()
}

fn infos<S: Policy>(allocator: &Allocator<'_, SingleThread, S>) -> Vec<ZoneInfo> {
    let ids = 0..allocator.zone_count() as u8;
    ids.map(|id| allocator.zone_info(ZoneId(id)).unwrap()).collect()
}

/// Splits `Node 0, zone   Normal REST` as a Linux tool would: node, name, rest.
fn zone_line(line: &str) -> (u8, &str, &str) {
    let (node, rest) = line.strip_prefix("Node ").unwrap().split_once(", zone ").unwrap();
    let (name, rest) = rest.trim_start().split_once([' ', ',']).unwrap_or((rest.trim_start(), ""));
    (node.trim().parse().unwrap(), name, rest)
}

fn numbers(text: &str) -> Vec<u64> {
    text.split_whitespace().map(|word| word.parse().unwrap()).collect()
}

fn frames(blocks_by_order: &[u64]) -> u64 {
    blocks_by_order.iter().enumerate().map(|(order, blocks)| blocks << order).sum()
}

/// The value of a `name value` line, which must be there exactly once.
fn value(text: &str, name: &str) -> u64 {
    let lines = text.lines().map(str::split_whitespace);
    let mut found = lines.filter_map(|mut words| (words.next()? == name).then(|| words.next()));
    let value = found.next().flatten().unwrap_or_else(|| panic!("no line {name} in\n{text}"));
    assert!(found.next().is_none(), "two lines {name} in\n{text}");
    value.parse().unwrap()
}

/// Runs `check` on the fresh machine (0 frames held), after work, and after a drain, under
/// both presets.
macro_rules! always {
    ($check:ident) => {
        always!($check, Zonal);
        always!($check, Linux416);
    };
    ($check:ident, $preset:ty) => {
        with_machine::<$preset>(|allocator| {
            $check(allocator, 0);
            let held = exercise(allocator);
            assert!(held > 1500);
            $check(allocator, held);
            assert!(allocator.drain_all() > 0);
            $check(allocator, held);
        });
    };
}

#[test]
fn the_machine_has_what_the_tests_need() {
    with_machine::<Zonal>(|allocator| {
        let zones = infos(allocator);
        let names: Vec<_> = zones.iter().map(|z| (z.node.0, z.zone_type.name())).collect();
        let node0 = [(0, "DMA"), (0, "DMA32"), (0, "Normal"), (0, "Movable")];
        assert_eq!(names, [&node0[..], &[(1, "Normal"), (1, "Movable")]].concat());
        exercise(allocator);
        let zones = infos(allocator);
        assert!(zones.iter().any(|zone| zone.cached > 0));
        let free = |order: usize| zones.iter().any(|zone| zone.blocks[order] != [0; 6]);
        assert!((0..NR_ORDERS).all(free), "blocks of every order");
    });
}

#[test]
fn buddyinfo_columns_are_the_free_frames() {
    fn check<S: Policy>(allocator: &Allocator<'_, SingleThread, S>, _: u64) {
        let text = BuddyInfo(allocator).to_string();
        assert_eq!(text.lines().count(), allocator.zone_count());
        for (line, zone) in text.lines().zip(infos(allocator)) {
            let (node, name, rest) = zone_line(line);
            let columns = numbers(rest);
            assert_eq!((node, name), (zone.node.0, zone.zone_type.name()));
            assert_eq!(columns.len(), NR_ORDERS);
            assert_eq!(frames(&columns), zone.free, "{line}");
        }
    }
    always!(check);
}

#[test]
fn pagetypeinfo_sums_to_buddyinfo_and_to_the_pageblocks() {
    fn check<S: Policy>(allocator: &Allocator<'_, SingleThread, S>, _: u64) {
        let text = PageTypeInfo(allocator).to_string();
        let parts: Vec<&str> = text.split("\n\n").collect();
        assert_eq!(parts.len(), 3);
        assert_eq!(parts[0], "Page block order: 9\nPages per block:  512");
        let orders = parts[1].lines().next().unwrap().split_once("order").unwrap().1;
        assert_eq!(numbers(orders), (0..NR_ORDERS as u64).collect::<Vec<_>>());
        let free: Vec<&str> = parts[1].lines().skip(1).collect();
        let buddyinfo = BuddyInfo(allocator).to_string();
        assert_eq!(free.len(), allocator.zone_count() * NR_MIGRATE_TYPES);
        for (of_zone, buddy) in free.chunks(NR_MIGRATE_TYPES).zip(buddyinfo.lines()) {
            let mut sum = [0; NR_ORDERS];
            for (line, migrate) in of_zone.iter().zip(MigrateType::ALL) {
                let (node, name, rest) = zone_line(line);
                assert_eq!((node, name), {
                    let (node, name, _) = zone_line(buddy);
                    (node, name)
                });
                let mut words = rest.split_whitespace();
                assert_eq!((words.next(), words.next()), (Some("type"), Some(migrate.name())));
                for (sum, word) in sum.iter_mut().zip(words) {
                    *sum += word.parse::<u64>().unwrap();
                }
            }
            assert_eq!(sum[..], numbers(zone_line(buddy).2));
        }
        let mut blocks = parts[2].lines();
        let types = MigrateType::ALL.map(MigrateType::name);
        let header = blocks.next().unwrap().strip_prefix("Number of blocks type").unwrap();
        assert_eq!(header.split_whitespace().collect::<Vec<_>>(), types);
        for (line, zone) in blocks.zip(infos(allocator)) {
            let counts = numbers(zone_line(line).2);
            // The machine's memory begins and ends with pageblocks that are partly there.
            assert_eq!(counts.iter().sum::<u64>(), zone.spanned.div_ceil(512), "{line}");
            let cma = if (zone.node.0, zone.zone_type) == (0, ZoneType::Normal) { 4 } else { 0 };
            assert_eq!(counts[MigrateType::Cma.index()], cma, "{line}");
        }
    }
    always!(check);
}

#[test]
fn zoneinfo_says_what_the_zone_says() {
    fn check<S: Policy>(allocator: &Allocator<'_, SingleThread, S>, _: u64) {
        let text = ZoneStatus(allocator).to_string();
        let zones: Vec<String> = text.split("Node ").skip(1).map(ToString::to_string).collect();
        assert_eq!(zones.len(), allocator.zone_count());
        for (text, zone) in zones.iter().zip(infos(allocator)) {
            let free = text.split_once("pages free ").unwrap().1.lines().next().unwrap();
            assert_eq!(numbers(free), [zone.free]);
            assert_eq!(value(text, "nr_free_pages"), zone.free);
            assert_eq!(value(text, "boost"), zone.boost);
            assert_eq!(value(text, "min"), zone.watermarks.min + zone.boost);
            assert_eq!(value(text, "low"), zone.watermarks.low + zone.boost);
            assert_eq!(value(text, "high"), zone.watermarks.high + zone.boost);
            let sizes = ["spanned", "present", "managed"].map(|name| value(text, name));
            assert_eq!(sizes, [zone.spanned, zone.present, zone.managed]);
            let cma = if (zone.node.0, zone.zone_type) == (0, ZoneType::Normal) { 2048 } else { 0 };
            assert_eq!(value(text, "cma"), cma);
            assert!(value(text, "nr_free_cma") <= cma);
            let reserve = text.split_once("protection: (").unwrap().1.split_once(')').unwrap().0;
            assert_eq!(numbers(&reserve.replace(',', "")), zone.reserve);
            let pagesets = text.split_once("  pagesets\n").unwrap().1;
            let sets: Vec<&str> = pagesets.split("    cpu: ").skip(1).collect();
            let cached: u64 = sets.iter().map(|set| value(set, "count:")).sum();
            assert_eq!((sets.len(), cached), (2, zone.cached));
            for (set, cpu) in sets.into_iter().zip([CpuId(0), CpuId(1)]) {
                let cache = allocator.cache_info(zone.zone, cpu).unwrap();
                assert_eq!(set.lines().next(), Some(cpu.to_string().as_str()));
                assert_eq!(value(set, "high:"), u64::from(cache.high));
                assert_eq!(value(set, "batch:"), u64::from(cache.batch));
                assert_eq!(value(set, "zonal_alloc:"), cache.events.alloc);
            }
            assert_eq!(value(text, "start_pfn:"), zone.start.get());
        }
    }
    always!(check);
    with_machine::<Zonal>(|allocator| {
        assert!(allocator.set_watermark_boost(ZoneId(2), 77));
        check(allocator, 0);
    });
}

#[test]
fn vmstat_balances() {
    fn check<S: Policy>(allocator: &Allocator<'_, SingleThread, S>, held: u64) {
        let text = VmStat(allocator).to_string();
        assert!(text.lines().all(|line| line.split(' ').count() == 2));
        let of = |name| value(&text, name);
        let managed: u64 = infos(allocator).iter().map(|zone| zone.managed).sum();
        let idle = of("nr_free_pages") + of("zonal_cached");
        assert_eq!(managed - idle, held);
        let types = ["pgalloc_dma", "pgalloc_dma32", "pgalloc_normal", "pgalloc_movable"].map(of);
        let allocated: u64 = types.iter().sum();
        assert_eq!(allocated - of("pgfree"), held);
        assert!(held == 0 || types.iter().all(|&frames| frames > 0), "{types:?}");
        assert_eq!(allocated, of("zonal_pcp_alloc") + of("zonal_direct_alloc"));
        assert_eq!(of("pgfree"), of("zonal_pcp_free") + of("zonal_direct_free"));
        assert!(held == 0 || of("zonal_pcp_refill") > 0);
        let bounds = (0..12).map(|n| std::format!("zonal_hold_lt_{}", 1 << n));
        let most = of("zonal_hold_ge_2048");
        assert!(bounds.map(|name| value(&text, &name)).sum::<u64>() > 0);
        assert_eq!(most, 0, "no hold beyond the bound");
        let zones = ZoneStatus(allocator).to_string();
        let free = zones.lines().filter(|line| line.trim_start().starts_with("nr_free_pages"));
        let free: u64 =
            free.map(|line| line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()).sum();
        assert_eq!(free, of("nr_free_pages"));
    }
    always!(check);
}

#[test]
fn unusable_index_agrees_with_buddyinfo() {
    fn check<S: Policy>(allocator: &Allocator<'_, SingleThread, S>, _: u64) {
        let (index, buddy) =
            (UnusableFree(allocator).to_string(), BuddyInfo(allocator).to_string());
        assert_eq!(index.lines().count(), buddy.lines().count());
        for (index, buddy) in index.lines().zip(buddy.lines()) {
            let ((node, name, index), (node2, name2, buddy)) = (zone_line(index), zone_line(buddy));
            assert_eq!((node, name), (node2, name2));
            let blocks = numbers(buddy);
            let (free, mut before) = (frames(&blocks) as f64, 0.0);
            for (order, word) in index.split_whitespace().enumerate() {
                let printed: f64 = word.parse().unwrap();
                let usable: u64 = (order..NR_ORDERS).map(|at| blocks[at] << at).sum();
                let exact = 1.0 - usable as f64 / free;
                assert!((exact - printed).abs() < 0.001_001, "{order}: {exact} {printed}");
                assert!(printed >= before);
                before = printed;
            }
        }
    }
    always!(check);
}

#[test]
fn unusable_index_at_its_edges() {
    let mut blocks = FreeCounts::default();
    assert_eq!(unusable_permille(&blocks), [1000; NR_ORDERS], "nothing free");
    blocks[10][MigrateType::Isolate.index()] = 5;
    assert_eq!(unusable_permille(&blocks), [1000; NR_ORDERS], "only isolated");
    blocks[10][MigrateType::Cma.index()] = u32::MAX;
    assert_eq!(unusable_permille(&blocks), [0; NR_ORDERS]);
    blocks[0][MigrateType::Movable.index()] = 1;
    let index = unusable_permille(&blocks);
    assert_eq!(index, [0; NR_ORDERS], "rounded down");
}

/// Three instances a zone type.
struct Thirds;

impl zonal::policy::Split for Thirds {
    const LANES: usize = 1;
    fn instances(_: &Config, _: ZoneType, _: &OnNode) -> u8 {
        3
    }
}

zonal::preset! {
    /// Zone types in thirds.
    SplitPreset = "SplitPreset", over Linux416 { Split = Thirds }
}

#[test]
fn instances_are_numbered() {
    with_small::<SplitPreset>(|allocator| {
        let text = BuddyInfo(allocator).to_string();
        let names: Vec<_> = text.lines().map(|line| zone_line(line).1).collect();
        // DMA is of four largest blocks: thirds that are rounded up to those leave nothing for a third.
        assert_eq!(names, ["DMA", "DMA_1", "DMA32", "DMA32_1", "DMA32_2"]);
    });
}

/// What an owner pushes after its cache was tuned anew is drained to where it belongs, though the owner has
/// not been inside its slot since.
#[test]
fn what_is_pushed_to_a_tuned_cache_comes_home() {
    // Of the second node: its map does not begin with the table.
    let there = [
        Region::usable(PhysAddr(128 * MIB), 64 * MIB).on(NodeId(1)),
        Region::offline(PhysAddr(192 * MIB), 32 * MIB).on(NodeId(1)),
    ];
    let regions = [Region::usable(PhysAddr(0), 64 * MIB), there[0], there[1]];
    with_allocator::<Zonal>(&regions, Config::new(1), |allocator| {
        let mut owner = allocator.handle(CpuId(0)).unwrap();
        let request = Request::frame().nodes(NodePolicy::Preferred(NodeId(1)));
        let [first, second] = [0; 2].map(|_| owner.alloc(&request).unwrap());
        owner.free(first).unwrap();
        let later = Pfn::new(0xc000)..Pfn::new(0xe000);
        assert_eq!(allocator.online(later).map(|onlined| onlined.frames), Ok(0x2000));
        owner.free(second).unwrap();
        assert_eq!(allocator.drain_all(), 1);
        for info in infos(allocator) {
            assert_eq!((info.free, info.counted_free), (info.managed, info.managed), "{info:?}");
        }
    });
}

/// Blocks whose memory was given back count as untouched ones do, each in the row of its type.
#[test]
fn what_was_given_back_has_its_row() {
    with_small::<Zonal>(|allocator| {
        let types = [MigrateType::Unmovable, MigrateType::Movable, MigrateType::Reclaimable];
        let largest = || {
            let rows = infos(allocator).into_iter().map(|info| info.blocks[Order::MAX.index()]);
            rows.fold([0; 3], |sum, row| types.map(|ty| sum[ty.index()] + row[ty.index()]))
        };
        let [none, all, _] = largest();
        assert_eq!(none, 0, "memory is movable at first");
        // What was touched goes first, and what was given back last: it is claimed again.
        for (ty, expected) in types.into_iter().zip([[1, all - 1, 0], [0, all, 0], [0, all - 1, 1]])
        {
            let block = allocator.alloc(&Request::new(Order::MAX).migrate(ty)).unwrap();
            let (pfn, order) = block.into_raw();
            allocator.free_given_back(pfn, order).unwrap();
            assert_eq!(largest(), expected, "{ty:?}");
        }
    });
}

//! Every way to be refused: the exact error, its text, and that nothing has changed (I-4).

use zonal::error::{AllocReason, BuildError, FreeError};
use zonal::platform::single::SingleThread;
use zonal::policy::Policy;
use zonal::preset::Zonal;
use zonal::watermark::Watermarks;
use zonal::zone::tables::FreeWords;
use zonal::{Allocator, Storage, TableSize, Zone};
use zonal::{CpuId, MigrateType, NodeId, NodeMask, NodePolicy, Order, Pfn, Request, ZoneId};
use zonal_tables::HeapTables;
use zonal_testkit::host::TestHost;
use zonal_testkit::probe::Probe;
use zonal_testkit::shape::{Shape, order};
use zonal_testkit::snapshot::Snapshot;
use zonal_testkit::world::{World, with_world};

type W<'m, S> = World<'m, Probe, S>;

/// Frees that are refused, by every way in; nothing may change.
fn refused<S: Policy>(world: &W<'_, S>, pfn: Pfn, order: Order, error: FreeError, text: &str) {
    let allocator = &world.allocator;
    let before = Snapshot::of(allocator).without_holds();
    assert_eq!(error.to_string(), text);
    assert_eq!(allocator.free_raw(pfn, order), Err(error));
    assert_eq!(allocator.free_given_back(pfn, order), Err(error), "given back");
    let mut owner = allocator.handle(CpuId(0)).unwrap();
    assert_eq!(owner.free_raw(pfn, order), Err(error), "through a handle");
    if order == Order::ZERO {
        for freed in [allocator.free_bulk(&[pfn]), owner.free_bulk(&[pfn])] {
            assert_eq!((freed.freed, freed.refused), (0, 1));
            assert_eq!(freed.first_refused, Some((0, error)), "in bulk");
        }
    }
    assert_eq!(Snapshot::of(allocator).without_holds(), before, "{text}: nothing changes");
}

fn frees<S: Policy>() {
    with_world::<Probe, S, _>(Shape::Holes, |world| {
        let allocator = &world.allocator;
        let at = Pfn::new;
        let zero = Order::ZERO;
        for pfn in [at(0), at(0xfff), at(0x3000), at(u64::MAX)] {
            let text = format!("foreign frame: pfn {pfn} is outside the allocator's memory");
            refused(world, pfn, zero, FreeError::Foreign { pfn }, &text);
        }
        for pfn in [at(0x1000), at(0x1301), at(0x2004)] {
            let text = format!("pfn {pfn} lies in a hole of the memory map");
            refused(world, pfn, zero, FreeError::Hole { pfn }, &text);
        }
        for pfn in [at(0x1490), at(0x1600)] {
            let text = format!("pfn {pfn} is reserved and was never allocated");
            refused(world, pfn, zero, FreeError::Reserved { pfn }, &text);
        }
        let pfn = at(0x1400);
        let text = "double free: pfn 0x1400 (order 0) is free already";
        refused(world, pfn, zero, FreeError::DoubleFree { pfn, order: zero }, text);

        for size in [1, 3, 5] {
            let size = order(size);
            let pfn = allocator.alloc_raw(&Request::new(size)).unwrap();
            let text =
                format!("wrong order: pfn {pfn} was allocated with order {size}, freed with 0");
            let error = FreeError::WrongOrder { pfn, given: zero, allocated: size };
            refused(world, pfn, zero, error, &text);
            let given = Order::MAX;
            let text =
                format!("wrong order: pfn {pfn} was allocated with order {size}, freed with 10");
            let error = FreeError::WrongOrder { pfn, given, allocated: size };
            refused(world, pfn, given, error, &text);
            let inner = at(pfn.get() + size.frames() - 1);
            let text =
                format!("pfn {inner} is inside the block of order {size} that starts at pfn {pfn}");
            let error = FreeError::Inner { pfn: inner, head: pfn, order: size };
            refused(world, inner, zero, error, &text);
            allocator.free_raw(pfn, size).unwrap();
            let text = format!("double free: pfn {pfn} (order {size}) is free already");
            refused(world, pfn, size, FreeError::DoubleFree { pfn, order: size }, &text);
        }
    });
}

/// A frame in a cache, on a list, at once and after a drain.
fn double_frees<S: Policy>() {
    with_world::<Probe, S, _>(Shape::Flat, |world| {
        let allocator = &world.allocator;
        let mut out = vec![Pfn::default(); 1500];
        allocator.alloc_bulk(&Request::frame(), &mut out).unwrap();
        assert_eq!(allocator.free_bulk(&out).freed, 1500);
        for drained in [false, true] {
            if drained {
                allocator.drain_all();
            }
            for &pfn in out.iter().step_by(97) {
                let text = format!("double free: pfn {pfn} (order 0) is free already");
                let error = FreeError::DoubleFree { pfn, order: Order::ZERO };
                refused(world, pfn, Order::ZERO, error, &text);
            }
        }
    });
}

fn bulk_frees<S: Policy>() {
    with_world::<Probe, S, _>(Shape::Low, |world| {
        let allocator = &world.allocator;
        let mut out = vec![Pfn::default(); 40];
        allocator.alloc_bulk(&Request::frame(), &mut out).unwrap();
        let block = allocator.alloc_raw(&Request::new(order(2))).unwrap();
        out.insert(3, out[2]);
        out.insert(20, block);
        out.push(Pfn::new(1 << 40));
        let freed = allocator.free_bulk(&out);
        assert_eq!((freed.freed, freed.refused), (40, 3));
        let error = FreeError::DoubleFree { pfn: out[2], order: Order::ZERO };
        assert_eq!(freed.first_refused, Some((3, error)));
        allocator.free_raw(block, order(2)).unwrap();
    });
}

fn blocks_come_back<S: Policy>() {
    with_world::<Probe, S, _>(Shape::Flat, |here| {
        with_world::<Probe, S, _>(Shape::Huge, |elsewhere| {
            let block = here.allocator.alloc(&Request::new(order(2))).unwrap();
            let pfn = block.pfn();
            let refused = elsewhere.allocator.free(block).unwrap_err();
            assert_eq!(refused.error, FreeError::Foreign { pfn });
            assert!(refused.to_string().starts_with("foreign frame"), "{refused}");
            here.allocator.free(refused.block).unwrap();
        });
    });
}

fn allocations<S: Policy>() {
    with_world::<Probe, S, _>(Shape::Scrap, |world| {
        let allocator = &world.allocator;
        let refuse = |request: Request| {
            let before = Snapshot::of(allocator).without_holds();
            let error = allocator.alloc_raw(&request).unwrap_err();
            let mut out = [Pfn::default(); 4];
            assert_eq!(allocator.alloc_bulk(&request, &mut out).unwrap_err().reason, error.reason);
            let mut after = Snapshot::of(allocator).without_holds();
            // A compaction in vain is counted.
            after.zones[0].compaction = before.zones[0].compaction;
            assert_eq!(after, before, "{error}: no change");
            (error.reason, error.to_string())
        };
        for (ty, name) in [(3, "HighAtomic"), (4, "CMA"), (5, "Isolate")] {
            let text = format!("migrate type {name} is a state of pageblocks, not a request");
            let answer = refuse(Request::frame().migrate(MigrateType::ALL[ty]));
            assert_eq!(answer, (AllocReason::NotRequestable, text));
        }
        for nodes in [NodeMask::NONE, NodeMask::only(NodeId(3))] {
            let text = "no zone fits the nodes and zone limit of the request";
            let answer = refuse(Request::frame().nodes(NodePolicy::Bind(nodes)));
            assert_eq!(answer, (AllocReason::NoZone, text.into()));
        }
        let (reason, text) = refuse(Request::new(order(7)));
        assert_eq!(reason, AllocReason::Exhausted);
        assert_eq!(
            text,
            "no free block of order 7 (Unmovable) above the Min watermark; 1 zone(s) tried, zone 0 first"
        );
        assert_eq!(
            allocator.explain(&Request::new(order(7))).to_string(),
            "order 7 (Unmovable): 1 zone(s); zone 0 (node 0 Normal): 96 frames free, 0 to be kept, 0 cached, \
             largest free order Unmovable none Movable 6 Reclaimable none"
        );
        let marks = Watermarks { min: 200, low: 200, high: 200 };
        assert!(allocator.set_watermarks(ZoneId(0), marks));
        assert_eq!(refuse(Request::frame()).0, AllocReason::Exhausted);
        let explained = allocator.explain(&Request::frame()).to_string();
        assert!(explained.contains("96 frames free, 200 to be kept"), "{explained}");
    });
}

/// Half a bulk fits: all of it is given back.
fn bulk_undo<S: Policy>() {
    for size in [0, 1, 3] {
        with_world::<Probe, S, _>(Shape::Scrap, |world| {
            let request = Request::new(order(size));
            let mut out = vec![Pfn::default(); (96 >> size) + 1];
            let error = world.allocator.alloc_bulk(&request, &mut out).unwrap_err();
            assert_eq!((error.reason, error.order), (AllocReason::Exhausted, order(size)));
            world.allocator.drain_all();
            assert_eq!(world.allocator.zone_info(ZoneId(0)).unwrap().free, 96);
            world.allocator.alloc_bulk(&request, &mut out[1..]).expect("exactly all fits");
        });
    }
}

fn cannot_zero<S: Policy>() {
    with_world::<Probe, S, _>(Shape::Flat, |world| {
        let allocator = &world.allocator;
        for size in [0, 2, 9] {
            let request = Request::new(order(size)).zero();
            let block = allocator.alloc_raw(&request).unwrap();
            assert_eq!(allocator.platform().take_calls().zeroed, [(block, order(size))]);
            allocator.free_raw(block, order(size)).unwrap();
            allocator.platform().set_can_zero(false);
            let error = allocator.alloc_raw(&request).unwrap_err();
            assert_eq!(error.reason, AllocReason::CannotZero);
            assert_eq!(error.to_string(), "this host cannot fill frames with zero bytes");
            assert_eq!(allocator.platform().take_calls().zeroed.len(), 1, "it was asked");
            allocator.drain_all();
            let zones = Snapshot::of(allocator).zones;
            assert_eq!(zones.iter().map(|zone| zone.free).sum::<u64>(), 2048, "given back");
            allocator.platform().set_can_zero(true);
        }
        assert!(allocator.platform().faults().is_empty());
    });
}

fn numbers_beyond<S: Policy>() {
    with_world::<Probe, S, _>(Shape::Flat, |world| {
        let allocator = &world.allocator;
        let (max, none) = (u64::MAX, ZoneId(9));
        assert!(allocator.handle(CpuId(3)).is_err());
        assert!(allocator.zone_info(none).is_none());
        assert!(allocator.cache_info(none, CpuId(0)).is_none());
        assert!(allocator.cache_info(ZoneId(0), CpuId(99)).is_none());
        assert!(!allocator.set_watermark_boost(none, 1));
        assert_eq!(allocator.drain_cpu(CpuId(99)), 0);
        assert!(!allocator.set_watermarks(ZoneId(0), Watermarks { min: 2, low: 1, high: 3 }));
        // A CPU number beyond all is only a bad hint.
        allocator.platform().switch_cpu(CpuId(u32::MAX));
        let pfn = allocator.alloc_raw(&Request::frame()).unwrap();
        allocator.free_raw(pfn, Order::ZERO).unwrap();
        // The largest marks there are: nothing is to be had, and nothing overflows.
        for zone in allocator.plan().zones().iter().map(|zone| zone.id) {
            assert!(allocator.set_watermarks(zone, Watermarks { min: max, low: max, high: max }));
            assert!(allocator.set_watermark_boost(zone, max));
        }
        allocator.drain_all();
        for request in [Request::frame(), Request::new(order(4)).atomic().high()] {
            let error = allocator.alloc_raw(&request).unwrap_err();
            assert_eq!(error.reason, AllocReason::Exhausted, "{error}");
            let explained = allocator.explain(&request).to_string();
            assert!(explained.contains("to be kept"), "{explained}");
        }
    });
}

/// Storage of the wrong length, or used before.
#[test]
fn bad_storage_is_refused() {
    let plan = Shape::Flat.plan::<Zonal>();
    let size = TableSize::of::<Zonal>(&plan);
    let mut tables = HeapTables::<SingleThread, Zonal>::new(&plan).unwrap();
    let mut build = |which: usize| {
        let mut zones: Vec<_> = (0..size.zones).map(|_| Zone::vacant()).collect();
        let short = |at: usize| usize::from(which == at);
        let whole = tables.storage();
        let free = |at: usize| {
            let words = whole.free.0[at];
            &words[short(2 + at).min(words.len())..]
        };
        let storage: Storage<'_, SingleThread, Zonal> = Storage {
            states: &whole.states[short(0)..],
            pageblocks: &whole.pageblocks[short(1)..],
            free: FreeWords([free(0), free(1), free(2)]),
            zones: &mut zones[short(5)..],
            caches: &whole.caches[short(6)..],
            outside: &whole.outside[short(7)..],
            homes: &mut whole.homes[short(8)..],
            shared: whole.shared,
        };
        Allocator::new(SingleThread, &plan, storage).err()
    };
    let words = ["free words 0", "free words 1", "free words 2"];
    let [first, second, third] = words;
    let names =
        ["states", "pageblocks", first, second, third, "zones", "caches", "outside", "homes"];
    for (which, name) in names.into_iter().enumerate() {
        let none = match name {
            "free words 1" => size.free[1] == 0,
            "free words 2" => size.free[2] == 0,
            _ => false,
        };
        if none {
            // It cannot be too short, and an allocator would be built.
            continue;
        }
        let Some(BuildError::WrongLength { what, given, wanted }) = build(which) else {
            panic!("{name} may be too short");
        };
        assert_eq!((what, given), (name, wanted - 1));
        let text = format!("the storage for {name} has {given} elements, {wanted} are wanted");
        assert_eq!(BuildError::WrongLength { what, given, wanted }.to_string(), text);
    }
    assert_eq!(build(usize::MAX), None, "right and zeroed");
    assert_eq!(build(usize::MAX), Some(BuildError::NotZeroed));
    let text = "the frame table's memory must be zeroed first";
    assert_eq!(BuildError::NotZeroed.to_string(), text);
}

/// More than there can be of anything is as good as all of it, for blocks of any order.
#[test]
fn a_boost_beyond_all_memory() {
    with_world::<Probe, Zonal, _>(Shape::Huge, |world| {
        let zones: Vec<ZoneId> = (0..world.allocator.zone_count() as u8).map(ZoneId).collect();
        let boost = |frames| {
            zones
                .iter()
                .for_each(|&zone| assert!(world.allocator.set_watermark_boost(zone, frames)));
        };
        for order in [0, 4, 9].map(|order| Order::new(order).unwrap()) {
            boost(u64::MAX);
            assert!(world.allocator.alloc_raw(&Request::new(order)).is_err(), "{order:?}");
            boost(0);
            let pfn = world.allocator.alloc_raw(&Request::new(order)).unwrap();
            world.allocator.free_raw(pfn, order).unwrap();
            world.allocator.drain_all();
        }
    });
}

#[test]
fn a_claimed_cpu_is_refused() {
    with_world::<Probe, Zonal, _>(Shape::Flat, |world| {
        let first = world.allocator.handle(CpuId(1)).unwrap();
        let error = world.allocator.handle(CpuId(1)).unwrap_err();
        assert_eq!(error.to_string(), "the CPU slot is owned by another handle");
        drop(first);
        world.allocator.handle(CpuId(1)).unwrap();
    });
}

macro_rules! on_presets {
    ($($module:ident: $preset:ty;)*) => {$(
        mod $module {
            use super::*;
            #[test]
            fn refused_frees() { frees::<$preset>(); }
            #[test]
            fn refused_double_frees() { double_frees::<$preset>(); }
            #[test]
            fn refused_in_bulk() { bulk_frees::<$preset>(); }
            #[test]
            fn refused_blocks_come_back() { blocks_come_back::<$preset>(); }
            #[test]
            fn refused_allocations() { allocations::<$preset>(); }
            #[test]
            fn half_a_bulk() { bulk_undo::<$preset>(); }
            #[test]
            fn hosts_that_cannot_zero() { cannot_zero::<$preset>(); }
            #[test]
            fn numbers_beyond_the_end() { numbers_beyond::<$preset>(); }
        }
    )*};
}

with_presets!(on_presets);

//! What cannot come or go, and what is said of it; nothing changes then.

use super::*;

/// Memory with everything that can be in the way.
fn with_obstacles<S: Policy>(f: impl FnOnce(&W<'_, S>)) {
    let regions = [
        frames(0, 0x400, RegionKind::Usable, 0),
        frames(0x400, 0x400, Off, 0),
        frames(0x500, 0x20, RegionKind::Reserved, 0),
        frames(0x808, 0x58, Off, 0),
        frames(0x860, 0x40, RegionKind::ReclaimLater, 0),
        frames(0xa00, 0x200, Off, 1),
    ];
    let limit = Pfn::new(0x600);
    let config = Config { dma_limit: limit, dma32_limit: limit, ..Shape::Later.config() };
    let plan = plan::<S>(&regions, config);
    assert_eq!(plan.map().report().offline_cut, 0x18, "it shares a pageblock with a hole");
    with_plan::<Probe, S, _>(Shape::Later, &plan, |world| {
        world.allocator.online(pfns(0x420, 0x480)).unwrap();
        f(world);
    });
}

fn sizes_of(snapshot: &Snapshot) -> Vec<(u64, u64, u64, Watermarks)> {
    let zones = snapshot.zones.iter();
    zones.map(|zone| (zone.spanned, zone.present, zone.managed, zone.watermarks)).collect()
}

pub(crate) fn bad_ranges<S: Policy>() {
    with_obstacles::<S>(|world| {
        let allocator = &world.allocator;
        let (at, pageblock) = (Pfn::new, order(5));
        let before = check(world, []);
        let online = [
            (0x440, 0x440, OnlineError::Range(RangeError::Empty)),
            (0x460, 0x440, OnlineError::Range(RangeError::Empty)),
            (
                0x480,
                0x4a1,
                OnlineError::Range(RangeError::NotAligned { pfn: at(0x4a1), pageblock }),
            ),
            (
                0x481,
                0x4a0,
                OnlineError::Range(RangeError::NotAligned { pfn: at(0x481), pageblock }),
            ),
            (
                0x10_0000,
                0x10_0020,
                OnlineError::Range(RangeError::Frame(FreeError::Foreign { pfn: at(0x10_0000) })),
            ),
            (
                0xb00,
                0x2000,
                OnlineError::Range(RangeError::Frame(FreeError::Foreign { pfn: at(0xc00) })),
            ),
            (
                0x900,
                0x920,
                OnlineError::Range(RangeError::Frame(FreeError::Hole { pfn: at(0x900) })),
            ),
            (
                0x7e0,
                0x840,
                OnlineError::Range(RangeError::Frame(FreeError::Hole { pfn: at(0x800) })),
            ),
            (0x3e0, 0x420, OnlineError::NotOffline { pfn: at(0x3e0) }),
            (0x4e0, 0x540, OnlineError::NotOffline { pfn: at(0x500) }),
            (0x820, 0x880, OnlineError::NotOffline { pfn: at(0x860) }),
            (0x420, 0x480, OnlineError::Online { pfn: at(0x420) }),
            (0x400, 0x440, OnlineError::Online { pfn: at(0x420) }),
            (0x460, 0x4a0, OnlineError::Online { pfn: at(0x460) }),
        ];
        for (start, end, error) in online {
            assert_eq!(allocator.online(pfns(start, end)), Err(error), "{start:#x}..{end:#x}");
            assert!(!error.to_string().is_empty());
        }
        let range = OfflineError::Range;
        let offline = [
            (0x440, 0x440, range(RangeError::Empty)),
            (0x440, 0x441, range(RangeError::NotAligned { pfn: at(0x441), pageblock })),
            (
                0x10_0000,
                0x10_0020,
                range(RangeError::Frame(FreeError::Foreign { pfn: at(0x10_0000) })),
            ),
            (0x900, 0x920, range(RangeError::Frame(FreeError::Hole { pfn: at(0x900) }))),
            (0x3e0, 0x440, OfflineError::NotOffline { pfn: at(0x3e0) }),
            (0x400, 0x440, range(RangeError::Frame(FreeError::Offline { pfn: at(0x400) }))),
            (0x460, 0x4a0, range(RangeError::Frame(FreeError::Offline { pfn: at(0x480) }))),
        ];
        for (start, end, error) in offline {
            assert_eq!(allocator.offline(pfns(start, end)), Err(error), "{start:#x}..{end:#x}");
            assert!(!error.to_string().is_empty());
        }
        let after = Snapshot::of(allocator);
        assert_eq!(after.without_holds(), before.without_holds());
    });
}

/// Frames that are withheld of memory that has come are not the allocator's, whichever of their pageblock
/// are.
pub(crate) fn withheld_frames<S: Policy>() {
    with::<S>(|world| {
        let (allocator, at) = (&world.allocator, Pfn::new);
        let come = allocator.online_with(pfns(0x1900, 0x1980), || Ok::<_, OnlineError>(40));
        assert_eq!(come.unwrap().frames, 0x80 - 40);
        for (start, end, first) in
            [(0x1900, 0x1920, 0x1900), (0x1920, 0x1960, 0x1920), (0x18e0, 0x1940, 0x1900)]
        {
            let refusal = RangeError::Frame(FreeError::Offline { pfn: at(first) });
            assert_eq!(allocator.isolate(pfns(start, end)).unwrap_err(), refusal);
            assert_eq!(allocator.alloc_range(pfns(start, end)).unwrap_err(), refusal);
        }
        let rest = allocator.alloc_range(pfns(0x1928, 0x1960)).unwrap();
        allocator.free_contiguous(rest).unwrap();
        // A hole in the middle of what is managed.
        allocator.release(pfns(0x1900, 0x1910)).unwrap();
        let refusal = RangeError::Frame(FreeError::Offline { pfn: at(0x1910) });
        assert_eq!(allocator.alloc_range(pfns(0x1900, 0x1930)).unwrap_err(), refusal);
        allocator.release(pfns(0x1910, 0x1928)).unwrap();
        let isolated = allocator.isolate(pfns(0x1900, 0x1980)).unwrap();
        allocator.undo_isolation(isolated).unwrap();
        check(world, []);
    });
}

/// What is in use where the host moves nothing, or in two zone types, stays; what is not there
/// can be neither freed nor isolated.
pub(crate) fn busy_ranges<S: Policy>() {
    with_obstacles::<S>(|world| {
        let (allocator, at) = (&world.allocator, Pfn::new);
        allocator.online(pfns(0x5e0, 0x620)).unwrap();
        let before = check(world, []);
        let crosses = OfflineError::Range(RangeError::CrossesZones { pfn: at(0x600) });
        assert_eq!(allocator.offline(pfns(0x5e0, 0x620)), Err(crosses));
        let after = Snapshot::of(allocator);
        assert_eq!(after.without_holds(), before.without_holds());

        let block = allocator.alloc_range(pfns(0x440, 0x441)).unwrap();
        let before = check(world, [(at(0x440), Order::ZERO)]);
        let refused = allocator.offline(pfns(0x420, 0x460));
        assert!(matches!(refused, Err(OfflineError::Range(_))), "{refused:?}");
        let after = check(world, [(at(0x440), Order::ZERO)]);
        assert_eq!(sizes_of(&after), sizes_of(&before));
        allocator.free_contiguous(block).unwrap();
        allocator.offline(pfns(0x420, 0x460)).unwrap();
        check(world, []);

        let free = allocator.free_raw(at(0x4a0), Order::ZERO).unwrap_err();
        assert_eq!(free, FreeError::Offline { pfn: at(0x4a0) });
        assert_eq!(free.to_string(), "pfn 0x4a0 is offline");
        let isolated = allocator.isolate(pfns(0x460, 0x4a0)).unwrap_err();
        assert_eq!(isolated, RangeError::Frame(FreeError::Offline { pfn: at(0x480) }));
        assert!(allocator.is_online(at(0x460)) && !allocator.is_online(at(0x480)));
        assert!(!allocator.is_online(at(0x440)), "it has gone");
    });
}

//! The same on memory whose pages the system keeps from being written: a write ends the test program.

use std::mem::MaybeUninit;
use std::ops::Range;
use std::ptr::NonNull;
use zonal::error::{OnlineError, RangeError};
use zonal::map::{MemoryMap, PfnRange, PhysAddr, Region, RegionKind};
use zonal::plan::{Config, Plan};
use zonal::platform::stay::Unbounded;
use zonal::policy::{Policy, Split};
use zonal::report::{BuddyInfo, PageTypeInfo, VmStat};
use zonal::{
    Allocator, Bounds, CompactMode, CpuId, MigrateType, NodeId, Order, Pfn, Request, ZoneId,
};
use zonal_tables::sparse::{self, Layout, PAGE_BYTES};
use zonal_testkit::host::TestHost;
use zonal_testkit::mover::Moving;
use zonal_testkit::probe::{Plain, Probe};
use zonal_testkit::shape::Shape;

type Host = Probe<Unbounded, Plain>;

/// In frames.
const MIB: u64 = 1 << 8;
const GIB: u64 = 1 << 18;
const MOVABLE: Request = Request::frame().migrate(MigrateType::Movable);

/// Pages that were reserved, read-only, and show zeros.
struct Reserved(NonNull<u8>, usize);

impl Reserved {
    fn new(bytes: u64) -> Self {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let (bytes, anywhere) = (bytes as usize, std::ptr::null_mut());
        // SAFETY: a new mapping.
        let at = unsafe { libc::mmap(anywhere, bytes, libc::PROT_READ, flags, -1, 0) };
        assert_ne!(at, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
        Self(NonNull::new(at.cast()).unwrap(), bytes)
    }

    fn open(&self, pages: Range<u64>) {
        let pages = pages.start as usize * PAGE_BYTES..pages.end as usize * PAGE_BYTES;
        assert!(pages.end <= self.1);
        let both = libc::PROT_READ | libc::PROT_WRITE;
        let start = self.0.as_ptr().wrapping_add(pages.start).cast();
        // SAFETY: inside the mapping, which is this test's.
        let done = unsafe { libc::mprotect(start, pages.len(), both) };
        assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
    }
}

fn region(kind: RegionKind, start: u64, frames: u64) -> Region {
    Region { kind, ..Region::usable(PhysAddr(start << 12), frames << 12) }
}

/// Two nodes with ragged ends, holes of gibibytes between and inside them, what is lent, what is reclaimed later
/// and what may come.
fn regions() -> [Region; 8] {
    use RegionKind::{Cma, Offline, ReclaimLater, Reserved, Usable};
    [
        region(Usable, 3, 96 * MIB),
        region(Reserved, 5 * MIB, 3 * MIB + 7),
        region(ReclaimLater, 40 * MIB + 9, MIB),
        region(Usable, 3 * GIB + 77 * MIB + 5, 200 * MIB),
        region(Cma, 3 * GIB + 128 * MIB, 16 * MIB),
        region(Usable, 7 * GIB, 64 * MIB).on(NodeId(1)),
        region(Offline, 9 * GIB, 20 * GIB),
        region(Offline, 40 * GIB, 8 * GIB).on(NodeId(1)),
    ]
}

struct Machine<S: Policy> {
    plan: &'static Plan,
    tables: Reserved,
    allocator: Allocator<'static, Host, S>,
}

impl<S: Policy> Machine<S> {
    fn new() -> Self {
        let map = MemoryMap::from_regions(&regions()).unwrap().sanitise().unwrap();
        let plan = Plan::new(map, Config::new(2), S::Split::instances).unwrap();
        let plan: &'static Plan = Box::leak(Box::new(plan));
        let layout = Layout::of::<S>(plan);
        let tables = Reserved::new(layout.bytes());
        for range in plan.map().present() {
            layout.visit_pages::<S>(plan, range.pfns(), &mut |pages| tables.open(pages));
        }
        let bytes = sparse::piece_bytes::<Host, S>(plan) as usize;
        let piece = vec![MaybeUninit::uninit(); bytes].leak();
        // SAFETY: the mapping has the layout's bytes, zero and this test's alone, and stays; pages are opened
        // before memory comes.
        let storage = unsafe { sparse::in_range::<Host, S>(plan, tables.0, piece) }.unwrap();
        let allocator = Allocator::new(Host::for_shape(Shape::TwoNodes), plan, storage).unwrap();
        allocator.platform().movers().set(Moving::Obeys);
        Self { plan, tables, allocator }
    }

    /// Has the tables come of memory that comes.
    fn open(&self, range: &Range<Pfn>) {
        let range = PfnRange::new(range.start, range.end);
        let layout = Layout::of::<S>(self.plan);
        layout.visit_pages::<S>(self.plan, range, &mut |pages| self.tables.open(pages));
    }

    fn zones(&self) -> impl Iterator<Item = ZoneId> {
        (0..self.allocator.zone_count()).map(|zone| ZoneId(zone as u8))
    }

    /// All that looks at everything; returns what is free.
    fn reports(&self) -> u64 {
        self.allocator.drain_all();
        let (mut found, mut said) = (0, 0);
        for zone in self.zones() {
            self.allocator.visit_free(zone, &mut |_, place| found += place.order().frames());
            said += self.allocator.zone_info(zone).unwrap().free;
        }
        assert_eq!(found, said);
        let a = &self.allocator;
        let text = format!("{}{}{}", BuddyInfo(a), PageTypeInfo(a), VmStat(a));
        assert!(text.contains("Node"), "{text}");
        found
    }

    /// Everything is taken, in many sizes; half of it is given back, what is left compacted, and given back.
    fn work(&self) {
        let a = &self.allocator;
        let mut held = Vec::new();
        let types = [MigrateType::Unmovable, MigrateType::Reclaimable];
        for (nth, order) in [10, 9, 4, 0, 3, 1].into_iter().enumerate() {
            let request = Request::new(Order::new(order).unwrap()).migrate(types[nth % 2]);
            for _ in 0..2000_u32 >> order {
                held.extend(a.alloc_raw(&request).map(|pfn| (pfn, request.order())));
            }
        }
        let movers = a.platform().movers();
        for nth in 0.. {
            a.platform().switch_cpu(CpuId((nth % 2) as u32));
            let Ok(pfn) = a.alloc_raw(&MOVABLE) else { break };
            movers.adopt(pfn, Order::ZERO, nth);
        }
        assert!(a.alloc_raw(&MOVABLE.no_wait()).is_err());
        self.refused();
        for (pfn, _, name) in movers.blocks() {
            if name % 3 != 0 {
                movers.drop_block(pfn);
                a.free_raw(pfn, Order::ZERO).unwrap();
            }
        }
        a.drain_all();
        for zone in self.zones() {
            let _done = a.compact_zone(zone, Order::MAX, CompactMode::Sync);
        }
        let _done = a.compact_in_background(Order::HUGE);
        assert!(!movers.take_moved().is_empty(), "compaction moved nothing");
        let first: Vec<Pfn> = movers.blocks().iter().map(|&(pfn, ..)| pfn).collect();
        assert_eq!(a.free_bulk(&first).refused, 0);
        movers.blocks().iter().for_each(|&(pfn, ..)| _ = movers.drop_block(pfn));
        held.into_iter().for_each(|(pfn, order)| a.free_raw(pfn, order).unwrap());
        let huge = a.alloc_pages(3 * 512, &MOVABLE, &Bounds::ANY).unwrap();
        a.free_pages(huge, 3 * 512).unwrap();
    }

    /// What is asked of holes, and of memory that may come.
    fn refused(&self) {
        let a = &self.allocator;
        for at in [2 * GIB, 5 * GIB + 1024, 8 * GIB, 13 * GIB, 45 * GIB, 60 * GIB] {
            for order in Order::all() {
                assert!(a.free_raw(Pfn::new(at), order).is_err());
                assert!(a.free_pages(Pfn::new(at), order.frames()).is_err());
            }
            let freed = a.free_bulk(&[Pfn::new(at); 70]);
            assert_eq!((freed.freed, freed.refused), (0, 70));
            let range = || Pfn::new(at)..Pfn::new(at + 1024);
            assert!(a.alloc_range(range()).is_err());
            assert!(a.alloc_at(range()).is_err());
            assert!(a.isolate(range()).is_err());
            assert!(a.offline(range()).is_err());
            let mut handle = a.handle(CpuId(1)).ok();
            if let Some(handle) = &mut handle {
                assert!(handle.free_raw(Pfn::new(at), Order::ZERO).is_err());
            }
        }
        assert!(a.alloc_pages(3 * GIB, &MOVABLE, &Bounds::ANY).is_err());
        assert!(a.alloc_contiguous(GIB, &MOVABLE).is_err());
    }

    /// Memory comes, its first frames withheld, is used, and goes.
    fn plug(&self, start: u64, frames: u64, withheld: u64) {
        let a = &self.allocator;
        let range = Pfn::new(start)..Pfn::new(start + frames);
        let before = self.reports();
        let online = |left: u64| {
            a.online_with(range.clone(), || {
                let inside = a.online(range.clone());
                assert_eq!(inside, Err(OnlineError::Busy), "in the middle of it");
                self.open(&range);
                Ok::<_, OnlineError>(frames - left)
            })
        };
        assert_eq!(online(0), Err(RangeError::Empty.into()));
        assert_eq!(online(frames - withheld).unwrap().frames, frames - withheld);
        let again = a.online_with(range.clone(), || -> Result<u64, OnlineError> { unreachable!() });
        assert_eq!(again, Err(OnlineError::Online { pfn: range.start }));
        assert_eq!(self.reports(), before + frames - withheld);
        for pfn in [range.start.get(), range.start.get() + withheld.max(1) - 1].map(Pfn::new) {
            assert!(a.free_raw(pfn, Order::ZERO).is_err());
        }
        self.work();
        assert_eq!(self.reports(), before + frames - withheld);
        let behind = Pfn::new(start + withheld.next_multiple_of(512))..range.end;
        assert!(withheld == 0 || a.offline(range.clone()).is_err());
        a.offline(behind.clone()).unwrap();
        a.online(behind.clone()).unwrap();
        a.offline(behind.clone()).unwrap();
        let kept = behind.start.get() - start - withheld;
        assert_eq!(self.reports(), before + kept);
        if withheld > 0 {
            // What was in them is needed no more.
            let own = range.start..Pfn::new(start + withheld);
            assert_eq!(a.release(own), Ok(withheld));
            a.offline(range.start..behind.start).unwrap();
        }
        assert_eq!(self.reports(), before);
        self.work();
    }
}

/// All of it.
pub(super) fn run<S: Policy>() {
    let machine = Machine::<S>::new();
    let before = machine.reports();
    machine.work();
    assert_eq!(machine.reports(), before);
    machine.plug(10 * GIB, 512 * MIB, 0);
    machine.plug(12 * GIB, 128 * MIB, 3 * 512 + 70);
    machine.plug(41 * GIB, 32 * MIB, 5);
    // What no map mentioned: between the memory of a zone, and behind all zones.
    for (start, room) in [(GIB + 7, true), (2 * GIB + 7, true), (50 * GIB, false)] {
        let hole = Pfn::new(start)..Pfn::new(start + MIB);
        machine.open(&hole);
        let released = machine.allocator.release(hole);
        assert_eq!(released.is_ok(), room, "{start:x}: {released:?}");
    }
    let later = machine.allocator.release_reclaim_later();
    assert!(later >= MIB);
    machine.work();
    machine.reports();
}

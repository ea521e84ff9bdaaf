//! Page tables of the crate `page_table_multiarch`, under both of its names, whose frames are an allocator's.
#![cfg(any(feature = "page_table_multiarch", feature = "ax-page-table-multiarch"))]
#![cfg(target_arch = "x86_64")]

mod fake;

use fake::Fake;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use zonal::map::{PhysAddr, Region};
use zonal::plan::Config;
use zonal::preset::Zonal;
use zonal::{Request, ZoneId};
use zonal_kernel::paging_handler::{Handler, TableFrames};
use zonal_kernel::{Error, Global};

static FRAMES: Global<Fake> = Global::new();
static REFUSED: AtomicUsize = AtomicUsize::new(0);
static ONE_TEST: Mutex<()> = Mutex::new(());

struct Own;

// SAFETY: the tests below call it with frames that they were given, or that are free.
unsafe impl TableFrames for Own {
    type Machine = Fake;
    type Preset = Zonal;

    fn frames() -> &'static Global<Fake> {
        &FRAMES
    }

    /// None of the reserves, so that exhaustion leaves them.
    fn request() -> Request {
        Request::frame().no_wait()
    }

    fn refused(error: Error) {
        assert!(matches!(error, Error::Range(_)), "{error}");
        REFUSED.fetch_add(1, Relaxed);
    }
}

/// One test at a time, with an arena of 8 MiB.
fn arena() -> MutexGuard<'static, ()> {
    let guard = ONE_TEST.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: only looked at.
    if unsafe { FRAMES.allocator() }.is_err() {
        let memory = Region::usable(PhysAddr(0), fake::memory(8 << 20));
        let booting = FRAMES.map([memory], &[], []).unwrap();
        // SAFETY: no other code has that memory.
        unsafe { booting.boot(Config::new(1)).unwrap() };
    }
    guard
}

fn free() -> u64 {
    FRAMES.drain_all();
    // SAFETY: only looked at.
    let allocator = unsafe { FRAMES.allocator().unwrap() };
    let zones = (0..allocator.zone_count()).map(|n| allocator.zone_info(ZoneId(n as u8)).unwrap());
    zones.map(|zone| zone.free + zone.cached).sum()
}

macro_rules! tests {
    ($name:ident, $feature:literal, $tables:ident, $addresses:ident) => {
        #[cfg(feature = $feature)]
        mod $name {
            use super::*;
            use $addresses::{PhysAddr, VirtAddr};
            use $tables::x86_64::X64PageTable;
            use $tables::{
                GenericPTE, MappingFlags, PageSize, PageTable64, PagingError, PagingHandler,
                PagingMetaData,
            };

            /// The processor's tables, but no flush: that is an instruction for kernels.
            struct Tables;

            impl PagingMetaData for Tables {
                const LEVELS: usize = 4;
                const PA_MAX_BITS: usize = 52;
                const VA_MAX_BITS: usize = 48;
                type VirtAddr = VirtAddr;
                fn flush_tlb(_: Option<VirtAddr>) {}
            }

            /// The entries of a table.
            trait Entries {
                type Entry;
            }

            impl<M: PagingMetaData, E: GenericPTE, H: PagingHandler> Entries for PageTable64<M, E, H> {
                type Entry = E;
            }

            type Entry = <X64PageTable<Handler<Own>> as Entries>::Entry;
            type Table = PageTable64<Tables, Entry, Handler<Own>>;

            const FLAGS: MappingFlags = MappingFlags::READ.union(MappingFlags::WRITE);

            fn at(address: usize) -> VirtAddr {
                VirtAddr::from_usize(address)
            }

            #[test]
            fn a_table_is_mapped_and_unmapped() {
                let _guard = arena();
                let before = free();
                let mut table = Table::try_new().unwrap();
                // Neighbours, and pages that share no table below the root.
                let near = (0..600).map(|page| page << 12);
                let far = (1..20).map(|part| part << 39);
                let all: Vec<usize> = near.chain(far).collect();
                for (n, &address) in all.iter().enumerate() {
                    let frame = PhysAddr::from_usize((n + 1) << 12);
                    let mapped = table.cursor().map(at(address), frame, PageSize::Size4K, FLAGS);
                    mapped.unwrap();
                }
                let huge = PhysAddr::from_usize(2 << 20);
                table.cursor().map(at(1 << 30), huge, PageSize::Size2M, FLAGS).unwrap();
                // A root; three levels for the first part, with two tables at the end; three for each other
                // part; one for the huge page.
                let tables = 1 + 4 + 19 * 3 + 1;
                assert_eq!(free(), before - tables);
                for (n, &address) in all.iter().enumerate() {
                    let (frame, flags, _) = table.query(at(address + 5)).unwrap();
                    assert_eq!((frame.as_usize(), flags), (((n + 1) << 12) + 5, FLAGS));
                    let (frame, ..) = table.cursor().unmap(at(address)).unwrap();
                    assert_eq!(frame.as_usize(), (n + 1) << 12);
                }
                assert_eq!(table.query(at(0)).unwrap_err(), PagingError::NotMapped);
                // What is empty stays until the table goes.
                assert_eq!(free(), before - tables);
                drop(table);
                assert_eq!((free(), REFUSED.load(Relaxed)), (before, 0));
            }

            #[test]
            fn no_memory_is_said_and_nothing_lost() {
                let _guard = arena();
                let before = free();
                let mut table = Table::try_new().unwrap();
                let frame = PhysAddr::from_usize(4096);
                let mut far = (0..1 << 17).map(|part| part << 30);
                let refused = far.find_map(|address| {
                    table.cursor().map(at(address), frame, PageSize::Size4K, FLAGS).err()
                });
                assert_eq!(refused, Some(PagingError::NoMemory));
                drop(table);
                assert_eq!(free(), before);
            }

            #[test]
            fn frames_in_a_row_are_aligned() {
                let _guard = arena();
                let before = free();
                for (count, align) in [(1, 4096), (1, 1 << 16), (4, 1 << 14), (5, 1 << 15), (300, 4096)] {
                    let start = Handler::<Own>::alloc_frames(count, align).unwrap();
                    assert!(start.as_usize().is_multiple_of(align), "{start:?} at {align}");
                    assert_eq!(free(), before - count as u64);
                    let bytes = Handler::<Own>::phys_to_virt(start).as_mut_ptr();
                    // SAFETY: `count` frames were allocated there.
                    unsafe { bytes.write_bytes(0xa5, count << 12) };
                    Handler::<Own>::dealloc_frames(start, count);
                    assert_eq!((free(), REFUSED.load(Relaxed)), (before, 0));
                }
                for (count, align) in [(0, 4096), (1, 0), (1, 100), (1, 3 << 12), (1 << 30, 4096)] {
                    assert_eq!(Handler::<Own>::alloc_frames(count, align), None, "{count} at {align}");
                }
                // A free of what is free is refused, and told.
                Handler::<Own>::dealloc_frames(PhysAddr::from_usize(4 << 20), 1);
                assert_eq!((free(), REFUSED.swap(0, Relaxed)), (before, 1));
            }
        }
    };
}

tests!(old_name, "page_table_multiarch", page_table_multiarch, memory_addr);
tests!(new_name, "ax-page-table-multiarch", ax_page_table_multiarch, ax_memory_addr);

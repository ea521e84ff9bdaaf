//! Addresses for the allocator's tables, 512 GiB of them: at first all pages are one of zeros, which can only be
//! read, by three tables of the processor in which all entries are alike. A page that is to be written gets a
//! frame, and on the way to it copies of those tables.

use super::Pc;
use core::sync::atomic::Ordering::{Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicU64};
use x86_64::instructions::tlb;
use x86_64::registers::control::Cr3;
use zonal::map::PhysAddr;
use zonal_kernel::Machine as _;
use zonal_kernel::global::{MapTable, MapTables, TableRange};

/// The entry of the first table through which they are reached; each address space has it.
pub(crate) const ENTRY: usize = 256;
const START: usize = 0xffff_8000_0000_0000;

/// Bits of an entry; a table on the way may allow what its pages do not.
const PRESENT: u64 = 1;
const WRITABLE: u64 = 1 << 1;
const NO_EXECUTE: u64 = 1 << 63;
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;

/// A table of the processor, or a page of zeros.
#[repr(C, align(4096))]
struct Table([AtomicU64; 512]);

impl Table {
    const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; 512])
    }

    /// Where it lies: a static, mapped as all memory is.
    fn address(&'static self) -> u64 {
        (&raw const *self).addr() as u64
    }

    fn fill(&self, entry: u64) {
        self.0.iter().for_each(|word| word.store(entry, Relaxed));
    }
}

/// The one that is reached from the first table, and what its entries lead to at first.
static TOP: Table = Table::new();
static MIDDLE: Table = Table::new();
static LAST: Table = Table::new();
static ZEROS: Table = Table::new();

/// Whether there are other processors to tell.
static AWAKE: AtomicBool = AtomicBool::new(false);

/// Makes the range. Once, on the first processor, before the others are woken.
pub(crate) fn reserve() -> TableRange {
    LAST.fill(ZEROS.address() | PRESENT | NO_EXECUTE);
    MIDDLE.fill(LAST.address() | PRESENT | WRITABLE);
    TOP.fill(MIDDLE.address() | PRESENT | WRITABLE);
    let root = Cr3::read().0.start_address().as_u64();
    // SAFETY: the table in use, mapped as all memory is.
    let root: &Table = unsafe { &*Pc::address(PhysAddr(root)).cast() };
    root.0[ENTRY].store(TOP.address() | PRESENT | WRITABLE, Release);
    TableRange { start: START, bytes: 512 << 30 }
}

/// All processors are awake from now on.
pub(crate) fn all_are_awake() {
    AWAKE.store(true, Relaxed);
}

impl MapTables for Pc {
    fn map_table(page: *mut u8, frame: PhysAddr) -> MapTable {
        let (at, mut table) = (page.addr(), &TOP);
        for (shift, shared) in [(30, &MIDDLE), (21, &LAST)] {
            let entry = &table.0[at >> shift & 511];
            let leads_to = entry.load(Relaxed) & ADDRESS;
            if leads_to == shared.address() {
                // SAFETY: the frame is ours, and mapped as all memory is.
                let own: &Table = unsafe { &*Self::address(frame).cast() };
                own.fill(shared.0[0].load(Relaxed));
                entry.store(frame.0 | PRESENT | WRITABLE, Release);
                return MapTable::Used;
            }
            // SAFETY: a frame that was made a table here, and stays one.
            table = unsafe { &*Self::address(PhysAddr(leads_to)).cast() };
        }
        let entry = frame.0 | PRESENT | WRITABLE | NO_EXECUTE;
        table.0[at >> 12 & 511].store(entry, Release);
        MapTable::Mapped
    }

    fn tables_mapped() {
        tlb::flush_all();
        if AWAKE.load(Relaxed) {
            super::team::flush_others();
        }
    }
}

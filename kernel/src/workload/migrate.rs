//! Pages of 2 MiB where each pageblock has pages of programs: compaction moves them out of the way.

use super::chain::Chain;
use super::{REFUSED, WORK, handler, with_timer};
use crate::machine::{cpu, team};
use crate::memory::movable::{MOVED, STAYED};
use crate::memory::space::{AddressSpace, Kind, START};
use crate::memory::{alloc, frames};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;
use x86_64::VirtAddr;
use zonal::{MigrateType, Order, Request, ZoneId};

/// The first of as many pages stays.
const STAYS: u64 = 8;
/// Pages of 2 MiB that one processor asks for, and then all together.
const WANTED: u64 = 48;

/// Frames that no program has, and one in this number beside: for page tables, and for the reserves of zones.
const KEPT_BACK: u64 = 4000;
const PART_KEPT_BACK: u64 = 128;

/// Those that came to the one.
pub(crate) static SERVED: AtomicU64 = AtomicU64::new(0);

fn page(n: u64) -> *mut u64 {
    core::ptr::with_exposed_provenance_mut((START + n * 4096) as usize)
}

pub(crate) fn task(number: u32) {
    let count = u64::from(cpu::count());
    team::meet();
    let infos = (0..frames().zone_count()).filter_map(|at| frames().zone_info(ZoneId(at as u8)));
    let free: u64 = infos.map(|info| info.free + info.cached).sum();
    // All but for page tables and what is kept back.
    let pages = (free - free / PART_KEPT_BACK - KEPT_BACK) / count / STAYS * STAYS;
    team::meet();
    let kind = Kind { huge: false, shared: false };
    let Ok(space) = AddressSpace::new(kind) else { panic!("no frame for a space") };
    let mut held = Chain::new(u64::from(number) << 40 | 13);
    space.with_movable_pages(|| {
        let stamp = |n: u64| u64::from(number + 1) << 40 | n;
        space.enter(|| {
            // SAFETY: a page of the space, which no other processor is in; the fault puts it there.
            (0..pages).for_each(|n| unsafe { page(n).write_volatile(stamp(n)) });
        });
        // Or who is late would fill the holes of the others, and leave memory whole.
        team::meet();
        let start = VirtAddr::new(START);
        for n in (0..pages).step_by(STAYS as usize) {
            space.unmap(start + (n + 1) * 4096, STAYS - 1);
        }
        team::meet();
        with_timer(400, || {
            handler::with(1, || {
                // First by one processor, then by all at once, which wait for each other, or go without.
                let first = if number == 0 { WANTED } else { 0 };
                SERVED.fetch_add(ask(first, &mut held), Relaxed);
                team::meet();
                ask(WANTED / count, &mut held);
            });
        });
        team::meet();
        space.enter(|| {
            for n in (0..pages).step_by(STAYS as usize) {
                // SAFETY: as above.
                let found = unsafe { page(n).read_volatile() };
                assert_eq!(found, stamp(n), "a page that was moved has something else");
            }
        });
        space.unmap(start, pages);
    });
    held.free_all();
    space.end();
}

/// Asks for pages of 2 MiB; how many came.
fn ask(wanted: u64, held: &mut Chain) -> u64 {
    let huge = Request::new(Order::HUGE).migrate(MigrateType::Movable);
    let mut served = 0;
    for _ in 0..wanted {
        match alloc(&huge) {
            Ok(block) => {
                held.push(block);
                served += 1;
            }
            Err(_) => _ = REFUSED.fetch_add(1, Relaxed),
        }
    }
    WORK.fetch_add(wanted, Relaxed);
    served
}

/// Pages were moved, and pages of 2 MiB came of it.
pub(crate) fn moved() -> Result<(), &'static str> {
    let (moved, stayed) = (MOVED.load(Relaxed), STAYED.load(Relaxed));
    let served = SERVED.load(Relaxed);
    crate::say!("{:>9}  {served} of {WANTED} came, {moved} pages moved, {stayed} stayed", "");
    if moved == 0 || served < WANTED * 3 / 4 { Err("too few were made") } else { Ok(()) }
}

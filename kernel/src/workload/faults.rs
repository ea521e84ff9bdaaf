//! Pages touched, which come by faults, and unmapped: by processors in a space each, by processors in one
//! space, and with pages of 2 MiB.

use super::{REFUSED, WORK, handler, with_timer};
use crate::machine::{cpu, team, user};
use crate::memory::faults::{HUGE, SMALL};
use crate::memory::frames;
use crate::memory::space::{AddressSpace, Kind, START};
use crate::say;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU64};
use x86_64::VirtAddr;
use x86_64::structures::paging::Translate;
use zonal::Pfn;

/// Pages touched in a round, and rounds, by all processors together.
const PAGES: u64 = 8192;
const ROUNDS: u64 = 6;
/// 2 MiB, and how many regions of them all processors touch together.
const REGION: u64 = 2 << 20;
const REGIONS: u64 = 48;

/// Pages of the processor's own node, and of others.
pub(crate) static NEAR: AtomicU64 = AtomicU64::new(0);
pub(crate) static FAR: AtomicU64 = AtomicU64::new(0);

/// The first word at an address of the space that the processor is in.
fn word(address: u64) -> *mut u64 {
    core::ptr::with_exposed_provenance_mut(address as usize)
}

/// Writes a stamp to each page, which faults, and looks whether all are there still.
fn touch(first: u64, pages: u64, step: u64, stamp: u64) {
    let each = |n: u64| word(first + n * step);
    for n in 0..pages {
        // SAFETY: an address of the space, which no other processor touches; the fault puts a page there.
        let before = unsafe { each(n).read_volatile() };
        assert_eq!(before, 0, "a page that is not zeroed");
        // SAFETY: as above.
        unsafe { each(n).write_volatile(stamp + n) };
    }
    for n in 0..pages {
        // SAFETY: as above.
        let found = unsafe { each(n).read_volatile() };
        assert_eq!(found, stamp + n, "a page in two places");
    }
    WORK.fetch_add(pages, Relaxed);
}

/// Each in its own space.
pub(crate) fn processes(number: u32) {
    let pages = PAGES / u64::from(cpu::count());
    with_timer(400, || {
        handler::with(1, || {
            for round in 0..ROUNDS {
                let kind = Kind { huge: false, shared: false };
                let Ok(space) = AddressSpace::new(kind) else { panic!("no frame for a space") };
                space.enter(|| {
                    touch(START, pages, 4096, u64::from(number) << 40 | round << 32);
                    count_near(&space, pages);
                });
                space.unmap(VirtAddr::new(START), pages);
                space.end();
            }
        });
    });
}

/// Each in its own space, by a program in ring 3.
pub(crate) fn programs(number: u32) {
    let pages = PAGES / u64::from(cpu::count());
    with_timer(400, || {
        handler::with(1, || {
            for _ in 0..ROUNDS {
                let kind = Kind { huge: number % 2 == 1, shared: false };
                let Ok(space) = AddressSpace::new(kind) else { panic!("no frame for a space") };
                user::load(&space);
                let wrong = space.enter(|| user::run(START, pages));
                assert_eq!(wrong, 0, "pages that a program finds wrong");
                WORK.fetch_add(pages, Relaxed);
                user::unload(&space);
                space.unmap(VirtAddr::new(START), pages);
                space.end();
            }
        });
    });
}

/// How much stack that took.
pub(crate) fn stack() -> Result<(), &'static str> {
    let (used, of) = cpu::ring_0_stack_used();
    say!("{:>9}  {used} bytes of stack for faults and the timer on top of them", "");
    if used == 0 || used > of / 2 { Err("a stack was not used, or half of it was") } else { Ok(()) }
}

/// Counts the pages by whose node they are of.
fn count_near(space: &AddressSpace, pages: u64) {
    let node = cpu::node(cpu::number());
    let allocator = frames();
    for n in 0..pages {
        let at = VirtAddr::new(START + n * 4096);
        let Some(found) = space.with_tables(|space| space.translate_addr(at)) else { continue };
        let zone = allocator.pageblock_of(Pfn::containing(found.as_u64()));
        let zone = zone.and_then(|(zone, _)| allocator.plan().zones().get(usize::from(zone.0)));
        let near = zone.is_some_and(|zone| zone.node == node);
        if near { &NEAR } else { &FAR }.fetch_add(1, Relaxed);
    }
}

/// Memory is plenty: pages are of the node of who touches them.
pub(crate) fn near() -> Result<(), &'static str> {
    let (near, far) = (NEAR.load(Relaxed), FAR.load(Relaxed));
    say!("{:>9}  {near} pages of the own node, {far} of others", "");
    if far * 50 > near { Err("too many pages of other nodes") } else { Ok(()) }
}

/// The space that all are in.
static SHARED: AtomicPtr<AddressSpace> = AtomicPtr::new(core::ptr::null_mut());

/// All in one space, each with a part of it.
pub(crate) fn threads(number: u32) {
    let space;
    if number == 0 {
        let Ok(own) = AddressSpace::new(Kind { huge: false, shared: true }) else {
            panic!("no frame for a space")
        };
        space = own;
        SHARED.store((&raw const space).cast_mut(), Release);
        in_shared(number, &space);
        space.end();
    } else {
        while SHARED.load(Acquire).is_null() {
            team::idle();
        }
        // SAFETY: processor 0 keeps it until all have met at the end of `in_shared`.
        in_shared(number, unsafe { &*SHARED.load(Acquire) });
    }
}

fn in_shared(number: u32, space: &AddressSpace) {
    let pages = PAGES / u64::from(cpu::count());
    // Not at the same page tables' edges: neighbours share some.
    let first = START + u64::from(number) * pages * 4096;
    team::meet();
    with_timer(400, || {
        space.enter(|| {
            // Fewer where more have to flush for each of them.
            for round in 0..ROUNDS / 2 / u64::from(cpu::count().div_ceil(4)) {
                touch(first, pages, 4096, u64::from(number) << 40 | round << 32);
                space.unmap(VirtAddr::new(first), pages);
            }
        });
    });
    if number == 0 {
        SHARED.store(core::ptr::null_mut(), Release);
    }
    team::meet();
}

/// Pages of 2 MiB, beside processors that keep the memory in pieces, so that some faults fall back.
pub(crate) fn huge(number: u32) {
    if number == 0 {
        HUGE.store(0, Relaxed);
        SMALL.store(0, Relaxed);
    }
    team::meet();
    let Ok(space) = AddressSpace::new(Kind { huge: true, shared: false }) else {
        panic!("no frame for a space")
    };
    let regions = REGIONS / u64::from(cpu::count());
    let mut held = super::chain::Chain::new(u64::from(number) << 48);
    // For the small pages and their tables. Between each two of them is one that stays, or they would be huge again.
    let mut small = super::chain::Chain::new(u64::from(number) << 48 | 1);
    for _ in 0..2 * regions + 32 {
        for chain in [&mut small, &mut held] {
            let _ = crate::memory::alloc(&zonal::Request::frame()).map(|block| chain.push(block));
        }
    }
    with_timer(400, || {
        space.enter(|| {
            // Some while there are huge pages, some when there are none.
            touch(START, regions, REGION, 1);
            team::meet();
            let large = zonal::Request::new(zonal::Order::HUGE).no_wait();
            while let Ok(block) = crate::memory::alloc(&large) {
                held.push(block);
                REFUSED.fetch_add(1, Relaxed);
            }
            team::meet();
            small.free_all();
            touch(START + REGIONS * REGION, regions, REGION, 1 << 32);
            team::meet();
        });
    });
    held.free_all();
    space.unmap(VirtAddr::new(START), (REGIONS + regions) * REGION / 4096);
    space.end();
}

/// Some faults were served with a huge page, some with a small one.
pub(crate) fn had_both() -> Result<(), &'static str> {
    let (huge, small) = (HUGE.load(Relaxed), SMALL.load(Relaxed));
    say!("{:>9}  {huge} faults with 2 MiB, {small} with 4 KiB", "");
    if huge == 0 || small == 0 { Err("huge pages, or small ones, never came") } else { Ok(()) }
}

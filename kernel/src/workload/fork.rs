//! A space copied when it is written: parent and child have the same pages until one of them writes.

use super::{WORK, handler, with_timer};
use crate::machine::cpu;
use crate::memory::shares::{COPIED, KEPT};
use crate::memory::space::{AddressSpace, Kind, START};
use crate::say;
use core::sync::atomic::Ordering::Relaxed;
use x86_64::VirtAddr;

/// Pages of a parent, and how often it has a child, by all processors together.
const PAGES: u64 = 2048;
const ROUNDS: u64 = 4;

/// The first word of page `n` of the space that the processor is in.
fn word(n: u64) -> *mut u64 {
    core::ptr::with_exposed_provenance_mut((START + n * 4096) as usize)
}

fn read(n: u64) -> u64 {
    // SAFETY: a page of the space, or one that comes; no other processor has the space.
    unsafe { word(n).read_volatile() }
}

fn write(n: u64, value: u64) {
    // SAFETY: as above.
    unsafe { word(n).write_volatile(value) };
}

pub(crate) fn task(number: u32) {
    with_timer(400, || handler::with(1, || family(number, PAGES / u64::from(cpu::count()))));
}

fn family(number: u32, pages: u64) {
    let start = VirtAddr::new(START);
    let stamp = |n: u64, of: u64| u64::from(number) << 40 | of << 32 | n;
    let Ok(parent) = AddressSpace::new(Kind { huge: false, shared: false }) else {
        panic!("no frame for a space")
    };
    parent.enter(|| (0..pages).for_each(|n| write(n, stamp(n, 0))));
    for round in 1..=ROUNDS {
        let Ok(child) = parent.fork(start, pages) else { panic!("no child") };
        // Each writes a part: pages that the other has still, and pages that it has alone by now.
        child.enter(|| {
            (0..pages).for_each(|n| assert_eq!(read(n), stamp(n, 0), "what the parent wrote"));
            (0..pages).step_by(2).for_each(|n| write(n, stamp(n, round)));
        });
        parent.enter(|| {
            (0..pages).step_by(3).for_each(|n| write(n, stamp(n, 0)));
            (0..pages).for_each(|n| assert_eq!(read(n), stamp(n, 0), "a child wrote here"));
        });
        child.enter(|| {
            for n in 0..pages {
                let of = if n % 2 == 0 { round } else { 0 };
                assert_eq!(read(n), stamp(n, of), "a page of a child");
            }
        });
        child.unmap(start, pages);
        child.end();
        WORK.fetch_add(pages, Relaxed);
    }
    parent.enter(|| (0..pages).for_each(|n| write(n, stamp(n, 0))));
    parent.unmap(start, pages);
    parent.end();
}

/// Pages were copied only where both had them: of each round a half for the child, a sixth for the parent.
pub(crate) fn copied() -> Result<(), &'static str> {
    let (work, copied, kept) = (WORK.load(Relaxed), COPIED.load(Relaxed), KEPT.load(Relaxed));
    say!("{:>9}  {copied} pages copied, {kept} written where they were", "");
    let wanted = work * 2 / 3;
    if copied.abs_diff(wanted) > work / 50 || kept == 0 {
        return Err("other pages were copied than had to be");
    }
    Ok(())
}

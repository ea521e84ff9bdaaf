//! A kernel that calls all that [`Global`] has, and lists of frames: its code is measured by
//! `cargo xtask kernel size`, which compares it with `size_without.rs`. It is not run.
#![cfg_attr(target_os = "none", no_std, no_main)]

#[cfg(target_os = "none")]
mod bare;

use core::ops::Range;
use zonal::{Bounds, CpuId, NodeId, Order, Pfn, Request, map::PhysAddr, plan::Config};
use zonal_kernel::boot_map::e820::Entry;
use zonal_kernel::{Error, Global, Machine, arch};

struct Pc;

#[rustfmt::skip]
impl Machine for Pc {
    fn cpu() -> CpuId { CpuId(0) }
    fn node(_: CpuId) -> NodeId { NodeId(0) }
    fn interrupts_off() -> bool { arch::interrupts_off() }
    fn interrupts_restore(were_on: bool) { arch::interrupts_restore(were_on); }
    fn address(frame: PhysAddr) -> *mut u8 { (0xffff_8000_0000_0000 + frame.0) as *mut u8 }
}

static FRAMES: Global<Pc> = Global::new();

/// From a memory map to all kinds of requests.
///
/// # Errors
/// What is wrong with the map, or not to be had.
pub fn boot(e820: &[Entry], image: Range<u64>, initrd: Range<Pfn>) -> Result<u64, Error> {
    let map = FRAMES.map(e820, &[image], [])?;
    // SAFETY: never run.
    unsafe { map.boot(Config::new(8))? };
    let frame = FRAMES.alloc(&Request::frame().zero())?;
    let huge = FRAMES.alloc(&Request::new(Order::HUGE))?;
    let atomic = FRAMES.alloc(&Request::frame().atomic())?;
    [frame, huge, atomic].into_iter().try_for_each(|block| FRAMES.free(block))?;
    let row = FRAMES.alloc_contiguous(1 << 13, &Request::frame())?;
    FRAMES.free_contiguous(row).map_err(|refused| Error::Range(refused.error))?;
    let pages = FRAMES.alloc_pages(12, &Request::frame(), &Bounds::ANY.aligned(4))?;
    // SAFETY: as above.
    unsafe { FRAMES.free_pages(pages, 12)? };
    // SAFETY: as above.
    let released = unsafe { FRAMES.release(initrd)? };
    Ok(released + FRAMES.drain_all())
}

#[cfg(target_os = "none")]
fn kernel(passed: u64) -> u64 {
    let entry = Entry::usable(passed, passed);
    match boot(&[entry], 0..passed, Pfn::new(passed)..Pfn::new(passed)) {
        Ok(frames) => frames,
        Err(error) => panic!("{error}"),
    }
}

#[cfg(not(target_os = "none"))]
fn main() {
    println!("{}", boot(&[], 0..0, Pfn::new(0)..Pfn::new(0)).unwrap_err());
}

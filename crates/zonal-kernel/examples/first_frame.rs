//! A kernel from its boot map to its first frame. It compiles for a bare machine:
//!
//! ```text
//! cargo build -p zonal-kernel --example first_frame --target x86_64-unknown-none
//! ```
//!
//! How such a kernel is linked and booted is in the book's page on kernels.
#![cfg_attr(target_os = "none", no_std, no_main)]

use zonal::{CpuId, NodeId, Request, map::PhysAddr, plan::Config};
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

/// `e820`: what the boot loader says of the memory. `kernel_end`: where the kernel's image ends.
///
/// # Errors
/// What is wrong with the map.
pub fn boot(e820: &[Entry], kernel_end: u64, cpus: u32) -> Result<(), Error> {
    let image = 0..kernel_end;
    let map = FRAMES.map(e820, &[image], [])?;
    // SAFETY: the boot loader has mapped all memory where `Pc::address` says, no other code uses
    // what the map calls usable, and there is no other allocator.
    unsafe { map.boot(Config::new(cpus))? };
    let frame = FRAMES.alloc(&Request::frame())?;
    Ok(FRAMES.free(frame)?)
}

#[cfg(target_os = "none")]
mod bare {
    /// Where a boot loader jumps to. This one has no map to pass on.
    #[unsafe(no_mangle)]
    extern "C" fn _start() -> ! {
        let booted = super::boot(&[], 2 << 20, 1);
        assert!(booted.is_err(), "a machine without memory");
        loop {}
    }

    #[panic_handler]
    fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
        loop {}
    }
}

#[cfg(not(target_os = "none"))]
fn main() {
    println!("{}", boot(&[], 2 << 20, 1).unwrap_err());
}

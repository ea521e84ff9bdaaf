//! Waking the other processors, one after the other, on stacks that are the allocator's.

use super::{FRAMES, Pc, apic, boot, cpu, team};
use crate::memory::kept;
use core::sync::atomic::Ordering::{Acquire, Release};
use core::sync::atomic::{AtomicU32, AtomicU64};
use x86_64::instructions::port::Port;
use zonal::map::PhysAddr;
use zonal::{Order, Request, ZoneType};
use zonal_kernel::{Error, Machine};

unsafe extern "C" {
    static ap_code: u8;
    static ap_code_end: u8;
    static ap_stack: AtomicU64;
    static ap_cpu: AtomicU64;
}

/// How many have arrived.
static AWAKE: AtomicU32 = AtomicU32::new(1);

/// Waits for about `microseconds`: a write to this port takes one on a real machine.
fn wait(microseconds: u32) {
    for _ in 0..microseconds {
        // SAFETY: the port of diagnostic codes.
        unsafe { Port::<u8>::new(0x80).write(0) };
    }
}

/// Puts the first instructions of a woken processor where it begins.
fn copy_trampoline() {
    let (start, end) = (&raw const ap_code, &raw const ap_code_end);
    let to = Pc::address(PhysAddr(boot::TRAMPOLINE));
    let bytes = end.addr() - start.addr();
    // SAFETY: from the image, whose symbols these are, to a page below 1 MiB, which no other code uses:
    // `memory::boot` reserves all up to the image's end.
    unsafe { to.copy_from_nonoverlapping(start, bytes) };
}

/// Wakes all processors that `acpi::read` named.
///
/// # Errors
/// No memory for a stack.
pub(crate) fn wake_all() -> Result<(), Error> {
    copy_trampoline();
    for number in 1..cpu::count() {
        // A processor begins in 32 bits, and has its stack there already.
        let stack = FRAMES.alloc(&Request::new(STACK).zone_limit(ZoneType::Dma32))?;
        let top = FRAMES.address(&stack).wrapping_add(STACK.bytes());
        kept::keep(stack);
        // SAFETY: eight aligned bytes of the image, which the boot code reads when a processor begins.
        let stack_of = unsafe { &ap_stack };
        // SAFETY: as above.
        let number_of = unsafe { &ap_cpu };
        stack_of.store(top.expose_provenance() as u64, Release);
        number_of.store(u64::from(number), Release);
        let id = cpu::at(number).apic_id.load(Acquire);
        apic::init(id);
        wait(10_000);
        for _ in 0..2 {
            if AWAKE.load(Acquire) == number {
                apic::start(id, (boot::TRAMPOLINE >> 12) as u32);
                wait(200);
            }
        }
        // Acquire: pairs with the release in `arrive`.
        while AWAKE.load(Acquire) == number {
            core::hint::spin_loop();
        }
    }
    Ok(())
}

/// Order of a processor's stack: 64 KiB.
pub(crate) const STACK: Order = match Order::new(4) {
    Some(order) => order,
    None => Order::ZERO,
};

/// A woken processor, on its stack.
pub(crate) fn arrive(number: u32) -> ! {
    // SAFETY: `wake_all` gave it this number, and this is the first that it does.
    unsafe { cpu::set_up(number) };
    apic::set_up();
    AWAKE.fetch_add(1, Release);
    team::work()
}

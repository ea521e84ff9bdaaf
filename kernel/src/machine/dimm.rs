//! Memory modules that were plugged in, as the emulator's interface for ACPI shows them: by ports.

use core::ops::Range;
use x86_64::instructions::port::{Port, PortRead};

/// The interface's ports; the registers are at these distances from it.
const PORTS: u16 = 0xa00;
const ADDRESS: u16 = 0;
const BYTES: u16 = 8;
const FLAGS: u16 = 0x14;
const ENABLED: u8 = 1;

/// What the module in a slot has, in bytes; nothing where there is none, or no such slot.
pub(crate) fn in_slot(slot: u32) -> Range<u64> {
    let mut select = Port::new(PORTS);
    // SAFETY: the interface's selector, or a port that no device has.
    unsafe { select.write(slot) };
    let long = |at| u64::from(read::<u32>(at)) | u64::from(read::<u32>(at + 4)) << 32;
    let enabled = read::<u8>(FLAGS) & ENABLED != 0;
    let start = long(ADDRESS);
    match start.checked_add(long(BYTES)) {
        Some(end) if enabled => start..end,
        _ => 0..0,
    }
}

fn read<T: PortRead>(register: u16) -> T {
    // SAFETY: a register of the interface, whose reading changes nothing, or ports that no device has, which
    // read as ones.
    unsafe { Port::new(PORTS + register).read() }
}

//! The local APIC: its timer, and interrupts to other processors.

use super::interrupts::{SPURIOUS, TIMER};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use x86_64::instructions::port::Port;
use x86_64::registers::model_specific::Msr;

/// Where each processor sees its own.
static BASE: AtomicU64 = AtomicU64::new(0xfee0_0000);

/// Registers, as offsets.
const ID: u64 = 0x20;
const EOI: u64 = 0xb0;
const SPURIOUS_VECTOR: u64 = 0xf0;
const COMMAND: u64 = 0x300;
const COMMAND_TARGET: u64 = 0x310;
const TIMER_VECTOR: u64 = 0x320;
const TIMER_START: u64 = 0x380;
const TIMER_DIVIDE: u64 = 0x3e0;

/// Of the timer: again and again, and not at all.
const PERIODIC: u32 = 1 << 17;
const MASKED: u32 = 1 << 16;
/// Of a command: not taken yet; level; to all but this processor.
const PENDING: u32 = 1 << 12;
const ASSERT: u32 = 1 << 14;
const ALL_OTHERS: u32 = 3 << 18;
const INIT: u32 = 5 << 8;
const START: u32 = 6 << 8;

fn register(offset: u64) -> *mut u32 {
    core::ptr::with_exposed_provenance_mut((BASE.load(Relaxed) + offset) as usize)
}

fn read(offset: u64) -> u32 {
    // SAFETY: a register of the processor's own APIC; reading these changes nothing.
    unsafe { register(offset).read_volatile() }
}

fn write(offset: u64, value: u32) {
    // SAFETY: a register of the processor's own APIC, which only this module writes; what it leads to is
    // interrupts, whose handlers are in place (`cpu::set_up`).
    unsafe { register(offset).write_volatile(value) };
}

/// Where the ACPI tables say that they are.
pub(crate) fn set_base(base: u64) {
    BASE.store(base, Relaxed);
}

/// Masks both controllers of old, whose interrupt 0 the firmware leaves on the vector of double
/// faults. Once a machine.
pub(crate) fn mask_old_controllers() {
    for data in [0x21, 0xa1] {
        // SAFETY: the mask of an interrupt controller: all masked, nothing comes.
        unsafe { Port::<u8>::new(data).write(0xff) };
    }
}

/// Turns the processor's own on.
pub(crate) fn set_up() {
    let mut base = Msr::new(0x1b);
    // SAFETY: it says where the APIC is, and that it is on.
    let value = unsafe { base.read() };
    // SAFETY: as it was, and on.
    unsafe { base.write(value | 1 << 11) };
    write(SPURIOUS_VECTOR, 1 << 8 | SPURIOUS as u32);
    write(TIMER_DIVIDE, 0b1011);
    stop_timer();
}

/// This processor's id.
pub(crate) fn id() -> u32 {
    read(ID) >> 24
}

/// The interrupt was dealt with: the next may come.
pub(crate) fn done() {
    write(EOI, 0);
}

/// A timer interrupt every `count` ticks of the bus clock: nanoseconds, in the emulator.
pub(crate) fn start_timer(count: u32) {
    write(TIMER_VECTOR, PERIODIC | TIMER as u32);
    write(TIMER_START, count);
}

pub(crate) fn stop_timer() {
    write(TIMER_VECTOR, MASKED | TIMER as u32);
    write(TIMER_START, 0);
}

fn command(target: u32, command: u32) {
    write(COMMAND_TARGET, target << 24);
    write(COMMAND, command);
    while read(COMMAND) & PENDING != 0 {
        core::hint::spin_loop();
    }
}

/// Interrupts one other processor. With interrupts kept away: a command is two writes.
pub(crate) fn interrupt(apic_id: u32, vector: u64) {
    command(apic_id, ASSERT | vector as u32);
}

/// Interrupts all other processors.
pub(crate) fn interrupt_others(vector: u64) {
    command(0, ALL_OTHERS | ASSERT | vector as u32);
}

/// Wakes a processor, first half: it forgets everything.
pub(crate) fn init(apic_id: u32) {
    command(apic_id, ASSERT | INIT);
}

/// Second half: it begins at `page` × 4096.
pub(crate) fn start(apic_id: u32, page: u32) {
    command(apic_id, ASSERT | START | page);
}

//! Interrupts: a stub for each vector, and what is done for it.
//!
//! The kernel is compiled without a red zone and without SSE, so a handler runs on the stack that it
//! interrupted, or from ring 3 on one that is there for that, and saves nine registers.

use super::{Exit, apic, cpu, exit, serial, team, user};
use crate::memory::faults;
use crate::workload::handler;
use core::arch::global_asm;
use core::sync::atomic::Ordering::Relaxed;
use x86_64::instructions::interrupts as flag;
use x86_64::registers::control::Cr2;
use x86_64::structures::idt::InterruptDescriptorTable;
use x86_64::{PrivilegeLevel, VirtAddr};

/// How many vectors have stubs.
const STUBS: usize = 49;
/// Bytes of a stub.
const STUB: u64 = 16;

const DOUBLE_FAULT: u64 = 8;
const PAGE_FAULT: u64 = 14;
/// The APIC's timer.
pub(crate) const TIMER: u64 = 32;
/// Another processor changed page tables: see [`team::flush_others`].
pub(crate) const FLUSH: u64 = 33;
/// There is work, or it is done: only to end a `hlt`.
pub(crate) const WAKE: u64 = 34;
/// The APIC's answer when an interrupt went away again.
pub(crate) const SPURIOUS: u64 = 47;

/// A program in ring 3 is done.
pub(crate) const DONE: u64 = 48;

/// What is on the stack when [`dispatch`] runs.
#[repr(C)]
pub(crate) struct Frame {
    scratch: [u64; 9],
    vector: u64,
    error: u64,
    pub(crate) rip: u64,
    cs: u64,
    pub(crate) flags: u64,
    rsp: u64,
    ss: u64,
}

global_asm!(
    r#"
    .section .text.stubs, "ax"
    .balign {stub}
    .global interrupt_stubs
interrupt_stubs:
    .set vector, 0
    .rept {stubs}
    .balign {stub}
    // The others push an error code themselves.
    .if vector >= 32 || ((0x60227d00 >> vector) & 1) == 0
    pushq $0
    .endif
    pushq $vector
    jmp 2f
    .set vector, vector + 1
    .endr
2:  testb $3, 24(%rsp)      // from ring 3?
    jz 3f
    swapgs
3:  pushq %r11
    pushq %r10
    pushq %r9
    pushq %r8
    pushq %rdi
    pushq %rsi
    pushq %rdx
    pushq %rcx
    pushq %rax
    cld
    movq %rsp, %rdi
    call {dispatch}
    popq %rax
    popq %rcx
    popq %rdx
    popq %rsi
    popq %rdi
    popq %r8
    popq %r9
    popq %r10
    popq %r11
    testb $3, 24(%rsp)
    jz 4f
    swapgs
4:  addq $16, %rsp
    iretq
    "#,
    stubs = const STUBS,
    stub = const STUB,
    dispatch = sym dispatch,
    options(att_syntax)
);

unsafe extern "C" {
    static interrupt_stubs: u8;
}

/// Points every vector at its stub; a double fault has a stack of its own.
pub(crate) fn fill(table: &mut InterruptDescriptorTable) {
    let stub = |vector: u64| {
        let first = VirtAddr::from_ptr(&raw const interrupt_stubs);
        first + vector * STUB
    };
    macro_rules! exceptions {
        ($($vector:literal $name:ident),*) => {$(
            // SAFETY: the stub is for this vector, and returns as the processor wants it.
            let _ = unsafe { table.$name.set_handler_addr(stub($vector)) };
        )*};
    }
    exceptions!(0 divide_error, 1 debug, 2 non_maskable_interrupt, 3 breakpoint, 4 overflow);
    exceptions!(5 bound_range_exceeded, 6 invalid_opcode, 7 device_not_available);
    exceptions!(10 invalid_tss, 11 segment_not_present, 12 stack_segment_fault);
    exceptions!(13 general_protection_fault, 14 page_fault, 16 x87_floating_point);
    exceptions!(17 alignment_check, 18 machine_check, 19 simd_floating_point, 20 virtualization);
    // SAFETY: as above.
    let double = unsafe { table.double_fault.set_handler_addr(stub(DOUBLE_FAULT)) };
    // SAFETY: the task segment has that stack: see `cpu::set_up`.
    unsafe { double.set_stack_index(0) };
    for vector in TIMER..STUBS as u64 {
        // SAFETY: as above.
        let entry = unsafe { table[vector as u8].set_handler_addr(stub(vector)) };
        if vector == DONE {
            entry.set_privilege_level(PrivilegeLevel::Ring3);
        }
    }
}

/// Called by the stubs, with interrupts kept away.
extern "C" fn dispatch(frame: &mut Frame) {
    match frame.vector {
        PAGE_FAULT => page_fault(frame),
        TIMER => {
            let own = cpu::own();
            own.ticks.fetch_add(1, Relaxed);
            let inside = own.in_allocator.load(Relaxed) != 0;
            own.ticks_inside.fetch_add(u64::from(inside), Relaxed);
            apic::done();
            handler::run();
        }
        FLUSH => {
            team::flush_own();
            apic::done();
        }
        WAKE => apic::done(),
        DONE => user::done(frame.scratch[0]),
        SPURIOUS => {}
        _ => die(frame),
    }
}

/// Serves a fault with interrupts as they were: the timer may come while it allocates.
fn page_fault(frame: &Frame) {
    let Ok(address) = Cr2::read() else { die(frame) };
    let were_on = frame.flags & 1 << 9 != 0;
    if were_on {
        flag::enable();
    }
    let served = faults::serve(address, frame.error);
    flag::disable();
    if served.is_err() {
        die(frame);
    }
}

/// An exception that has no reason to be.
fn die(frame: &Frame) -> ! {
    let Frame { vector, error, rip, rsp, flags, cs, ss, .. } = frame;
    serial::print_at_any_cost(format_args!(
        "exception {vector} (error {error:#x}) at {cs:#x}:{rip:#x}, stack {ss:#x}:{rsp:#x}, \
         flags {flags:#x}, cr2 {:#x}, cpu {}",
        Cr2::read_raw(),
        cpu::number()
    ));
    exit(Exit::Wrong)
}

//! Ring 3: a program without rights, in an address space, until it says that it is done.
//!
//! Its code is a page of the space; what it touches comes by faults. `gs` is exchanged (`swapgs`) whenever
//! the ring changes: in the interrupt stubs, and here on the way there.

use super::{cpu, interrupts};
use crate::memory::space::AddressSpace;
use crate::memory::{alloc, words};
use core::arch::global_asm;
use core::sync::atomic::Ordering::Relaxed;
use x86_64::VirtAddr;
use x86_64::instructions::interrupts as flag;
use zonal::{MigrateType, Request};

/// Where the program's code is: at the end of what a space has.
const CODE: u64 = crate::memory::space::END - (1 << 30);

/// Selectors of the segments that `cpu::set_up` makes, with the rights of ring 3.
const USER_DATA: u16 = 3 << 3 | 3;
const USER_CODE: u16 = 4 << 3 | 3;

global_asm!(
    r#"
    // rdi: where the program begins; rsi, rdx: what it gets; rcx: where this stack is left.
    .global enter_ring_3
enter_ring_3:
    pushq %rbx
    pushq %rbp
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rcx)
    cli
    pushq ${data}
    pushq $0
    pushq $0x202
    pushq ${code}
    pushq %rdi
    movq %rsi, %rdi
    movq %rdx, %rsi
    xorl %eax, %eax
    xorl %ecx, %ecx
    xorl %edx, %edx
    swapgs
    iretq

    // rdi: where the stack was left; rax: what the program says.
    .global leave_ring_3
leave_ring_3:
    movq %rdi, %rsp
    movq %rsi, %rax
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbp
    popq %rbx
    ret

    // The program. rdi: the first page; rsi: how many. It reads each, which must be zero, and writes its
    // number; then looks whether all are there. Ends with the number of those that were wrong in rax.
    .balign 16
    .global user_program
    .global user_program_end
user_program:
    movq %rdi, %r8
    movq %rsi, %r9
1:  cmpq $0, (%rdi)
    je 2f
    incq %rax
2:  movq %rsi, (%rdi)
    addq $4096, %rdi
    decq %rsi
    jnz 1b
3:  cmpq %r9, (%r8)
    je 4f
    incq %rax
4:  addq $4096, %r8
    decq %r9
    jnz 3b
    int ${done}
    ud2
user_program_end:
    "#,
    data = const USER_DATA,
    code = const USER_CODE,
    done = const interrupts::DONE,
    options(att_syntax)
);

unsafe extern "C" {
    fn enter_ring_3(start: u64, first: u64, pages: u64, stack: *mut u64) -> u64;
    fn leave_ring_3(stack: u64, said: u64) -> !;
    static user_program: u8;
    static user_program_end: u8;
}

/// Puts the program into a space.
pub(crate) fn load(space: &AddressSpace) {
    let Ok(block) = alloc(&Request::frame().migrate(MigrateType::Movable).zero()) else {
        panic!("no frame for a program")
    };
    let (start, end) = (&raw const user_program, &raw const user_program_end);
    let to = words(block.pfn()).cast::<u8>();
    // SAFETY: from the image to a frame that was allocated a moment ago, and is larger.
    unsafe { to.copy_from_nonoverlapping(start, end.addr() - start.addr()) };
    if let Err(error) = space.map_code(VirtAddr::new(CODE), block) {
        panic!("no page for a program: {error:?}");
    }
}

/// Takes it out.
pub(crate) fn unload(space: &AddressSpace) {
    space.unmap(VirtAddr::new(CODE), 1);
}

/// Runs the program on `pages` pages from `first` on, in the space that this processor is in; returns
/// how many were wrong. With interrupts let in.
pub(crate) fn run(first: u64, pages: u64) -> u64 {
    let left = cpu::own().left_stack.as_ptr();
    // SAFETY: the program is there (`load`), and leaves by `done` or a fault that ends the kernel.
    let wrong = unsafe { enter_ring_3(CODE, first, pages, left) };
    flag::enable();
    wrong
}

/// The program is done: goes on after `enter_ring_3`.
pub(crate) fn done(said: u64) -> ! {
    let stack = cpu::own().left_stack.load(Relaxed);
    // SAFETY: this processor was in the program, so that is where `enter_ring_3` left its stack, which
    // nothing has used since: interrupts of the program run on another.
    unsafe { leave_ring_3(stack, said) }
}

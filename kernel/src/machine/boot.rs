//! The first instructions: from where a PVH boot loader jumps to, 32-bit without paging, to
//! [`start`](crate::start); and from where a woken processor begins, 16-bit, to
//! [`start_ap`](crate::start_ap).
//!
//! Memory is mapped as it is, 512 GiB of it, by one table of 1 GiB pages: what a kernel of its own
//! would map finer, and with device memory uncached. Under an emulator neither matters.

use core::arch::global_asm;

/// Where woken processors begin: a page below 1 MiB.
pub(crate) const TRAMPOLINE: u64 = 0x8000;
/// Bytes of the stack that the boot processor has.
pub(crate) const BOOT_STACK: usize = 32 << 10;

global_asm!(
    r#"
    .section .note.Xen, "a", @note
    .balign 4
    .long 4, 8, 18          // name, descriptor, kind: the 32-bit entry point
    .asciz "Xen"
    .quad pvh_start

    .section .text.boot, "ax"
    .code32
    .global pvh_start
pvh_start:
    cli
    cld
    movl $boot_stack_top, %esp
    movl %ebx, %edi         // the boot loader's information, kept for `start`
    // The second level: page n of 1 GiB, present, writable, large.
    xorl %ecx, %ecx
1:  movl %ecx, %eax
    shll $30, %eax
    orl $0x83, %eax
    movl %eax, boot_pdpt(,%ecx,8)
    movl %ecx, %eax
    shrl $2, %eax
    movl %eax, boot_pdpt+4(,%ecx,8)
    incl %ecx
    cmpl $512, %ecx
    jne 1b
    movl $boot_pdpt, %eax
    orl $3, %eax
    movl %eax, boot_pml4
    call to_long_mode
    ljmp $0x08, $long_start

// Turns on 64-bit mode with the boot tables; ends in its 32-bit submode. Only eax, ecx, edx change.
to_long_mode:
    movl %cr4, %eax
    orl $0x20, %eax         // PAE
    movl %eax, %cr4
    movl $boot_pml4, %eax
    movl %eax, %cr3
    movl $0xc0000080, %ecx  // EFER
    rdmsr
    orl $0x901, %eax        // NXE, LME, SCE
    wrmsr
    movl %cr0, %eax
    andl $0x9fffffff, %eax  // caches on
    orl $0x80010001, %eax   // PG, WP, PE
    movl %eax, %cr0
    lgdt boot_gdt_pointer
    ret

    .code64
long_start:
    xorl %eax, %eax
    movl %eax, %ds
    movl %eax, %es
    movl %eax, %ss
    movl %edi, %edi
    movl $boot_stack_top, %esp
    xorl %ebp, %ebp
    call {start}
    ud2

    // Copied to {trampoline}: only addresses inside it, as numbers, and of the image.
    .code16
    .global ap_code
    .global ap_code_end
ap_code:
    cli
    cld
    xorw %ax, %ax
    movw %ax, %ds
    lgdtl ap_gdt_pointer - ap_code + {trampoline}
    movl %cr0, %eax
    orl $1, %eax
    movl %eax, %cr0
    ljmpl $0x18, $(ap_32 - ap_code + {trampoline})
    .code32
ap_32:
    movw $0x10, %ax
    movw %ax, %ds
    movw %ax, %ss
    movl ap_stack, %esp
    movl $to_long_mode, %eax
    call *%eax
    ljmp $0x08, $ap_long
    .balign 8
ap_gdt_pointer:
    .word boot_gdt_end - boot_gdt - 1
    .long boot_gdt
ap_code_end:

    .code64
ap_long:
    xorl %eax, %eax
    movl %eax, %ds
    movl %eax, %es
    movl %eax, %ss
    movq ap_stack, %rsp
    movl ap_cpu, %edi
    xorl %ebp, %ebp
    call {start_ap}
    ud2

    .balign 8
boot_gdt:
    .quad 0
    .quad 0x00af9b000000ffff // 0x08: 64-bit code
    .quad 0x00cf93000000ffff // 0x10: data
    .quad 0x00cf9b000000ffff // 0x18: 32-bit code
boot_gdt_end:
boot_gdt_pointer:
    .word boot_gdt_end - boot_gdt - 1
    .quad boot_gdt

    .section .bss.boot, "aw", @nobits
    .balign 4096
boot_pml4:
    .skip 4096
boot_pdpt:
    .skip 4096
    .global boot_stack
boot_stack:
    .skip {boot_stack}
boot_stack_top:
    .global ap_stack
    .global ap_cpu
ap_stack:
    .skip 8
ap_cpu:
    .skip 8
    "#,
    start = sym crate::start,
    start_ap = sym crate::start_ap,
    trampoline = const TRAMPOLINE,
    boot_stack = const BOOT_STACK,
    options(att_syntax)
);

/*
 * The first instructions: from where a PVH boot loader jumps to, 32-bit without paging, to start() in boot.c. The first 4 GiB
 * of memory are mapped as they are, by pages of 2 MiB: four tables of 512.
 */
    .section .note.Xen, "a", @note
    .balign 4
    .long 4, 8, 18                  /* lengths of name and descriptor; kind: the 32-bit entry point */
    .asciz "Xen"
    .quad entry

    .section .text.boot, "ax"
    .code32
    .global entry
entry:
    cli
    cld
    movl $stack_top, %esp
    movl %ebx, %edi                 /* what the boot loader left, kept for start() */

    xorl %ecx, %ecx                 /* page n: present, writable, large; no address has more than 32 bits */
1:  movl %ecx, %eax
    shll $21, %eax
    orl $0x83, %eax
    movl %eax, pages(,%ecx,8)
    incl %ecx
    cmpl $2048, %ecx
    jne 1b
    xorl %ecx, %ecx                 /* the four tables of pages */
2:  movl %ecx, %eax
    shll $12, %eax
    addl $pages + 3, %eax
    movl %eax, tables(,%ecx,8)
    incl %ecx
    cmpl $4, %ecx
    jne 2b
    movl $tables + 3, root

    movl %cr4, %eax
    orl $0x20, %eax                 /* PAE */
    movl %eax, %cr4
    movl $root, %eax
    movl %eax, %cr3
    movl $0xc0000080, %ecx          /* EFER: long mode */
    rdmsr
    orl $0x100, %eax
    wrmsr
    movl %cr0, %eax
    andl $0x9fffffff, %eax          /* caches on */
    orl $0x80000001, %eax           /* paging, protected mode */
    movl %eax, %cr0
    lgdt gdt_pointer
    ljmp $8, $long_mode

    .code64
long_mode:
    xorl %eax, %eax
    movl %eax, %ds
    movl %eax, %es
    movl %eax, %ss
    movl %edi, %edi
    movl $stack_top, %esp
    xorl %ebp, %ebp
    call start
    ud2

    .section .rodata, "a"
    .balign 8
gdt:
    .quad 0, 0x00af9b000000ffff
gdt_pointer:
    .word 15
    .quad gdt

    .section .bss, "aw", @nobits
    .balign 4096
root:
    .skip 4096
tables:
    .skip 4096
pages:
    .skip 4 * 4096
    .skip 32 << 10                  /* zonal_boot takes 8 KiB of it at most */
stack_top:

    .section .note.GNU-stack, "", @progbits

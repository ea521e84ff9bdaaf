//! What a processor has of its own: a number, a node, tables of segments and interrupts.

use crate::memory::space::AddressSpace;
use core::arch::asm;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};
use x86_64::VirtAddr;
use x86_64::instructions::segmentation::{CS, DS, ES, SS, Segment};
use x86_64::instructions::tables::load_tss;
use x86_64::registers::model_specific::GsBase;
use x86_64::structures::gdt::{Descriptor, GlobalDescriptorTable};
use x86_64::structures::idt::InterruptDescriptorTable;
use x86_64::structures::tss::TaskStateSegment;
use zonal::{CpuId, NodeId};

/// The most processors it runs on.
pub(crate) const MOST: usize = 64;
/// Bytes of the stack on which a double fault is reported.
const FAULT_STACK: usize = 8 << 10;

/// What a processor has; `gs` points at its own.
#[repr(C, align(128))]
pub(crate) struct Cpu {
    /// First: it is read at `gs:0`.
    number: AtomicU32,
    /// Raised while the processor is in a call of the allocator, outside of handlers.
    pub(crate) in_allocator: AtomicU32,
    /// Timer interrupts so far, and those that came in a call of the allocator.
    pub(crate) ticks: AtomicU64,
    pub(crate) ticks_inside: AtomicU64,
    /// Its local APIC's id.
    pub(crate) apic_id: AtomicU32,
    node: AtomicU8,
    /// The address space that it is in, or null.
    pub(crate) space: AtomicPtr<AddressSpace>,
}

impl Cpu {
    const fn new() -> Self {
        Self {
            number: AtomicU32::new(0),
            in_allocator: AtomicU32::new(0),
            ticks: AtomicU64::new(0),
            ticks_inside: AtomicU64::new(0),
            apic_id: AtomicU32::new(0),
            node: AtomicU8::new(0),
            space: AtomicPtr::new(core::ptr::null_mut()),
        }
    }
}

static CPUS: [Cpu; MOST] = [const { Cpu::new() }; MOST];

/// How many there are.
static COUNT: AtomicU32 = AtomicU32::new(1);

/// The processor's tables. Each is written by its processor, once, before it loads them.
struct Tables {
    segments: GlobalDescriptorTable,
    task: TaskStateSegment,
    interrupts: InterruptDescriptorTable,
    fault_stack: [u8; FAULT_STACK],
}

static mut TABLES: [MaybeUninit<Tables>; MOST] = [const { MaybeUninit::uninit() }; MOST];

/// This processor.
#[inline(always)]
pub(crate) fn own() -> &'static Cpu {
    &CPUS[number().0 as usize]
}

/// Processor `number`, which is below [`MOST`].
pub(crate) fn at(number: u32) -> &'static Cpu {
    &CPUS[number as usize]
}

/// The number of this processor.
#[inline(always)]
pub(crate) fn number() -> CpuId {
    let number: u32;
    // SAFETY: `gs` points at this processor's `Cpu` (see `set_up`), whose first field is read; only
    // `set_up` writes it, before anything else runs here.
    unsafe {
        asm!("mov {:e}, gs:[0]", out(reg) number, options(nostack, preserves_flags, readonly));
    }
    CpuId(number)
}

/// The node of a processor.
#[inline(always)]
pub(crate) fn node(cpu: CpuId) -> NodeId {
    NodeId(CPUS.get(cpu.0 as usize).map_or(0, |cpu| cpu.node.load(Relaxed)))
}

/// How many processors there are.
pub(crate) fn count() -> u32 {
    COUNT.load(Relaxed)
}

/// Says who processor `number` is, before it is woken.
pub(crate) fn name(number: u32, apic_id: u32, node: NodeId) {
    let cpu = &CPUS[number as usize];
    cpu.apic_id.store(apic_id, Relaxed);
    cpu.node.store(node.0, Relaxed);
    COUNT.fetch_max(number + 1, Relaxed);
}

/// Gives this processor its number and its tables: the first thing it does.
///
/// # Safety
/// It is processor `number`, which is below [`MOST`], and does this once.
pub(crate) unsafe fn set_up(number: u32) {
    let cpu = &CPUS[number as usize];
    cpu.number.store(number, Relaxed);
    GsBase::write(VirtAddr::from_ptr(cpu));
    let all = &raw mut TABLES;
    // SAFETY: `number` is below the length of the array.
    let own = unsafe { all.cast::<MaybeUninit<Tables>>().add(number as usize) };
    // SAFETY: a processor has its element to itself, and does this once: the contract.
    let own: &'static mut MaybeUninit<Tables> = unsafe { &mut *own };
    let own = own.write(Tables {
        segments: GlobalDescriptorTable::new(),
        task: TaskStateSegment::new(),
        interrupts: InterruptDescriptorTable::new(),
        fault_stack: [0; FAULT_STACK],
    });
    let Tables { segments, task, interrupts, fault_stack } = own;
    let top = VirtAddr::from_ptr(fault_stack) + FAULT_STACK as u64;
    task.interrupt_stack_table[0] = top.align_down(16_u64);
    super::interrupts::fill(interrupts);
    let code = segments.append(Descriptor::kernel_code_segment());
    let data = segments.append(Descriptor::kernel_data_segment());
    let task = segments.append(Descriptor::tss_segment(task));
    segments.load();
    // SAFETY: a 64-bit code segment of the table that was just loaded.
    unsafe { CS::set_reg(code) };
    // SAFETY: a data segment of it.
    unsafe { SS::set_reg(data) };
    // SAFETY: as above.
    unsafe { DS::set_reg(data) };
    // SAFETY: as above.
    unsafe { ES::set_reg(data) };
    // SAFETY: a task segment of it, which stays, and which no other processor loads.
    unsafe { load_tss(task) };
    interrupts.load();
}

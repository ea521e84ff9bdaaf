//! What a processor has of its own: a number, a node, tables of segments and interrupts.

use super::{FRAMES, Pc, Preset};
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
use zonal_kernel::CpuHome;

/// The most processors it runs on.
pub(crate) const MOST: usize = 64;
/// Bytes of the stack on which a double fault is reported.
const FAULT_STACK: usize = 8 << 10;

/// Bytes of the stack of interrupts that come in ring 3.
const RING_0_STACK: usize = 16 << 10;

/// What a processor has; `gs` points at its own.
#[repr(C, align(128))]
pub(crate) struct Cpu {
    /// First: it is read at `gs:0`.
    number: AtomicU32,
    /// Raised while the processor is in a call of the allocator, outside of handlers.
    pub(crate) in_allocator: AtomicU32,
    /// Where this is: read at `gs:8`.
    own: AtomicPtr<Cpu>,
    /// Its part of the allocator.
    pub(crate) home: CpuHome<Pc, Preset>,
    /// Timer interrupts so far, and those that came in a call of the allocator.
    pub(crate) ticks: AtomicU64,
    pub(crate) ticks_inside: AtomicU64,
    /// What it counted of rivals.
    #[cfg(feature = "peers")]
    pub(crate) counts: crate::workload::peers::Counts,
    /// Its local APIC's id.
    pub(crate) apic_id: AtomicU32,
    node: AtomicU8,
    /// The address space that it is in, or null.
    pub(crate) space: AtomicPtr<AddressSpace>,
    /// Where its stack was left when it went to ring 3.
    pub(crate) left_stack: AtomicU64,
    /// Where its stack of interrupts in ring 3 begins, or null.
    ring_0_stack: AtomicPtr<[AtomicU64; RING_0_STACK / 8]>,
}

impl Cpu {
    const fn new() -> Self {
        Self {
            number: AtomicU32::new(0),
            in_allocator: AtomicU32::new(0),
            own: AtomicPtr::new(core::ptr::null_mut()),
            home: CpuHome::new(),
            ticks: AtomicU64::new(0),
            ticks_inside: AtomicU64::new(0),
            #[cfg(feature = "peers")]
            counts: crate::workload::peers::Counts::new(),
            apic_id: AtomicU32::new(0),
            node: AtomicU8::new(0),
            space: AtomicPtr::new(core::ptr::null_mut()),
            left_stack: AtomicU64::new(0),
            ring_0_stack: AtomicPtr::new(core::ptr::null_mut()),
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
    fault_stack: MaybeUninit<[u8; FAULT_STACK]>,
    ring_0_stack: RingZeroStack,
}

/// A stack, as words that may be looked at while it is in use.
#[repr(align(16))]
struct RingZeroStack([AtomicU64; RING_0_STACK / 8]);

static mut TABLES: [MaybeUninit<Tables>; MOST] = [const { MaybeUninit::uninit() }; MOST];

/// How much of the stacks of interrupts in ring 3 was in use, the most of all processors, and how much there
/// is, in bytes.
pub(crate) fn ring_0_stack_used() -> (usize, usize) {
    let used = |cpu: &Cpu| {
        let stack = cpu.ring_0_stack.load(Relaxed);
        // SAFETY: null, or the words of a stack that stays.
        let words = unsafe { stack.as_ref() };
        let unused = |word: &&AtomicU64| word.load(Relaxed) == 0;
        words.map_or(0, |words| RING_0_STACK - 8 * words.iter().take_while(unused).count())
    };
    (CPUS.iter().map(used).max().unwrap_or(0), RING_0_STACK)
}

/// This processor.
#[inline(always)]
pub(crate) fn own() -> &'static Cpu {
    let own: *const Cpu;
    // SAFETY: `gs` points at this processor's `Cpu`, whose third field is read; only `set_up` writes it, before
    // anything else runs here.
    unsafe {
        asm!("mov {}, gs:[8]", out(reg) own, options(nostack, preserves_flags, readonly));
    }
    // SAFETY: the processor's place in `CPUS`, which stays.
    unsafe { &*own }
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

/// Gives each processor its part of the allocator, which is there.
///
/// # Errors
/// As [`Global::set_home`](zonal_kernel::Global::set_home).
pub(crate) fn set_homes() -> Result<(), zonal_kernel::Error> {
    (0..count()).try_for_each(|number| FRAMES.set_home(CpuId(number), &at(number).home))
}

/// Gives this processor its number and its tables: the first thing it does.
///
/// # Safety
/// It is processor `number`, which is below [`MOST`], and does this once.
pub(crate) unsafe fn set_up(number: u32) {
    let cpu = &CPUS[number as usize];
    cpu.number.store(number, Relaxed);
    cpu.own.store((&raw const *cpu).cast_mut(), Relaxed);
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
        // Not written: built for size, what is made here by value goes by the stack, which has no room for it.
        fault_stack: MaybeUninit::uninit(),
        ring_0_stack: RingZeroStack([const { AtomicU64::new(0) }; RING_0_STACK / 8]),
    });
    let Tables { segments, task, interrupts, fault_stack, ring_0_stack } = own;
    let top = VirtAddr::from_ptr(fault_stack) + FAULT_STACK as u64;
    task.interrupt_stack_table[0] = top.align_down(16_u64);
    let top = VirtAddr::from_ptr(ring_0_stack) + RING_0_STACK as u64;
    task.privilege_stack_table[0] = top;
    cpu.ring_0_stack.store(ring_0_stack.0.as_mut_ptr().cast(), Relaxed);
    super::interrupts::fill(interrupts);
    let code = segments.append(Descriptor::kernel_code_segment());
    let data = segments.append(Descriptor::kernel_data_segment());
    // The two that `user` names by their places.
    segments.append(Descriptor::user_data_segment());
    segments.append(Descriptor::user_code_segment());
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

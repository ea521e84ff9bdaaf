//! From the first instruction in Rust to the last.

use crate::machine::{Exit, acpi, apic, boot, cpu, exit, pvh, serial, smp};
use crate::{memory, say, workload};
use core::panic::PanicInfo;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use zonal::report::BuddyInfo;

/// The boot processor, on its stack, with what the boot loader left.
pub(crate) extern "C" fn start(info: u32) -> ! {
    paint_stack();
    // SAFETY: this is processor 0, and it does this first.
    unsafe { cpu::set_up(0) };
    let well = run(info);
    let (used, of) = (stack_used(), boot::BOOT_STACK);
    say!("boot stack: {used} bytes of {of} used");
    say!("{}", if well { "every frame was counted" } else { "A COUNT WAS WRONG" });
    exit(if well { Exit::Well } else { Exit::Wrong })
}

fn run(info: u32) -> bool {
    // SAFETY: the boot code passed it on, and nothing has been written but the kernel's own statics.
    let Some(info) = (unsafe { pvh::read(info) }) else {
        say!("this was no PVH boot");
        return false;
    };
    apic::mask_old_controllers();
    apic::set_up();
    match boot(&info) {
        Ok(()) => workload::run(info.command_line),
        Err(error) => {
            say!("{error}");
            false
        }
    }
}

/// Processors, memory, processors again.
fn boot(info: &pvh::BootInfo) -> Result<(), zonal_kernel::Error> {
    let nodes = acpi::read(info.rsdp)?;
    // SAFETY: once. The command line stays: it lies below the image, where all is reserved.
    unsafe { memory::boot(info, &nodes)? };
    say!("zonal on {} processors", cpu::count());
    say!("boot stack: {} bytes used when the allocator was built", stack_used());
    smp::wake_all()?;
    say!("{}", BuddyInfo(memory::frames()));
    Ok(())
}

/// Another processor, on its stack.
pub(crate) extern "C" fn start_ap(number: u32) -> ! {
    smp::arrive(number)
}

unsafe extern "C" {
    static boot_stack: [AtomicU64; boot::BOOT_STACK / 8];
}

/// What words of the stack are before they are used.
const PAINT: u64 = 0x5a5a_5a5a_5a5a_5a5a;

/// The words of the boot processor's stack, the last used first.
fn boot_stack_words() -> &'static [AtomicU64] {
    // SAFETY: `boot` has as many words there, for good; as atomics they may be looked at and painted
    // while the stack is in use.
    unsafe { &boot_stack }
}

/// Paints what is not in use yet of the boot stack.
fn paint_stack() {
    let stack = boot_stack_words();
    let here = (&raw const stack).addr();
    // A margin for what is on the stack below this variable.
    let unused = (here - stack.as_ptr().addr()) / 8 - 128;
    stack[..unused].iter().for_each(|word| word.store(PAINT, Relaxed));
}

/// How much of it has been in use, in bytes.
fn stack_used() -> usize {
    let stack = boot_stack_words();
    let unused = stack.iter().take_while(|word| word.load(Relaxed) == PAINT).count();
    (stack.len() - unused) * 8
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    serial::print_at_any_cost(format_args!("cpu {}: {info}", cpu::number()));
    exit(Exit::Wrong)
}

//! From the first instruction in Rust to the last.

use crate::machine::{Exit, acpi, apic, boot, cpu, exit, pvh, serial, smp, tables};
use crate::{memory, say, shell, workload};
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
        Ok(well) if info.command_line == SHELL => shell::run() && well,
        // What these are for was to be found by now.
        Ok(well) if [DEEP, memory::FLAT].contains(&info.command_line) => well,
        Ok(well) => workload::run(info.command_line) && well,
        Err(error) => {
            say!("{error}");
            false
        }
    }
}

/// The command line of a boot into the shell.
const SHELL: &str = "shell";

/// Processors, memory, processors again; whether the allocator was built in as little stack as is said.
fn boot(info: &pvh::BootInfo) -> Result<bool, zonal_kernel::Error> {
    let nodes = acpi::read(info.rsdp)?;
    let (built, used) = stack_of(|| {
        if info.command_line == DEEP {
            take_too_much();
        }
        // SAFETY: once. The command line stays: it lies below the image, where all is reserved.
        unsafe { memory::boot(info, &nodes) }
    });
    built?;
    cpu::set_homes()?;
    say!("zonal on {} processors", cpu::count());
    say!("built in {used} bytes of stack, of {MOST_TO_BUILD} that it may take");
    smp::wake_all()?;
    tables::all_are_awake();
    let fit = memory::tables_fit();
    if !fit {
        say!("WRONG: those are tables for more than is there");
    }
    say!("{}", BuddyInfo(memory::frames()));
    if used > MOST_TO_BUILD {
        say!("WRONG: that is too much stack");
    }
    Ok(used <= MOST_TO_BUILD && fit)
}

/// The most stack, in bytes, that map, plan and allocator may take.
const MOST_TO_BUILD: usize = 8 << 10;
/// The command line of a boot in which they take more, which must be seen.
const DEEP: &str = "deep";

#[inline(never)]
fn take_too_much() {
    core::hint::black_box([0_u8; MOST_TO_BUILD]);
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

/// Paints what is not in use yet of the boot stack; returns the address below which it is painted.
#[inline(never)]
fn paint_stack() -> usize {
    let stack = boot_stack_words();
    let here = (&raw const stack).addr();
    // A margin for what is on the stack below this variable.
    let unused = (here - stack.as_ptr().addr()) / 8 - 32;
    stack[..unused].iter().for_each(|word| word.store(PAINT, Relaxed));
    here
}

/// How much of it has been in use since it was painted, in bytes.
fn stack_used() -> usize {
    let stack = boot_stack_words();
    let unused = stack.iter().take_while(|word| word.load(Relaxed) == PAINT).count();
    (stack.len() - unused) * 8
}

/// What `f` returns, and the bytes of stack below its caller's that it took. The most used before
/// is forgotten.
fn stack_of<R>(f: impl FnOnce() -> R) -> (R, usize) {
    /// With all that is inlined into it, in a frame that begins where that of `paint_stack` did.
    #[inline(never)]
    fn call<R>(f: impl FnOnce() -> R) -> R {
        f()
    }
    let here = paint_stack();
    let result = call(f);
    let stack = boot_stack_words();
    let above = stack.as_ptr().addr() + size_of_val(stack) - here;
    (result, stack_used() - above)
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    serial::print_at_any_cost(format_args!("cpu {}: {info}", cpu::number()));
    exit(Exit::Wrong)
}

// What two programs have that are compared in size: where they start, and a panic that says why on the serial port,
// which any kernel has, and which has the formatting of `core` with it.

use core::arch::asm;
use core::fmt::{self, Write};

pub(crate) struct Serial;

impl Write for Serial {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            // SAFETY: the first serial port takes a byte.
            unsafe { asm!("out dx, al", in("dx") 0x3f8_u16, in("al") byte) };
        }
        Ok(())
    }
}

/// Where a boot loader jumps to, with a number of what it passes on.
#[unsafe(no_mangle)]
extern "C" fn _start(passed: u64) -> ! {
    let done = super::kernel(passed);
    let _ = writeln!(Serial, "{done} of {passed:#x}");
    loop {}
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    let _ = writeln!(Serial, "{info}");
    loop {}
}

//! The first serial port, and lines of text on it.

use super::Pc;
use core::fmt::{self, Write};
use x86_64::instructions::port::Port;
use zonal::platform::Lock;
use zonal_kernel::irq_lock::IrqLock;

/// Where bytes are written to; five ports on is the line's status.
const DATA: u16 = 0x3f8;
/// Of the status: ready to take a byte.
const EMPTY: u8 = 1 << 5;

struct Serial;

/// One line at a time.
static SERIAL: IrqLock<Serial, Pc> = IrqLock::new(Serial);

impl Write for Serial {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            let mut status = Port::<u8>::new(DATA + 5);
            // SAFETY: reading the status changes nothing but error flags, which are not used.
            while unsafe { status.read() } & EMPTY == 0 {
                core::hint::spin_loop();
            }
            // SAFETY: a byte for the port that is ready for it.
            unsafe { Port::new(DATA).write(byte) };
        }
        Ok(())
    }
}

/// Prints a line. The port of an emulator needs no setting up.
pub(crate) fn print(text: fmt::Arguments<'_>) {
    // A port that takes bytes has no errors.
    let _ = SERIAL.with(|port| writeln!(port, "{text}"));
}

/// The same without waiting for the port, even if another CPU has it: for the last words.
pub(crate) fn print_at_any_cost(text: fmt::Arguments<'_>) {
    let _ = writeln!(Serial, "{text}");
}

/// Prints a line.
#[macro_export]
macro_rules! say {
    ($($text:tt)*) => { $crate::machine::serial::print(format_args!($($text)*)) };
}

//! The first serial port, and lines of text on it.

use super::Pc;
use core::fmt::{self, Write};
use x86_64::instructions::port::Port;
use zonal::platform::Lock;
use zonal_kernel::irq_lock::IrqLock;

/// Where bytes are written to and read from; five ports on is the line's status.
const DATA: u16 = 0x3f8;
/// Of the status: a byte has come.
const READY: u8 = 1;
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

/// Asks for a line.
pub(crate) fn prompt() {
    let _ = SERIAL.with(|port| port.write_str("zonal> "));
}

/// The byte that has come, if there is one.
fn read() -> Option<u8> {
    // SAFETY: as above.
    let status = unsafe { Port::<u8>::new(DATA + 5).read() };
    // SAFETY: there is a byte to be read.
    (status & READY != 0).then(|| unsafe { Port::new(DATA).read() })
}

/// Reads a line, echoes it, and returns its length without the end; what has no room is left out.
pub(crate) fn read_line(line: &mut [u8]) -> usize {
    let mut length = 0;
    loop {
        let Some(byte) = read() else {
            core::hint::spin_loop();
            continue;
        };
        match byte {
            b'\r' | b'\n' => {
                print(format_args!(""));
                return length;
            }
            // Backspace and delete.
            8 | 127 => length = length.saturating_sub(1),
            byte => {
                if let Some(place) = line.get_mut(length) {
                    *place = byte;
                    length += 1;
                    let _ = SERIAL.with(|port| port.write_char(char::from(byte)));
                }
            }
        }
    }
}

/// As [`print`] without waiting for the port, even if another CPU has it: for the last words.
pub(crate) fn print_at_any_cost(text: fmt::Arguments<'_>) {
    let _ = writeln!(Serial, "{text}");
}

/// Prints a line.
#[macro_export]
macro_rules! say {
    ($($text:tt)*) => { $crate::machine::serial::print(format_args!($($text)*)) };
}

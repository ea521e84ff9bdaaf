//! What can be seen of the allocator.

use crate::types::ZoneNumbers;
use crate::{Code, Handle, inner, number};
use core::ffi::{c_char, c_int};
use core::fmt::{self, Write};
use zonal::ZoneId;
use zonal::report::{BuddyInfo, PageTypeInfo, VmStat, ZoneStatus};

/// A report, in the format of a file of Linux.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Report {
    /// `/proc/buddyinfo`.
    BuddyInfo = 0,
    /// `/proc/pagetypeinfo`.
    PageTypeInfo = 1,
    /// `/proc/zoneinfo`.
    ZoneInfo = 2,
    /// `/proc/vmstat`.
    VmStat = 3,
}

/// Writes what zone `zone` has to `info`, whose `size` the caller has set. Zones are numbered from 0; beyond the last the code is
/// [`NoZone`](Code::NoZone).
///
/// # Safety
/// As [`zonal_alloc`](crate::zonal_alloc); `info` is null, or as many bytes can be written there as its `size` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_zone_info(
    allocator: *const Handle,
    zone: u32,
    info: *mut ZoneNumbers,
) -> c_int {
    // SAFETY: the caller's promise.
    let zonal = unsafe { inner(allocator) };
    number(zonal.and_then(|zonal| {
        if info.is_null() {
            return Err(Code::Null);
        }
        let id = u8::try_from(zone).map_err(|_| Code::NoZone)?;
        let found = zonal.zone_info(ZoneId(id)).ok_or(Code::NoZone)?;
        // SAFETY: the caller's promise; it is not null.
        unsafe { ZoneNumbers::write(&found, info) }
    }))
}

/// Writes a report to `buffer`, as a string with a 0 at its end, and to `needed`, if that is not null, how many bytes it takes with
/// that 0. If `room` is less, the text is cut and the code is [`Buffer`](Code::Buffer).
///
/// # Safety
/// As [`zonal_alloc`](crate::zonal_alloc); `room` bytes can be written at `buffer`; `needed` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_report(
    allocator: *const Handle,
    report: u32,
    buffer: *mut c_char,
    room: usize,
    needed: *mut usize,
) -> c_int {
    // SAFETY: the caller's promise.
    let zonal = unsafe { inner(allocator) };
    let room = if buffer.is_null() { 0 } else { room };
    let bytes = match room {
        0 => &mut [][..],
        // SAFETY: not null; the caller's promise.
        _ => unsafe { core::slice::from_raw_parts_mut(buffer.cast::<u8>(), room) },
    };
    let mut text = Text { bytes, len: 0 };
    let written = zonal.and_then(|zonal| {
        let text = &mut text;
        let written = match report {
            0 => write!(text, "{}", BuddyInfo(zonal)),
            1 => write!(text, "{}", PageTypeInfo(zonal)),
            2 => write!(text, "{}", ZoneStatus(zonal)),
            3 => write!(text, "{}", VmStat(zonal)),
            _ => return Err(Code::Argument),
        };
        written.map_err(|_| Code::Buffer)
    });
    let whole = text.end();
    if !needed.is_null() {
        // SAFETY: the caller's promise.
        unsafe { needed.write(text.len + 1) };
    }
    number(written.and(if whole { Ok(()) } else { Err(Code::Buffer) }))
}

/// A text in a buffer: what does not fit is counted.
struct Text<'a> {
    bytes: &'a mut [u8],
    len: usize,
}

impl Text<'_> {
    /// Puts the 0 at the end; whether all is there.
    fn end(&mut self) -> bool {
        let last = self.len.min(self.bytes.len().saturating_sub(1));
        if let Some(byte) = self.bytes.get_mut(last) {
            *byte = 0;
        }
        self.len < self.bytes.len()
    }
}

impl Write for Text<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = self.bytes.get_mut(self.len..).unwrap_or_default();
        let fits = room.len().min(text.len());
        room[..fits].copy_from_slice(&text.as_bytes()[..fits]);
        self.len += text.len();
        Ok(())
    }
}

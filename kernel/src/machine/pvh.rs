//! What a PVH boot loader leaves: the memory map, where ACPI's tables begin, a command line.

use super::Pc;
use zonal::map::PhysAddr;
use zonal_kernel::Machine;
use zonal_kernel::boot_map::e820::Entry;

/// As the boot loader lays it out.
#[repr(C)]
struct StartInfo {
    magic: u32,
    version: u32,
    flags: u32,
    modules: u32,
    module_list: u64,
    command_line: u64,
    rsdp: u64,
    map: u64,
    entries: u32,
    reserved: u32,
}

const MAGIC: u32 = 0x336e_c578;

/// What was left, for good: its memory is not used for anything else (see `memory::boot`).
pub(crate) struct BootInfo {
    pub(crate) map: &'static [Entry],
    pub(crate) rsdp: PhysAddr,
    pub(crate) command_line: &'static str,
}

/// The information at `at`; `None` if that is no PVH loader's, or has no memory map.
///
/// # Safety
/// `at` is what the boot loader passed on, and what it left there has not been written since.
pub(crate) unsafe fn read(at: u32) -> Option<BootInfo> {
    let info = Pc::address(PhysAddr(u64::from(at))).cast::<StartInfo>();
    // SAFETY: the contract; the protocol aligns it to 4 bytes at least, so it is copied.
    let info = unsafe { info.read_unaligned() };
    if info.magic != MAGIC || info.version < 1 || info.entries == 0 {
        return None;
    }
    let map = Pc::address(PhysAddr(info.map)).cast::<Entry>();
    if !map.is_aligned() {
        return None;
    }
    // SAFETY: the protocol: that many entries are there. The contract: they stay.
    let map = unsafe { core::slice::from_raw_parts(map, info.entries as usize) };
    let command_line = match info.command_line {
        0 => "",
        // SAFETY: the protocol: a text that ends with a zero byte. The contract: it stays.
        at => unsafe { text(PhysAddr(at)) },
    };
    Some(BootInfo { map, rsdp: PhysAddr(info.rsdp), command_line })
}

/// # Safety
/// There is a zero byte at `at` or soon after, and the bytes up to it stay as they are.
unsafe fn text(at: PhysAddr) -> &'static str {
    let start = Pc::address(at).cast_const().cast();
    // SAFETY: the contract.
    let text = unsafe { core::ffi::CStr::from_ptr(start) };
    text.to_str().unwrap_or("")
}

//! A kernel in C: its functions by their names, and the allocator in a static of the library.

use crate::types::{BootRegion, Settings};
use crate::{Code, Handle, number};
use core::ffi::{c_char, c_int, c_void};
use core::fmt::{self, Write};
use zonal::map::{PhysAddr, Region, RegionKind};
use zonal::plan::{Config, MovableShare};
use zonal::preset::Zonal;
use zonal::slow_path::Shortage;
use zonal::units::FRAME_SIZE;
use zonal::watermark::MinFree;
use zonal::{CpuId, NodeId, Order, Pfn, ZoneId};
use zonal_kernel::global::TablePlace;
use zonal_kernel::{Error, Global, Machine};

/// The allocator of a kernel. cbindgen:ignore
pub(crate) type KernelFrames = zonal_kernel::global::Frames<KernelMachine, Zonal>;

static FRAMES: Global<KernelMachine> = Global::new();

// What the kernel has to define.
unsafe extern "C" {
    /// A kernel defines the functions `zonal_host_...`. They are called from handlers of interrupts too, if those allocate; none may call
    /// the library, but the two about reclaim. This one: the CPU that this is, 0 to `cpus` - 1. A hint.
    fn zonal_host_cpu() -> u32;
    /// The node of a CPU. Asked for all of them when the allocator is built.
    fn zonal_host_node(cpu: u32) -> u32;
    /// Keeps interrupts from this CPU; whether they could come before.
    fn zonal_host_interrupts_off() -> bool;
    /// Lets them come again if they could.
    fn zonal_host_interrupts_restore(were_on: bool);
    /// Where a frame can be read and written: aligned to 4096, not null. Frames that follow each other in a region follow each
    /// other there too: tables, and blocks that are to be zero, are written from their first frame on.
    fn zonal_host_address(physical: u64) -> *mut c_void;
    /// A zone is short: wake who reclaims. Must not block.
    fn zonal_host_wake_reclaim(zone: u32);
    /// Gives frames back, and says how many; 0: none.
    fn zonal_host_reclaim(order: u32, attempt: u32) -> u64;
    /// A mistake in the library. Does not return.
    fn zonal_host_panic(text: *const c_char) -> !;
}

/// The machine, as the functions `zonal_host_...` describe it.
#[derive(Debug)]
pub struct KernelMachine;

impl Machine for KernelMachine {
    #[inline(always)]
    fn cpu() -> CpuId {
        // SAFETY: the header asks for a function that can be called at any time.
        CpuId(unsafe { zonal_host_cpu() })
    }

    #[inline(always)]
    fn node(cpu: CpuId) -> NodeId {
        // SAFETY: as above.
        NodeId(unsafe { zonal_host_node(cpu.0) } as u8)
    }

    #[inline(always)]
    fn interrupts_off() -> bool {
        // SAFETY: as above.
        unsafe { zonal_host_interrupts_off() }
    }

    #[inline(always)]
    fn interrupts_restore(were_on: bool) {
        // SAFETY: as above; each call belongs to one of `interrupts_off`.
        unsafe { zonal_host_interrupts_restore(were_on) };
    }

    #[inline(always)]
    fn address(frame: PhysAddr) -> *mut u8 {
        // SAFETY: as above.
        unsafe { zonal_host_address(frame.0) }.cast()
    }

    fn wake_reclaim(zone: ZoneId) {
        // SAFETY: as above; no lock is held.
        unsafe { zonal_host_wake_reclaim(u32::from(zone.0)) };
    }

    fn reclaim(shortage: &Shortage) -> u64 {
        let order = u32::from(shortage.request.order().get());
        // SAFETY: as above; no lock is held.
        unsafe { zonal_host_reclaim(order, shortage.attempt) }
    }
}

/// In a kernel: builds the allocator over the memory of the map, with its tables at the top of it, and writes the pointer to it to
/// `allocator`. Once. Takes up to 8 KiB of stack. All memory that is not reserved is in use by no other code, and `zonal_host_address`
/// says where it can be read and written. A refusal leaves all as it was.
///
/// # Safety
/// `count` regions can be read at `regions`; `config` is null or has as many bytes as its `size` says; `allocator` is null or
/// writable. And all memory that the map does not call reserved is memory that no other code uses, and
/// `zonal_host_address` says where it can be read and written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_boot(
    regions: *const BootRegion,
    count: usize,
    config: *const Settings,
    allocator: *mut *mut Handle,
) -> c_int {
    if regions.is_null() || allocator.is_null() {
        return number(Err(Code::Null));
    }
    // SAFETY: the caller's promise.
    let (regions, settings) =
        (unsafe { core::slice::from_raw_parts(regions, count) }, unsafe { Settings::read(config) });
    number(settings.and_then(|settings| {
        check(regions)?;
        let config = configuration(&settings)?;
        let below = settings.tables_below;
        let below = (below > 0).then(|| Pfn::containing(below));
        // Its address would be a null pointer where memory is mapped as it is.
        let first = Region::reserved(PhysAddr(0), FRAME_SIZE as u64);
        let all = core::iter::once(first).chain(regions.iter().filter_map(region));
        let map = FRAMES.map_of(all).map_err(code)?;
        // SAFETY: the caller's promise.
        unsafe { map.boot_in(config, TablePlace { node: None, below }) }.map_err(code)?;
        // SAFETY: what is freed through it is what the kernel frees; what is released or comes is memory, by the
        // contracts of those calls, and has its tables from the start.
        let frames = unsafe { FRAMES.allocator() }.map_err(code)?;
        // SAFETY: not null, so writable: the caller's promise.
        unsafe { allocator.write(core::ptr::from_ref(frames).cast_mut()) };
        Ok(())
    }))
}

/// Whether all of them are regions.
fn check(regions: &[BootRegion]) -> Result<(), Code> {
    if regions.iter().all(|one| region(one).is_some()) { Ok(()) } else { Err(Code::Map) }
}

/// `None` if its kind or node cannot be.
fn region(region: &BootRegion) -> Option<Region> {
    let kind = *RegionKind::ALL.get(region.kind as usize)?;
    let node = NodeId(u8::try_from(region.node).ok()?);
    Some(Region { kind, ..Region::usable(PhysAddr(region.start), region.bytes) }.on(node))
}

fn configuration(settings: &Settings) -> Result<Config, Code> {
    if settings.bytes | settings.reserve != 0 {
        return Err(Code::Argument);
    }
    let mut config = Config::new(settings.cpus);
    if settings.pageblock_order > 0 {
        let order = u8::try_from(settings.pageblock_order).ok().and_then(Order::new);
        config.pageblock_order = order.ok_or(Code::Argument)?;
    }
    if settings.movable_frames > 0 {
        config.movable = MovableShare::Frames(settings.movable_frames);
    }
    if settings.min_free_frames > 0 {
        config.watermarks.min_free = MinFree::Frames(settings.min_free_frames);
    }
    Ok(config)
}

fn code(error: Error) -> Code {
    match error {
        Error::AlreadyBooted => Code::Booted,
        Error::Map(zonal::map::MapError::NoRoom { .. }) | Error::Tables(_) => Code::Tables,
        Error::Map(_) => Code::Map,
        Error::Plan(_) => Code::Plan,
        Error::BadAddress { .. } => Code::Argument,
        _ => Code::Damaged,
    }
}

/// Where a frame is.
pub(crate) fn address(pfn: Pfn) -> *mut c_void {
    KernelMachine::address(PhysAddr(pfn.address())).cast()
}

/// A text with a 0 at its end, cut where there is no more room.
struct Said {
    bytes: [u8; 256],
    len: usize,
}

impl Write for Said {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = &mut self.bytes[self.len..255];
        let fits = room.len().min(text.len());
        room[..fits].copy_from_slice(&text.as_bytes()[..fits]);
        self.len += fits;
        Ok(())
    }
}

/// A mistake in the library: the kernel is told, and does not go on.
#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    let mut said = Said { bytes: [0; 256], len: 0 };
    let _cut = write!(said, "{info}");
    // SAFETY: the header asks for a function that takes a string and does not return.
    unsafe { zonal_host_panic(said.bytes.as_ptr().cast()) }
}

/// The precompiled `core` of a target with an operating system refers to it; nothing here unwinds.
#[cfg(not(target_os = "none"))]
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}

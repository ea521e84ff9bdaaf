//! The machine: a PC in an emulator.

pub(crate) mod acpi;
pub(crate) mod apic;
pub(crate) mod boot;
pub(crate) mod cpu;
pub(crate) mod dimm;
pub(crate) mod interrupts;
#[cfg(feature = "masked")]
pub(crate) mod masked;
pub(crate) mod pvh;
#[cfg(feature = "trace")]
pub(crate) mod ring;
pub(crate) mod serial;
pub(crate) mod smp;
pub(crate) mod tables;
pub(crate) mod team;
pub(crate) mod user;

use crate::memory::{cache, movable};
use zonal::map::PhysAddr;
use zonal::slow_path::Shortage;
use zonal::{CpuId, Immovable, Migration, NodeId, ZoneId};
use zonal_kernel::{Global, Machine, arch};

/// What the allocator has to know of it.
pub(crate) struct Pc;

impl Machine for Pc {
    #[inline(always)]
    fn cpu() -> CpuId {
        #[cfg(feature = "masked")]
        return masked::cpu();
        #[cfg(not(feature = "masked"))]
        cpu::number()
    }
    #[inline(always)]
    fn node(cpu: CpuId) -> NodeId {
        cpu::node(cpu)
    }
    #[inline(always)]
    fn interrupts_off() -> bool {
        let were_on = arch::interrupts_off();
        #[cfg(feature = "masked")]
        if were_on {
            masked::begin();
        }
        were_on
    }
    #[inline(always)]
    fn interrupts_restore(were_on: bool) {
        #[cfg(feature = "masked")]
        if were_on {
            masked::end();
        }
        arch::interrupts_restore(were_on);
    }
    fn wake_reclaim(_: ZoneId) {
        cache::wake();
    }
    fn reclaim(shortage: &Shortage) -> u64 {
        cache::reclaim(shortage)
    }
    fn can_migrate() -> bool {
        movable::are_there()
    }
    fn migrate(page: &Migration) -> Result<(), Immovable> {
        movable::migrate(page)
    }
    #[inline(always)]
    fn address(frame: PhysAddr) -> *mut u8 {
        // Memory is mapped as it is: see `boot`.
        core::ptr::with_exposed_provenance_mut(frame.0 as usize)
    }
}

/// How it allocates.
#[cfg(not(feature = "linux416"))]
type Base = zonal::preset::Zonal;
/// As Linux 4.16 did.
#[cfg(feature = "linux416")]
type Base = zonal::preset::Linux416;

/// The same, told to the ring.
#[cfg(feature = "trace")]
pub(crate) type Preset = zonal::preset::Traced<Base, zonal_trace::ring::ToRing<ring::ToSerial>>;
/// The same.
#[cfg(not(feature = "trace"))]
pub(crate) type Preset = Base;

/// All memory.
pub(crate) static FRAMES: Global<Pc, Preset> = Global::new();

/// Ends the emulator (its device isa-debug-exit): its exit code is twice `code`, plus 1.
pub(crate) fn exit(code: Exit) -> ! {
    let mut port = x86_64::instructions::port::Port::<u32>::new(0xf4);
    // SAFETY: no device but that one has the port, and it stops the machine.
    unsafe { port.write(code as u32) };
    loop {
        x86_64::instructions::hlt();
    }
}

/// How it went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Exit {
    /// Every frame was counted.
    Well = 0x10,
    /// A count was wrong, or something went wrong on the way.
    Wrong = 0x11,
}

//! What a kernel says of its machine: five small functions, and what it can do when memory is short.
//!
//! ```
//! use zonal::map::PhysAddr;
//! use zonal::{CpuId, NodeId};
//! use zonal_kernel::{Machine, arch};
//!
//! struct Pc;
//!
//! impl Machine for Pc {
//!     fn cpu() -> CpuId { CpuId(0) }
//!     fn node(_: CpuId) -> NodeId { NodeId(0) }
//!     fn interrupts_off() -> bool { arch::interrupts_off() }
//!     fn interrupts_restore(were_on: bool) { arch::interrupts_restore(were_on); }
//!     fn address(frame: PhysAddr) -> *mut u8 { (0xffff_8000_0000_0000 + frame.0) as *mut u8 }
//! }
//! ```

use zonal::map::PhysAddr;
use zonal::slow_path::Shortage;
use zonal::{CpuId, Immovable, Migration, NodeId, Order, ZoneId};

/// A machine, as its kernel knows it. A type that implements it holds nothing: what it needs to know
/// is in the processor's registers or in statics.
///
/// The first five functions have to be written. They are called from interrupt handlers too, if those
/// allocate, and the two for interrupts around and inside holds of locks. None may call the allocator or
/// panic.
///
/// The others are called with no lock of the allocator held, on the CPU of the request, and may call
/// the allocator ([`Host`](zonal::Host) has more on each). The defaults do nothing, and refuse.
pub trait Machine: 'static {
    /// The CPU that this is: 0 to [`Config::cpus`](zonal::plan::Config::cpus) − 1. A hint: a wrong
    /// answer is slow, never unsound, so a task may be moved at any moment.
    fn cpu() -> CpuId;

    /// The node of a CPU. Asked for all of them when the allocator is built, and for one when
    /// [`Global::set_home`](crate::Global::set_home) is called for it; no request asks.
    fn node(cpu: CpuId) -> NodeId;

    /// Waits a moment for another CPU, which holds a lock. The default is the processor's hint that this is a loop;
    /// a guest may tell its hypervisor. Interrupts are as they were before the wait: masked if it is from inside a slot.
    #[inline]
    fn relax() {
        crate::sync::pause();
    }

    /// Lets what this CPU stored be seen before what it loads next: a full fence. The default is the one of `core`; a
    /// kernel that knows a faster instruction, or counts fences, says so here. Requests by
    /// [`Global`](crate::Global) make none; an owner's handle makes one in each call.
    #[inline]
    fn fence() {
        core::sync::atomic::fence(core::sync::atomic::Ordering::SeqCst);
    }

    /// Keeps interrupts from this CPU; returns whether they could come before.
    fn interrupts_off() -> bool;

    /// Lets them come again if `were_on`: the answer of the
    /// [`interrupts_off`](Self::interrupts_off) that it belongs to. Pairs are nested.
    fn interrupts_restore(were_on: bool);

    /// Where a frame can be read and written. See the contract of
    /// [`Global::boot`](crate::Global::boot).
    fn address(frame: PhysAddr) -> *mut u8;

    /// A zone fell below its low watermark: wake the task that reclaims. Must not block.
    fn wake_reclaim(zone: ZoneId) {
        let _ = zone;
    }

    /// Gives frames back, because a request that may wait cannot be served; returns how many.
    #[must_use]
    fn reclaim(shortage: &Shortage) -> u64 {
        let _ = shortage;
        0
    }

    /// A request for a block of `order` found none at once: wake the task that compacts. Must not block.
    fn wake_compaction(zone: ZoneId, order: Order) {
        let _ = (zone, order);
    }

    /// Whether [`migrate`](Self::migrate) can move anything.
    #[must_use]
    fn can_migrate() -> bool {
        false
    }

    /// Moves a page: see [`Host::migrate`](zonal::Host::migrate), whose promises are made here.
    ///
    /// # Errors
    /// [`Immovable`] if it stays where it is.
    fn migrate(page: &Migration) -> Result<(), Immovable> {
        let _ = page;
        Err(Immovable)
    }
}

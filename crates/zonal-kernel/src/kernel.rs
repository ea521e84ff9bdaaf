//! A [`Machine`] as the allocator's host.
//!
//! | what | here |
//! |---|---|
//! | atomics | of `core` |
//! | lock | [`IrqLock`]: spins, masks interrupts |
//! | slot | [`IrqSlot`]: the same, with a word for an owner |
//! | fences | full ones on both sides, [`Machine::fence`] |
//! | neighbours at once | by [`zonal_runs`] |
//! | zeroing | writes the frames at [`Machine::address`] |
//!
//! [`Global`](crate::Global) makes it; its type is in the types of allocators and handles:
//!
//! ```
//! use zonal::{CpuHandle, preset::Zonal};
//! type Handle<'a, M> = CpuHandle<'a, 'static, zonal_kernel::Kernel<M>, Zonal>;
//! ```

use crate::Machine;
use crate::irq_lock::IrqLock;
use crate::irq_slot::IrqSlot;
use core::fmt;
use core::marker::PhantomData;
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};
use zonal::map::PhysAddr;
use zonal::platform::{FenceUnsupported, Platform};
use zonal::policy::Policy;
use zonal::slow_path::Shortage;
use zonal::{Allocator, CannotZero, CpuId, Host, Immovable, Migration, NodeId, Order, Pfn, ZoneId};

/// The host of a kernel on machine `M`.
pub struct Kernel<M>(PhantomData<fn() -> M>);

impl<M: Machine> Kernel<M> {
    /// A host whose [`zero`](Host::zero) writes frames.
    ///
    /// # Safety
    /// For each frame that an allocator with this host manages, now or later, `M::address` says
    /// where `Order::bytes` of the block that it begins can be written, as long as the block is
    /// allocated and its holder does not use it yet.
    #[must_use]
    pub const unsafe fn new() -> Self {
        Self(PhantomData)
    }
}

impl<M> fmt::Debug for Kernel<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Kernel")
    }
}

/// The fences are full ones on both sides: a kernel has no call that makes a fence on every CPU but an
/// interrupt to all of them, which [`Machine`] does not ask for.
impl<M: Machine> Platform for Kernel<M> {
    type Byte = AtomicU8;
    type Half = AtomicU32;
    type Word = AtomicU64;
    type Lock<T: Send> = IrqLock<T, M>;
    type Slot<T: Send> = IrqSlot<T, M>;

    #[inline(always)]
    fn cpu(&self) -> CpuId {
        M::cpu()
    }

    #[inline(always)]
    fn node(&self, cpu: CpuId) -> NodeId {
        M::node(cpu)
    }

    #[inline]
    fn relax() {
        M::relax();
    }

    #[inline]
    fn light_fence() {
        M::fence();
    }

    #[inline]
    fn heavy_fence() -> Result<(), FenceUnsupported> {
        M::fence();
        Ok(())
    }

    zonal_runs::forward!();
}

impl<M: Machine> Host for Kernel<M> {
    fn zero(&self, pfn: Pfn, order: Order) -> Result<(), CannotZero> {
        let address = M::address(PhysAddr(pfn.address()));
        // SAFETY: the allocator calls this with a block that it has just allocated and not yet handed
        // out; by the contract of `new` its bytes can be written at this address.
        unsafe { address.write_bytes(0, order.bytes()) };
        Ok(())
    }

    fn wake_reclaim(&self, zone: ZoneId) {
        M::wake_reclaim(zone);
    }

    fn reclaim<S: Policy>(&self, _: &Allocator<'_, Self, S>, shortage: &Shortage) -> u64 {
        M::reclaim(shortage)
    }

    fn wake_compaction(&self, zone: ZoneId, order: Order) {
        M::wake_compaction(zone, order);
    }

    fn can_migrate(&self) -> bool {
        M::can_migrate()
    }

    fn migrate<S: Policy>(
        &self,
        _: &Allocator<'_, Self, S>,
        page: &Migration,
    ) -> Result<(), Immovable> {
        M::migrate(page)
    }
}

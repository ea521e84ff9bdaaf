//! A request as Linux's `gfp` mask.

use crate::types::migrate_type::MigrateType;
use crate::types::request::Request;
use crate::types::units::Order;
use crate::types::zone_type::ZoneType;

/// A request as Linux's `gfp` mask, with the bits that Linux 4.16 gives them. All of a request
/// but its order, its node policy, and [`less_throttled`](Request::less_throttled), which Linux knows from the task.
///
/// | request | Linux |
/// |---|---|
/// | [`migrate`](Request::migrate) | `__GFP_MOVABLE`, `__GFP_RECLAIMABLE` |
/// | [`zone_limit`](Request::zone_limit) | `GFP_DMA`, `GFP_DMA32`, `__GFP_HIGHMEM` for Movable |
/// | [`atomic`](Request::atomic), [`high`](Request::high) | `__GFP_ATOMIC`, `__GFP_HIGH` |
/// | no [`no_wait`](Request::no_wait) | `__GFP_DIRECT_RECLAIM`, `__GFP_IO`, `__GFP_FS` |
/// | [`write`](Request::write), [`zero`](Request::zero) | `__GFP_WRITE`, `__GFP_ZERO` |
/// | [`this_node`](Request::this_node) | `__GFP_THISNODE` |
///
/// ```
/// use zonal::policy::trace::Gfp;
/// use zonal::{Order, Request, ZoneType};
/// let gfp = Gfp::of(&Request::frame().zone_limit(ZoneType::Dma32).zero());
/// assert_eq!(gfp.bits() & (Gfp::DMA | Gfp::DMA32 | Gfp::ZERO), Gfp::DMA32 | Gfp::ZERO);
/// let request = gfp.request(Order::HUGE);
/// assert!(request.is_zero() && request.order() == Order::HUGE);
/// ```
///
/// The crate `zonal-trace` has the names of masks, as Linux prints them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(transparent)]
pub struct Gfp(u32);

impl Gfp {
    /// `__GFP_DMA`
    pub const DMA: u32 = 0x01;
    /// `__GFP_HIGHMEM`
    pub const HIGHMEM: u32 = 0x02;
    /// `__GFP_DMA32`
    pub const DMA32: u32 = 0x04;
    /// `__GFP_MOVABLE`
    pub const MOVABLE: u32 = 0x08;
    /// `__GFP_RECLAIMABLE`
    pub const RECLAIMABLE: u32 = 0x10;
    /// `__GFP_HIGH`
    pub const HIGH: u32 = 0x20;
    /// `__GFP_IO`
    pub const IO: u32 = 0x40;
    /// `__GFP_FS`
    pub const FS: u32 = 0x80;
    /// `__GFP_ZERO`
    pub const ZERO: u32 = 0x8000;
    /// `__GFP_HARDWALL`
    pub const HARDWALL: u32 = 0x2_0000;
    /// `__GFP_THISNODE`
    pub const THIS_NODE: u32 = 0x4_0000;
    /// `__GFP_ATOMIC`
    pub const ATOMIC: u32 = 0x8_0000;
    /// `__GFP_DIRECT_RECLAIM`
    pub const DIRECT_RECLAIM: u32 = 0x40_0000;
    /// `__GFP_WRITE`
    pub const WRITE: u32 = 0x80_0000;
    /// `__GFP_KSWAPD_RECLAIM`
    pub const KSWAPD_RECLAIM: u32 = 0x100_0000;
    /// `GFP_KERNEL`: both kinds of reclaim, and the ways it may go.
    pub const KERNEL: u32 = Self::DIRECT_RECLAIM | Self::KSWAPD_RECLAIM | Self::IO | Self::FS;

    /// What a request looks like in Linux.
    #[must_use]
    pub const fn of(request: &Request) -> Self {
        let mut bits = match (request.asked(), request.migrate_type()) {
            (ZoneType::Dma, _) => Self::DMA,
            (ZoneType::Dma32, _) => Self::DMA32,
            (ZoneType::Normal, _) => 0,
            // A caller that asks so in Linux allocates for user space.
            (ZoneType::Movable, MigrateType::Movable) => Self::HIGHMEM | Self::HARDWALL,
            (ZoneType::Movable, _) => Self::HIGHMEM,
        };
        bits |= match request.migrate_type() {
            MigrateType::Movable => Self::MOVABLE,
            MigrateType::Reclaimable => Self::RECLAIMABLE,
            _ => 0,
        };
        bits |= if request.may_not_wait() { Self::KSWAPD_RECLAIM } else { Self::KERNEL };
        let access = request.access();
        let flags = [
            (access.high, Self::HIGH),
            (access.atomic, Self::ATOMIC),
            (request.is_write(), Self::WRITE),
            (request.is_zero(), Self::ZERO),
            (request.is_this_node(), Self::THIS_NODE),
        ];
        let mut at = 0;
        while at < flags.len() {
            bits |= if flags[at].0 { flags[at].1 } else { 0 };
            at += 1;
        }
        Self(bits)
    }

    /// The request that this mask stands for, for a block of `order` from the local node. Bits
    /// that mean nothing to this allocator are left out.
    pub const fn request(self, order: Order) -> Request {
        let mut request = Request::new(order);
        request = match self.0 & (Self::DMA | Self::DMA32 | Self::HIGHMEM) {
            0 => request,
            low if low & Self::DMA != 0 => request.zone_limit(ZoneType::Dma),
            low if low & Self::DMA32 != 0 => request.zone_limit(ZoneType::Dma32),
            _ => request.zone_limit(ZoneType::Movable),
        };
        request = match self.0 & (Self::MOVABLE | Self::RECLAIMABLE) {
            0 => request,
            bits if bits & Self::MOVABLE != 0 => request.migrate(MigrateType::Movable),
            _ => request.migrate(MigrateType::Reclaimable),
        };
        if self.0 & Self::HIGH != 0 {
            request = request.high();
        }
        if self.0 & Self::ATOMIC != 0 {
            request = request.atomic();
        }
        if self.0 & Self::DIRECT_RECLAIM == 0 {
            request = request.no_wait();
        }
        if self.0 & Self::WRITE != 0 {
            request = request.write();
        }
        if self.0 & Self::ZERO != 0 {
            request = request.zero();
        }
        if self.0 & Self::THIS_NODE != 0 {
            request = request.this_node();
        }
        request
    }

    /// The mask.
    #[must_use]
    #[inline]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// A mask with these bits, of Linux 4.16.
    #[must_use]
    #[inline]
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// Both masks together.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All but the order, the node policy and `less_throttled`.
    #[test]
    fn requests_survive_as_masks() {
        for flags in 0..64u32 {
            for limit in ZoneType::ALL {
                for migrate in MigrateType::ALL.into_iter().filter(|it| it.is_requestable()) {
                    let mut request = Request::frame().migrate(migrate).zone_limit(limit);
                    let with: [fn(Request) -> Request; 6] = [
                        Request::atomic,
                        Request::high,
                        Request::no_wait,
                        Request::this_node,
                        Request::write,
                        Request::zero,
                    ];
                    for (bit, with) in with.into_iter().enumerate() {
                        if flags >> bit & 1 == 1 {
                            request = with(request);
                        }
                    }
                    assert_eq!(Gfp::of(&request).request(Order::ZERO), request);
                }
            }
        }
    }
}

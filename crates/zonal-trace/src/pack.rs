//! An event in two words.
//!
//! ```
//! use zonal::policy::trace::Event;
//! use zonal::{CpuId, Order, Pfn};
//! use zonal_trace::pack::Packed;
//! let event = Event::Free { pfn: Pfn::new(77), order: Order::HUGE };
//! let packed = Packed::new(CpuId(3), &event);
//! assert_eq!(packed.unpack(), Some((CpuId(3), event)));
//! assert_eq!(Packed([u64::MAX, 0]).unpack(), None);
//! ```

use zonal::policy::trace::{Event, Gfp, Lru, PageFlags, Point};
use zonal::{CpuId, MigrateType, Order, Pfn};

/// Bits of a pfn: what is left of a 64-bit address.
const PFN_BITS: u32 = 52;

/// An event and the CPU it happened on, in two words, for sinks that keep many.
///
/// | word | bits | what |
/// |---|---|---|
/// | 0 | 0 to 51 | pfn |
/// | | 52 to 55 | kind |
/// | | 56 to 59 | order |
/// | | 60 to 62 | migrate type |
/// | 1 | 0 to 31 | `gfp`; percpu refill; LRU list and flags; or, of an extfrag event, the fallback's order and migrate type, whether the owner changed, the order of a pageblock |
/// | | 32 to 63 | CPU |
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packed(pub [u64; 2]);

impl Packed {
    /// Packs. Bits of a pfn that no address has are lost, and so is an event of a kind that is
    /// newer than this crate: it is not unpacked.
    #[must_use]
    pub fn new(cpu: CpuId, event: &Event) -> Self {
        let (order, migrate, detail) = match *event {
            Event::Alloc { order, migrate, gfp, .. } => (order, migrate, gfp.bits()),
            Event::Free { order, .. } => (order, MigrateType::Unmovable, 0),
            Event::FreeBatched { .. } | Event::LruActivate { .. } => {
                (Order::ZERO, MigrateType::Unmovable, 0)
            }
            Event::AllocZoneLocked { order, migrate, percpu_refill, .. } => {
                (order, migrate, u32::from(percpu_refill))
            }
            Event::AllocExtfrag {
                alloc_order,
                fallback_order,
                alloc_migrate,
                fallback_migrate,
                change_ownership,
                pageblock_order,
                ..
            } => {
                let fallback = u32::from(fallback_order.get()) | (fallback_migrate as u32) << 4;
                let block =
                    u32::from(change_ownership) << 7 | u32::from(pageblock_order.get()) << 8;
                (alloc_order, alloc_migrate, fallback | block)
            }
            Event::LruInsertion { lru, flags, .. } => {
                let detail = lru as u32 | u32::from(flags.0) << 8;
                (Order::ZERO, MigrateType::Unmovable, detail)
            }
            // A kind that this version does not know: its number is packed, and not unpacked.
            _ => (Order::ZERO, MigrateType::Unmovable, 0),
        };
        let pfn = event.pfn().get() & ((1 << PFN_BITS) - 1);
        let kind = event.point() as u64 | u64::from(order.get()) << 4 | (migrate as u64) << 8;
        Self([pfn | kind << PFN_BITS, u64::from(detail) | u64::from(cpu.0) << 32])
    }

    /// The CPU and the event; `None` if the words are not of this making.
    #[must_use]
    pub fn unpack(self) -> Option<(CpuId, Event)> {
        let Self([first, second]) = self;
        let bits = |from: u32, count: u32| (first >> from & ((1 << count) - 1)) as u8;
        let pfn = Pfn::new(first & ((1 << PFN_BITS) - 1));
        let point = *Point::ALL.get(bits(PFN_BITS, 4) as usize)?;
        let order = Order::new(bits(56, 4))?;
        let migrate = MigrateType::from_number(bits(60, 3))?;
        let (detail, cpu) = (second as u32, CpuId((second >> 32) as u32));
        let event = match point {
            Point::Alloc => Event::Alloc { pfn, order, migrate, gfp: Gfp::from_bits(detail) },
            Point::Free => Event::Free { pfn, order },
            Point::FreeBatched => Event::FreeBatched { pfn },
            Point::AllocZoneLocked => {
                Event::AllocZoneLocked { pfn, order, migrate, percpu_refill: detail & 1 != 0 }
            }
            Point::AllocExtfrag => Event::AllocExtfrag {
                pfn,
                alloc_order: order,
                fallback_order: Order::new(detail as u8 & 15)?,
                alloc_migrate: migrate,
                fallback_migrate: MigrateType::from_number((detail >> 4) as u8 & 7)?,
                change_ownership: detail & 0x80 != 0,
                pageblock_order: Order::new((detail >> 8) as u8 & 15)?,
            },
            Point::LruInsertion => Event::LruInsertion {
                pfn,
                lru: Lru::from_number(detail as u8)?,
                flags: PageFlags((detail >> 8) as u8),
            },
            Point::LruActivate => Event::LruActivate { pfn },
            _ => return None,
        };
        Some((cpu, event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zonal::Request;

    #[test]
    fn every_event_survives_packing() {
        let pfn = Pfn::new((1 << PFN_BITS) - 1);
        let all = [Order::ZERO, Order::new(3).unwrap_or_default(), Order::MAX];
        let mut seen = 0;
        for order in all {
            for migrate in MigrateType::ALL {
                let gfp = Gfp::of(&Request::new(order).zero().write().atomic().migrate(migrate));
                let events = [
                    Event::Alloc { pfn, order, migrate, gfp },
                    Event::Free { pfn, order },
                    Event::FreeBatched { pfn },
                    Event::AllocZoneLocked { pfn, order, migrate, percpu_refill: true },
                    Event::AllocExtfrag {
                        pfn,
                        alloc_order: order,
                        fallback_order: Order::MAX,
                        alloc_migrate: migrate,
                        fallback_migrate: MigrateType::Isolate,
                        change_ownership: order == Order::ZERO,
                        pageblock_order: Order::HUGE,
                    },
                    Event::LruInsertion { pfn, lru: Lru::Unevictable, flags: PageFlags(0x7f) },
                    Event::LruActivate { pfn },
                ];
                for event in events {
                    let cpu = CpuId(u32::MAX);
                    assert_eq!(Packed::new(cpu, &event).unpack(), Some((cpu, event)));
                    seen += 1;
                }
            }
        }
        assert_eq!(seen, 3 * 6 * Point::ALL.len());
    }
}

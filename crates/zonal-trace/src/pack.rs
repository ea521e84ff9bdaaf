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

use zonal::policy::trace::{Event, Gfp, Lru, PageFlags, Point, ReclaimFlags};
use zonal::{CpuId, MigrateType, NodeId, Order, Pfn};

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
///
/// Events about lists have no frame. Their counts stand there and in the low half of word 1, as large as fits:
/// of isolate scanned and skipped (26 bits each), requested and taken (10 each), list, zone; of shrink scanned (16),
/// reclaimed (10), dirty, on their way (13 each), activated, kept (9 each), flags, priority, node; of the active list
/// looked at (16), stay, deactivated, used (12 each), flags, priority, node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packed(pub [u64; 2]);

/// Bits of the counts of `mm_vmscan_lru_isolate`: scanned, skipped; requested, taken, list, zone.
const ISOLATE: ([u32; 4], [u32; 5]) = ([26, 26, 0, 0], [10, 10, 3, 3, 0]);
/// Those of `mm_vmscan_lru_shrink_inactive`: scanned, reclaimed, dirty, on their way; activated, kept, flags, priority, node.
const SHRINK: ([u32; 4], [u32; 5]) = ([16, 10, 13, 13], [9, 9, 5, 4, 5]);

/// Those of `mm_vmscan_lru_shrink_active`: looked at, stay, deactivated, used; nothing twice, flags, priority, node.
const ACTIVE: ([u32; 4], [u32; 5]) = ([16, 12, 12, 12], [0, 0, 5, 4, 5]);

/// Puts numbers side by side, each in its bits, the largest that fits if it does not.
fn side_by_side(numbers: &[u32], bits: &[u32]) -> u64 {
    let mut at = 0;
    numbers.iter().zip(bits).fold(0, |all, (&number, &bits)| {
        let part = u64::from(number).min((1 << bits) - 1) << at;
        at += bits;
        all | part
    })
}

/// Takes them apart.
fn apart<const N: usize>(mut all: u64, bits: [u32; N]) -> [u32; N] {
    bits.map(|bits| {
        let part = all & ((1 << bits) - 1);
        all >>= bits;
        part as u32
    })
}

/// What an event about lists has in the place of the pfn, its order, and its detail.
fn lists(event: &Event) -> Option<(u64, Order, u32)> {
    Some(match *event {
        Event::VmscanLruIsolate { classzone, order, requested, scanned, skipped, taken, lru } => {
            let detail = [requested, taken, lru as u32, classzone.into()];
            let first = side_by_side(&[scanned, skipped], &ISOLATE.0);
            (first, order, side_by_side(&detail, &ISOLATE.1) as u32)
        }
        Event::VmscanLruShrinkInactive {
            node,
            scanned,
            reclaimed,
            dirty,
            writeback,
            activate,
            ref_keep,
            priority,
            flags,
        } => {
            let detail = [activate, ref_keep, flags.0.into(), priority.into(), node.0.into()];
            let first = side_by_side(&[scanned, reclaimed, dirty, writeback], &SHRINK.0);
            (first, Order::ZERO, side_by_side(&detail, &SHRINK.1) as u32)
        }
        Event::VmscanLruShrinkActive {
            node,
            taken,
            active,
            deactivated,
            referenced,
            priority,
            flags,
        } => {
            let detail = [0, 0, flags.0.into(), priority.into(), node.0.into()];
            let first = side_by_side(&[taken, active, deactivated, referenced], &ACTIVE.0);
            (first, Order::ZERO, side_by_side(&detail, &ACTIVE.1) as u32)
        }
        _ => return None,
    })
}

/// The event about lists of that kind.
fn list_event(point: Point, first: u64, order: Order, detail: u32) -> Option<Event> {
    Some(match point {
        Point::VmscanLruIsolate => {
            let [scanned, skipped, ..] = apart(first, ISOLATE.0);
            let [requested, taken, lru, classzone, _] = apart(detail.into(), ISOLATE.1);
            let (lru, classzone) = (Lru::from_number(lru as u8)?, classzone as u8);
            Event::VmscanLruIsolate { classzone, order, requested, scanned, skipped, taken, lru }
        }
        Point::VmscanLruShrinkInactive => {
            let [scanned, reclaimed, dirty, writeback] = apart(first, SHRINK.0);
            let [activate, ref_keep, flags, priority, node] = apart(detail.into(), SHRINK.1);
            Event::VmscanLruShrinkInactive {
                node: NodeId(node as u8),
                scanned,
                reclaimed,
                dirty,
                writeback,
                activate,
                ref_keep,
                priority: priority as u8,
                flags: ReclaimFlags(flags as u8),
            }
        }
        Point::VmscanLruShrinkActive => {
            let [taken, active, deactivated, referenced] = apart(first, ACTIVE.0);
            let [_, _, flags, priority, node] = apart(detail.into(), ACTIVE.1);
            let (node, priority) = (NodeId(node as u8), priority as u8);
            let flags = ReclaimFlags(flags as u8);
            Event::VmscanLruShrinkActive {
                node,
                taken,
                active,
                deactivated,
                referenced,
                priority,
                flags,
            }
        }
        _ => return None,
    })
}

impl Packed {
    /// Packs. Bits of a pfn that no address has are lost, and so is an event of a kind that is
    /// newer than this crate: it is not unpacked.
    #[must_use]
    pub fn new(cpu: CpuId, event: &Event) -> Self {
        if let Some((first, order, detail)) = lists(event) {
            let kind = event.point() as u64 | u64::from(order.get()) << 4;
            return Self([first | kind << PFN_BITS, u64::from(detail) | u64::from(cpu.0) << 32]);
        }
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
            _ => list_event(point, pfn.get(), order, detail)?,
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
                    Event::VmscanLruIsolate {
                        classzone: 7,
                        order,
                        requested: 1023,
                        scanned: (1 << 26) - 1,
                        skipped: 1 << 25,
                        taken: 32,
                        lru: Lru::Unevictable,
                    },
                    Event::VmscanLruShrinkInactive {
                        node: NodeId(31),
                        scanned: 65_535,
                        reclaimed: 1023,
                        dirty: 8191,
                        writeback: 4096,
                        activate: 511,
                        ref_keep: 256,
                        priority: 12,
                        flags: ReclaimFlags(0x1f),
                    },
                    Event::VmscanLruShrinkActive {
                        node: NodeId(17),
                        taken: 65_535,
                        active: 4095,
                        deactivated: 2048,
                        referenced: 7,
                        priority: 12,
                        flags: ReclaimFlags(0x11),
                    },
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

    #[test]
    fn counts_that_do_not_fit_are_as_large_as_fits() {
        let event = Event::VmscanLruIsolate {
            classzone: 1,
            order: Order::ZERO,
            requested: u32::MAX,
            scanned: u32::MAX,
            skipped: 0,
            taken: 5000,
            lru: Lru::InactiveAnon,
        };
        let unpacked = Packed::new(CpuId(1), &event).unpack();
        let Some((CpuId(1), Event::VmscanLruIsolate { requested, scanned, skipped, taken, .. })) =
            unpacked
        else {
            panic!("{unpacked:?}")
        };
        assert_eq!((requested, scanned, skipped, taken), (1023, (1 << 26) - 1, 0, 1023));
    }
}

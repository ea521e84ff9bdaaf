//! Static probes for tracers in user space: [`Usdt`] is a trace policy whose events perf, bpftrace,
//! `SystemTap` and gdb find in the binary, under Linux's names.
//!
//! Each probe is a `nop` and an ELF note (`readelf -n`, provider `zonal`). No tool attached: a
//! probe costs a load of its semaphore and a branch not taken; the arguments are not computed.
//!
//! | probe | arguments |
//! |---|---|
//! | `mm_page_alloc` | pfn, order, migratetype, `gfp_flags` (the bits of Linux 4.16: [`Gfp`]) |
//! | `mm_page_free` | pfn, order |
//! | `mm_page_free_batched` | pfn |
//! | `mm_page_alloc_zone_locked` | pfn, order, migratetype, `percpu_refill` |
//! | `mm_page_alloc_extfrag` | pfn, `alloc_order`, `fallback_order`, `pageblock_order`, `alloc_migratetype`, `fallback_migratetype`, `change_ownership` |
//! | `mm_lru_insertion` | pfn, lru, flags |
//! | `mm_lru_activate` | pfn |
//! | `mm_vmscan_lru_isolate` | classzone, order, `nr_requested`, `nr_scanned`, `nr_skipped`, `nr_taken`, lru |
//! | `mm_vmscan_lru_shrink_inactive` | nid, `nr_scanned`, `nr_reclaimed`, `nr_dirty`, `nr_writeback`, `nr_activate`, `nr_ref_keep`, priority, flags |
//! | `mm_vmscan_lru_shrink_active` | nid, `nr_taken`, `nr_active`, `nr_deactivated`, `nr_referenced`, priority, flags |
//!
//! With perf, as root:
//!
//! ```text
//! perf buildid-cache --add ./program
//! perf list sdt                                # sdt_zonal:mm_page_alloc ...
//! perf probe sdt_zonal:mm_page_alloc
//! perf record -e 'sdt_zonal:*' ./program
//! ```
//!
//! So tried with perf 6.1 on Linux 6.18, and the events came with their arguments, from a binary
//! linked by GNU ld (`RUSTFLAGS=-Clinker-features=-lld`). lld, rustc's default on x86-64, lays
//! code out at other addresses than offsets in the file; that perf lists its probes, but puts its
//! breakpoints in the wrong places, and the traced process dies.
//!
//! bpftrace, not tried: `bpftrace -e 'usdt:./program:zonal:mm_page_alloc { @[arg1] = count(); }'`.
//!
//! ```
//! use zonal::Request;
//! use zonal::preset::{Traced, Zonal};
//! use zonal_host::{Arena, Usdt};
//! let arena = Arena::builder().preset::<Traced<Zonal, Usdt>>().bytes(16 << 20).open()?;
//! let page = arena.alloc(&Request::frame())?;
//! # drop(page);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`Gfp`]: zonal::policy::trace::Gfp

use probe::probe_lazy;
use zonal::policy::trace::{Event, Point, Trace};

/// Events are probes: see the [module](self).
#[derive(Clone, Copy, Debug)]
pub struct Usdt;

/// The most arguments of a probe.
const MOST: usize = 9;

/// Tells one probe's event: the first argument computes all, if anyone listens.
macro_rules! tell {
    ($name:ident, $event:ident, [$($more:literal)*]) => {{
        let all: [u64; MOST];
        probe_lazy!(
            zonal,
            $name,
            {
                all = arguments($event);
                all[0]
            }
            $(, all[$more])*
        );
    }};
}

impl Trace for Usdt {
    /// Who listens is known at each probe only.
    #[inline(always)]
    fn is_on(_: Point) -> bool {
        true
    }

    // Inlined, so that no copy of the probes is left whose code the linker throws away: their
    // notes would stay, and name places that are not code.
    #[inline(always)]
    fn record(event: &Event) {
        Self::emit(event.point(), || *event);
    }

    #[inline(always)]
    fn emit(point: Point, event: impl FnOnce() -> Event) {
        match point {
            Point::Alloc => tell!(mm_page_alloc, event, [1 2 3]),
            Point::Free => tell!(mm_page_free, event, [1]),
            Point::FreeBatched => tell!(mm_page_free_batched, event, []),
            Point::AllocZoneLocked => tell!(mm_page_alloc_zone_locked, event, [1 2 3]),
            Point::AllocExtfrag => tell!(mm_page_alloc_extfrag, event, [1 2 3 4 5 6]),
            Point::LruInsertion => tell!(mm_lru_insertion, event, [1 2]),
            Point::LruActivate => tell!(mm_lru_activate, event, []),
            Point::VmscanLruIsolate => tell!(mm_vmscan_lru_isolate, event, [1 2 3 4 5 6]),
            Point::VmscanLruShrinkInactive => {
                tell!(mm_vmscan_lru_shrink_inactive, event, [1 2 3 4 5 6 7 8]);
            }
            Point::VmscanLruShrinkActive => {
                tell!(mm_vmscan_lru_shrink_active, event, [1 2 3 4 5 6]);
            }
            // A kind of event that this version has no probe for.
            _ => {}
        }
    }
}

/// The arguments of an event about lists, and whether it is one.
fn about_lists(event: &Event, all: &mut [u64; MOST]) -> bool {
    let counts: &[u64] = match *event {
        Event::VmscanLruIsolate { classzone, order, requested, scanned, skipped, taken, lru } => &[
            classzone.into(),
            order.get().into(),
            requested.into(),
            scanned.into(),
            skipped.into(),
            taken.into(),
            lru as u64,
        ],
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
        } => &[
            node.0.into(),
            scanned.into(),
            reclaimed.into(),
            dirty.into(),
            writeback.into(),
            activate.into(),
            ref_keep.into(),
            priority.into(),
            flags.0.into(),
        ],
        Event::VmscanLruShrinkActive {
            node,
            taken,
            active,
            deactivated,
            referenced,
            priority,
            flags,
        } => &[
            node.0.into(),
            taken.into(),
            active.into(),
            deactivated.into(),
            referenced.into(),
            priority.into(),
            flags.0.into(),
        ],
        _ => return false,
    };
    all[..counts.len()].copy_from_slice(counts);
    true
}

/// The arguments in the order of the table. Out of line: the path on which no tool listens is kept
/// short.
#[cold]
#[inline(never)]
fn arguments(event: impl FnOnce() -> Event) -> [u64; MOST] {
    let event = event();
    let mut all = [0; MOST];
    if about_lists(&event, &mut all) {
        return all;
    }
    all[0] = event.pfn().get();
    let rest: &[u64] = match event {
        Event::Alloc { order, migrate, gfp, .. } => {
            &[order.get().into(), migrate as u64, gfp.bits().into()]
        }
        Event::Free { order, .. } => &[order.get().into()],
        Event::AllocZoneLocked { order, migrate, percpu_refill, .. } => {
            &[order.get().into(), migrate as u64, percpu_refill.into()]
        }
        Event::AllocExtfrag {
            alloc_order,
            fallback_order,
            alloc_migrate,
            fallback_migrate,
            change_ownership,
            pageblock_order,
            ..
        } => &[
            alloc_order.get().into(),
            fallback_order.get().into(),
            pageblock_order.get().into(),
            alloc_migrate as u64,
            fallback_migrate as u64,
            change_ownership.into(),
        ],
        Event::LruInsertion { lru, flags, .. } => &[lru as u64, flags.0.into()],
        _ => &[],
    };
    all[1..=rest.len()].copy_from_slice(rest);
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use zonal::policy::trace::{Gfp, Lru, ReclaimFlags};
    use zonal::{MigrateType, NodeId, Order, Pfn, Request};

    #[test]
    fn arguments_stand_in_the_order_of_the_table() {
        let (pfn, order) = (Pfn::new(77), Order::HUGE);
        let gfp = Gfp::of(&Request::new(order).zero());
        let alloc = Event::Alloc { pfn, order, migrate: MigrateType::Reclaimable, gfp };
        assert_eq!(arguments(|| alloc)[..4], [77, 9, 2, u64::from(gfp.bits())]);
        let extfrag = Event::AllocExtfrag {
            pfn,
            alloc_order: Order::ZERO,
            fallback_order: order,
            alloc_migrate: MigrateType::Unmovable,
            fallback_migrate: MigrateType::Movable,
            change_ownership: true,
            pageblock_order: Order::MAX,
        };
        assert_eq!(arguments(|| extfrag), [77, 0, 9, 10, 0, 1, 1, 0, 0]);
        assert_eq!(arguments(|| Event::LruActivate { pfn }), [77, 0, 0, 0, 0, 0, 0, 0, 0]);
        let shrink = Event::VmscanLruShrinkInactive {
            node: NodeId(1),
            scanned: 2,
            reclaimed: 3,
            dirty: 4,
            writeback: 5,
            activate: 6,
            ref_keep: 7,
            priority: 8,
            flags: ReclaimFlags(9),
        };
        assert_eq!(arguments(|| shrink), [1, 2, 3, 4, 5, 6, 7, 8, 9]);
        let active = Event::VmscanLruShrinkActive {
            node: NodeId(1),
            taken: 2,
            active: 3,
            deactivated: 4,
            referenced: 5,
            priority: 6,
            flags: ReclaimFlags(7),
        };
        assert_eq!(arguments(|| active)[..8], [1, 2, 3, 4, 5, 6, 7, 0]);
        let isolate = Event::VmscanLruIsolate {
            classzone: 1,
            order: Order::ZERO,
            requested: 2,
            scanned: 3,
            skipped: 4,
            taken: 5,
            lru: Lru::ActiveFile,
        };
        assert_eq!(arguments(|| isolate)[..7], [1, 0, 2, 3, 4, 5, 3]);
    }

    #[test]
    fn without_a_listener_nothing_is_computed() {
        for point in Point::ALL {
            Usdt::emit(point, || unreachable!("never computed"));
        }
    }
}

//! Events as Linux prints them.
//!
//! There is no `struct page` here: `page=` has the address that x86-64 Linux would keep it at, so
//! that it is never null for a frame.
//!
//! ```
//! use zonal::policy::trace::{Event, Gfp};
//! use zonal::{MigrateType, Order, Pfn, Request};
//! use zonal_trace::text::Text;
//! let request = Request::frame().migrate(MigrateType::Movable).zero();
//! let event = Event::Alloc {
//!     pfn: Pfn::new(0x1234),
//!     order: Order::ZERO,
//!     migrate: MigrateType::Movable,
//!     gfp: Gfp::of(&request),
//! };
//! assert_eq!(event.name(), "mm_page_alloc");
//! assert_eq!(
//!     format!("{}", Text(event)),
//!     "page=ffffea0000048d00 pfn=0x1234 order=0 migratetype=1 \
//!      gfp_flags=GFP_KERNEL|__GFP_ZERO|__GFP_MOVABLE"
//! );
//! ```

use core::fmt;
use zonal::policy::trace::{Event, Lru, PageFlags, ReclaimFlags};

/// Displays an [`Event`] as the text that Linux prints after its name, and a
/// [`Gfp`](zonal::policy::trace::Gfp) mask or [`PageFlags`] as it stands in there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Text<T>(pub T);

impl fmt::Display for Text<PageFlags> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flags = [
            (PageFlags::MAPPED, "M", " "),
            (PageFlags::ANONYMOUS, "a", "f"),
            (PageFlags::SWAP_CACHE, "s", " "),
            (PageFlags::SWAP_BACKED, "b", " "),
            (PageFlags::MAPPED_DISK, "d", " "),
            (PageFlags::BUFFERS, "B", " "),
        ];
        flags.into_iter().try_for_each(|(bit, set, clear)| {
            f.write_str(if self.0.0 & bit != 0 { set } else { clear })
        })
    }
}

const fn name(lru: Lru) -> &'static str {
    match lru {
        Lru::InactiveAnon => "inactive_anon",
        Lru::ActiveAnon => "active_anon",
        Lru::InactiveFile => "inactive_file",
        Lru::ActiveFile => "active_file",
        Lru::Unevictable => "unevictable",
    }
}

impl fmt::Display for Text<ReclaimFlags> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = [
            (ReclaimFlags::ANON, "RECLAIM_WB_ANON"),
            (ReclaimFlags::FILE, "RECLAIM_WB_FILE"),
            (ReclaimFlags::MIXED, "RECLAIM_WB_MIXED"),
            (ReclaimFlags::SYNC, "RECLAIM_WB_SYNC"),
            (ReclaimFlags::ASYNC, "RECLAIM_WB_ASYNC"),
        ];
        let mut between = "";
        for (_, name) in names.iter().filter(|(bit, _)| self.0.0 & bit != 0) {
            write!(f, "{between}{name}")?;
            between = "|";
        }
        if between.is_empty() { f.write_str("RECLAIM_WB_NONE") } else { Ok(()) }
    }
}

/// The text of an event about lists, and whether it is one.
fn about_lists(event: Event, f: &mut fmt::Formatter<'_>) -> Result<bool, fmt::Error> {
    match event {
        Event::VmscanLruIsolate { classzone, order, requested, scanned, skipped, taken, lru } => {
            write!(f, "isolate_mode=0 classzone={classzone} order={order}")?;
            write!(f, " nr_requested={requested} nr_scanned={scanned} nr_skipped={skipped}")?;
            write!(f, " nr_taken={taken} lru={}", name(lru))?;
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
            write!(f, "nid={} nr_scanned={scanned} nr_reclaimed={reclaimed}", node.0)?;
            write!(f, " nr_dirty={dirty} nr_writeback={writeback} nr_congested=0 nr_immediate=0")?;
            write!(f, " nr_activate={activate} nr_ref_keep={ref_keep} nr_unmap_fail=0")?;
            write!(f, " priority={priority} flags={}", Text(flags))?;
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
            write!(f, "nid={} nr_taken={taken} nr_active={active}", node.0)?;
            write!(f, " nr_deactivated={deactivated} nr_referenced={referenced}")?;
            write!(f, " priority={priority} flags={}", Text(flags))?;
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// Where x86-64 Linux (four levels, without randomisation) has the `struct page` of frame 0, and
/// how long one is.
const VMEMMAP: u64 = 0xffff_ea00_0000_0000;
const PAGE: u64 = 64;

impl fmt::Display for Text<Event> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if about_lists(self.0, f)? {
            return Ok(());
        }
        let pfn = self.0.pfn().get();
        write!(f, "page={:016x} pfn={pfn:#x}", VMEMMAP.wrapping_add(pfn.wrapping_mul(PAGE)))?;
        match self.0 {
            Event::Alloc { order, migrate, gfp, .. } => {
                write!(f, " order={order} migratetype={} gfp_flags={}", migrate.index(), Text(gfp))
            }
            Event::Free { order, .. } => write!(f, " order={order}"),
            Event::FreeBatched { .. } => f.write_str(" order=0"),
            Event::AllocZoneLocked { order, migrate, percpu_refill, .. } => {
                let (migrate, refill) = (migrate.index(), u8::from(percpu_refill));
                write!(f, " order={order} migratetype={migrate} percpu_refill={refill}")
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
                let (to, from) = (alloc_migrate.index(), fallback_migrate.index());
                let fragmenting = u8::from(fallback_order < pageblock_order);
                let owner = u8::from(change_ownership);
                write!(f, " alloc_order={alloc_order} fallback_order={fallback_order}")?;
                write!(f, " pageblock_order={pageblock_order} alloc_migratetype={to}")?;
                write!(f, " fallback_migratetype={from} fragmenting={fragmenting}")?;
                write!(f, " change_ownership={owner}")
            }
            Event::LruInsertion { lru, flags, .. } => {
                write!(f, " lru={} flags={}", lru as u8, Text(flags))
            }
            Event::LruActivate { .. } => Ok(()),
            // A kind that is newer than this crate: its frame.
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use std::string::ToString;
    use zonal::{MigrateType, NodeId, Order, Pfn};

    #[test]
    fn every_kind_reads_as_in_linux() {
        let (pfn, order) = (Pfn::new(1), Order::HUGE);
        let locked = |percpu_refill| {
            let migrate = MigrateType::Movable;
            Event::AllocZoneLocked { pfn, order, migrate, percpu_refill }
        };
        let extfrag = |fallback_order, change_ownership| Event::AllocExtfrag {
            pfn,
            alloc_order: Order::ZERO,
            fallback_order,
            alloc_migrate: MigrateType::Unmovable,
            fallback_migrate: MigrateType::Movable,
            change_ownership,
            pageblock_order: Order::HUGE,
        };
        let flags = PageFlags(PageFlags::MAPPED | PageFlags::FILE | PageFlags::BUFFERS);
        let texts = [
            (Event::Free { pfn, order }, " order=9"),
            (Event::FreeBatched { pfn }, " order=0"),
            (locked(true), " order=9 migratetype=1 percpu_refill=1"),
            (locked(false), " order=9 migratetype=1 percpu_refill=0"),
            (
                extfrag(Order::HUGE, true),
                " alloc_order=0 fallback_order=9 pageblock_order=9 alloc_migratetype=0 \
                 fallback_migratetype=1 fragmenting=0 change_ownership=1",
            ),
            (
                extfrag(Order::ZERO, false),
                " alloc_order=0 fallback_order=0 pageblock_order=9 alloc_migratetype=0 \
                 fallback_migratetype=1 fragmenting=1 change_ownership=0",
            ),
            (Event::LruInsertion { pfn, lru: Lru::ActiveFile, flags }, " lru=3 flags=Mf   B"),
            (Event::LruActivate { pfn }, ""),
        ];
        for (event, text) in texts {
            let whole = std::format!("page=ffffea0000000040 pfn=0x1{text}");
            assert_eq!(Text(event).to_string(), whole, "{event:?}");
        }
    }

    #[test]
    fn events_about_lists_read_as_in_linux() {
        let isolate = Event::VmscanLruIsolate {
            classzone: 2,
            order: Order::ZERO,
            requested: 32,
            scanned: 40,
            skipped: 1,
            taken: 32,
            lru: Lru::InactiveFile,
        };
        assert_eq!(
            Text(isolate).to_string(),
            "isolate_mode=0 classzone=2 order=0 nr_requested=32 nr_scanned=40 nr_skipped=1 \
             nr_taken=32 lru=inactive_file"
        );
        let shrink = |flags| Event::VmscanLruShrinkInactive {
            node: NodeId(1),
            scanned: 40,
            reclaimed: 30,
            dirty: 4,
            writeback: 3,
            activate: 2,
            ref_keep: 1,
            priority: 12,
            flags: ReclaimFlags(flags),
        };
        let text = "nid=1 nr_scanned=40 nr_reclaimed=30 nr_dirty=4 nr_writeback=3 nr_congested=0 \
                    nr_immediate=0 nr_activate=2 nr_ref_keep=1 nr_unmap_fail=0 priority=12 flags=";
        let all = [
            (ReclaimFlags::FILE | ReclaimFlags::ASYNC, "RECLAIM_WB_FILE|RECLAIM_WB_ASYNC"),
            (ReclaimFlags::ANON | ReclaimFlags::SYNC, "RECLAIM_WB_ANON|RECLAIM_WB_SYNC"),
            (0, "RECLAIM_WB_NONE"),
        ];
        for (flags, name) in all {
            assert_eq!(Text(shrink(flags)).to_string(), std::format!("{text}{name}"));
        }
        let active = Event::VmscanLruShrinkActive {
            node: NodeId(1),
            taken: 32,
            active: 4,
            deactivated: 28,
            referenced: 5,
            priority: 12,
            flags: ReclaimFlags(ReclaimFlags::FILE),
        };
        assert_eq!(
            Text(active).to_string(),
            "nid=1 nr_taken=32 nr_active=4 nr_deactivated=28 nr_referenced=5 priority=12 \
             flags=RECLAIM_WB_FILE"
        );
    }
}

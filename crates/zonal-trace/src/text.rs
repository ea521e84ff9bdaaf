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
use zonal::policy::trace::{Event, PageFlags};

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

/// Where x86-64 Linux (four levels, without randomisation) has the `struct page` of frame 0, and
/// how long one is.
const VMEMMAP: u64 = 0xffff_ea00_0000_0000;
const PAGE: u64 = 64;

impl fmt::Display for Text<Event> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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
    use zonal::policy::trace::Lru;
    use zonal::{MigrateType, Order, Pfn};

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
}

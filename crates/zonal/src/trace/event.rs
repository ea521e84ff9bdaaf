//! The events, with Linux's names and arguments.

use super::Gfp;
use crate::types::migrate_type::MigrateType;
use crate::types::request::Request;
use crate::types::units::{NodeId, Order, Pfn};
use core::fmt;

/// A kind of event: a tracepoint.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
#[non_exhaustive]
pub enum Point {
    /// `mm_page_alloc`
    Alloc = 0,
    /// `mm_page_free`
    Free = 1,
    /// `mm_page_free_batched`
    FreeBatched = 2,
    /// `mm_page_alloc_zone_locked`
    AllocZoneLocked = 3,
    /// `mm_page_alloc_extfrag`
    AllocExtfrag = 4,
    /// `mm_lru_insertion`
    LruInsertion = 5,
    /// `mm_lru_activate`
    LruActivate = 6,
    /// `mm_vmscan_lru_isolate`
    VmscanLruIsolate = 7,
    /// `mm_vmscan_lru_shrink_inactive`
    VmscanLruShrinkInactive = 8,
    /// `mm_vmscan_lru_shrink_active`
    VmscanLruShrinkActive = 9,
}

impl Point {
    /// All of them, by number.
    pub const ALL: [Self; 10] = [
        Self::Alloc,
        Self::Free,
        Self::FreeBatched,
        Self::AllocZoneLocked,
        Self::AllocExtfrag,
        Self::LruInsertion,
        Self::LruActivate,
        Self::VmscanLruIsolate,
        Self::VmscanLruShrinkInactive,
        Self::VmscanLruShrinkActive,
    ];

    /// Index into tables by kind; the bit in a mask of kinds.
    #[must_use]
    #[inline]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Linux's name for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Alloc => "mm_page_alloc",
            Self::Free => "mm_page_free",
            Self::FreeBatched => "mm_page_free_batched",
            Self::AllocZoneLocked => "mm_page_alloc_zone_locked",
            Self::AllocExtfrag => "mm_page_alloc_extfrag",
            Self::LruInsertion => "mm_lru_insertion",
            Self::LruActivate => "mm_lru_activate",
            Self::VmscanLruIsolate => "mm_vmscan_lru_isolate",
            Self::VmscanLruShrinkInactive => "mm_vmscan_lru_shrink_inactive",
            Self::VmscanLruShrinkActive => "mm_vmscan_lru_shrink_active",
        }
    }

    /// The kind with that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|point| point.name() == name)
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// An LRU list, with Linux's numbers. For hosts that keep such lists.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Lru {
    /// Anonymous pages not used lately.
    InactiveAnon = 0,
    /// Anonymous pages in use.
    ActiveAnon = 1,
    /// Page cache not used lately.
    InactiveFile = 2,
    /// Page cache in use.
    ActiveFile = 3,
    /// Pages that cannot be reclaimed.
    Unevictable = 4,
}

impl Lru {
    /// All of them, by number.
    pub const ALL: [Self; 5] = [
        Self::InactiveAnon,
        Self::ActiveAnon,
        Self::InactiveFile,
        Self::ActiveFile,
        Self::Unevictable,
    ];

    /// The list with this number; `None` for a number that is none.
    #[must_use]
    pub const fn from_number(n: u8) -> Option<Self> {
        if (n as usize) < Self::ALL.len() { Some(Self::ALL[n as usize]) } else { None }
    }
}

/// What a host says of a page that goes on an LRU list: bits of the tracepoint's `flags`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(transparent)]
pub struct PageFlags(pub u8);

impl PageFlags {
    /// Mapped by a process (`M`).
    pub const MAPPED: u8 = 0x01;
    /// Anonymous (`a`).
    pub const ANONYMOUS: u8 = 0x02;
    /// Page cache (`f`, printed for whatever is not anonymous).
    pub const FILE: u8 = 0x04;
    /// In the swap cache (`s`).
    pub const SWAP_CACHE: u8 = 0x08;
    /// Swap is behind it (`b`).
    pub const SWAP_BACKED: u8 = 0x10;
    /// Has blocks on disk (`d`).
    pub const MAPPED_DISK: u8 = 0x20;
    /// Has buffers (`B`).
    pub const BUFFERS: u8 = 0x40;
}

/// How a host reclaims: bits of the tracepoint's `flags`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(transparent)]
pub struct ReclaimFlags(pub u8);

impl ReclaimFlags {
    /// Anonymous pages (`RECLAIM_WB_ANON`).
    pub const ANON: u8 = 0x01;
    /// Pages of files (`RECLAIM_WB_FILE`).
    pub const FILE: u8 = 0x02;
    /// It waits for pages that are written (`RECLAIM_WB_SYNC`).
    pub const SYNC: u8 = 0x04;
    /// It does not (`RECLAIM_WB_ASYNC`).
    pub const ASYNC: u8 = 0x08;
    /// Both kinds of pages (`RECLAIM_WB_MIXED`).
    pub const MIXED: u8 = 0x10;
}

/// Something that happened, with Linux's name and arguments for it.
///
/// The crate `zonal-trace` has the text that Linux prints for it.
///
/// ```
/// use zonal::policy::trace::{Event, Point};
/// use zonal::{Order, Pfn};
/// let event = Event::Free { pfn: Pfn::new(0x1234), order: Order::HUGE };
/// assert_eq!((event.point(), event.name()), (Point::Free, "mm_page_free"));
/// assert_eq!(event.pfn(), Pfn::new(0x1234));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Event {
    /// `mm_page_alloc`: a block was handed out.
    Alloc {
        /// Its first frame.
        pfn: Pfn,
        /// Its order.
        order: Order,
        /// What it was asked for.
        migrate: MigrateType,
        /// The request.
        gfp: Gfp,
    },
    /// `mm_page_free`: a block was given back.
    Free {
        /// Its first frame.
        pfn: Pfn,
        /// Its order.
        order: Order,
    },
    /// `mm_page_free_batched`: a single frame was given back as one of a list; comes with its
    /// [`Free`](Self::Free).
    FreeBatched {
        /// The frame.
        pfn: Pfn,
    },
    /// `mm_page_alloc_zone_locked`: a block was taken off the buddy lists, under the zone lock.
    AllocZoneLocked {
        /// Its first frame.
        pfn: Pfn,
        /// Its order.
        order: Order,
        /// What it was taken for.
        migrate: MigrateType,
        /// Whether for a CPU's cache, or else for the request itself.
        percpu_refill: bool,
    },
    /// `mm_page_alloc_extfrag`: memory of another migrate type was taken.
    AllocExtfrag {
        /// First frame of the free block that was found.
        pfn: Pfn,
        /// The order that is wanted.
        alloc_order: Order,
        /// The order of the block that was found.
        fallback_order: Order,
        /// The migrate type that is wanted.
        alloc_migrate: MigrateType,
        /// The migrate type of the block that was found.
        fallback_migrate: MigrateType,
        /// Whether its pageblock is of the wanted type from now on.
        change_ownership: bool,
        /// The order of a pageblock.
        pageblock_order: Order,
    },
    /// `mm_lru_insertion`: the host put a page on an LRU list.
    LruInsertion {
        /// Its first frame.
        pfn: Pfn,
        /// The list.
        lru: Lru,
        /// What kind of page.
        flags: PageFlags,
    },
    /// `mm_lru_activate`: the host moved a page to an active list.
    LruActivate {
        /// Its first frame.
        pfn: Pfn,
    },
    /// `mm_vmscan_lru_isolate`: the host looked at pages of a list, to reclaim some.
    VmscanLruIsolate {
        /// The highest zone, by its number, whose pages are wanted.
        classzone: u8,
        /// The order of the request that they are for.
        order: Order,
        /// How many it would take.
        requested: u32,
        /// How many it looked at.
        scanned: u32,
        /// How many of these were passed over because of their zone.
        skipped: u32,
        /// How many it took.
        taken: u32,
        /// The list.
        lru: Lru,
    },
    /// `mm_vmscan_lru_shrink_inactive`: what became of them. What Linux counts beyond this (congested, immediate, not
    /// unmapped) is 0 in its text.
    VmscanLruShrinkInactive {
        /// The node.
        node: NodeId,
        /// How many were looked at.
        scanned: u32,
        /// How many are free.
        reclaimed: u32,
        /// How many have to be written first.
        dirty: u32,
        /// How many are on their way.
        writeback: u32,
        /// How many went to the active list.
        activate: u32,
        /// How many stay because they were used.
        ref_keep: u32,
        /// How hard it tries, from 12 (first) to 0.
        priority: u8,
        /// Which pages, and how.
        flags: ReclaimFlags,
    },
    /// `mm_vmscan_lru_shrink_active`: what became of the oldest pages of an active list.
    VmscanLruShrinkActive {
        /// The node.
        node: NodeId,
        /// How many were looked at.
        taken: u32,
        /// How many stay active.
        active: u32,
        /// How many went to the inactive list.
        deactivated: u32,
        /// How many had been used since.
        referenced: u32,
        /// How hard it tries, from 12 (first) to 0.
        priority: u8,
        /// Which pages, and how.
        flags: ReclaimFlags,
    },
}

impl Event {
    /// A block was handed out for `request`.
    #[must_use]
    pub const fn alloc(pfn: Pfn, request: &Request) -> Self {
        let (order, migrate) = (request.order(), request.migrate_type());
        Self::Alloc { pfn, order, migrate, gfp: Gfp::of(request) }
    }

    /// What kind it is.
    #[must_use]
    pub const fn point(&self) -> Point {
        match self {
            Self::Alloc { .. } => Point::Alloc,
            Self::Free { .. } => Point::Free,
            Self::FreeBatched { .. } => Point::FreeBatched,
            Self::AllocZoneLocked { .. } => Point::AllocZoneLocked,
            Self::AllocExtfrag { .. } => Point::AllocExtfrag,
            Self::LruInsertion { .. } => Point::LruInsertion,
            Self::LruActivate { .. } => Point::LruActivate,
            Self::VmscanLruIsolate { .. } => Point::VmscanLruIsolate,
            Self::VmscanLruShrinkInactive { .. } => Point::VmscanLruShrinkInactive,
            Self::VmscanLruShrinkActive { .. } => Point::VmscanLruShrinkActive,
        }
    }

    /// Linux's name for it.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.point().name()
    }

    /// The frame it is about; frame 0 for an event about lists.
    #[must_use]
    pub const fn pfn(&self) -> Pfn {
        match *self {
            Self::Alloc { pfn, .. }
            | Self::Free { pfn, .. }
            | Self::FreeBatched { pfn }
            | Self::AllocZoneLocked { pfn, .. }
            | Self::AllocExtfrag { pfn, .. }
            | Self::LruInsertion { pfn, .. }
            | Self::LruActivate { pfn } => pfn,
            Self::VmscanLruIsolate { .. }
            | Self::VmscanLruShrinkInactive { .. }
            | Self::VmscanLruShrinkActive { .. } => Pfn::new(0),
        }
    }
}

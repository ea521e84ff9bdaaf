//! What is recorded of the lists, by the tracepoints of Linux: a page was put on a list, moved to the active one,
//! pages were looked at to be reclaimed, and what became of them. With frames whose trace policy is off nothing is left
//! of it.

use crate::evict::Evict;
use crate::frames::Frames;
use crate::held::Held;
use crate::inner::{Core, Setup};
use crate::table::{Kind, SlotId};
use zonal::policy::trace::{Event, Lru, PageFlags, Point, ReclaimFlags, Trace};
use zonal::{NodeId, Order, ZoneType};

/// The sink of a cache.
type Sink<S> = <<S as Setup>::Frames as Frames>::Trace;

/// How hard reclaim tries: there is one way (`DEF_PRIORITY`).
const PRIORITY: u8 = 12;

/// What a scan of a list met.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Tally {
    pub(crate) scanned: u32,
    /// Of another zone than the one that is short.
    pub(crate) skipped: u32,
    pub(crate) taken: u32,
    pub(crate) dirty: u32,
    pub(crate) moving: u32,
    pub(crate) activated: u32,
    /// Active ones that stay so for their use, and that do not.
    pub(crate) stays_active: u32,
    pub(crate) deactivated: u32,
    /// One of them.
    pub(crate) some: Option<SlotId>,
}

impl<S: Setup> Core<S> {
    /// A page is on a list from now on, which its policy knows by the first slot of its piece.
    pub(crate) fn tell_insertion<E: Evict>(
        &self,
        held: &Held<E>,
        kind: Kind,
        id: SlotId,
        first: SlotId,
    ) {
        Sink::<S>::emit(Point::LruInsertion, || {
            let flags = match kind {
                Kind::File => PageFlags::FILE,
                Kind::Anon | Kind::Kept => PageFlags::ANONYMOUS | PageFlags::SWAP_BACKED,
            };
            let (pfn, lru) = (self.table.frame_in(id), held.name(kind, first));
            Event::LruInsertion { pfn, lru, flags: PageFlags(flags) }
        });
    }

    /// A page is active from now on. Of a block each is told of, as where it was listed.
    pub(crate) fn tell_activation(&self, id: SlotId) {
        Sink::<S>::emit(Point::LruActivate, || {
            let pfn = self.table.frame_in(id);
            Event::LruActivate { pfn }
        });
    }

    /// Pages of a kind were looked at in one hold, for `requested`.
    pub(crate) fn tell_scan(&self, kind: Kind, requested: usize, tally: &Tally) {
        let is_file = kind == Kind::File;
        let pages = if is_file { ReclaimFlags::FILE } else { ReclaimFlags::ANON };
        let node = || {
            let node = tally.some.map(|id| self.frames.zone_of(self.table.frame_in(id)).1);
            NodeId(node.unwrap_or(0) as u8)
        };
        let taken = tally.stays_active + tally.deactivated;
        if taken > 0 {
            Sink::<S>::emit(Point::VmscanLruShrinkActive, || Event::VmscanLruShrinkActive {
                node: node(),
                taken,
                active: tally.stays_active,
                deactivated: tally.deactivated,
                // Who was used stays, whatever it is; Linux keeps programs only.
                referenced: tally.stays_active,
                priority: PRIORITY,
                flags: ReclaimFlags(pages),
            });
        }
        if tally.scanned == 0 {
            return;
        }
        Sink::<S>::emit(Point::VmscanLruIsolate, || Event::VmscanLruIsolate {
            classzone: ZoneType::Movable as u8,
            order: Order::ZERO,
            requested: u32::try_from(requested).unwrap_or(u32::MAX),
            scanned: tally.scanned,
            skipped: tally.skipped,
            taken: tally.taken,
            lru: if is_file { Lru::InactiveFile } else { Lru::InactiveAnon },
        });
        Sink::<S>::emit(Point::VmscanLruShrinkInactive, || Event::VmscanLruShrinkInactive {
            node: node(),
            scanned: tally.scanned,
            reclaimed: tally.taken,
            dirty: tally.dirty,
            writeback: tally.moving,
            activate: tally.activated,
            ref_keep: 0,
            priority: PRIORITY,
            flags: ReclaimFlags(pages | ReclaimFlags::ASYNC),
        });
    }
}

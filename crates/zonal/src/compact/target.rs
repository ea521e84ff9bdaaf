//! The free scanner: finds free blocks to move pages to, from the end of the zone down.

use super::Count;
use super::Task;
use crate::alloc::allocator::Allocator;
use crate::alloc::host::Host;
use crate::frame::{FrameKind, PageblockWord};
use crate::platform::Platform;
use crate::policy::zone::Zone;
use crate::policy::{Compact, FreeMemory, Policy};
use crate::types::units::{Order, ZoneId};
use crate::zone::ZoneView;
use core::ops::Range;

/// The most pageblocks that are compared.
const MOST: usize = 64;

/// What came of the search for a target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Found {
    /// A block was free with at least the order a moment ago.
    At(u32),
    /// The pageblocks in hand have no block that large.
    TooSmall,
    /// The scanner came to its end.
    Nothing,
}

/// The free scanner's position, and the pageblocks in hand, best first.
pub(super) struct Targets {
    /// Pageblocks from here on were looked at.
    pub(super) below: u32,
    /// (start, rank), by ranks and then by falling starts.
    group: [(u32, u32); MOST],
    len: usize,
    /// The first of the group that may have something.
    first: usize,
    /// Where to look for single frames in that.
    cursor: u32,
}

impl Targets {
    pub(super) const fn new(below: u32) -> Self {
        Self { below, group: [(0, 0); MOST], len: 0, first: 0, cursor: 0 }
    }

    /// Looks for a free block of `order` at least and smaller than the task's, outside of
    /// `except`, from `floor` on.
    pub(super) fn find<P: Host, S: Policy>(
        &mut self,
        allocator: &Allocator<'_, P, S>,
        zone: &Zone<P, S>,
        task: &Task<'_>,
        order: Order,
        except: &Range<u32>,
        floor: u32,
    ) -> Found {
        loop {
            for at in self.first..self.len {
                let (start, _) = self.group[at];
                let single = order == Order::ZERO && at == self.first;
                let from = if single { self.cursor.max(start) } else { start };
                let view = allocator.view(zone);
                let (found, looked) = match is_target::<S>(view.table.pageblock(start), zone.id) {
                    true => look(view, from, start, task.order, order, except),
                    false => (None, 0),
                };
                zone.compaction.count(Count::FreeScanned, u64::from(looked));
                task.effort.looked(looked);
                if let Some(index) = found {
                    if single {
                        self.cursor = index;
                    }
                    return Found::At(index);
                }
                if single {
                    // Not even a single frame is left in it.
                    self.first = at + 1;
                    self.cursor = 0;
                }
            }
            let in_hand = self.first < self.len;
            if in_hand {
                return Found::TooSmall;
            }
            if !self.refill(allocator, zone, task, floor) {
                return Found::Nothing;
            }
        }
    }

    /// From where the next compaction should look down: the pageblocks of `size` frames in hand
    /// included, as far as they may have something.
    pub(super) fn position(&self, size: u32) -> u32 {
        let in_hand = self.group[self.first..self.len].iter().map(|&(start, _)| start + size);
        in_hand.max().map_or(self.below, |end| end.max(self.below))
    }

    /// The frame that was found could not be taken or stayed unused: single frames are looked
    /// for behind it.
    pub(super) fn pass(&mut self, index: u32) {
        if self.cursor == index {
            self.cursor += 1;
        }
    }

    /// Takes the next pageblocks in hand.
    fn refill<P: Host, S: Policy>(
        &mut self,
        allocator: &Allocator<'_, P, S>,
        zone: &Zone<P, S>,
        task: &Task<'_>,
        floor: u32,
    ) -> bool {
        let table = &allocator.table;
        let size = table.pageblock_order().size();
        (self.len, self.first, self.cursor) = (0, 0, 0);
        let most = MOST.min(S::Compact::GROUP as usize);
        let mut looked = 0;
        while self.len < most && self.below >= floor + size && !task.effort.is_blind(task.mode) {
            self.below -= size;
            let start = self.below;
            if !is_target::<S>(table.pageblock(start), zone.id) {
                continue;
            }
            let free = usable(allocator.view(zone), start, task.order);
            looked += u64::from(size);
            task.effort.looked(size);
            if free > 0 {
                let spoilt = !table.pageblock(start).migrate().is_for_movable();
                self.insert(start, S::Compact::rank(free, spoilt));
            }
        }
        zone.compaction.count(Count::FreeScanned, looked);
        self.len > 0
    }

    /// Puts a pageblock behind those that are as good: they come by falling addresses. By ranks as they were: types may
    /// change meanwhile.
    // A sort from the library is more code than all of the scanner, and its few entries come one by one.
    fn insert(&mut self, start: u32, rank: u32) {
        let mut at = self.len;
        while at > 0 && self.group[at - 1].1 > rank {
            self.group[at] = self.group[at - 1];
            at -= 1;
        }
        self.group[at] = (start, rank);
        self.len += 1;
    }
}

/// Whether pages of `zone` may be moved to a pageblock with this word.
pub(super) fn is_target<S: Policy>(word: PageblockWord, zone: ZoneId) -> bool {
    let spoilt = S::Compact::SPOILT_TARGETS && word.migrate().is_requestable();
    (spoilt || word.migrate().is_for_movable()) && word.zone() == Some(zone)
}

/// Frames of a pageblock that are free in blocks smaller than `wanted`.
fn usable<P: Platform, F: FreeMemory>(view: ZoneView<'_, P, F>, start: u32, wanted: Order) -> u32 {
    let end = start + view.table.pageblock_order().size();
    let (mut at, mut free) = (start, 0);
    while at < end {
        let state = F::state(view, at);
        if state.kind() == FrameKind::Free && state.order() < wanted {
            free += state.order().size();
        }
        at += state.step();
    }
    free
}

/// The first free block of `order` at least in the pageblock of `start`, from `from` on; and how
/// many frames were looked at.
fn look<P: Platform, F: FreeMemory>(
    view: ZoneView<'_, P, F>,
    from: u32,
    start: u32,
    wanted: Order,
    order: Order,
    except: &Range<u32>,
) -> (Option<u32>, u32) {
    let end = start + view.table.pageblock_order().size();
    let mut at = from;
    while at < end {
        if except.contains(&at) {
            at = except.end;
            continue;
        }
        let state = F::state(view, at);
        if state.kind() == FrameKind::Free && state.order() >= order && state.order() < wanted {
            return (Some(at), at - from);
        }
        at += state.step();
    }
    (None, end.saturating_sub(from))
}

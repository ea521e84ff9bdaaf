//! Every frame counted: those that are free, those that are held, and that the two are all there are.
//!
//! At a moment when nothing else runs. A frame that is free twice, or free and held, or neither, is found.

use super::{frames, kept};
use crate::machine::{FRAMES, Pc};
use core::fmt;
use zonal::frame::FrameKind;
use zonal::map::RangeKind;
use zonal::platform::Lock;
use zonal::{Pfn, ZoneId};
use zonal_kernel::irq_lock::IrqLock;

/// A bit a frame, for 16 GiB.
const WORDS: usize = 1 << 16;

static SEEN: IrqLock<[u64; WORDS], Pc> = IrqLock::new([0; WORDS]);

/// What was counted, in frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Count {
    /// What the zones say that they manage.
    managed: u64,
    /// What they say is free.
    said_free: u64,
    /// What was found free, walking all that is free.
    free: u64,
    /// Found free more than once.
    twice: u64,
    /// What the frame table says is in use, walking all frames.
    held: u64,
    /// In use and free.
    both: u64,
    /// What should be in use.
    kept: u64,
}

impl Count {
    /// Whether every frame was found once.
    pub(crate) const fn is_right(&self) -> bool {
        let none_wrong = self.twice == 0 && self.both == 0;
        none_wrong
            && self.free == self.said_free
            && self.held == self.kept
            && self.free + self.held == self.managed
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { managed, said_free, free, twice, held, both, kept } = self;
        write!(f, "{free} free + {held} held = {managed} managed")?;
        if !self.is_right() {
            write!(f, " (WRONG: said free {said_free}, kept {kept}, twice {twice}, both {both})")?;
        }
        Ok(())
    }
}

/// A bit of the map, set; whether it was set before. Frames beyond the map are counted as new.
fn set(seen: &mut [u64; WORDS], pfn: Pfn) -> bool {
    let bit = 1 << (pfn.get() % 64);
    let Some(word) = seen.get_mut((pfn.get() / 64) as usize) else { return false };
    let before = *word & bit != 0;
    *word |= bit;
    before
}

/// What the kernel keeps for good, and what the zones gave for tables.
fn kept() -> u64 {
    kept::frames() + FRAMES.tables().map_or(0, |tables| tables.frames_from_zones)
}

/// Counts.
pub(crate) fn count() -> Count {
    FRAMES.drain_all();
    let frames = frames();
    let mut count = Count { kept: kept(), ..Count::default() };
    SEEN.with(|seen| {
        seen.fill(0);
        for zone in (0..frames.zone_count()).map(|zone| ZoneId(zone as u8)) {
            if let Some(info) = frames.zone_info(zone) {
                count.managed += info.managed;
                count.said_free += info.free + info.cached;
            }
            frames.visit_free(zone, &mut |pfn, place| {
                let first = pfn.get();
                for pfn in (first..first + place.order().frames()).map(Pfn::new) {
                    count.free += 1;
                    count.twice += u64::from(set(seen, pfn));
                }
            });
        }
        held(seen, &mut count);
    });
    count
}

/// Walks all frames that there are, and adds those in use.
fn held(seen: &mut [u64; WORDS], count: &mut Count) {
    let frames = frames();
    for range in frames.plan().map().memory() {
        let mut at = range.start;
        while at < range.end {
            if range.kind == RangeKind::Offline && !frames.is_online(at) {
                // What may come comes in whole pageblocks.
                at = Pfn::new(at.get() + frames.plan().config().pageblock_order.frames());
                continue;
            }
            let state = frames.frame_state(at).filter(|state| state.kind() == FrameKind::Allocated);
            let size = state.map_or(1, |state| state.order().frames());
            if state.is_some() {
                for pfn in (at.get()..at.get() + size).map(Pfn::new) {
                    count.held += 1;
                    count.both += u64::from(set(seen, pfn));
                }
            }
            at = Pfn::new(at.get() + size);
        }
    }
}

//! Refilling a stack: own lines, whole pageblocks, other types.

use super::CpuStack;
use crate::platform::Platform;
use crate::types::migrate_type::{MigrateType, NR_CACHED_TYPES};
use crate::zone::free_map::{Frame, FreeMap, Harvest, Start, WordIndex};

/// Which other types a request falls back on, in Linux's order.
pub(super) const FALLBACKS: [[MigrateType; 2]; NR_CACHED_TYPES] = [
    [MigrateType::Reclaimable, MigrateType::Movable],
    [MigrateType::Reclaimable, MigrateType::Unmovable],
    [MigrateType::Unmovable, MigrateType::Movable],
];

/// How far a refill may go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reach {
    /// Lines and whole pageblocks of the type, then other types.
    Anywhere,
    /// Lines of CMA pageblocks, for movable requests alone.
    Cma,
}

/// What a refill brought, and where from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Came {
    /// Frames, on the stack now (or the one frame that is returned beside this).
    pub frames: u32,
    /// Frames of them that were in pageblocks of another type: taken, or claimed with their
    /// pageblock.
    pub from_other_types: u32,
}

impl CpuStack {
    /// Fills the empty stack of a type, whose edge then is where the last frames came from, and
    /// takes one. Without stacks it takes just one. `None`: the hints lead to nothing that `reach`
    /// says; the caller looks at the [bits](FreeMap::last_look), at other CPUs and other zones.
    pub fn refill<P: Platform>(
        &mut self,
        map: &FreeMap<'_, P>,
        migrate: MigrateType,
        reach: Reach,
    ) -> Option<(Frame, Came)> {
        let (at, start) = (migrate.index(), self.start);
        let (stack, want) = (self.stacks.get_mut(at)?, self.size.high.max(1));
        if !stack.is_empty() {
            return Some((stack.pop()?, Came::default()));
        }
        let mut give = |word: WordIndex, bits| stack.push_bits(word.first_frame(), bits);
        let (harvest, from_other_types) = match reach {
            Reach::Cma => (map.harvest_lines(MigrateType::Cma, want, start, &mut give), 0),
            Reach::Anywhere => match map.refill(migrate, want, start, &mut give) {
                Harvest { frames: 0, .. } => {
                    let harvest = from_others(map, migrate, want, start, &mut give);
                    (harvest, harvest.frames)
                }
                harvest => (harvest, 0),
            },
        };
        stack.turn();
        // Without a stack there is no edge: all that is freed goes into the map.
        if let Some(block) = harvest.last.filter(|_| self.size.high > 0) {
            self.edges[at] = start.distance(block, map.shape()) + 1;
        }
        let came = Came { frames: harvest.frames, from_other_types };
        Some((stack.pop()?, came))
    }
}

/// Claims a pageblock of another type that is half free and takes its frames; if there is none,
/// takes a batch of another type's.
fn from_others<P: Platform>(
    map: &FreeMap<'_, P>,
    migrate: MigrateType,
    want: u32,
    start: Start,
    give: &mut impl FnMut(WordIndex, u64),
) -> Harvest {
    let others = FALLBACKS[migrate.index()];
    for other in others {
        if let Some(block) = map.claim_other(other, migrate, start) {
            let frames = map.harvest(block, migrate, want, give);
            if frames > 0 {
                return Harvest { frames, last: Some(block) };
            }
        }
    }
    let batches = others.into_iter().map(|other| map.harvest_lines(other, want, start, give));
    batches.into_iter().find(|harvest| harvest.frames > 0).unwrap_or_default()
}

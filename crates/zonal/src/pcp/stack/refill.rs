//! Refilling a stack: own lines, whole pageblocks, CMA, other types.

use super::{CpuStack, StackOutside};
use crate::platform::Platform;
use crate::platform::stay::cost;
use crate::types::migrate_type::MigrateType;
use crate::types::units::Order;
use crate::zone::free_map::{Fallback, Frame, FreeMap, Harvest, Start, WordIndex};

/// What a refill brought, and where from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Came {
    /// Frames, on the stack now.
    pub frames: u32,
    /// They are CMA's, lent to a movable request.
    pub lent: bool,
    /// They were in a pageblock of another type.
    pub fallback: Option<Fallback>,
}

impl CpuStack {
    /// Fills the empty stack of a type with as many frames as it may hold, and at most `most`; its
    /// edge then is where the last of them came from. Without stacks it is one frame. `came` is told
    /// of each word that frames came from. Nothing came: the hints lead to nothing; the caller looks at
    /// the [bits](FreeMap::last_look), at other CPUs and other zones.
    pub fn refill<P: Platform, const N: usize>(
        &mut self,
        out: &StackOutside<P, N>,
        map: &FreeMap<'_, P>,
        migrate: MigrateType,
        most: u32,
        mut came: impl FnMut(WordIndex, u64),
    ) -> Came {
        let (start, high) = (self.start, self.size.high);
        let Some(stack) = out.stack(migrate).filter(|stack| stack.len() == 0) else {
            return Came::default();
        };
        let want = high.max(1).min(most);
        let mut filling = stack.fill(self.first, want);
        let mut each = |word: WordIndex, bits| {
            filling.put(word, bits);
            came(word, bits);
        };
        let opened = self.opened_for(migrate).filter(|_| high > 0);
        let mut harvest = map.refill(migrate, want, start, opened, &mut each);
        let claimed = |(_, from)| Fallback {
            frame: Frame(0),
            order: map.shape().order(),
            from,
            claimed: true,
        };
        let (mut lent, mut fallback) = (false, harvest.claimed.map(claimed));
        if harvest.frames == 0 && migrate == MigrateType::Movable && !map.is_over() {
            harvest = map.refill(MigrateType::Cma, want, start, None, &mut each);
            lent = harvest.frames > 0;
        }
        if harvest.frames == 0 && !map.is_over() {
            (harvest, fallback) = from_others(map, migrate, want, start, &mut each);
        }
        filling.finish();
        // Without a stack there is no edge: all that is freed goes into the map.
        if let Some(block) = harvest.last.filter(|_| high > 0) {
            let shape = map.shape();
            stack.set_edge((start.distance(block, shape) + 1) * shape.pageblock_frames());
        }
        if let Some(fallback) = &mut fallback
            && harvest.frames > 0
        {
            fallback.frame =
                stack.frames().next_back().map(|at| self.frame(at)).unwrap_or_default();
        }
        Came { frames: harvest.frames, lent, fallback }
    }
}

/// Claims a pageblock of another type that is half free and takes its frames; if there is none,
/// takes a batch of another type's.
fn from_others<P: Platform>(
    map: &FreeMap<'_, P>,
    migrate: MigrateType,
    want: u32,
    start: Start,
    each: &mut impl FnMut(WordIndex, u64),
) -> (Harvest, Option<Fallback>) {
    map.spend(cost::OTHERS[0]);
    let start = start.anywhere();
    let others = migrate.fallbacks().into_iter().flatten();
    let fallback = |from, order, claimed| Some(Fallback { frame: Frame(0), order, from, claimed });
    for &other in others.clone() {
        if let Some((pageblock, order)) = map.claim_other(other, migrate, 0, start) {
            if map.ends() {
                let frame = pageblock.first_frame(map.shape());
                let fallback = Fallback { frame, order, from: other, claimed: true };
                return (Harvest::default(), Some(fallback));
            }
            let frames = map.harvest(pageblock, migrate, want, each);
            if frames > 0 {
                let harvest = Harvest { frames, last: Some(pageblock), claimed: None };
                return (harvest, fallback(other, order, true));
            }
        }
    }
    for &other in others {
        let harvest = map.harvest_lines(other, want, start, each);
        if harvest.frames > 0 {
            return (harvest, fallback(other, Order::ZERO, false));
        }
    }
    (Harvest::default(), None)
}

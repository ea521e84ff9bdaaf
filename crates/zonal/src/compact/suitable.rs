//! Whether compaction can help at all: enough memory, and in pieces too small.

use crate::platform::Platform;
use crate::types::counts::FreeCounts;
use crate::types::mark::Mark;
use crate::types::migrate_type::MigrateType;
use crate::types::units::Order;
use crate::zone::{FreeMemory, ZoneView};

/// Below this index, in thousandths, a request fails for want of memory rather than because of
/// fragmentation (Linux's `extfrag_threshold`).
pub(super) const EXTFRAG_THRESHOLD: u32 = 500;
/// Up to this order the index is not asked, and the min watermark is kept rather than the low
/// one (Linux's `PAGE_ALLOC_COSTLY_ORDER`).
const COSTLY_ORDER: u8 = 3;

/// Whether blocks of `order` are hard to have.
pub(crate) const fn is_costly(order: Order) -> bool {
    order.get() > COSTLY_ORDER
}

/// The fragmentation index in thousandths: why a request of `order` fails when no free block is
/// large enough. Towards 0 for want of memory, towards 1000 because what is free is in small
/// pieces. 0 when nothing is free. It means nothing when there is such a block.
///
/// Source: M. Gorman and P. Healy, "Supporting superpage allocation without additional hardware
/// support", ISMM 2008.
///
/// ```
/// use zonal::compact::fragmentation_permille;
/// use zonal::{FreeCounts, MigrateType, Order};
/// let mut blocks = FreeCounts::default();
/// blocks[0][MigrateType::Movable.index()] = 4096;
/// assert_eq!(fragmentation_permille(&blocks, Order::HUGE), 998);
/// blocks[0][MigrateType::Movable.index()] = 4;
/// assert_eq!(fragmentation_permille(&blocks, Order::HUGE), 749);
/// ```
#[must_use]
pub fn fragmentation_permille(blocks: &FreeCounts, order: Order) -> u32 {
    let (mut pieces, mut frames) = (0_u64, 0);
    for (at, by_type) in Order::all().zip(blocks) {
        let types = by_type.iter().zip(MigrateType::ALL);
        let usable = types.filter(|(_, migrate)| *migrate != MigrateType::Isolate);
        let count: u64 = usable.map(|(&blocks, _)| u64::from(blocks)).sum();
        pieces += count;
        frames += count * at.frames();
    }
    let part = (1000 + frames * 1000 / order.frames()).checked_div(pieces);
    part.map_or(0, |part| 1000_u64.saturating_sub(part) as u32)
}

impl<P: Platform, F: FreeMemory> ZoneView<'_, P, F> {
    /// Whether the zone has what compaction needs to form a block of `order`: twice its frames
    /// above the watermark, and many small pieces rather than few frames. `keep`: what the
    /// request must leave beside the watermark.
    pub(super) fn is_suitable(&self, order: Order, keep: u64) -> bool {
        let costly = is_costly(order);
        let mark = self.zone.mark(if costly { Mark::Low } else { Mark::Min });
        let needed = mark.saturating_add(keep).saturating_add(2 * order.frames());
        if self.zone.free() <= needed {
            return false;
        }
        let counts = F::counts(*self);
        !costly || fragmentation_permille(&counts, order) > EXTFRAG_THRESHOLD
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_at_its_edges() {
        let index = |pieces: &[(usize, u32)], order: u8| {
            let mut blocks = FreeCounts::default();
            pieces.iter().for_each(|&(at, count)| blocks[at][1] = count);
            blocks[10][MigrateType::Isolate.index()] = 7;
            fragmentation_permille(&blocks, Order::new(order).unwrap())
        };
        assert_eq!(index(&[], 9), 0, "nothing free");
        assert_eq!(index(&[(8, 1)], 9), 0, "one piece is no fragmentation");
        // 1 - (1 + 1024/512) / 4
        assert_eq!(index(&[(8, 4)], 9), 250);
        // 1 - (1 + 2) / 1024
        assert_eq!(index(&[(0, 1024)], 9), 998);
    }
}

//! Free blocks, counted, and what the counts say of fragmentation.

use super::migrate_type::{MigrateType, NR_MIGRATE_TYPES};
use super::units::{NR_ORDERS, Order};

/// Free blocks counted by order and migrate type.
pub type FreeCounts = [[u32; NR_MIGRATE_TYPES]; NR_ORDERS];

/// For each order, the part of the free frames that is in blocks too small for it, in
/// thousandths, rounded down: 0 when every free frame is in a block of that order or larger,
/// 1000 when none is, and 1000 for every order when nothing is free.
///
/// Isolated blocks are left out: no request can have them. Frames in per-CPU caches are not free in
/// this sense; after [`drain_all`](crate::Allocator::drain_all) there are none.
///
/// Source: M. Gorman and A. Whitcroft, "The what, the why and the where to of
/// anti-fragmentation", Ottawa Linux Symposium 2006.
///
/// ```
/// use zonal::{FreeCounts, MigrateType, Order, report::unusable_permille};
/// let mut blocks = FreeCounts::default();
/// blocks[0][MigrateType::Movable.index()] = 24;
/// blocks[3][MigrateType::Unmovable.index()] = 1;
/// let index = unusable_permille(&blocks);
/// assert_eq!(index[..5], [0, 750, 750, 750, 1000]);
/// ```
#[must_use]
pub fn unusable_permille(blocks: &FreeCounts) -> [u32; NR_ORDERS] {
    let mut frames = [0; NR_ORDERS];
    for (order, by_type) in Order::all().zip(blocks) {
        let types = by_type.iter().zip(MigrateType::ALL);
        let usable = types.filter(|(_, migrate)| *migrate != MigrateType::Isolate);
        let count: u64 = usable.map(|(&blocks, _)| u64::from(blocks)).sum();
        frames[order.index()] = count * order.frames();
    }
    let free: u64 = frames.iter().sum();
    let mut too_small = 0;
    frames.map(|of_order| {
        let index: u64 = (too_small * 1000_u64).checked_div(free).unwrap_or(1000);
        too_small += of_order;
        index as u32
    })
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

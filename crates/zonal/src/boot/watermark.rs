//! Watermarks and lowmem reserves: how many frames a zone keeps back, and from whom.
//!
//! The numbers are those of Linux 4.16 and later (`min_free_kbytes`, `watermark_scale_factor`,
//! `watermark_boost_factor`, `lowmem_reserve_ratio`):
//!
//! - the machine keeps `sqrt(16 × lowmem KiB)` KiB, at least [`MIN_FREE_KIB_FLOOR`] and at most
//!   [`MIN_FREE_KIB_CEILING`]; *lowmem* is what requests that are not movable can use;
//! - each zone's `min` is its share of that by managed frames. Movable zones hold nothing
//!   that the kernel depends on: theirs is 1/1024 of the zone, 32 to 128 frames;
//! - the step from `min` to `low` and from `low` to `high` is a quarter of the share, or
//!   `managed × scale factor / 10000` if that is more.
//!
//! ```
//! use zonal::watermark::{Mark, MinFree, WatermarkConfig};
//! use zonal::zone_type::ZoneType;
//! let config = WatermarkConfig::default();
//! let lowmem = 1 << 20; // 4 GiB in frames, all in one zone
//! let marks = config.marks(ZoneType::Normal, lowmem, lowmem);
//! assert_eq!(marks.get(Mark::Min), 2048); // 8 MiB
//! let pool = WatermarkConfig { min_free: MinFree::None, ..config };
//! assert_eq!(pool.marks(ZoneType::Normal, lowmem, lowmem).high, 0);
//! ```

pub use crate::types::mark::{Access, Mark};
use crate::types::units::{FRAME_SHIFT, Order};
use crate::types::zone_type::{NR_ZONE_TYPES, ZoneType};

/// The least a machine keeps free under [`MinFree::Computed`], KiB.
pub const MIN_FREE_KIB_FLOOR: u64 = 128;
/// The most a machine keeps free under [`MinFree::Computed`], KiB: the ceiling of Linux up
/// to 5.9 (later ones allow 262144).
pub const MIN_FREE_KIB_CEILING: u64 = 65536;
/// The largest [`WatermarkConfig::scale_factor`]: 30 % of a zone for each step.
pub const SCALE_FACTOR_MAX: u16 = 3000;
/// Linux's `lowmem_reserve_ratio`, by zone type.
pub const LOWMEM_RATIO: [u32; NR_ZONE_TYPES] = [256, 256, 32, 0];

/// How much the whole machine keeps free below its min watermarks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum MinFree {
    /// By Linux's formula; see the [module](self).
    #[default]
    Computed,
    /// This many frames, shared out like the computed ones.
    Frames(u64),
    /// Nothing: all watermarks are 0, whatever the scale factor. For user-space pools, where
    /// no thread reclaims and the last frame may go.
    None,
}

/// What the watermarks are computed from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WatermarkConfig {
    /// Frames kept free by the whole machine.
    pub min_free: MinFree,
    /// Least distance between two marks, in 1/10000 of the zone's managed frames; at most
    /// [`SCALE_FACTOR_MAX`]. Default 10.
    pub scale_factor: u16,
    /// Most that fragmentation may add to the marks for a while, in 1/10000 of the high mark.
    /// Default 15000; 0 turns boosting off.
    pub boost_factor: u32,
}

impl Default for WatermarkConfig {
    fn default() -> Self {
        Self { min_free: MinFree::Computed, scale_factor: 10, boost_factor: 15000 }
    }
}

impl WatermarkConfig {
    /// Frames the whole machine keeps free, for `lowmem` managed frames outside Movable zones.
    #[must_use]
    pub const fn min_free_frames(&self, lowmem: u64) -> u64 {
        match self.min_free {
            MinFree::Computed => {
                let kib = lowmem.saturating_mul(1 << (FRAME_SHIFT - 10));
                let root = root(kib.saturating_mul(16));
                let kib = if root < MIN_FREE_KIB_FLOOR {
                    MIN_FREE_KIB_FLOOR
                } else if root > MIN_FREE_KIB_CEILING {
                    MIN_FREE_KIB_CEILING
                } else {
                    root
                };
                kib >> (FRAME_SHIFT - 10)
            }
            MinFree::Frames(frames) => frames,
            MinFree::None => 0,
        }
    }

    /// The watermarks of a zone of type `ty` with `managed` frames, on a machine that manages
    /// `lowmem` frames outside its Movable zones.
    #[must_use]
    pub fn marks(&self, ty: ZoneType, managed: u64, lowmem: u64) -> Watermarks {
        if self.min_free == MinFree::None || managed == 0 {
            return Watermarks::default();
        }
        let share = mul_div(self.min_free_frames(lowmem), managed, lowmem);
        let min = if ty == ZoneType::Movable { (managed / 1024).clamp(32, 128) } else { share };
        let step = (share / 4).max(mul_div(managed, u64::from(self.scale_factor), 10000));
        let low = min.saturating_add(step);
        Watermarks { min, low, high: low.saturating_add(step) }
    }

    /// The most a zone with these (unboosted) watermarks may be boosted by, frames.
    #[must_use]
    pub fn boost_limit(&self, marks: Watermarks) -> u64 {
        mul_div(marks.high, u64::from(self.boost_factor), 10000)
    }
}

/// The square root rounded down, bit by bit: what `core` has is quicker, and ten times as long.
#[inline(never)]
const fn root(square: u64) -> u64 {
    let (mut rest, mut root) = (square, 0);
    // The highest power of four that is in it.
    let mut bit = 1 << ((square | 1).ilog2() & !1);
    while bit != 0 {
        if rest >= root + bit {
            rest -= root + bit;
            root += bit << 1;
        }
        root >>= 1;
        bit >>= 2;
    }
    root
}

/// `a × b / c` rounded down, without overflow on the way; 0 if `c` is.
pub(crate) fn mul_div(a: u64, b: u64, c: u64) -> u64 {
    if c == 0 {
        return 0;
    }
    u64::try_from(u128::from(a) * u128::from(b) / u128::from(c)).unwrap_or(u64::MAX)
}

/// A zone's watermarks, in frames: `min` ≤ `low` ≤ `high`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Watermarks {
    /// See [`Mark::Min`].
    pub min: u64,
    /// See [`Mark::Low`].
    pub low: u64,
    /// See [`Mark::High`].
    pub high: u64,
}

impl Watermarks {
    /// One of them, frames.
    #[must_use]
    #[inline]
    pub const fn get(self, mark: Mark) -> u64 {
        match mark {
            Mark::Min => self.min,
            Mark::Low => self.low,
            Mark::High => self.high,
        }
    }

    /// All three raised by `boost` frames.
    #[must_use]
    pub const fn boosted(self, boost: u64) -> Self {
        Self {
            min: self.min.saturating_add(boost),
            low: self.low.saturating_add(boost),
            high: self.high.saturating_add(boost),
        }
    }
}

/// Whether a zone may serve a request of `order`: what is left after all but one frame of the
/// block are gone must exceed the mark (as `access` sees it) and the lowmem `reserve`, and for
/// more than one frame a block must exist.
///
/// `free` counts only frames that this request may use: the caller leaves out those in
/// high-atomic pageblocks unless the request is atomic, and those in CMA pageblocks unless it
/// is movable. `free_blocks_ge(order)` says whether a usable free block of that order or larger
/// exists; it is called at most once, and not for order 0.
#[must_use]
#[inline]
pub fn watermark_ok(
    free: u64,
    order: Order,
    mark: u64,
    reserve: u64,
    access: Access,
    free_blocks_ge: impl Fn(Order) -> bool,
) -> bool {
    // On the left the block's other frames, so that nothing goes below 0.
    let needed = access.lower(mark).saturating_add(reserve).saturating_add(order.frames() - 1);
    free > needed && (order == Order::ZERO || free_blocks_ge(order))
}

/// What each zone type of a node keeps back from requests that could have used a higher type:
/// `result[zone type][highest type the request may use]`, frames. A zone keeps back the managed
/// frames of the types above it, up to the request's, divided by its own ratio; a ratio of 0
/// keeps nothing back.
#[must_use]
pub fn lowmem_reserve(
    ratio: [u32; NR_ZONE_TYPES],
    managed: [u64; NR_ZONE_TYPES],
) -> [[u64; NR_ZONE_TYPES]; NR_ZONE_TYPES] {
    let mut reserve = [[0; NR_ZONE_TYPES]; NR_ZONE_TYPES];
    for zone in 0..NR_ZONE_TYPES {
        if ratio[zone] == 0 || managed[zone] == 0 {
            continue;
        }
        let mut above: u64 = 0;
        for limit in zone + 1..NR_ZONE_TYPES {
            above = above.saturating_add(managed[limit]);
            reserve[zone][limit] = above / u64::from(ratio[zone]);
        }
    }
    reserve
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 18;

    #[test]
    fn roots() {
        let near = |n: u64| [n.saturating_sub(1), n, n.saturating_add(1)];
        let powers = (0..64).flat_map(|n| near(1 << n));
        let squares = (0..32).flat_map(|n| near((1_u64 << n).pow(2) + (1 << n))).chain(0..5000);
        for square in powers.chain(squares).chain([u64::MAX]) {
            assert_eq!(root(square), square.isqrt(), "{square}");
        }
    }

    #[test]
    fn marks_by_hand() {
        // managed, lowmem, type, scale, (min, low, high)
        let table = [
            // 4 GiB: sqrt(16 * 4194304) = 8192 KiB = 2048 frames; 1048576 * 10 / 10000 = 1048
            (4 * GIB, 4 * GIB, ZoneType::Normal, 10, (2048, 3096, 4144)),
            // 64 MiB: sqrt(16 * 65536) = 1024 KiB = 256 frames; a quarter (64) beats 16
            (16384, 16384, ZoneType::Normal, 10, (256, 320, 384)),
            // 1 TiB: sqrt gives 131072 KiB, cut to 65536 = 16384 frames; 268435 a step
            (1024 * GIB, 1024 * GIB, ZoneType::Normal, 10, (16384, 284_819, 553_254)),
            // 512 KiB: sqrt gives 90 KiB, raised to 128 = 32 frames
            (128, 128, ZoneType::Normal, 10, (32, 40, 48)),
            // a 1 GiB zone of the 4 GiB machine: a quarter of 2048; 262 a step
            (GIB, 4 * GIB, ZoneType::Dma32, 10, (512, 774, 1036)),
            (GIB, 4 * GIB, ZoneType::Dma32, 1000, (512, 26726, 52940)),
            // the same as a Movable zone: 1/1024 is 256, cut to 128; the step is the share's
            (GIB, 4 * GIB, ZoneType::Movable, 10, (128, 390, 652)),
            (2048, 4 * GIB, ZoneType::Movable, 10, (32, 34, 36)),
            (0, 4 * GIB, ZoneType::Normal, 10, (0, 0, 0)),
            // nothing but Movable memory
            (GIB, 0, ZoneType::Movable, 0, (128, 128, 128)),
        ];
        for (managed, lowmem, ty, scale_factor, (min, low, high)) in table {
            let config = WatermarkConfig { scale_factor, ..WatermarkConfig::default() };
            let marks = config.marks(ty, managed, lowmem);
            assert_eq!(marks, Watermarks { min, low, high }, "{managed} {lowmem} {ty:?}");
        }
    }

    #[test]
    fn marks_as_told() {
        let told = WatermarkConfig { min_free: MinFree::Frames(1000), ..Default::default() };
        let marks = told.marks(ZoneType::Normal, 25_000, 100_000);
        assert_eq!(marks, Watermarks { min: 250, low: 312, high: 374 });
        let none = WatermarkConfig { min_free: MinFree::None, ..Default::default() };
        assert_eq!(none.marks(ZoneType::Movable, 100_000, 100_000), Watermarks::default());
    }

    #[test]
    fn marks_do_not_overflow() {
        let config = WatermarkConfig { min_free: MinFree::Frames(u64::MAX), ..Default::default() };
        let marks = config.marks(ZoneType::Normal, u64::MAX, 1);
        assert_eq!((marks.min, marks.high), (u64::MAX, u64::MAX));
        assert_eq!(config.boost_limit(marks), u64::MAX);
        assert_eq!(marks.boosted(1).low, u64::MAX);
    }

    #[test]
    fn boost_adds_to_every_mark_and_has_a_limit() {
        let marks = Watermarks { min: 100, low: 125, high: 150 };
        assert_eq!(marks.boosted(7), Watermarks { min: 107, low: 132, high: 157 });
        assert_eq!(WatermarkConfig::default().boost_limit(marks), 225);
        let off = WatermarkConfig { boost_factor: 0, ..Default::default() };
        assert_eq!(off.boost_limit(marks), 0);
        assert_eq!([Mark::Min, Mark::Low, Mark::High].map(|m| marks.get(m)), [100, 125, 150]);
    }

    #[test]
    fn the_check_at_its_edges() {
        let plain = Access::default();
        let high = Access { high: true, atomic: false };
        let atomic = Access { high: false, atomic: true };
        let both = Access { high: true, atomic: true };
        // free, order, mark, reserve, access, a block exists, expected
        let table = [
            (101, 0, 100, 0, plain, false, true),
            (100, 0, 100, 0, plain, true, false),
            (1, 0, 0, 0, plain, false, true),
            (0, 0, 0, 0, plain, true, false),
            (121, 0, 100, 20, plain, false, true),
            (120, 0, 100, 20, plain, false, false),
            (108, 3, 100, 0, plain, true, true),
            (107, 3, 100, 0, plain, true, false),
            (108, 3, 100, 0, plain, false, false),
            (8, 3, 0, 0, plain, true, true),
            (7, 3, 0, 0, plain, true, false),
            (51, 0, 100, 0, high, false, true),
            (50, 0, 100, 0, high, false, false),
            (76, 0, 100, 0, atomic, false, true),
            (75, 0, 100, 0, atomic, false, false),
            // 100 - 50 = 50, 50 - 12 = 38
            (39, 0, 100, 0, both, false, true),
            (38, 0, 100, 0, both, false, false),
            (u64::MAX, 0, u64::MAX, 1, plain, true, false),
        ];
        for (row, (free, order, mark, reserve, access, exists, expected)) in
            table.into_iter().enumerate()
        {
            let order = Order::new(order).unwrap();
            let ok = watermark_ok(free, order, mark, reserve, access, |o| {
                assert_eq!(o, order);
                exists
            });
            assert_eq!(ok, expected, "row {row}");
        }
    }

    #[test]
    fn reserves_by_hand() {
        // DMA 4000, DMA32 1 M, Normal 10 M, Movable 2 M frames
        let managed = [4000, 1 << 20, 10 << 20, 2 << 20];
        let reserve = lowmem_reserve(LOWMEM_RATIO, managed);
        assert_eq!(reserve[0], [0, 4096, 45056, 53248]);
        assert_eq!(reserve[1], [0, 0, 40960, 49152]);
        assert_eq!(reserve[2], [0, 0, 0, 65536]);
        assert_eq!(reserve[3], [0; 4]);
        // A type that is not there keeps nothing back; a ratio of 0 turns a row off.
        let reserve = lowmem_reserve([0, 256, 256, 256], [4000, 0, 25600, 0]);
        assert_eq!(reserve, [[0; 4]; 4]);
    }
}

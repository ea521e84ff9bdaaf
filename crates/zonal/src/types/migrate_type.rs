//! Migrate types: what may be done with the frames of a pageblock.
//!
//! ```
//! use zonal::MigrateType;
//! assert_eq!(MigrateType::Movable.name(), "Movable");
//! ```

/// How many migrate types there are.
pub const NR_MIGRATE_TYPES: usize = 6;
/// How many of them the per-CPU caches keep apart: unmovable, movable, reclaimable.
pub const NR_CACHED_TYPES: usize = 3;

/// What may be done with allocated frames, kept by pageblock so that like stays with like.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(u8)]
pub enum MigrateType {
    /// Pinned where they are: page tables, kernel objects.
    #[default]
    Unmovable = 0,
    /// Can be copied elsewhere and remapped.
    Movable = 1,
    /// Can be dropped and read or computed again.
    Reclaimable = 2,
    /// Set aside for high-order requests that cannot wait.
    HighAtomic = 3,
    /// Lent to movable requests until a device wants the range.
    Cma = 4,
    /// Withdrawn from allocation while the holder of the isolation works on the range.
    Isolate = 5,
}

impl MigrateType {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; NR_MIGRATE_TYPES] = [
        Self::Unmovable,
        Self::Movable,
        Self::Reclaimable,
        Self::HighAtomic,
        Self::Cma,
        Self::Isolate,
    ];

    /// The type with this number; `None` for a number that is none.
    #[must_use]
    #[inline(always)]
    pub const fn from_number(n: u8) -> Option<Self> {
        // In the order of the numbers, so that it costs no look into a table.
        Some(match n {
            0 => Self::Unmovable,
            1 => Self::Movable,
            2 => Self::Reclaimable,
            3 => Self::HighAtomic,
            4 => Self::Cma,
            5 => Self::Isolate,
            _ => return None,
        })
    }

    /// Index into per-type tables.
    #[must_use]
    #[inline]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The name that `/proc/pagetypeinfo` gives it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unmovable => "Unmovable",
            Self::Movable => "Movable",
            Self::Reclaimable => "Reclaimable",
            Self::HighAtomic => "HighAtomic",
            Self::Cma => "CMA",
            Self::Isolate => "Isolate",
        }
    }

    /// Where a request of this type looks when its own memory has run out, in Linux's order; `None`
    /// for types that no request names.
    pub(crate) fn fallbacks(self) -> Option<&'static [Self; 2]> {
        const FALLBACKS: [[MigrateType; 2]; NR_CACHED_TYPES] = [
            [MigrateType::Reclaimable, MigrateType::Movable],
            [MigrateType::Reclaimable, MigrateType::Unmovable],
            [MigrateType::Unmovable, MigrateType::Movable],
        ];
        FALLBACKS.get(self.index())
    }

    /// Whether the frames of such a pageblock are meant to be movable: it may be evacuated.
    pub(crate) const fn is_for_movable(self) -> bool {
        matches!(self, Self::Movable | Self::Cma)
    }

    /// Whether free pageblocks of the two types may be one block: all but isolated ones, which are their
    /// holder's, and CMA, which unmovable requests must not get a part of. `Zonal` has a pageblock of the high-atomic reserve by itself
    /// until a request that may wait opens it.
    #[must_use]
    #[inline]
    pub const fn merges_with(self, other: Self) -> bool {
        self as u8 == other as u8
            || !(matches!(self, Self::Isolate | Self::Cma)
                || matches!(other, Self::Isolate | Self::Cma))
    }

    /// Whether a request may name it. The others are states of a pageblock.
    #[must_use]
    #[inline]
    pub const fn is_requestable(self) -> bool {
        (self as u8) < NR_CACHED_TYPES as u8
    }
}

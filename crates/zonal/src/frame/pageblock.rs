//! What a pageblock is: its word.

use crate::types::migrate_type::MigrateType;
use crate::types::units::ZoneId;

/// A pageblock's word: in bits 0–7 the list of a per-CPU cache that its frames go to, + 1
/// (0: not cached), in bits 8–15 the zone instance, in bits 16–23 the migrate type, and in bit
/// 24 whether the pageblock has a zone at all; above, hints and notes that most readers mask off. The list follows from the migrate type; it stands there, and first, so that a free
/// decodes one word in a few instructions.
///
/// The zone is written before the allocator is shared, or under the zone lock when the memory comes
/// or goes: a pageblock without one is not there. The migrate type is, with buddy lists, written under the
/// zone lock: readers without the lock use it as a hint and look again under the lock where a wrong answer
/// would matter. With a map it is written by sequentially consistent exchanges, whose readers look at it
/// after they changed bits (M-5 of a [map](crate::zone::free_map)).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(transparent)]
pub struct PageblockWord(pub(super) u64);

/// Zone, type and list of a pageblock, as its word has them, with compaction's hint: the lower half, which is compared
/// without a mask.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Owner(u32);

impl Owner {
    /// As a word in memory has them.
    #[inline(always)]
    pub(super) const fn of(word: u64) -> Self {
        // Truncated on purpose.
        Self(word as u32)
    }
}

/// Bit of a [`PageblockWord`]: the pageblock belongs to a zone.
pub(super) const MANAGED: u64 = 1 << 24;
/// The bits that [`FrameTable::pageblock`](super::FrameTable::pageblock) shows. Those above are notes about the pageblock that
/// must not keep two buddies apart: compaction's hint, and what it was before its isolation.
pub(super) const SHOWN: u64 = (1 << 25) - 1;
/// Where the migrate type before the isolation stands, + 1.
pub(super) const BEFORE: u32 = 32;

/// Where a zone with a [map](crate::zone::free_map) notes how many free frames of the pageblock it
/// has counted as special, and above that as which.
pub(super) const COUNTED: u32 = 40;
/// Bits of that number: up to 1024 frames.
pub(super) const COUNTED_BITS: u32 = 11;

/// Note of compaction in a pageblock's word: something in it could not be moved out.
pub(super) const NO_SOURCE: u64 = 1 << 25;

impl PageblockWord {
    /// As it stands in memory.
    pub(crate) const fn of(word: u64) -> Self {
        Self(word & SHOWN)
    }

    /// Of no zone.
    pub(crate) const NONE: Self = Self(0);

    pub(crate) const fn new(zone: ZoneId, migrate: MigrateType) -> Self {
        Self(MANAGED | (zone.0 as u64) << 8).with_migrate(migrate)
    }

    /// Zone and type, to compare with those of others.
    pub(crate) const fn owner(self) -> Owner {
        Owner::of(self.0)
    }

    /// Zone and list of the per-CPU cache for a frame of this pageblock, if it is cached.
    #[inline(always)]
    pub(crate) const fn cached_in(self) -> Option<(ZoneId, MigrateType)> {
        let migrate = match self.0 as u8 {
            1 => MigrateType::Unmovable,
            2 => MigrateType::Movable,
            3 => MigrateType::Reclaimable,
            _ => return None,
        };
        // A word with a list has a zone: `new` wrote both.
        Some((ZoneId((self.0 >> 8) as u8), migrate))
    }

    #[inline(always)]
    pub(crate) const fn zone(self) -> Option<ZoneId> {
        if self.0 & MANAGED == 0 { None } else { Some(ZoneId((self.0 >> 8) as u8)) }
    }

    /// Whether free frames of two pageblocks may be in one block: of one zone, and of types that
    /// [merge](MigrateType::merges_with).
    #[inline]
    pub(crate) const fn merges_with(self, other: Self) -> bool {
        const PLACE: u64 = MANAGED | 0xff00;
        self.0 == other.0
            || (self.0 & PLACE == other.0 & PLACE && self.migrate().merges_with(other.migrate()))
    }

    /// The number of its migrate type.
    #[inline(always)]
    pub(super) const fn type_number(self) -> u8 {
        (self.0 >> 16) as u8
    }

    #[inline]
    pub(crate) const fn migrate(self) -> MigrateType {
        match MigrateType::from_number(self.type_number()) {
            Some(migrate) => migrate,
            None => MigrateType::Isolate,
        }
    }

    pub(super) const fn with_migrate(self, migrate: MigrateType) -> Self {
        let list = match migrate {
            MigrateType::Unmovable => 1,
            // CMA frames are lent to movable requests again.
            MigrateType::Movable | MigrateType::Cma => 2,
            MigrateType::Reclaimable => 3,
            MigrateType::HighAtomic | MigrateType::Isolate => 0,
        };
        Self(self.0 & !0xff_00ff | (migrate as u64) << 16 | list)
    }
}

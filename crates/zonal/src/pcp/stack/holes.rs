//! The blocks that a CPU freed last, where they do not stay on a [stack](super::small): holes that it fills again.
//!
//! - Source: zonal's own (ADR 119).
//! - Mechanism: where memory is in use, most that is freed leaves a hole in a pageblock of which nothing else is free. In the
//!   map that costs two hints raised, found, and lowered by the next request. So the last few are not put there, and the
//!   oldest is handed out for a request of its order and type as long as nothing else of its pageblock is free: then no
//!   place is better. The oldest, as of a pageblock that becomes free more is freed soon; then all of it goes into the map.
//!   A CPU whose share of the zone is small keeps one, and hands it out where a search of the map would have come to it.
//! - State: the head of such a block has the state cached, with its order. In the slot.
//! - Conflicts: a CPU has as many frames in them as on one of its stacks at most; a drain puts them into the map.

use super::cpu::StackCpu;
use crate::platform::Platform;
use crate::types::migrate_type::{MigrateType, NR_CACHED_TYPES};
use crate::types::units::{ORDERS, Order};
use crate::zone::free_map::{MapShape, MapView, Start};

/// Blocks, at most.
const MOST: usize = 8;
/// Pageblocks of a zone for each that a CPU may keep, by the square of the CPUs that keep some and one more: one with a hole that is kept
/// cannot become whole, and more CPUs keep more, of which more others free the rest.
const PAGEBLOCKS: u32 = 16;
/// Where there is none: a table has fewer frames.
const NONE: u32 = u32::MAX;

/// Of a word of bytes: 1 in each, and the highest bit of each.
const ONES: u64 = u64::MAX / 0xff;
const HIGHEST: u64 = ONES << 7;

/// Order and type of a block, as a byte that is not 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Kind(u8);

impl Kind {
    const fn new(order: Order, migrate: MigrateType) -> Self {
        Self(0x80 | (migrate.index() as u8) << 4 | order.get())
    }

    fn order(self) -> Order {
        ORDERS[usize::from(self.0 & 0xf)]
    }

    fn migrate(self) -> MigrateType {
        MigrateType::ALL[usize::from(self.0 >> 4 & 7)]
    }
}

/// How many drains in a row find that a CPU has kept none before it does not count. One request that is refused may drain it
/// three times, and where memory is short drains are frequent, and no sign that it will keep none.
const DRAINS: u8 = 4;

/// Blocks that one CPU has kept of a zone, the oldest first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Holes {
    /// The kind of each, a byte each from the lowest on; 0 where there is none.
    kinds: [u8; MOST],
    /// The first frame of each; of the last place there is none.
    at: [u32; MOST + 1],
    frames: u32,
    /// How many CPUs keep some, as far as this one knows.
    keepers: u16,
    /// How many there may be, where they are as many.
    most: u8,
    /// After how many drains this CPU is none of them; 0: it is none.
    keeps: u8,
}

impl Holes {
    /// None, and there may be none before it is [tuned](Self::tune).
    pub(super) const UNTUNED: Self =
        Self { kinds: [0; MOST], at: [0; MOST + 1], frames: 0, keepers: 0, most: 0, keeps: 0 };

    pub(super) fn tune(&mut self) {
        self.keepers = 0;
        if self.frames == 0 {
            self.at = [NONE; MOST + 1];
        }
    }

    /// As many CPUs keep some of a zone of this shape.
    #[cold]
    fn set_keepers(&mut self, keepers: u16, shape: MapShape) {
        self.keepers = keepers;
        let cpus = u32::from(keepers) + 1;
        let share = shape.pageblocks() / PAGEBLOCKS / cpus.saturating_mul(cpus);
        self.most = share.clamp(1, MOST as u32) as u8;
    }

    const fn word(&self) -> u64 {
        u64::from_le_bytes(self.kinds)
    }

    fn len(&self) -> usize {
        (u64::BITS - self.word().leading_zeros()) as usize / 8
    }

    /// The oldest of a kind that is such.
    #[inline(always)]
    fn find(&self, kind: Kind, is_such: impl Fn(u32) -> bool) -> Option<usize> {
        let other = self.word() ^ (ONES * u64::from(kind.0));
        // The highest bit of each byte that is 0: no sum goes beyond its byte.
        let mut places = !(((other & !HIGHEST) + !HIGHEST) | other) & HIGHEST;
        while places != 0 {
            let place = places.trailing_zeros() as usize / 8;
            if is_such(self.at[place]) {
                return Some(place);
            }
            places &= places - 1;
        }
        None
    }

    /// Whether one is of the same pageblock, which has this order of 3 at least.
    #[inline(always)]
    fn has_beside(&self, index: u32, pageblock: Order) -> bool {
        // All of them, without a branch: below 0 where it is one.
        let other = |at: &u32| ((at ^ index) >> pageblock.get()).wrapping_sub(1);
        self.at[..MOST].iter().map(other).fold(0, |any, one| any | one) >> 31 != 0
    }

    /// Takes that one.
    #[cold]
    fn take_beside(&mut self, index: u32, pageblock: Order) -> Option<(u32, Kind)> {
        let is_beside = |at: &u32| (at ^ index) >> pageblock.get() == 0;
        let place = self.at.iter().position(is_beside)?;
        Some(self.take(place))
    }

    fn take(&mut self, place: usize) -> (u32, Kind) {
        let (index, kind) = (self.at[place], Kind(self.kinds[place]));
        let (word, older) = (self.word(), !(u64::MAX << (8 * place)));
        self.kinds = (word & older | word >> 8 & !older).to_le_bytes();
        let (before, later) = (self.at, place as u32);
        // All of them at once, without a branch: those from the place on come down by one.
        for at in 0..MOST {
            let stays = 0_u32.wrapping_sub(u32::from((at as u32) < later));
            self.at[at] = before[at] & stays | before[at + 1] & !stays;
        }
        self.frames -= kind.order().size();
        (index, kind)
    }

    /// Takes the oldest if there is no room for one of this order, where there may be this number of frames.
    fn make_room(&mut self, order: Order, frames: u32) -> Option<(u32, Kind)> {
        let has = self.len() < self.most.into() && self.frames + order.size() <= frames;
        (!has).then(|| self.take(0))
    }

    fn add(&mut self, index: u32, kind: Kind) {
        let place = self.len();
        self.kinds[place] = kind.0;
        self.at[place] = index;
        self.frames += kind.order().size();
    }

    /// Frames of all.
    pub(super) const fn frames(&self) -> u32 {
        self.frames
    }

    /// The blocks.
    pub(super) fn blocks(&self) -> impl Iterator<Item = (u32, Order)> {
        (0..self.len()).map(|place| (self.at[place], Kind(self.kinds[place]).order()))
    }
}

impl StackCpu {
    /// Takes a block that is kept, if there is no better place.
    #[inline(always)]
    pub(super) fn fill_hole<P: Platform>(
        &mut self,
        view: MapView<'_, P>,
        (order, migrate): (Order, MigrateType),
        start: impl Fn(&Self) -> Start,
    ) -> Option<u32> {
        let map = view.map();
        let is_best = |index| match (self.holes.most, view.frame(index)) {
            (1, frame) => map.is_best(migrate, order, start(self), frame),
            (_, frame) => map.is_packed(migrate, frame),
        };
        let place = self.holes.find(Kind::new(order, migrate), is_best)?;
        Some(self.holes.take(place).0)
    }

    /// Frees a block that is not of the pageblock of which blocks stay: it is kept, and another goes into the map.
    /// How many frames went there.
    pub(super) fn put_apart<P: Platform>(
        &mut self,
        view: MapView<'_, P>,
        (order, migrate): (Order, MigrateType),
        index: u32,
    ) -> u64 {
        let (shape, frame) = (view.extent().1, view.frame(index));
        if self.holes.has_beside(index, shape.order())
            && let Some(old) = self.holes.take_beside(index, shape.order())
        {
            // More of the pageblock is free from now on.
            return self.give_up(view, old) + self.put_gone(view, index, order, migrate);
        }
        let may = (self.holes.most == 1 || view.map().is_packed(migrate, frame))
            && !self.stack.is_kept_to_itself(migrate, frame.pageblock(shape))
            && migrate.index() < NR_CACHED_TYPES
            && order < self.whole_order
            && order.size() <= self.size.high
            && view.zone.slack() >= self.margin() + order.frames()
            && view.map().is_single(migrate, order, frame);
        if !may {
            return self.put_gone(view, index, order, migrate);
        }
        self.count_keepers(view);
        let mut gone = 0;
        while let Some(oldest) = self.holes.make_room(order, self.size.high) {
            gone += self.give_up(view, oldest);
        }
        self.holes.add(index, Kind::new(order, migrate));
        gone
    }

    /// Looks at how many CPUs keep some, of which this is one.
    #[inline(always)]
    fn count_keepers<P: Platform>(&mut self, view: MapView<'_, P>) {
        let keepers = view.keepers();
        if keepers != self.holes.keepers || self.holes.keeps != DRAINS {
            if core::mem::replace(&mut self.holes.keeps, DRAINS) == 0 {
                view.add_keepers(1);
            }
            self.holes.set_keepers(view.keepers(), view.extent().1);
        }
    }

    fn give_up<P: Platform>(&mut self, view: MapView<'_, P>, (index, kind): (u32, Kind)) -> u64 {
        self.put_gone(view, index, kind.order(), kind.migrate())
    }

    /// Puts the blocks that were kept into the map; how many frames.
    pub(super) fn drain_holes<P: Platform>(&mut self, view: MapView<'_, P>) -> u64 {
        match self.holes.keeps {
            0 => {}
            1 => self.stop_keeping(view),
            _ => self.holes.keeps -= 1,
        }
        let mut gone = 0;
        while self.holes.frames > 0 {
            let (index, kind) = self.holes.take(0);
            self.put_block(view, index, kind.order());
            gone += kind.order().frames();
        }
        gone
    }

    /// The same of a CPU that keeps none from now on.
    pub(super) fn leave_holes<P: Platform>(&mut self, view: MapView<'_, P>) -> u64 {
        if self.holes.keeps > 0 {
            self.stop_keeping(view);
        }
        self.drain_holes(view)
    }

    fn stop_keeping<P: Platform>(&mut self, view: MapView<'_, P>) {
        view.add_keepers(-1);
        self.holes.keeps = 0;
    }
}

//! A zone whose free memory is a map: where in the tables its words are.

use super::layout::{LINES, MapPlace, Offsets, SECTIONS, SUMMARIES};
use super::shape::{Frame, MapShape, Pageblock, SECTION};
use super::{FreeMap, Start};
use crate::boot::plan::{Plan, ZoneSpec};
use crate::platform::{AtomicWord, Platform};
use crate::types::units::{Order, ZoneId};
use crate::zone::tables::{NR_FREE_WORDS, ZoneTables};
use crate::zone::{ZoneEvents, ZoneGuard, ZoneInstance, ZoneView};
use core::ops::Range;
use core::sync::atomic::Ordering::Relaxed;

/// Free memory as a [map](super).
#[derive(Clone, Copy, Debug)]
pub struct Mapped;

/// A zone with a map.
pub(crate) type MapView<'a, P> = ZoneView<'a, P, Mapped>;
/// The lock of a zone with a map is held.
pub(super) type MapGuard<'a, P> = ZoneGuard<'a, P, Mapped>;

/// Counters that CPUs add to without the lock. Relaxed: each is a sum.
pub(super) struct MapEvents<P: Platform> {
    pub(super) claimed: P::Word,
    pub(super) stolen: P::Word,
    pub(super) direct_alloc: P::Word,
    pub(super) direct_free: P::Word,
    pub(super) refused: P::Word,
}

/// What a zone has of its map beside the lock.
pub struct MapPart<P: Platform> {
    /// What it is of, and where its words are in the slices, and in the frame table's words.
    pub(super) place: MapPlace,
    /// The table's index of the map's frame 0.
    pub(super) first: u32,
    pub(super) events: MapEvents<P>,
    /// Pageblocks in the high-atomic reserve, and the most it may have. Written under the zone lock.
    pub(super) reserve: P::Word,
    pub(super) reserve_limit: P::Word,
    /// CPUs that keep blocks of the zone which they freed last.
    keepers: P::Word,
}

impl<P: Platform> MapPart<P> {
    pub(super) fn vacant() -> Self {
        let [claimed, stolen, direct_alloc, direct_free, refused] = P::Word::zeros();
        Self {
            place: MapPlace { shape: MapShape::LEAST, at: Offsets::default(), zone: None },
            first: 0,
            events: MapEvents { claimed, stolen, direct_alloc, direct_free, refused },
            reserve: P::Word::new(0),
            reserve_limit: P::Word::new(0),
            keepers: P::Word::new(0),
        }
    }

    /// Takes over where its words are; `used` counts those given out.
    pub(super) fn settle(
        &mut self,
        plan: &Plan,
        (spec, id): (&ZoneSpec, ZoneId),
        used: &mut [u64; NR_FREE_WORDS],
    ) {
        let (first, shape) = extent(plan, spec);
        self.first = first;
        // No truncation: each is less than the frames of the table, which are fewer than 2^32.
        let at = Offsets {
            lines: first / 64,
            sections: used[SECTIONS] as u32,
            summaries: used[SUMMARIES] as u32,
            types: first >> shape.order().get(),
        };
        self.place = MapPlace { shape, at, zone: Some(id) };
        used[SECTIONS] += shape.section_words() as u64;
        used[SUMMARIES] += shape.summary_words() as u64;
    }

    pub(super) fn sum(&self, events: ZoneEvents) -> ZoneEvents {
        let own = &self.events;
        ZoneEvents {
            claimed: own.claimed.load(Relaxed),
            stolen: own.stolen.load(Relaxed),
            direct_alloc: own.direct_alloc.load(Relaxed),
            direct_free: own.direct_free.load(Relaxed),
            refused: own.refused.load(Relaxed),
            ..events
        }
    }
}

/// The map's frame 0, a multiple of a section and of the largest block, and its shape.
fn extent(plan: &Plan, spec: &ZoneSpec) -> (u32, MapShape) {
    let order = plan.config().pageblock_order;
    let step = (SECTION << order.get()).max(Order::MAX.size());
    let index = |pfn: crate::Pfn| (pfn.get() - plan.base().get()) as u32;
    let first = index(spec.start) / step * step;
    let pageblocks = (index(spec.end) - first) >> order.get();
    (first, MapShape::new(order, pageblocks).unwrap_or(MapShape::LEAST))
}

pub(super) fn words(plan: &Plan) -> [u64; NR_FREE_WORDS] {
    let shapes = || plan.zones().iter().map(|spec| extent(plan, spec).1);
    let mut words = [0; NR_FREE_WORDS];
    words[LINES] = plan.frames().div_ceil(64);
    words[SECTIONS] = shapes().map(|shape| shape.section_words() as u64).sum();
    words[SUMMARIES] = shapes().map(|shape| shape.summary_words() as u64).sum();
    words
}

/// Lines and sections come with the memory; the levels above are few.
pub(super) const BY_FRAMES: [bool; NR_FREE_WORDS] = [true, true, false];

/// See [`FreeMemory::words_of`](crate::zone::FreeMemory::words_of). Zones whose memory lies between that of
/// another one have both a section for it.
pub(super) fn words_of(plan: &Plan, frames: Range<u64>, visit: &mut dyn FnMut(usize, Range<u64>)) {
    visit(LINES, frames.start / 64..frames.end.div_ceil(64));
    let mut used = 0;
    for spec in plan.zones() {
        let (first, shape) = extent(plan, spec);
        let (first, order) = (u64::from(first), shape.order());
        let end = first + u64::from(shape.pageblocks()) * order.frames();
        let (from, to) = (frames.start.max(first), frames.end.min(end));
        if from < to {
            let size = u64::from(SECTION) * order.frames();
            let stride = shape.section_stride() as u64;
            let sections = (from - first) / size..(to - first).div_ceil(size);
            visit(SECTIONS, used + sections.start * stride..used + sections.end * stride);
        }
        used += shape.section_words() as u64;
    }
}

impl<P: Platform> ZoneInstance<P, Mapped> {
    /// The zone's map over its tables.
    #[inline(always)]
    pub(super) fn map_over<'m>(&'m self, table: &'m ZoneTables<'m, P>) -> FreeMap<'m, P> {
        FreeMap::over(table, &self.part.place)
    }
}

impl<'a, P: Platform> MapView<'a, P> {
    /// The zone's map.
    #[inline(always)]
    pub(crate) fn map(&self) -> FreeMap<'a, P> {
        self.zone.map_over(self.table)
    }

    /// The same, out of line: for what is rare, and long enough.
    #[inline(never)]
    pub(crate) fn map_apart(&self) -> FreeMap<'a, P> {
        self.map()
    }

    /// Where in the map the frame at an index of the table is.
    #[inline(always)]
    pub(crate) fn frame(&self, index: u32) -> Frame {
        Frame(index - self.zone.part.first)
    }

    /// Where in the table a frame of the map is.
    #[inline(always)]
    pub(crate) fn index(&self, frame: Frame) -> u32 {
        self.zone.part.first + frame.0
    }

    /// The pageblock of an index.
    pub(super) fn pageblock(&self, index: u32) -> Pageblock {
        self.frame(index).pageblock(self.zone.part.place.shape)
    }

    /// How many CPUs keep blocks that they freed last: a hint.
    #[inline(always)]
    pub(crate) fn keepers(&self) -> u16 {
        // Truncated where there are more CPUs than that, which then keep more.
        self.zone.part.keepers.load(Relaxed) as u16
    }

    /// One more CPU keeps some, or one fewer.
    pub(crate) fn add_keepers(&self, change: i64) {
        self.zone.part.keepers.fetch_add(change as u64, Relaxed);
    }

    /// Orders and pageblocks of the map, and the index of its frame 0.
    #[inline(always)]
    pub(crate) fn extent(&self) -> (u32, MapShape) {
        (self.zone.part.first, self.zone.part.place.shape)
    }
}

/// Where a request begins that goes past the CPUs' pages.
pub(super) const ANYWHERE: Start = Start::new(Pageblock(0), 0);

//! The sanitised map: what can be asked of it, and what may change in it later.

use super::{MAX_RANGES, MapError, PfnRange, Range, RangeKind};
use crate::types::units::{FRAME_SIZE, NodeId, Order, Pfn};

/// What sanitising, carving and planning changed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct MapReport {
    /// Regions that were empty, or had no whole frame in them.
    pub dropped: u32,
    /// Regions that were merged into another of their kind and node.
    pub merged: u32,
    /// Frames that lost bytes at the edge of their region, and so are not memory.
    pub trimmed: u64,
    /// Frames that are reserved because a reserved region has a part of them.
    pub grown: u64,
    /// Frames that regions of different kinds or nodes listed, settled by precedence.
    pub overlaps: u64,
    /// Frames given out by [`SaneMap::carve`].
    pub carved: u64,
    /// Frames reserved because most of their pageblock belongs to another node.
    pub foreign: u64,
    /// Usable frames made CMA because CMA has a part of their pageblock.
    pub cma_widened: u64,
    /// Frames that cannot come later, and are reserved, because something else has a part of
    /// their pageblock: memory comes by whole pageblocks.
    pub offline_cut: u64,
}

impl MapReport {
    const NOTHING: Self = Self {
        dropped: 0,
        merged: 0,
        trimmed: 0,
        grown: 0,
        overlaps: 0,
        carved: 0,
        foreign: 0,
        cma_widened: 0,
        offline_cut: 0,
    };
}

/// A sanitised map: see the [module](super).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SaneMap {
    pub(super) list: RangeList,
    pub(super) report: MapReport,
}

impl SaneMap {
    /// A map of nothing, which is no sane one.
    pub(crate) const EMPTY: Self = Self { list: RangeList::EMPTY, report: MapReport::NOTHING };

    /// Forgets all.
    pub(super) fn clear(&mut self) {
        self.list.len = 0;
        self.report = MapReport::NOTHING;
    }

    /// The ranges: sorted, not overlapping, none empty.
    #[must_use]
    pub fn ranges(&self) -> &[Range] {
        self.list.as_slice()
    }

    /// The ranges the allocator manages from the start: usable and CMA.
    #[must_use]
    pub fn usable(&self) -> impl DoubleEndedIterator<Item = Range> + '_ {
        self.ranges().iter().copied().filter(|r| r.kind.is_usable())
    }

    /// The ranges that are memory from the start: all but the reserved and the offline.
    #[must_use]
    pub fn present(&self) -> impl DoubleEndedIterator<Item = Range> + '_ {
        self.ranges().iter().copied().filter(|r| r.kind.is_present())
    }

    /// The ranges that are memory now or later: all but the reserved.
    #[must_use]
    pub fn memory(&self) -> impl DoubleEndedIterator<Item = Range> + '_ {
        self.ranges().iter().copied().filter(|r| r.kind.is_memory())
    }

    /// From the first to the last frame that is memory now or later, holes included. Never empty.
    #[must_use]
    pub fn span(&self) -> PfnRange {
        let start = self.memory().next().map_or(Pfn::default(), |r| r.start);
        let end = self.memory().next_back().map_or(Pfn::default(), |r| r.end);
        PfnRange { start, end }
    }

    /// The frames a frame table has to cover: [`span`](Self::span), its start rounded down to
    /// the largest block and its end rounded up to a pageblock.
    #[must_use]
    pub fn table_span(&self, pageblock_order: Order) -> PfnRange {
        let span = self.span();
        PfnRange {
            start: round_down(span.start, Order::MAX.frames()),
            end: round_up(span.end, pageblock_order.frames()),
        }
    }

    /// How many frames the allocator manages from the start.
    #[must_use]
    pub fn frames_usable(&self) -> u64 {
        self.usable().map(|r| r.frames()).sum()
    }

    /// The range with this frame, if the map has one. O(log ranges).
    #[must_use]
    pub fn range_at(&self, pfn: Pfn) -> Option<Range> {
        let at = self.ranges().partition_point(|r| r.end <= pfn);
        self.ranges().get(at).copied().filter(|r| r.start <= pfn)
    }

    /// What this frame is, if the map says. O(log ranges).
    #[must_use]
    pub fn kind_at(&self, pfn: Pfn) -> Option<RangeKind> {
        self.range_at(pfn).map(|r| r.kind)
    }

    /// What was changed so far.
    #[must_use]
    pub const fn report(&self) -> MapReport {
        self.report
    }

    /// Takes `bytes`, rounded up to whole frames, from the highest usable range that has room
    /// for them, on `node` and below `below` if given, and reserves them. The first frame is
    /// aligned to a block of `align`. CMA is never taken.
    ///
    /// # Errors
    /// [`MapError::NoRoom`] if no usable range is large enough, [`MapError::CarveNothing`] for
    /// 0 bytes, [`MapError::TooManyRanges`] if the table of ranges is full. The map is
    /// unchanged then.
    pub fn carve(
        &mut self,
        bytes: u64,
        align: Order,
        node: Option<NodeId>,
        below: Option<Pfn>,
    ) -> Result<PfnRange, MapError> {
        let limit = PfnRange { start: Pfn::default(), end: below.unwrap_or(Pfn::new(u64::MAX)) };
        let within = |range: &Range| {
            node.is_none_or(|node| range.node == node).then(|| range.clip(limit)).flatten()
        };
        let place = self.room(bytes, align, within)?.map_err(|largest_frames| {
            let frames = bytes.div_ceil(FRAME_SIZE as u64);
            MapError::NoRoom { frames, align, node, below, largest_frames }
        })?;
        self.take(place)
    }

    /// Where in the highest usable range that has room for them `bytes` could be taken, of what `within` leaves of
    /// each range; else how many frames the largest of these has.
    pub(crate) fn room(
        &self,
        bytes: u64,
        align: Order,
        within: impl Fn(&Range) -> Option<Range>,
    ) -> Result<Result<PfnRange, u64>, MapError> {
        if bytes == 0 {
            return Err(MapError::CarveNothing);
        }
        let frames = bytes.div_ceil(FRAME_SIZE as u64);
        let candidates = self.usable().filter(|r| r.kind == RangeKind::Usable);
        let mut largest = 0;
        for range in candidates.filter_map(|range| within(&range)).rev() {
            largest = largest.max(range.frames());
            if range.frames() < frames {
                continue;
            }
            let end = Pfn::new(range.end.get() - frames);
            let start = round_down(end, align.frames());
            if start >= range.start {
                return Ok(Ok(PfnRange { start, end: Pfn::new(start.get() + frames) }));
            }
        }
        Ok(Err(largest))
    }

    /// Reserves what [`room`](Self::room) found.
    pub(crate) fn take(&mut self, place: PfnRange) -> Result<PfnRange, MapError> {
        self.report.carved += self.retype(place, RangeKind::Reserved, &|_| true)?;
        Ok(place)
    }

    /// Adds to the report.
    pub(crate) fn count(&mut self, change: impl FnOnce(&mut MapReport)) {
        change(&mut self.report);
    }

    /// Makes every piece of `span` that `which` chooses a piece of `kind`; returns how many
    /// frames that were. On an error nothing is changed. O(ranges). One function for all that choose: it is long.
    #[inline(never)]
    pub(crate) fn retype(
        &mut self,
        span: PfnRange,
        kind: RangeKind,
        which: &dyn Fn(&Range) -> bool,
    ) -> Result<u64, MapError> {
        let pieces = |range: Range| {
            let Some(inside) = range.clip(span).filter(which) else {
                return [range, Range::default(), Range::default()];
            };
            let before = Range { end: inside.start, ..range };
            let after = Range { start: inside.end, ..range };
            [before, Range { kind, ..inside }, after]
        };
        let mut count = Count::default();
        let all = self.ranges().iter().flat_map(|&range| pieces(range));
        all.into_iter().try_for_each(|piece| count.push(&piece))?;

        // In place: the ranges go up by the most that they can become more, one at each end of the
        // span, so what is written never reaches what is not read yet.
        let (len, mut changed) = (self.list.len, 0);
        self.list.ranges.copy_within(..len, SPLITS);
        self.list.len = 0;
        for at in SPLITS..SPLITS + len {
            let range = self.list.ranges[at];
            changed += range.clip(span).filter(which).map_or(0, |inside| inside.frames());
            pieces(range).into_iter().try_for_each(|piece| self.list.push(piece))?;
        }
        Ok(changed)
    }
}

/// How many ranges more there can be when a span changes: one at each of its ends.
const SPLITS: usize = 2;

/// How many ranges pieces make.
#[derive(Default)]
struct Count {
    last: Option<Range>,
    len: usize,
}

impl Count {
    /// As [`RangeList::push`].
    fn push(&mut self, range: &Range) -> Result<(), MapError> {
        if range.start >= range.end {
            return Ok(());
        }
        self.len += usize::from(!self.last.is_some_and(|last| last.goes_on_with(range)));
        self.last = Some(*range);
        if self.len > MAX_RANGES {
            Err(MapError::TooManyRanges { start: range.start })
        } else {
            Ok(())
        }
    }
}

impl Range {
    /// Whether `next` starts where this one ends, and is of its kind and node.
    fn goes_on_with(&self, next: &Self) -> bool {
        (self.end, self.kind, self.node) == (next.start, next.kind, next.node)
    }
}

/// Ranges in ascending order, at most [`MAX_RANGES`]; the rest is room to change them in.
#[derive(Clone, Debug)]
pub(super) struct RangeList {
    ranges: [Range; MAX_RANGES + SPLITS],
    len: usize,
}

impl RangeList {
    pub(super) const EMPTY: Self = Self {
        ranges: [Range {
            start: Pfn::new(0),
            end: Pfn::new(0),
            kind: RangeKind::Usable,
            node: NodeId(0),
        }; MAX_RANGES + SPLITS],
        len: 0,
    };

    fn as_slice(&self) -> &[Range] {
        &self.ranges[..self.len]
    }

    /// Appends a range, or grows the last one if it is of the same kind and node and ends
    /// where this one starts. An empty range is ignored.
    #[inline(never)]
    pub(super) fn push(&mut self, range: Range) -> Result<(), MapError> {
        if range.start >= range.end {
            return Ok(());
        }
        if let Some(last) = self.ranges[..self.len].last_mut()
            && last.goes_on_with(&range)
        {
            last.end = range.end;
            return Ok(());
        }
        if self.len >= MAX_RANGES {
            return Err(MapError::TooManyRanges { start: range.start });
        }
        self.ranges[self.len] = range;
        self.len += 1;
        Ok(())
    }
}

impl PartialEq for RangeList {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for RangeList {}

/// The multiple of `unit` (a power of two) at or below `pfn`.
pub(crate) const fn round_down(pfn: Pfn, unit: u64) -> Pfn {
    Pfn::new(pfn.get() & !(unit - 1))
}

/// The multiple of `unit` (a power of two) at or above `pfn`; saturates at the highest.
pub(crate) const fn round_up(pfn: Pfn, unit: u64) -> Pfn {
    round_down(Pfn::new(pfn.get().saturating_add(unit - 1)), unit)
}

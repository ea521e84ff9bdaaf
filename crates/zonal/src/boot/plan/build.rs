//! The steps of planning; the rules are in [`crate::plan`].

use super::{Config, Marks, MovableShare, Plan, PlanError, ZoneSpec};
use crate::boot::map::{MapError, PfnRange, Range, RangeKind, SaneMap, round_down, round_up};
use crate::boot::plan::OnNode;
use crate::boot::watermark::{MinFree, lowmem_reserve, mul_div};
use crate::boot::zonelist::{MAX_NODES, MAX_ZONES, Zonelist};
use crate::types::units::{FRAME_SIZE, NodeId, NodeMask, Order, Pfn, ZoneId};
use crate::types::zone_type::{NR_ZONE_TYPES, ZoneType};

/// The most frames that a table covers: the index behind each of its largest blocks is a `u32` too.
pub(super) const MOST_FRAMES: u64 = u32::MAX as u64 - Order::MAX.frames();

/// See [`Plan::new`]; in place, over the map that the plan has.
pub(super) fn build(
    plan: &mut Plan,
    config: &Config,
    split: impl Fn(&Config, ZoneType, &OnNode) -> u8,
) -> Result<(), PlanError> {
    config.check()?;
    let map = &mut plan.map;
    cut_offline(map, config.pageblock_order)?;
    reserve_foreign(map, config.pageblock_order)?;
    widen_cma(map, config.pageblock_order)?;
    // Both steps leave at least one usable frame: the winner of a pageblock keeps its own.
    let span = map.table_span(config.pageblock_order);
    if span.frames() > MOST_FRAMES {
        return Err(PlanError::TooLarge { span });
    }
    plan.config = *config;
    plan.span = span;
    plan.zones.fill(ZoneSpec::NOTHING);
    (plan.zone_count, plan.vacant, plan.nodes) = (0, 0, NodeMask::NONE);
    make_zones(plan, split)?;
    set_marks(plan)?;
    let Plan { zones, zone_count, zonelists, config, .. } = plan;
    let zones = &zones[..usize::from(*zone_count)];
    for (node, list) in zonelists.iter_mut().enumerate() {
        *list =
            Zonelist::build(NodeId(node as u8), config.zonelist_order, &config.distances, zones);
    }
    Ok(())
}

/// Takes `bytes` for tables out of a plan's usable memory: see [`Draft::carve`](super::Draft::carve).
pub(super) fn carve(
    plan: &mut Plan,
    bytes: u64,
    node: Option<NodeId>,
    below: Option<Pfn>,
) -> Result<PfnRange, PlanError> {
    let end = below.unwrap_or(Pfn::new(u64::MAX));
    let zones = plan.zones();
    let clip = |range: &Range, end| range.clip(PfnRange { start: Pfn::default(), end });
    let wanted = |range: &Range| node.is_none_or(|node| range.node == node);
    let fixed = |range: &Range| {
        let mut movable = zones.iter().filter(|z| z.zone_type == ZoneType::Movable);
        let start = movable.find(|zone| zone.node == range.node).map(|zone| zone.start);
        wanted(range).then(|| clip(range, start.map_or(end, |start| start.min(end)))).flatten()
    };
    let any = |range: &Range| wanted(range).then(|| clip(range, end)).flatten();
    let align = Order::ZERO;
    let mut place = plan.map.room(bytes, align, fixed)?;
    if place.is_err() {
        place = plan.map.room(bytes, align, any)?;
    }
    let place = place.map_err(|largest_frames| {
        let frames = bytes.div_ceil(FRAME_SIZE as u64);
        MapError::NoRoom { frames, align, node, below, largest_frames }
    })?;
    let of = plan.map.range_at(place.start).map(|range| range.node);
    plan.map.take(place)?;
    let Plan { zones, zone_count, vacant, .. } = plan;
    let zones = &mut zones[..usize::from(*zone_count)];
    for zone in zones.iter_mut().filter(|zone| Some(zone.node) == of) {
        let taken = zone.span().intersect(place).frames();
        zone.present -= taken;
        zone.managed -= taken;
        *vacant |= u64::from(zone.managed == 0) << zone.id.0;
    }
    set_marks(plan)?;
    Ok(place)
}

/// The pageblock with this frame.
fn pageblock_of(pfn: Pfn, order: Order) -> PfnRange {
    let start = round_down(pfn, order.frames());
    PfnRange { start, end: Pfn::new(start.get().saturating_add(order.frames())) }
}

/// The first range that starts at `from` or later, of those that `which` chooses.
fn next_range(map: &SaneMap, from: Pfn, which: impl Fn(&Range) -> bool) -> Option<Range> {
    map.ranges().iter().copied().find(|r| r.start >= from && which(r))
}

/// Reserves what may come later where it has not the whole of a pageblock.
fn cut_offline(map: &mut SaneMap, order: Order) -> Result<(), PlanError> {
    let mut next = Pfn::default();
    while let Some(range) = next_range(map, next, |r| r.kind == RangeKind::Offline) {
        next = range.end;
        let first = round_up(range.start, order.frames()).min(range.end);
        let ragged = [
            PfnRange { start: range.start, end: first },
            PfnRange { start: round_down(range.end, order.frames()).max(first), end: range.end },
        ];
        for part in ragged.into_iter().filter(|part| !part.is_empty()) {
            let cut = map.retype(part, RangeKind::Reserved, &|_| true)?;
            map.count(|report| report.offline_cut += cut);
        }
    }
    Ok(())
}

/// Reserves the frames of pageblocks that mostly belong to another node.
fn reserve_foreign(map: &mut SaneMap, order: Order) -> Result<(), PlanError> {
    // Only a pageblock in which a range starts can be shared. The ranges change on the way, but
    // only within pageblocks that have been dealt with.
    let mut next = Pfn::default();
    while let Some(Range { start, .. }) = next_range(map, next, |r| r.kind.is_present()) {
        let block = pageblock_of(start, order);
        next = Pfn::new(start.get() + 1);
        let mut frames = [0_u64; MAX_NODES];
        for range in map.present().filter_map(|r| r.clip(block)) {
            frames[usize::from(range.node.0)] += range.frames();
        }
        if frames.iter().filter(|&&n| n > 0).count() < 2 {
            continue;
        }
        // The last maximum of the reversed order is the lowest node.
        let owner = (0..MAX_NODES).rev().max_by_key(|&node| frames[node]);
        let owner = NodeId(owner.unwrap_or(0) as u8);
        let foreign =
            map.retype(block, RangeKind::Reserved, &|r| r.kind.is_present() && r.node != owner)?;
        map.count(|report| report.foreign += foreign);
    }
    Ok(())
}

/// Makes usable frames CMA where they share a pageblock with CMA. Frames to be reclaimed later
/// stay what they are until then.
fn widen_cma(map: &mut SaneMap, order: Order) -> Result<(), PlanError> {
    // Up to here all is done, at the edge of a pageblock. A range that was widened may have become one
    // with the next, which ends beyond: so it is the end that says what is left.
    let mut done = Pfn::default();
    while let Some(range) =
        map.ranges().iter().copied().find(|r| r.kind == RangeKind::Cma && r.end > done)
    {
        let span = PfnRange {
            start: round_down(range.start, order.frames()).max(done),
            end: round_up(range.end, order.frames()),
        };
        done = span.end;
        let widened = map.retype(span, RangeKind::Cma, &|r| r.kind == RangeKind::Usable)?;
        map.count(|report| report.cma_widened += widened);
    }
    Ok(())
}

/// What a node has within some limits.
struct Survey {
    /// From the first to the last pageblock with memory, now or later.
    span: PfnRange,
    present: u64,
    managed: u64,
    later: u64,
}

/// Looks up what `node` has in `window`; `None` if nothing.
fn survey(plan: &Plan, node: NodeId, window: PfnRange) -> Option<Survey> {
    let size = plan.config.pageblock_order.frames();
    let mut found: Option<Survey> = None;
    for range in own(plan, node, window) {
        let survey = found.get_or_insert(Survey {
            span: PfnRange { start: round_down(range.start, size), end: range.end },
            present: 0,
            managed: 0,
            later: 0,
        });
        survey.span.end = round_up(range.end, size);
        match range.kind {
            RangeKind::Offline => survey.later += range.frames(),
            kind => {
                survey.present += range.frames();
                survey.managed += if kind.is_usable() { range.frames() } else { 0 };
            }
        }
    }
    found
}

/// The memory of `node` in `window`, now or later.
fn own(plan: &Plan, node: NodeId, window: PfnRange) -> impl DoubleEndedIterator<Item = Range> + '_ {
    plan.map.memory().filter(move |r| r.node == node).filter_map(move |r| r.clip(window))
}

/// Where each zone type of `node` may lie. The windows do not overlap and ascend with the type,
/// but that Movable is at the end of the highest other type there is.
fn windows(plan: &Plan, node: NodeId) -> [PfnRange; NR_ZONE_TYPES] {
    let size = plan.config.pageblock_order.frames();
    let dma = round_down(plan.config.dma_limit, size);
    let dma32 = round_down(plan.config.dma32_limit, size);
    let mut windows = [
        PfnRange { start: Pfn::default(), end: dma },
        PfnRange { start: dma, end: dma32 },
        PfnRange { start: dma32, end: Pfn::new(u64::MAX) },
        PfnRange::default(),
    ];
    let below_movable = ZoneType::Movable.index();
    let top = windows[..below_movable].iter().rposition(|&w| own(plan, node, w).next().is_some());
    let (MovableShare::Frames(wanted), Some(top)) = (plan.config.movable, top) else {
        return windows;
    };
    let Some(start) = movable_start(plan, node, windows[top], wanted) else { return windows };
    windows[below_movable] = PfnRange { start, end: windows[top].end };
    windows[top].end = start;
    windows
}

/// Where the last `wanted` frames of `node` in `window` start, rounded up to a pageblock; the
/// start of the window if there are fewer. `None` if none is wanted.
fn movable_start(plan: &Plan, node: NodeId, window: PfnRange, wanted: u64) -> Option<Pfn> {
    if wanted == 0 {
        return None;
    }
    let mut missing = wanted;
    for range in own(plan, node, window).rev() {
        if range.frames() >= missing {
            let start = Pfn::new(range.end.get() - missing);
            return Some(round_up(start, plan.config.pageblock_order.frames()));
        }
        missing -= range.frames();
    }
    Some(window.start)
}

/// Makes the zones, without their watermarks and reserves.
fn make_zones(
    plan: &mut Plan,
    split: impl Fn(&Config, ZoneType, &OnNode) -> u8,
) -> Result<(), PlanError> {
    let mut made = 0;
    let with_memory = |node: &u8| plan.map.memory().any(|range| range.node.0 == *node);
    let nodes = (0..MAX_NODES as u8).filter(with_memory).count() as u32;
    for node in (0..MAX_NODES).map(|node| NodeId(node as u8)) {
        let (windows, mut more_zones) = (windows(plan, node), 0);
        for zone_type in ZoneType::ALL {
            let Some(whole) = survey(plan, node, windows[zone_type.index()]) else { continue };
            plan.nodes = plan.nodes.with(node);
            let present = whole.present + whole.later;
            let there = OnNode { node, nodes, present, more_zones };
            let wanted = split(&plan.config, zone_type, &there);
            let (mut instance, mut parts) = (0, 0);
            for part in Parts::new(&plan.config, &whole, wanted) {
                parts += 1;
                let Some(own) = survey(plan, node, part) else { continue };
                if let Some(place) = plan.zones.get_mut(made) {
                    *place = ZoneSpec {
                        id: ZoneId(made as u8),
                        node,
                        zone_type,
                        instance,
                        start: own.span.start,
                        end: own.span.end,
                        present: own.present,
                        managed: own.managed,
                        later: own.later,
                        ..ZoneSpec::default()
                    };
                }
                plan.vacant |= u64::from(own.managed == 0).checked_shl(made as u32).unwrap_or(0);
                made += 1;
                instance += 1;
            }
            // Also those without memory, as in the source.
            more_zones += parts - 1;
        }
    }
    if made > MAX_ZONES {
        return Err(PlanError::TooManyZones { zones: made });
    }
    plan.zone_count = made as u8;
    Ok(())
}

/// The parts into which the span of a zone type of a node is cut, in turn.
struct Parts {
    rest: PfnRange,
    /// How many more there are at most.
    count: u64,
    /// Frames of a part, before its end is rounded up.
    step: u64,
    /// The inner boundaries are multiples of this.
    unit: u64,
}

impl Parts {
    /// Cuts the span of `whole` in `count` parts, or fewer if there is not one largest block of memory
    /// for each or rounding leaves nothing for the last.
    fn new(config: &Config, whole: &Survey, count: u8) -> Self {
        let (memory, block) = (whole.present + whole.later, Order::MAX.frames());
        let count = u64::from(count).min(memory / block).max(1);
        let step = whole.span.frames() / count;
        let by = |unit| Self { rest: whole.span, count, step, unit };
        let align = config.split.align;
        let aligned = step >= align && by(align).count() as u64 == count;
        by(if aligned { align } else { block })
    }
}

impl Iterator for Parts {
    type Item = PfnRange;

    fn next(&mut self) -> Option<PfnRange> {
        let PfnRange { start, end } = self.rest;
        if self.count == 0 || self.rest.is_empty() {
            return None;
        }
        self.count -= 1;
        let cut = round_up(Pfn::new(start.get() + self.step), self.unit).min(end);
        let part = PfnRange { start, end: if self.count == 0 { end } else { cut } };
        self.rest.start = part.end;
        Some(part)
    }
}

/// Fills in the watermarks and the lowmem reserves.
fn set_marks(plan: &mut Plan) -> Result<(), PlanError> {
    let Plan { map, config, zones, zone_count, .. } = plan;
    let zones = &mut zones[..usize::from(*zone_count)];
    let managed: u64 = zones.iter().map(|z| z.managed).sum();
    if managed == 0 {
        let regions = map.ranges().len();
        return Err(PlanError::Map(MapError::NothingUsable { regions }));
    }
    let low = zones.iter().filter(|z| z.zone_type != ZoneType::Movable);
    let lowmem: u64 = low.map(|z| z.managed).sum();
    if lowmem == 0 {
        return Err(PlanError::AllMovable { managed });
    }
    let marks = config.watermarks;
    let frames = marks.min_free_frames(lowmem);
    if marks.min_free != MinFree::None && frames >= lowmem {
        return Err(PlanError::MinFree { frames, lowmem });
    }

    let shares = Shares::new(zones, |zone| zones[zone].managed);
    for zone in zones {
        let Marks { watermarks, reserve } = shares.marks(config, zone, zone.managed);
        zone.watermarks = watermarks;
        zone.lowmem_reserve = reserve;
    }
    Ok(())
}

/// How the managed frames are shared out, which watermarks and reserves follow from.
pub(crate) struct Shares {
    by_type: [[u64; NR_ZONE_TYPES]; MAX_NODES],
    lowmem: u64,
}

impl Shares {
    /// Of zones of which zone `n` manages `managed(n)` frames.
    #[inline(never)]
    pub(super) fn new(zones: &[ZoneSpec], managed: impl Fn(usize) -> u64) -> Self {
        let mut by_type = [[0; NR_ZONE_TYPES]; MAX_NODES];
        for (at, zone) in zones.iter().enumerate() {
            by_type[usize::from(zone.node.0)][zone.zone_type.index()] += managed(at);
        }
        let low = by_type.iter().flat_map(|of_node| &of_node[..ZoneType::Movable.index()]);
        Self { lowmem: low.sum(), by_type }
    }

    /// What one of the zones keeps back, which manages `own` frames.
    pub(crate) fn marks(&self, config: &Config, zone: &ZoneSpec, own: u64) -> Marks {
        let ty = zone.zone_type.index();
        let of_node = self.by_type[usize::from(zone.node.0)];
        Marks {
            watermarks: config.watermarks.marks(zone.zone_type, own, self.lowmem),
            // The reserve of the type, shared out over its instances.
            reserve: lowmem_reserve(config.lowmem_ratio, of_node)[ty]
                .map(|reserve| mul_div(reserve, own, of_node[ty])),
        }
    }
}

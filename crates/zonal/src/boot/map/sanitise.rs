//! From regions in bytes to ranges of frames; the rules are in [`crate::map`].

use super::{
    MapError, MapReport, MemoryMap, PfnRange, PhysAddr, Range, RangeKind, Region, SaneMap,
};
use crate::types::units::{FRAME_SHIFT, FRAME_SIZE, Pfn};

/// Sanitises the regions of `map` into `sane`. `map` is its workspace, and has no regions after it. Every
/// region has been checked.
pub(super) fn sanitise(map: &mut MemoryMap, sane: &mut SaneMap) -> Result<(), MapError> {
    let given = core::mem::take(&mut map.len);
    sane.clear();
    let regions = regions(&mut map.regions[..given], &mut sane.report);
    settle(regions, sane)?;
    if sane.usable().next().is_none() {
        return Err(MapError::NothingUsable { regions: given });
    }
    Ok(())
}

/// What one region, or several of the same kind and node that touch, says about frames: a region
/// whose address and length are frames. The regions of a map overlap only where kind or node differ.
#[derive(Clone, Copy)]
struct Regions<'a>(&'a [Region]);

impl Regions<'_> {
    fn iter(self) -> impl Iterator<Item = Range> {
        self.0.iter().map(|region| Range {
            start: Pfn::new(region.start.0),
            end: Pfn::new(region.start.0 + region.bytes),
            kind: region.kind,
            node: region.node,
        })
    }

    /// The first frame above `after` where a region starts or ends; without `after` the first of all.
    fn next_edge(self, after: Option<Pfn>) -> Option<Pfn> {
        let edges = self.iter().flat_map(|region| [region.start, region.end]);
        edges.filter(|&edge| after.is_none_or(|after| edge > after)).min()
    }
}

/// Merges regions of one kind and node, in bytes, so that a frame which two neighbours share is
/// not lost to both; then rounds to frames. All in place.
fn regions<'a>(regions: &'a mut [Region], report: &mut MapReport) -> Regions<'a> {
    let mut len = 0;
    for at in 0..regions.len() {
        if regions[at].bytes == 0 {
            report.dropped += 1;
        } else {
            regions[len] = regions[at];
            len += 1;
        }
    }
    sort(&mut regions[..len]);

    let (mut at, mut kept) = (0, 0);
    while at < len {
        let first = regions[at];
        let mut last = last_byte(&first);
        at += 1;
        while at < len {
            let next = &regions[at];
            let touches = last.checked_add(1).is_none_or(|end| next.start.0 <= end);
            if (next.kind, next.node) != (first.kind, first.node) || !touches {
                break;
            }
            last = last.max(last_byte(next));
            report.merged += 1;
            at += 1;
        }
        let range = to_frames(&first, last, report);
        if range.frames() > 0 {
            let start = PhysAddr(range.start.get());
            regions[kept] = Region { start, bytes: range.frames(), ..first };
            kept += 1;
        } else {
            report.dropped += 1;
        }
    }
    Regions(&regions[..kept])
}

/// By kind, node, address. Firmware has them nearly sorted, and an insertion needs no room.
fn sort(regions: &mut [Region]) {
    let key = |region: &Region| (region.kind.precedence(), region.node, region.start);
    for sorted in 1..regions.len() {
        let place = regions[..sorted].partition_point(|r| key(r) <= key(&regions[sorted]));
        regions[place..=sorted].rotate_right(1);
    }
}

/// The last byte of a region that is not empty; cannot overflow, the region has been checked.
fn last_byte(region: &Region) -> u64 {
    region.start.0.saturating_add(region.bytes - 1)
}

/// The frames of the bytes from the start of `first` to `last`: outwards for reserved ones,
/// inwards for memory. May be empty.
fn to_frames(first: &Region, last: u64, report: &mut MapReport) -> Range {
    let start = first.start.0;
    let offset = FRAME_SIZE as u64 - 1;
    let cut = [start & offset != 0, last & offset != offset];
    let touched = PfnRange::new(Pfn::containing(start), Pfn::new((last >> FRAME_SHIFT) + 1));
    // A region within one frame may be cut at both ends, but it is one frame.
    let partial = u64::from(cut[0]) + u64::from(cut[1]);
    let partial = partial.min(touched.frames());
    let frames = if first.kind == RangeKind::Reserved {
        report.grown += partial;
        touched
    } else {
        report.trimmed += partial;
        PfnRange::new(
            Pfn::new(touched.start.get() + u64::from(cut[0])),
            Pfn::new(touched.end.get() - u64::from(cut[1])),
        )
    };
    Range { start: frames.start, end: frames.end, kind: first.kind, node: first.node }
}

/// Cuts the regions at every edge of any of them, and lets the strongest have each piece.
fn settle(regions: Regions<'_>, sane: &mut SaneMap) -> Result<(), MapError> {
    let mut edge = regions.next_edge(None);
    while let Some(start) = edge {
        edge = regions.next_edge(edge);
        let Some(end) = edge else { break };
        if let Some(winner) = winner(regions, PfnRange { start, end }, &mut sane.report)? {
            sane.list.push(winner)?;
        }
    }
    Ok(())
}

/// Who gets a piece that each region has all or nothing of.
fn winner(
    regions: Regions<'_>,
    piece: PfnRange,
    report: &mut MapReport,
) -> Result<Option<Range>, MapError> {
    let on_piece = || regions.iter().filter(|c| c.pfns().contains(piece.start));
    // The lowest node among equals, so that the order of the input does not matter.
    let strongest = on_piece().max_by_key(|c| (c.kind.precedence(), core::cmp::Reverse(c.node)));
    let Some(strongest) = strongest else { return Ok(None) };
    let other = on_piece().find(|c| c.node != strongest.node);
    if let Some(other) = other.filter(|_| strongest.kind != RangeKind::Reserved) {
        let mut nodes = [strongest.node, other.node];
        nodes.sort_unstable();
        return Err(MapError::NodeConflict { frames: piece, nodes });
    }
    if on_piece().count() > 1 {
        report.overlaps += piece.frames();
    }
    Ok(Some(Range { start: piece.start, end: piece.end, ..strongest }))
}

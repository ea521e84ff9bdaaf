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

/// Whether the first and the last frame of a region are its own in part only. Beside a length in frames, which is
/// shorter than this.
const CUT: [u64; 2] = [1 << 62, 1 << 63];

/// One of them.
struct Extent {
    /// The frames that are wholly its own.
    range: Range,
    /// All that it has a part of: more only of [`RangeKind::ReclaimLater`].
    touched: PfnRange,
}

impl Regions<'_> {
    fn iter(self) -> impl Iterator<Item = Extent> {
        self.0.iter().map(|region| {
            let [first, last] = CUT.map(|cut| u64::from(region.bytes & cut != 0));
            let start = region.start.0;
            let end = start + (region.bytes & !(CUT[0] | CUT[1]));
            let touched = PfnRange::new(Pfn::new(start), Pfn::new(end));
            let start = Pfn::new(start + first);
            let end = Pfn::new((end - last).max(start.get()));
            Extent { range: Range { start, end, kind: region.kind, node: region.node }, touched }
        })
    }

    /// The first frame above `after` where a region starts or ends; without `after` the first of all.
    fn next_edge(self, after: Option<Pfn>) -> Option<Pfn> {
        let mut next: Option<Pfn> = None;
        for Extent { range, touched } in self.iter() {
            for edge in [touched.start, range.start, range.end, touched.end] {
                let is_after = after.is_none_or(|after| edge > after);
                if is_after && next.is_none_or(|next| edge < next) {
                    next = Some(edge);
                }
            }
        }
        next
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
        let region = to_frames(&first, last, report);
        if region.bytes > 0 {
            regions[kept] = region;
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
        for at in (1..=sorted).rev() {
            if key(&regions[at - 1]) <= key(&regions[at]) {
                break;
            }
            regions.swap(at - 1, at);
        }
    }
}

/// The last byte of a region that is not empty; cannot overflow, the region has been checked.
fn last_byte(region: &Region) -> u64 {
    region.start.0.saturating_add(region.bytes - 1)
}

/// The frames of the bytes from the start of `first` to `last`, as a region: outwards for reserved ones,
/// inwards for memory, with a mark of what is cut for memory that is in use yet. May be empty.
fn to_frames(first: &Region, last: u64, report: &mut MapReport) -> Region {
    let start = first.start.0;
    let offset = FRAME_SIZE as u64 - 1;
    let cut = [start & offset != 0, last & offset != offset];
    let touched = PfnRange::new(Pfn::containing(start), Pfn::new((last >> FRAME_SHIFT) + 1));
    // A region within one frame may be cut at both ends, but it is one frame.
    let partial = u64::from(cut[0]) + u64::from(cut[1]);
    let partial = partial.min(touched.frames());
    let (start, frames) = (touched.start.get(), touched.frames());
    let (start, bytes) = match first.kind {
        RangeKind::Reserved => {
            report.grown += partial;
            (start, frames)
        }
        RangeKind::ReclaimLater => {
            report.trimmed += partial;
            let marks = [0, 1].map(|end| u64::from(cut[end]) * CUT[end]);
            (start, frames | marks[0] | marks[1])
        }
        _ => {
            report.trimmed += partial;
            (start + u64::from(cut[0]), frames - partial)
        }
    };
    Region { start: PhysAddr(start), bytes, ..*first }
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

/// Who gets a piece that each region has all, a part, or nothing of.
fn winner(
    regions: Regions<'_>,
    piece: PfnRange,
    report: &mut MapReport,
) -> Result<Option<Range>, MapError> {
    let mut strongest: Option<Range> = None;
    let mut in_use = false;
    for Extent { range, touched } in regions.iter() {
        in_use |= touched.contains(piece.start) && range.kind == RangeKind::ReclaimLater;
        if !range.pfns().contains(piece.start) {
            continue;
        }
        // The lowest node among equals, so that the order of the input does not matter.
        let rank = |range: &Range| (range.kind.precedence(), core::cmp::Reverse(range.node));
        if strongest.is_none_or(|strongest| rank(&range) > rank(&strongest)) {
            strongest = Some(range);
        }
    }
    let Some(strongest) = strongest else { return Ok(None) };
    let mut others = 0;
    for Extent { range, .. } in regions.iter() {
        if !range.pfns().contains(piece.start) || range == strongest {
            continue;
        }
        others += 1;
        if range.node != strongest.node && strongest.kind != RangeKind::Reserved {
            let mut nodes = [strongest.node, range.node];
            nodes.sort_unstable();
            return Err(MapError::NodeConflict { frames: piece, nodes });
        }
    }
    if others > 0 {
        report.overlaps += piece.frames();
    }
    // A frame of memory that is in use in part is in use.
    let in_use = in_use && strongest.kind.is_usable();
    let kind = if in_use { RangeKind::ReclaimLater } else { strongest.kind };
    Ok(Some(Range { start: piece.start, end: piece.end, kind, ..strongest }))
}

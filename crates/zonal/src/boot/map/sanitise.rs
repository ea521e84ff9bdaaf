//! From regions in bytes to ranges of frames; the rules are in [`crate::map`].

use super::sane::RangeList;
use super::{MAX_RANGES, MapError, MapReport, PfnRange, Range, RangeKind, Region, SaneMap};
use crate::types::units::{FRAME_SHIFT, FRAME_SIZE, Pfn};

/// What one region, or several of the same kind and node that touch, says about frames. The
/// claims of a map overlap only where kind or node differ.
struct Claims {
    ranges: [Range; MAX_RANGES],
    len: usize,
}

impl Claims {
    fn as_slice(&self) -> &[Range] {
        &self.ranges[..self.len]
    }
}

/// See [`MemoryMap::sanitise`](super::MemoryMap::sanitise). Every region has been checked.
pub(super) fn sanitise(regions: &[Region]) -> Result<SaneMap, MapError> {
    let mut report = MapReport::default();
    let claims = claims(regions, &mut report);
    let list = settle(claims.as_slice(), &mut report)?;
    let map = SaneMap { list, report };
    if map.usable().next().is_none() {
        return Err(MapError::NothingUsable { regions: regions.len() });
    }
    Ok(map)
}

/// Merges regions of one kind and node, in bytes, so that a frame which two neighbours share is
/// not lost to both; then rounds to frames.
fn claims(regions: &[Region], report: &mut MapReport) -> Claims {
    let mut sorted = [Region::default(); MAX_RANGES];
    let mut len = 0;
    for &region in regions.iter().take(MAX_RANGES) {
        if region.bytes == 0 {
            report.dropped += 1;
        } else {
            sorted[len] = region;
            len += 1;
        }
    }
    let sorted = &mut sorted[..len];
    sorted.sort_unstable_by_key(|r| (r.kind.precedence(), r.node, r.start));

    let mut claims = Claims { ranges: [Range::default(); MAX_RANGES], len: 0 };
    let mut rest = &sorted[..];
    while let Some((&first, others)) = rest.split_first() {
        let mut last = last_byte(&first);
        rest = others;
        while let Some((next, others)) = rest.split_first() {
            let touches = last.checked_add(1).is_none_or(|end| next.start.0 <= end);
            if (next.kind, next.node) != (first.kind, first.node) || !touches {
                break;
            }
            last = last.max(last_byte(next));
            report.merged += 1;
            rest = others;
        }
        let range = to_frames(&first, last, report);
        if range.frames() > 0 {
            claims.ranges[claims.len] = range;
            claims.len += 1;
        } else {
            report.dropped += 1;
        }
    }
    claims
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

/// Cuts the claims at every edge of any of them, and lets the strongest have each piece.
fn settle(claims: &[Range], report: &mut MapReport) -> Result<RangeList, MapError> {
    let mut edges = [Pfn::default(); 2 * MAX_RANGES];
    for (pair, claim) in edges.chunks_exact_mut(2).zip(claims) {
        pair.copy_from_slice(&[claim.start, claim.end]);
    }
    let edges = &mut edges[..2 * claims.len()];
    edges.sort_unstable();

    let mut list = RangeList::EMPTY;
    for pair in edges.windows(2).filter(|pair| pair[0] < pair[1]) {
        let piece = PfnRange::new(pair[0], pair[1]);
        if let Some(winner) = winner(claims, piece, report)? {
            list.push(winner)?;
        }
    }
    Ok(list)
}

/// Who gets a piece that each claim has all or nothing of.
fn winner(
    claims: &[Range],
    piece: PfnRange,
    report: &mut MapReport,
) -> Result<Option<Range>, MapError> {
    let on_piece = || claims.iter().filter(|c| c.pfns().contains(piece.start));
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
    Ok(Some(Range { start: piece.start, end: piece.end, ..*strongest }))
}

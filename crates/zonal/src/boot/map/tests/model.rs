//! Sanitising random maps, against a model that looks at every eighth of every frame.

use super::*;
use std::string::String;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % limit
    }
}

const MODEL_FRAMES: usize = 256;
/// The model's regions start and end at eighths of a frame.
const EIGHTH: u64 = FRAME / 8;

/// What the frames are, decided frame by frame and eighth by eighth.
fn model(regions: &[Region], base: u64) -> Result<Vec<Option<(RangeKind, u8)>>, String> {
    // One bit for each kind and node.
    let bit = |kind: RangeKind, node: u8| 1_u16 << (kind as u8 * 4 + node);
    let mut eighths = [0_u16; MODEL_FRAMES * 8];
    for r in regions {
        let first = (r.start.0 - base) / EIGHTH;
        for eighth in first..first + r.bytes / EIGHTH {
            eighths[eighth as usize] |= bit(r.kind, r.node.0);
        }
    }
    let mut frames = Vec::new();
    for eighths in eighths.chunks(8) {
        let any = eighths.iter().fold(0, |a, b| a | b);
        let all = eighths.iter().fold(u16::MAX, |a, b| a & b);
        if let Some(node) = (0..4).find(|&node| any & bit(Reserved, node) != 0) {
            frames.push(Some((Reserved, node)));
            continue;
        }
        let claims: Vec<(RangeKind, u8)> = [ReclaimLater, Cma, Usable]
            .into_iter()
            .flat_map(|kind| (0..4).map(move |node| (kind, node)))
            .filter(|&(kind, node)| all & bit(kind, node) != 0)
            .collect();
        if claims.iter().any(|claim| claim.1 != claims[0].1) {
            return Err("two nodes".to_string());
        }
        // Memory that is in use in part is in use.
        let later = |&(kind, node): &(RangeKind, u8)| {
            let touched = (0..4).any(|node| any & bit(ReclaimLater, node) != 0);
            (if touched { ReclaimLater } else { kind }, node)
        };
        frames.push(claims.first().map(later));
    }
    let usable = |f: &Option<(RangeKind, u8)>| f.is_some_and(|f| f.0.is_usable());
    if frames.iter().any(usable) { Ok(frames) } else { Err("nothing".to_string()) }
}

#[test]
fn random_maps_agree_with_a_model() {
    let mut random = Random(2018);
    let mut outcomes = [0; 3];
    for round in 0..4000 {
        // At the bottom and at the very top of the address space.
        let base = if round % 2 == 0 { 0 } else { 0_u64.wrapping_sub(MODEL_FRAMES as u64 * FRAME) };
        let eighths = MODEL_FRAMES as u64 * 8;
        let length = [4, 40, 400, eighths][random.below(4) as usize];
        let one_node = random.below(3) > 0;
        let regions: Vec<Region> = (0..1 + random.below(24))
            .map(|_| {
                let start = random.below(eighths);
                let bytes = random.below(length).min(eighths - start) * EIGHTH;
                let kind = RegionKind::ALL[random.below(4) as usize];
                // Nodes at halves of the memory, and now and then the wrong one.
                let half = (start * 2 / eighths) as u8;
                let node = if one_node || random.below(8) == 0 { 0 } else { half };
                let node = if kind == Reserved { random.below(3) as u8 } else { node };
                let start = PhysAddr(base + start * EIGHTH);
                Region { start, bytes, kind, node: NodeId(node) }
            })
            .collect();
        let expected = model(&regions, base);
        match (sanitise(&regions), &expected) {
            (Ok(map), Ok(frames)) => {
                outcomes[0] += 1;
                check_against(&map, frames, base >> 12);
            }
            (Err(MapError::NodeConflict { .. }), Err(why)) if why == "two nodes" => {
                outcomes[1] += 1;
            }
            (Err(MapError::NothingUsable { .. }), Err(why)) if why == "nothing" => {
                outcomes[2] += 1;
            }
            (got, _) => panic!("{regions:?}\n{got:?}\n{expected:?}"),
        }
    }
    assert!(outcomes.iter().all(|&n| n > 100), "every outcome is tested: {outcomes:?}");
}

fn check_against(map: &SaneMap, frames: &[Option<(RangeKind, u8)>], base: u64) {
    for (n, expected) in frames.iter().enumerate() {
        let pfn = Pfn::new(base + n as u64);
        let got = map.range_at(pfn).map(|r| (r.kind, r.node.0));
        assert_eq!(got, *expected, "frame {n}");
    }
    let count = frames.iter().flatten().filter(|f| f.0.is_usable()).count();
    assert_eq!(map.frames_usable(), count as u64);
    assert!(map.ranges().iter().all(|r| r.start < r.end));
    for pair in map.ranges().windows(2) {
        assert!(pair[0].end <= pair[1].start, "sorted, not overlapping");
        let same = (pair[0].kind, pair[0].node) == (pair[1].kind, pair[1].node);
        assert!(!(same && pair[0].end == pair[1].start), "merged");
    }
}

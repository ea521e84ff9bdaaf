//! The write cache: what was written and is not on the medium yet, as ranges that do not touch.

use std::collections::BTreeMap;

use zonal_cfq::units::Sector;

/// The write cache.
#[derive(Debug, Default)]
pub(crate) struct WriteCache {
    /// First sector, and the one behind the last.
    ranges: BTreeMap<u64, u64>,
    sectors: u64,
    room: u64,
}

impl WriteCache {
    pub(crate) fn new(room: u64) -> Self {
        Self { room, ..Self::default() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Whether `sectors` more fit. An empty one takes any number, if it has room at all.
    pub(crate) fn has_room(&self, sectors: u64) -> bool {
        self.room > 0 && (self.is_empty() || self.sectors + sectors <= self.room)
    }

    /// Adds a range.
    pub(crate) fn add(&mut self, start: Sector, end: Sector) {
        let (mut start, mut end) = (start.0, end.0);
        while let Some((&first, &last)) = self.ranges.range(..=end).next_back() {
            if last < start {
                break;
            }
            self.ranges.remove(&first);
            self.sectors -= last - first;
            (start, end) = (start.min(first), end.max(last));
        }
        self.ranges.insert(start, end);
        self.sectors += end - start;
    }

    /// Whether all of a range is in it.
    pub(crate) fn holds(&self, start: Sector, end: Sector) -> bool {
        let before = self.ranges.range(..=start.0).next_back();
        before.is_some_and(|(_, last)| *last >= end.0)
    }

    /// The first ranges behind and before a place, each cut to `most` sectors: to choose from.
    pub(crate) fn near(&self, place: Sector, most: u64) -> impl Iterator<Item = (Sector, Sector)> {
        let above = self.ranges.range(place.0..).next();
        let below = self.ranges.range(..place.0).next_back();
        let lowest = if above.is_none() { self.ranges.first_key_value() } else { None };
        [above, below, lowest]
            .into_iter()
            .flatten()
            .map(move |(first, last)| (Sector(*first), Sector((*last).min(first + most))))
    }

    /// Takes the front of a range out.
    pub(crate) fn take(&mut self, start: Sector, end: Sector) {
        if let Some(last) = self.ranges.remove(&start.0) {
            self.sectors -= end.0 - start.0;
            if end.0 < last {
                self.ranges.insert(end.0, last);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Against a set of sectors, with ranges from a simple generator.
    #[test]
    fn ranges_are_those_of_a_set() {
        let mut cache = WriteCache::new(1000);
        let mut model = BTreeSet::new();
        let mut seed = 1u64;
        for step in 0..2000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (start, length) = (seed >> 33 & 255, (seed >> 45 & 15) + 1);
            if step % 3 == 0 {
                let first = cache.near(Sector(start), 8).next();
                if let Some((from, to)) = first {
                    cache.take(from, to);
                    (from.0..to.0).for_each(|sector| assert!(model.remove(&sector)));
                }
            } else {
                cache.add(Sector(start), Sector(start + length));
                model.extend(start..start + length);
            }
            assert_eq!(cache.sectors as usize, model.len());
            let all = (start..start + length).all(|sector| model.contains(&sector));
            assert_eq!(cache.holds(Sector(start), Sector(start + length)), all);
        }
    }
}

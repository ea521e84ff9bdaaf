//! Where sectors are on the platters, and how long the heads take to get there and to pass over
//! them. Tracks follow each other head by head, then cylinder by cylinder, each turned against the
//! one before by what it takes to change to it: a long transfer waits for no revolution.

use zonal_cfq::units::{Sector, Span, Time};

use crate::disk_file::{HardDiskFile, millis};

/// A zone, in sectors and tracks counted from the disk's first.
#[derive(Clone, Copy, Debug)]
struct Band {
    start: u64,
    end: u64,
    first_track: u64,
    /// Sectors of a track.
    sectors: u64,
}

/// A place on the platters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) cylinder: u64,
    /// Counted over all heads and cylinders.
    track: u64,
    /// When in a revolution it passes under the head, in ns.
    angle: u64,
}

/// ns by which times of one way may differ.
const ROUNDING: u64 = 1000;

/// The platters.
#[derive(Clone, Debug)]
pub(crate) struct Geometry {
    /// ns of a revolution.
    revolution: u64,
    /// ns from track to track.
    skew: u64,
    heads: u64,
    cylinders: u64,
    bands: Vec<Band>,
    track_seek: f64,
    average_seek: f64,
    full_seek: f64,
    write_settle: Span,
}

impl Geometry {
    pub(crate) fn new(file: &HardDiskFile, capacity: Sector) -> Self {
        let mut bands: Vec<Band> = Vec::new();
        let (mut start, mut track, mut share) = (0, 0, 0.0);
        for (index, zone) in file.zones.iter().enumerate() {
            share += zone.share;
            let is_last = index + 1 == file.zones.len();
            let end = if is_last { capacity.0 } else { (share * capacity.0 as f64) as u64 };
            let end = end.clamp(start, capacity.0);
            let sectors = u64::from(zone.sectors);
            bands.push(Band { start, end, first_track: track, sectors });
            track += (end - start).div_ceil(sectors);
            start = end;
        }
        bands.retain(|band| band.end > band.start);
        Self {
            revolution: (60e9 / file.rpm).round() as u64,
            skew: millis(file.track_ms).0,
            heads: u64::from(file.heads),
            cylinders: track.div_ceil(u64::from(file.heads)).max(1),
            bands,
            track_seek: file.track_ms,
            average_seek: file.average_ms,
            full_seek: file.full_ms,
            write_settle: millis(file.write_settle_ms),
        }
    }

    /// The zone of a sector; the last one for what is beyond the end.
    fn band(&self, sector: u64) -> &Band {
        let at = self.bands.partition_point(|band| band.end <= sector);
        &self.bands[at.min(self.bands.len() - 1)]
    }

    /// Sectors of the track that a sector is on.
    pub(crate) fn track_sectors(&self, sector: Sector) -> u64 {
        self.band(sector.0).sectors
    }

    pub(crate) fn place(&self, sector: Sector) -> Place {
        let band = self.band(sector.0);
        let within = sector.0.saturating_sub(band.start);
        let track = band.first_track + within / band.sectors;
        let turned = (within % band.sectors) * self.revolution / band.sectors;
        let skewed =
            (u128::from(track) * u128::from(self.skew) % u128::from(self.revolution)) as u64;
        let angle = (turned + skewed) % self.revolution;
        Place { cylinder: track / self.heads, track, angle }
    }

    /// How long the heads take over `cylinders`: with the root of the distance up to a third of them, then
    /// with the distance.
    pub(crate) fn seek(&self, cylinders: u64) -> Span {
        if cylinders == 0 {
            return Span::ZERO;
        }
        let third = (self.cylinders as f64 / 3.0).max(2.0);
        let distance = cylinders as f64;
        let ms = if distance <= third {
            let part = ((distance - 1.0) / (third - 1.0)).sqrt();
            self.track_seek + (self.average_seek - self.track_seek) * part
        } else {
            let rest = (self.cylinders as f64 - third).max(1.0);
            let part = ((distance - third) / rest).min(1.0);
            self.average_seek + (self.full_seek - self.average_seek) * part
        };
        millis(ms)
    }

    /// From a place, at a time, until a sector is under the head: seek, settle, rotation.
    pub(crate) fn reach(&self, from: Place, now: Time, to: Sector, writes: bool) -> Span {
        let place = self.place(to);
        let seek = if place.cylinder != from.cylinder {
            self.seek(place.cylinder.abs_diff(from.cylinder))
        } else if place.track == from.track {
            Span::ZERO
        } else {
            millis(self.track_seek)
        };
        // A head that goes on where it is has settled.
        let settles = writes && seek > Span::ZERO;
        let settled = seek + if settles { self.write_settle } else { Span::ZERO };
        let there = now + settled;
        let angle = there.0 % self.revolution;
        let turn = (place.angle + self.revolution - angle) % self.revolution;
        // Less than a sector late is rounding, and no revolution.
        settled + if turn + ROUNDING >= self.revolution { Span::ZERO } else { Span(turn) }
    }

    /// From the moment that `from` is under the head until `to` would be, read or written on the way.
    pub(crate) fn pass(&self, from: Sector, to: Sector) -> Span {
        let mut time = 0;
        let mut at = from.0;
        while at < to.0 {
            let band = self.band(at);
            let end = to.0.min(band.end.max(at + 1));
            let (first, last) = (at - band.start, end - 1 - band.start);
            // Rounded together, so that the parts of a way are the way.
            time += end * self.revolution / band.sectors - at * self.revolution / band.sectors;
            time += (last / band.sectors - first / band.sectors) * self.skew;
            // To the next track, if there is more, or it ends where a track does.
            let is_track_end = (end - band.start).is_multiple_of(band.sectors) || end == band.end;
            if is_track_end && end < to.0 {
                time += self.skew;
            }
            at = end;
        }
        Span(time)
    }

    /// How far the head gets from `from` in that time, at most to `limit`.
    pub(crate) fn passed(&self, from: Sector, time: Span, limit: Sector) -> Sector {
        let (mut low, mut high) = (from.0, limit.0);
        while low < high {
            let middle = low + (high - low).div_ceil(2);
            if self.pass(from, Sector(middle)) <= time {
                low = middle;
            } else {
                high = middle - 1;
            }
        }
        Sector(low)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk_file::{Kind, builtin};

    fn geometry() -> Geometry {
        let disk = builtin("desktop_2014").expect("it is built in");
        let Kind::HardDisk(file) = &disk.kind else { panic!("it turns") };
        Geometry::new(file, disk.capacity())
    }

    #[test]
    fn the_curve_has_its_three_points_and_rises() {
        let geometry = geometry();
        let at = |part: f64| geometry.seek((geometry.cylinders as f64 * part) as u64).as_millis();
        assert!((geometry.seek(1).as_millis() - geometry.track_seek).abs() < 1e-6);
        assert!((at(1.0 / 3.0) - geometry.average_seek).abs() < 0.01);
        assert!((at(1.0) - geometry.full_seek).abs() < 0.01);
        let curve: Vec<f64> = (0..100).map(|part| at(f64::from(part) / 100.0)).collect();
        assert!(curve.is_sorted(), "{curve:?}");
    }

    #[test]
    fn a_sector_is_reached_within_a_revolution_after_the_seek() {
        let geometry = geometry();
        let from = geometry.place(Sector(0));
        for step in 1..200u64 {
            let to = Sector(step * 9_000_011);
            let seek = geometry.seek(geometry.place(to).cylinder);
            let time = geometry.reach(from, Time(step * 1_234_567), to, false);
            assert!(time >= seek && time.0 < seek.0 + geometry.revolution, "{to:?}: {time:?}");
        }
        // A full turn later the same sector is there again.
        let again = geometry.reach(from, Time(geometry.revolution), Sector(0), false);
        assert_eq!(again, Span::ZERO);
    }

    #[test]
    fn passing_is_steady_and_can_be_undone() {
        let geometry = geometry();
        let (start, end) = (Sector(1000), Sector(1_000_000));
        let mut last = Span::ZERO;
        for to in (start.0..end.0).step_by(997) {
            let time = geometry.pass(start, Sector(to));
            assert!(time >= last);
            last = time;
            assert!(geometry.passed(start, time, end).0.abs_diff(to) <= 1);
        }
        let middle = Sector(500_123);
        let parts = geometry.pass(start, middle) + geometry.pass(middle, end);
        let whole = geometry.pass(start, end);
        assert!(whole.0.abs_diff(parts.0) <= geometry.skew, "{whole:?} {parts:?}");
    }

    /// After the skew the next track's first sector is just there: no revolution is lost.
    #[test]
    fn the_next_track_begins_when_the_head_is_there() {
        let geometry = geometry();
        let first = geometry.bands[0].sectors;
        let end = Sector(first);
        let passed = geometry.pass(Sector(0), end);
        let from = geometry.place(Sector(first - 1));
        let begun = Time(geometry.place(Sector(0)).angle);
        let wait = geometry.reach(from, begun + passed, end, false);
        assert!(wait.0.abs_diff(geometry.skew) < 10, "{wait:?}");
    }
}

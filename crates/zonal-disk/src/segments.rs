//! The track cache: segments, each with sectors that follow each other. The disk reads on behind what
//! was asked for, until the segment is full or the head is needed elsewhere.

use zonal_cfq::units::{Sector, Time};

use crate::geometry::Geometry;

/// A segment.
#[derive(Clone, Copy, Debug, Default)]
struct Segment {
    start: Sector,
    end: Sector,
    /// When it was used last, as a number that grows.
    used: u64,
}

/// Reading on: into the newest segment, from its end.
#[derive(Clone, Copy, Debug)]
struct ReadAhead {
    segment: usize,
    from: Sector,
    since: Time,
    limit: Sector,
}

/// How far a read is in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hit {
    /// Its last sector is there, or will be at that time, as the disk reads on.
    At(Time),
    /// It has to be read.
    Miss,
}

/// The track cache.
#[derive(Debug)]
pub(crate) struct Segments {
    segments: Vec<Segment>,
    /// Sectors of each; 0: there is none.
    length: u64,
    uses: u64,
    ahead: Option<ReadAhead>,
}

impl Segments {
    pub(crate) fn new(count: usize, length: u64) -> Self {
        Self { segments: vec![Segment::default(); count], length, uses: 0, ahead: None }
    }

    /// Whether a read is there, or comes without another one.
    pub(crate) fn find(&mut self, start: Sector, end: Sector, now: Time, of: &Geometry) -> Hit {
        self.uses += 1;
        let holds = |segment: &&mut Segment| segment.start <= start && end <= segment.end;
        if let Some(segment) = self.segments.iter_mut().find(holds) {
            segment.used = self.uses;
            return Hit::At(now);
        }
        let Some(ahead) = self.ahead else { return Hit::Miss };
        let segment = &mut self.segments[ahead.segment];
        // As far as it will be read; what the head comes to within a revolution is waited for, too.
        let reached = of.passed(ahead.from, now.since(ahead.since), ahead.limit);
        let soon = Sector(reached.0 + of.track_sectors(reached));
        let kept = segment.start.max(Sector(reached.0.saturating_sub(self.length)));
        if kept <= start && start < soon && end <= ahead.limit {
            segment.used = self.uses;
            return Hit::At(now.max(ahead.since + of.pass(ahead.from, end)));
        }
        Hit::Miss
    }

    /// Whether a read is there.
    pub(crate) fn holds(&self, start: Sector, end: Sector) -> bool {
        self.segments.iter().any(|segment| segment.start <= start && end <= segment.end)
    }

    /// The head is needed elsewhere: reading on ends. Gives where the head is, if it did read on.
    pub(crate) fn stop(&mut self, now: Time, of: &Geometry) -> Option<Sector> {
        let ahead = self.ahead.take()?;
        let reached = of.passed(ahead.from, now.since(ahead.since), ahead.limit);
        let segment = &mut self.segments[ahead.segment];
        segment.end = reached.max(segment.end);
        segment.start = segment.start.max(Sector(segment.end.0.saturating_sub(self.length)));
        Some(reached)
    }

    /// Sectors were read by `now`; the disk reads on behind them, but not beyond its end.
    pub(crate) fn keep(&mut self, start: Sector, end: Sector, now: Time, capacity: Sector) {
        if self.length == 0 {
            return;
        }
        self.uses += 1;
        let follows = self.segments.iter().position(|it| it.end == start && it.start < it.end);
        let oldest = || (0..self.segments.len()).min_by_key(|at| self.segments[*at].used);
        let Some(at) = follows.or_else(oldest) else { return };
        let segment = &mut self.segments[at];
        if follows.is_none() {
            segment.start = start;
        }
        segment.end = end;
        segment.start = segment.start.max(Sector(end.0.saturating_sub(self.length)));
        segment.used = self.uses;
        let limit = Sector((end.0 + self.length).min(capacity.0));
        self.ahead = Some(ReadAhead { segment: at, from: end, since: now, limit });
    }

    /// A read was served from what is read ahead: the segment may grow further.
    pub(crate) fn served(&mut self, end: Sector, capacity: Sector) {
        let length = self.length;
        if let Some(ahead) = &mut self.ahead {
            let limit = Sector((end.0 + length).min(capacity.0));
            ahead.limit = ahead.limit.max(limit);
            // What was read long ago makes room for what comes behind it.
            let segment = &mut self.segments[ahead.segment];
            segment.start = segment.start.max(Sector(end.0.saturating_sub(length)));
            segment.end = segment.end.max(segment.start);
        }
    }

    /// Sectors are written: what is cached of them is old.
    pub(crate) fn forget(&mut self, start: Sector, end: Sector) {
        for (at, segment) in self.segments.iter_mut().enumerate() {
            let is_ahead = self.ahead.filter(|ahead| ahead.segment == at);
            let last = is_ahead.map_or(segment.end, |ahead| ahead.limit);
            if segment.start < end && start < last {
                *segment = Segment::default();
                if is_ahead.is_some() {
                    self.ahead = None;
                }
            }
        }
    }
}

//! What an elevator counts, and what `iostat` makes of it.
//!
//! ```
//! let counters = zonal_cfq::counters::Counters::default();
//! assert_eq!((counters.await_ms(), counters.submitted), (0.0, 0));
//! ```

use crate::request::{Direction, Outcome};
use crate::units::{Sectors, Span};

/// Of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Way {
    /// Requests dispatched, after merging.
    pub dispatched: u64,
    /// Their sectors.
    pub sectors: u64,
    /// Requests completed, failed ones included.
    pub completed: u64,
    /// Time from submission to completion, summed over completed requests.
    pub waited: Span,
    /// Time with the device, summed over them.
    pub service: Span,
}

impl Way {
    /// Mean time from submission to completion, in ms, as iostat's `r_await` and `w_await`.
    #[must_use]
    pub fn await_ms(&self) -> f64 {
        self.waited.as_millis() / self.completed.max(1) as f64
    }
}

/// What was counted since the elevator was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Requests taken.
    pub submitted: u64,
    /// Of these, those that became part of another at its back.
    pub back_merges: u64,
    /// At its front.
    pub front_merges: u64,
    /// Queued requests that became part of another when a merge closed the gap.
    pub coalesced: u64,
    /// Requests cancelled.
    pub cancelled: u64,
    /// Requests that the device gave back.
    pub requeued: u64,
    /// Requests that failed.
    pub failed: u64,
    /// Reads.
    pub reads: Way,
    /// Writes.
    pub writes: Way,
    /// Time that passed.
    pub elapsed: Span,
    /// Time in which any request was under way.
    pub busy: Span,
    /// Time × requests under way, in ns.
    pub weighted: u128,
}

impl Counters {
    /// Mean number of requests under way, as iostat's `avgqu-sz`.
    #[must_use]
    pub fn queue_length(&self) -> f64 {
        self.weighted as f64 / self.elapsed.0.max(1) as f64
    }

    /// Mean time from submission to completion, in ms, as iostat's `await`.
    #[must_use]
    pub fn await_ms(&self) -> f64 {
        let completed = self.reads.completed + self.writes.completed;
        (self.reads.waited + self.writes.waited).as_millis() / completed.max(1) as f64
    }

    pub(crate) fn pass(&mut self, time: Span, under_way: u32) {
        self.elapsed += time;
        self.weighted += u128::from(time.0) * u128::from(under_way);
        if under_way > 0 {
            self.busy += time;
        }
    }

    fn way(&mut self, direction: Direction) -> &mut Way {
        match direction {
            Direction::Read => &mut self.reads,
            Direction::Write => &mut self.writes,
        }
    }

    pub(crate) fn dispatch(&mut self, direction: Direction, sectors: Sectors) {
        let way = self.way(direction);
        way.dispatched += 1;
        way.sectors += u64::from(sectors.0);
    }

    pub(crate) fn complete(
        &mut self,
        direction: Direction,
        outcome: Outcome,
        waited: Span,
        service: Span,
    ) {
        self.failed += u64::from(outcome == Outcome::Failed);
        let way = self.way(direction);
        way.completed += 1;
        way.waited += waited;
        way.service += service;
    }
}

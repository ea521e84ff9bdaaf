//! The memory channels of a socket: how long a line waits because others are being fetched.
//!
//! Virtual CPUs do not run in the exact order of their clocks, so the wait follows from how busy
//! the channels were in the stretch of time before, as for a queue with random arrivals and
//! equal service times (M/D/1): ρ / 2(1 − ρ) services. What a stretch could not serve is left to
//! the next ones, and is waited for.

use crate::ticks::Ticks;
use core::cmp::Ordering;

/// The stretch of time over which use is averaged, in ticks: 16384 cycles.
const WINDOW: u64 = 16_384 * Ticks::PER_CYCLE;
/// Stretches that are remembered: CPUs are at most so far apart for their use to be counted.
const WINDOWS: usize = 16;
/// Above this the wait is that for what is left over.
const BUSIEST: f64 = 0.9;

#[derive(Clone, Copy, Default)]
struct Use {
    window: u64,
    lines: u32,
}

/// The channels of one socket.
pub(crate) struct Channel {
    line: Ticks,
    /// Lines that a stretch can serve.
    capacity: u32,
    uses: [Use; WINDOWS],
    /// The stretch that was asked about last, and what all before it but one could not serve.
    asked: u64,
    left: u32,
    /// Lines that the stretch before served, and how long one waits for that, in ticks.
    before: u32,
    queue: f64,
}

impl Channel {
    /// Channels that need `line` for each cache line.
    pub(crate) fn new(line: Ticks) -> Self {
        let capacity = (WINDOW / line.0.max(1)) as u32;
        Self {
            line,
            capacity,
            uses: [Use::default(); WINDOWS],
            asked: 0,
            left: 0,
            before: 0,
            queue: 0.0,
        }
    }

    /// Fetches `count` lines at the time `now`; returns how long they wait, together.
    pub(crate) fn fetch(&mut self, now: Ticks, count: u32) -> Ticks {
        let window = now.0 / WINDOW;
        if self.asked != window {
            // Until another stretch is asked about, only this one's use changes.
            self.asked = window;
            let ages = (2..WINDOWS as u64).rev();
            self.left = ages.fold(0, |left, age| self.left_by(window.wrapping_sub(age), left));
        }
        let before = self.used(window.wrapping_sub(1));
        let left = (self.left + before).saturating_sub(self.capacity);
        let place = &mut self.uses[window as usize % WINDOWS];
        match place.window.cmp(&window) {
            Ordering::Less => *place = Use { window, lines: count },
            Ordering::Equal => place.lines += count,
            // Too far behind all others to be counted.
            Ordering::Greater => (),
        }
        if self.before != before {
            let busy = (f64::from(before) / f64::from(self.capacity.max(1))).min(BUSIEST);
            self.before = before;
            self.queue = self.line.0 as f64 * busy / (2.0 * (1.0 - busy));
        }
        let wait = self.queue * f64::from(count);
        Ticks(wait as u64 + u64::from(left) * self.line.0)
    }

    /// Lines that were fetched in a stretch, if it is remembered.
    fn used(&self, window: u64) -> u32 {
        let used = self.uses[window as usize % WINDOWS];
        if used.window == window { used.lines } else { 0 }
    }

    /// What a stretch leaves to the next one.
    fn left_by(&self, window: u64, left: u32) -> u32 {
        (left + self.used(window)).saturating_sub(self.capacity)
    }
}

#[cfg(test)]
#[path = "channel_tests.rs"]
mod tests;

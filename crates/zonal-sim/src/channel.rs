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
    uses: [Use; WINDOWS],
}

impl Channel {
    /// Channels that need `line` for each cache line.
    pub(crate) fn new(line: Ticks) -> Self {
        Self { line, uses: [Use::default(); WINDOWS] }
    }

    /// Fetches `count` lines at the time `now`; returns how long they wait, together.
    pub(crate) fn fetch(&mut self, now: Ticks, count: u32) -> Ticks {
        let window = now.0 / WINDOW;
        let capacity = (WINDOW / self.line.0.max(1)) as u32;
        let (mut left, mut before) = (0, 0);
        for age in (1..WINDOWS as u64).rev() {
            let earlier = window.wrapping_sub(age);
            let used = self.uses[earlier as usize % WINDOWS];
            before = if used.window == earlier { used.lines } else { 0 };
            left = (left + before).saturating_sub(capacity);
        }
        let place = &mut self.uses[window as usize % WINDOWS];
        match place.window.cmp(&window) {
            Ordering::Less => *place = Use { window, lines: count },
            Ordering::Equal => place.lines += count,
            // Too far behind all others to be counted.
            Ordering::Greater => (),
        }
        let busy = (f64::from(before) / f64::from(capacity.max(1))).min(BUSIEST);
        let wait = self.line.0 as f64 * busy / (2.0 * (1.0 - busy)) * f64::from(count);
        Ticks(wait as u64 + u64::from(left) * self.line.0)
    }
}

#[cfg(test)]
#[path = "channel_tests.rs"]
mod tests;

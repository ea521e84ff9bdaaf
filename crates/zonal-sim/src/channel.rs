//! The memory channels of a socket: how long a line waits because others are being fetched.
//!
//! Virtual CPUs do not run in the exact order of their clocks, so the wait follows from how busy
//! the channels were in the stretch of time before, as for a queue with random arrivals and
//! equal service times (M/D/1): ρ / 2(1 − ρ) services.

use crate::ticks::Ticks;

/// The stretch of time over which use is averaged, in ticks: 4096 cycles.
const WINDOW: u64 = 4096 * Ticks::PER_CYCLE;
/// Stretches that are remembered: CPUs are at most so far apart for their use to be counted.
const WINDOWS: usize = 64;
/// Above this the queue would have no end.
const BUSIEST: f64 = 0.97;

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
        let place = &mut self.uses[window as usize % WINDOWS];
        if place.window < window {
            *place = Use { window, lines: 0 };
        }
        place.lines += count;
        let before = self.uses[window.wrapping_sub(1) as usize % WINDOWS];
        let lines = if before.window + 1 == window { before.lines } else { 0 };
        let busy = (f64::from(lines) * self.line.0 as f64 / WINDOW as f64).min(BUSIEST);
        let wait = self.line.0 as f64 * busy / (2.0 * (1.0 - busy));
        Ticks((wait * f64::from(count)) as u64)
    }
}

//! The memory channels of a socket: how long a line waits because others are being fetched.
//!
//! The wait follows from how busy the channels were in the stretch of time before, as for a queue
//! with random arrivals and equal service times (M/D/1): ρ / 2(1 − ρ) services. What a stretch
//! could not serve is left to the next ones, and is waited for.
//!
//! A core asks for few lines at a time, and for more when it has those. So most of what is left
//! over was not even asked for yet: the lines of a page wait for all of it, turn by turn, a single
//! line only for one turn of each.
//!
//! Virtual CPUs do not run in the exact order of their clocks: one whose turn it is may come to a
//! time that the others have still before them. What it fetches is noted down under that time,
//! and waits as at the beginning of the turn.

use crate::ticks::Ticks;

/// The stretch of time over which use is averaged, in ticks: 4096 cycles.
const WINDOW: u64 = 4096 * Ticks::PER_CYCLE;
/// Stretches that are remembered, and how many of them are before the turn that runs.
const WINDOWS: u64 = 64;
const BEFORE: u64 = 8;
/// Above this the wait is that for what is left over.
const BUSIEST: f64 = 0.9;
/// Lines that a core asks for at a time: the fill buffers of a Skylake's L1 cache, as Intel's
/// optimization manual has them. A Broadwell has 10.
const TURN: u32 = 12;
/// Turns in which a page of 64 lines comes.
const PAGE_TURNS: u32 = 64_u32.div_ceil(TURN);

/// The channels of one socket.
pub(crate) struct Channel {
    line: Ticks,
    /// Lines that a stretch can serve.
    capacity: u64,
    /// The first stretch that is remembered, and the lines that those before it left over.
    first: u64,
    carried: u64,
    /// Lines fetched in each, at its number modulo how many there are.
    uses: [u32; WINDOWS as usize],
    wait: Wait,
}

/// How long one waits in the stretch that was asked about last.
#[derive(Clone, Copy, Default)]
struct Wait {
    window: u64,
    /// For those who ask at the same time, a turn, in ticks.
    queue: f64,
    /// For what is left over, a page, in ticks.
    left: u64,
}

impl Channel {
    /// Channels that need `line` for each cache line.
    pub(crate) fn new(line: Ticks) -> Self {
        let capacity = (WINDOW / line.0.max(1)).max(1);
        let uses = [0; WINDOWS as usize];
        Self { line, capacity, first: 0, carried: 0, uses, wait: Wait::default() }
    }

    /// Fetches `count` lines at the time `now`, in a turn that began at `began`; returns how long
    /// they wait, together.
    pub(crate) fn fetch(&mut self, began: Ticks, now: Ticks, count: u32) -> Ticks {
        let window = began.0 / WINDOW;
        if self.wait.window != window {
            self.forget(window.saturating_sub(BEFORE));
            self.wait = self.wait_in(window);
        }
        // What is too far away is counted at the end of what is remembered.
        let noted = (now.0 / WINDOW).clamp(self.first, self.first + WINDOWS - 1);
        let uses = self.uses_mut(noted);
        *uses = uses.saturating_add(count);
        let turns = count.div_ceil(TURN);
        let left = self.wait.left * u64::from(turns.min(PAGE_TURNS)) / u64::from(PAGE_TURNS);
        Ticks((self.wait.queue * f64::from(turns)) as u64 + left)
    }

    fn wait_in(&self, window: u64) -> Wait {
        let (mut left, mut before) = (self.carried, 0);
        for window in self.first..window {
            before = u64::from(self.uses[(window % WINDOWS) as usize]);
            left = (left + before).saturating_sub(self.capacity);
        }
        let busy = (before as f64 / self.capacity as f64).min(BUSIEST);
        let queue = self.line.0 as f64 * busy / (2.0 * (1.0 - busy));
        // A line takes at most a stretch, 2^20 ticks (see the bounds of `bandwidth_gib_s`), and no run
        // comes to fetch the 2^41 lines that would be too long a wait for 64 bits.
        Wait { window, queue, left: left * self.line.0 }
    }

    /// Remembers no stretches before `first` but what they left over.
    fn forget(&mut self, first: u64) {
        for window in self.first..first.min(self.first + WINDOWS) {
            let used = u64::from(core::mem::take(self.uses_mut(window)));
            self.carried = (self.carried + used).saturating_sub(self.capacity);
        }
        let idle = first.saturating_sub(self.first + WINDOWS);
        self.carried = self.carried.saturating_sub(idle.saturating_mul(self.capacity));
        self.first = self.first.max(first);
    }

    const fn uses_mut(&mut self, window: u64) -> &mut u32 {
        &mut self.uses[(window % WINDOWS) as usize]
    }
}

#[cfg(test)]
#[path = "channel_tests.rs"]
mod tests;

//! Who runs next: the CPU with the smallest clock, or, to look for races, any.

use crate::engine;
use crate::ticks::Ticks;
use core::cmp::Reverse;
use std::collections::BinaryHeap;

/// The order in which virtual CPUs run.
pub(crate) enum Schedule {
    /// The smallest clock first; equal clocks by CPU number.
    Clock { ready: BinaryHeap<Reverse<(Ticks, u32)>> },
    /// A random one, and a random point to switch at.
    Random(Random),
}

/// How often a slow CPU is passed over when it is drawn: all but one in this many times.
const SLOWNESS: u32 = 64;

/// Random choices, and what was chosen so far.
pub(crate) struct Random {
    ready: Vec<u32>,
    dice: fastrand::Rng,
    switch_in_1024: u32,
    slow: Option<u32>,
    /// Accesses and turns that are left before the work is asked to stop; then again as many
    /// before it is stopped.
    left: u64,
    budget: u64,
    late: bool,
    /// A hash of all choices.
    trace: u64,
}

impl Random {
    /// At each access another CPU goes on with a probability of n/1024; `slow` rarely does.
    pub(crate) fn new(seed: u64, switch_in_1024: u32, slow: Option<u32>, budget: u64) -> Self {
        let (dice, left) = (fastrand::Rng::with_seed(seed), budget);
        let (ready, late, trace) = (Vec::new(), false, seed);
        Self { ready, dice, switch_in_1024, slow, left, budget, late, trace }
    }

    /// Whether the work should come to an end.
    pub(crate) const fn is_late(&self) -> bool {
        self.late
    }

    /// Whether it did not, for as long again.
    pub(crate) const fn is_over(&self) -> bool {
        self.late && self.left == 0
    }

    /// Accesses after which the work is asked to stop.
    pub(crate) const fn budget(&self) -> u64 {
        self.budget
    }

    /// A hash of all choices so far.
    pub(crate) const fn trace(&self) -> u64 {
        self.trace
    }

    fn pop(&mut self) -> Option<usize> {
        if self.is_over() || self.ready.is_empty() {
            return None;
        }
        if self.left == 0 {
            (self.late, self.left) = (true, self.budget);
        }
        self.left -= 1;
        let len = self.ready.len();
        let mut place = self.dice.usize(..len);
        if self.slow == Some(self.ready[place]) && len > 1 && self.dice.u32(..SLOWNESS) > 0 {
            place = (place + self.dice.usize(1..len)) % len;
        }
        let cpu = self.ready.swap_remove(place);
        self.trace = mix(mix(self.trace, u64::from(cpu)), self.left);
        Some(cpu as usize)
    }

    /// Whether another CPU should go on before an access is made.
    #[inline]
    pub(crate) fn switches(&mut self) -> bool {
        if engine::is_quiet() {
            return false;
        }
        self.left = self.left.saturating_sub(1);
        // At the end the CPU that runs stops, even if there is no other.
        self.left == 0 || !self.ready.is_empty() && self.dice.u32(..1024) < self.switch_in_1024
    }
}

/// One more number in a hash.
pub(crate) const fn mix(hash: u64, number: u64) -> u64 {
    (hash ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
}

impl Schedule {
    /// By clocks.
    pub(crate) fn by_clock() -> Self {
        Self::Clock { ready: BinaryHeap::new() }
    }

    /// Whether clocks have no say.
    pub(crate) const fn is_random(&self) -> bool {
        matches!(self, Self::Random(_))
    }

    /// A CPU can run from `clock` on.
    pub(crate) fn push(&mut self, cpu: usize, clock: Ticks) {
        match self {
            Self::Clock { ready } => ready.push(Reverse((clock, cpu as u32))),
            Self::Random(random) => random.ready.push(cpu as u32),
        }
    }

    /// The same, where another is before it: takes the next to run at once, which saves going
    /// through all that wait twice.
    pub(crate) fn exchange(&mut self, cpu: usize, clock: Ticks) -> Option<usize> {
        if let Self::Clock { ready } = self {
            let first = ready.peek_mut();
            if let Some(mut first) = first.filter(|first| first.0 < (clock, cpu as u32)) {
                let Reverse((_, next)) =
                    core::mem::replace(&mut *first, Reverse((clock, cpu as u32)));
                return Some(next as usize);
            }
        }
        self.push(cpu, clock);
        None
    }

    /// The next to run.
    pub(crate) fn pop(&mut self) -> Option<usize> {
        match self {
            Self::Clock { ready } => ready.pop().map(|Reverse((_, cpu))| cpu as usize),
            Self::Random(random) => random.pop(),
        }
    }

    /// Whether another CPU should go on before an access is made.
    #[inline]
    pub(crate) fn switches_at(&mut self, meeting: bool, clock: Ticks, lookahead: Ticks) -> bool {
        match self {
            Self::Clock { ready } => ready.peek().is_some_and(|Reverse((next, _))| {
                if meeting { *next < clock } else { *next + lookahead < clock }
            }),
            Self::Random(random) => random.switches(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The order in which CPUs run that come back a while later each time.
    fn turns(exchanges: bool) -> Vec<usize> {
        let mut schedule = Schedule::by_clock();
        let mut dice = fastrand::Rng::with_seed(1);
        let mut clocks = [Ticks::default(); 20];
        for (cpu, clock) in clocks.iter().enumerate() {
            schedule.push(cpu, *clock);
        }
        let (mut order, mut next) = (Vec::new(), None);
        while order.len() < 10_000 {
            let cpu = next.take().or_else(|| schedule.pop()).expect("they all come back");
            order.push(cpu);
            clocks[cpu] += Ticks(dice.u64(..4));
            if exchanges {
                next = schedule.exchange(cpu, clocks[cpu]);
            } else {
                schedule.push(cpu, clocks[cpu]);
            }
        }
        order
    }

    /// Of a number of turns that all CPUs are ready for, those of the slow one.
    fn slow_turns(cpus: u32, turns: u32) -> u32 {
        let mut random = Random::new(1, 1024, Some(0), u64::from(turns));
        random.ready.extend(0..cpus);
        let turn = |_| {
            let cpu = random.pop().expect("they all come back") as u32;
            random.ready.push(cpu);
            u32::from(cpu == 0)
        };
        (0..turns).map(turn).sum()
    }

    #[test]
    fn a_slow_cpu_is_passed_over_all_but_once_in_its_slowness() {
        let turns = 100_000;
        for cpus in [2, 3, 8] {
            let (slow, promised) = (slow_turns(cpus, turns), turns / cpus / SLOWNESS);
            assert!((promised / 2..promised * 2).contains(&slow), "{cpus} CPUs: {slow} turns");
        }
        assert_eq!(slow_turns(1, 10), 10, "there is no other");
    }

    #[test]
    fn an_exchange_is_a_push_and_a_pop() {
        assert_eq!(turns(true), turns(false));
    }
}

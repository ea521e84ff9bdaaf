//! Who runs next: the CPU with the smallest clock, or, to look for races, any.

use crate::ticks::Ticks;
use core::cmp::Reverse;
use std::collections::BinaryHeap;

/// The order in which virtual CPUs run.
pub(crate) enum Schedule {
    /// The smallest clock first; equal clocks by CPU number.
    Clock { ready: BinaryHeap<Reverse<(Ticks, u32)>> },
    /// A random one, and a random point to switch at.
    Random { ready: Vec<u32>, random: fastrand::Rng, switch_in_1024: u32 },
}

impl Schedule {
    /// By clocks.
    pub(crate) fn by_clock() -> Self {
        Self::Clock { ready: BinaryHeap::new() }
    }

    /// At random: at each access another CPU goes on with a probability of n/1024.
    pub(crate) fn random(seed: u64, switch_in_1024: u32) -> Self {
        Self::Random { ready: Vec::new(), random: fastrand::Rng::with_seed(seed), switch_in_1024 }
    }

    /// Whether clocks have no say.
    pub(crate) const fn is_random(&self) -> bool {
        matches!(self, Self::Random { .. })
    }

    /// A CPU can run from `clock` on.
    pub(crate) fn push(&mut self, cpu: usize, clock: Ticks) {
        match self {
            Self::Clock { ready } => ready.push(Reverse((clock, cpu as u32))),
            Self::Random { ready, .. } => ready.push(cpu as u32),
        }
    }

    /// The next to run.
    pub(crate) fn pop(&mut self) -> Option<usize> {
        match self {
            Self::Clock { ready } => ready.pop().map(|Reverse((_, cpu))| cpu as usize),
            Self::Random { ready, random, .. } => {
                let place = (!ready.is_empty()).then(|| random.usize(..ready.len()))?;
                Some(ready.swap_remove(place) as usize)
            }
        }
    }

    /// Whether another CPU should go on before an access is made.
    #[inline]
    pub(crate) fn switches_at(&mut self, meeting: bool, clock: Ticks, lookahead: Ticks) -> bool {
        match self {
            Self::Clock { ready } => ready.peek().is_some_and(|Reverse((next, _))| {
                if meeting { *next < clock } else { *next + lookahead < clock }
            }),
            Self::Random { random, switch_in_1024, ready } => {
                !ready.is_empty() && random.u32(..1024) < *switch_in_1024
            }
        }
    }
}

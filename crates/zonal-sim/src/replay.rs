//! What each CPU of a trace did, ready to be done again.
//!
//! A [`Script`] is made step by step in the order of the trace. A free names the allocation whose
//! block it frees, and that comes before it in the trace; so if each CPU does its steps in their
//! order and a free waits for its allocation, one CPU can always go on: the one at the
//! earliest step of the trace.
//!
//! ```
//! use zonal_sim::machine;
//! use zonal::Request;
//! use zonal_sim::replay::{Script, run};
//! use zonal_sim::run::Preset;
//!
//! let mut script = Script::new();
//! // Allocated on CPU 3, freed on CPU 1.
//! let block = script.alloc(3, Request::frame());
//! script.free(1, block);
//! assert_eq!((script.cpus(), script.steps(), script.peak_frames()), (2, 2, 1));
//!
//! let desktop = machine::builtin("desktop_8cpu_4g").expect("it is built in");
//! let outcome = run(&desktop, Preset::Zonal, &script, 64 << 20)?;
//! assert_eq!(outcome.figure("operations"), Some(2.0));
//! # Ok::<(), zonal_sim::run::SimError>(())
//! ```

pub use crate::run::replay as run;
use std::collections::BTreeMap;
use zonal::{Order, Request};

/// Names an allocation of a [`Script`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct BlockId(u32);

impl BlockId {
    /// Index into tables by allocation.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// What a CPU does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Allocates.
    Alloc(Request),
    /// Frees, when the block is there; nothing if it could not be allocated.
    Free,
}

/// One thing that a CPU does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    /// Its place in the trace, over all CPUs.
    pub at: u32,
    /// The block it is about.
    pub block: BlockId,
    /// What it does.
    pub action: Action,
}

/// What each CPU does, in its order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Script {
    by_cpu: BTreeMap<u32, Vec<Step>>,
    /// The request of each block, and whether it was freed.
    blocks: Vec<(Request, bool)>,
    steps: u32,
    live: u64,
    peak: u64,
}

impl Script {
    /// Nothing to do.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// `cpu` allocates next.
    ///
    /// # Panics
    /// If the script has 2^32 − 1 steps already.
    pub fn alloc(&mut self, cpu: u32, request: Request) -> BlockId {
        let block = BlockId(self.blocks.len() as u32);
        self.blocks.push((request, false));
        self.push(cpu, block, Action::Alloc(request));
        self.live += request.order().frames();
        self.peak = self.peak.max(self.live);
        block
    }

    /// `cpu` frees a block of this script next; a second free is left out.
    ///
    /// # Panics
    /// As [`alloc`](Self::alloc).
    pub fn free(&mut self, cpu: u32, block: BlockId) {
        let Some((request, freed)) = self.blocks.get_mut(block.index()) else { return };
        if !std::mem::replace(freed, true) {
            self.live -= request.order().frames();
            self.push(cpu, block, Action::Free);
        }
    }

    fn push(&mut self, cpu: u32, block: BlockId, action: Action) {
        let step = Step { at: self.steps, block, action };
        self.by_cpu.entry(cpu).or_default().push(step);
        self.steps = self.steps.checked_add(1).expect("a script has at most 2^32 - 1 steps");
    }

    /// CPUs that do something.
    #[must_use]
    pub fn cpus(&self) -> usize {
        self.by_cpu.len()
    }

    /// Steps of all CPUs.
    #[must_use]
    pub fn steps(&self) -> usize {
        self.steps as usize
    }

    /// Allocations.
    #[must_use]
    pub fn blocks(&self) -> usize {
        self.blocks.len()
    }

    /// The most frames that are in use at once, if all is done in the order of the trace.
    #[must_use]
    pub fn peak_frames(&self) -> u64 {
        self.peak
    }

    /// The steps of at most `threads` threads: the n-th CPU's are done by thread n modulo
    /// `threads`. Those of CPUs that share a thread stand in the order of the trace.
    ///
    /// Copies all steps, and sorts those of each thread: n log n for n of them.
    #[must_use]
    pub fn folded(&self, threads: usize) -> Vec<Vec<Step>> {
        let threads = threads.clamp(1, self.cpus().max(1));
        let mut folded = vec![Vec::new(); threads];
        for (n, steps) in self.by_cpu.values().enumerate() {
            folded[n % threads].extend_from_slice(steps);
        }
        folded.iter_mut().for_each(|steps| steps.sort_unstable_by_key(|step| step.at));
        folded
    }

    /// The order of a block of this script.
    ///
    /// # Panics
    /// If the block is another script's.
    #[must_use]
    pub fn order_of(&self, block: BlockId) -> Order {
        self.blocks[block.index()].0.order()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_free_comes_after_its_allocation_however_cpus_are_folded() {
        let mut script = Script::new();
        let mut random = fastrand::Rng::with_seed(7);
        let mut live = Vec::new();
        for _ in 0..500 {
            let cpu = random.u32(..5);
            if live.is_empty() || random.bool() {
                live.push(script.alloc(cpu, Request::frame()));
            } else {
                script.free(cpu, live.swap_remove(random.usize(..live.len())));
            }
        }
        for threads in 1..8 {
            let folded = script.folded(threads);
            assert_eq!(folded.len(), threads.min(5));
            // The CPU at the earliest step can always go on.
            let mut next = vec![0; folded.len()];
            let mut there = vec![false; script.blocks()];
            for at in 0..script.steps() as u32 {
                let mut heads = folded.iter().zip(&next).enumerate();
                let (thread, step) = heads
                    .find_map(|(n, (steps, &next))| {
                        let step = steps.get(next).filter(|step| step.at == at)?;
                        Some((n, step))
                    })
                    .expect("the earliest step is at the head of its thread");
                next[thread] += 1;
                match step.action {
                    Action::Alloc(_) => there[step.block.index()] = true,
                    Action::Free => assert!(there[step.block.index()], "step {at}"),
                }
            }
        }
    }

    #[test]
    fn a_second_free_is_left_out() {
        let mut script = Script::new();
        let block = script.alloc(0, Request::frame());
        script.free(1, block);
        script.free(1, block);
        assert_eq!(script.steps(), 2);
    }
}

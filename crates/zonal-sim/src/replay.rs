//! What each CPU of a trace did, ready to be done again.
//!
//! A [`Script`] is made step by step in the order of the trace. A free names the allocation whose
//! block it frees, and that comes before it in the trace; so if each CPU does its steps in their
//! order and a free waits for its allocation, one CPU can always go on: the one at the
//! earliest step of the trace.
//!
//! A step takes 8 bytes, and an allocation 4 more: traces have millions of them.
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
use std::borrow::Cow;
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

/// Makes a request until it is served, and for the last time when nothing is before it in the trace any more. Between
/// two attempts it waits.
///
/// # Errors
///
/// What the last attempt brought.
pub fn insist<T, E>(
    mut ask: impl FnMut() -> Result<T, E>,
    are_others_before: impl Fn() -> bool,
    wait: impl Fn(),
) -> Result<T, E> {
    let mut got = ask();
    let mut is_last = false;
    while got.is_err() && !is_last {
        // Looked at before it is asked: what comes back in between is there for it.
        is_last = !are_others_before();
        if !is_last {
            wait();
        }
        got = ask();
    }
    got
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

/// A [`Step`] as it is kept: its place in the trace; and twice its block, plus 1 for a free.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Packed {
    at: u32,
    what: u32,
}

/// What each CPU does, in its order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Script {
    by_cpu: BTreeMap<u32, Vec<Packed>>,
    /// The requests there are, each once: few.
    requests: Vec<Request>,
    /// For each block twice the number of its request, plus 1 when it was freed.
    blocks: Vec<u32>,
    steps: u32,
    live: u64,
    peak: u64,
}

impl Script {
    /// The most allocations of a script.
    pub const MOST_BLOCKS: usize = u32::MAX as usize / 2;

    /// Nothing to do.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// `cpu` allocates next. Compares the request with those that there were.
    ///
    /// # Panics
    /// If the script has 2^32 − 1 steps already, or [`MOST_BLOCKS`](Self::MOST_BLOCKS) allocations.
    pub fn alloc(&mut self, cpu: u32, request: Request) -> BlockId {
        assert!(self.blocks.len() < Self::MOST_BLOCKS, "a script has at most 2^31 - 1 blocks");
        let block = BlockId(self.blocks.len() as u32);
        let known = self.requests.iter().position(|known| *known == request);
        let number = known.unwrap_or_else(|| {
            self.requests.push(request);
            self.requests.len() - 1
        });
        self.blocks.push((number as u32) << 1);
        self.push(cpu, block, false);
        self.live += request.order().frames();
        self.peak = self.peak.max(self.live);
        block
    }

    /// `cpu` frees a block of this script next; a second free is left out.
    ///
    /// # Panics
    /// If the script has 2^32 − 1 steps already.
    pub fn free(&mut self, cpu: u32, block: BlockId) {
        let Some(word) = self.blocks.get_mut(block.index()) else { return };
        let freed = *word & 1 == 1;
        *word |= 1;
        if !freed {
            self.live -= self.order_of(block).frames();
            self.push(cpu, block, true);
        }
    }

    fn push(&mut self, cpu: u32, block: BlockId, free: bool) {
        let step = Packed { at: self.steps, what: block.0 << 1 | u32::from(free) };
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
    /// Copies the steps of such CPUs, and sorts them: n log n for n of them. Others are borrowed.
    #[must_use]
    pub fn folded(&self, threads: usize) -> Vec<Steps<'_>> {
        let threads = threads.clamp(1, self.cpus().max(1));
        let mut folded: Vec<Cow<'_, [Packed]>> = vec![Cow::Borrowed(&[]); threads];
        for (n, steps) in self.by_cpu.values().enumerate() {
            match &mut folded[n % threads] {
                first if first.is_empty() => *first = Cow::Borrowed(steps),
                shared => shared.to_mut().extend_from_slice(steps),
            }
        }
        let sorted = folded.into_iter().map(|mut steps| {
            if let Cow::Owned(shared) = &mut steps {
                shared.sort_unstable_by_key(|step| step.at);
            }
            Steps { script: self, steps }
        });
        sorted.collect()
    }

    /// The request of a block of this script.
    ///
    /// # Panics
    /// If the block is another script's.
    pub fn request_of(&self, block: BlockId) -> Request {
        self.requests[(self.blocks[block.index()] >> 1) as usize]
    }

    /// The order of a block of this script.
    ///
    /// # Panics
    /// If the block is another script's.
    #[must_use]
    pub fn order_of(&self, block: BlockId) -> Order {
        self.request_of(block).order()
    }
}

/// What one thread does, in its order: see [`Script::folded`].
#[derive(Clone, Debug)]
pub struct Steps<'s> {
    script: &'s Script,
    steps: Cow<'s, [Packed]>,
}

impl Steps<'_> {
    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = Step> {
        self.steps.iter().map(|step| {
            let block = BlockId(step.what >> 1);
            let is_free = step.what & 1 == 1;
            let action =
                if is_free { Action::Free } else { Action::Alloc(self.script.request_of(block)) };
            Step { at: step.at, block, action }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::cell::Cell;

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
                        let step = steps.iter().nth(next).filter(|step| step.at == at)?;
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

    /// What is before is done between the attempt that fails and the look.
    #[test]
    fn the_last_attempt_comes_after_all_that_is_before() {
        let (asked, is_there) = (Cell::new(0), Cell::new(false));
        let ask = || {
            asked.set(asked.get() + 1);
            is_there.get().then_some(asked.get()).ok_or(())
        };
        let comes = || {
            is_there.set(true);
            false
        };
        assert_eq!(insist(ask, comes, || ()), Ok(2));
        is_there.set(false);
        asked.set(0);
        let looks = Cell::new(0);
        let twice_before = || looks.replace(looks.get() + 1) < 2;
        assert_eq!(insist(ask, twice_before, || ()), Err(()), "no more comes");
        assert_eq!((asked.get(), looks.get()), (4, 3));
    }
}

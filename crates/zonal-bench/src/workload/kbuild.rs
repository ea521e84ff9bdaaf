//! `kbuild-mix`: what a kernel build asks of the page allocator, as a plan of steps.
//!
//! # What is measured and what is assumed
//!
//! **Measured**, by Lu (2018), on a desktop that built a kernel with a distribution's
//! configuration: of the batches that per-CPU lists gave back, 92.75 % held movable frames only,
//! 0.003 % unmovable and 0.05 % reclaimable ones only, and 7.2 % were mixed or not full. That is
//! what a preset with linked per-CPU lists can be compared with (`single_movable_percent`).
//!
//! **Facts of Linux** on x86-64: a kernel stack is an order-2 block; a page-table page maps 512
//! pages; page faults and the page cache ask for single movable frames, page tables and kernel
//! objects for unmovable ones, dentries and inodes for reclaimable ones; an exit frees the
//! mappings first, then the page tables, then the stack.
//!
//! **Assumed**, since no published profile of a build's requests by order and lifetime was found:
//! everything else, that is the constants below. A thread runs [`JOBS`] processes at a time,
//! [`PROCESSES`] a repetition. One in [`SMALL_ONE_IN`] is a shell or make with 100 to 400 faults,
//! the others compile with 500 to 3000. Processes fault in bursts of up to [`BURST`]; every
//! [`FAULTS_PER_TABLE`] faults take a page table (address spaces are sparse); one fault in
//! [`CACHE_ONE_IN`] fills the page cache, which keeps [`CACHE_FRAMES`] frames and drops the oldest
//! [`DROP`] at once; every burst grows the slabs by a block of order 0 to 3
//! ([`SLAB_ORDERS`]), unmovable or reclaimable alike, of which [`SLAB_BLOCKS`] live and a
//! random one dies. All together 98 % of the requests are for single frames and 96 % are
//! movable.
//!
//! ```
//! use zonal_bench::rng::Rng;
//! use zonal_bench::workload::kbuild;
//!
//! let plan = kbuild::Plan::new(&mut Rng::new(1));
//! assert!(plan.allocated() > 10_000);
//! ```

use std::collections::VecDeque;

use zonal::MigrateType;

use crate::loops::{Halt, settle};
use crate::rng::Rng;
use crate::subject::FrameThread;

pub use zonal_scenario::kbuild::{
    BURST, CACHE_FRAMES, CACHE_ONE_IN, DROP, FAULTS_PER_TABLE, JOBS, LARGE, SLAB_BLOCKS,
    SLAB_ORDERS, SMALL, SMALL_ONE_IN, STACK_ORDER,
};

/// Processes in a repetition.
pub const PROCESSES: usize = 32;
/// Largest order in a plan.
pub const MAX_ORDER: u8 = 3;

/// A step: the block in `slot` is allocated or freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    slot: u32,
    order: u8,
    migrate: MigrateType,
    alloc: bool,
}

/// The steps of a repetition; they end with everything freed.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    steps: Vec<Step>,
    slots: usize,
    allocated: usize,
}

/// A live block of the plan.
#[derive(Clone, Copy, Debug)]
struct Live {
    slot: u32,
    order: u8,
    migrate: MigrateType,
}

#[derive(Debug, Default)]
struct Process {
    faults_left: usize,
    mapped: Vec<Live>,
    tables: Vec<Live>,
    stack: Vec<Live>,
}

/// Writes a plan.
#[derive(Debug, Default)]
struct Writer {
    plan: Plan,
    free_slots: Vec<u32>,
    cache: VecDeque<Live>,
    slabs: Vec<Live>,
}

impl Writer {
    fn alloc(&mut self, order: u8, migrate: MigrateType) -> Live {
        let slot = self.free_slots.pop().unwrap_or_else(|| {
            self.plan.slots += 1;
            self.plan.slots as u32 - 1
        });
        self.plan.allocated += 1;
        self.plan.steps.push(Step { slot, order, migrate, alloc: true });
        Live { slot, order, migrate }
    }

    fn free(&mut self, blocks: impl IntoIterator<Item = Live>) {
        for Live { slot, order, migrate } in blocks {
            self.free_slots.push(slot);
            self.plan.steps.push(Step { slot, order, migrate, alloc: false });
        }
    }

    fn start(&mut self, rng: &mut Rng) -> Process {
        let small = rng.below(SMALL_ONE_IN) == 0;
        let (least, most) = if small { SMALL } else { LARGE };
        let faults_left = least + rng.below(most + 1 - least);
        let stack = vec![self.alloc(STACK_ORDER, MigrateType::Unmovable)];
        Process { faults_left, stack, ..Process::default() }
    }

    fn burst(&mut self, process: &mut Process, rng: &mut Rng) {
        let faults = (1 + rng.below(BURST)).min(process.faults_left);
        process.faults_left -= faults;
        for _ in 0..faults {
            let frame = self.alloc(0, MigrateType::Movable);
            if rng.below(CACHE_ONE_IN) == 0 {
                self.cache.push_back(frame);
                continue;
            }
            if process.mapped.len().is_multiple_of(FAULTS_PER_TABLE) {
                process.tables.push(self.alloc(0, MigrateType::Unmovable));
            }
            process.mapped.push(frame);
        }
        if self.cache.len() > CACHE_FRAMES {
            let oldest: Vec<Live> = self.cache.drain(..DROP).collect();
            self.free(oldest);
        }
        self.grow_slabs(rng);
    }

    fn grow_slabs(&mut self, rng: &mut Rng) {
        let mut percent = rng.below(100);
        let mut order = 0;
        for (candidate, share) in SLAB_ORDERS {
            if percent < share {
                order = candidate;
                break;
            }
            percent -= share;
        }
        let kinds = [MigrateType::Unmovable, MigrateType::Reclaimable];
        let slab = self.alloc(order, kinds[rng.below(kinds.len())]);
        self.slabs.push(slab);
        if self.slabs.len() > SLAB_BLOCKS {
            let dead = self.slabs.swap_remove(rng.below(SLAB_BLOCKS));
            self.free([dead]);
        }
    }

    fn exit(&mut self, process: Process) {
        self.free(process.mapped);
        self.free(process.tables);
        self.free(process.stack);
    }
}

impl Plan {
    /// A plan.
    #[must_use]
    pub fn new(rng: &mut Rng) -> Self {
        let mut writer = Writer::default();
        let mut running: Vec<Process> = Vec::new();
        let mut started = 0;
        while started < PROCESSES || !running.is_empty() {
            if started < PROCESSES && running.len() < JOBS {
                running.push(writer.start(rng));
                started += 1;
                continue;
            }
            let at = rng.below(running.len());
            writer.burst(&mut running[at], rng);
            if running[at].faults_left == 0 {
                let process = running.swap_remove(at);
                writer.exit(process);
            }
        }
        let cache = core::mem::take(&mut writer.cache);
        writer.free(cache);
        let slabs = core::mem::take(&mut writer.slabs);
        writer.free(slabs);
        writer.plan
    }

    /// Slots that it uses.
    #[must_use]
    pub const fn slots(&self) -> usize {
        self.slots
    }

    /// Blocks that it allocates, and frees.
    #[must_use]
    pub const fn allocated(&self) -> usize {
        self.allocated
    }

    /// Carries it out once.
    ///
    /// # Errors
    ///
    /// [`Halt::OutOfFrames`]; everything allocated is freed again.
    ///
    /// # Panics
    ///
    /// If `blocks` has fewer than [`slots`](Self::slots) elements.
    pub fn carry_out<T: FrameThread>(
        &self,
        thread: &mut T,
        blocks: &mut [T::Block],
    ) -> Result<(), Halt> {
        for (at, step) in self.steps.iter().enumerate() {
            let slot = step.slot as usize;
            if step.alloc {
                let Some(block) = thread.alloc_as(step.order, step.migrate) else {
                    self.unwind(at, thread, blocks);
                    return Err(Halt::OutOfFrames { order: step.order, held: at });
                };
                blocks[slot] = block;
            } else {
                // SAFETY: a plan frees a slot only after it allocated into it, with that order,
                // and not twice; its fields are this module's own.
                unsafe { thread.free(blocks[slot], step.order) };
            }
            settle(thread);
        }
        Ok(())
    }

    /// Frees what is alive after the first `done` steps were carried out on `blocks`.
    #[cold]
    fn unwind<T: FrameThread>(&self, done: usize, thread: &mut T, blocks: &[T::Block]) {
        let mut live = vec![None; self.slots];
        for step in &self.steps[..done] {
            live[step.slot as usize] = step.alloc.then_some(step.order);
        }
        for (slot, order) in live.into_iter().enumerate() {
            if let Some(order) = order {
                // SAFETY: the last step on this slot allocated it with this order.
                unsafe { thread.free(blocks[slot], order) };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subject::{Setup, Subject};
    use crate::subjects::baseline::FreeList;

    #[test]
    fn a_plan_frees_what_it_allocates() {
        let plan = Plan::new(&mut Rng::new(5));
        let mut live = vec![None; plan.slots()];
        for step in &plan.steps {
            let slot = &mut live[step.slot as usize];
            if step.alloc {
                assert_eq!(slot.replace((step.order, step.migrate)), None);
            } else {
                assert_eq!(slot.take(), Some((step.order, step.migrate)));
            }
        }
        assert!(live.iter().all(Option::is_none));
    }

    #[test]
    fn the_shares_are_as_documented() {
        let plan = Plan::new(&mut Rng::new(1));
        let share = |wanted: &dyn Fn(&Step) -> bool| {
            let count = plan.steps.iter().filter(|step| step.alloc && wanted(step)).count();
            (100.0 * count as f64 / plan.allocated() as f64).round()
        };
        assert_eq!(share(&|step| step.order == 0), 98.0);
        assert_eq!(share(&|step| step.migrate == MigrateType::Movable), 96.0);
        assert_eq!(SLAB_ORDERS.iter().map(|(_, share)| share).sum::<usize>(), 100);
        assert!(plan.steps.iter().all(|step| step.order <= MAX_ORDER));
    }

    #[test]
    fn running_out_gives_everything_back() {
        // Without orders it stops at the first stack; with few frames, at a fault.
        let setup = Setup { memory: 100 << 12, threads: 1, touch: false, regions: None };
        let list = FreeList::open(&setup).expect("opens");
        let mut thread = list.thread(0).expect("registers");
        let plan = Plan::new(&mut Rng::new(1));
        let halt = plan.carry_out(&mut thread, &mut vec![0; plan.slots()]);
        assert!(matches!(halt, Err(Halt::OutOfFrames { order: STACK_ORDER, .. })), "{halt:?}");
        let mut plan = plan;
        plan.steps.retain(|step| step.order == 0);
        let halt = plan.carry_out(&mut thread, &mut vec![0; plan.slots()]);
        assert!(matches!(halt, Err(Halt::OutOfFrames { order: 0, .. })), "{halt:?}");
        assert_eq!(thread.alloc_bulk(&mut [0; 200]), 100);
    }
}

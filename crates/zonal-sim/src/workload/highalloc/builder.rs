//! Compilers at work: what they read, map and leave behind.

use super::memory::{Memory, Slab};
use crate::mix::highalloc::{
    FAULTS_PER_TABLE, JOBS, KERNEL_SHARE, MAPPED, OBJECT, PAGES_PER_SLAB, READ, SLAB_PINNED_ONE_IN,
    STACK_ORDER, STEP,
};
use crate::task::Task;
use fastrand::Rng;
use zonal::{MigrateType, Order, Pfn, Request};

const STACK: Order = Order::new(STACK_ORDER).expect("a small order");

/// One compiler.
#[derive(Default)]
struct Compiler {
    to_map: usize,
    to_read: usize,
    /// Numbers of pages.
    mapped: Vec<u32>,
    tables: Vec<Pfn>,
    stack: Option<Pfn>,
}

/// The compilers of one CPU.
pub(super) struct Builder<'a> {
    task: Task<'a>,
    random: Rng,
    memory: &'a Memory,
    running: Vec<Compiler>,
    /// Numbers of pages that are not on the LRU lists yet.
    unlisted: Vec<u32>,
    /// Unmovable objects that outlive their compiler.
    kernel: Vec<Pfn>,
    read: u64,
    /// Requests that failed.
    pub(super) failed: u64,
}

impl<'a> Builder<'a> {
    pub(super) fn new(task: Task<'a>, random: Rng, memory: &'a Memory) -> Self {
        Self {
            task,
            random,
            memory,
            running: Vec::new(),
            unlisted: Vec::new(),
            kernel: Vec::new(),
            read: 0,
            failed: 0,
        }
    }

    fn ask(&mut self, order: Order, migrate: MigrateType) -> Option<Pfn> {
        let block = self.task.ask(&Request::new(order).migrate(migrate));
        self.counted(block.ok(), order)
    }

    fn counted(&mut self, block: Option<Pfn>, order: Order) -> Option<Pfn> {
        match block {
            Some(_) => self.memory.count_taken(order.frames()),
            None => self.failed += 1,
        }
        block
    }

    fn give(&mut self, pfn: Pfn, order: Order) {
        self.task.give(&[pfn], order);
        self.memory.count_given(order.frames());
    }

    /// A movable page with something in it.
    fn page(&mut self, cached: bool) -> Option<u32> {
        let pfn = self.task.fault_unlisted().ok();
        let pfn = self.counted(pfn, Order::ZERO)?;
        let page = self.memory.enter(pfn, cached);
        self.unlisted.push(page);
        if self.unlisted.len() >= self.task.work.batch {
            self.list();
        }
        Some(page)
    }

    fn list(&mut self) {
        let numbers = core::mem::take(&mut self.unlisted);
        self.memory.list(&numbers);
    }

    fn read_page(&mut self) {
        self.page(true);
        self.read += 1;
        if !self.read.is_multiple_of(PAGES_PER_SLAB) {
            return;
        }
        let Some(order) = Order::new(self.random.u8(..2)) else { return };
        if let Some(pfn) = self.ask(order, MigrateType::Reclaimable) {
            let pinned = self.random.usize(..SLAB_PINNED_ONE_IN) == 0;
            self.memory.enter_slab(Slab { pfn, order, pinned });
        }
    }

    fn start(&mut self) {
        let to_map = self.random.usize(MAPPED.0..=MAPPED.1);
        let to_read = self.random.usize(READ.0..=READ.1);
        let stack = self.ask(STACK, MigrateType::Unmovable);
        self.running.push(Compiler { to_map, to_read, stack, ..Compiler::default() });
    }

    /// Gives back what a compiler had mapped; what it read and wrote stays cached.
    fn exit(&mut self, compiler: &Compiler) {
        // The kernel has the page in hand until it is listed.
        self.list();
        let leave = |&page: &u32| self.memory.leave(page);
        let mapped: Vec<_> = compiler.mapped.iter().map(leave).collect();
        self.task.unmap(&mapped, Order::ZERO);
        self.memory.count_given(mapped.len() as u64);
        for &table in &compiler.tables {
            self.give(table, Order::ZERO);
        }
        if let Some(stack) = compiler.stack {
            self.give(stack, STACK);
        }
    }

    /// A compiler ends: it writes its object, and a kernel object stays behind.
    fn finish(&mut self, compiler: &Compiler) {
        for _ in 0..OBJECT {
            self.page(true);
        }
        self.exit(compiler);
        if let Some(object) = self.ask(Order::ZERO, MigrateType::Unmovable) {
            self.kernel.push(object);
        }
        let most = self.memory.frames() as usize * KERNEL_SHARE / 100;
        if self.kernel.len() > most {
            let at = self.random.usize(..self.kernel.len());
            let old = self.kernel.swap_remove(at);
            self.give(old, Order::ZERO);
        }
    }

    /// A few page faults and reads of one compiler.
    pub(super) fn step(&mut self) {
        if self.running.len() < JOBS {
            self.start();
        }
        let at = self.random.usize(..self.running.len());
        let mut compiler = self.running.swap_remove(at);
        for _ in 0..STEP {
            let reads = compiler.to_map == 0 || self.random.usize(..4) == 0;
            if compiler.to_read > 0 && reads {
                compiler.to_read -= 1;
                self.read_page();
            } else if compiler.to_map > 0 {
                compiler.to_map -= 1;
                compiler.mapped.extend(self.page(false));
                if compiler.to_map.is_multiple_of(FAULTS_PER_TABLE) {
                    compiler.tables.extend(self.ask(Order::ZERO, MigrateType::Unmovable));
                }
            }
        }
        if compiler.to_map + compiler.to_read == 0 {
            self.finish(&compiler);
        } else {
            self.running.push(compiler);
        }
    }

    /// Gives back everything but cache and slabs.
    pub(super) fn end(mut self) {
        for compiler in core::mem::take(&mut self.running) {
            self.exit(&compiler);
        }
        self.list();
        for object in core::mem::take(&mut self.kernel) {
            self.give(object, Order::ZERO);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coroutine::Body;
    use crate::machine::{self, Machine};
    use crate::run::{SimError, Spec, Workload as Name};
    use crate::workload::highalloc::memory_of;
    use crate::workload::{Needs, Stage, Workload, run_alone};

    /// A builder reads pages one by one.
    struct Reads;

    impl Workload for Reads {
        fn needs(&self, _: &Machine, _: &Spec) -> Result<Needs, SimError> {
            let counted = "faults";
            Ok(Needs { frames_a_socket: 4096, counted, warm_up: 0, measure: 9, rates: false })
        }

        fn tasks<'a>(&'a self, stage: &'a Stage<'a>) -> Vec<Body<'a>> {
            let memory = memory_of(stage);
            let mut builder = Builder::new(stage.task(0), stage.random(0), &memory);
            let unlisted: Vec<_> = (0..8)
                .map(|_| {
                    builder.page(true).expect("memory is empty");
                    builder.unlisted.len()
                })
                .collect();
            assert_eq!(unlisted, [1, 2, 0, 1, 2, 0, 1, 2]);
            builder.end();
            memory.empty(stage.allocator);
            vec![Box::new(|| ())]
        }
    }

    #[test]
    fn as_many_pages_are_listed_at_once_as_the_machine_says() {
        let mut machine = machine::builtin("desktop_8cpu_4g").expect("it is built in");
        machine.kernel.lru_batch = 3;
        run_alone(&Reads, &machine, Name::StressHighalloc).expect("nothing is lost");
    }
}

//! Compilers at work: what they read, map and leave behind.

use std::collections::VecDeque;

use zonal::policy::Sound;
use zonal::{MigrateType, Order, Pfn};
use zonal_host::Arena;
use zonal_host::compactor::Compactor;

use super::cache::{Cache, Slab};
use super::{
    FAULTS_PER_TABLE, JOBS, KERNEL_SHARE, MAPPED, OBJECT, PAGES_PER_METADATA, PAGES_PER_SLAB, READ,
    SLAB_PINNED_ONE_IN, STACK_ORDER, STEP,
};
use crate::loops::Halt;
use crate::rng::Rng;
use crate::subject::{FRAME_BYTES, FrameThread};

/// One compiler.
#[derive(Debug, Default)]
struct Compiler {
    to_map: usize,
    to_read: usize,
    /// Numbers of pages.
    mapped: Vec<u32>,
    tables: Vec<Pfn>,
    stack: Option<Pfn>,
}

/// The compilers of one thread.
pub(super) struct Builder<'a, S: Sound, T> {
    arena: &'a Arena<S>,
    cache: &'a Cache,
    compactor: &'a Compactor<'static>,
    thread: &'a mut T,
    rng: Rng,
    running: Vec<Compiler>,
    /// Unmovable objects that outlive their compiler.
    kernel: Vec<Pfn>,
    kernel_most: usize,
    /// Metadata pages of the file system that its journal has, oldest first, with what is in
    /// them. Not in the tables: no thread moves or drops them.
    journal: VecDeque<(Pfn, u64)>,
    journal_most: usize,
    read: u64,
    stamp: u64,
    /// Requests that failed.
    pub(super) failed: u64,
}

/// Addresses of the first and last word of a page.
fn words<S: Sound>(arena: &Arena<S>, pfn: Pfn) -> Option<[*mut u64; 2]> {
    let first = arena.address_of(pfn)?.as_ptr();
    let last = first.wrapping_add(FRAME_BYTES - size_of::<u64>());
    Some([first.cast(), last.cast()])
}

/// Fills a page that the caller has just allocated.
fn fill<S: Sound>(arena: &Arena<S>, pfn: Pfn, stamp: u64) {
    for word in words(arena, pfn).into_iter().flatten() {
        // SAFETY: inside an allocated frame that no other thread knows yet, and aligned.
        unsafe { word.write_volatile(stamp) };
    }
}

/// Checks and frees a page that was taken out of the tables.
pub(super) fn release<S: Sound, T: FrameThread<Block = Pfn>>(
    arena: &Arena<S>,
    cache: &Cache,
    thread: &mut T,
    (pfn, stamp): (Pfn, u64),
) -> Result<(), Halt> {
    let intact = words(arena, pfn).into_iter().flatten().all(|word| {
        // SAFETY: inside an allocated frame that is the caller's alone by now, and aligned.
        unsafe { word.read_volatile() == stamp }
    });
    // SAFETY: the page was allocated with order 0, and who takes it out of the tables frees it.
    unsafe { thread.free(pfn, 0) };
    cache.count(-1);
    if intact { Ok(()) } else { Err(Halt::Damaged("a page does not hold what was written to it")) }
}

impl<'a, S: Sound, T: FrameThread<Block = Pfn>> Builder<'a, S, T> {
    pub(super) fn new(
        arena: &'a Arena<S>,
        cache: &'a Cache,
        compactor: &'a Compactor<'static>,
        thread: &'a mut T,
        seed: u64,
        journal_most: usize,
    ) -> Self {
        Self {
            arena,
            cache,
            compactor,
            thread,
            rng: Rng::new(seed),
            running: Vec::new(),
            kernel: Vec::new(),
            kernel_most: arena.len() / FRAME_BYTES * KERNEL_SHARE / 100,
            journal: VecDeque::new(),
            journal_most,
            read: 0,
            stamp: seed << 32,
            failed: 0,
        }
    }

    fn alloc(&mut self, order: u8, migrate: MigrateType) -> Option<Pfn> {
        let block = self.thread.alloc_as(order, migrate);
        match block {
            Some(_) => self.cache.count(1 << order),
            None => self.failed += 1,
        }
        block
    }

    fn free(&mut self, pfn: Pfn, order: u8) {
        // SAFETY: callers free what they kept from `alloc` with this order, once.
        unsafe { self.thread.free(pfn, order) };
        self.cache.count(-(1 << order));
    }

    /// A movable frame with something in it.
    fn filled(&mut self) -> Option<(Pfn, u64)> {
        let pfn = self.alloc(0, MigrateType::Movable)?;
        self.stamp += 1;
        fill(self.arena, pfn, self.stamp);
        Some((pfn, self.stamp))
    }

    fn enter(&self, (pfn, stamp): (Pfn, u64), cached: bool) -> Result<u32, Halt> {
        let page = self.cache.insert(pfn, stamp, cached);
        page.ok_or(Halt::Damaged("a frame was handed out that was in use"))
    }

    /// A page of the tables.
    fn page(&mut self, cached: bool) -> Result<Option<u32>, Halt> {
        self.filled().map(|page| self.enter(page, cached)).transpose()
    }

    /// A page of metadata is read and changed: the journal has it until it is full of later
    /// ones.
    fn change_metadata(&mut self) -> Result<(), Halt> {
        let page = self.filled();
        self.journal.extend(page);
        if self.journal.len() > self.journal_most
            && let Some(oldest) = self.journal.pop_front()
        {
            self.enter(oldest, true)?;
        }
        Ok(())
    }

    fn read_page(&mut self) -> Result<(), Halt> {
        self.page(true)?;
        self.read += 1;
        if self.read.is_multiple_of(PAGES_PER_METADATA) {
            self.change_metadata()?;
        }
        if !self.read.is_multiple_of(PAGES_PER_SLAB) {
            return Ok(());
        }
        let number = self.rng.below(2) as u8;
        if let (Some(order), Some(pfn)) =
            (Order::new(number), self.alloc(number, MigrateType::Reclaimable))
        {
            let pinned = self.rng.below(SLAB_PINNED_ONE_IN) == 0;
            self.cache.insert_slab(Slab { pfn, order, pinned });
        }
        Ok(())
    }

    fn range(&mut self, (least, most): (usize, usize)) -> usize {
        least + self.rng.below(most - least + 1)
    }

    fn start(&mut self) {
        let (to_map, to_read) = (self.range(MAPPED), self.range(READ));
        let stack = self.alloc(STACK_ORDER, MigrateType::Unmovable);
        self.running.push(Compiler { to_map, to_read, stack, ..Compiler::default() });
    }

    /// Gives back what a compiler had mapped; what it read and wrote stays cached.
    fn exit(&mut self, compiler: Compiler) -> Result<(), Halt> {
        for page in compiler.mapped {
            let entry = self.cache.remove(page);
            let entry = entry.ok_or(Halt::Damaged("a mapped page is gone"))?;
            release(self.arena, self.cache, self.thread, entry)?;
        }
        for table in compiler.tables {
            self.free(table, 0);
        }
        if let Some(stack) = compiler.stack {
            self.free(stack, STACK_ORDER);
        }
        Ok(())
    }

    /// A compiler ends: it writes its object, and a kernel object stays behind.
    fn finish(&mut self, compiler: Compiler) -> Result<(), Halt> {
        for _ in 0..OBJECT {
            self.page(true)?;
        }
        self.exit(compiler)?;
        if let Some(object) = self.alloc(0, MigrateType::Unmovable) {
            self.kernel.push(object);
        }
        if self.kernel.len() > self.kernel_most {
            let at = self.rng.below(self.kernel.len());
            let old = self.kernel.swap_remove(at);
            self.free(old, 0);
        }
        Ok(())
    }

    /// A few page faults and reads of one compiler.
    pub(super) fn step(&mut self) -> Result<(), Halt> {
        if self.cache.balance(self.arena) {
            self.compactor.wake(Order::HUGE);
        }
        if self.running.len() < JOBS {
            self.start();
        }
        let at = self.rng.below(self.running.len());
        let mut compiler = self.running.swap_remove(at);
        for _ in 0..STEP {
            if compiler.to_read > 0 && (compiler.to_map == 0 || self.rng.below(4) == 0) {
                compiler.to_read -= 1;
                self.read_page()?;
            } else if compiler.to_map > 0 {
                compiler.to_map -= 1;
                compiler.mapped.extend(self.page(false)?);
                if compiler.to_map.is_multiple_of(FAULTS_PER_TABLE) {
                    compiler.tables.extend(self.alloc(0, MigrateType::Unmovable));
                }
            }
        }
        if compiler.to_map + compiler.to_read == 0 {
            return self.finish(compiler);
        }
        self.running.push(compiler);
        Ok(())
    }

    /// Gives back everything but cache and slabs.
    pub(super) fn end(mut self) -> Result<(), Halt> {
        for compiler in core::mem::take(&mut self.running) {
            self.exit(compiler)?;
        }
        for page in core::mem::take(&mut self.journal) {
            release(self.arena, self.cache, self.thread, page)?;
        }
        for object in core::mem::take(&mut self.kernel) {
            self.free(object, 0);
        }
        Ok(())
    }
}

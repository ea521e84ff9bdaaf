//! What a task does around the allocator: page faults, unmapping, listing of pages.

use crate::any_allocator::Cpu;
use crate::coroutine;
use crate::engine;
use crate::lru::Lru;
use crate::machine::Kernel;
use crate::profile::Phase;
use crate::run::Preset;
use crate::ticks::Ticks;
use zonal::{AllocError, MigrateType, Order, Pfn, Request};

/// Lines of a frame.
const LINES_A_FRAME: u32 = 64;
/// Pages that unmapping collects before it flushes the TLB and frees them.
const GATHER: usize = 512;
/// This many pages before it comes to one, a task with a list of them tells the host.
const SOON: usize = 8;

/// The `struct page` of each frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pages {
    pub(crate) base: Pfn,
    pub(crate) frames: u64,
    /// The line of the first.
    pub(crate) first: usize,
    /// Lines of each.
    pub(crate) stride: usize,
    pub(crate) class: u8,
    pub(crate) sockets: u64,
}

impl Pages {
    pub(crate) fn index(&self, pfn: Pfn) -> u32 {
        (pfn.get() - self.base.get()) as u32
    }

    pub(crate) fn pfn(&self, index: u32) -> Pfn {
        Pfn::new(self.base.get() + u64::from(index))
    }

    /// The socket whose memory a frame is.
    pub(crate) fn home(&self, pfn: Pfn) -> u8 {
        // As index * sockets / frames, but the host divides slowly.
        let place = (pfn.get() - self.base.get()) * self.sockets;
        (1..self.sockets).take_while(|socket| socket * self.frames <= place).count() as u8
    }

    /// The line of a frame's `struct page`.
    pub(crate) fn line(&self, pfn: Pfn) -> usize {
        self.first + self.index(pfn) as usize * self.stride
    }

    /// The host will soon need what it has of a frame.
    pub(crate) fn prefetch(&self, pfn: Pfn) {
        let (index, line) = (self.index(pfn) as usize, self.line(pfn));
        engine::with(|engine| engine.prefetch(index, line));
    }

    /// Reads or writes the `struct page` of a frame.
    pub(crate) fn touch(&self, pfn: Pfn, write: bool) {
        let line = self.line(pfn);
        engine::with_cpu(|engine, cpu| {
            engine.touch_line(cpu, line, self.class, write, || self.home(pfn));
        });
    }
}

/// Costs of the work around the allocator, in ticks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work {
    fault: Ticks,
    huge_fault: Ticks,
    clear: Ticks,
    unmap: Ticks,
    move_page: Ticks,
    map_range: Ticks,
    flush: Ticks,
    ipi: Ticks,
    pub(crate) compute: Ticks,
    pub(crate) wake: Ticks,
    /// Pages listed at once.
    pub(crate) batch: usize,
    /// Pages taken off their lists at once.
    pub(crate) unlist: usize,
}

/// Pages that a kernel takes off the LRU lists in one hold of their lock when it unmaps them: since
/// Linux 4.16, here, as many as reclaim works on at once; before that what a page vector has.
pub(crate) const fn unlisted_at_once(preset: Preset) -> usize {
    match preset {
        Preset::Linux316 | Preset::FairZonePosted | Preset::FairZone | Preset::LessDirty => 14,
        Preset::Linux413 => 14,
        _ => 32,
    }
}

impl Work {
    pub(crate) fn of(kernel: &Kernel, preset: Preset) -> Self {
        let ticks = Ticks::from_cycles;
        Self {
            fault: ticks(kernel.fault),
            huge_fault: ticks(kernel.huge_fault),
            clear: ticks(kernel.clear_page),
            unmap: ticks(kernel.unmap_page),
            move_page: ticks(kernel.move_page),
            map_range: ticks(kernel.map_range),
            flush: ticks(kernel.tlb_flush),
            ipi: ticks(kernel.tlb_ipi),
            compute: ticks(kernel.compute),
            wake: ticks(kernel.wake),
            batch: kernel.lru_batch.max(1) as usize,
            unlist: unlisted_at_once(preset),
        }
    }

    /// Charges moving a page. A copy costs the instructions of clearing and twice the memory
    /// traffic.
    pub(crate) fn charge_move(&self) {
        spend(Ticks(self.move_page.0 + self.clear.0));
        stream(2 * LINES_A_FRAME);
    }

    /// Charges taking a page out of the page cache.
    pub(crate) fn charge_drop(&self) {
        spend(self.unmap);
    }

    /// What that costs.
    pub(crate) const fn drop_page(&self) -> Ticks {
        self.unmap
    }

    /// Charges copying a page to or from a file, for the price of a page fault and of clearing.
    pub(crate) fn charge_copy(&self) {
        coroutine::pause_if_early();
        spend(self.fault);
        self.charge_clear(1);
    }

    fn charge_clear(&self, frames: u32) {
        for _ in 0..frames {
            spend(self.clear);
            stream(LINES_A_FRAME);
            coroutine::pause_if_early();
        }
    }
}

/// Cycles of a program's own work to a line that it gets from memory: a guess, one or two misses in
/// a thousand instructions, as compilers have.
const CYCLES_A_MISS: u64 = 500;

/// Lines that pass through the caches of the CPU that runs.
pub(crate) fn stream(lines: u32) {
    engine::with_cpu(|engine, cpu| engine.stream(cpu, lines));
}

/// No task needs the CPU for a while: its clock goes on, at no speed of its own. It counts as busy.
pub(crate) fn idle(time: Ticks) {
    engine::with_cpu(|engine, cpu| *engine.clock(cpu) += time);
    coroutine::pause();
}

/// Charges instructions to the CPU that runs.
pub(crate) fn spend(time: Ticks) {
    engine::with_cpu(|engine, cpu| engine.spend(cpu, time));
}

/// Whether the time to measure is over.
pub(crate) fn stopped() -> bool {
    engine::with(|engine| engine.stopped) != Some(false)
}

/// Counts something that the workload did.
pub(crate) fn count(name: &'static str, by: u64) {
    engine::with(|engine| engine.measured.count(name, by));
}

/// Counts frames that the workload takes, or gives back.
pub(crate) fn count_taken(frames: i64) {
    engine::with(|engine| engine.taken += frames);
}

/// Runs `f`, which allocates or frees `blocks` blocks and takes `frames` frames, or gives them back
/// (below 0), with its waiting put down to `phase`.
pub(crate) fn during<R>(phase: Phase, blocks: u64, frames: i64, f: impl FnOnce() -> R) -> R {
    let before = engine::with(|engine| {
        engine.taken += frames;
        let cpu = engine.current?;
        engine.page_operations += blocks;
        Some(core::mem::replace(&mut engine.cpus[cpu].phase, phase))
    });
    let result = f();
    engine::with_cpu(|engine, cpu| {
        engine.cpus[cpu].phase = before.flatten().unwrap_or_default();
    });
    result
}

/// A task on a CPU of its own.
pub(crate) struct Task<'a> {
    pub(crate) cpu: u32,
    pub(crate) handle: Box<dyn Cpu + 'a>,
    pub(crate) work: Work,
    pub(crate) pages: Pages,
    pub(crate) lru: &'a Lru,
    /// CPUs that run the same address space, besides this one.
    pub(crate) others: u32,
    /// Pages not listed yet.
    pub(crate) unlisted: Vec<Pfn>,
}

impl Task<'_> {
    /// Takes a frame for user memory.
    pub(crate) fn take(&mut self, order: Order) -> Result<Pfn, Box<AllocError>> {
        self.ask(&Request::new(order).migrate(MigrateType::Movable))
    }

    /// Takes a block of any kind.
    pub(crate) fn ask(&mut self, request: &Request) -> Result<Pfn, Box<AllocError>> {
        let frames = request.order().frames() as i64;
        let block = during(Phase::Alloc, 1, frames, || self.handle.alloc_raw(request));
        if block.is_err() {
            count_taken(-frames);
        }
        block
    }

    /// Gives frames back.
    ///
    /// # Panics
    /// If the allocator refuses one that it gave: the simulation found a defect.
    pub(crate) fn give(&mut self, frames: &[Pfn], order: Order) {
        let given = -((frames.len() as i64) << order.get());
        during(Phase::Free, frames.len() as u64, given, || {
            for (at, &pfn) in frames.iter().enumerate() {
                if let Some(&soon) = frames.get(at + SOON) {
                    self.pages.prefetch(soon);
                }
                self.handle.free_raw(pfn, order).expect("a frame that this task allocated");
            }
        });
    }

    /// Gives single frames back as one list.
    ///
    /// # Panics
    /// As [`give`](Self::give).
    pub(crate) fn give_list(&mut self, frames: &[Pfn]) {
        let given = -(frames.len() as i64);
        frames.iter().for_each(|&pfn| self.pages.prefetch(pfn));
        let free = || self.handle.free_bulk(frames);
        let freed = during(Phase::Free, frames.len() as u64, given, free);
        assert_eq!(freed.refused, 0, "frames of this task: {:?}", freed.first_refused);
    }

    /// A page fault on memory that was never touched.
    pub(crate) fn fault(&mut self) -> Result<Pfn, Box<AllocError>> {
        let pfn = self.fault_unlisted()?;
        self.lru.prefetch(&self.pages, pfn);
        self.unlisted.push(pfn);
        if self.unlisted.len() >= self.work.batch {
            self.list();
        }
        Ok(pfn)
    }

    /// The same for a caller that lists the page itself.
    pub(crate) fn fault_unlisted(&mut self) -> Result<Pfn, Box<AllocError>> {
        coroutine::pause_if_early();
        spend(self.work.fault);
        let pfn = self.take(Order::ZERO)?;
        self.clear(1);
        self.pages.touch(pfn, true);
        Ok(pfn)
    }

    /// The same with a huge page, which is listed at once: Linux keeps none back for a batch.
    pub(crate) fn huge_fault(&mut self) -> Result<Pfn, Box<AllocError>> {
        coroutine::pause_if_early();
        spend(self.work.huge_fault);
        let pfn = self.take(Order::HUGE)?;
        self.clear(Order::HUGE.frames() as u32);
        self.pages.touch(pfn, true);
        self.unlisted.push(pfn);
        self.list();
        Ok(pfn)
    }

    /// Takes a frame for a page of a file.
    pub(crate) fn cache_page(&mut self, request: &Request) -> Result<Pfn, Box<AllocError>> {
        let pfn = self.ask(request)?;
        self.pages.touch(pfn, true);
        Ok(pfn)
    }

    /// Copies a page to or from a file.
    pub(crate) fn copy_page(&self) {
        self.work.charge_copy();
    }

    /// Mapping or unmapping a range.
    pub(crate) fn map_range(&self) {
        spend(self.work.map_range);
    }

    /// Unmaps pages and frees them.
    pub(crate) fn unmap(&mut self, frames: &[Pfn], order: Order) {
        self.list();
        for batch in frames.chunks(GATHER) {
            for (at, &pfn) in batch.iter().enumerate() {
                if let Some(&soon) = batch.get(at + SOON) {
                    self.pages.prefetch(soon);
                    self.lru.prefetch(&self.pages, soon);
                }
                spend(self.work.unmap);
                self.pages.touch(pfn, true);
                coroutine::pause_if_early();
            }
            self.flush();
            self.release(batch, order);
        }
    }

    /// Takes pages that no process maps any more off the LRU lists and frees them.
    pub(crate) fn release(&mut self, frames: &[Pfn], order: Order) {
        if order > Order::ZERO {
            // Linux takes each larger page off its list and frees it by itself.
            for &pfn in frames {
                self.pages.touch(pfn, true);
                self.lru.delete(&self.pages, &[pfn]);
                self.give(&[pfn], order);
            }
            return;
        }
        let mut batches = frames.chunks(self.work.unlist).peekable();
        while let Some(batch) = batches.next() {
            for &soon in batches.peek().copied().unwrap_or_default() {
                self.lru.prefetch(&self.pages, soon);
            }
            self.lru.delete(&self.pages, batch);
        }
        // Since Linux 4.15 as a list; before, the preset frees a list one by one.
        self.give_list(frames);
    }

    fn flush(&self) {
        // CPUs that are idle meanwhile look at the tables anew when they wake.
        let busy = engine::with(|engine| engine.busy()).unwrap_or(1);
        let others = u64::from(self.others.min(busy - 1));
        spend(Ticks(self.work.flush.0 + self.work.ipi.0 * others));
    }

    fn clear(&self, frames: u32) {
        self.work.charge_clear(frames);
    }

    /// What a program does for itself between two page faults, `part` of what is usual.
    pub(crate) fn compute(&self, part: f64) {
        let time = Ticks((self.work.compute.0 as f64 * part) as u64);
        spend(time);
        stream((time.cycles() / CYCLES_A_MISS) as u32);
    }

    /// Puts the collected pages on the LRU lists.
    pub(crate) fn list(&mut self) {
        let batch = core::mem::take(&mut self.unlisted);
        self.lru.add(&self.pages, self.cpu, &batch);
        self.unlisted = batch;
        self.unlisted.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_unlists_as_many_pages_in_a_hold_as_its_source() {
        let of = |name: &str| {
            let preset = Preset::ALL.into_iter().find(|preset| preset.name() == name);
            unlisted_at_once(preset.expect("a preset"))
        };
        let before = ["Linux413", "Linux316", "FairZonePosted", "FairZone", "LessDirty"];
        assert_eq!(before.map(of), [14; 5], "before 4.16");
        let since =
            ["Linux416", "SkipMerge", "Cluster", "ClusterFree", "Linux63", "SplitZones", "Zonal"];
        assert_eq!(since.map(of), [32; 7]);
    }

    #[test]
    fn frames_are_in_equal_parts_on_all_sockets() {
        for (frames, sockets) in [(4096, 1), (4096, 2), (4097, 2), (5000, 3), (8191, 8)] {
            let base = Pfn::new(1 << 20);
            let pages = Pages { base, frames, first: 0, stride: 1, class: 0, sockets };
            for index in 0..frames {
                let home = pages.home(pages.pfn(index as u32));
                assert_eq!(u64::from(home), index * sockets / frames, "{index} of {frames}");
            }
        }
    }
}

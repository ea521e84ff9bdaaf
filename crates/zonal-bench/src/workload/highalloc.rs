//! `stress-highalloc`: how many huge pages can be had from memory full of page cache?
//!
//! The benchmark of that name in Gorman's mmtests copies kernel trees and builds them until
//! almost all memory is page cache, none of it free, and after minutes asks for order-9 blocks,
//! with a pause between requests, for up to 95 % of memory. This is that mechanism on an arena:
//!
//! 1. **Fill.** All threads but thread 0 run compilers, [`JOBS`] each at a time, until half of
//!    memory's worth of cache pages has been dropped again to make room.
//! 2. **Ask.** Thread 0 asks for movable order-9 blocks, [`SHARE`] % of those that memory has,
//!    waits [`Options::delay`](crate::options::Options::delay) after each request, and keeps what
//!    it gets. The others go on, a step every [`PAUSE`].
//!
//! A row's `success_rate` is in percent of the requests. `mean_ns_per_block` is the time of all
//! requests by the blocks that were had: who refuses what takes long is not cheap for that.
//! `mean_ns_served` is the mean of the requests that were served; `ns` is the mean over all. `pages_migrated` and `pages_reclaimed` are
//! those of step 2. Times are wall times: a sample takes seconds, in which every thread loses its
//! CPU now and then and the CPUs' distance changes, so samples are not dropped for either, and
//! rows have no distance.
//!
//! # What the memory holds
//!
//! A compiler maps [`MAPPED`] movable pages with an unmovable page table for every
//! [`FAULTS_PER_TABLE`], has an unmovable order-2 stack, reads [`READ`] pages into the cache
//! (movable) and writes [`OBJECT`] on exit. Every [`PAGES_PER_SLAB`] pages read come with a
//! reclaimable block of order 0 or 1 (dentries and inodes), of which one in
//! [`SLAB_PINNED_ONE_IN`] stays for good. Each compiler leaves one unmovable frame behind, up to
//! [`KERNEL_SHARE`] % of memory, then random ones die. The kinds are Linux's; the numbers are
//! assumed, a fraction of what a build takes of the source's 4 GiB.
//!
//! With every [`PAGES_PER_METADATA`] pages read a page of the file system's metadata is changed.
//! It is movable memory, but until the journal is full of later ones it cannot be moved or dropped:
//! so it was with the metadata of a block device in the source's kernel. How many pages the
//! journal has ([`JOURNAL_SHARE`]) is fitted, once, on what the *base* of the source serves;
//! what every other preset makes of it follows.
//!
//! Direct reclaim drops the [`SWAP_CLUSTER`] oldest cache pages and looks at a slab for every
//! [`SCAN_SLABS`] of them; for a huge page it makes room for compaction (up to twice the block,
//! once a request). Background reclaim, woken at the low watermark, goes on to the high one, and
//! by as much room again if a huge page was missing; then, and when a huge page was missing,
//! background compaction is woken, a thread of its own beside those of the row.
//! Watermarks are Linux's where huge pages are transparent. Every page has its own contents, copied when compaction moves it and
//! checked when it is freed; at the end every frame must be free again.
//!
//! Left out: pages that are locked for a moment, swap, dirty pages that must be written first.
//!
//! ```
//! use zonal_bench::workload::highalloc;
//!
//! assert!(highalloc::PAUSE < highalloc::LONG_DELAY);
//! assert_eq!(highalloc::DEFAULT_MEMORY >> 21, 256, "blocks of 2 MiB");
//! ```

use core::marker::PhantomData;
use core::time::Duration;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use zonal::info::ZoneInfo;
use zonal::policy::Sound;
use zonal::watermark::{MinFree, WatermarkConfig};
use zonal::{MigrateType, Pfn};
use zonal_host::Arena;
use zonal_host::compactor::{Compactor, Settings};

use super::HUGE_ORDER;
use crate::case::{Case, CaseError, Sample, Shared, Spec, ThreadRun, assemble, take_part};
use crate::figures::{Figure, Figures, LockWork};
use crate::loops::Halt;
use crate::pool::Pool;
use crate::subject::{FRAME_BYTES, FrameThread, SubjectError};
use crate::subjects::zonal::{Way, lock_work_of, zones};

mod builders;
mod cache;

// The same in the simulated workload.
pub use zonal_scenario::highalloc::{
    FAULTS_PER_TABLE, HUGE_PAGEBLOCKS, JOBS, KERNEL_SHARE, MAPPED, OBJECT, PAGES_PER_SLAB, READ,
    SCAN_SLABS, SHARE, SLAB_PINNED_ONE_IN, STACK_ORDER, STEP, SWAP_CLUSTER,
};

use builders::{Builder, release};
use cache::Cache;

/// Memory, if not said otherwise: an eighth of the source's machine.
pub const DEFAULT_MEMORY: usize = 512 << 20;
/// Pauses between requests, in milliseconds, if not said otherwise.
pub const DEFAULT_DELAYS: [u64; 2] = [1, 100];
/// A delay that makes one sample long enough.
pub const LONG_DELAY: Duration = Duration::from_millis(10);
/// Pause of the builders between steps while blocks are asked for.
pub const PAUSE: Duration = Duration::from_millis(1);
/// Pages read for every page of metadata that is changed.
pub const PAGES_PER_METADATA: u64 = 16;
/// Pages of metadata that the journal has, in ten-thousandths of memory: as many as let the base
/// serve about what was published, 53 and 58 % of the requests.
pub const JOURNAL_SHARE: u64 = 10;
/// Requests of the builders that may fail while memory fills.
const FAILURES: u64 = 10_000;

/// What is kept free: Linux's formula, or, as Linux with transparent huge pages, eleven pageblocks
/// a zone if that is more, but no more than a twentieth of memory.
fn watermarks(memory: usize) -> WatermarkConfig {
    let frames = (memory / FRAME_BYTES) as u64;
    let wanted = (HUGE_PAGEBLOCKS << HUGE_ORDER).min(frames / 20);
    // The formula: 4 √(kibibytes of memory), in kibibytes.
    let formula = (4 * (frames * 4).isqrt() / 4).min(frames);
    WatermarkConfig { min_free: MinFree::Frames(wanted.max(formula)), ..WatermarkConfig::default() }
}

/// The arena of a sample, and who moves its pages.
struct Stage<S: Sound> {
    arena: Arc<Arena<S>>,
    cache: Arc<Cache>,
}

impl<S: Sound> Stage<S> {
    fn open(spec: &Spec) -> Result<Self, SubjectError> {
        let cache = Arc::new(Cache::default());
        let arena = Arena::builder()
            .preset::<S>()
            .reserve(spec.setup.memory)
            .owners(spec.setup.threads as u32)
            .watermarks(watermarks(spec.setup.memory))
            .pager(cache.clone())
            .open()
            .map_err(|error| SubjectError::Init(error.to_string()))?;
        let high = zones(&arena).map(|zone| zone.watermarks.high).sum();
        cache.start(arena.first(), arena.len() / FRAME_BYTES, high);
        Ok(Self { arena: Arc::new(arena), cache })
    }

    fn frames(&self) -> usize {
        self.arena.len() / FRAME_BYTES
    }

    /// Frees cache and slabs.
    fn end<T: FrameThread<Block = Pfn>>(&self, handle: &mut T) -> Result<(), Halt> {
        while let Some(entry) = self.cache.remove_oldest() {
            release(&self.arena, &self.cache, handle, entry)?;
        }
        while let Some(slab) = self.cache.remove_slab() {
            // SAFETY: allocated with this order by a builder, and in the tables until now.
            unsafe { handle.free(slab.pfn, slab.order.get()) };
        }
        Ok(())
    }

    /// Looks whether all memory is free.
    fn check(&self) -> Result<(), Halt> {
        self.arena.drain();
        for zone in zones(&self.arena) {
            let ZoneInfo { free, cached, isolated, managed, .. } = zone;
            if free + cached != managed {
                return Err(Halt::Lost { free, cached, isolated, managed });
            }
        }
        Ok(())
    }
}

/// Asks for blocks until [`SHARE`] % of memory was asked for.
fn ask<S: Sound, T: FrameThread<Block = Pfn>>(
    stage: &Stage<S>,
    handle: &mut T,
    delay: Duration,
) -> (ThreadRun, Figures) {
    let attempts = (stage.frames() >> HUGE_ORDER) * SHARE / 100;
    let counter = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    let (migrated, reclaimed) = (counter(&stage.cache.migrated), counter(&stage.cache.reclaimed));
    let (mut held, mut served, mut refused) = (Vec::new(), Duration::ZERO, Duration::ZERO);
    let start = Instant::now();
    for _ in 0..attempts {
        let asked = Instant::now();
        let block = handle.alloc_as(HUGE_ORDER, MigrateType::Movable);
        let took = asked.elapsed();
        match block {
            Some(block) => {
                stage.cache.count(1 << HUGE_ORDER);
                held.push(block);
                served += took;
            }
            None => refused += took,
        }
        thread::sleep(delay);
    }
    let share = 100.0 * held.len() as f64 / attempts.max(1) as f64;
    let mut figures = Figures::of(Figure::SuccessRate, share)
        .with(Figure::Attempts, attempts as f64)
        .with(Figure::PagesMigrated, (counter(&stage.cache.migrated) - migrated) as f64)
        .with(Figure::PagesReclaimed, (counter(&stage.cache.reclaimed) - reclaimed) as f64);
    if !held.is_empty() {
        let a_block = |time: Duration| time.as_nanos() as f64 / held.len() as f64;
        figures = figures
            .with(Figure::MeanNsPerBlock, a_block(served + refused))
            .with(Figure::MeanNsServed, a_block(served));
    }
    for block in held {
        // SAFETY: allocated with this order above; freed once.
        unsafe { handle.free(block, HUGE_ORDER) };
        stage.cache.count(-(1 << HUGE_ORDER));
    }
    let wall = served + refused;
    (ThreadRun { frames: attempts as u64, start, wall, lost_cpu: false }, figures)
}

/// The workload on the preset `S`, reached in the way `W`.
struct HighAlloc<S, W> {
    spec: Spec,
    /// Of the arenas of all samples.
    work: Mutex<LockWork>,
    kind: PhantomData<fn() -> (S, W)>,
}

/// A case of this workload; every sample opens an arena of its own.
///
/// # Errors
///
/// If such an arena cannot be opened.
pub fn open<S: Sound, W: Way>(spec: &Spec) -> Result<Arc<dyn Case>, SubjectError> {
    // To be told now rather than after other subjects were measured.
    drop(Stage::<S>::open(spec)?);
    let work = Mutex::new(LockWork::default());
    Ok(Arc::new(HighAlloc::<S, W> { spec: *spec, work, kind: PhantomData }))
}

impl<S: Sound, W: Way> HighAlloc<S, W> {
    fn part(
        &self,
        stage: &Stage<S>,
        compactor: &Compactor<'static>,
        shared: &Shared<Pfn>,
        thread: usize,
    ) -> Result<(ThreadRun, Figures), Halt> {
        let place = &shared.place;
        if thread > 0 {
            let mut handle = W::thread(&stage.arena)?;
            self.build(stage, compactor, shared, thread, &mut handle)?;
            place.meet()?;
            let start = Instant::now();
            return Ok((
                ThreadRun { frames: 1, start, wall: Duration::ZERO, lost_cpu: false },
                Figures::default(),
            ));
        }
        let mut handle = W::thread(&stage.arena)?;
        place.meet()?;
        let result = ask(stage, &mut handle, self.spec.options.delay.unwrap_or_default());
        place.stop();
        place.meet()?;
        stage.end(&mut handle)?;
        Ok(result)
    }

    fn build<T: FrameThread<Block = Pfn>>(
        &self,
        stage: &Stage<S>,
        compactor: &Compactor<'static>,
        shared: &Shared<Pfn>,
        thread: usize,
        handle: &mut T,
    ) -> Result<(), Halt> {
        let place = &shared.place;
        let seed = self.spec.seed.wrapping_add(thread as u64);
        // Each has its part of the journal.
        let builders = self.spec.setup.threads.saturating_sub(1).max(1) as u64;
        let journal = stage.frames() as u64 * JOURNAL_SHARE / 10_000 / builders;
        let (arena, cache) = (&stage.arena, &stage.cache);
        let mut builder = Builder::new(arena, cache, compactor, handle, seed, journal as usize);
        let enough = stage.frames() as u64 / 2;
        while stage.cache.reclaimed.load(Ordering::Relaxed) < enough && !place.is_aborted() {
            builder.step()?;
            if builder.failed > FAILURES {
                return Err(Halt::OutOfFrames { order: 0, held: stage.frames() });
            }
        }
        place.meet()?;
        while !place.is_stopped() && !place.is_aborted() {
            builder.step()?;
            thread::sleep(PAUSE);
        }
        builder.end()
    }
}

impl<S: Sound, W: Way> Case for HighAlloc<S, W> {
    fn sample(self: Arc<Self>, pool: &Pool, _reps: u64) -> Result<Sample, CaseError> {
        let threads = self.spec.setup.threads;
        let stage = Arc::new(Stage::<S>::open(&self.spec).map_err(Halt::from)?);
        let idle = Settings { idle: None, ..Settings::default() };
        let compactor = Compactor::start(Arc::clone(&stage.arena), idle)
            .map_err(|error| Halt::from(SubjectError::Init(error.to_string())))?;
        let compactor = Arc::new(compactor);
        let shared = Shared::new(threads, 1, 0);
        let (case, lent, waker) = (Arc::clone(&self), Arc::clone(&stage), Arc::clone(&compactor));
        let parts = pool.run(threads, move |thread| {
            take_part(&shared.place, thread, || case.part(&lent, &waker, &shared, thread))
        })?;
        let mut sample = assemble(parts)?;
        // First, since it has frames in hand; and the last reference: the pool has none left.
        drop(compactor);
        stage.check()?;
        // The others only kept memory full.
        sample.runs.truncate(1);
        // It says nothing about a sample in which the CPUs may move several times.
        sample.round_trip = None;
        let mut work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        work.add(&lock_work_of(&stage.arena));
        Ok(sample)
    }

    fn lock_work(&self) -> Option<LockWork> {
        Some(*self.work.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

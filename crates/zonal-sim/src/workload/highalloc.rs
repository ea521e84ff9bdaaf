//! `stress-highalloc`: how many huge pages can be had from memory full of page cache?
//!
//! - Source: the benchmark of that name in Gorman's mmtests, as Lu 2018 ran it on a desktop with 4
//!   GiB: kernel trees are copied and built until almost all memory is page cache; then order-9
//!   blocks are asked for, one after the other, with a pause of 100 ms or 1 ms.
//! - Mechanism. (1) Fill: all builders work, at no cost in virtual time, until half of memory's
//!   worth of cache pages has been dropped again to make room. (2) Ask: CPU 0 asks for movable
//!   order-9 blocks, [`SHARE`] % of those that memory has, pauses after each, and keeps what it
//!   gets. The builders on the other CPUs go on, [`STEP`](crate::mix::highalloc::STEP)
//!   pages every [`PAUSE_MS`] ms. The last
//!   CPU has the kernel's threads, which reclaim up to the high watermark when one was woken, and
//!   compact when a block was missing.
//! - What memory holds is in [`mix::highalloc`](crate::mix::highalloc). Direct reclaim drops the
//!   oldest cache pages and slabs beside them; for a huge page it makes room for compaction, once
//!   a request. Compaction moves pages through [`Platform::migrate`]: taken off the LRU lists,
//!   unmapped, copied, listed and mapped again, each at its price. A page that is being moved, or
//!   is not on an LRU list yet, is left alone by everybody else.
//! - Figures: `success_rate` in percent of the requests; `mean_time_per_huge_page`, the mean
//!   virtual time of a request, served or not, in ns (the source does not say which it takes);
//!   `mean_time_served` that of those served; pages moved and reclaimed while asking.
//! - Scaling: 1 GiB of memory, and half of that in a quick run, instead of 4. Compaction of a zone takes
//!   time in proportion to its memory, so times are shorter by up to that.
//! - Not for machines of more than two sockets, since reclaim knows memory as a whole and no nodes,
//!   nor for builders so numerous that their compilers fill memory alone.
//! - Left out: pages under I/O or locked, swap, dirty pages that must be written before they
//!   can be dropped, and pages isolated in batches (each is taken off its list alone).
//!
//! [`Platform::migrate`]: zonal::Host::migrate

mod builder;
mod memory;

use super::{Needs, Stage, Workload};
use crate::any_allocator::AnyAllocator;
use crate::coroutine::Body;
use crate::engine;
use crate::host::{self, Host};
use crate::machine::Machine;
use crate::mix::highalloc::{HUGE_PAGEBLOCKS, SHARE};
use crate::outcome::Figure;
use crate::run::{SimError, Spec};
use crate::task::{Task, count, idle};
use crate::ticks::Ticks;
use builder::Builder;
use core::cell::{Cell, OnceCell};
use memory::Memory;
use std::rc::Rc;
use zonal::compact::CompactOutcome;
use zonal::plan::Config;
use zonal::watermark::{MinFree, WatermarkConfig};
use zonal::{MigrateType, Order, Request};

/// Pause of a builder between steps while blocks are asked for, in ms. Fitted on what the base
/// serves with 100 ms between requests.
const PAUSE_MS: f64 = 90.0;
/// Who asks, a builder, the kernel's threads.
const LEAST_TASKS: u32 = 3;
/// Sockets at most.
const MOST_SOCKETS: u16 = 2;
/// Memory for each builder at least: a third more than the 900 frames that its compilers have mapped
/// at a time, on average. With less there is next to no page cache, and with 850 memory never fills
/// with it: whatever is asked for is refused.
const FRAMES: u64 = 1_200;
/// Requests of the builders that may fail while memory fills.
const FAILURES: u64 = 10_000;

/// The workload.
#[derive(Default)]
pub(crate) struct HighAlloc {
    frames: Cell<u64>,
    memory: OnceCell<Rc<Memory>>,
    asked: Cell<Asked>,
    /// Whether the builders could not fill memory with page cache.
    gave_up: Cell<bool>,
}

/// What came of the requests.
#[derive(Clone, Copy, Default)]
struct Asked {
    requests: u64,
    served: u64,
    time: Ticks,
    time_served: Ticks,
    migrated: u64,
    reclaimed: u64,
}

impl Workload for HighAlloc {
    fn needs(&self, machine: &Machine, spec: &Spec) -> Result<Needs, SimError> {
        if spec.tasks < LEAST_TASKS {
            let reason = format!("it takes at least {LEAST_TASKS} tasks");
            return Err(spec.misfit(machine, reason));
        }
        if machine.topology.sockets > MOST_SOCKETS {
            let reason = format!("it is for machines with at most {MOST_SOCKETS} sockets");
            return Err(spec.misfit(machine, reason));
        }
        let frames = if spec.quick { 1 << 17 } else { 1 << 18 };
        let most = frames / FRAMES + u64::from(LEAST_TASKS) - 1;
        if u64::from(spec.tasks) > most {
            let mib = frames >> 8;
            let reason = format!("more than {most} tasks leave no page cache in its {mib} MiB");
            return Err(spec.misfit(machine, reason));
        }
        self.frames.set(frames);
        Ok(Needs {
            frames_a_socket: frames / u64::from(machine.topology.sockets),
            counted: "requests",
            warm_up: 0,
            measure: requests(frames),
            rates: false,
        })
    }

    /// Watermarks as Linux has them where huge pages are transparent: eleven pageblocks if that
    /// is more than the formula's, but no more than a twentieth of memory.
    fn config(&self, config: Config) -> Config {
        let frames = self.frames.get();
        let wanted = (HUGE_PAGEBLOCKS << Order::HUGE.get()).min(frames / 20);
        let least = wanted.max(config.watermarks.min_free_frames(frames));
        let watermarks = WatermarkConfig { min_free: MinFree::Frames(least), ..config.watermarks };
        Config { watermarks, ..config }
    }

    fn tasks<'a>(&'a self, stage: &'a Stage<'a>) -> Vec<Body<'a>> {
        let memory = self.memory.get_or_init(|| memory_of(stage));
        host::install(Rc::clone(memory) as Rc<dyn Host>);
        let last = stage.spec.tasks - 1;
        let builders = fill(stage, memory, last);
        self.gave_up.set(failed(&builders) > FAILURES);
        let clock = &stage.machine.clock;
        let (delay, pause) = (clock.of_ms(stage.spec.delay_ms.into()), clock.of_ms(PAUSE_MS));
        let asker = stage.task(0);
        let mut bodies: Vec<Body<'a>> = vec![Box::new(move || {
            self.asked.set(ask(asker, memory, delay));
        })];
        for mut builder in builders {
            bodies.push(Box::new(move || {
                while !memory.is_over() {
                    builder.step();
                    idle(pause);
                }
                builder.end();
            }));
        }
        bodies.push(Box::new(move || kernel_threads(stage.allocator, memory)));
        bodies
    }

    fn flaw(&self) -> Option<&'static str> {
        self.gave_up.get().then_some("its builders leave no memory for page cache")
    }

    fn figures(&self, stage: &Stage<'_>) -> Vec<Figure> {
        if let Some(memory) = self.memory.get() {
            memory.empty(stage.allocator);
        }
        let asked = self.asked.get();
        let clock = &stage.machine.clock;
        let mean = |time: Ticks, by: u64| clock.ns(time.whole()) / by.max(1) as f64;
        let percent = asked.served as f64 * 100.0 / asked.requests.max(1) as f64;
        vec![
            Figure::new("success_rate", percent, "percent"),
            Figure::new("mean_time_per_huge_page", mean(asked.time, asked.requests), "ns"),
            Figure::new("mean_time_served", mean(asked.time_served, asked.served), "ns"),
            Figure::new("pages_migrated", asked.migrated as f64, "count"),
            Figure::new("pages_reclaimed", asked.reclaimed as f64, "count"),
        ]
    }
}

/// Requests for blocks in memory of `frames` frames.
const fn requests(frames: u64) -> u64 {
    (frames >> Order::HUGE.get()) * SHARE as u64 / 100
}

fn memory_of(stage: &Stage<'_>) -> Rc<Memory> {
    let (mut managed, mut high) = (0, 0);
    for zone in stage.allocator.zones() {
        managed += zone.managed;
        high += zone.watermarks.high;
    }
    let work = crate::task::Work::of(&stage.machine.kernel, stage.spec.preset);
    Rc::new(Memory::new(stage.pages, work, Rc::clone(&stage.lru), managed, high))
}

/// Requests of the builders that were refused.
fn failed(builders: &[Builder<'_>]) -> u64 {
    builders.iter().map(|builder| builder.failed).sum()
}

/// Builders fill memory, in turns.
fn fill<'a>(stage: &'a Stage<'a>, memory: &'a Memory, last: u32) -> Vec<Builder<'a>> {
    let new = |cpu| Builder::new(stage.task(cpu), stage.random(cpu), memory);
    let mut builders: Vec<_> = (1..last).map(new).collect();
    let enough = stage.pages.frames / 2;
    while memory.reclaimed() < enough {
        for builder in &mut builders {
            builder.step();
            memory.balance(stage.allocator);
        }
        if failed(&builders) > FAILURES {
            break;
        }
    }
    builders
}

/// Asks for blocks, keeps them for as long, and gives them back.
fn ask(mut task: Task<'_>, memory: &Memory, delay: Ticks) -> Asked {
    let request = Request::new(Order::HUGE).migrate(MigrateType::Movable);
    let mut asked = Asked { requests: requests(task.pages.frames), ..Asked::default() };
    let (migrated, reclaimed) = (memory.migrated(), memory.reclaimed());
    let mut blocks = Vec::new();
    for _ in 0..asked.requests {
        let began = engine::now();
        let block = task.ask(&request);
        let took = engine::now() - began;
        asked.time += took;
        if let Ok(block) = block {
            asked.time_served += took;
            memory.count_taken(Order::HUGE.frames());
            blocks.push(block);
        }
        count("requests", 1);
        idle(delay);
    }
    asked.served = blocks.len() as u64;
    asked.migrated = memory.migrated() - migrated;
    asked.reclaimed = memory.reclaimed() - reclaimed;
    memory.end();
    task.give(&blocks, Order::HUGE);
    asked
}

/// What background reclaim and compaction do when a task wakes them.
fn kernel_threads(allocator: &dyn AnyAllocator, memory: &Memory) {
    while !memory.is_over() {
        let reclaimed = memory.balance(allocator);
        if memory.wants_compaction() {
            compact(allocator, memory);
        } else if !reclaimed {
            memory.sleep();
        }
    }
}

/// Makes huge pages until there are enough or no more can be made.
fn compact(allocator: &dyn AnyAllocator, memory: &Memory) {
    // As many calls as go through memory twice: one moves at most 16 MiB.
    let most = 2 * (memory.frames() >> 12) + 2;
    let mut without = 0;
    while without < most && !memory.is_over() {
        match allocator.compact_in_background(Order::HUGE) {
            CompactOutcome::Success => without = 0,
            CompactOutcome::PartialSkipped => without += 1,
            _ => return,
        }
        // Reclaim is a thread of its own.
        memory.balance(allocator);
    }
}

//! Virtual CPUs as the host of a page cache.

use crate::confined::Confined;
use crate::coroutine;
use crate::engine;
use crate::machine::{Clock, Machine};
use crate::platform::Sim;
use crate::space::{Home, Layout};
use crate::task::{Pages, idle};
use crate::ticks::Ticks;
use core::time::Duration;
use std::collections::BTreeMap;
use zonal::Pfn;
use zonal_cache::host::{Host, Part};
use zonal_cache::table::SlotId;
use zonal_cache::{PageCache, Setup};

/// Where the CPU that writes back sleeps: no place that the cache has.
const WRITER: usize = usize::MAX;

/// What a machine knows of the page cache on it.
pub(crate) struct CacheHost {
    clock: Clock,
    /// What waking a task costs, and a page on a list or off it.
    wake: Ticks,
    list: Ticks,
    unlist: Ticks,
    /// The latest time that was told: none after it is earlier.
    told: Ticks,
    /// CPUs that wait, by place.
    waiting: BTreeMap<usize, Vec<usize>>,
    /// Whether a CPU writes back, and is to.
    has_writer: bool,
    nudged: bool,
    /// The CPU that set-up is for.
    pub(crate) set_up: u32,
    pub(crate) pages: Option<Pages>,
    /// What each CPU has spent in direct reclaim.
    reclaiming: Vec<Ticks>,
}

/// Runs `reclaim` in the middle of a request, whose time is not the allocator's.
pub(crate) fn reclaiming<R>(reclaim: impl FnOnce() -> R) -> R {
    let began = engine::now();
    let result = reclaim();
    engine::with_cpu(|engine, cpu| {
        let took = engine.cpus[cpu].clock.since(began);
        engine.cache.reclaiming[cpu] += took;
    });
    result
}

impl CacheHost {
    pub(super) fn reclaiming(&self, cpu: usize) -> Ticks {
        self.reclaiming.get(cpu).copied().unwrap_or_default()
    }

    /// What putting a page on a list costs, or taking it off.
    pub(crate) const fn list_cost(&self, is_new: bool) -> Ticks {
        if is_new { self.list } else { self.unlist }
    }

    pub(crate) fn new(machine: &Machine, cpus: u32) -> Self {
        Self {
            clock: machine.clock.clone(),
            wake: Ticks::from_cycles(machine.kernel.wake),
            list: Ticks::from_cycles(machine.kernel.lru_add),
            unlist: Ticks::from_cycles(machine.kernel.lru_delete),
            told: Ticks::default(),
            waiting: BTreeMap::new(),
            has_writer: false,
            nudged: false,
            set_up: 0,
            pages: None,
            reclaiming: vec![Ticks::default(); cpus as usize],
        }
    }
}

/// The CPU that runs sleeps at a place. The caller has looked, without a pause since, that it has to.
fn sleep(place: usize) {
    let sleeps = engine::with_cpu(|engine, cpu| {
        engine.cache.waiting.entry(place).or_default().push(cpu);
        engine.sleeps(cpu, true);
    });
    assert!(sleeps.is_some() || std::thread::panicking(), "waits for a CPU that will never go on");
    if sleeps.is_some() {
        coroutine::switch();
    }
}

fn wake_all(place: usize) {
    engine::with(|engine| {
        let Some(sleeping) = engine.cache.waiting.remove(&place) else { return };
        let now = engine.current.map(|cpu| engine.cpus[cpu].clock).unwrap_or_default();
        for cpu in sleeping {
            let after = now + engine.cache.wake;
            let clock = engine.clock(cpu);
            *clock = (*clock).max(after);
            let clock = *clock;
            engine.sleeps(cpu, false);
            engine.schedule.push(cpu, clock);
        }
    });
}

// SAFETY: a virtual CPU runs until it lets others go on, which no access to an atomic does between its load and its store;
// all of them are on one thread. `Confined` refuses other threads, and `SimLock` lets one virtual CPU in: its value is in
// a `RefCell` besides.
unsafe impl Host for Sim {
    type Mutex<T: Send> = Confined<T>;

    fn wait(&self, place: usize, pending: &dyn Fn() -> bool) {
        while pending() {
            sleep(place);
        }
    }

    fn wake(&self, place: usize) {
        wake_all(place);
    }

    /// Virtual CPUs are a little ahead of each other: the latest time that was told, if this one's is before it.
    fn now(&self) -> u64 {
        let now = engine::with(|engine| {
            let now = engine.current.map(|cpu| engine.cpus[cpu].clock).unwrap_or_default();
            engine.cache.told = engine.cache.told.max(now);
            engine.cache.clock.ns(engine.cache.told)
        });
        now.unwrap_or_default() as u64
    }

    fn nudge(&self) -> bool {
        let there = engine::with(|engine| {
            engine.cache.nudged |= engine.cache.has_writer;
            engine.cache.has_writer
        });
        if there == Some(true) {
            wake_all(WRITER);
        }
        there == Some(true)
    }

    fn pause(&self, nanos: u64) {
        let time = engine::with(|engine| engine.cache.clock.of_ms(nanos as f64 / 1e6));
        idle(time.unwrap_or_default());
    }

    fn placed<T>(&self, part: Part, memory: &[T]) {
        engine::with(|engine| {
            let (class, home) = match part {
                Part::Slots => {
                    let Some(pages) = engine.cache.pages else { return };
                    let (first, stride) = (pages.first as u32, pages.stride as u32);
                    let layout = Layout::ByFrame { first, stride, frames: pages.frames as u32 };
                    return engine.register("pages", memory, layout, Home::Divided);
                }
                Part::Chains => ("index", Home::Divided),
                Part::ChainLocks => ("index locks", Home::Divided),
                Part::Lists => ("lru", Home::Divided),
                Part::Batches => ("lru batches", Home::Local),
                _ => ("cache", Home::Local),
            };
            engine.register(class, memory, Layout::Packed, home);
        });
    }

    fn framed(&self, slot: SlotId, frame: Pfn) {
        engine::with(|engine| {
            if let Some(pages) = engine.cache.pages {
                engine.space.framed(slot.0 as usize, pages.index(frame));
            }
        });
    }
}

/// The CPU that runs is the cache's writer until `over` says so; [`Host::nudge`] has it look anew.
pub(crate) fn keep_writing<S: Setup<Host = Sim>>(
    cache: &PageCache<S>,
    age: Duration,
    over: impl Fn() -> bool,
) {
    engine::with(|engine| engine.cache.has_writer = true);
    while !over() {
        if engine::with(|engine| core::mem::take(&mut engine.cache.nudged)) == Some(true) {
            cache.write_behind(age);
        } else {
            sleep(WRITER);
        }
    }
    engine::with(|engine| engine.cache.has_writer = false);
}

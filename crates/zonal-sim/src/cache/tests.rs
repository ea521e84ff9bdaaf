//! The page cache on virtual CPUs: under the schedule of clocks, to the cycle, and under random ones.

use super::{Costs, Disk, DiskFile, SimCache, SimFile, SimFrames, keep_writing};
use crate::any_allocator::AnyAllocator;
use crate::coroutine::{Body, run_all};
use crate::current;
use crate::engine::{self, Engine};
use crate::explore::{Options as Random, explore};
use crate::host::{self, Host};
use crate::machine::{self, Clock};
use crate::outcome::AROUND;
use crate::platform::Sim;
use crate::schedule::Schedule;
use crate::world;
use core::cell::{Cell, RefCell};
use core::time::Duration;
use std::rc::Rc;
use std::sync::Arc;
use zonal::plan::Plan;
use zonal::preset::Linux416;
use zonal::slow_path::Shortage;
use zonal::{Immovable, Migration, Order, Pfn, Request};
use zonal_cache::Stats;
use zonal_cache::cache::Options;
use zonal_cache::frames::PAGE;
use zonal_cache::lru::{LruLock, PerNode, Whole};

const CPUS: u32 = 4;
const FRAMES: u64 = 1024;

/// Has the cache give pages up for the allocator.
struct Reclaims<L: LruLock>(SimCache<L>);

impl<L: LruLock> Host for Reclaims<L> {
    fn wake_reclaim(&self) {}
    fn reclaim(&self, _: &dyn host::Frames, _: &Shortage) -> u64 {
        self.0.reclaim(32) as u64
    }
    fn wake_compaction(&self, _: Order) {}
    fn migrate(&self, _: &Migration) -> Result<(), Immovable> {
        Err(Immovable)
    }
}

fn plan() -> Plan {
    let machine = machine::builtin("desktop_8cpu_4g").expect("it is built in");
    world::plan::<Linux416>(&machine, FRAMES, |config| config).expect("it can be planned")
}

fn clock() -> Clock {
    machine::builtin("desktop_8cpu_4g").expect("it is built in").clock
}

fn a_cache<L: LruLock>(pages: usize) -> SimCache<L> {
    let topology = machine::builtin("desktop_8cpu_4g").expect("it is built in").topology;
    let options = Options { pages, window: 8, ..Options::default() };
    SimCache::with_parts(Sim::new(topology), SimFrames::new(Costs::default()), options)
        .expect("there is room")
}

fn free(allocator: &dyn AnyAllocator) -> u64 {
    allocator.zones().map(|zone| zone.free + zone.cached).sum()
}

/// What a run says.
#[derive(Debug, PartialEq)]
struct Said {
    clocks: Vec<u64>,
    stats: Stats,
    holds: u64,
    taken: usize,
    /// Of lines that were accessed.
    classes: Vec<&'static str>,
}

/// The clocks of the CPUs, and the classes of the lines that they accessed.
fn seen() -> (Vec<u64>, Vec<&'static str>) {
    let seen = engine::with(|engine| {
        let clocks = engine.cpus.iter().map(|cpu| cpu.clock.0).collect();
        (clocks, engine.measured.lines().iter().map(|line| line.class).collect())
    });
    seen.expect("a machine is on this thread")
}

/// Streams that read, one that writes, syncs and truncates, and a process that takes most of memory.
fn clocked<L: LruLock>(seed: u64) -> Said {
    let machine = machine::builtin("desktop_8cpu_4g").expect("it is built in");
    let plan = plan();
    let _installed = engine::install(Engine::new(&machine, CPUS, Schedule::by_clock()));
    let said = world::with_allocator::<Linux416, _>(&machine, &plan, |allocator, _| {
        let allocator: &dyn AnyAllocator = allocator;
        let all = free(allocator);
        let cache = a_cache::<L>(900);
        host::install(Rc::new(Reclaims(cache.clone())));
        let disk = Arc::new(Disk::new(&clock()));
        let open = |pages| cache.open(DiskFile::new(&disk, pages)).expect("it has a length");
        let (read, written) = (open(880), open(0));
        let (ended, taken) = (Cell::new(0), RefCell::new(Vec::new()));
        let over = || ended.set(ended.get() + 1);
        let reader = |which: u64, file: SimFile<L>| -> Body<'_> {
            let mut dice = fastrand::Rng::with_seed(seed * 10 + which);
            Box::new(move || {
                let mut into = vec![0; 16 * PAGE];
                for _ in 0..300 {
                    let page = dice.u64(..864);
                    assert_eq!(file.read_at(&mut into, page * PAGE as u64), Ok(16 * PAGE));
                }
                drop(file);
                over();
            })
        };
        let (first, other) = (reader(1, read.clone()), reader(2, read));
        let writer: Body<'_> = Box::new(|| {
            let written = written;
            let mut dice = fastrand::Rng::with_seed(seed);
            for turn in 0..40 {
                let pages = dice.u64(1..60);
                let bytes = vec![0; pages as usize * PAGE];
                assert_eq!(written.write_at(&bytes, 0), Ok(bytes.len()));
                assert_eq!(written.len(), pages.max(written.len() / PAGE as u64) * PAGE as u64);
                if turn % 4 == 0 {
                    written.sync().expect("the disk does it");
                    assert_eq!(written.dirty_pages(), 0);
                }
                if turn % 3 == 0 {
                    written.truncate(0).expect("the disk does it");
                }
            }
            written.unlink();
            over();
        });
        let taker: Body<'_> = Box::new(|| {
            for _ in 0..400 {
                let pfn = allocator.alloc_shared(&Request::frame()).expect("clean pages go for it");
                taken.borrow_mut().push(pfn);
                crate::task::idle(clock().of_ms(0.1));
            }
            over();
        });
        run_all(vec![first, other, writer, taker], |_| ()).expect("they all end");
        assert_eq!(ended.get(), 4);
        let stats = cache.stats();
        assert!(stats.direct > 0 && stats.reclaimed > 0, "{stats:?}");
        assert!(stats.written > 0 && stats.ahead > 0, "{stats:?}");
        assert_eq!(stats.dirty, 0, "the file is gone");
        let holds = cache.lists().iter().map(|list| list.holds).sum();
        let taken: Vec<Pfn> = taken.take();
        assert_eq!(free(allocator) + (stats.used + taken.len()) as u64, all, "no frame is lost");
        engine::with(|engine| engine.host = None);
        drop(cache);
        allocator.free(&taken);
        assert_eq!(free(allocator), all);
        let (clocks, classes) = seen();
        Said { clocks, stats, holds, taken: taken.len(), classes }
    });
    said.expect("there is memory")
}

/// What a page cache's lines take is not put down to the allocator.
#[test]
fn every_class_of_lines_is_the_allocators_or_is_around_it() {
    let own = ["frames", "clusters", "cluster links", "caches", "frames of CPUs", "zone"];
    let own = own.into_iter().chain(["pageblocks", "shared"]).collect::<Vec<_>>();
    let seen = clocked::<PerNode<14>>(3).classes;
    for class in &seen {
        assert!(AROUND.contains(class) != own.contains(class), "{class} is one of both");
    }
    for class in ["index", "index locks", "lru", "lru batches", "cache", "frames", "zone"] {
        assert!(seen.contains(&class), "no {class} among {seen:?}");
    }
}

#[test]
fn readers_a_writer_and_a_process_share_memory_to_the_cycle() {
    let said = clocked::<PerNode<14>>(1);
    assert_eq!(said.taken, 400);
    assert_eq!(said, clocked::<PerNode<14>>(1), "the same to the cycle");
    let other = clocked::<PerNode<14>>(2);
    assert_ne!(said.clocks, other.clocks);
    let whole = clocked::<Whole>(1);
    assert!(whole.holds > 2 * said.holds, "{} holds, {} in batches", whole.holds, said.holds);
}

/// A CPU that writes behind is woken by the background limit, and ends when it is told.
#[test]
fn a_cpu_writes_behind() {
    let machine = machine::builtin("desktop_8cpu_4g").expect("it is built in");
    let plan = plan();
    let _installed = engine::install(Engine::new(&machine, 2, Schedule::by_clock()));
    let dirty = world::with_allocator::<Linux416, _>(&machine, &plan, |_, _| {
        let cache = a_cache::<Whole>(500);
        let disk = Arc::new(Disk::new(&clock()));
        let file = cache.open(DiskFile::new(&disk, 0)).expect("it has a length");
        let over = Cell::new(false);
        let before = Cell::new(0);
        let writer: Body<'_> = Box::new(|| {
            for page in 0..400 {
                file.write_at(&[0; PAGE], page * PAGE as u64).expect("there is room");
            }
            before.set(cache.stats().written);
            over.set(true);
            zonal_cache::host::Host::nudge(&Sim::new(machine.topology));
        });
        let behind: Body<'_> = Box::new(|| {
            keep_writing(&cache, Duration::from_secs(30), || over.get());
        });
        run_all(vec![behind, writer], |_| ()).expect("they end");
        assert!(before.get() > 0, "it was woken by the limit");
        cache.stats().dirty
    });
    // Of 500 pages 100 may be dirty before it wakes, and it leaves those.
    let dirty = dirty.expect("there is memory");
    assert!((1..=200).contains(&dirty), "{dirty} dirty pages");
}

/// Two files, three CPUs: one reads, one writes and truncates, one takes frames and reclaims.
fn at_random<L: LruLock>(seed: u64) -> u64 {
    let machine = machine::builtin("desktop_8cpu_4g").expect("it is built in");
    let plan = plan();
    let mut trace = 0;
    world::with_allocator_alone::<Linux416, _>(&machine, &plan, |allocator| {
        let allocator: &dyn AnyAllocator = allocator;
        let all = free(allocator);
        let cache = a_cache::<L>(24);
        let disk = Arc::new(Disk::new(&clock()));
        let open = |pages| cache.open(DiskFile::new(&disk, pages)).expect("it has a length");
        let (read, written) = (open(40), open(8));
        let other = written.clone();
        let reads: Body<'_> = Box::new(|| {
            let mut dice = fastrand::Rng::with_seed(seed);
            for _ in 0..12 {
                let file = if dice.bool() { &read } else { &other };
                let got = file.read_at(&mut [0; 3 * PAGE], dice.u64(..30) * PAGE as u64);
                assert!(got.is_ok(), "{got:?}");
                let pinned = read.pin(0..PAGE as u64 + 1).expect("there is room");
                assert_eq!(pinned.len(), PAGE + 1);
            }
        });
        let writes: Body<'_> = Box::new(|| {
            let mut dice = fastrand::Rng::with_seed(!seed);
            for _ in 0..8 {
                let at = dice.u64(..8) * PAGE as u64 + 100;
                assert_eq!(written.write_at(&[0; PAGE], at), Ok(PAGE));
                match dice.u8(..3) {
                    0 => written.truncate(dice.u64(..6) * PAGE as u64 + 5).expect("it can"),
                    1 => written.sync().expect("it can"),
                    _ => drop(written.invalidate(0..u64::MAX)),
                }
            }
        });
        let reclaims: Body<'_> = Box::new(|| {
            for _ in 0..8 {
                cache.reclaim(2);
                let pfn = allocator.alloc_shared(&Request::frame()).expect("there are frames");
                allocator.free(&[pfn]);
            }
        });
        let explored = explore(Random::from_seed(seed), vec![reads, writes, reclaims]);
        trace = explored.expect("no schedule is one too many").trace;
        let used = cache.stats().used as u64;
        assert_eq!(free(allocator) + used, all, "seed {seed}");
        drop((read, written, other, cache));
        assert_eq!(free(allocator), all, "seed {seed}");
        current::with(|_| ()).expect("the allocator is there until it goes");
    })
    .expect("there is memory");
    trace
}

#[test]
fn any_schedule_leaves_every_frame_accounted_for() {
    let traces: Vec<u64> = (0..150)
        .map(|seed| [at_random::<PerNode<14>>, at_random::<Whole>][seed as usize % 2](seed))
        .collect();
    let mut different = traces.clone();
    different.sort_unstable();
    different.dedup();
    assert_eq!(different.len(), traces.len(), "each seed is a schedule of its own");
    assert_eq!(at_random::<Whole>(1), traces[1], "and the same each time");
}

//! The same beside a CPU that drains, isolates, or takes the memory offline: over frame numbers only, all
//! of which are held but for a largest block's worth.

use super::{Meeting, order};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;
use zonal::map::{MemoryMap, PhysAddr, Region};
use zonal::plan::{Config, Plan};
use zonal::policy::Policy;
use zonal::preset::Zonal;
use zonal::watermark::MinFree;
use zonal::{Allocator, CpuHandle, CpuId, MigrateType, Order, Pfn, Request, ZoneId};
use zonal_host::{Threads, cpu};
use zonal_tables::HeapTables;

type Numbers<'m, S> = Allocator<'m, Threads, S>;

/// Fewer for each of the many that there are.
fn tries() -> u64 {
    super::tries_or(1_000)
}

/// What is free at the start, and comes and goes.
const PART: Range<Pfn> = Pfn::new(1024)..Pfn::new(2048);

fn with_numbers<S: Policy>(f: impl FnOnce(&Numbers<'_, S>, u32)) {
    let shared = cpu::possible();
    let mut config = Config::new(shared + 2);
    (config.dma_limit, config.dma32_limit) = (Pfn::new(0), Pfn::new(0));
    config.watermarks.min_free = MinFree::None;
    config.highatomic = false;
    let (now, later) = (PART.start.address(), (PART.end.get() - PART.start.get()) << 12);
    let regions = [Region::usable(PhysAddr(0), now), Region::offline(PhysAddr(now), later)];
    let map = MemoryMap::from_regions(&regions).expect("regions").sanitise().expect("sane");
    let plan = Plan::new(map, config, |_, _, _| 1).expect("a plan");
    let mut tables = HeapTables::<Threads, S>::new(&plan).expect("tables");
    let host = Threads::new().with_shared(shared);
    let allocator = Allocator::new(host, &plan, tables.storage()).expect("an allocator");
    f(&allocator, shared);
}

/// What goes on beside the frees; whether it has done something.
type Beside<S> = fn(&Numbers<'_, S>) -> bool;

fn drains<S: Policy>(allocator: &Numbers<'_, S>) -> bool {
    allocator.drain_all();
    true
}

fn isolates<S: Policy>(allocator: &Numbers<'_, S>) -> bool {
    let isolated = allocator.isolate(PART);
    isolated.map(|token| allocator.undo_isolation(token).expect("its own")).is_ok()
}

fn goes_offline<S: Policy>(allocator: &Numbers<'_, S>) -> bool {
    let gone = allocator.offline(PART).is_ok();
    if gone {
        allocator.online(PART).expect("it was there");
    }
    gone
}

/// One of the two that free, each an owner; by the way that all share where it is said so.
fn free<S: Policy>(
    allocator: &Numbers<'_, S>,
    owner: &mut CpuHandle<'_, '_, Threads, S>,
    shared: bool,
    (pfn, order): (Pfn, Order),
) -> bool {
    let freed = if shared { allocator.free_raw(pfn, order) } else { owner.free_raw(pfn, order) };
    freed.is_ok()
}

/// One of two frees of a block succeeds, each time; afterwards all is free, and in one place.
fn race<S: Policy>(name: &str, beside: Beside<S>, shared: bool, order: Order) {
    with_numbers::<S>(|allocator, owners| {
        let request = Request::new(order).migrate(MigrateType::Movable);
        let rest = allocator.alloc_raw(&request.with_order(Order::MAX)).expect("all that is there");
        allocator.online(PART).expect("it comes");
        let (block, wins, wrong) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
        let (meeting, stop) = (Meeting::default(), AtomicBool::new(false));
        let (asked, done) = (AtomicU64::new(0), AtomicU64::new(0));
        // Now and then a whole one, with all free: however the threads are scheduled, there are some.
        let let_one_pass = || {
            let before = asked.load(SeqCst);
            while asked.load(SeqCst) < before + 2 {
                thread::yield_now();
            }
        };
        let one = |at: usize| {
            let mut owner = allocator.handle(CpuId(owners + at as u32)).expect("idle");
            for nth in 0..tries() {
                if at == 0 {
                    if nth.is_multiple_of(64) {
                        let_one_pass();
                    }
                    let pfn = loop {
                        match owner.alloc_raw(&request) {
                            Ok(pfn) => break pfn,
                            // What is free is isolated, or gone, for a moment.
                            Err(_) => thread::yield_now(),
                        }
                    };
                    block.store(pfn.get(), SeqCst);
                    wins.store(0, SeqCst);
                }
                meeting.meet(at);
                let pfn = Pfn::new(block.load(SeqCst));
                if free(allocator, &mut owner, shared && at == 0, (pfn, order)) {
                    wins.fetch_add(1, SeqCst);
                }
                meeting.meet(at);
                if at == 0 && wins.load(SeqCst) != 1 {
                    wrong.fetch_add(1, SeqCst);
                }
            }
        };
        thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(SeqCst) {
                    done.fetch_add(u64::from(beside(allocator)), SeqCst);
                    asked.fetch_add(1, SeqCst);
                    thread::yield_now();
                }
            });
            let other = scope.spawn(|| one(1));
            one(0);
            stop.store(true, SeqCst);
            other.join().expect("the other has freed as often");
        });
        println!("{name}, order {order}: {} tries beside {done:?}", tries());
        assert_eq!(wrong.into_inner(), 0, "{name}, order {order}: not one of two frees succeeded");
        assert!(done.into_inner() > 0, "{name}: nothing went on beside the frees");
        allocator.free_raw(rest, Order::MAX).expect("it is held");
        allocator.drain_all();
        let zone = allocator.zone_info(ZoneId(0)).expect("a zone");
        assert_eq!((zone.free, zone.cached, zone.isolated), (2048, 0, 0), "{name}, order {order}");
        assert_eq!((zone.counted_free, zone.events.refused), (2048, 0), "{name}, order {order}");
    });
}

fn all_orders(name: &str, beside: Beside<Zonal>) {
    for number in [0, 3, 9, 10] {
        for shared in [false, true] {
            race::<Zonal>(name, beside, shared, order(number));
        }
    }
}

#[test]
fn a_drain() {
    for shared in [false, true] {
        race::<Zonal>("drains", drains, shared, order(0));
    }
}

#[test]
fn an_isolation() {
    all_orders("isolations", isolates);
}

#[test]
fn an_offline() {
    all_orders("offlines", goes_offline);
}

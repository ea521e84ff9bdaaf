//! How long interrupts are masked at most, in what the allocator does: served from plenty and near exhaustion,
//! refused, drained, freed in lists, compacted, plugged, reported.

use super::chain::Chain;
use crate::machine::{FRAMES, cpu, masked};
use crate::memory::{self, frames, plug};
use crate::say;
use core::fmt::{self, Write as _};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use zonal::report::{BuddyInfo, PageTypeInfo, VmStat, ZoneStatus};
use zonal::{Block, Bounds, CompactMode, CpuId, MigrateType, Order, Pfn, Request, ZoneId};
use zonal_kernel::Error;
use zonal_kernel::global::TablesFrom;

/// What is longer is listed, and a failure.
const MOST: u64 = 4000;
static LONGEST: AtomicU64 = AtomicU64::new(0);

const TYPES: [MigrateType; 3] =
    [MigrateType::Movable, MigrateType::Unmovable, MigrateType::Reclaimable];
const MOVABLE: Request = Request::frame().migrate(MigrateType::Movable);

/// Runs a part of it, and notes its longest stretch.
fn part(what: &str, f: impl FnOnce()) {
    LONGEST.fetch_max(longest_of(what, f), Relaxed);
}

/// Runs a part of it, and prints the longest stretch, which it returns, and the places of those that are too long.
fn longest_of(what: &str, f: impl FnOnce()) -> u64 {
    masked::take();
    f();
    let mut stretches = masked::take();
    stretches.sort_unstable_by_key(|&(_, ticks)| core::cmp::Reverse(ticks));
    let [(_, longest), ..] = stretches;
    say!("{longest:>8} {what}");
    for (at, ticks) in stretches.into_iter().filter(|&(_, ticks)| ticks > MOST) {
        say!("         {ticks} to {at:#x}");
    }
    longest
}

/// None of all parts is too long.
pub(crate) fn short() -> Result<(), &'static str> {
    let longest = LONGEST.load(Relaxed);
    say!("{:>9}  interrupts masked for {longest} instructions at most, of {MOST}", "");
    if longest <= MOST { Ok(()) } else { Err("interrupts are masked for too long") }
}

fn on_all(mut f: impl FnMut(u32)) {
    for cpu in 0..masked::CPUS {
        masked::play(cpu);
        f(cpu);
    }
    masked::play(0);
}

/// Takes what there is, on the CPUs in turn.
fn all(request: &Request, chain: &mut Chain) {
    let mut misses = 0;
    for turn in 0.. {
        masked::play(turn % masked::CPUS);
        match FRAMES.alloc(request) {
            Ok(block) => chain.push(block),
            Err(_) => misses += 1,
        }
        if misses > masked::CPUS {
            break;
        }
    }
    masked::play(0);
}

fn keep(chain: &mut Chain, block: Result<Block, Error>) {
    if let Ok(block) = block {
        chain.push(block);
    }
}

fn give_back(block: Result<Block, Error>) {
    if let Ok(block) = block {
        memory::free(block);
    }
}

fn zones() -> impl Iterator<Item = ZoneId> {
    (0..frames().zone_count()).map(|zone| ZoneId(zone as u8))
}

pub(crate) fn task(number: u32) {
    if number != 0 || cpu::count() != 1 {
        return;
    }
    plenty();
    let (mut held, mut singles) = (Chain::new(5), Chain::new(6));
    part("all memory, in blocks of 2 MiB and less", || {
        for order in Order::all().rev() {
            for migrate in TYPES {
                for _ in 0..20_000 >> order.get() {
                    let block = FRAMES.alloc(&Request::new(order).migrate(migrate).no_wait());
                    let Ok(block) = block else { break };
                    held.push(block);
                }
            }
        }
    });
    part("the rest of it, in frames", || {
        TYPES.iter().for_each(|&ty| all(&Request::frame().migrate(ty), &mut singles));
        all(&MOVABLE.atomic(), &mut singles);
    });
    refused();
    near_exhaustion(&mut singles);
    part("frames freed one by one, on all CPUs in turn", || {
        let mut cpu = 0;
        while singles.free_one() {
            cpu += 1;
            masked::play(cpu % masked::CPUS);
        }
        masked::play(0);
    });
    part("requests while all CPUs keep what there is", || {
        for order in Order::all() {
            for request in [Request::new(order), MOVABLE.with_order(order).no_wait()] {
                keep(&mut held, FRAMES.alloc(&request));
            }
        }
    });
    part("all CPUs drained", || _ = FRAMES.drain_all());
    part("blocks freed", || _ = held.free_all());
    part("all CPUs drained", || _ = FRAMES.drain_all());
    drained_one_by_one();
    lists();
    ranges();
    compacted();
    plugged();
    reports();
}

/// Requests that are served at once.
fn plenty() {
    let groups = [("a frame", 0..=0), ("8 KiB to 1 MiB", 1..=8), ("2 and 4 MiB", 9..=10)];
    for (what, orders) in groups {
        part(what, || {
            for order in Order::all().filter(|order| orders.contains(&order.get())) {
                for migrate in TYPES {
                    let request = Request::new(order).migrate(migrate);
                    for request in [request, request.atomic(), request.zero(), request.high()] {
                        on_all(|_| give_back(FRAMES.alloc(&request)));
                    }
                }
            }
        });
    }
}

/// All memory is in use.
fn refused() {
    for (what, may_wait) in [("requests refused", false), ("requests refused that may wait", true)]
    {
        part(what, || {
            for (order, migrate) in Order::all().flat_map(|order| TYPES.map(|ty| (order, ty))) {
                let request = Request::new(order).migrate(migrate);
                for request in [request, request.high()] {
                    let request = if may_wait { request } else { request.atomic() };
                    on_all(|_| give_back(FRAMES.alloc(&request)));
                }
            }
        });
    }
}

/// A few frames at a time are there.
fn near_exhaustion(chain: &mut Chain) {
    part("served near exhaustion", || {
        for round in 0..2000_u32 {
            for _ in 0..round % 7 {
                masked::play(round * 5 % masked::CPUS);
                chain.free_one();
            }
            for turn in 0..round % 9 {
                masked::play((round + turn * 11) % masked::CPUS);
                let request = Request::frame().migrate(TYPES[turn as usize % 3]);
                let request = if turn % 2 == 0 { request.no_wait() } else { request };
                keep(chain, FRAMES.alloc(&request));
            }
        }
        masked::play(0);
    });
}

fn drained_one_by_one() {
    let mut chain = Chain::new(8);
    on_all(|_| (0..3000).for_each(|_| keep(&mut chain, FRAMES.alloc(&MOVABLE))));
    on_all(|_| (0..3000).for_each(|_| _ = chain.free_one()));
    chain.free_all();
    part("each CPU drained by itself", || {
        for cpu in 0..masked::CPUS {
            frames().drain_cpu(CpuId(cpu));
        }
    });
}

/// Lists of frames.
fn lists() {
    part("lists of 64 frames", || in_lists(&mut [Pfn::default(); 64]));
    part("lists of 512 frames", || in_lists(&mut [Pfn::default(); 512]));
}

fn in_lists(list: &mut [Pfn]) {
    for round in 0..200 {
        // Each begins somewhere else in a word, and finds the caches otherwise.
        let list = &mut list[round % 48..];
        if frames().alloc_bulk(&MOVABLE, list).is_ok() {
            // SAFETY: allocated a moment ago.
            unsafe { memory::free_list(list) };
        }
    }
}

/// Frames in a row.
fn ranges() {
    part("3000 frames in a row, and freed in parts", || {
        for _ in 0..20 {
            let bounds = Bounds::ANY.aligned(4);
            let Ok(start) = FRAMES.alloc_pages(3000, &MOVABLE, &bounds) else { continue };
            for part in [0..700, 700..701, 701..3000_u64] {
                let pfn = Pfn::new(start.get() + part.start);
                // SAFETY: allocated a moment ago.
                let _freed = unsafe { FRAMES.free_pages(pfn, part.end - part.start) };
            }
        }
    });
    part("just these frames", || {
        for at in (0x8000..0x10000_u64).step_by(1000) {
            if let Ok(token) = FRAMES.alloc_at(Pfn::new(at)..Pfn::new(at + 777)) {
                let _freed = FRAMES.free_contiguous(token);
            }
        }
    });
}

fn compacted() {
    let mut chain = Chain::new(9);
    for nth in 0..60_000 {
        match FRAMES.alloc(&MOVABLE) {
            Ok(block) if nth % 3 == 0 => chain.push(block),
            block => give_back(block),
        }
    }
    part("compaction, of pages that do not move", || {
        for zone in zones() {
            let _done = frames().compact_zone(zone, Order::MAX, CompactMode::Sync);
        }
        let _done = frames().compact_in_background(Order::HUGE);
    });
    part("chains of frames freed", || _ = chain.free_all());
}

fn plugged() {
    part("memory comes and goes", || {
        for _ in 0..2 {
            // SAFETY: memory that the map held back: nothing uses it, and it is mapped as all memory is.
            let came = unsafe { FRAMES.online(plug(), TablesFrom::Zones) };
            if let Err(error) = came.map(|_| ()).and_then(|()| Ok(frames().offline(plug())?)) {
                say!("{error}");
            }
        }
    });
}

/// A text that goes nowhere.
struct Nowhere;

impl fmt::Write for Nowhere {
    fn write_str(&mut self, _: &str) -> fmt::Result {
        Ok(())
    }
}

fn reports() {
    part("reports", || {
        let a = frames();
        let _text =
            write!(Nowhere, "{}{}{}{}", BuddyInfo(a), PageTypeInfo(a), VmStat(a), ZoneStatus(a));
    });
}

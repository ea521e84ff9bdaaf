//! Workloads: what all processors do at once. Each ends by counting every frame.

pub(crate) mod chain;
mod cost;
mod exhaust;
mod faults;
mod fork;
pub(crate) mod handler;
#[cfg(feature = "masked")]
mod masked;
mod migrate;
mod mixed;
mod pass;
#[cfg(feature = "peers")]
pub(crate) mod peers;
mod plug;
mod reclaim;

use crate::machine::{apic, cpu, team};
use crate::memory::{alloc, cache, count, movable, shares};
use crate::say;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use zonal::{Block, Request};

/// One of them.
struct Workload {
    name: &'static str,
    /// What each processor does.
    task: team::Task,
    /// What must hold of the whole, beside the count.
    check: fn() -> Result<(), &'static str>,
}

const ALL: &[Workload] = &[
    Workload { name: "mixed", task: mixed::task, check: ok },
    Workload { name: "pass", task: pass::task, check: ok },
    Workload { name: "processes", task: faults::processes, check: faults::near },
    Workload { name: "programs", task: faults::programs, check: faults::stack },
    Workload { name: "fork", task: fork::task, check: fork::copied },
    Workload { name: "threads", task: faults::threads, check: ok },
    Workload { name: "huge", task: faults::huge, check: faults::had_both },
    Workload { name: "timer", task: handler::task, check: handler::was_inside },
    Workload { name: "exhaust", task: exhaust::task, check: exhaust::refused },
    Workload { name: "reclaim", task: reclaim::task, check: reclaim::came_back },
    Workload { name: "migrate", task: migrate::task, check: migrate::moved },
    Workload { name: "module", task: plug::module_task, check: plug::module_came },
    Workload { name: "plug", task: plug::task, check: plug::came },
    #[cfg(feature = "masked")]
    Workload { name: MASKED, task: masked::task, check: masked::short },
    #[cfg(feature = "peers")]
    Workload { name: PEERS, task: peers::task, check: peers::all_ran },
    Workload { name: COST, task: cost::task, check: ok },
    Workload { name: CANARY, task: lose, check: ok },
];

/// These run only where they are named: one that measures, and one whose damage the count must find.
const COST: &str = "cost";
const CANARY: &str = "canary";
const MASKED: &str = "masked";
const PEERS: &str = "peers";

/// Loses a frame.
fn lose(number: u32) {
    if number == 0 {
        let _ = alloc(&Request::frame()).map(Block::into_raw);
    }
}

fn ok() -> Result<(), &'static str> {
    Ok(())
}

/// Work done: what it is differs by workload.
pub(crate) static WORK: AtomicU64 = AtomicU64::new(0);
/// Requests that were refused, where that may be.
pub(crate) static REFUSED: AtomicU64 = AtomicU64::new(0);
/// Ticks inside a call of the allocator.
pub(crate) static INSIDE: AtomicU64 = AtomicU64::new(0);

/// What is counted of one workload, for what it prints and checks.
static COUNTS: [&AtomicU64; 15] = [
    &WORK,
    &REFUSED,
    &shares::COPIED,
    &shares::KEPT,
    &movable::MOVED,
    &movable::STAYED,
    &cache::BEHIND,
    &cache::DIRECT,
    &faults::NEAR,
    &faults::FAR,
    &handler::SERVED,
    &handler::TURNED_DOWN,
    &migrate::SERVED,
    &plug::CAME,
    &plug::WENT,
];

/// Ticks of all processors, and those inside a call of the allocator.
fn ticks() -> (u64, u64) {
    let all = (0..cpu::count()).map(cpu::at);
    all.fold((0, 0), |(ticks, inside), cpu| {
        (ticks + cpu.ticks.load(Relaxed), inside + cpu.ticks_inside.load(Relaxed))
    })
}

/// Whether those that `wanted` names, with commas, can be run; if not, says why.
pub(crate) fn can_run(wanted: &str) -> bool {
    let is_known = |name: &&str| ALL.iter().any(|workload| workload.name == *name);
    if let Some(name) = wanted.split(',').find(|name| !wanted.is_empty() && !is_known(name)) {
        say!("`{name}` is no workload; there are");
        say_names();
        return false;
    }
    let is_alone = cpu::count() == 1 || !names(wanted, COST);
    if !is_alone {
        say!("`{COST}` counts on one processor, and there are {}", cpu::count());
    }
    is_alone
}

fn names(wanted: &str, name: &str) -> bool {
    wanted.split(',').any(|wanted| wanted == name)
}

/// Prints their names.
pub(crate) fn say_names() {
    ALL.iter().for_each(|workload| say!("  {}", workload.name));
}

/// Runs those that `wanted` names, all if it is empty; whether they [could be run](can_run), and every count was right.
pub(crate) fn run(wanted: &str) -> bool {
    let mut well = can_run(wanted);
    if !well {
        return false;
    }
    let all = wanted.is_empty();
    for &Workload { name, task, check } in ALL {
        let is_for_all = all && ![COST, CANARY, MASKED, PEERS].contains(&name);
        if !is_for_all && !names(wanted, name) {
            continue;
        }
        COUNTS.iter().for_each(|count| count.store(0, Relaxed));
        let before = ticks();
        team::run(task);
        let (ticks, inside) = ticks();
        let (ticks, inside) = (ticks - before.0, inside - before.1);
        INSIDE.store(inside, Relaxed);
        let (work, refused) = (WORK.load(Relaxed), REFUSED.load(Relaxed));
        let count = count::count();
        say!("{name:>9}: {work} done, {refused} refused, {ticks} interrupts, {inside} inside");
        say!("{:>9}  {count}", "");
        if let Err(wrong) = check() {
            say!("{:>9}  WRONG: {wrong}", "");
            well = false;
        }
        well &= count.is_right();
    }
    well
}

/// Runs `task` with timer interrupts every `microseconds`, times the processors: they share the
/// emulator's.
pub(crate) fn with_timer(microseconds: u32, task: impl FnOnce()) {
    apic::start_timer(1000 * microseconds * cpu::count());
    task();
    apic::stop_timer();
}

/// Numbers that look random.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u32) -> Self {
        Self(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(u64::from(seed) + 1))
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

//! Pages go into a cache until memory is short, and on: a task gives them back when it is woken, requests that may
//! wait do it themselves where it is late, and none is refused.

use super::chain::Chain;
use super::{REFUSED, WORK, handler, with_timer};
use crate::machine::{cpu, team};
use crate::memory::cache::{self, BEHIND, DIRECT};
use crate::memory::{alloc, frames};
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use zonal::{MigrateType, Request, ZoneId};

/// Pages read beyond what there is, by all together, of those that stay in the cache.
const BEYOND: u64 = 50_000;
/// One page in this number a reader has for itself, and gives back.
const OWN: u64 = 16;
/// Pages that a reader has beside.
const HELD: u64 = 500;

/// Readers that are not done.
static READERS: AtomicU32 = AtomicU32::new(0);

fn free() -> u64 {
    let infos = (0..frames().zone_count()).filter_map(|at| frames().zone_info(ZoneId(at as u8)));
    infos.map(|info| info.free + info.cached).sum()
}

pub(crate) fn task(number: u32) {
    let count = cpu::count();
    if number == 0 {
        // Where there is one processor, the reader lets the task have its turn.
        READERS.store((count - 1).max(1), Relaxed);
        cache::set_task(Some(0));
    }
    team::meet();
    let pages = (free() + BEYOND) * OWN / (OWN - 1) / u64::from((count - 1).max(1));
    team::meet();
    with_timer(400, || {
        handler::with(1, || {
            if number == 0 && count > 1 {
                while READERS.load(Acquire) != 0 {
                    team::sleep_unless(|| cache::is_woken() || READERS.load(Acquire) == 0);
                    cache::task_runs();
                }
            } else {
                read(number, pages, count == 1);
            }
        });
    });
    team::meet();
    if number == 0 {
        cache::set_task(None);
        cache::shrink(u64::MAX);
    }
}

/// Reads pages into the cache, and has some itself; with the task's turns in between, if there is none to do it.
fn read(number: u32, pages: u64, alone: bool) {
    let page = Request::frame().migrate(MigrateType::Movable);
    let mut own = Chain::new(u64::from(number) << 32 | 11);
    for n in 0..pages {
        match alloc(&page) {
            Ok(block) if n % OWN == 0 => own.push(block),
            Ok(block) => cache::add(block),
            Err(_) => _ = REFUSED.fetch_add(1, Relaxed),
        }
        if n % OWN == 0 && n / OWN >= HELD {
            own.free_one();
        }
        if alone && n % 256 == 0 {
            cache::task_runs();
        }
    }
    own.free_all();
    WORK.fetch_add(pages, Relaxed);
    READERS.fetch_sub(1, AcqRel);
    cache::wake();
}

/// Memory was short, the task gave back, and no reader went without.
pub(crate) fn came_back() -> Result<(), &'static str> {
    let (behind, direct) = (BEHIND.load(Relaxed), DIRECT.load(Relaxed));
    crate::say!("{:>9}  {behind} frames given back by the task, {direct} by requests", "");
    if REFUSED.load(Relaxed) != 0 {
        return Err("a request was refused while there were pages to give back");
    }
    if behind == 0 || behind + direct < BEYOND / 2 {
        Err("too little was given back")
    } else {
        Ok(())
    }
}

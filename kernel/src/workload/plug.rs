//! Memory that comes and goes while all processors allocate.

use super::{REFUSED, WORK, handler, mixed, with_timer};
use crate::machine::{FRAMES, cpu, team};
use crate::memory::{self, frames, module, plug};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use zonal_kernel::global::TablesFrom;

/// How often it comes, and steps of the others meanwhile, all together.
const TIMES: u64 = 6;
const STEPS: u64 = 4000;

/// How often it has come, and gone at once.
pub(crate) static CAME: AtomicU64 = AtomicU64::new(0);
pub(crate) static WENT: AtomicU64 = AtomicU64::new(0);

pub(crate) fn task(number: u32) {
    if plug().is_empty() {
        return;
    }
    with_timer(300, || handler::with(1, || (0..TIMES).for_each(|_| once(number))));
}

/// Processor 0 brings it, and takes it away; all use it.
fn once(number: u32) {
    // SAFETY: memory that the map held back: nothing uses it, and it is mapped as all memory is.
    if number == 0 && unsafe { FRAMES.online(plug(), TablesFrom::Zones) }.is_ok() {
        CAME.fetch_add(1, Release);
    }
    mixed::steps(number, STEPS / u64::from(cpu::count()));
    if number == 0 && frames().offline(plug()).is_ok() {
        // While others allocate: it may be in use.
        WENT.fetch_add(1, Relaxed);
    }
    team::meet();
    // Now no task has any of it; a handler may.
    while number == 0 && frames().is_online(plug().start) {
        if frames().offline(plug()).is_err() {
            REFUSED.fetch_add(1, Relaxed);
            team::idle();
        }
    }
    team::meet();
    WORK.fetch_add(u64::from(number == 0), Relaxed);
}

/// Frames of the module that came.
static OF_MODULE: AtomicU64 = AtomicU64::new(0);

/// A module's memory comes, with its tables in itself, while all use what is there; then all use it. It
/// stays.
pub(crate) fn module_task(number: u32) {
    let module = module();
    if module.is_empty() {
        return;
    }
    let steps = || mixed::steps(number, STEPS / u64::from(cpu::count()));
    let work = || {
        steps();
        if number == 0 {
            // SAFETY: the emulator says that it has come, and no other code knows of it.
            match unsafe { FRAMES.online(module, TablesFrom::Memory) } {
                Ok(onlined) => OF_MODULE.store(onlined.frames, Release),
                Err(error) => crate::say!("{:>9}  {error}", ""),
            }
        }
        steps();
    };
    with_timer(300, || handler::with(1, work));
}

/// All of it came but its tables, which have 1.15 bytes a frame and a few pages more.
pub(crate) fn module_came() -> Result<(), &'static str> {
    let module = module();
    let (all, came) = (module.end.get() - module.start.get(), OF_MODULE.load(Acquire));
    if all == 0 {
        return Ok(());
    }
    crate::say!("{:>9}  {came} frames of {all} came, {} are their tables", "", all - came);
    if (1..all / 3400 + 60).contains(&(all - came)) && memory::tables_fit() {
        Ok(())
    } else {
        Err("not all came, or more tables")
    }
}

/// It came each time, and is gone; where there is too little memory, none was held back.
pub(crate) fn came() -> Result<(), &'static str> {
    if plug().is_empty() {
        return Ok(());
    }
    let (came, went) = (CAME.load(Acquire), WENT.load(Relaxed));
    crate::say!("{:>9}  memory came {came} times, went under load {went} times", "");
    if came != TIMES { Err("memory did not come") } else { Ok(()) }
}

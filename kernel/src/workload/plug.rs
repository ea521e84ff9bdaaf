//! Memory that comes and goes while all processors allocate.

use super::{REFUSED, WORK, handler, mixed, with_timer};
use crate::machine::{cpu, team};
use crate::memory::{frames, plug};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// How often it comes, and steps of the others meanwhile, all together.
const TIMES: u64 = 6;
const STEPS: u64 = 4000;

/// How often it has come, and gone at once.
static CAME: AtomicU64 = AtomicU64::new(0);
static WENT: AtomicU64 = AtomicU64::new(0);

pub(crate) fn task(number: u32) {
    if plug().is_empty() {
        return;
    }
    with_timer(300, || handler::with(1, || (0..TIMES).for_each(|_| once(number))));
}

/// Processor 0 brings it, and takes it away; all use it.
fn once(number: u32) {
    if number == 0 && frames().online(plug()).is_ok() {
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

/// It came each time, and is gone.
pub(crate) fn came() -> Result<(), &'static str> {
    let (came, went) = (CAME.load(Acquire), WENT.load(Relaxed));
    crate::say!("{:>9}  memory came {came} times, went under load {went} times", "");
    if came != TIMES { Err("memory did not come") } else { Ok(()) }
}

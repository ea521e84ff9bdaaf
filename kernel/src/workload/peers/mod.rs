//! All presets and two allocators of other projects, one after the other: what all processors do together for a frame allocated
//! and freed, what a rival adds to a page fault, and what a request that may not wait looks at when little is left.
//!
//! Where the emulator counts instructions, ticks are these; its processors then take long turns, and seldom meet. Where each
//! processor is a thread, they meet, and ticks mean nothing.

mod counted;
mod mapped;
mod rivals;

pub(crate) use counted::Counts;

use crate::machine::{Pc, cpu, team};
use crate::say;
use core::fmt;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;
use rivals::{MANAGED, Rival};
use zonal::Pfn;
use zonal::platform::Lock;
use zonal_kernel::Error;
use zonal_kernel::irq_lock::IrqLock;

/// Frames that all processors have at once, and how often.
const AT_ONCE: usize = 2048;
const TURNS: u64 = 64;
const PAIRS: u64 = AT_ONCE as u64 * TURNS;

/// How many rivals were run.
static RAN: AtomicU64 = AtomicU64::new(0);
/// Of how many something was wrong.
static FAILED: AtomicU64 = AtomicU64::new(0);
/// Frames that were not there.
static MISSED: AtomicU64 = AtomicU64::new(0);

pub(crate) fn task(number: u32) {
    let mut runs = Runs { number, without: 0 };
    if number == 0
        && let Err(error) = boot(&mut runs)
    {
        say!("{error}");
        FAILED.fetch_add(1, Relaxed);
    }
    team::meet();
    if FAILED.load(Relaxed) == 0 {
        rivals::visit(&mut runs);
    }
}

fn boot(runs: &mut Runs) -> Result<(), Error> {
    rivals::boot()?;
    runs.without = mapped::without()?;
    say!("{:>24}  {:>7} {HEAD}", "a frame and its free:", "ticks");
    Ok(())
}

/// What the columns are.
const HEAD: &str =
    "locks slots fences spins; a fault and its unmap; near the end at most: ticks locks+slots";

fn clock() -> u64 {
    // SAFETY: it reads the processor's clock.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// What a processor does with each rival.
struct Runs {
    number: u32,
    /// Ticks of pages that come without an allocator.
    without: u64,
}

impl rivals::Visitor for Runs {
    fn visit<R: Rival>(&mut self, name: &str, rival: &R) {
        let pairs = pairs(rival);
        if self.number == 0 {
            let fault = mapped::with(rival).map(|with| mapped::tenths(with, self.without));
            let most = exhausted(rival);
            match fault {
                Ok(fault) => say!("{name:>24}: {pairs} {} {most}", Tenths(fault)),
                Err(error) => say!("{name:>24}: {error}"),
            }
            let fits = R::MOST.is_none_or(|bound| most.masks <= bound);
            let is_wrong = MISSED.swap(0, Relaxed) != 0 || fault.is_err() || !fits;
            FAILED.fetch_add(u64::from(is_wrong), Relaxed);
            RAN.fetch_add(1, Relaxed);
        }
        team::meet();
    }
}

/// A number of tenths.
struct Tenths(u64);

impl fmt::Display for Tenths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>5}.{}", self.0 / 10, self.0 % 10)
    }
}

/// What all processors did together for each frame.
struct Pairs {
    ticks: u64,
    locks: u64,
    slots: u64,
    fences: u64,
    spins: u64,
}

impl fmt::Display for Pairs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Tenths(self.ticks * 10 / PAIRS))?;
        [self.locks, self.slots, self.fences, self.spins]
            .iter()
            .try_for_each(|count| write!(f, "  {}.{:02}", count / PAIRS, count * 100 / PAIRS % 100))
    }
}

/// All processors allocate some frames, then free them; and again.
fn pairs<R: Rival>(rival: &R) -> Pairs {
    let count = cpu::count();
    let now = || {
        let [masks, fences, spins] = counted::all();
        let locks = rival.holds().unwrap_or(masks);
        [clock(), masks, locks, fences, spins]
    };
    turns(rival, AT_ONCE / count as usize, 1);
    team::meet();
    let before = now();
    team::meet();
    turns(rival, AT_ONCE / count as usize, TURNS);
    team::meet();
    let after = now();
    team::meet();
    let [ticks, masks, locks, fences, spins] = core::array::from_fn(|at| after[at] - before[at]);
    Pairs { ticks, locks, slots: masks.saturating_sub(locks), fences, spins }
}

/// Allocates some, then frees them, so often.
// Not in its callers: it has room for what is held.
#[inline(never)]
fn turns<R: Rival>(rival: &R, frames: usize, turns: u64) {
    let mut held = [Pfn::default(); AT_ONCE];
    for _ in 0..turns {
        let held = &mut held[..frames];
        for place in &mut *held {
            match rival.alloc() {
                Some(frame) => *place = frame,
                None => _ = MISSED.fetch_add(1, Relaxed),
            }
        }
        if MISSED.load(Relaxed) == 0 {
            // SAFETY: given above, and not used.
            held.iter().for_each(|&frame| unsafe { rival.free(frame) });
        }
    }
}

/// The most that a request did.
#[derive(Default)]
struct Most {
    ticks: u64,
    masks: u64,
}

impl fmt::Display for Most {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>7} {:>3}", self.ticks, self.masks)
    }
}

/// Room for all frames of a rival.
static HELD: IrqLock<[Pfn; MANAGED as usize], Pc> = IrqLock::new([Pfn::new(0); MANAGED as usize]);

/// How often a request that may not wait is made when there is nothing.
const REFUSALS: usize = 16;

/// Requests that may not wait, until they are refused, and some more; while other processors' caches have frames. Then all
/// are freed.
fn exhausted<R: Rival>(rival: &R) -> Most {
    let mut most = Most::default();
    let mut one = || {
        let (start, masks) = (clock(), counted::masked_here());
        let found = rival.urgent();
        most.ticks = most.ticks.max(clock() - start);
        most.masks = most.masks.max(counted::masked_here() - masks);
        found
    };
    // Interrupts are masked, which does not change what is counted.
    HELD.with(|held| {
        let mut count = 0;
        while let Some(frame) = one() {
            held[count] = frame;
            count += 1;
        }
        (0..REFUSALS).for_each(|_| assert!(one().is_none(), "nothing was freed meanwhile"));
        // SAFETY: given above, and not used.
        held[..count].chunks(64).for_each(|list| unsafe { rival.free_list(list) });
    });
    most
}

/// All of them ran, with a frame for each request, and none looked at more than is said.
pub(crate) fn all_ran() -> Result<(), &'static str> {
    match (RAN.load(Relaxed), FAILED.load(Relaxed)) {
        (0, _) => Err("no rival was run"),
        (_, 0) => Ok(()),
        _ => Err("a rival had no frame, did not boot, or looked at too many slots"),
    }
}

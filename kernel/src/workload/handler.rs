//! What the timer's handler does: allocates and frees frames, with requests that may not wait.

use super::{INSIDE, REFUSED, Random, WORK, with_timer};
use crate::machine::{FRAMES, Pc, cpu};
use crate::memory::{alloc, words};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU32, AtomicU64};
use zonal::platform::Lock;
use zonal::{Block, Order, Request};
use zonal_kernel::irq_lock::IrqLock;

/// Frames that a handler keeps for a while.
const KEPT: usize = 24;

/// What the handlers of a processor have.
struct Own {
    blocks: [Option<Block>; KEPT],
    next: usize,
}

static OWN: [IrqLock<Own, Pc>; cpu::MOST] =
    [const { IrqLock::new(Own { blocks: [const { None }; KEPT], next: 0 }) }; cpu::MOST];

/// How many frames the handler of each processor allocates when it runs.
static AT_ONCE: [AtomicU32; cpu::MOST] = [const { AtomicU32::new(0) }; cpu::MOST];

/// Frames that handlers allocated, and requests of theirs that were refused.
pub(crate) static SERVED: AtomicU64 = AtomicU64::new(0);
pub(crate) static TURNED_DOWN: AtomicU64 = AtomicU64::new(0);

impl Own {
    /// Puts a block, or none, in the place of the oldest, which is freed.
    fn replace(&mut self, block: Option<Block>, stamp: u64) {
        if let Some(block) = &block {
            // SAFETY: the block is ours, and has a word.
            unsafe { words(block.pfn()).write(stamp) };
        }
        let oldest = core::mem::replace(&mut self.blocks[self.next], block);
        self.next = (self.next + 1) % KEPT;
        if let Some(block) = oldest {
            // SAFETY: as above.
            let found = unsafe { words(block.pfn()).read() };
            assert_eq!(found, stamp, "frame {} of a handler is in two hands", block.pfn());
            if let Err(error) = FRAMES.free(block) {
                panic!("{error}");
            }
        }
    }
}

/// Called at each timer interrupt, with interrupts kept away.
pub(crate) fn run() {
    let number = cpu::number().0;
    let at_once = AT_ONCE[number as usize].load(Acquire);
    if at_once == 0 {
        return;
    }
    OWN[number as usize].with(|own| {
        for _ in 0..at_once {
            let block = FRAMES.alloc(&Request::frame().atomic()).ok();
            if block.is_some() { &SERVED } else { &TURNED_DOWN }.fetch_add(1, Relaxed);
            own.replace(block, stamp(number));
        }
    });
}

fn stamp(number: u32) -> u64 {
    0xf1f1_0000_0000_0000 | u64::from(number)
}

/// Runs `task` while this processor's handler allocates `at_once` frames at each interrupt.
pub(crate) fn with(at_once: u32, task: impl FnOnce()) {
    let number = cpu::number().0;
    AT_ONCE[number as usize].store(at_once, Release);
    task();
    AT_ONCE[number as usize].store(0, Release);
    OWN[number as usize].with(|own| (0..KEPT).for_each(|_| own.replace(None, stamp(number))));
}

/// Frames of all processors together.
const FRAMES_WANTED: u64 = 400_000;

/// Allocates and frees as fast as it can, while the timer does the same, often.
pub(crate) fn task(number: u32) {
    let mut random = Random::new(number);
    let mut held: [Option<Block>; 64] = [const { None }; 64];
    with_timer(40, || {
        with(4, || {
            for _ in 0..FRAMES_WANTED / u64::from(cpu::count()) {
                let place = &mut held[random.below(64) as usize];
                match place.take() {
                    Some(block) => crate::memory::free(block),
                    None => match alloc(&Request::new(Order::ZERO)) {
                        Ok(block) => *place = Some(block),
                        Err(_) => {
                            REFUSED.fetch_add(1, Relaxed);
                        }
                    },
                }
                WORK.fetch_add(1, Relaxed);
            }
        });
    });
    held.into_iter().flatten().for_each(crate::memory::free);
}

/// Handlers allocated, and some of them while a request was under way.
pub(crate) fn was_inside() -> Result<(), &'static str> {
    let (inside, served) = (INSIDE.load(Relaxed), SERVED.load(Relaxed));
    crate::say!("{:>9}  {served} frames by handlers", "");
    if inside == 0 || served == 0 { Err("no handler was inside") } else { Ok(()) }
}

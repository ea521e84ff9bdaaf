//! What a frame costs, in instructions: for `cargo xtask kernel cost`, whose emulator counts an instruction
//! as one tick of the processor's clock. Elsewhere the numbers mean nothing.

use crate::machine::{FRAMES, Pc, cpu};
use crate::memory::frames;
use crate::say;
use core::hint::black_box;
use zonal::platform::Lock;
use zonal::{Block, MigrateType, Order, Pfn, Request};
use zonal_kernel::irq_lock::IrqLock;

/// Frames in hand at once: as many as a process of some size.
const FRAMES_HELD: usize = 4096;
const ROUNDS: u64 = 8;

/// Room for them.
static HELD: IrqLock<[Option<Block>; FRAMES_HELD], Pc> =
    IrqLock::new([const { None }; FRAMES_HELD]);

fn clock() -> u64 {
    // SAFETY: it reads the processor's clock.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Ticks of `f`, less those of two looks at the clock.
fn ticks(f: impl FnOnce()) -> u64 {
    let idle = clock();
    let start = clock();
    f();
    let end = clock();
    (end - start).saturating_sub(start - idle)
}

/// Prints what each of `count` costs.
fn tell(what: &str, ticks: u64, count: u64) {
    say!("{what:>36}: {}.{} instructions", ticks / count, ticks * 10 / count % 10);
}

/// Processor 0 alone.
pub(crate) fn task(number: u32) {
    if number != 0 || cpu::count() != 1 {
        return;
    }
    let frame = Request::frame().migrate(MigrateType::Movable);
    for (what, request) in [
        ("a frame, and freed at once", frame),
        ("2 MiB, and freed at once", frame.with_order(Order::HUGE)),
        ("an atomic frame, and freed at once", frame.atomic()),
        ("a frame of zero bytes, freed at once", frame.zero()),
    ] {
        pairs(&request);
        tell(what, ticks(|| pairs(&request)), PAIRS);
    }
    many(&frame);
    exhausted(&frame);
}

const PAIRS: u64 = 10_000;

fn pairs(request: &Request) {
    for _ in 0..PAIRS {
        if let Ok(block) = FRAMES.alloc(black_box(request)) {
            let _ = FRAMES.free(black_box(block));
        }
    }
}

/// As page faults and an exit do: many allocated, then all freed; beside the same without an allocator.
fn many(request: &Request) {
    let (mut alloc, mut own, mut free, mut nothing) = (0, 0, 0, 0);
    // With interrupts let in, as a fault has it: the room is taken out of its lock.
    let held = HELD.with(core::ptr::from_mut);
    // SAFETY: only this processor is in this function, once.
    let held = unsafe { &mut *held };
    for _ in 0..ROUNDS {
        alloc += ticks(|| {
            for place in held.iter_mut() {
                *place = FRAMES.alloc(black_box(request)).ok();
            }
        });
        free += ticks(|| free_each(held));
        own += ticks(|| {
            for place in held.iter_mut() {
                *place = cpu::own().home.alloc(black_box(request)).ok();
            }
        });
        free_each(held);
        nothing += ticks(|| {
            for place in held.iter_mut() {
                *place = black_box(None);
            }
        });
    }
    let all = ROUNDS * FRAMES_HELD as u64;
    tell("a frame of 4096 allocated in a row", alloc - nothing, all);
    let own = own - nothing;
    tell("the same by what the processor has", own, all);
    tell("a frame of 4096 freed in a row", free - nothing, all);
    let mut lists = 0;
    let mut list = [Pfn::default(); 64];
    for _ in 0..ROUNDS {
        for place in held.iter_mut() {
            *place = FRAMES.alloc(request).ok();
        }
        lists += ticks(|| {
            for part in held.chunks_exact_mut(list.len()) {
                for (place, pfn) in part.iter_mut().zip(&mut list) {
                    *pfn = place.take().map_or(Pfn::default(), |block| block.into_raw().0);
                }
                let _ = black_box(frames().free_bulk(&list));
            }
        });
    }
    tell("a frame of 4096 freed in lists of 64", lists - nothing, all);
    tell("a fault and its unmap", own + lists - nothing, all);
}

fn free_each(held: &mut [Option<Block>]) {
    for block in held.iter_mut().filter_map(Option::take) {
        let _ = FRAMES.free(block);
    }
}

/// The longest refusal: what a handler is told when there is nothing.
fn exhausted(request: &Request) {
    let mut chain = super::chain::Chain::new(3);
    while let Ok(block) = FRAMES.alloc(&request.no_wait()) {
        chain.push(block);
    }
    while let Ok(block) = FRAMES.alloc(&request.atomic()) {
        chain.push(block);
    }
    let refused = ticks(|| {
        for _ in 0..100 {
            let _ = black_box(FRAMES.alloc(black_box(&request.atomic())).is_err());
        }
    });
    tell("an atomic frame refused", refused, 100);
    chain.free_all();
}

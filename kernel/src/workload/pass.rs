//! Frames allocated on one processor and freed on the next.

use super::chain::Chain;
use super::{WORK, with_timer};
use crate::machine::{cpu, team};
use crate::memory::alloc;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use zonal::Request;

/// Frames of a chain, and how often one is passed, by all processors together.
const FRAMES: u64 = 500;
const ROUNDS: u64 = 240;

/// What each processor passes on.
static PASSED: [AtomicU64; cpu::MOST] = [const { AtomicU64::new(0) }; cpu::MOST];

pub(crate) fn task(number: u32) {
    let count = cpu::count();
    with_timer(400, || {
        for round in 0..ROUNDS / u64::from(count) {
            let stamp = |from: u32| u64::from(from) << 32 | round;
            let mut chain = Chain::new(stamp(number));
            for _ in 0..FRAMES {
                if let Ok(block) = alloc(&Request::frame()) {
                    chain.push(block);
                }
            }
            PASSED[number as usize].store(chain.into_raw(), Release);
            team::meet();
            let from = (number + 1) % count;
            // Acquire: pairs with the release above, by the meeting.
            let chain = Chain::from_raw(PASSED[from as usize].load(Acquire), stamp(from));
            WORK.fetch_add(chain.free_all(), Relaxed);
            team::meet();
        }
    });
}

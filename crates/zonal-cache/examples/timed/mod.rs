//! Looks at pages of 4 KiB by several ways, timed in turns.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

pub(crate) const PAGE: usize = 4096;
/// Pages of the file: 64 MiB.
pub(crate) const PAGES: u64 = 16_384;
pub(crate) const ROUNDS: usize = 15;
const SLICE: Duration = Duration::from_millis(60);
/// Before each slice as much is not counted: the way before it has left other pages in the CPU's caches.
const BEFORE: Duration = Duration::from_millis(20);

/// A way to look at a page; a byte of it.
pub(crate) trait Look: Sync {
    fn look(&self, index: u64, buffer: &mut [u8]) -> u8;
}

/// The bytes of the file: pages have their number's low byte everywhere.
pub(crate) fn bytes() -> Vec<u8> {
    (0..PAGES).flat_map(|index| [index as u8; PAGE]).collect()
}

/// Nanoseconds of CPU that the thread has used.
fn cpu_time() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Nanoseconds of CPU a look, as one thread sees it, while every one of `looks` is at it.
pub(crate) fn time(looks: &[&dyn Look], among: u64) -> f64 {
    let together = Barrier::new(looks.len());
    let one = |number: usize, look: &dyn Look| {
        let mut buffer = vec![0; PAGE];
        let mut state = 0x9E37_79B9_7F4A_7C15_u64 + number as u64;
        together.wait();
        let mut look_for = |time: Duration| {
            let (start, mut count) = (Instant::now(), 0_u64);
            while start.elapsed() < time {
                for _ in 0..256 {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let index = (state >> 33) % among;
                    assert_eq!(look.look(index, &mut buffer), index as u8);
                }
                count += 256;
            }
            count
        };
        look_for(BEFORE);
        let used = cpu_time();
        let count = look_for(SLICE);
        (cpu_time() - used) as f64 / count as f64
    };
    thread::scope(|scope| {
        let one = &one;
        let started: Vec<_> = looks
            .iter()
            .enumerate()
            .map(|(number, &look)| scope.spawn(move || one(number, look)))
            .collect();
        let times = started.into_iter().map(|it| it.join().expect("a thread"));
        times.sum::<f64>() / looks.len() as f64
    })
}

pub(crate) fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

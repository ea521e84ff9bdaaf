//! What one CPU shows on its own: clocks, loads, locked instructions, clearing.
//!
//! ```
//! use zonal_calibrate::alone::spin_ghz;
//!
//! assert!(spin_ghz(10_000) > 0.0);
//! ```

use core::hint::black_box;
use std::convert::Infallible;
use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use super::buffer::{Advice, Buffer, Chain, LINE};
use super::clock;
use super::error::CalibrateError;
use super::quantity::{Ledger, Quantity, each, repeat};
use zonal_bench::rng::Rng;
use zonal_bench::subject::FRAME_BYTES;

/// Steps of a sample: about 1 ms each, so that a thread that shares its CPU with others has a good
/// chance to keep it for as long.
const LOADS: usize = 200_000;
const SLOW_LOADS: usize = 8_000;
const INSTRUCTIONS: usize = 200_000;
const FRAMES: usize = 2048;
/// Steps of the clock's loop.
pub const SPINS: u64 = 500_000;

/// Frequency of the core in GHz, from `steps` additions and exclusive ors that each need the
/// result before: a cycle each on every core of the last decades.
#[must_use]
pub fn spin_ghz(steps: u64) -> f64 {
    let (mask, add) = (black_box(0x9e37_79b9_7f4a_7c15_u64), black_box(0x1234_5678_9abc_def1));
    let mut value = black_box(1_u64);
    let mut left = steps;
    let start = Instant::now();
    while left != 0 {
        // Eight at once, so that the counting beside them never is what takes the time.
        value = (value ^ mask).wrapping_add(add);
        value = (value ^ mask).wrapping_add(add);
        value = (value ^ mask).wrapping_add(add);
        value = (value ^ mask).wrapping_add(add);
        left -= 1;
    }
    let time = start.elapsed();
    black_box(value);
    8.0 * steps as f64 / time.as_nanos().max(1) as f64
}

/// How large the working sets are, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// In the innermost cache.
    pub inner: usize,
    /// In the core's own.
    pub private: usize,
    /// In the shared cache, and too large for the core's own.
    pub shared: usize,
    /// In memory.
    pub memory: usize,
}

/// A working set with a random chain through it.
#[derive(Debug)]
pub struct Set {
    buffer: Buffer,
    chain: Chain,
}

impl Set {
    /// Makes one of `bytes` on the calling thread: memory comes from where it is first touched.
    ///
    /// # Errors
    ///
    /// [`CalibrateError::Memory`].
    pub fn new(bytes: usize, rng: &mut Rng) -> Result<Self, CalibrateError> {
        let buffer = Buffer::new(bytes, Advice::Huge)?;
        let chain = Chain::random(&buffer, buffer.lines(), rng);
        Ok(Self { buffer, chain })
    }

    /// Ns a load.
    fn walk(&mut self, steps: usize) -> f64 {
        let start = Instant::now();
        self.chain.walk(&self.buffer, steps);
        each(start.elapsed(), steps)
    }

    /// Fetches everything, as far as it fits.
    fn warm(&mut self) {
        self.chain.walk(&self.buffer, self.buffer.lines());
    }
}

/// A line of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Apart<T>(T);

/// The working sets of one CPU.
#[derive(Debug)]
pub struct Alone {
    inner: Set,
    private: Set,
    shared: Set,
    memory: Set,
    sequential: Chain,
    /// Memory of another socket, if there is one.
    far: Option<Set>,
    frames: Buffer,
    next: usize,
    page: Apart<Box<[u8]>>,
    word: Apart<AtomicU64>,
    lock: Apart<AtomicBool>,
    read_lock: Apart<RwLock<u64>>,
}

impl Alone {
    /// Makes the working sets on the calling thread, which must be on the CPU to be measured.
    ///
    /// # Errors
    ///
    /// [`CalibrateError::Memory`].
    pub fn new(sizes: Sizes) -> Result<Self, CalibrateError> {
        let mut rng = Rng::new(1);
        let mut set = |bytes| Set::new(bytes, &mut rng);
        let (inner, private, shared) = (set(sizes.inner)?, set(sizes.private)?, set(sizes.shared)?);
        let memory = set(sizes.memory)?;
        let sequential = Chain::sequential(&memory.buffer);
        let mut frames = Buffer::new(sizes.memory, Advice::Huge)?;
        frames.bytes_mut().fill(1);
        Ok(Self {
            inner,
            private,
            shared,
            memory,
            sequential,
            far: None,
            frames,
            next: 0,
            page: Apart(vec![1; FRAME_BYTES].into()),
            word: Apart::default(),
            lock: Apart::default(),
            read_lock: Apart::default(),
        })
    }

    /// Adds a working set in the memory of another socket.
    pub fn add_far(&mut self, set: Set) {
        self.far = Some(set);
    }

    /// Takes a sample of everything on the calling thread.
    pub fn round(&mut self, ledger: &mut Ledger) {
        let begin = clock::Reading::now();
        self.loads(ledger);
        self.instructions(ledger);
        self.pages(ledger);
        let end = clock::Reading::now();
        if let Some(ghz) = begin.zip(end).and_then(|(begin, end)| begin.ghz(&end)) {
            take(ledger, Quantity::Tsc, || ghz);
        }
    }

    fn loads(&mut self, ledger: &mut Ledger) {
        self.inner.warm();
        take(ledger, Quantity::Inner, || self.inner.walk(LOADS));
        self.private.warm();
        take(ledger, Quantity::Private, || self.private.walk(LOADS));
        self.shared.warm();
        take(ledger, Quantity::Shared, || self.shared.walk(4 * SLOW_LOADS));
        take(ledger, Quantity::Memory, || self.memory.walk(SLOW_LOADS));
        if let Some(far) = &mut self.far {
            take(ledger, Quantity::MemoryFar, || far.walk(SLOW_LOADS));
        }
        take(ledger, Quantity::Streamed, || {
            let start = Instant::now();
            self.sequential.walk(&self.memory.buffer, LOADS);
            each(start.elapsed(), LOADS)
        });
    }

    fn instructions(&mut self, ledger: &mut Ledger) {
        take(ledger, Quantity::Locked, || {
            repeat(INSTRUCTIONS, || {
                self.word.0.fetch_add(1, Ordering::Relaxed);
            })
        });
        take(ledger, Quantity::Lock, || {
            let lock = &self.lock.0;
            repeat(INSTRUCTIONS, || {
                let free = (Ordering::Acquire, Ordering::Relaxed);
                while lock.compare_exchange(false, true, free.0, free.1).is_err() {}
                lock.store(false, Ordering::Release);
            })
        });
        take(ledger, Quantity::ReadLock, || {
            let lock = &self.read_lock.0;
            repeat(INSTRUCTIONS, || drop(black_box(lock.read())))
        });
        take(ledger, Quantity::Counter, || {
            let word = &self.word.0;
            repeat(INSTRUCTIONS, || {
                word.store(word.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
                word.store(word.load(Ordering::Relaxed).wrapping_sub(1), Ordering::Relaxed);
            })
        });
    }

    fn pages(&mut self, ledger: &mut Ledger) {
        take(ledger, Quantity::ClearHot, || repeat(FRAMES, || black_box(&mut self.page.0).fill(0)));
        let next = &mut self.next;
        let count = self.frames.lines() * LINE / FRAME_BYTES;
        let bytes = self.frames.bytes_mut();
        let mut frame = || {
            *next = (*next + 1) % count;
            *next * FRAME_BYTES
        };
        take(ledger, Quantity::ClearCold, || {
            repeat(FRAMES, || {
                let at = frame();
                black_box(&mut bytes[at..at + FRAME_BYTES]).fill(0);
            })
        });
        take(ledger, Quantity::CopyCold, || {
            repeat(FRAMES, || {
                let (from, to) = (frame(), frame());
                black_box(&mut *bytes).copy_within(from..from + FRAME_BYTES, to);
            })
        });
    }
}

fn take(ledger: &mut Ledger, quantity: Quantity, work: impl FnOnce() -> f64) {
    let Ok(()) = ledger.take([quantity], || Ok::<_, Infallible>([work()]));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_samples_everything_once() {
        let sizes =
            Sizes { inner: 16 << 10, private: 256 << 10, shared: 2 << 20, memory: 16 << 20 };
        let mut alone = Alone::new(sizes).expect("memory");
        alone.add_far(Set::new(16 << 20, &mut Rng::new(2)).expect("memory"));
        let mut ledger = Ledger::default();
        alone.round(&mut ledger);
        let figures: Vec<_> = ledger.figures().collect();
        assert!(figures.iter().all(|(_, figure)| figure.median > 0.0 && figure.samples == 1));
        let clock = usize::from(clock::Reading::now().is_some());
        assert_eq!(figures.len(), 13 + clock, "{figures:?}");
    }
}

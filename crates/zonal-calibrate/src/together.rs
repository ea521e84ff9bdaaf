//! What CPUs show together: how fast their cores run then, what memory gives all of them, what a
//! line costs that another has written, and waking one another.
//!
//! ```
//! use zonal_calibrate::together::on;
//!
//! let cpu = zonal_bench::machine::cpus()?[0];
//! let found = on(&[cpu], |_, place| Ok(place.parties()))?;
//! assert_eq!(found, [1]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use core::hint::black_box;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, mpsc};
use std::thread::{self, Builder};
use std::time::{Duration, Instant};

use super::alone::{SPINS, spin_ghz};
use super::buffer::{Advice, Buffer, Chain, LINE};
use super::error::CalibrateError;
use super::quantity::{Ledger, Quantity, Sample, each, watched};
use zonal_bench::machine;
use zonal_bench::rendezvous::{AbortOnPanic, Distance, Rendezvous};
use zonal_bench::rng::Rng;
use zonal_bench::subject::FRAME_BYTES;

/// Lines that one CPU writes and the other reads, and how often.
const LINES: usize = 256;
const TURNS: usize = 40;
/// Of this many lines in a row one is used, so that no prefetcher has it.
const APART: u64 = 4;
/// Bytes of a sample of a rate: a few ms of one CPU. The next sample goes on behind it, so that
/// caches do not have it.
const CHUNK: usize = 8 << 20;
/// Wake-ups there and back.
const WAKES: u64 = 150;

/// Runs `work` on a thread on each of `cpus` at once, with the place where they meet.
///
/// # Errors
///
/// [`CalibrateError::Thread`] if one cannot be started there, [`CalibrateError::Ended`] if one
/// panics, else the first error of `work`.
pub fn on<R: Send>(
    cpus: &[usize],
    work: impl Fn(usize, &Rendezvous) -> Result<R, CalibrateError> + Sync,
) -> Result<Vec<R>, CalibrateError> {
    let place = Rendezvous::new(cpus.len());
    let run = |index: usize, cpu: usize| {
        let _guard = AbortOnPanic(&place);
        let pinned = machine::pin(cpu).map_err(|source| CalibrateError::Thread { cpu, source });
        let result = pinned.and_then(|()| work(index, &place));
        if result.is_err() {
            place.abort();
        }
        result
    };
    let run = &run;
    let results: Vec<Result<R, CalibrateError>> = thread::scope(|scope| {
        let mut threads = Vec::with_capacity(cpus.len());
        for (index, &cpu) in cpus.iter().enumerate() {
            let thread = Builder::new().spawn_scoped(scope, move || run(index, cpu));
            if thread.is_err() {
                place.abort();
            }
            threads.push(thread.map_err(|source| CalibrateError::Thread { cpu, source }));
        }
        let join = |thread: Result<thread::ScopedJoinHandle<'_, _>, _>| {
            thread?.join().map_err(|_| CalibrateError::Ended)?
        };
        threads.into_iter().map(join).collect()
    });
    // Who only heard that another gave up does not know why.
    let told = |result: &Result<R, CalibrateError>| matches!(result, Err(error) if !matches!(error, CalibrateError::Ended));
    let mut results = results;
    if let Some(at) = results.iter().position(told) {
        results.swap(0, at);
    }
    results.into_iter().collect()
}

/// Samples the clock of a core while `cpus`, one of each core, are all busy.
///
/// # Errors
///
/// Those of [`on`].
pub fn core_clock(cpus: &[usize], ledger: &mut Ledger) -> Result<(), CalibrateError> {
    let found = on(cpus, |_, place| {
        place.meet()?;
        // It takes a core a moment to change its clock.
        black_box(spin_ghz(SPINS / 4));
        Ok(watched(|| spin_ghz(SPINS)))
    })?;
    let mut values: Vec<f64> = found.iter().map(|it| it.0).collect();
    let value = zonal_bench::stats::median(&mut values).ok_or(CalibrateError::Ended)?;
    let lost_cpu = found.iter().any(|it| it.1);
    ledger.add(Quantity::Core(cpus.len() as u16), Sample { value, lost_cpu });
    Ok(())
}

/// Memory for all CPUs of a socket to work on at once.
#[derive(Debug)]
pub struct Rates {
    cpus: Vec<usize>,
    /// With the chunk that is next.
    buffers: Vec<Mutex<(Buffer, usize)>>,
    chunks: usize,
}

impl Rates {
    /// For `cpus`, with `bytes` each.
    ///
    /// # Errors
    ///
    /// [`CalibrateError::Memory`], and those of [`on`].
    pub fn new(cpus: &[usize], bytes: usize) -> Result<Self, CalibrateError> {
        let buffers = on(cpus, |_, _| {
            let mut buffer = Buffer::new(bytes, Advice::Huge)?;
            buffer.bytes_mut().fill(1);
            Ok(Mutex::new((buffer, 0)))
        })?;
        Ok(Self { cpus: cpus.to_vec(), buffers, chunks: (bytes / CHUNK).max(1) })
    }

    /// Takes a sample of each rate.
    ///
    /// # Errors
    ///
    /// Those of [`on`].
    pub fn round(&self, ledger: &mut Ledger) -> Result<(), CalibrateError> {
        self.rate(ledger, Quantity::ReadRate, |chunk| {
            // A word of each line brings all of it.
            let lines = chunk.chunks_exact(LINE);
            black_box(lines.fold(0_u8, |sum, line| sum.wrapping_add(line[0])));
            chunk.len()
        })?;
        self.rate(ledger, Quantity::ClearRate, |chunk| {
            chunk.chunks_exact_mut(FRAME_BYTES).for_each(|page| black_box(page).fill(0));
            chunk.len()
        })?;
        self.rate(ledger, Quantity::CopyRate, |chunk| {
            let half = chunk.len() / 2;
            let (from, to) = chunk.split_at_mut(half);
            for (from, to) in from.chunks_exact(FRAME_BYTES).zip(to.chunks_exact_mut(FRAME_BYTES)) {
                black_box(to).copy_from_slice(from);
            }
            half
        })
    }

    fn rate(
        &self,
        ledger: &mut Ledger,
        quantity: Quantity,
        work: impl Fn(&mut [u8]) -> usize + Sync,
    ) -> Result<(), CalibrateError> {
        let runs = on(&self.cpus, |index, place| {
            let mut held = self.buffers[index].lock().unwrap_or_else(PoisonError::into_inner);
            let (buffer, next) = &mut *held;
            let bytes = buffer.bytes_mut();
            let chunk = bytes.chunks_exact_mut(CHUNK.min(bytes.len())).nth(*next);
            let chunk = chunk.ok_or(CalibrateError::Ended)?;
            *next = (*next + 1) % self.chunks;
            place.meet()?;
            let start = Instant::now();
            let (bytes, lost) = watched(|| work(chunk));
            Ok((bytes, start, Instant::now(), lost))
        })?;
        let bytes: usize = runs.iter().map(|run| run.0).sum();
        let start = runs.iter().map(|run| run.1).min();
        let end = runs.iter().map(|run| run.2).max();
        let (Some(start), Some(end)) = (start, end) else { return Err(CalibrateError::Ended) };
        let value = bytes as f64 / f64::from(1 << 30) / (end - start).as_secs_f64();
        ledger.add(quantity, Sample { value, lost_cpu: runs.iter().any(|run| run.3) });
        Ok(())
    }
}

/// What one sample of a pair of CPUs showed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PairSample {
    /// Round trip of a line between them, before, in ns.
    pub round_trip: f64,
    /// A load of a line that the other has written, each depending on the one before, in ns.
    pub line: f64,
    /// The class of the round trip.
    pub distance: Distance,
    /// Whether one of them lost its CPU, or they moved apart or together meanwhile.
    pub disturbed: bool,
}

/// Takes a sample of a pair of CPUs.
///
/// # Errors
///
/// [`CalibrateError::Memory`], and those of [`on`].
pub fn pair(a: usize, b: usize) -> Result<PairSample, CalibrateError> {
    let (buffer, lines, chain) = lines()?;
    let sides = on(&[a, b], |index, place| {
        let before = place.probe(0, index)?;
        let (time, lost) = watched(|| {
            if index == 0 { write(&buffer, &lines, place) } else { read(&buffer, chain, place) }
        });
        let time = time?;
        Ok((before.zip(place.probe(1, index)?), time, lost))
    })?;
    let [(Some((before, after)), _, lost_a), (_, time, lost_b)] = sides[..] else {
        return Err(CalibrateError::Ended);
    };
    let distance = Distance::of(before);
    Ok(PairSample {
        round_trip: before,
        line: each(time, LINES * TURNS),
        distance,
        disturbed: lost_a || lost_b || distance != Distance::of(after),
    })
}

/// Lines that no prefetcher has, and a way through them.
fn lines() -> Result<(Buffer, Vec<u64>, Chain), CalibrateError> {
    let buffer = Buffer::new(LINES * APART as usize * LINE, Advice::Huge)?;
    let mut rng = Rng::new(3);
    let line = |group| group * APART + rng.below(APART as usize) as u64;
    let lines: Vec<u64> = (0..LINES as u64).map(line).collect();
    let chain = Chain::through(&buffer, &lines, &mut rng);
    Ok((buffer, lines, chain))
}

/// Makes the lines this CPU's own, over and over.
fn write(buffer: &Buffer, lines: &[u64], place: &Rendezvous) -> Result<Duration, CalibrateError> {
    for _ in 0..TURNS {
        for &line in lines {
            let word = buffer.line(line as usize);
            word.store(word.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        place.meet()?;
        place.meet()?;
    }
    Ok(Duration::ZERO)
}

/// Reads them one after the other.
fn read(buffer: &Buffer, mut chain: Chain, place: &Rendezvous) -> Result<Duration, CalibrateError> {
    let mut sum = Duration::ZERO;
    for _ in 0..TURNS {
        place.meet()?;
        let start = Instant::now();
        chain.walk(buffer, LINES);
        sum += start.elapsed();
        place.meet()?;
    }
    Ok(sum)
}

/// Samples waking a thread on the CPU `to` by one on the CPU `from`: half of there and back.
///
/// # Errors
///
/// Those of [`on`].
pub fn wake(
    quantity: Quantity,
    from: usize,
    to: usize,
    ledger: &mut Ledger,
) -> Result<(), CalibrateError> {
    let found = on(&[from], |_, _| wakes(to))?;
    for value in found {
        // Both give their CPUs up all the time: there is no telling who lost it otherwise.
        ledger.add(quantity, Sample { value, lost_cpu: false });
    }
    Ok(())
}

/// Ns of a wake-up: the median, since a few wait for another thread that wants the CPU.
fn wakes(to: usize) -> Result<f64, CalibrateError> {
    let turn = AtomicU64::new(0);
    let wait = |until: u64| {
        while turn.load(Ordering::Acquire) != until {
            thread::park();
        }
    };
    let (turn, wait, here) = (&turn, &wait, thread::current());
    thread::scope(|scope| {
        let (ready, pinned) = mpsc::channel();
        let failed = |source| CalibrateError::Thread { cpu: to, source };
        let other = Builder::new().spawn_scoped(scope, move || {
            let result = machine::pin(to);
            let stay = result.is_ok();
            if ready.send(result).is_err() || !stay {
                return;
            }
            for trip in 0..WAKES {
                wait(2 * trip + 1);
                turn.store(2 * trip + 2, Ordering::Release);
                here.unpark();
            }
        });
        let other = other.map_err(failed)?;
        pinned.recv().map_err(|_| CalibrateError::Ended)?.map_err(failed)?;
        let trip = |trip| {
            let start = Instant::now();
            turn.store(2 * trip + 1, Ordering::Release);
            other.thread().unpark();
            wait(2 * trip + 2);
            each(start.elapsed(), 2)
        };
        let mut trips: Vec<f64> = (0..WAKES).map(trip).collect();
        zonal_bench::stats::median(&mut trips).ok_or(CalibrateError::Ended)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpus() -> Vec<usize> {
        machine::cpus().expect("affinity")
    }

    #[test]
    fn a_thread_that_fails_tells_why_and_holds_no_other_up() {
        let cpus = cpus();
        let Some(&[a, b]) = cpus.first_chunk() else { return };
        let failed = on(&[a, b], |index, place| {
            if index == 1 {
                return Err(CalibrateError::Refused("planted".into()));
            }
            Ok(place.meet()?)
        });
        assert!(matches!(failed, Err(CalibrateError::Refused(_))), "{failed:?}");
        let nowhere = on(&[a, usize::MAX], |_, place| Ok(place.meet()?));
        assert!(matches!(nowhere, Err(CalibrateError::Thread { cpu: usize::MAX, .. })));
        let panicked = on(&[a, b], |index, place| {
            assert_ne!(index, 1, "planted");
            Ok(place.meet()?)
        });
        assert!(matches!(panicked, Err(CalibrateError::Ended)), "{panicked:?}");
    }

    /// A line goes there and back in less between two CPUs of one core, and of some others, in ns.
    const ONE_CORE: f64 = 70.0;

    /// What a line costs that no other CPU writes.
    fn own(cpu: usize) -> f64 {
        let times = on(&[cpu], |_, place| {
            let (buffer, _, chain) = lines()?;
            read(&buffer, chain, place)
        });
        each(times.expect("allowed")[0], LINES * TURNS)
    }

    #[test]
    fn a_line_of_another_core_costs_more_than_one_of_its_own() {
        let cpus = cpus();
        let Some(&[a, b]) = cpus.first_chunk() else { return };
        let samples: Vec<_> = (0..5).map(|_| pair(a, b).expect("both allowed")).collect();
        // Of two CPUs of one core a line is in the caches of both. A hypervisor may move them there and away again.
        let is_apart = |it: &&PairSample| it.round_trip > ONE_CORE && !it.disturbed;
        let mut apart = samples.iter().filter(is_apart);
        assert!(apart.all(|it| it.line > 5.0), "{samples:?}");
        let own = (0..5).map(|_| own(a)).fold(f64::INFINITY, f64::min);
        assert!(samples.iter().all(|it| it.line > own / 2.0), "{own} ns for {samples:?}");
    }

    #[test]
    fn waking_works_on_one_cpu_and_on_two() {
        let cpus = cpus();
        let mut ledger = Ledger::default();
        wake(Quantity::WakeHere, cpus[0], cpus[0], &mut ledger).expect("allowed");
        wake(Quantity::WakeAcross, cpus[0], cpus[cpus.len() - 1], &mut ledger).expect("allowed");
        assert_eq!(ledger.figures().filter(|(_, figure)| figure.min > 100.0).count(), 2);
        assert!(wake(Quantity::WakeAcross, cpus[0], usize::MAX, &mut ledger).is_err());
    }
}

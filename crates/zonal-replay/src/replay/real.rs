//! A script on real threads.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU32, AtomicU64};
use std::thread;
use std::time::Instant;

use zonal::Pfn;
use zonal::policy::Sound;
use zonal_host::Arena;
use zonal_host::arena::Handle;
use zonal_sim::replay::{Action, Script, Steps, insist};

use super::Row;
use crate::error::ReplayError;
use zonal_bench::machine;
use zonal_bench::rendezvous::{AbortOnPanic, Rendezvous};
use zonal_bench::subject::FRAME_BYTES;
use zonal_bench::subjects::zonal::{lock_work_of, zones};
use zonal_bench::team::{self, TeamError};
use zonal_cli::error::LabError;

/// What a block's word says before it is allocated, and if it cannot be.
const AWAITED: u64 = 0;
const REFUSED: u64 = 1;
/// Added to the pfn of a block that is there, or was.
const THERE: u64 = 2;

/// A thread's place in the trace, on a line of its own.
#[repr(align(128))]
struct Place(AtomicU32);

/// What the threads share.
struct Stage<'a> {
    script: &'a Script,
    blocks: Vec<AtomicU64>,
    places: Vec<Place>,
    /// Where they begin together, and learn that one of them panicked.
    place: Rendezvous,
}

/// Replays `script` on an arena of `memory` bytes with the preset `S`, on `threads` threads.
///
/// # Errors
///
/// [`ReplayError`] if there is too little memory, or the arena or a thread cannot be had.
pub(super) fn run<S: Sound>(
    script: &Script,
    memory: usize,
    threads: usize,
) -> Result<Row, ReplayError> {
    let folded = script.folded(threads);
    let arena = Arena::builder().preset::<S>().reserve(memory).owners(folded.len() as u32);
    let arena = arena.open().map_err(|error| LabError::Arena(Box::new(error)))?;
    let (given, needed) = (arena.len() as u64, script.peak_frames() * FRAME_BYTES as u64);
    if needed > given {
        return Err(ReplayError::TraceNeedsMore { given, needed });
    }
    let gave = |why: String| LabError::Gave { who: format!("the replay on {}", S::NAME), why };
    let cpus = machine::cpus()
        .map_err(|source| LabError::Machine { what: "learn the CPUs there are", source })?;
    let stage = Stage {
        script,
        blocks: (0..script.blocks()).map(|_| AtomicU64::new(AWAITED)).collect(),
        places: folded.iter().map(|_| Place(AtomicU32::new(0))).collect(),
        place: Rendezvous::new(folded.len()),
    };
    // All there before any thread starts: no thread waits for one that does not come.
    let handles = folded.iter().map(|_| arena.handle()).collect::<Result<Vec<_>, _>>();
    let handles = handles.map_err(|error| gave(error.to_string()))?;
    let parts = folded.iter().zip(handles).collect();
    let runs = team::run(parts, &cpus, |own, (steps, handle)| stage.run(own, steps, handle));
    let runs = runs.map_err(|error| match error {
        TeamError::Start(source) => LabError::Machine { what: "start a thread", source },
        TeamError::Panicked => gave(error.to_string()),
    })?;
    let start = runs.iter().map(|run| run.start).min();
    let end = runs.iter().map(|run| run.end).max();
    let seconds = start.zip(end).map_or(0.0, |(start, end)| (end - start).as_secs_f64());
    let (operations, busy) = (script.steps() as u64, folded.len().min(cpus.len()));
    let in_zone = |from: u64, frames: u64| {
        let inside = |word: &&AtomicU64| {
            let word = word.load(Relaxed);
            word >= THERE && (from..from + frames).contains(&(word - THERE))
        };
        stage.blocks.iter().filter(inside).count() as u64
    };
    Ok(Row {
        preset: S::NAME.into(),
        machine: None,
        threads: folded.len() as u32,
        operations,
        seconds,
        ns_per_op: Some(seconds * 1e9 * busy as f64 / operations.max(1) as f64),
        cycles_per_op: None,
        failures: runs.iter().map(|run| run.failures).sum(),
        peak_frames: script.peak_frames(),
        hold_max: lock_work_of(&arena).hold_max,
        zone_lock_spin: None,
        zones: zones(&arena).map(|zone| in_zone(zone.start.get(), zone.spanned)).collect(),
    })
}

/// What a thread did.
struct Run {
    start: Instant,
    end: Instant,
    failures: u64,
}

impl Stage<'_> {
    fn run<S: Sound>(&self, own: usize, steps: &Steps<'_>, mut handle: Handle<'_, S>) -> Run {
        let _guard = AbortOnPanic(&self.place);
        // If one has panicked, what the others do counts for nothing.
        let _ = self.place.meet();
        let start = Instant::now();
        let mut failures = 0;
        for step in steps.iter() {
            // Release: with the acquire in `others_are_before`.
            self.places[own].0.store(step.at, Release);
            let block = &self.blocks[step.block.index()];
            match step.action {
                Action::Alloc(request) => {
                    let are_others_before = || self.others_are_before(step.at);
                    let got =
                        insist(|| handle.alloc_raw(&request), are_others_before, thread::yield_now);
                    failures += u64::from(got.is_err());
                    // Release: the block is the freeing thread's from here on.
                    block.store(got.map_or(REFUSED, |pfn| pfn.get() + THERE), Release);
                }
                Action::Free => {
                    let word = self.await_block(block);
                    if word >= THERE {
                        let order = self.script.order_of(step.block);
                        // SAFETY: allocated for this block with this order; a script frees a
                        // block once, and no thread looks into it.
                        let freed = unsafe { handle.free_raw(Pfn::new(word - THERE), order) };
                        debug_assert!(freed.is_ok(), "{freed:?}");
                    }
                }
            }
        }
        self.places[own].0.store(u32::MAX, Release);
        Run { start, end: Instant::now(), failures }
    }

    /// Whether anything that comes before a place in the trace is still to be done, and will be. A
    /// place that is out of date is an earlier one, and is looked at again. Acquire: what is done has
    /// been done before what follows.
    fn others_are_before(&self, at: u32) -> bool {
        !self.place.is_aborted() && self.places.iter().any(|place| place.0.load(Acquire) < at)
    }

    /// The word of a block when it is not awaited any more; as if it were refused if the thread that
    /// allocates it may have panicked. Acquire: with the release above.
    fn await_block(&self, block: &AtomicU64) -> u64 {
        let mut looks = 0u32;
        loop {
            match block.load(Acquire) {
                AWAITED if looks < 128 => core::hint::spin_loop(),
                AWAITED if self.place.is_aborted() => return REFUSED,
                AWAITED => thread::yield_now(),
                word => return word,
            }
            looks = looks.saturating_add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of two threads the first may have panicked before it allocated what the other is to free.
    #[test]
    fn none_waits_for_a_thread_that_panicked() {
        let mut script = Script::new();
        let block = script.alloc(0, zonal::Request::frame());
        script.free(1, block);
        let stage = Stage {
            script: &script,
            blocks: vec![AtomicU64::new(AWAITED)],
            places: [0, 1].map(|at| Place(AtomicU32::new(at))).into(),
            place: Rendezvous::new(2),
        };
        assert!(stage.others_are_before(1));
        let first = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _guard = AbortOnPanic(&stage.place);
            panic!("planted");
        }));
        assert!(first.is_err());
        assert_eq!(stage.await_block(&stage.blocks[0]), REFUSED);
        assert!(!stage.others_are_before(1));
        stage.blocks[0].store(THERE + 7, Relaxed);
        assert_eq!(stage.await_block(&stage.blocks[0]), THERE + 7, "it had allocated it");
    }
}

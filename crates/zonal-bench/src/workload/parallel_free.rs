//! `parallel-free`: most of memory, freed by all threads at once.
//!
//! After Lu (2018): a task maps most of the machine, touches it and exits; parts of the mapping
//! are freed by several threads. Here thread `i` of `n` has the `i`-th of `n` contiguous parts of
//! one mapping. The threads fill their parts in turns, [`STRETCH`] frames each, until
//! [`FILL_PERCENT`] % of memory is allocated; then, and only this is timed, each frees its own
//! part, in mapping order, one frame a call. Frames are not touched.
//!
//! Allocators without a fixed set of frames have no "most of memory": their threads hold 128 MiB
//! each, or a quarter of the memory together if that is less.
//!
//! ```
//! use zonal_bench::subject::Setup;
//! use zonal_bench::workload::parallel_free;
//!
//! let setup = Setup { memory: 4 << 30, threads: 2, touch: false, regions: None };
//! assert_eq!(parallel_free::part(1 << 20, &setup), 471_859);
//! assert_eq!(parallel_free::part(0, &setup), 32_768, "no fixed set of frames: 128 MiB");
//! ```

use std::time::Instant;

use super::TASK_FRAMES;
use super::turns::{Turns, meet_or_free};
use crate::case::ThreadRun;
use crate::figures::Figures;
use crate::loops::{Halt, settle};
use crate::machine::Usage;
use crate::rendezvous::Rendezvous;
use crate::subject::{FrameThread, Setup};

/// How much of memory is allocated, in percent.
pub const FILL_PERCENT: usize = 90;
/// Frames a thread faults in before it is another's turn: as many as Linux maps around a fault.
pub const STRETCH: usize = 16;

/// Frames of each thread's part, of `managed` frames in all (0: no fixed set).
#[must_use]
pub fn part(managed: usize, setup: &Setup) -> usize {
    match managed {
        0 => TASK_FRAMES.min(setup.frames() / 4 / setup.threads),
        managed => managed * FILL_PERCENT / 100 / setup.threads,
    }
}

/// A sample: always one repetition.
pub(crate) fn sample<T: FrameThread>(
    handle: &mut T,
    blocks: &mut [T::Block],
    turns: &Turns,
    (place, thread): (&Rendezvous, usize),
) -> Result<(ThreadRun, Figures), Halt> {
    turns.fill(handle, blocks, (place, thread), STRETCH)?;
    // SAFETY: filled above with single frames.
    unsafe { meet_or_free(place, handle, blocks) }?;
    let before = Usage::now();
    let start = Instant::now();
    for block in blocks.iter() {
        // SAFETY: filled above with single frames; each is freed once.
        unsafe { handle.free(*block, 0) };
        settle(handle);
    }
    let wall = start.elapsed();
    let lost_cpu = before.lost_cpu(&Usage::now(), wall);
    let run = ThreadRun { frames: blocks.len() as u64, start, wall, lost_cpu };
    Ok((run, Figures::default()))
}

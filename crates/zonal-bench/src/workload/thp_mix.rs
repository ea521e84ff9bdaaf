//! `thp-mix`: huge pages beside single frames, after memory was broken up.
//!
//! After Lu (2018), who ran 56 tasks with transparent huge pages beside 56 without:
//!
//! 1. a task allocates [`BREAK_PERMILLE`] of every 1000 frames singly and frees them in the order
//!    they came, as an exit does: an allocator that does not merge has few large blocks left;
//! 2. then threads with an even index run `page-fault1` as it is, and those with an odd index run
//!    it as with transparent huge pages: 128 MiB as [`HUGE_FAULTS`] order-9 faults, each of which
//!    takes 512 single frames if there is no block, then everything is freed in the same order.
//!
//! Step 2 runs for [`SLICE`] and is what is measured. The rates are each half's frames a second:
//! `order0_rate`, `order9_rate` (frames that came as order-9 blocks) and `fallback_rate` (frames
//! of the order-9 half that came singly). The source's scores are page faults counted likewise.
//! No page is moved here; presets that compact can only merge.
//!
//! ```
//! use zonal_bench::workload::thp_mix;
//!
//! // Thread 0 breaks 4 GiB up, the others have 128 MiB each.
//! assert_eq!(thp_mix::blocks(1 << 20, 0), 1_043_333);
//! assert_eq!(thp_mix::blocks(1 << 20, 1), 32_768);
//! ```

use core::time::Duration;
use std::time::Instant;

use super::{HUGE_ORDER, TASK_FRAMES};
use crate::case::ThreadRun;
use crate::figures::{Figure, Figures};
use crate::loops::{self, Halt, give_up, settle};
use crate::machine::Usage;
use crate::rendezvous::Rendezvous;
use crate::subject::FrameThread;

/// How much of memory step 1 takes, in thousandths: what it leaves whole does not serve the
/// order-9 half in memory of up to 24 GiB.
pub const BREAK_PERMILLE: usize = 995;
/// Frames in an order-9 block.
const HUGE_FRAMES: usize = 1 << HUGE_ORDER;
/// Order-9 faults in a repetition of the order-9 half.
pub const HUGE_FAULTS: usize = TASK_FRAMES / HUGE_FRAMES;
/// How long the two halves run.
pub const SLICE: Duration = Duration::from_millis(100);
/// Repetitions after which the others look at the clock too: thread 0 may wait for an unfair lock
/// for seconds. With huge pages a repetition may be so short that a look each time would show.
const REPETITIONS_A_LOOK: u32 = 32;

/// Slots that a thread works with: thread 0 breaks memory up.
#[must_use]
pub fn blocks(managed: usize, thread: usize) -> usize {
    let most = managed * BREAK_PERMILLE / 1000;
    if thread == 0 { most.max(TASK_FRAMES) } else { TASK_FRAMES }
}

/// Step 1.
fn break_up<T: FrameThread>(
    handle: &mut T,
    blocks: &mut [T::Block],
    managed: usize,
) -> Result<(), Halt> {
    let blocks = &mut blocks[..managed * BREAK_PERMILLE / 1000];
    // SAFETY: nothing is touched.
    unsafe { loops::page_fault::<_, false>(handle, blocks) }.map(|_| ())
}

/// Frames of the order-9 half, by how they came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Got {
    huge: usize,
    single: usize,
}

/// A repetition of the order-9 half. Fault `i` has `blocks[i × 512..]`: its first slot for an
/// order-9 block, all of them for single frames. It ends early where single frames were taken and
/// the slice is `over`: who looks for a block in vain may take a second a fault.
fn huge_faults<T: FrameThread>(
    handle: &mut T,
    blocks: &mut [T::Block],
    over: impl Fn() -> bool,
) -> Result<Got, Halt> {
    let mut is_huge = [false; HUGE_FAULTS];
    let mut served = 0;
    for (at, map) in blocks.chunks_exact_mut(HUGE_FRAMES).enumerate() {
        served = (at + 1) * HUGE_FRAMES;
        if let Some(block) = handle.alloc(HUGE_ORDER) {
            (map[0], is_huge[at]) = (block, true);
            settle(handle);
            continue;
        }
        settle(handle);
        for slot in 0..HUGE_FRAMES {
            let Some(block) = handle.alloc(0) else {
                // SAFETY: this fault's slots up to here were filled with single frames.
                unsafe { give_up(handle, map[..slot].iter().copied(), 0) };
                // SAFETY: the faults before this one were served as `is_huge` says.
                unsafe { unmap(handle, &blocks[..at * HUGE_FRAMES], &is_huge) };
                return Err(Halt::OutOfFrames { order: 0, held: at * HUGE_FRAMES + slot });
            };
            map[slot] = block;
            settle(handle);
        }
        if over() {
            break;
        }
    }
    // SAFETY: every fault up to here was served as `is_huge` says.
    unsafe { unmap(handle, &blocks[..served], &is_huge) };
    let huge = is_huge.iter().filter(|huge| **huge).count() * HUGE_FRAMES;
    Ok(Got { huge, single: served - huge })
}

/// Frees what [`huge_faults`] mapped.
///
/// # Safety
///
/// Each 512 slots of `blocks` hold one order-9 block or 512 single frames, as `is_huge` says.
unsafe fn unmap<T: FrameThread>(handle: &mut T, blocks: &[T::Block], is_huge: &[bool]) {
    for (map, huge) in blocks.chunks_exact(HUGE_FRAMES).zip(is_huge) {
        if *huge {
            // SAFETY: by contract an order-9 block, freed once.
            unsafe { handle.free(map[0], HUGE_ORDER) };
            settle(handle);
            continue;
        }
        for block in map {
            // SAFETY: by contract a single frame, freed once.
            unsafe { handle.free(*block, 0) };
            settle(handle);
        }
    }
}

/// A sample: one breaking up, one slice.
pub(crate) fn sample<T: FrameThread>(
    handle: &mut T,
    blocks: &mut [T::Block],
    (place, thread): (&Rendezvous, usize),
    managed: usize,
) -> Result<(ThreadRun, Figures), Halt> {
    if thread == 0 {
        break_up(handle, blocks, managed)?;
    }
    let blocks = &mut blocks[..TASK_FRAMES];
    place.meet()?;
    let before = Usage::now();
    let start = Instant::now();
    let mut got = Got::default();
    for repetition in 1_u32.. {
        if thread.is_multiple_of(2) {
            // SAFETY: nothing is touched.
            unsafe { loops::page_fault::<_, false>(handle, blocks) }?;
            got.single += TASK_FRAMES;
        } else {
            let more = huge_faults(handle, blocks, || place.is_stopped())?;
            got = Got { huge: got.huge + more.huge, single: got.single + more.single };
        }
        let looks = thread == 0 || repetition.is_multiple_of(REPETITIONS_A_LOOK);
        if looks && start.elapsed() >= SLICE {
            place.stop();
        }
        if place.is_stopped() {
            break;
        }
        if place.is_aborted() {
            return Err(crate::rendezvous::Aborted.into());
        }
    }
    let wall = start.elapsed();
    let lost_cpu = before.lost_cpu(&Usage::now(), wall);
    let rate = |frames: usize| frames as f64 / wall.as_secs_f64().max(1e-9);
    let figures = if thread.is_multiple_of(2) {
        Figures::of(Figure::Order0Rate, rate(got.single))
    } else {
        let huge = Figures::of(Figure::Order9Rate, rate(got.huge));
        huge.with(Figure::FallbackRate, rate(got.single))
    };
    let frames = (got.huge + got.single) as u64;
    Ok((ThreadRun { frames, start, wall, lost_cpu }, figures))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subject::{Setup, Subject};
    use crate::subjects::baseline::{FreeList, Null};

    fn setup(frames: usize) -> Setup {
        Setup { memory: frames << 12, threads: 1, touch: false, regions: None }
    }

    #[test]
    fn a_fault_without_a_block_takes_single_frames() {
        // No orders at all.
        let list = FreeList::open(&setup(TASK_FRAMES)).expect("opens");
        let mut thread = list.thread(0).expect("registers");
        let mut blocks = vec![0; TASK_FRAMES];
        for _ in 0..2 {
            let got = huge_faults(&mut thread, &mut blocks, || false).expect("just enough");
            assert_eq!(got, Got { huge: 0, single: TASK_FRAMES });
        }
        // Too late already: one fault, and all of it is given back.
        let got = huge_faults(&mut thread, &mut blocks, || true).expect("enough");
        assert_eq!(got, Got { huge: 0, single: HUGE_FRAMES });
        assert_eq!(thread.alloc_bulk(&mut vec![0; TASK_FRAMES + 1]), TASK_FRAMES);
        // Every order.
        let null = Null::open(&setup(0)).expect("opens");
        let got = huge_faults(&mut null.thread(0).expect("registers"), &mut blocks, || true);
        assert_eq!(got.expect("never runs out"), Got { huge: TASK_FRAMES, single: 0 });
    }

    #[test]
    fn running_out_gives_everything_back() {
        let list = FreeList::open(&setup(700)).expect("opens");
        let mut thread = list.thread(0).expect("registers");
        let halt = huge_faults(&mut thread, &mut vec![0; TASK_FRAMES], || false);
        assert!(matches!(halt, Err(Halt::OutOfFrames { order: 0, held: 700 })), "{halt:?}");
        assert_eq!(thread.alloc_bulk(&mut [0; 1000]), 700);
    }
}

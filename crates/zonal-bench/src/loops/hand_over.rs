//! `producer-consumer`: one thread allocates, another frees.

use rtrb::{Consumer, Producer};

use super::{Halt, give_up, settle};
use crate::rendezvous::{Aborted, Rendezvous};
use crate::subject::FrameThread;
use crate::workload::TASK_FRAMES;

/// Frames handed over the ring at once: enough that the ring is not what is measured.
const HAND_OVER: usize = 32;

/// The allocating half of `producer-consumer`, one repetition.
///
/// # Errors
///
/// [`Halt::OutOfFrames`], or [`Halt::Aborted`] if the other half gave up.
pub fn produce<T: FrameThread>(
    thread: &mut T,
    ring: &mut Producer<T::Block>,
    place: &Rendezvous,
) -> Result<(), Halt> {
    if place.is_aborted() {
        // The other half only empties the ring by now, so waiting for room would not end this.
        return Err(Aborted.into());
    }
    let mut sent = 0;
    while sent < TASK_FRAMES {
        let Ok(mut chunk) = ring.write_chunk(HAND_OVER) else {
            place.spin_until(|| ring.slots() >= HAND_OVER)?;
            continue;
        };
        let (first, second) = chunk.as_mut_slices();
        for (filled, slot) in first.iter_mut().chain(second.iter_mut()).enumerate() {
            let Some(block) = thread.alloc(0) else {
                // Not handed over, and so the other half does not see them.
                let kept = first.iter().chain(second.iter()).take(filled).copied();
                // SAFETY: these slots were filled by this loop with single frames.
                unsafe { give_up(thread, kept, 0) };
                return Err(Halt::OutOfFrames { order: 0, held: sent + filled });
            };
            *slot = block;
            settle(thread);
        }
        chunk.commit_all();
        sent += HAND_OVER;
    }
    Ok(())
}

/// The freeing half of `producer-consumer`, one repetition.
///
/// # Errors
///
/// [`Halt::Aborted`] if the other half gave up.
pub fn consume<T: FrameThread>(
    thread: &mut T,
    ring: &mut Consumer<T::Block>,
    place: &Rendezvous,
) -> Result<(), Halt> {
    let mut got = 0;
    while got < TASK_FRAMES {
        let Ok(chunk) = ring.read_chunk(HAND_OVER) else {
            place.spin_until(|| ring.slots() >= HAND_OVER)?;
            continue;
        };
        let (first, second) = chunk.as_slices();
        for block in first.iter().chain(second) {
            // SAFETY: the producer allocated it with order 0 from the same subject and passed it
            // on; it is freed once, here.
            unsafe { thread.free(*block, 0) };
            settle(thread);
        }
        chunk.commit_all();
        got += HAND_OVER;
    }
    Ok(())
}

/// Frees what is in the ring after the sample was given up, until the producer has gone.
#[cold]
pub(crate) fn empty<T: FrameThread>(thread: &mut T, ring: &mut Consumer<T::Block>) {
    loop {
        // Before the last look: what comes after it is not handed over any more.
        let is_last = ring.is_abandoned();
        while let Ok(block) = ring.pop() {
            // SAFETY: as in `consume`: allocated with order 0, passed on, and freed once, here.
            unsafe { thread.free(block, 0) };
        }
        if is_last {
            return;
        }
        std::thread::yield_now();
    }
}

//! Threads that allocate in turns, as page faults of several CPUs do.
//!
//! Left to run freely, a thread that is kept waiting for a moment leaves a long stretch of
//! memory to the others, and no two samples are alike. In turns, what each thread gets depends on
//! the allocator alone.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::loops::{Halt, give_up, settle};
use crate::rendezvous::Rendezvous;
use crate::subject::FrameThread;

/// Whose turn it is. For one filling only.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Turns(AtomicUsize);

impl Turns {
    /// Fills `blocks` with single frames, `stretch` of them each time it is the turn of `thread`.
    /// All threads of `place` call this, with as many blocks each.
    ///
    /// On failure the frames are freed again.
    pub(crate) fn fill<T: FrameThread>(
        &self,
        handle: &mut T,
        blocks: &mut [T::Block],
        (place, thread): (&Rendezvous, usize),
        stretch: usize,
    ) -> Result<(), Halt> {
        let mut filled = 0;
        let mut turn = thread;
        while filled < blocks.len() {
            let end = blocks.len().min(filled + stretch);
            let halt = match place.spin_until(|| self.0.load(Ordering::Acquire) == turn) {
                Ok(()) => loop {
                    if filled == end {
                        break None;
                    }
                    let Some(block) = handle.alloc(0) else {
                        break Some(Halt::OutOfFrames { order: 0, held: filled });
                    };
                    settle(handle);
                    blocks[filled] = block;
                    filled += 1;
                },
                Err(aborted) => Some(aborted.into()),
            };
            if let Some(halt) = halt {
                // Those who wait for their turn are told before frames are given back.
                place.abort();
                // SAFETY: allocated above with order 0, and not freed.
                unsafe { give_up(handle, blocks[..filled].iter().copied(), 0) };
                return Err(halt);
            }
            self.0.store(turn + 1, Ordering::Release);
            turn += place.parties();
        }
        Ok(())
    }
}

/// Waits until all threads are here; if one of them will not come, frees what this one has.
///
/// # Safety
///
/// `blocks` are allocated with order 0, and not freed.
pub(super) unsafe fn meet_or_free<T: FrameThread>(
    place: &Rendezvous,
    handle: &mut T,
    blocks: &[T::Block],
) -> Result<(), Halt> {
    place.meet().map_err(|aborted| {
        // SAFETY: the caller promises it.
        unsafe { give_up(handle, blocks.iter().copied(), 0) };
        aborted.into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subject::{Setup, Subject};
    use crate::subjects::baseline::FreeList;

    #[test]
    fn frames_come_in_turns() {
        let setup = Setup { memory: 64 << 12, threads: 2, touch: false, regions: None };
        let list = FreeList::open(&setup).expect("opens");
        let (place, turns) = (Rendezvous::new(2), Turns::default());
        let fill = |thread| {
            let mut handle = list.thread(thread).expect("registers");
            let mut blocks = vec![0; 8];
            turns.fill(&mut handle, &mut blocks, (&place, thread), 2).map(|()| blocks)
        };
        let (first, second) = std::thread::scope(|scope| {
            let second = scope.spawn(|| fill(1));
            (fill(0), second.join().expect("no panic"))
        });
        assert_eq!(first.expect("enough"), [0, 1, 4, 5, 8, 9, 12, 13]);
        assert_eq!(second.expect("enough"), [2, 3, 6, 7, 10, 11, 14, 15]);
    }

    #[test]
    fn when_one_runs_out_all_give_back() {
        let setup = Setup { memory: 10 << 12, threads: 2, touch: false, regions: None };
        let list = FreeList::open(&setup).expect("opens");
        let (place, turns) = (Rendezvous::new(2), Turns::default());
        let fill = |thread| {
            let mut handle = list.thread(thread).expect("registers");
            turns.fill(&mut handle, &mut [0; 8], (&place, thread), 1)
        };
        let (first, second) = std::thread::scope(|scope| {
            let second = scope.spawn(|| fill(1));
            (fill(0), second.join().expect("no panic"))
        });
        assert!(matches!(first, Err(Halt::OutOfFrames { order: 0, held: 5 })), "{first:?}");
        assert!(matches!(second, Err(Halt::Aborted(_))), "{second:?}");
        let mut handle = list.thread(0).expect("registers");
        assert_eq!(handle.alloc_bulk(&mut [0; 16]), 10);
    }
}

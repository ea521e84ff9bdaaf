//! Pages that go because other users of the frames need some.
//!
//! An allocator asks for frames in the middle of a request, on the thread of the request: that may be one
//! that is inside the cache just now. So reclaim waits for nothing that such a thread may have:
//!
//! | what the thread may be in | why reclaim does not wait for it |
//! |---|---|
//! | a file's gate, a page that it writes or fills, a file's list of dirty pages | only clean pages at rest go; no store is called |
//! | the lock of a list, or of a batch that waits to be listed | it is tried, a bounded number of times: some two seconds, as another thread that has it may be waiting for a CPU |
//! | the lock of the free slots, of a chain of the index | no thread asks for memory with these held, the heap's included |
//!
//! Nor does it ask the heap itself. `tests/reclaim.rs` and `tests/shuttle_reclaim.rs` come back to it from every call that
//! the cache makes; there a callback that lowers the bound instead is found to be a deadlock.

use crate::cache::PageCache;
use crate::frames::Frames;
use crate::host::Host;
use crate::inner::{Core, Met, Setup};
use crate::scan::Patience;
use crate::table::{Claimed, Token};
use crate::velocity::By;
use core::array;
use zonal::Pfn;

/// Pages that go in one hold of a list's lock: what Linux takes off a list at once (`SWAP_CLUSTER_MAX`).
pub(crate) const CLUSTER: usize = 32;

/// Clean pages that are off the policy and out of the index. Dropped, by a panic of the policy too, their frames
/// go back.
struct Going<'a, S: Setup> {
    core: &'a Core<S>,
    list: [Option<Claimed>; CLUSTER],
    count: usize,
}

impl<S: Setup> Going<'_, S> {
    fn push(&mut self, claimed: Claimed) {
        self.list[self.count] = Some(claimed);
        self.count += 1;
    }
}

impl<S: Setup> Drop for Going<'_, S> {
    fn drop(&mut self) {
        let core = self.core;
        let mut frames = [Pfn::new(0); CLUSTER];
        for (frame, claimed) in frames.iter_mut().zip(self.list.iter().flatten()) {
            *frame = core.table.frame_of(claimed);
        }
        let frames = &frames[..self.count];
        if frames.is_empty() {
            return;
        }
        // SAFETY: each is the frame of a slot that this thread has alone, and whose frame is forgotten
        // below; references into it are made with a token of the slot only.
        unsafe { core.frames.free(frames) };
        core.counters.reclaimed.add(frames.len() as u64);
        core.counters.freed.add(frames.len() as u64);
        core.put_back(self.list.iter_mut().filter_map(Option::take));
    }
}

impl<S: Setup> Core<S> {
    /// Has up to `most` clean pages go, and gives their frames back. How many.
    pub(crate) fn reclaim(&self, most: usize) -> usize {
        let start = self.host.now();
        let mut met = Met::by(By::Direct);
        let count = self.clusters(most, Patience::Tries, &mut met);
        if count < most && met.dirty[0].is_some() {
            // As in the source, who reclaims directly writes nothing: the thread that writes back is woken.
            self.host.nudge();
        }
        self.counters.direct.add(1);
        self.counters.direct_nanos.add(self.host.now().saturating_sub(start));
        count
    }

    /// The same of a zone, for a thread that is inside nothing: it waits for locks and, where the host has no
    /// thread that writes back, has dirty pages written.
    pub(crate) fn reclaim_zone(&self, zone: usize, most: usize) -> usize {
        let mut met = Met::by(By::Background { zone });
        let count = self.clusters(most, Patience::Waits, &mut met);
        if count == most || met.dirty[0].is_none() || self.host.nudge() {
            return count;
        }
        // Of any file whose store takes them.
        if self.clean_any(met.dirty) {
            let mut met = Met::by(By::Background { zone });
            return count + self.clusters(most - count, Patience::Waits, &mut met);
        }
        count
    }

    /// Has up to `most` clean pages go, some at a time.
    fn clusters(&self, most: usize, patience: Patience, met: &mut Met) -> usize {
        let mut count = 0;
        while count < most {
            let mut going = Going { core: self, list: array::from_fn(|_| None), count: 0 };
            let some = CLUSTER.min(most - count);
            let went = self.scan(some, patience, met, &mut |claimed| going.push(claimed));
            for claimed in going.list.iter().flatten() {
                // An old entry of the slot in a batch of another CPU may have had it listed after it was taken from this
                // one's batch, whose lock is not held any more.
                self.try_unlist(claimed.id());
            }
            drop(going);
            count += went;
            if went < some {
                break;
            }
        }
        count
    }
}

impl<S: Setup> PageCache<S> {
    /// Has up to `pages` clean pages go, those first that the policy would have go, and gives their frames
    /// back. How many. The bound stays as it is. For a callback of an allocator that is short of frames: it
    /// waits for no store, no other thread and no lock that the calling thread may have, and so may be
    /// called at any moment, from a call of the cache to its host, store, frames or policy too.
    ///
    /// O(pages), and O(cache) where few are clean.
    #[expect(
        clippy::must_use_candidate,
        reason = "the pages are gone whether it is looked at or not"
    )]
    pub fn reclaim(&self, pages: usize) -> usize {
        self.core().reclaim(pages)
    }

    /// The same for pages of one zone of the [frames](crate::frames::Frames::zone_of), for a thread that is inside of nothing: it
    /// waits for locks and, where the host has no [writer](Host::nudge), has dirty pages written by a
    /// [job](Host::defer), for which it waits some seconds at most. How many went.
    #[expect(
        clippy::must_use_candidate,
        reason = "the pages are gone whether it is looked at or not"
    )]
    pub fn reclaim_zone(&self, zone: usize, pages: usize) -> usize {
        self.core().reclaim_zone(zone, pages)
    }
}

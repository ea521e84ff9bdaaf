//! How a list of single frames is freed, and how often the CPU's cache is entered for it. With
//! interrupts off inside a slot, an entry is a toggle: off and on again.
//!
//! - Source: Linux 3.16 to 4.14 ([`OneByOne`]); Gorman 2017, patch 1, in Linux 4.15
//!   ([`PrepareCommit`]); zonal's own ([`Runs`]).
//! - Mechanism of the second: two passes. *Prepare* checks every frame and marks it cached; one
//!   that fails is left out and reported. *Commit* puts all of a zone into its cache under one
//!   entry, then those of the next zone. A list is cut into chunks of [`CHUNK`] frames, because
//!   no other CPU comes into the cache, and no interrupt to the CPU, during a commit (I-7).
//! - State: marks in the state bytes. Between the passes a frame is cached and in no cache, and
//!   belongs to the caller that is freeing the list, like one that a drain has in its hands: a
//!   second free is refused, no request sees it, and a scanner counts it among those that a drain
//!   may bring back. What list it goes on is decided inside the slot: a pageblock isolated and
//!   drained before that gets its frames on its own lists.
//! - If the slot is busy, or no cache takes a frame, the mark is taken back and the frame goes
//!   to the buddy lists.
//! - Conflicts: none. An isolation or a range that meets a prepared frame is told "busy", as by
//!   a frame in a cache that is being filled.
//! - Counters: `bulk_frames` and `bulk_entries` of [`CpuEvents`](crate::CpuEvents), in `vmstat`
//!   `zonal_bulk_free_frames` and `zonal_bulk_free_entries`: their quotient is toggles a frame.
//! - Tests: `bulk_free.rs`, `loom_bulk_free.rs` (and canaries that undo too little or too much).
//!
//! ```
//! use zonal::policy::{Policy, bulk_free::{CHUNK, OneByOne, PrepareCommit, Runs}};
//! fn frees<S: Policy<BulkFree = F>, F>() {}
//! frees::<zonal::preset::Linux413, OneByOne>();
//! frees::<zonal::preset::Linux416, PrepareCommit>();
//! frees::<zonal::preset::Zonal, Runs>();
//! assert_eq!(CHUNK, 64, "a bit each in a word");
//! ```

/// Frames that are prepared before they are committed. Linux got a bound of 32 two months after
/// the patch, when lists of 2048 pages kept interrupts off for up to 250 ms.
pub const CHUNK: usize = u64::BITS as usize;

/// A policy for lists of frames.
pub trait BulkFree: Send + Sync + 'static {
    /// Frees every frame of the list that may be freed, and reports the others.
    fn free(list: &mut impl Listed);
}

/// A list that is being freed, and the ways to free a frame of it. Made by the allocator.
///
/// A set of frames is a mask: bit n is the frame at `from + n`. A frame that is prepared and
/// neither committed nor taken back is lost. If a sink panics in a commit, what was prepared for it is
/// allocated again.
#[expect(clippy::len_without_is_empty, reason = "no caller asks")]
pub trait Listed {
    /// How many frames it has.
    fn len(&self) -> usize;
    /// Frees the frame at `at` by itself, or reports it.
    fn one(&mut self, at: usize);
    /// Frees frames of one zone and migrate type from `at` on under one entry, up to the first
    /// that is of another or may not be freed. Returns how many.
    fn run(&mut self, at: usize) -> usize;
    /// Checks the [`CHUNK`] frames from `from` on, or as many as there are, marks them cached,
    /// and says which. The others are reported.
    fn prepare(&mut self, from: usize) -> u64;
    /// Puts those of `prepared` that are of the first one's zone into its cache, under one
    /// entry. `prepared` is not empty.
    fn commit(&mut self, from: usize, prepared: u64) -> Committed;
    /// Takes the mark of a prepared frame back: it is allocated as before. `false`, and no change,
    /// if it has no mark any more, because it was freed twice at the same instant.
    fn unprepare(&mut self, at: usize) -> bool;
    /// Frees the frame at `at` to the buddy lists, or reports it.
    fn direct(&mut self, at: usize);
}

/// What a commit left over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "what is left over is lost"]
pub struct Committed {
    /// Frames of other zones.
    pub rest: u64,
    /// Frames that no cache takes now: their pageblock is isolated or in the high-atomic reserve,
    /// or another CPU is in the slot.
    pub uncached: u64,
}

/// Each frame by itself, as if it were freed alone (Linux 3.16 to 4.14).
#[derive(Clone, Copy, Debug)]
pub struct OneByOne;

impl BulkFree for OneByOne {
    #[inline(always)]
    fn free(list: &mut impl Listed) {
        (0..list.len()).for_each(|at| list.one(at));
    }
}

/// Checked first, then kept zone by zone under one entry each: see the [module](self).
#[derive(Clone, Copy, Debug)]
pub struct PrepareCommit;

impl BulkFree for PrepareCommit {
    #[inline(always)]
    fn free(list: &mut impl Listed) {
        for from in (0..list.len()).step_by(CHUNK) {
            let (mut prepared, mut direct) = (list.prepare(from), 0);
            while prepared != 0 {
                let Committed { rest, uncached } = list.commit(from, prepared);
                for at in positions(from, uncached) {
                    direct |= u64::from(list.unprepare(at)) << (at - from);
                }
                prepared = rest;
            }
            // Last: where a sink panics no other frame is prepared.
            positions(from, direct).for_each(|at| list.direct(at));
        }
    }
}

/// The positions of a set.
pub(crate) fn positions(from: usize, mut set: u64) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        let bit = (set != 0).then(|| set.trailing_zeros())?;
        set &= set - 1;
        Some(from + bit as usize)
    })
}

/// Frames of one zone and migrate type that follow each other are checked and kept under one
/// entry, in one pass: nothing is marked outside the slot, so there is nothing to take back.
#[derive(Clone, Copy, Debug)]
pub struct Runs;

impl BulkFree for Runs {
    #[inline(always)]
    fn free(list: &mut impl Listed) {
        let mut at = 0;
        while at < list.len() {
            at += list.run(at);
            // The run ended at a frame of another zone or migrate type, or at one that may not
            // be freed.
            if at < list.len() {
                list.one(at);
                at += 1;
            }
        }
    }
}

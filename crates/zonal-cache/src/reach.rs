//! How far pages of a file reach: what is beyond is not looked for when the file becomes shorter.
//!
//! Who puts a page into the index says so first. Who makes the file shorter lowers it, and then looks for pages up to where it
//! was: what comes later says so anew. A load that began before may still put pages there, so as long as there is one it
//! stays where it was.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use zonal::platform::{AtomicWord, Platform};

/// The first index that no page in memory has reached.
pub(crate) struct Reach<P: Platform> {
    end: P::Word,
    /// Loads that have begun and are not over.
    loads: P::Word,
}

impl<P: Platform> Default for Reach<P> {
    fn default() -> Self {
        Self { end: P::Word::new(0), loads: P::Word::new(0) }
    }
}

impl<P: Platform> Reach<P> {
    /// Pages before `end` may be in memory from now on: said before one goes into the index, by one whom no other can make
    /// the file shorter beside.
    pub(crate) fn extend(&self, end: u64) {
        // Acquire and release, here and below: who has looked how far pages reach, or lowered that, and found it to be less, comes
        // before this, and so does what it did to the store before the read that fills the page. That is why it is written to
        // in any case: of one that comes after, the next acquires what came before this.
        let mut seen = self.get();
        while seen < end {
            match self.end.compare_exchange(seen, end, AcqRel, Acquire) {
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }

    /// The same by a load, which says when it is [over](Self::load_is_over).
    pub(crate) fn begin_load(&self, end: u64) {
        // Release by the write to `end` that follows: who lowers that after it sees the load.
        let _ = self.loads.fetch_add(1, AcqRel);
        self.extend(end);
    }

    /// Its pages are in the index, or will not be there.
    pub(crate) fn load_is_over(&self) {
        // Release: with the acquire of who lowers, and then looks for them.
        let _ = self.loads.fetch_add(u64::MAX, Release);
    }

    pub(crate) fn get(&self) -> u64 {
        self.end.fetch_add(0, AcqRel)
    }

    /// No page at `end` or behind it is to stay: where the caller, beside whom no one writes, is to look for them.
    pub(crate) fn lower(&self, end: u64) -> u64 {
        let before = self.get();
        if before > end && self.end.compare_exchange(before, end, AcqRel, Acquire).is_ok() {
            // A load whose pages were said to come before this is seen here, unless it is over: then they are in the index.
            if self.loads.fetch_add(0, AcqRel) > 0 {
                self.extend(before);
            }
        }
        before.max(self.get())
    }
}

//! Memory to measure with: working sets, and the loads that chase through them.
//!
//! ```
//! use zonal_calibrate::buffer::{Advice, Buffer, Chain};
//! use zonal_bench::rng::Rng;
//!
//! let buffer = Buffer::new(1 << 20, Advice::Huge)?;
//! let mut chain = Chain::random(&buffer, 64, &mut Rng::new(1));
//! chain.walk(&buffer, 64);
//! assert_eq!(chain.at(), 0, "the walk has been at every line once");
//! # Ok::<(), zonal_calibrate::error::CalibrateError>(())
//! ```

use core::hint::black_box;
use core::slice;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use super::error::CalibrateError;
use zonal_bench::memory::Region;
use zonal_bench::rng::Rng;

/// Bytes of a cache line, on all that this runs on (some fetch them in pairs).
pub const LINE: usize = 64;
/// Words of a line.
const WORDS: usize = LINE / size_of::<u64>();

/// What the kernel is told about a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// Huge pages please, so that the TLB is no part of what is measured. The kernel may not
    /// have any.
    Huge,
    /// Single pages only.
    Single,
}

/// Zeroed memory, aligned to 4 MiB, without pages behind it until they are touched.
#[derive(Debug)]
pub struct Buffer(Region);

impl Buffer {
    /// Of `bytes` bytes, rounded up to whole lines.
    ///
    /// # Errors
    ///
    /// [`CalibrateError::Memory`]; [`CalibrateError::Advice`] if single pages were asked for and
    /// the kernel has huge pages and will not leave them.
    pub fn new(bytes: usize, advice: Advice) -> Result<Self, CalibrateError> {
        let region = Region::reserve(bytes.next_multiple_of(LINE))?;
        let (value, what) = match advice {
            Advice::Huge => (libc::MADV_HUGEPAGE, "ask for huge pages"),
            Advice::Single => (libc::MADV_NOHUGEPAGE, "ask for single pages"),
        };
        // SAFETY: neither advice changes what is in memory, and the range is the region's.
        let done = unsafe { libc::madvise(region.base().cast(), region.bytes(), value) };
        let source = io::Error::last_os_error();
        // A kernel built without huge pages knows neither advice: every page is single then.
        let refused = done != 0 && source.raw_os_error() != Some(libc::EINVAL);
        if refused && advice == Advice::Single {
            return Err(CalibrateError::Advice { what, source });
        }
        Ok(Self(region))
    }

    /// Its length in lines.
    #[must_use]
    pub fn lines(&self) -> usize {
        self.0.bytes() / LINE
    }

    /// It as words.
    #[must_use]
    pub fn words(&self) -> &[AtomicU64] {
        let words = self.0.bytes() / size_of::<u64>();
        // SAFETY: the region is mapped readable and writable for as long as `self` lives,
        // zeroed and aligned; while `&self` is borrowed it is accessed by atomics only.
        unsafe { slice::from_raw_parts(self.0.base().cast::<AtomicU64>(), words) }
    }

    /// The first word of a line.
    ///
    /// # Panics
    ///
    /// If there is no such line.
    #[inline]
    #[must_use]
    pub fn line(&self, line: usize) -> &AtomicU64 {
        &self.words()[line * WORDS]
    }

    /// It as bytes.
    #[must_use]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: the region is mapped readable and writable for as long as `self` lives, and
        // `&mut self` says that no other reference to it is in use.
        unsafe { slice::from_raw_parts_mut(self.0.base(), self.0.bytes()) }
    }

    /// Gives the pages of one page-sized stretch back to the kernel; its bytes are zero again.
    ///
    /// # Errors
    ///
    /// [`CalibrateError::Advice`].
    ///
    /// # Panics
    ///
    /// If the stretch is not inside the buffer.
    pub fn give_up(&mut self, page: usize) -> Result<(), CalibrateError> {
        let bytes = zonal_bench::subject::FRAME_BYTES;
        assert!((page + 1) * bytes <= self.0.bytes(), "inside the buffer");
        let start = self.0.frame(page).cast();
        // SAFETY: the page is the region's, and `&mut self` says that no reference to its bytes,
        // which become zero, is in use.
        let done = unsafe { libc::madvise(start, bytes, libc::MADV_DONTNEED) };
        if done == 0 {
            return Ok(());
        }
        let source = io::Error::last_os_error();
        Err(CalibrateError::Advice { what: "give a page back", source })
    }
}

/// Loads that each need the one before: every line of a chain holds where the next one is.
#[derive(Clone, Copy, Debug)]
pub struct Chain {
    at: u64,
}

impl Chain {
    /// Through the first `lines` lines of a buffer in one random cycle, in their first words.
    ///
    /// # Panics
    ///
    /// If the buffer has fewer lines, or `lines` is 0.
    #[must_use]
    pub fn random(buffer: &Buffer, lines: usize, rng: &mut Rng) -> Self {
        Self::through(buffer, &(0..lines as u64).collect::<Vec<_>>(), rng)
    }

    /// Through some lines of a buffer in one random cycle.
    ///
    /// # Panics
    ///
    /// If one is not in the buffer, or there is none.
    #[must_use]
    pub fn through(buffer: &Buffer, lines: &[u64], rng: &mut Rng) -> Self {
        let words = buffer.words();
        let slot = |line: u64| line * WORDS as u64;
        // Sattolo's shuffle makes one cycle of all of them.
        let mut next = lines.to_vec();
        for at in (1..next.len()).rev() {
            next.swap(at, rng.below(at));
        }
        for (&line, &next) in lines.iter().zip(&next) {
            words[slot(line) as usize].store(slot(next), Ordering::Relaxed);
        }
        Self { at: slot(lines[0]) }
    }

    /// Through all lines of a buffer in order, in their second words, so that a buffer can hold
    /// a random chain too.
    #[must_use]
    pub fn sequential(buffer: &Buffer) -> Self {
        let words = buffer.words();
        let count = words.len();
        for at in (1..count).step_by(WORDS) {
            words[at].store(((at + WORDS) % count) as u64, Ordering::Relaxed);
        }
        Self { at: 1 }
    }

    /// Follows the chain for `steps` lines.
    #[inline]
    pub fn walk(&mut self, buffer: &Buffer, steps: usize) {
        let words = buffer.words();
        let (mut at, mut left) = (self.at, steps);
        while left != 0 {
            at = words[at as usize].load(Ordering::Relaxed);
            left -= 1;
        }
        self.at = black_box(at);
    }

    /// The line it is at.
    #[must_use]
    pub const fn at(self) -> usize {
        self.at as usize / WORDS
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn a_chain_visits_every_line_once() {
        let buffer = Buffer::new(1000 * LINE, Advice::Single).expect("memory");
        for mut chain in
            [Chain::sequential(&buffer), Chain::random(&buffer, buffer.lines(), &mut Rng::new(7))]
        {
            let mut seen = HashSet::new();
            for _ in 0..buffer.lines() {
                assert!(seen.insert(chain.at()));
                chain.walk(&buffer, 1);
            }
            assert_eq!((seen.len(), chain.at()), (1000, 0));
        }
    }

    #[test]
    fn a_page_given_up_is_zero_again() {
        let mut buffer = Buffer::new(8192, Advice::Single).expect("memory");
        buffer.bytes_mut().fill(7);
        buffer.give_up(1).expect("a page of the buffer");
        assert_eq!((buffer.bytes_mut()[4095], buffer.bytes_mut()[4096]), (7, 0));
    }

    #[test]
    fn no_memory_is_an_error() {
        assert!(matches!(Buffer::new(1 << 60, Advice::Huge), Err(CalibrateError::Memory(_))));
    }
}

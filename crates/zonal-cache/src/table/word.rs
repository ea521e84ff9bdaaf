//! The state of a slot in one word: who looks at it, who holds it, and what it is.
//!
//! ```text
//! bit 63 … 40   flags
//! bit 39 … 20   holds: the slot stays this page's, its bytes may change
//! bit 19 … 0    readers: its bytes do not change either
//! ```

use core::fmt;

/// A reader.
pub(crate) const READER: u64 = 1;
/// A hold.
pub(crate) const HOLD: u64 = 1 << 20;
const READERS: u64 = HOLD - 1;
const HOLDS: u64 = ((1 << 20) - 1) << 20;

/// A value of the word.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Word(pub(crate) u64);

impl Word {
    /// The bytes are the file's.
    pub(crate) const UPTODATE: u64 = 1 << 40;
    /// One thread has the bytes for itself: it writes them, or fills them from the store.
    pub(crate) const WRITER: u64 = 1 << 41;
    /// The bytes are newer than the store's.
    pub(crate) const DIRTY: u64 = 1 << 42;
    /// They are on their way to the store.
    pub(crate) const WRITEBACK: u64 = 1 << 43;
    /// The index has it no more: who leaves it last gives the frame back.
    pub(crate) const DETACHED: u64 = 1 << 44;
    /// The store had an error when it was to be filled; detached as well.
    pub(crate) const FAILED: u64 = 1 << 45;
    /// A thread waits for the writer to be done.
    pub(crate) const WAITERS: u64 = 1 << 46;
    /// The first reader that comes here has the next window read ahead.
    pub(crate) const MARKER: u64 = 1 << 47;
    /// One thread has the slot, and no other may come: it is free, or about to be, or not in
    /// use yet.
    pub(crate) const CLAIMED: u64 = 1 << 48;
    /// Readers count themselves in at the [lanes](super::lanes), as well as here.
    pub(crate) const SPREAD: u64 = 1 << 49;

    pub(crate) const fn has(self, flags: u64) -> bool {
        self.0 & flags != 0
    }

    pub(crate) const fn readers(self) -> u64 {
        self.0 & READERS
    }

    const fn holds(self) -> u64 {
        (self.0 & HOLDS) / HOLD
    }

    /// No thread is there, but for readers at the lanes of a page that is spread.
    pub(crate) const fn is_alone(self) -> bool {
        self.0 & (READERS | HOLDS) == 0
    }

    /// Whether one more reader may come in now.
    pub(crate) const fn is_readable(self) -> bool {
        let asked = Self::UPTODATE | Self::WRITER | Self::DETACHED | Self::CLAIMED;
        self.0 & asked == Self::UPTODATE && self.readers() < READERS
    }
}

impl fmt::Debug for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: [(u64, &str); 10] = [
            (Word::UPTODATE, "uptodate"),
            (Word::WRITER, "writer"),
            (Word::DIRTY, "dirty"),
            (Word::WRITEBACK, "writeback"),
            (Word::DETACHED, "detached"),
            (Word::FAILED, "failed"),
            (Word::WAITERS, "waiters"),
            (Word::MARKER, "marker"),
            (Word::CLAIMED, "claimed"),
            (Word::SPREAD, "spread"),
        ];
        write!(f, "{} readers, {} holds", self.readers(), self.holds())?;
        NAMES
            .iter()
            .filter(|(flag, _)| self.has(*flag))
            .try_for_each(|(_, name)| write!(f, ", {name}"))
    }
}

//! How many pages there is room for in memory that is for pages and tables together.

use crate::ArenaFrames;
use crate::evict::Evict;
use crate::frames::PAGE;
use crate::lru::{LruLock, MOST_LISTS};
use crate::table::Table;
use crate::threads::{OpenError, Threads, lanes};

/// What a cache has whatever its size: places to wait, locks, counters, what waits to be listed, the arena's caches.
const FIXED: usize = 128 << 10;
/// And for each page what files know of it while it is dirty, and until a flush: nodes of trees that are half full, 32 bytes
/// an entry for those that may be dirty, which are half of all at most by default, and 17 for each.
const WRITTEN: usize = 34;

/// The most pages for which they and the tables are no more than `bytes`, where tables are for `most` at least; `frames` makes
/// the frames of a number of pages. As many as there can be without tables are tried: how large those of the arena are, and how
/// many lists there are, follows from its zones.
pub(crate) fn pages<E: Evict, L: LruLock>(
    bytes: usize,
    most: usize,
    frames: impl FnOnce(usize) -> Result<ArenaFrames, OpenError>,
) -> Result<usize, OpenError> {
    let frames = frames(bytes / PAGE)?;
    let lists = L::lists(&frames).clamp(1, MOST_LISTS);
    let arena = frames.arena().table_bytes() as usize + FIXED;
    let tables = |pages: usize| {
        let slots = pages.max(most);
        let written = slots * WRITTEN;
        Table::<Threads>::bytes(slots, lanes()) + E::table_bytes(slots, lists) + arena + written
    };
    // Tables only grow with pages, in steps where chains and ghosts double.
    let (mut fits, mut over) = (0, bytes / PAGE + 1);
    while over - fits > 1 {
        let middle = fits + (over - fits) / 2;
        if middle * PAGE + tables(middle) <= bytes { fits = middle } else { over = middle }
    }
    Ok(fits)
}

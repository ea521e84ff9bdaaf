//! Free memory as a map: a bit a frame, a cache line a pageblock, no lock and no link.
//!
//! What is free below a pageblock is a set bit in the pageblock's *line*; a pageblock that is free
//! as a whole has an all-zero line and a bit in `whole`, and the CPU that clears that bit owns all
//! of it. *Hints*, bitmaps over the pageblocks, say where a search should look; they may be stale,
//! and are not lost. Every operation is a few atomic read-modify-writes; nothing here waits.
//!
//! | operation | read-modify-writes without contention |
//! |---|---|
//! | free up to 64 neighbours | 1; + 1 for each hint that was missing |
//! | free that completes a line of n words | n + 3 |
//! | take order 1 to 6 | 1; + 1 for each hint that the rest of a larger run lacks |
//! | take order 7, 8 (9 with pageblocks of order 10) | 2, 4, 8; + 2 |
//! | take the pageblock order | 1 |
//! | harvest a line | 1 + the words that have bits |
//!
//! Promises, cited by number:
//!
//! - M-1 A frame that is free in the map is a set bit of its line, or in a pageblock whose bit is in
//!   exactly one of the `whole` bitmaps, never both (I-1). In the hand of a CPU inside a call it
//!   is neither; calls that may put back what they took count that in the section's *transit* word,
//!   so that [`last_look`](FreeMap::last_look) knows.
//! - M-2 While no call is under way: a line with free frames has the hint "free" of its pageblock's
//!   type, unless a CPU has reserved it, or keeps it for its refills; and a line with a maximal aligned run of
//!   order k has that hint, unless a CPU keeps it, for refills or as its current pageblock. No full line is
//!   left a line.
//! - M-3 What changes a word raises the hints of the maximal runs that this made, after the bits.
//! - M-4 What clears a hint reads the bits afterwards, and raises the hint if they are there.
//! - M-5 The type of a pageblock is read after the bits were freed, or taken. So what a change of the
//!   type does not see is filed, or put back, by the other side.
//! - M-6 What zeroes words for a moment raises hints and looks for a full line once they are back:
//!   a free in between saw zeros.
//! - M-7 Who puts frames back because their pageblock has another type now, and who counts what is free of
//!   a special pageblock while another CPU has some in its hand, leaves a note, after which it is counted
//!   again.
//!
//! All these are store-then-load on both sides (bits then hint against hint then bits, bits then
//! type against type then bits, one word then another in a line), which is why the updates and the
//! looks after them are sequentially consistent: with anything less each side may miss the other.
//! On x86-64 that costs nothing beside the update itself. A first look of a search is relaxed: what
//! it misses, [`last_look`](FreeMap::last_look) finds. Sequentially consistent updates release and
//! acquire too, so what a frame's former holder did has happened before its next holder's part.
//!
//! ```
//! use core::sync::atomic::AtomicU64;
//! use zonal::zone::free_map::{MapMemory, MapShape, MapTables, Pageblock, Start};
//! use zonal::platform::single::SingleThread;
//! use zonal::{MigrateType::Movable, Order};
//!
//! // Four pageblocks of 64 frames.
//! let shape = MapShape::new(Order::new(6).unwrap(), 4).unwrap();
//! let words = |n: usize| (0..n).map(|_| AtomicU64::new(0)).collect::<Vec<_>>();
//! let (lines, sections) = (words(shape.line_words()), words(shape.section_words()));
//! let (summaries, types) = (words(shape.summary_words()), words(4));
//! let memory = MapMemory { lines: &lines, sections: &sections, summaries: &summaries, types: &types };
//! let tables = MapTables::<SingleThread>::new(shape, memory).unwrap();
//! let map = tables.map();
//!
//! map.set_type(Pageblock(1), Movable);
//! map.free_block(Pageblock(1).first_frame(shape), Order::new(6).unwrap()).unwrap();
//! assert!(map.is_whole(Pageblock(1)));
//! let two = Order::new(1).unwrap();
//! let block = map.split_whole(Movable, two, Start::default(), None).unwrap();
//! assert_eq!(block.0, 64, "its first frame");
//! assert_eq!(map.free_in(Pageblock(1)), 62);
//! map.free_block(block, two).unwrap();
//! assert!(map.is_whole(Pageblock(1)), "whole at once");
//! ```

mod account;
mod bits;
mod counts;
mod current;
mod exact;
mod fallback;
mod frees;
mod harvest;
mod hints;
mod last_look;
mod layout;
mod led;
mod line;
mod mapped;
mod moves;
mod near;
mod pageblock_type;
mod pageblocks;
mod ranges;
mod seam;
mod shape;
mod single;
mod small_runs;
mod take;
mod takes;
mod visit;
mod whole;
mod whole_runs;

pub use current::Current;
pub use frees::AlreadyFree;
pub use harvest::Harvest;
pub use hints::Start;
pub use last_look::LastLook;
pub use layout::{LayoutError, MapMemory, MapTables};
pub(crate) use mapped::MapView;
pub use mapped::{MapPart, Mapped};
pub(crate) use near::WholeWord;
pub use seam::MapHeld;
pub use shape::{Frame, MapShape, Pageblock, WordIndex};
pub(crate) use single::Singles;
pub use small_runs::Fitting;
pub use take::Fallback;
pub use whole::WholeClass;

use crate::platform::{Platform, StayOf};
use crate::zone::tables::ZoneTables;
use layout::MapPlace;

/// The map of a zone instance: see the [module](self).
///
/// Any CPU may call anything at any time, but for what is said to need ownership: frames that are
/// freed must be the caller's.
pub struct FreeMap<'m, P: Platform> {
    tables: &'m ZoneTables<'m, P>,
    place: &'m MapPlace,
    /// How long a search in it takes at once.
    stay: StayOf<P>,
}

impl<P: Platform> core::fmt::Debug for FreeMap<'_, P> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("FreeMap").field("shape", &self.place.shape).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;

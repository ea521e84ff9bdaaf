//! Tables on the heap.

use alloc::vec::Vec;
use core::fmt;
use zonal::plan::Plan;
use zonal::platform::{AtomicByte, AtomicWord, Platform, Slot};
use zonal::policy::Policy;
use zonal::zone::tables::FreeWords;
use zonal::{OutsideSlot, PerCpuPages, SharedState, Storage, TableSize, Zone};

/// The heap has no room for the tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoMemory {
    /// Which table.
    pub what: &'static str,
    /// How many elements it has.
    pub elements: u64,
}

impl fmt::Display for NoMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the heap has no room for the allocator's {} {}", self.elements, self.what)
    }
}

impl core::error::Error for NoMemory {}

/// What an allocator on platform `P` with the preset `S` lives in, on the heap.
///
/// See the [crate](crate) for how it is used. The allocator borrows it: it has to outlive that.
pub struct HeapTables<P: Platform, S: Policy> {
    states: Vec<P::Byte>,
    pageblocks: Vec<P::Word>,
    free: [Vec<P::Word>; 3],
    zones: Vec<Zone<P, S>>,
    caches: Vec<P::Slot<PerCpuPages<S>>>,
    outside: Vec<OutsideSlot<P, S>>,
    shared: SharedState<P>,
}

/// `elements` times what `make` makes.
fn table<T>(
    what: &'static str,
    elements: u64,
    mut make: impl FnMut() -> T,
) -> Result<Vec<T>, NoMemory> {
    let mut table = Vec::new();
    let no_memory = NoMemory { what, elements };
    let room = usize::try_from(elements).map_err(|_| no_memory)?;
    table.try_reserve_exact(room).map_err(|_| no_memory)?;
    table.extend((0..room).map(|_| make()));
    Ok(table)
}

/// Words by which the words of free memory may begin later, at a cache line: a line of a map is one.
const SPARE: usize = 7;

/// All words but [`SPARE`] of them, from a cache line on where words are as small as they may be.
fn from_a_line<W>(words: &[W]) -> &[W] {
    let skipped = words.as_ptr().align_offset(64);
    let skipped = if skipped <= SPARE { skipped } else { 0 };
    &words[skipped..skipped + words.len() - SPARE]
}

impl<P: Platform, S: Policy> HeapTables<P, S> {
    /// Tables of the sizes that `plan` needs. O(frames).
    ///
    /// # Errors
    /// [`NoMemory`] if the heap has no room for them.
    pub fn new(plan: &Plan) -> Result<Self, NoMemory> {
        let size = TableSize::of::<S>(plan);
        let words = |what, count| table(what, count, || P::Word::new(0));
        let [first, second, third] = size.free;
        let free = |count| words("words of free memory", count + SPARE as u64);
        Ok(Self {
            states: table("state bytes", size.frames, || P::Byte::new(0))?,
            pageblocks: words("pageblock words", size.pageblocks)?,
            free: [free(first)?, free(second)?, free(third)?],
            zones: table("zones", size.zones, Zone::vacant)?,
            caches: table("per-CPU pages", size.caches, || Slot::new(PerCpuPages::new()))?,
            outside: table("frames of CPUs", size.caches, OutsideSlot::new)?,
            shared: SharedState::new(),
        })
    }

    /// What [`Allocator::new`](zonal::Allocator::new) takes. For one allocator: a second one over
    /// the same tables is refused, because they were used before.
    pub fn storage(&mut self) -> Storage<'_, P, S> {
        let [first, second, third] = &self.free;
        Storage {
            states: &self.states,
            pageblocks: &self.pageblocks,
            free: FreeWords([first, second, third].map(|words| from_a_line(words))),
            zones: &mut self.zones,
            caches: &self.caches,
            outside: &self.outside,
            shared: &self.shared,
        }
    }
}

impl<P: Platform, S: Policy> fmt::Debug for HeapTables<P, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let frames = self.states.len();
        f.debug_struct("HeapTables").field("frames", &frames).finish_non_exhaustive()
    }
}

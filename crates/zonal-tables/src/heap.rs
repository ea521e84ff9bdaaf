//! Tables on the heap.

use alloc::vec::Vec;
use core::fmt;
use core::ptr::NonNull;
use zonal::plan::Plan;
use zonal::platform::{AtomicByte, AtomicWord, Platform, Slot};
use zonal::policy::Policy;
use zonal::zone::tables::FreeWords;
use zonal::{NodeId, OutsideSlot, PerCpuPages, SharedState, Storage, TableSize, Zone};

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
    nodes: Vec<NodeId>,
    shared: SharedState<P>,
}

/// Is told where memory begins and how many bytes it has.
type Advise<'a> = &'a mut dyn FnMut(NonNull<u8>, usize);

/// `elements` times what `make` makes, after `advise` was told of the memory for them.
fn table<T>(
    what: &'static str,
    elements: u64,
    advise: Advise<'_>,
    make: impl FnMut() -> T,
) -> Result<Vec<T>, NoMemory> {
    let mut table = Vec::new();
    let no_memory = NoMemory { what, elements };
    let room = usize::try_from(elements).map_err(|_| no_memory)?;
    table.try_reserve_exact(room).map_err(|_| no_memory)?;
    let memory = NonNull::from(table.spare_capacity_mut());
    advise(memory.cast(), memory.len() * size_of::<T>());
    table.resize_with(room, make);
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
        Self::advised(plan, |_, _| ())
    }

    /// The same, for those who have advice for the system about large tables, such as which pages
    /// should back them: `advise` is called with the start and the bytes of each table's memory,
    /// before it is written. O(frames).
    ///
    /// # Errors
    /// [`NoMemory`] if the heap has no room for them.
    pub fn advised(
        plan: &Plan,
        mut advise: impl FnMut(NonNull<u8>, usize),
    ) -> Result<Self, NoMemory> {
        let size = TableSize::of::<S>(plan);
        let [first, second, third] = size.free;
        let advise = &mut advise;
        let word = || P::Word::new(0);
        let cache = || Slot::new(PerCpuPages::new());
        let mut free = |count| table("words of free memory", count + SPARE as u64, advise, word);
        let free = [free(first)?, free(second)?, free(third)?];
        Ok(Self {
            states: table("state bytes", size.frames, advise, || P::Byte::new(0))?,
            pageblocks: table("pageblock words", size.pageblocks, advise, word)?,
            free,
            zones: table("zones", size.zones, advise, Zone::vacant)?,
            caches: table("per-CPU pages", size.caches, advise, cache)?,
            outside: table("frames of CPUs", size.caches, advise, OutsideSlot::new)?,
            nodes: table("nodes of CPUs", size.cpus, advise, NodeId::default)?,
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
            nodes: &mut self.nodes,
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

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use std::collections::BTreeMap;
    use zonal::map::{MemoryMap, PhysAddr, Region};
    use zonal::plan::Config;
    use zonal::platform::single::SingleThread;
    use zonal::preset::ClusterFree;

    /// All of it, and where it stays.
    #[test]
    fn advice_is_about_the_memory_of_the_tables() {
        let map = MemoryMap::from_regions(&[Region::usable(PhysAddr(0), 64 << 20)]).unwrap();
        let plan = Plan::new(map.sanitise().unwrap(), Config::new(2), |_, _, _| 1).unwrap();
        let mut told = BTreeMap::new();
        let tables = HeapTables::<SingleThread, ClusterFree>::advised(&plan, |start, bytes| {
            told.insert(start.as_ptr().addr(), bytes);
        });
        let mut tables = tables.unwrap();
        let storage = tables.storage();
        let bytes = told.get(&storage.states.as_ptr().addr());
        assert_eq!(bytes, Some(&storage.states.len()));
        let bytes = told.get(&storage.caches.as_ptr().addr());
        assert_eq!(bytes, Some(&size_of_val(storage.caches)));
        for words in storage.free.0.into_iter().chain([storage.pageblocks]) {
            let start = words.as_ptr().addr();
            let (from, bytes) = told.range(..=start).next_back().unwrap();
            assert!(start + size_of_val(words) <= from + bytes);
        }
    }
}

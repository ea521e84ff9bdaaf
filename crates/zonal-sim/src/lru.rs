//! LRU lists of the memory of processes: what page faults and unmapping do to a page besides allocating and freeing it.
//!
//! The lists are those of the page cache ([`OwnedLists`]), whose pages are in no index here: a process finds them by its
//! page tables. Pages go on the list that their lock has, and off it, in batches under that lock. Listing a
//! page writes to the `struct page`s of its neighbours, which are the real ones.

mod policy;

use crate::engine;
use crate::lock::SimLock;
use crate::memory;
use crate::run::{LruLock, SimError};
use crate::space::{Home, Layout};
use crate::task::Pages;
use core::cell::RefCell;
use policy::ProcessLists;
use zonal::Pfn;
use zonal::platform::Lock;
use zonal::platform::single::CellLock;
use zonal_cache::owned::{OnList, OwnedLists};
use zonal_cache::table::SlotId;

/// The lists of all nodes.
pub(crate) struct Lru {
    lists: Box<dyn Listed>,
    kind: LruLock,
    /// The list of each page, where that does not follow from its frame.
    owners: RefCell<Vec<u16>>,
}

/// Lists, whatever their lock is.
trait Listed {
    fn add(&self, list: usize, pages: &mut dyn Iterator<Item = SlotId>);
    fn remove(&self, list: usize, pages: &mut dyn Iterator<Item = SlotId>);
    fn policy(&self) -> &ProcessLists;
}

impl<K: Lock<OnList<ProcessLists>>> Listed for OwnedLists<ProcessLists, K> {
    fn add(&self, list: usize, pages: &mut dyn Iterator<Item = SlotId>) {
        OwnedLists::add(self, list, pages);
    }
    fn remove(&self, list: usize, pages: &mut dyn Iterator<Item = SlotId>) {
        OwnedLists::remove(self, list, pages);
    }
    fn policy(&self) -> &ProcessLists {
        OwnedLists::policy(self)
    }
}

/// Empty lists, whose locks lie where the machine knows them.
fn lists<K>(count: usize, pages: &Pages) -> Box<dyn Listed>
where
    K: Lock<OnList<ProcessLists>> + 'static,
{
    let lists = OwnedLists::<ProcessLists, K>::new(count, pages.frames as usize);
    engine::with(|engine| engine.register("lru", lists.locks(), Layout::Packed, Home::Divided));
    Box::new(lists)
}

impl Lru {
    /// Empty lists for the pages of a machine with the sockets and CPUs given.
    ///
    /// # Errors
    /// [`SimError::Build`] if this computer has no room for the owners of all pages.
    pub(crate) fn new(kind: LruLock, pages: &Pages, cpus: u32) -> Result<Self, SimError> {
        let owners = if by_owner(kind) { pages.frames as usize } else { 0 };
        let owners = RefCell::new(memory::table(owners, || 0)?);
        let lists = match kind {
            LruLock::Whole => lists::<SimLock<_>>(1, pages),
            // The memory of a node is one zone.
            LruLock::Zone | LruLock::Node => lists::<SimLock<_>>(pages.sockets as usize, pages),
            LruLock::Split => lists::<SimLock<_>>(cpus as usize, pages),
            // Each CPU has lists of its own.
            LruLock::None => lists::<CellLock<_>>(cpus as usize, pages),
        };
        Ok(Self { lists, kind, owners })
    }

    /// Lists pages that one CPU has collected.
    pub(crate) fn add(&self, pages: &Pages, cpu: u32, batch: &[Pfn]) {
        if by_owner(self.kind) {
            let mut owners = self.owners.borrow_mut();
            batch.iter().for_each(|&pfn| owners[pages.index(pfn) as usize] = cpu as u16);
        }
        self.each(pages, batch, |list, run| self.lists.add(list, run));
    }

    /// A page will soon be listed or unlisted.
    pub(crate) fn prefetch(&self, pages: &Pages, pfn: Pfn) {
        self.lists.policy().prefetch(slot(pages, pfn));
    }

    /// Takes pages off their lists.
    pub(crate) fn delete(&self, pages: &Pages, batch: &[Pfn]) {
        self.prefetch_neighbours(pages, batch);
        self.each(pages, batch, |list, run| self.lists.remove(list, run));
    }

    /// Pages will be taken off their lists, and their neighbours joined.
    fn prefetch_neighbours(&self, pages: &Pages, batch: &[Pfn]) {
        let policy = self.lists.policy();
        for &pfn in batch {
            for neighbour in policy.neighbours(slot(pages, pfn)).into_iter().flatten() {
                policy.prefetch(neighbour);
                pages.prefetch(pages.pfn(neighbour.0));
            }
        }
    }

    /// Does `work` for each run of pages that are on the same list.
    fn each(
        &self,
        pages: &Pages,
        batch: &[Pfn],
        work: impl Fn(usize, &mut dyn Iterator<Item = SlotId>),
    ) {
        let list_of = |pfn: &Pfn| match self.kind {
            LruLock::Whole => 0,
            LruLock::Zone | LruLock::Node => usize::from(pages.home(*pfn)),
            LruLock::Split | LruLock::None => {
                usize::from(self.owners.borrow()[pages.index(*pfn) as usize])
            }
        };
        for run in batch.chunk_by(|a, b| list_of(a) == list_of(b)) {
            work(list_of(&run[0]), &mut run.iter().map(|&pfn| slot(pages, pfn)));
        }
    }
}

/// Whether the list of a page is that of the CPU which listed it.
const fn by_owner(kind: LruLock) -> bool {
    matches!(kind, LruLock::Split | LruLock::None)
}

/// Every frame has the slot of its number.
fn slot(pages: &Pages, pfn: Pfn) -> SlotId {
    SlotId(pages.index(pfn))
}

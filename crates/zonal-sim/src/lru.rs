//! LRU lists: what page faults and unmapping do to a page besides allocating and freeing it.
//!
//! Pages go on the list of their node, and off it, in batches under the list's lock. Listing a
//! page writes to the `struct page`s of its neighbours, so a list has an order here and the
//! neighbours are the real ones.

use crate::engine;
use crate::lock::SimLock;
use crate::machine::Kernel;
use crate::memory;
use crate::run::{LruLock, SimError};
use crate::space::{Home, Layout};
use crate::task::{Pages, spend};
use crate::ticks::Ticks;
use core::cell::RefCell;
use zonal::Pfn;
use zonal::platform::Lock;

/// The lists of all nodes.
pub(crate) struct Lru {
    locks: Vec<SimLock<Guarded>>,
    kind: LruLock,
    links: RefCell<Links>,
    add: Ticks,
    delete: Ticks,
}

/// What the real lock guards, apart from the pages: heads and counts of five lists.
#[derive(Debug, Default)]
struct Guarded([u64; 24]);

/// Neighbours of listed pages, and the head of each lock's list.
struct Links {
    pages: Vec<Link>,
    heads: Vec<u32>,
}

/// The neighbours of a page.
#[derive(Clone, Copy)]
struct Link {
    next: u32,
    previous: u32,
}

const NO_PAGE: u32 = u32::MAX;

impl Lru {
    /// Empty lists for the pages of a machine with the sockets and CPUs given.
    ///
    /// # Errors
    /// [`SimError::Build`] if this computer has no room for the links of all pages.
    pub(crate) fn new(
        kernel: &Kernel,
        kind: LruLock,
        pages: &Pages,
        cpus: u32,
    ) -> Result<Self, SimError> {
        let count = match kind {
            LruLock::Node => pages.sockets as usize,
            LruLock::Split | LruLock::None => cpus as usize,
        };
        let locks: Vec<_> = (0..count).map(|_| SimLock::new(Guarded::default())).collect();
        engine::with(|engine| engine.register("lru", &locks, Layout::Packed, Home::Divided));
        let frames = pages.frames as usize;
        Ok(Self {
            locks,
            kind,
            links: RefCell::new(Links {
                pages: memory::table(frames, || Link::NONE)?,
                heads: vec![NO_PAGE; count],
            }),
            add: Ticks::from_cycles(kernel.lru_add),
            delete: Ticks::from_cycles(kernel.lru_delete),
        })
    }

    /// Lists pages that one CPU has collected.
    pub(crate) fn add(&self, pages: &Pages, cpu: u32, batch: &[Pfn]) {
        self.each(pages, cpu, batch, |lock, pfn| {
            let neighbour = self.links.borrow_mut().push(lock, pages.index(pfn));
            spend(self.add);
            pages.touch(pfn, true);
            if let Some(neighbour) = neighbour {
                pages.touch(pages.pfn(neighbour), true);
            }
        });
    }

    /// A page will soon be listed or unlisted.
    pub(crate) fn prefetch(&self, pages: &Pages, pfn: Pfn) {
        self.links.borrow().prefetch(pages.index(pfn));
    }

    /// Takes pages off their lists.
    pub(crate) fn delete(&self, pages: &Pages, cpu: u32, batch: &[Pfn]) {
        self.prefetch_neighbours(pages, batch);
        self.each(pages, cpu, batch, |lock, pfn| {
            let neighbours = self.links.borrow_mut().remove(lock, pages.index(pfn));
            spend(self.delete);
            pages.touch(pfn, true);
            for neighbour in neighbours.into_iter().flatten() {
                pages.touch(pages.pfn(neighbour), true);
            }
        });
    }

    /// Pages will be taken off their lists, and their neighbours joined.
    fn prefetch_neighbours(&self, pages: &Pages, batch: &[Pfn]) {
        let links = self.links.borrow();
        for &pfn in batch {
            let Link { next, previous } = links.pages[pages.index(pfn) as usize];
            for neighbour in [next, previous].into_iter().filter_map(known) {
                links.prefetch(neighbour);
                pages.prefetch(pages.pfn(neighbour));
            }
        }
    }

    /// Does `work` for each page, under the lock of its list; pages that follow each other and
    /// have the same lock share a hold.
    fn each(&self, pages: &Pages, cpu: u32, batch: &[Pfn], mut work: impl FnMut(usize, Pfn)) {
        let lock_of = |pfn: &Pfn| match self.kind {
            LruLock::Node => usize::from(pages.home(*pfn)),
            LruLock::Split | LruLock::None => cpu as usize,
        };
        for run in batch.chunk_by(|a, b| lock_of(a) == lock_of(b)) {
            let lock = lock_of(&run[0]);
            let mut all = || run.iter().for_each(|&pfn| work(lock, pfn));
            if self.kind == LruLock::None {
                all();
            } else {
                self.locks[lock].with(|guarded| {
                    all();
                    guarded.0[0] += run.len() as u64;
                });
            }
        }
    }
}

impl Link {
    /// Of a page that is on no list.
    const NONE: Self = Self { next: NO_PAGE, previous: NO_PAGE };
}

impl Links {
    fn prefetch(&self, page: u32) {
        memory::prefetch(core::ptr::from_ref(&self.pages[page as usize]).addr());
    }

    /// Makes a page the head of a list; the one that was.
    fn push(&mut self, list: usize, page: u32) -> Option<u32> {
        let next = core::mem::replace(&mut self.heads[list], page);
        self.pages[page as usize] = Link { next, previous: NO_PAGE };
        let head = known(next)?;
        self.pages[head as usize].previous = page;
        Some(head)
    }

    /// Takes a page out of its list; its neighbours.
    fn remove(&mut self, list: usize, page: u32) -> [Option<u32>; 2] {
        let link = &mut self.pages[page as usize];
        let Link { next, previous } = core::mem::replace(link, Link::NONE);
        let (after, before) = (known(next), known(previous));
        if let Some(after) = after {
            self.pages[after as usize].previous = previous;
        }
        match before {
            Some(before) => self.pages[before as usize].next = next,
            None if self.heads[list] == page => self.heads[list] = next,
            // The head of another CPU's list: split lists are told apart by who adds.
            None => {
                if let Some(head) = self.heads.iter_mut().find(|head| **head == page) {
                    *head = next;
                }
            }
        }
        [before, after]
    }
}

fn known(page: u32) -> Option<u32> {
    (page != NO_PAGE).then_some(page)
}

//! LRU lists: what page faults and unmapping do to a page besides allocating and freeing it.
//!
//! Pages go on the list of their node, and off it, in batches under the list's lock. Listing a
//! page writes to the `struct page`s of its neighbours, so a list has an order here and the
//! neighbours are the real ones.

use crate::engine;
use crate::lock::SimLock;
use crate::machine::Kernel;
use crate::run::LruLock;
use crate::space::{Home, Layout};
use crate::task::Pages;
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
    next: Vec<u32>,
    previous: Vec<u32>,
    heads: Vec<u32>,
}

const NOBODY: u32 = u32::MAX;

impl Lru {
    /// Empty lists for the pages of a machine with so many sockets and CPUs.
    pub(crate) fn new(kernel: &Kernel, kind: LruLock, pages: &Pages, cpus: u32) -> Self {
        let count = match kind {
            LruLock::Node | LruLock::None => pages.sockets as usize,
            LruLock::Split => cpus as usize,
        };
        let locks: Vec<_> = (0..count).map(|_| SimLock::new(Guarded::default())).collect();
        engine::with(|engine| engine.register("lru", &locks, Layout::Packed, Home::Divided));
        let frames = pages.frames as usize;
        Self {
            locks,
            kind,
            links: RefCell::new(Links {
                next: vec![NOBODY; frames],
                previous: vec![NOBODY; frames],
                heads: vec![NOBODY; count],
            }),
            add: Ticks::from_cycles(kernel.lru_add),
            delete: Ticks::from_cycles(kernel.lru_delete),
        }
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

    /// Takes pages off their lists.
    pub(crate) fn delete(&self, pages: &Pages, cpu: u32, batch: &[Pfn]) {
        self.each(pages, cpu, batch, |lock, pfn| {
            let neighbours = self.links.borrow_mut().remove(lock, pages.index(pfn));
            spend(self.delete);
            pages.touch(pfn, true);
            for neighbour in neighbours.into_iter().flatten() {
                pages.touch(pages.pfn(neighbour), true);
            }
        });
    }

    /// Does `work` for each page, under the lock of its list; pages that follow each other and
    /// have the same lock share a hold.
    fn each(&self, pages: &Pages, cpu: u32, batch: &[Pfn], mut work: impl FnMut(usize, Pfn)) {
        let lock_of = |pfn: &Pfn| match self.kind {
            LruLock::Node | LruLock::None => usize::from(pages.home(*pfn)),
            LruLock::Split => cpu as usize,
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

fn spend(time: Ticks) {
    engine::with_cpu(|engine, cpu| engine.spend(cpu, time));
}

impl Links {
    /// Makes a page the head of a list; the one that was.
    fn push(&mut self, list: usize, page: u32) -> Option<u32> {
        let head = core::mem::replace(&mut self.heads[list], page);
        self.next[page as usize] = head;
        self.previous[page as usize] = NOBODY;
        let head = known(head)?;
        self.previous[head as usize] = page;
        Some(head)
    }

    /// Takes a page out of its list; its neighbours.
    fn remove(&mut self, list: usize, page: u32) -> [Option<u32>; 2] {
        let (next, previous) = (self.next[page as usize], self.previous[page as usize]);
        let (after, before) = (known(next), known(previous));
        if let Some(after) = after {
            self.previous[after as usize] = previous;
        }
        match before {
            Some(before) => self.next[before as usize] = next,
            None if self.heads[list] == page => self.heads[list] = next,
            // The head of another CPU's list: split lists are told apart by who adds.
            None => {
                if let Some(head) = self.heads.iter_mut().find(|head| **head == page) {
                    *head = next;
                }
            }
        }
        self.next[page as usize] = NOBODY;
        self.previous[page as usize] = NOBODY;
        [before, after]
    }
}

fn known(page: u32) -> Option<u32> {
    (page != NOBODY).then_some(page)
}

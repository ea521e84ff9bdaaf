//! Pages that can be moved: a table from numbers that stay the same to frames that do not.
//!
//! This is what a page table or a page cache is to an allocator that compacts: the code that keeps a
//! page knows it by its number, and the frame behind the number may change.
//!
//! ```
//! use zonal::Pfn;
//! use zonal_bench::pages::Book;
//!
//! let mut book = Book::new(Pfn::new(1000), 16);
//! let page = book.insert(Pfn::new(1003)).expect("a frame of the book");
//! assert!(book.relocate(Pfn::new(1003), Pfn::new(1008)));
//! assert!(!book.relocate(Pfn::new(1003), Pfn::new(1009)), "it has no page by now");
//! assert_eq!(book.remove(page), Some(Pfn::new(1008)));
//! ```

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use zonal::{Immovable, Migration};
use zonal::{Order, Pfn};
use zonal_host::pager::Pager;

/// No page.
const NONE: u32 = u32::MAX;

/// Single frames of a stretch of memory, by page number.
#[derive(Debug)]
pub struct Book {
    first: u64,
    /// Page by frame.
    pages: Vec<u32>,
    /// Frame by page.
    frames: Vec<Option<Pfn>>,
    unused: Vec<u32>,
}

impl Book {
    /// For `frames` frames from `first` on.
    #[must_use]
    pub fn new(first: Pfn, frames: usize) -> Self {
        let (pages, first) = (vec![NONE; frames], first.get());
        Self { first, pages, frames: Vec::new(), unused: Vec::new() }
    }

    fn at(&self, pfn: Pfn) -> Option<usize> {
        let at = pfn.get().checked_sub(self.first)? as usize;
        (at < self.pages.len()).then_some(at)
    }

    /// A number for the page in `pfn`; `None` if the book does not cover that frame, or has it.
    pub fn insert(&mut self, pfn: Pfn) -> Option<u32> {
        let at = self.at(pfn).filter(|&at| self.pages[at] == NONE)?;
        let page = self.unused.pop().unwrap_or_else(|| {
            self.frames.push(None);
            self.frames.len() as u32 - 1
        });
        self.pages[at] = page;
        self.frames[page as usize] = Some(pfn);
        Some(page)
    }

    /// Takes a page out; returns the frame it is in by now.
    pub fn remove(&mut self, page: u32) -> Option<Pfn> {
        let pfn = self.frames.get_mut(page as usize)?.take()?;
        if let Some(at) = self.at(pfn) {
            self.pages[at] = NONE;
        }
        self.unused.push(page);
        Some(pfn)
    }

    /// The page in a frame.
    #[must_use]
    pub fn page_in(&self, pfn: Pfn) -> Option<u32> {
        let page = self.pages[self.at(pfn)?];
        (page != NONE).then_some(page)
    }

    /// Makes the page in `from` be in `to`; `false` if there is none, or `to` is no free place.
    pub fn relocate(&mut self, from: Pfn, to: Pfn) -> bool {
        let (Some(page), Some(old), Some(new)) = (self.page_in(from), self.at(from), self.at(to))
        else {
            return false;
        };
        if self.pages[new] != NONE {
            return false;
        }
        (self.pages[old], self.pages[new]) = (NONE, page);
        self.frames[page as usize] = Some(to);
        true
    }
}

/// Moves the pages of a [`Book`] whose frames hold nothing.
#[derive(Debug, Default)]
pub struct Mover(OnceLock<Mutex<Book>>);

impl Mover {
    /// Gives it its book, once its arena is open.
    pub fn start(&self, book: Book) {
        self.0.get_or_init(|| Mutex::new(book));
    }

    /// The book, once there is one.
    pub fn book(&self) -> Option<MutexGuard<'_, Book>> {
        Some(self.0.get()?.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

// SAFETY: a page is moved under the lock of the book, which a free of it takes first to find
// its frame: while `migrate` runs, `from` is in the book and ours alone. After `Ok` the book
// names `to` and nothing names `from`. `relocate` that refuses has kept nothing.
unsafe impl Pager for Mover {
    unsafe fn migrate(&self, page: &Migration) -> Result<(), Immovable> {
        let mut book = self.book().ok_or(Immovable)?;
        // No thread writes to the frames of this book, so there is nothing to copy.
        let moved = page.order == Order::ZERO && book.relocate(page.from, page.to);
        if moved { Ok(()) } else { Err(Immovable) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_book_knows_its_own_frames_only() {
        let mut book = Book::new(Pfn::new(8), 4);
        assert_eq!(book.insert(Pfn::new(7)), None);
        assert_eq!(book.insert(Pfn::new(12)), None);
        let page = book.insert(Pfn::new(11)).expect("the last frame");
        assert_eq!(book.insert(Pfn::new(11)), None, "taken");
        assert_eq!(book.page_in(Pfn::new(11)), Some(page));
        assert!(!book.relocate(Pfn::new(11), Pfn::new(12)));
        assert!(!book.relocate(Pfn::new(10), Pfn::new(9)));
        let other = book.insert(Pfn::new(10)).expect("free");
        assert!(!book.relocate(Pfn::new(11), Pfn::new(10)), "taken");
        assert_eq!(book.remove(page), Some(Pfn::new(11)));
        assert_eq!(book.remove(page), None);
        assert_eq!(book.insert(Pfn::new(9)), Some(page), "numbers are used again");
        assert_ne!(other, page);
    }

    #[test]
    fn a_mover_refuses_what_it_does_not_know() {
        let mover = Mover::default();
        let migration =
            |order| Migration { from: Pfn::new(1), to: Pfn::new(2), order, may_wait: true };
        // SAFETY: no arena's frames, but this pager touches none.
        let early = unsafe { mover.migrate(&migration(Order::ZERO)) };
        assert_eq!(early, Err(Immovable));
        mover.start(Book::new(Pfn::new(0), 4));
        mover.book().expect("started").insert(Pfn::new(1)).expect("free");
        // SAFETY: as above.
        let large = unsafe { mover.migrate(&migration(Order::HUGE)) };
        assert_eq!(large, Err(Immovable));
        // SAFETY: as above.
        assert_eq!(unsafe { mover.migrate(&migration(Order::ZERO)) }, Ok(()));
        // SAFETY: as above.
        assert_eq!(unsafe { mover.migrate(&migration(Order::ZERO)) }, Err(Immovable));
    }
}

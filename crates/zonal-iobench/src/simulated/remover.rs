//! A thread that removes files: the pages of each that are cached leave the page cache and are freed.

use std::vec;

use zonal_cfq::units::Span;

use super::engine::{AGAIN, Engine, Work};

/// What removing files takes on a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemovalCosts {
    /// A file, besides its pages.
    pub file: Span,
    /// A page that is cached: it leaves the page cache and is freed.
    pub page: Span,
}

/// A remover.
#[derive(Debug)]
pub(super) struct Remover {
    /// The places of the files that are left.
    places: vec::IntoIter<u32>,
    pages: u64,
    costs: RemovalCosts,
    /// The file that could not go yet.
    held: Option<u32>,
}

impl Remover {
    /// One that removes files of that many pages, which are at these places, in this order.
    pub(super) fn of(places: Vec<u32>, pages: u64, costs: RemovalCosts) -> Self {
        Self { places: places.into_iter(), pages, costs, held: None }
    }
}

impl Engine {
    /// Removes the next file; waits where pages of it are on their way to the disk.
    pub(super) fn remove(&mut self, index: usize) {
        let Work::Remove(remover) = &mut self.threads[index].work else { return };
        let Some(place) = remover.held.take().or_else(|| remover.places.next()) else {
            return self.rest(index);
        };
        let (pages, costs) = (remover.pages, remover.costs);
        let first = index as u64 * self.file_pages + u64::from(place) * pages;
        let file = first as u32..(first + pages) as u32;
        if file.clone().any(|page| self.memory.state(page).1) {
            if let Work::Remove(remover) = &mut self.threads[index].work {
                remover.held = Some(place);
            }
            return self.schedule_thread(index, AGAIN);
        }
        let mut cached = 0;
        for page in file {
            let (was_cached, was_dirty) = self.memory.forget(page);
            cached += u64::from(was_cached);
            self.threads[index].dirty -= u64::from(was_dirty);
        }
        self.hits += cached;
        self.schedule_thread(index, costs.file + Span(costs.page.0 * cached));
    }
}

//! The disk: it does one thing after the other.

use crate::machine::Clock;
use crate::mix::page_cache::DISK;
use crate::ticks::Ticks;
use core::cell::Cell;

/// A disk.
#[derive(Debug)]
pub(super) struct Disk {
    page: Ticks,
    free_at: Cell<Ticks>,
}

impl Disk {
    /// A disk, in time by `clock`.
    pub(super) fn new(clock: &Clock) -> Self {
        let page = clock.of_seconds(4096.0 / DISK);
        Self { page, free_at: Cell::default() }
    }

    /// Puts `pages` pages into its queue; when they are done.
    pub(super) fn transfer(&self, now: Ticks, pages: usize) -> Ticks {
        let done = self.free_at.get().max(now) + Ticks(self.page.0 * pages as u64);
        self.free_at.set(done);
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thing_after_the_other() {
        let disk =
            Disk::new(&Clock { nominal_ghz: 1.0, turbo_ghz: Vec::new(), sibling_share: 1.0 });
        let page = disk.transfer(Ticks(0), 1);
        assert_eq!(disk.transfer(Ticks(0), 2).0, 3 * page.0, "it waits for the first");
        let late = Ticks(100 * page.0);
        assert_eq!(disk.transfer(late, 1), late + page, "it was idle");
    }
}

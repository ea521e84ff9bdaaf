//! How far to read ahead: one file, as one of its handles reads it. Source of the idea: the readahead of
//! Linux (2.6.23 and later), whose way this is.
//!
//! A read that goes on where the last one ended, or begins the file, opens a window: twice what was
//! asked for, four pages at least, and no more behind that than the most. The first page that was not asked for is marked.
//! The reader that comes to the mark has the next window read, twice as long, up to the most; its own first page is marked.
//! So the next window is on its way while this one is read. A miss elsewhere closes the window: what is asked
//! for is read, and no more. A miss inside a window says that its pages went before they were used
//! (thrashing): the next is half as long.
//!
//! ```
//! use zonal_cache::window::{Plan, Window};
//! let mut window = Window::new();
//! let first = window.miss(0, 1, 32);
//! assert_eq!(first, Plan { first: 0, pages: 4, marker: Some(1) });
//! assert_eq!(window.marker(1, 32), Plan { first: 4, pages: 8, marker: Some(4) });
//! assert_eq!(window.marker(4, 32), Plan { first: 12, pages: 16, marker: Some(12) });
//! assert_eq!(window.miss(1000, 2, 32), Plan { first: 1000, pages: 2, marker: None });
//! ```

/// Pages to be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Plan {
    /// The first of them.
    pub first: u64,
    /// How many.
    pub pages: u64,
    /// The one whose first reader has the next window read.
    pub marker: Option<u64>,
}

/// The window of a handle: pages that were read ahead.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Window {
    first: u64,
    pages: u64,
    /// The page after the one that was read last.
    next: u64,
    /// Where the request ends that is being read.
    end: u64,
    /// Where the one ended that closed the window.
    closed: u64,
    /// Pages went before they were used: the most from now on.
    thrashed: Option<u64>,
    /// Pages of the request that opened it.
    wanted: u64,
}

/// Pages of the first window.
const LEAST: u64 = 4;

impl Window {
    /// No window yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { first: 0, pages: 0, next: 0, end: 0, closed: 0, thrashed: None, wanted: 0 }
    }

    /// How many pages the request wanted that opened it; 0 where none is open.
    #[must_use]
    pub const fn wanted(&self) -> u64 {
        self.wanted
    }

    /// A read ended before page `next`, and the one that is going on ends before page `end`. It may be read in several parts: that
    /// these follow each other makes no stream.
    pub const fn read_to(&mut self, next: u64, end: u64) {
        (self.next, self.end) = (next, end);
    }

    /// `wanted` pages from `index` on are wanted, of which the first is not there. `most` is how
    /// many may be read behind them; 0 for none.
    pub fn miss(&mut self, index: u64, wanted: u64, most: u64) -> Plan {
        // Not one that was used before: who reads again from the begin does not thrash.
        let unused = index >= self.first.max(self.next);
        let was_ahead = self.pages > 0 && unused && index - self.first < self.pages;
        let goes_on = (index == self.next && index >= self.closed) || was_ahead;
        if !goes_on || most == 0 {
            (self.first, self.pages, self.wanted) = (index, 0, 0);
            (self.closed, self.thrashed) = (self.end, None);
            return Plan { first: index, pages: wanted.max(1), marker: None };
        }
        let pages = if was_ahead {
            let half = (self.pages / 2).max(LEAST);
            self.thrashed = Some(half);
            half
        } else {
            (wanted * 2).next_power_of_two().max(LEAST)
        };
        (self.wanted, self.closed) = (wanted, 0);
        self.open(index, pages.max(wanted), wanted, wanted + self.at_most(most))
    }

    /// The mark of the window was met at `index`: what to read next, `most` pages at most.
    pub fn marker(&mut self, index: u64, most: u64) -> Plan {
        // The mark may be that of a window of another handle.
        let own = self.pages > 0 && index >= self.first && index - self.first < self.pages;
        let (end, pages) =
            if own { (self.first + self.pages, self.pages * 2) } else { (index + 1, LEAST) };
        self.open(end, pages, 0, self.at_most(most))
    }

    /// As much of the last plan as a file of `end` pages has: so much is read ahead, and no more. What comes behind it
    /// when the file has grown was not there before, and did not go.
    pub fn clip(&mut self, plan: Plan, end: u64) -> Plan {
        let pages = plan.pages.min(end.saturating_sub(plan.first));
        self.pages = self.pages.min(pages);
        let marker = plan.marker.filter(|marker| marker.saturating_sub(plan.first) < pages);
        Plan { pages, marker, ..plan }
    }

    fn at_most(&self, most: u64) -> u64 {
        self.thrashed.map_or(most, |less| less.min(most))
    }

    fn open(&mut self, first: u64, pages: u64, wanted: u64, most: u64) -> Plan {
        let pages = pages.min(most).max(1);
        (self.first, self.pages) = (first, pages);
        let marker = (wanted < pages).then_some(first + wanted);
        Plan { first, pages, marker }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_has_windows_that_double_and_join() {
        let mut window = Window::new();
        let mut plan = window.miss(0, 1, 64);
        let mut sizes = alloc::vec![plan.pages];
        for _ in 0..6 {
            let end = plan.first + plan.pages;
            let marker = plan.marker.unwrap();
            assert!(marker < end);
            plan = window.marker(marker, 64);
            assert_eq!(plan.first, end, "no page is left out and none is read twice");
            sizes.push(plan.pages);
        }
        assert_eq!(sizes, [4, 8, 16, 32, 64, 64, 64]);
    }

    #[test]
    fn requests_as_long_as_a_window_have_one_behind_them() {
        for wanted in [63, 64, 65, 200] {
            let mut window = Window::new();
            let plan = window.miss(0, wanted, 64);
            assert_eq!(plan, Plan { first: 0, pages: wanted + 64, marker: Some(wanted) });
            window.read_to(wanted, 2 * wanted);
            let next = window.marker(wanted, 64);
            assert_eq!(
                next,
                Plan { first: plan.first + plan.pages, pages: 64, marker: Some(plan.pages) }
            );
        }
        assert_eq!(Window::new().miss(0, 64, 0), Plan { first: 0, pages: 64, marker: None });
    }

    #[test]
    fn random_reads_get_what_they_asked_for() {
        let mut window = Window::new();
        for index in [5, 900, 17, 3000] {
            let plan = window.miss(index, 2, 64);
            assert_eq!(plan, Plan { first: index, pages: 2, marker: None });
            window.read_to(index + 2, 0);
        }
        assert_eq!(window.miss(3002, 1, 64).pages, 4, "from here on it is a stream");
        window.read_to(3003, 5200);
        for index in [5000, 5064, 5128] {
            assert_eq!(window.miss(index, 64, 64), Plan { first: index, pages: 64, marker: None });
            window.read_to(index + 64, 5200);
        }
        window.read_to(5200, 5204);
        assert_eq!(window.miss(5200, 4, 64).pages, 8, "the next request makes it one");
        assert_eq!(window.miss(3002, 1, 0).pages, 1, "windows are off");
    }

    #[test]
    fn reading_again_is_no_thrashing() {
        let mut window = Window::new();
        assert_eq!(window.miss(0, 32, 1024).pages, 64);
        window.read_to(32, 0);
        assert_eq!(window.miss(0, 32, 1024), Plan { first: 0, pages: 32, marker: None });
        window.read_to(32, 0);
        let plan = window.miss(32, 32, 1024);
        assert_eq!(plan.pages, 64);
        assert_eq!(window.marker(plan.marker.unwrap(), 1024).pages, 128);
    }

    #[test]
    fn where_the_file_ended_nothing_was_read_ahead() {
        let mut window = Window::new();
        let plan = window.miss(0, 1, 64);
        assert_eq!(window.clip(plan, 1), Plan { first: 0, pages: 1, marker: None });
        window.read_to(1, 2);
        let plan = window.miss(1, 1, 64);
        assert_eq!(window.clip(plan, 100), Plan { first: 1, pages: 4, marker: Some(2) });
        let plan = window.marker(2, 64);
        assert_eq!(window.clip(plan, 100).pages, 8, "none went before it was used");
        let plan = window.marker(5, 64);
        assert_eq!(window.clip(plan, 12), Plan { first: 13, pages: 0, marker: None });
    }

    #[test]
    fn thrashing_makes_windows_shorter() {
        let mut window = Window::new();
        let mut plan = window.miss(0, 1, 64);
        for _ in 0..3 {
            plan = window.marker(plan.marker.unwrap(), 64);
        }
        assert_eq!(plan.pages, 32);
        assert_eq!(window.miss(plan.first + 3, 1, 64).pages, 16);
        assert_eq!(window.marker(plan.first + 4, 64).pages, 16, "and it stays so");
    }
}

//! A thread that reads: by windows of readahead, the next of which is asked for when the first page of
//! the one before is there, but not of a file that is not open yet; or a page anywhere.

use std::collections::VecDeque;

use zonal_cfq::units::Span;

use crate::error::IobenchError;
use crate::machine::{COSTS, EXTENT};
use crate::program::Blocks;

use super::engine::{Engine, Work, process};
use super::queue::{Ask, Purpose, Waiter};

/// Pages of a window: 128 KiB, which is Linux's.
const WINDOW: u64 = 32;

/// What is read, window by window.
#[derive(Debug)]
enum Plan {
    /// This number of pages, from the first to the last.
    Whole(u64),
    /// A page at a time, wherever it is.
    Anywhere(Blocks),
    /// Files of a number of pages, one after the other, each from its first to its last; the numbers of
    /// their places on the disk, and what opening one takes.
    Files { places: Vec<u32>, pages: u64, open: Span },
}

impl Plan {
    fn windows(&self) -> u64 {
        match self {
            Self::Whole(pages) => pages.div_ceil(WINDOW),
            Self::Anywhere(blocks) => blocks.clone().count() as u64,
            Self::Files { places, pages, .. } => places.len() as u64 * pages.div_ceil(WINDOW),
        }
    }

    /// The pages of a window. Asked for in order, each once.
    fn range(&mut self, window: u64) -> (u64, u64) {
        let within = |at: u64, pages: u64| (at * WINDOW, ((at + 1) * WINDOW).min(pages));
        match self {
            Self::Whole(pages) => within(window, *pages),
            Self::Anywhere(blocks) => {
                let page = blocks.next().unwrap_or_default();
                (page, page + 1)
            }
            Self::Files { places, pages, .. } => {
                let each = pages.div_ceil(WINDOW);
                let first = u64::from(places[(window / each) as usize]) * *pages;
                let (from, to) = within(window % each, *pages);
                (first + from, first + to)
            }
        }
    }

    /// Whether a window is read ahead when the one before it is there: not of another file.
    fn follows(&self, window: u64) -> bool {
        match self {
            Self::Whole(_) => true,
            Self::Anywhere(_) => false,
            Self::Files { pages, .. } => !window.is_multiple_of(pages.div_ceil(WINDOW)),
        }
    }

    /// What begins with a window, besides reading it.
    fn opening(&self, window: u64) -> Span {
        match self {
            Self::Files { open, .. } if !self.follows(window) => *open,
            _ => Span::ZERO,
        }
    }
}

/// A reader.
#[derive(Debug)]
pub(super) struct Reader {
    plan: Plan,
    /// Windows there are, those that are read, and those that were asked for.
    windows: u64,
    current: u64,
    issued: u64,
    /// Pages of the last even and odd window that was asked for.
    ranges: [(u64, u64); 2],
    /// Of the window that is asked for just now: the pages that were not looked at yet.
    cursor: Option<(u64, u64)>,
    /// What is to be submitted: first page and how many.
    runs: VecDeque<(u32, u32)>,
    /// Pages under way, of even and odd windows.
    left: [u32; 2],
    waiting: bool,
}

impl Reader {
    fn new(plan: Plan) -> Self {
        Self {
            windows: plan.windows(),
            plan,
            current: 0,
            issued: 0,
            ranges: [(0, 0); 2],
            cursor: None,
            runs: VecDeque::new(),
            left: [0; 2],
            waiting: false,
        }
    }

    /// One that reads its pages from the first to the last.
    pub(super) fn whole(pages: u64) -> Self {
        Self::new(Plan::Whole(pages))
    }

    /// One that reads these, each by itself.
    pub(super) fn anywhere(blocks: Blocks) -> Self {
        Self::new(Plan::Anywhere(blocks))
    }

    /// One that reads files of that many pages, which are at these places, in this order.
    pub(super) fn files(places: Vec<u32>, pages: u64, open: Span) -> Self {
        Self::new(Plan::Files { places, pages, open })
    }

    const fn is_sequential(&self) -> bool {
        !matches!(self.plan, Plan::Anywhere(_))
    }

    const fn parity(window: u64) -> usize {
        (window & 1) as usize
    }

    /// Asks for the next window.
    fn begin_issue(&mut self) {
        let range = self.plan.range(self.issued);
        self.ranges[Self::parity(self.issued)] = range;
        self.cursor = Some(range);
        self.issued += 1;
    }

    /// A page has to be read.
    fn miss(&mut self, page: u32) {
        self.left[Self::parity(self.issued - 1)] += 1;
        match self.runs.back_mut() {
            Some((first, count)) if *first + *count == page => *count += 1,
            _ => self.runs.push_back((page, 1)),
        }
    }

    /// Whether the window after the current one should be asked for now.
    fn reads_ahead(&self) -> bool {
        self.issued == self.current + 1
            && self.issued < self.windows
            && self.plan.follows(self.issued)
    }

    /// Of the two windows that may be under way, that of a page.
    fn window_of(&self, at: u64) -> usize {
        let last = Self::parity(self.issued - 1);
        let (first, end) = self.ranges[last];
        if (first..end).contains(&at) { last } else { last ^ 1 }
    }
}

impl Engine {
    fn reader(&mut self, index: usize) -> Option<&mut Reader> {
        match &mut self.threads[index].work {
            Work::Read(reader) => Some(reader),
            _ => None,
        }
    }

    /// A reader goes on.
    pub(super) fn read(&mut self, index: usize) -> Result<(), IobenchError> {
        loop {
            if !self.issue(index)? {
                return Ok(());
            }
            let Some(reader) = self.reader(index) else { return Ok(()) };
            if reader.current == reader.windows {
                self.rest(index);
                return Ok(());
            }
            if reader.issued == reader.current {
                reader.begin_issue();
                continue;
            }
            if reader.left[Reader::parity(reader.current)] > 0 {
                reader.waiting = true;
                return Ok(());
            }
            if reader.reads_ahead() {
                reader.begin_issue();
                continue;
            }
            self.consume(index);
            return Ok(());
        }
    }

    /// Asks for what is not cached of a window; false if that has to wait.
    fn issue(&mut self, index: usize) -> Result<bool, IobenchError> {
        let base = index as u64 * self.file_pages;
        loop {
            let Some(reader) = self.reader(index) else { return Ok(false) };
            let Some((next, end)) = reader.cursor else { break };
            if next == end {
                reader.cursor = None;
                break;
            }
            let page = (base + next) as u32;
            if self.memory.is_cached(page) {
                self.hits += 1;
                if self.reader(index).is_some_and(|reader| !reader.is_sequential()) {
                    self.memory.touch(page);
                }
            } else if self.memory.allocate(page, false).is_some() {
                self.memory.set_locked(page, true);
                if let Some(reader) = self.reader(index) {
                    reader.miss(page);
                }
            } else {
                self.heed_wish();
                if !self.made_room(index) {
                    return Ok(false);
                }
                continue;
            }
            if let Some(reader) = self.reader(index) {
                reader.cursor = Some((next + 1, end));
            }
        }
        self.heed_wish();
        self.submit_runs(index)
    }

    fn submit_runs(&mut self, index: usize) -> Result<bool, IobenchError> {
        while let Some((page, count)) = self.reader(index).and_then(|it| it.runs.front().copied()) {
            // A request does not go over the end of a piece.
            let at = u64::from(page) % self.file_pages;
            let pages = count.min((EXTENT - at % EXTENT) as u32);
            let ask = Ask {
                purpose: Purpose::Read,
                thread: index as u32,
                process: process(index),
                page,
                pages,
                start: self.sector(page),
                sync: true,
            };
            if !self.queue.submit(self.now, &ask, Some(Waiter::Thread(index)))? {
                return Ok(false);
            }
            let Some(reader) = self.reader(index) else { return Ok(false) };
            if pages == count {
                reader.runs.pop_front();
            } else if let Some(run) = reader.runs.front_mut() {
                *run = (page + pages, count - pages);
            }
        }
        Ok(true)
    }

    /// Reads a window that is there.
    fn consume(&mut self, index: usize) {
        let base = index as u64 * self.file_pages;
        let Some(reader) = self.reader(index) else { return };
        let (first, end) = reader.ranges[Reader::parity(reader.current)];
        let (opening, is_sequential) =
            (reader.plan.opening(reader.current), reader.is_sequential());
        reader.current += 1;
        // A page anywhere was touched when it came, or was found.
        for page in (first..end).filter(|_| is_sequential) {
            self.memory.touch((base + page) as u32);
        }
        let cpu = core::mem::take(&mut self.threads[index].cpu);
        self.schedule_thread(index, cpu + opening + Span(COSTS.read.0 * (end - first)));
    }

    /// Pages are there.
    pub(super) fn arrived(&mut self, index: usize, page: u32, pages: u32) {
        let at = u64::from(page) % self.file_pages;
        for page in page..page + pages {
            self.memory.set_locked(page, false);
        }
        let Some(reader) = self.reader(index) else { return };
        let window = reader.window_of(at);
        reader.left[window] -= pages;
        let is_sequential = reader.is_sequential();
        if reader.waiting && reader.left[Reader::parity(reader.current)] == 0 {
            reader.waiting = false;
            self.schedule_thread(index, COSTS.wake);
        }
        if !is_sequential {
            self.memory.touch(page);
        }
    }
}

//! A thread that reads: by windows of readahead, the next of which is asked for when the first page of
//! the one before is there; or a page anywhere.

use std::collections::VecDeque;

use zonal_cfq::units::{Process, Span};

use crate::error::IobenchError;
use crate::machine::{COSTS, EXTENT};
use crate::program::{Blocks, Phase};

use super::engine::{Engine, Work};
use super::queue::{Ask, Purpose, Waiter};

/// Pages of a window: 128 KiB, which is Linux's.
const WINDOW: u64 = 32;

/// A reader.
#[derive(Debug)]
pub(super) struct Reader {
    blocks: Blocks,
    /// Pages that are read at a time.
    window: u64,
    /// Windows there are, those that are read, and those that were asked for.
    windows: u64,
    current: u64,
    issued: u64,
    /// Of the window that is asked for just now: the pages that were not looked at yet.
    cursor: Option<(u64, u64)>,
    /// What is to be submitted: first page and how many.
    runs: VecDeque<(u32, u32)>,
    /// Pages under way, of even and odd windows.
    left: [u32; 2],
    waiting: bool,
}

impl Reader {
    pub(super) fn new(blocks: Blocks, phase: Phase, file_pages: u64) -> Self {
        let (window, windows) = if phase.is_sequential() {
            (WINDOW, file_pages.div_ceil(WINDOW))
        } else {
            (1, blocks.clone().count() as u64)
        };
        Self {
            blocks,
            window,
            windows,
            current: 0,
            issued: 0,
            cursor: None,
            runs: VecDeque::new(),
            left: [0; 2],
            waiting: false,
        }
    }

    const fn is_sequential(&self) -> bool {
        self.window > 1
    }

    const fn parity(window: u64) -> usize {
        (window & 1) as usize
    }

    /// Asks for the next window.
    fn begin_issue(&mut self, file_pages: u64) {
        let first = if self.is_sequential() {
            self.issued * WINDOW
        } else {
            self.blocks.next().unwrap_or_default()
        };
        self.cursor = Some((first, (first + self.window).min(file_pages)));
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
            let file_pages = self.file_pages;
            let Some(reader) = self.reader(index) else { return Ok(()) };
            if reader.current == reader.windows {
                self.rest(index);
                return Ok(());
            }
            if reader.issued == reader.current {
                reader.begin_issue(file_pages);
                continue;
            }
            if reader.left[Reader::parity(reader.current)] > 0 {
                reader.waiting = true;
                return Ok(());
            }
            let is_ahead = reader.issued > reader.current + 1 || reader.issued == reader.windows;
            if reader.is_sequential() && !is_ahead {
                reader.begin_issue(file_pages);
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
                process: Process(index as u32 + 1),
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
        let (base, file_pages) = (index as u64 * self.file_pages, self.file_pages);
        let Some(reader) = self.reader(index) else { return };
        let (first, end) = if reader.is_sequential() {
            let first = reader.current * WINDOW;
            (first, (first + WINDOW).min(file_pages))
        } else {
            // The page that was asked for last.
            (0, 0)
        };
        reader.current += 1;
        let pages = (end - first).max(1);
        for page in first..end {
            self.memory.touch((base + page) as u32);
        }
        let cpu = core::mem::take(&mut self.threads[index].cpu);
        self.schedule_thread(index, cpu + Span(COSTS.read.0 * pages));
    }

    /// Pages are there.
    pub(super) fn arrived(&mut self, index: usize, page: u32, pages: u32) {
        let at = u64::from(page) % self.file_pages;
        for page in page..page + pages {
            self.memory.set_locked(page, false);
        }
        let Some(reader) = self.reader(index) else { return };
        let window = if reader.is_sequential() { at / WINDOW } else { reader.issued - 1 };
        reader.left[Reader::parity(window)] -= pages;
        if reader.waiting && reader.left[Reader::parity(reader.current)] == 0 {
            reader.waiting = false;
            self.schedule_thread(index, COSTS.wake);
        }
        if !matches!(&self.threads[index].work, Work::Read(it) if it.is_sequential()) {
            self.memory.touch(page);
        }
    }
}

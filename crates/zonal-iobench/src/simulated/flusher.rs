//! The flusher: while more is dirty than the background limit, it writes some of each file in turn.

use zonal_cfq::units::{Span, Time};

use crate::error::IobenchError;
use crate::kernel::Reclaim;
use crate::machine::EXTENT;

use super::engine::{Engine, FLUSHER, LARGEST};
use super::queue::{Ask, Purpose, Waiter};

/// Pages that 3.0 writes of a file before the next has its turn.
const CHUNK_3_0: u64 = 1024;

/// The flusher.
#[derive(Debug)]
pub(super) struct Flusher {
    /// The file whose turn it is, what is left of that, and where in each file it is.
    file: usize,
    left: u64,
    cursors: Vec<u64>,
    /// It waits for a place in the queue.
    blocked: bool,
    /// It has a turn already.
    due: bool,
    /// Reclaim wants pages cleaned, however few are dirty.
    pub(super) pressed: bool,
}

impl Flusher {
    pub(super) fn new(files: usize) -> Self {
        let cursors = vec![0; files];
        Self { file: 0, left: 0, cursors, blocked: false, due: false, pressed: false }
    }
}

/// Pages a second that writing back gets done, over some seconds.
#[derive(Debug)]
pub(super) struct Bandwidth {
    mean: f64,
    since: Time,
    pages: u64,
}

impl Default for Bandwidth {
    /// As Linux begins: 100 MiB/s.
    fn default() -> Self {
        Self { mean: 25_600.0, since: Time::ZERO, pages: 0 }
    }
}

impl Bandwidth {
    pub(super) const fn pages_per_second(&self) -> f64 {
        self.mean
    }

    /// This many pages more are written.
    pub(super) fn count(&mut self, now: Time, pages: u64) {
        self.pages += pages;
        let period = now.since(self.since);
        if period < Span::from_millis(200) {
            return;
        }
        let seconds = period.0 as f64 / 1e9;
        // Periods in which it was at rest say nothing.
        if seconds < 1.0 {
            let weight = seconds / 3.0;
            self.mean += (self.pages as f64 / seconds - self.mean) * weight;
        }
        (self.since, self.pages) = (now, 0);
    }
}

impl Engine {
    /// Pages of a file that are dirty and follow each other, from a page of it on.
    pub(super) fn dirty_run(&self, file: usize, from: u64) -> Option<(u32, u32)> {
        let base = file as u64 * self.file_pages;
        // What is on its way already has to arrive before it can go again.
        let is_dirty = |at: &u64| self.memory.state((base + at) as u32) == (true, false);
        let first = (from..self.file_pages).find(is_dirty)?;
        let end = (first / EXTENT + 1) * EXTENT;
        let end = end.min(first + LARGEST).min(self.file_pages);
        let last = (first..end).take_while(is_dirty).last()?;
        Some(((base + first) as u32, (last - first + 1) as u32))
    }

    /// Lets the flusher look whether there is something to do.
    pub(super) fn kick_flusher(&mut self) {
        let (dirty, _) = self.memory.dirty();
        let wanted = self.flusher.pressed || dirty > self.memory.dirty_limits().1;
        if wanted && !self.flusher.blocked && !self.flusher.due {
            self.flusher.due = true;
            self.schedule_flusher();
        }
    }

    /// Pages of a file at a time.
    fn chunk(&self) -> u64 {
        match self.kernel.reclaim {
            Reclaim::V3_0 => CHUNK_3_0,
            // What the disk takes in half a second, in whole 4 MiB.
            Reclaim::V3_16 => {
                let half = (self.bandwidth.pages_per_second() / 2.0) as u64;
                (half + 1024) / 1024 * 1024
            }
        }
    }

    /// The flusher writes until the queue is full, or little is dirty.
    pub(super) fn flush(&mut self) -> Result<(), IobenchError> {
        (self.flusher.blocked, self.flusher.due) = (false, false);
        loop {
            let (dirty, _) = self.memory.dirty();
            if dirty == 0 || (dirty <= self.memory.dirty_limits().1 && !self.flusher.pressed) {
                self.flusher.pressed = false;
                return Ok(());
            }
            let file = self.flusher.file;
            if self.flusher.left == 0 || self.threads[file].dirty == 0 {
                let files = self.threads.len();
                let next = (1..=files).map(|step| (file + step) % files);
                let next = next.into_iter().find(|file| self.threads[*file].dirty > 0);
                let Some(next) = next else { return Ok(()) };
                (self.flusher.file, self.flusher.left) = (next, self.chunk());
                continue;
            }
            let Some((page, pages)) = self.dirty_run(file, self.flusher.cursors[file]) else {
                if self.flusher.cursors[file] == 0 {
                    return Ok(());
                }
                // From the beginning again.
                self.flusher.cursors[file] = 0;
                continue;
            };
            let ask = Ask {
                purpose: Purpose::Write,
                thread: file as u32,
                process: FLUSHER,
                page,
                pages,
                start: self.sector(page),
                sync: false,
            };
            if !self.queue.submit(self.now, &ask, Some(Waiter::Flusher))? {
                self.flusher.blocked = true;
                return Ok(());
            }
            (page..page + pages).for_each(|page| self.begins_writeback(page));
            self.flusher.cursors[file] = u64::from(page + pages) - file as u64 * self.file_pages;
            self.flusher.left = self.flusher.left.saturating_sub(u64::from(pages));
        }
    }
}

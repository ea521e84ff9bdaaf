//! A thread that writes: it dirties pages as fast as it can copy, is slowed down where too much is
//! dirty, and calls fsync at the end where the program does.

use zonal_cfq::units::{Sectors, Span};

use crate::error::IobenchError;
use crate::kernel::Reclaim;
use crate::machine::COSTS;
use crate::program::Blocks;

use super::engine::{Engine, Work, process};
use super::queue::{Ask, Purpose, Waiter};

/// Blocks between which other tasks may come in.
const STEP: usize = 32;
/// Pages that a task of 3.0 dirties before it looks at the limits.
const RATE_LIMIT: u64 = 1024;
/// How long a task of 3.16 is to be paused at a time.
const PAUSE: Span = Span::from_millis(100);
/// The longest pause.
const LONGEST_PAUSE: Span = Span::from_millis(200);

/// Where a writer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Write,
    /// It has what is dirty written, from this page of its file on.
    Sync(u64),
    /// It waits until what is under way is written.
    Wait,
    /// It waits for the log, and then for the disk's cache.
    Log,
    Flush,
}

/// A writer.
#[derive(Debug)]
pub(super) struct Writer {
    blocks: Blocks,
    /// The block that there was no room for.
    held: Option<u64>,
    stage: Stage,
    /// Dirtied since the limits were looked at.
    dirtied: u64,
    /// The last pause of 3.0, which grow.
    pause: Span,
    /// Whether what was written is flushed at the end.
    flushes: bool,
    /// Pages of each of the files that the blocks are of, and what making one takes.
    file: Option<(u64, Span)>,
}

impl Writer {
    /// One that dirties these pages, and leaves it at that.
    pub(super) const fn of(blocks: Blocks) -> Self {
        let (held, stage, dirtied) = (None, Stage::Write, 0);
        Self { blocks, held, stage, dirtied, pause: Span::ZERO, flushes: false, file: None }
    }

    /// With an fsync at the end.
    pub(super) const fn then_flush(self) -> Self {
        Self { flushes: true, ..self }
    }

    /// In files of this many pages, each of which takes so long to make.
    pub(super) const fn in_files(self, pages: u64, make: Span) -> Self {
        Self { file: Some((pages, make)), ..self }
    }

    /// What a page takes besides being copied.
    fn making(&self, block: u64) -> Span {
        self.file.filter(|(pages, _)| block.is_multiple_of(*pages)).map_or(Span::ZERO, |it| it.1)
    }
}

impl Engine {
    fn writer(&mut self, index: usize) -> Option<&mut Writer> {
        match &mut self.threads[index].work {
            Work::Write(writer) => Some(writer),
            _ => None,
        }
    }

    /// A writer goes on.
    pub(super) fn write(&mut self, index: usize) -> Result<(), IobenchError> {
        match self.writer(index).map(|writer| writer.stage) {
            Some(Stage::Write) => {
                self.write_blocks(index);
                Ok(())
            }
            Some(Stage::Sync(from)) => self.sync(index, from),
            Some(Stage::Log) => self.write_log(index),
            Some(Stage::Wait | Stage::Flush) | None => Ok(()),
        }
    }

    fn set_stage(&mut self, index: usize, stage: Stage) {
        if let Some(writer) = self.writer(index) {
            writer.stage = stage;
        }
    }

    fn write_blocks(&mut self, index: usize) {
        let base = index as u64 * self.file_pages;
        let mut pause = self.balance(index);
        if pause == Span::ZERO {
            for _ in 0..STEP {
                let Some(writer) = self.writer(index) else { return };
                let Some(block) = writer.held.take().or_else(|| writer.blocks.next()) else {
                    match (writer.flushes, pause) {
                        (true, _) => self.set_stage(index, Stage::Sync(0)),
                        (false, Span::ZERO) => return self.rest(index),
                        // It rests when the time of its last pages is over.
                        (false, _) => {}
                    }
                    break;
                };
                let page = (base + block) as u32;
                if !self.memory.is_cached(page) {
                    while self.memory.allocate(page, true).is_none() {
                        self.heed_wish();
                        if !self.made_room(index) {
                            if let Some(writer) = self.writer(index) {
                                writer.held = Some(block);
                            }
                            return;
                        }
                    }
                }
                let was_clean = self.memory.set_dirty(page);
                self.memory.touch(page);
                self.threads[index].dirty += u64::from(was_clean);
                pause += COSTS.write;
                if let Some(writer) = self.writer(index) {
                    writer.dirtied += 1;
                    pause += writer.making(block);
                }
            }
        }
        self.heed_wish();
        self.kick_flusher();
        let cpu = core::mem::take(&mut self.threads[index].cpu);
        self.schedule_thread(index, pause + cpu);
    }

    /// How long a writer has to wait for the disk now.
    fn balance(&mut self, index: usize) -> Span {
        let (limit, background) = self.memory.dirty_limits();
        let (dirty, writeback) = self.memory.dirty();
        let (there, free_run) = (dirty + writeback, limit.midpoint(background));
        let threads = self.threads.len() as f64;
        // Pages a second for this task where as much is dirty as should be.
        let own = self.bandwidth.pages_per_second() / threads;
        let rules = self.kernel.reclaim;
        let Some(writer) = self.writer(index) else { return Span::ZERO };
        if there <= free_run {
            (writer.dirtied, writer.pause) = (0, Span::ZERO);
            return Span::ZERO;
        }
        match rules {
            Reclaim::V3_0 => {
                if writer.dirtied < RATE_LIMIT && writer.pause == Span::ZERO {
                    return Span::ZERO;
                }
                if there <= limit {
                    (writer.dirtied, writer.pause) = (0, Span::ZERO);
                    return Span::ZERO;
                }
                // Twice as long each time, up to the longest.
                writer.pause = Span((writer.pause.0 * 2).clamp(1_000_000, PAUSE.0));
                writer.pause
            }
            Reclaim::V3_16 => {
                let aim = free_run.midpoint(limit) as f64;
                let off = (aim - there as f64) / (limit as f64 - aim).max(1.0);
                let ratio = (1.0 + off.powi(3)).clamp(0.02, 2.0);
                let rate = own * ratio;
                let burst = (rate * PAUSE.0 as f64 / 1e9).max(STEP as f64);
                if (writer.dirtied as f64) < burst {
                    return Span::ZERO;
                }
                let pause = Span((writer.dirtied as f64 / rate * 1e9) as u64);
                writer.dirtied = 0;
                pause.min(LONGEST_PAUSE)
            }
        }
    }

    /// Submits what is dirty of a file, as writes that are waited for.
    fn sync(&mut self, index: usize, from: u64) -> Result<(), IobenchError> {
        let mut from = from;
        while self.threads[index].dirty > 0 {
            let Some((page, pages)) = self.dirty_run(index, from) else { break };
            let ask = Ask {
                purpose: Purpose::Write,
                thread: index as u32,
                process: process(index),
                page,
                pages,
                start: self.sector(page),
                sync: true,
            };
            if !self.queue.submit(self.now, &ask, Some(Waiter::Thread(index)))? {
                self.set_stage(index, Stage::Sync(from));
                return Ok(());
            }
            (page..page + pages).for_each(|page| self.begins_writeback(page));
            from = u64::from(page + pages) - index as u64 * self.file_pages;
        }
        if self.threads[index].writeback > 0 {
            self.set_stage(index, Stage::Wait);
            return Ok(());
        }
        self.set_stage(index, Stage::Log);
        self.write_log(index)
    }

    /// 32 KiB of the log, at its beginning: where it is hardly matters.
    fn write_log(&mut self, index: usize) -> Result<(), IobenchError> {
        let pages = 8;
        let ask = Ask {
            purpose: Purpose::Log,
            thread: index as u32,
            process: process(index),
            page: 0,
            pages,
            // Records of several threads follow each other.
            start: self.log() + Sectors(index as u32 % 16 * pages * 8),
            sync: true,
        };
        if self.queue.submit(self.now, &ask, Some(Waiter::Thread(index)))? {
            self.set_stage(index, Stage::Flush);
        }
        Ok(())
    }

    /// The log's record is written.
    pub(super) fn logged(&mut self, index: usize) {
        self.queue.flush(index);
    }

    /// All is on the medium.
    pub(super) fn flushed(&mut self, index: usize) {
        self.rest(index);
    }

    /// Pages of a file are written.
    pub(super) fn written(&mut self, page: u32, pages: u32) {
        let file = (u64::from(page) / self.file_pages) as usize;
        (page..page + pages).for_each(|page| self.memory.end_writeback(page));
        self.threads[file].writeback -= u64::from(pages);
        self.bandwidth.count(self.now, u64::from(pages));
        let waits = self.writer(file).is_some_and(|writer| writer.stage == Stage::Wait);
        if waits && self.threads[file].writeback == 0 {
            // What was dirtied again on its way is left.
            self.set_stage(file, Stage::Sync(0));
            self.schedule_thread(file, COSTS.wake);
        }
    }
}

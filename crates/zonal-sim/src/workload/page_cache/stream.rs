//! A stream: a file that is written, read and deleted.

use super::cache::{Cache, Page};
use crate::engine;
use crate::host::Frames;
use crate::mix::PAGEVEC;
use crate::mix::page_cache::{AGAIN_MS, BEGIN_MS, PAUSE_MS, TRIES, WINDOW};
use crate::task::{Task, count, idle};
use fastrand::Rng;
use zonal::{MigrateType, Request, ZoneType};

/// The pages of one file, and who works on it.
pub(super) struct Stream<'a> {
    task: Task<'a>,
    random: Rng,
    cache: &'a Cache,
    frames: &'a dyn Frames,
    /// The file, as far as it was ever cached.
    file: Vec<Option<Page>>,
    /// Pages that are not on the LRU lists yet.
    unlisted: Vec<Page>,
}

impl<'a> Stream<'a> {
    pub(super) fn new(
        task: Task<'a>,
        random: Rng,
        cache: &'a Cache,
        frames: &'a dyn Frames,
        pages: usize,
    ) -> Self {
        Self { task, random, cache, frames, file: vec![None; pages], unlisted: Vec::new() }
    }

    /// Writes the file, reads it, deletes it, with all streams in step.
    pub(super) fn round(&mut self) {
        self.begin();
        self.write();
        self.begin();
        self.read();
        self.begin();
        self.delete();
    }

    /// Threads do not start at the same moment.
    fn begin(&mut self) {
        self.cache.meet();
        idle(self.cache.ms(BEGIN_MS * self.random.f64()));
    }

    /// A page of the cache; `None` if there is no memory however often one asks.
    fn page(&mut self, request: &Request) -> Option<Page> {
        let cpu = self.task.cpu as usize;
        for _ in 0..TRIES {
            let (began, reclaiming) = (engine::now(), self.cache.reclaiming(cpu));
            let pfn = self.task.cache_page(request);
            let reclaimed = self.cache.reclaiming(cpu) - reclaiming;
            self.cache.count_request((engine::now() - began).since(reclaimed), pfn.is_ok());
            if let Ok(pfn) = pfn {
                let page = self.cache.enter(pfn);
                self.unlisted.push(page);
                count("pages", 1);
                return Some(page);
            }
            // All that could be freed is on its way to the disk.
            idle(self.cache.ms(AGAIN_MS));
        }
        count("failures", 1);
        None
    }

    fn list(&mut self) {
        for batch in self.unlisted.chunks(PAGEVEC) {
            self.cache.list(self.frames, self.task.cpu, batch);
        }
        self.unlisted.clear();
    }

    fn write(&mut self) {
        let request = file_page().write();
        for at in 0..self.file.len() {
            if at.is_multiple_of(WINDOW) {
                while self.cache.is_throttled() {
                    self.list();
                    self.cache.wake_flusher(false);
                    idle(self.cache.ms(PAUSE_MS));
                }
            }
            self.task.copy_page();
            let page = self.page(&request);
            if let Some(page) = page {
                self.cache.dirty(self.frames, page);
            }
            self.file[at] = page;
            if self.unlisted.len() >= PAGEVEC {
                self.list();
            }
        }
        self.list();
    }

    fn read(&mut self) {
        for from in (0..self.file.len()).step_by(WINDOW) {
            let to = (from + WINDOW).min(self.file.len());
            let mut missing = 0;
            for at in from..to {
                if self.file[at].is_none_or(|page| !self.cache.has(page)) {
                    self.file[at] = self.page(&file_page());
                    missing += 1;
                }
            }
            if missing > 0 {
                let done = self.cache.disk.transfer(engine::now(), missing);
                self.list();
                idle(done.since(engine::now()));
            }
            (from..to).for_each(|_| self.task.copy_page());
        }
    }

    fn delete(&mut self) {
        let file: Vec<Page> = self.file.iter_mut().filter_map(Option::take).collect();
        for batch in file.chunks(PAGEVEC) {
            while batch.iter().any(|page| self.cache.is_written_back(*page)) {
                idle(self.cache.ms(AGAIN_MS));
            }
            let frames = self.cache.leave(self.frames, batch);
            self.task.lru.delete(&self.task.pages, self.task.cpu, &frames);
            self.task.give_list(&frames);
        }
    }
}

/// What page cache asks for.
const fn file_page() -> Request {
    Request::frame().migrate(MigrateType::Movable).zone_limit(ZoneType::Movable)
}

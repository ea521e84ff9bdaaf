//! The virtual clock, and what happens on it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use zonal_cfq::units::{Process, Sector, Span, Time};
use zonal_disk::builtin;

use crate::error::IobenchError;
use crate::iostat::{INTERVAL, Iostat};
use crate::kernel::Kernel;
use crate::machine::{COSTS, EXTENT, LEAST_FRAMES, Machine};
use crate::memory::{Kswapd, Memory, Step, ZoneName};
use crate::program::{Phase, Tiobench};

use super::flusher::{Bandwidth, Flusher};
use super::queue::{Ask, Done, Purpose, Queue, Waiter};
use super::reader::Reader;
use super::remover::Remover;
use super::writer::Writer;
use super::{Outcome, PhaseOutcome};

/// What a thread is at.
#[derive(Debug)]
pub(super) enum Work {
    Rest,
    Read(Reader),
    Write(Writer),
    Remove(Remover),
}

/// A thread and its file.
#[derive(Debug)]
pub(super) struct Thread {
    pub(super) work: Work,
    /// Time of the CPU that is not waited for yet.
    pub(super) cpu: Span,
    /// Dirty pages of the file, and pages on their way to the disk.
    pub(super) dirty: u64,
    pub(super) writeback: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Thread(usize),
    Flusher,
    Kswapd(Time),
    Sample,
}

/// The process of a thread.
pub(super) const fn process(thread: usize) -> Process {
    Process(thread as u32 + 1)
}

/// Processes that are no threads.
pub(super) const FLUSHER: Process = Process(1_000_000);
const KSWAPD: Process = Process(1_000_001);
/// What a task waits that can do nothing but wait.
pub(super) const AGAIN: Span = Span::from_millis(20);
/// Tries in a row, of all threads, that found nothing to reclaim, after which nothing will come:
/// 20 s for each of the most threads.
const FRUITLESS: u64 = 1000 * 1024;
/// Pages of the largest request: 512 KiB.
pub(super) const LARGEST: u64 = 128;

pub(super) struct Engine {
    pub(super) kernel: Kernel,
    pub(super) now: Time,
    pub(super) queue: Queue,
    pub(super) memory: Memory,
    pub(super) threads: Vec<Thread>,
    pub(super) flusher: Flusher,
    pub(super) bandwidth: Bandwidth,
    pub(super) file_pages: u64,
    pub(super) hits: u64,
    pub(super) direct: u64,
    /// Tries in a row to reclaim that freed nothing.
    fruitless: u64,
    kswapd: Kswapd,
    kswapd_due: Option<Time>,
    events: BinaryHeap<Reverse<(Time, u64, Event)>>,
    order: u64,
    iostat: Iostat,
}

impl Engine {
    /// A machine with nothing cached, and a number of threads, each with a number of pages of files on the
    /// disk.
    pub(super) fn new(
        machine: &Machine,
        kernel: &Kernel,
        threads: u32,
        file_pages: u64,
    ) -> Result<Self, IobenchError> {
        if machine.frames < LEAST_FRAMES {
            let (bytes, least) = (machine.frames * 4096, LEAST_FRAMES * 4096);
            return Err(IobenchError::Memory { bytes, least });
        }
        let name = machine.disk;
        let disk = builtin(name).ok_or_else(|| IobenchError::UnknownDisk(name.into()))?;
        let pages = file_pages.saturating_mul(threads.into());
        // Behind the files is the log.
        let extents = file_pages.div_ceil(EXTENT).saturating_mul(threads.into()).saturating_add(1);
        let (bytes, capacity) = (extents.saturating_mul(EXTENT * 4096), disk.capacity().bytes());
        if bytes > capacity || pages >= u64::from(u32::MAX) {
            return Err(IobenchError::Size { bytes, capacity });
        }
        let thread = |_| Thread { work: Work::Rest, cpu: Span::ZERO, dirty: 0, writeback: 0 };
        let mut engine = Self {
            kernel: *kernel,
            now: Time::ZERO,
            queue: Queue::new(&disk, kernel.target_ms),
            memory: Memory::new(machine, kernel, pages as usize),
            threads: (0..threads).map(thread).collect(),
            flusher: Flusher::new(threads as usize),
            bandwidth: Bandwidth::default(),
            file_pages,
            hits: 0,
            direct: 0,
            fruitless: 0,
            kswapd: Kswapd::default(),
            kswapd_due: None,
            events: BinaryHeap::new(),
            order: 0,
            iostat: Iostat::default(),
        };
        engine.schedule(engine.now + INTERVAL, Event::Sample);
        Ok(engine)
    }

    /// All phases of tiobench.
    pub(super) fn run(mut self, tiobench: &Tiobench) -> Result<Outcome, IobenchError> {
        let mut outcome = Outcome::default();
        for phase in Phase::ALL {
            outcome.phases[phase as usize] = self.phase(tiobench, phase)?;
        }
        for zone in [ZoneName::Dma32, ZoneName::Normal] {
            outcome.allocated[zone as usize] = self.memory.zone(zone).allocated;
            outcome.scanned[zone as usize] = self.memory.zone(zone).scanned;
        }
        outcome.iostat = self.iostat;
        outcome.elapsed = self.now.since(Time::ZERO);
        outcome.kswapd = (self.kswapd.woken, self.kswapd.went_on);
        outcome.direct = self.direct;
        Ok(outcome)
    }

    /// All threads do a phase.
    fn phase(&mut self, tiobench: &Tiobench, phase: Phase) -> Result<PhaseOutcome, IobenchError> {
        let mut blocks = 0;
        for index in 0..self.threads.len() {
            let program = tiobench.blocks(phase, index as u32);
            blocks += program.clone().count() as u64;
            let work = if phase.writes() {
                Work::Write(Writer::of(program).then_flush())
            } else if phase.is_sequential() {
                Work::Read(Reader::whole(self.file_pages))
            } else {
                Work::Read(Reader::anywhere(program))
            };
            // Threads do not begin at the same moment.
            self.begin(index, work, Span::from_micros(50 * index as u64));
        }
        self.run_to_end(blocks)
    }

    /// As [`run_to_rest`](Self::run_to_rest), of threads that end when they are done: the next phase has others.
    fn run_to_end(&mut self, blocks: u64) -> Result<PhaseOutcome, IobenchError> {
        let mut at_work: Vec<usize> = (0..self.threads.len()).collect();
        self.turns_to_rest(blocks, |engine| {
            engine.turn()?;
            let before = at_work.len();
            at_work.retain(|&index| {
                let rests = engine.rests(index);
                if rests {
                    engine.queue.exited(engine.now, process(index));
                }
                !rests
            });
            // What it kept the disk for is over.
            if at_work.len() < before { engine.queue.feed(engine.now) } else { Ok(()) }
        })
    }

    /// Gives a thread that rests something to do, after so long.
    pub(super) fn begin(&mut self, index: usize, work: Work, after: Span) {
        self.threads[index].work = work;
        self.schedule_thread(index, after);
    }

    /// Whether a thread is done with what it was given.
    pub(super) fn rests(&self, index: usize) -> bool {
        matches!(self.threads[index].work, Work::Rest)
    }

    /// Goes on until all threads rest, which then have done this many blocks.
    pub(super) fn run_to_rest(&mut self, blocks: u64) -> Result<PhaseOutcome, IobenchError> {
        self.turns_to_rest(blocks, Self::turn)
    }

    fn turns_to_rest(
        &mut self,
        blocks: u64,
        mut turn: impl FnMut(&mut Self) -> Result<(), IobenchError>,
    ) -> Result<PhaseOutcome, IobenchError> {
        let (began, hits) = (self.now, self.hits);
        while (0..self.threads.len()).any(|index| !self.rests(index)) {
            turn(self)?;
        }
        Ok(PhaseOutcome { blocks, elapsed: self.now.since(began), hits: self.hits - hits })
    }

    /// What happens next.
    pub(super) fn turn(&mut self) -> Result<(), IobenchError> {
        let first = self.events.peek().map(|Reverse((at, ..))| *at);
        let Some(at) = first.into_iter().chain(self.queue.next_event()).min() else {
            return Err(IobenchError::Stuck(self.threads.len()));
        };
        self.now = self.now.max(at);
        let (mut done, mut woken) = (Vec::new(), Vec::new());
        self.queue.poll(self.now, &mut done, &mut woken);
        for it in done {
            self.ended(it);
        }
        for waiter in woken {
            match waiter {
                Waiter::Thread(index) => self.schedule_thread(index, Span::ZERO),
                Waiter::Flusher => self.schedule(self.now, Event::Flusher),
            }
        }
        while let Some(Reverse((at, _, event))) = self.events.peek().copied() {
            if at > self.now {
                break;
            }
            self.events.pop();
            self.happens(event)?;
        }
        if self.fruitless > FRUITLESS {
            return Err(IobenchError::Stuck(self.threads.len()));
        }
        self.queue.feed(self.now)
    }

    fn happens(&mut self, event: Event) -> Result<(), IobenchError> {
        match event {
            Event::Thread(index) => match &self.threads[index].work {
                Work::Read(_) => self.read(index),
                Work::Write(_) => self.write(index),
                Work::Remove(_) => {
                    self.remove(index);
                    Ok(())
                }
                Work::Rest => Ok(()),
            },
            Event::Flusher => self.flush(),
            Event::Kswapd(due) if self.kswapd_due == Some(due) => self.reclaim(),
            Event::Kswapd(_) => Ok(()),
            Event::Sample => {
                self.queue.feed(self.now)?;
                self.iostat.sample(self.queue.counters());
                self.schedule(self.now + INTERVAL, Event::Sample);
                Ok(())
            }
        }
    }

    fn schedule(&mut self, at: Time, event: Event) {
        self.order += 1;
        self.events.push(Reverse((at, self.order, event)));
    }

    /// A thread goes on after so long.
    pub(super) fn schedule_thread(&mut self, index: usize, after: Span) {
        self.schedule(self.now + after, Event::Thread(index));
    }

    pub(super) fn schedule_flusher(&mut self) {
        self.schedule(self.now, Event::Flusher);
    }

    /// A thread is done with what it was given.
    pub(super) fn rest(&mut self, index: usize) {
        self.threads[index].work = Work::Rest;
    }

    /// Wakes reclaim if a request wanted it.
    pub(super) fn heed_wish(&mut self) {
        if self.memory.takes_wish() && self.kswapd.wake() {
            self.kswapd_due = Some(self.now + COSTS.wake);
            self.schedule(self.now + COSTS.wake, Event::Kswapd(self.now + COSTS.wake));
        }
    }

    /// A step of background reclaim.
    fn reclaim(&mut self) -> Result<(), IobenchError> {
        let step = self.kswapd.step(&mut self.memory, self.now);
        self.kswapd_due = match step {
            Step::Work(pages) => Some(self.now + Span(COSTS.scan.0 * pages.max(1))),
            Step::Nap(until) | Step::Wait(until) => Some(until),
            Step::Asleep => None,
        };
        if let Some(due) = self.kswapd_due {
            self.schedule(due, Event::Kswapd(due));
        }
        self.write_pageouts()?;
        if core::mem::take(&mut self.memory.pressed) {
            self.flusher.pressed = true;
            self.kick_flusher();
        }
        Ok(())
    }

    /// What reclaim of 3.0 wants written, page by page; what has no place in the queue stays dirty.
    fn write_pageouts(&mut self) -> Result<(), IobenchError> {
        for page in core::mem::take(&mut self.memory.pageouts) {
            let thread = (u64::from(page) / self.file_pages) as u32;
            let start = self.sector(page);
            let ask = Ask {
                purpose: Purpose::Write,
                thread,
                process: KSWAPD,
                page,
                pages: 1,
                start,
                sync: false,
            };
            if self.memory.state(page) == (true, false)
                && self.queue.submit(self.now, &ask, None)?
            {
                self.begins_writeback(page);
            }
        }
        Ok(())
    }

    /// A page that is dirty is on its way.
    pub(super) fn begins_writeback(&mut self, page: u32) {
        if self.memory.begin_writeback(page) {
            let file = (u64::from(page) / self.file_pages) as usize;
            self.threads[file].dirty -= 1;
            self.threads[file].writeback += 1;
        }
    }

    /// Makes room for a thread that found none; false if there is none to be had just now, and then
    /// the thread goes on later.
    pub(super) fn made_room(&mut self, index: usize) -> bool {
        let shrunk = self.memory.reclaim_directly();
        self.direct += shrunk.scanned;
        self.threads[index].cpu += Span(COSTS.scan.0 * shrunk.scanned);
        self.fruitless = if shrunk.freed == 0 { self.fruitless + 1 } else { 0 };
        if shrunk.freed == 0 {
            self.flusher.pressed = true;
            self.kick_flusher();
            self.schedule_thread(index, AGAIN);
        }
        shrunk.freed > 0
    }

    /// Where a page is on the disk: files grow side by side, piece by piece.
    pub(super) fn sector(&self, page: u32) -> Sector {
        let (file, at) = (u64::from(page) / self.file_pages, u64::from(page) % self.file_pages);
        let piece = at / EXTENT * self.threads.len() as u64 + file;
        Sector((piece * EXTENT + at % EXTENT) * 8)
    }

    /// Where the log is.
    pub(super) fn log(&self) -> Sector {
        let pieces = self.file_pages.div_ceil(EXTENT) * self.threads.len() as u64;
        Sector(pieces * EXTENT * 8)
    }

    fn ended(&mut self, done: Done) {
        match done {
            Done::Flush(thread) => self.flushed(thread),
            Done::Pages { purpose: Purpose::Read, thread, page, pages } => {
                self.arrived(thread as usize, page, pages);
            }
            Done::Pages { purpose: Purpose::Log, thread, .. } => self.logged(thread as usize),
            Done::Pages { purpose: Purpose::Write, page, pages, .. } => {
                self.written(page, pages);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::MACHINES;

    #[test]
    fn no_thread_is_waited_for_that_ended_with_its_phase() {
        let machine = Machine { frames: MACHINES[0].frames / 100, ..MACHINES[0] };
        let kernel = Kernel::named("3.16-rc1").expect("it is in the tables");
        let tiobench = Tiobench { threads: 2, pages: 2 * machine.frames, random: 5, seed: 1 };
        let engine = Engine::new(&machine, &kernel, 2, tiobench.file_pages());
        let mut engine = engine.expect("it fits");
        for phase in Phase::ALL {
            engine.phase(&tiobench, phase).expect("it ends");
            let waits = engine.queue.next_event().filter(|_| !phase.writes());
            assert_eq!(
                waits, None,
                "{phase:?}: the scheduler keeps the disk for one that reads no more"
            );
        }
    }
}

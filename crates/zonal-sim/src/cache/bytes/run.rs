//! What the virtual CPUs do, and what is compared after each step.

use super::disk::{ByteFile, Counts};
use super::frames::ByteFrames;
use super::model::{Change, END, Ended, Model, PAGES};
use super::{CPUS, Lie};
use crate::any_allocator::AnyAllocator;
use crate::cache::{Disk, keep_writing};
use crate::coroutine::Body;
use crate::engine;
use crate::machine::Machine;
use crate::platform::Sim;
use core::cell::{Cell, RefCell};
use core::marker::PhantomData;
use core::ops::Range;
use core::time::Duration;
use std::sync::Arc;
use zonal_cache::cache::Options;
use zonal_cache::evict::Evict;
use zonal_cache::frames::PAGE;
use zonal_cache::host::Host;
use zonal_cache::lru::Whole;
use zonal_cache::store::StoreError;
use zonal_cache::{Advice, CacheError, File, PageCache, Pinned, Setup, Stats};

/// Pages that the cache may have at first, and at most.
const BOUND: usize = 28;
const MOST: usize = 40;
/// Steps of each virtual CPU.
const STEPS: u32 = 40;
/// Ranges that a virtual CPU has pinned at most, each in two pages at most.
const PINS: usize = 2;

/// Says that what was expected is not so.
macro_rules! ensure {
    ($condition:expr, $($said:tt)+) => {
        if !$condition {
            return Err(format!($($said)+));
        }
    };
}

/// The parts of a cache whose frames have bytes.
pub(super) struct WithBytes<E>(PhantomData<fn() -> E>);

impl<E: Evict> Setup for WithBytes<E> {
    type Host = Sim;
    type Frames = ByteFrames;
    type Evict = E;
    type Lru = Whole;
}

type Handle<E> = File<WithBytes<E>>;
type Pins<'a, E> = Vec<(Pinned<'a, WithBytes<E>>, Vec<u8>)>;

/// What a run is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Case {
    pub(super) seed: u64,
    /// Whether the disk has faults.
    pub(super) faulty: bool,
    pub(super) lie: Lie,
}

/// What a run had, to see that it had something of all.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Had {
    pub(super) evicted: u64,
    pub(super) written: u64,
    pub(super) copied: u64,
    pub(super) counts: Counts,
    /// Looks at bytes that were being changed, or had been meanwhile.
    pub(super) choices: u64,
    pub(super) lost: u64,
    pub(super) blocks: usize,
    /// When the last virtual CPU was over.
    pub(super) end: u64,
}

impl Had {
    pub(super) const fn with(self, other: Self) -> Self {
        Self {
            evicted: self.evicted + other.evicted,
            written: self.written + other.written,
            copied: self.copied + other.copied,
            counts: self.counts.with(other.counts),
            choices: self.choices + other.choices,
            lost: self.lost + other.lost,
            blocks: self.blocks + other.blocks,
            end: self.end + other.end,
        }
    }
}

struct One {
    disk: Arc<ByteFile>,
    model: RefCell<Model>,
}

struct World<E: Evict> {
    cache: PageCache<WithBytes<E>>,
    files: [One; 2],
    case: Case,
    /// What went wrong first.
    wrong: RefCell<Option<String>>,
    /// Virtual CPUs that are at it.
    left: Cell<usize>,
    /// Reads that each file's disk had failed when a virtual CPU began its step.
    since: [Cell<[u64; 2]>; CPUS],
    sim: Sim,
    blocks: Cell<usize>,
    /// When the last virtual CPU was over.
    over: Cell<u64>,
}

/// A virtual CPU and what it has.
struct Worker<'w, E: Evict> {
    world: &'w World<E>,
    handles: &'w [Handle<E>; 2],
    pins: Pins<'w, E>,
    cpu: usize,
    dice: fastrand::Rng,
}

/// Runs a case with an allocator, whose frames are all there again at the end; `all` runs the bodies.
pub(super) fn run<E: Evict>(
    allocator: &dyn AnyAllocator,
    machine: &Machine,
    case: Case,
    all: impl FnOnce(Vec<Body<'_>>) -> Result<(), String>,
) -> Result<Had, String> {
    let free = || allocator.zones().map(|zone| zone.free + zone.cached).sum::<u64>();
    let before = free();
    let options =
        Options { pages: BOUND, most_pages: MOST, window: 8, block: Some(4), ..Options::default() };
    let cache = PageCache::<WithBytes<E>>::with_parts(
        Sim::new(machine.topology),
        ByteFrames::new(case.lie),
        options,
    );
    let disk = Arc::new(Disk::new(&machine.clock));
    let files = [0, 1].map(|number: u64| {
        let (model, bytes) = Model::new(PAGES - 8 * number);
        let disk = ByteFile::new(&disk, bytes, case.seed * 2 + number, case.lie);
        One { disk, model: RefCell::new(model) }
    });
    let world = World {
        cache: cache.map_err(|error| error.to_string())?,
        files,
        case,
        wrong: RefCell::new(None),
        left: Cell::new(CPUS),
        since: [const { Cell::new([u64::MAX; 2]) }; CPUS],
        sim: Sim::new(machine.topology),
        blocks: Cell::new(0),
        over: Cell::new(0),
    };
    let open = |one: &One| world.cache.open(one.disk.clone()).expect("it has a length");
    let handles = world.files.each_ref().map(open);
    world.set_faulty(case.faulty);
    let workers = (0..CPUS).map(|cpu| {
        let own = [handles[0].clone(), handles[1].clone()];
        let world = &world;
        Box::new(move || world.work(cpu, &own)) as Body<'_>
    });
    let behind = Box::new(|| {
        keep_writing(&world.cache, Duration::from_millis(2), || world.left.get() == 0);
    });
    let bodies = workers.chain([behind as Body<'_>]).collect();
    all(bodies)?;
    world.wrong.take().map_or(Ok(()), Err)?;
    let had = world.had(&handles);
    drop((handles, world));
    let after = free();
    ensure!(before == after, "{} frames are not back", before - after);
    Ok(had)
}

impl<E: Evict> World<E> {
    fn set_faulty(&self, faulty: bool) {
        self.files.iter().for_each(|one| one.disk.set_faulty(faulty));
    }

    fn had(&self, handles: &[Handle<E>; 2]) -> Had {
        let Stats { evicted, written, copied, .. } = self.cache.stats();
        let [first, second] = self.files.each_ref().map(|one| one.disk.counts());
        Had {
            evicted,
            written,
            copied,
            counts: first.with(second),
            choices: self.files.iter().map(|one| one.model.borrow().choices).sum(),
            lost: handles.iter().map(File::lost_pages).sum(),
            blocks: self.blocks.get(),
            end: self.over.get(),
        }
    }

    /// One virtual CPU, until it has made its steps or something is wrong.
    fn work(&self, cpu: usize, handles: &[Handle<E>; 2]) {
        let dice = fastrand::Rng::with_seed(self.case.seed * 100 + cpu as u64);
        let mut worker = Worker { world: self, handles, pins: Vec::new(), cpu, dice };
        for step in 0..STEPS {
            if self.wrong.borrow().is_some() {
                break;
            }
            self.since[cpu].set(self.failed_reads());
            self.files.iter().for_each(|one| one.disk.step(cpu));
            if let Err(said) = worker.step().and_then(|()| self.check()) {
                let said = format!("step {step} of CPU {cpu}: {said}");
                self.wrong.borrow_mut().get_or_insert(said);
            }
        }
        drop(worker);
        self.since[cpu].set([u64::MAX; 2]);
        self.left.set(self.left.get() - 1);
        if self.left.get() == 0
            && self.wrong.borrow().is_none()
            && let Err(said) = self.end(handles)
        {
            *self.wrong.borrow_mut() = Some(format!("at the end: {said}"));
        }
        // The one that writes behind looks whether it is to end.
        self.over.set(self.over.get().max(engine::now().0));
        let _ = self.sim.nudge();
    }

    fn failed_reads(&self) -> [u64; 2] {
        self.files.each_ref().map(|one| one.disk.counts().reads)
    }

    /// After each step.
    fn check(&self) -> Result<(), String> {
        for one in &self.files {
            one.disk.wrong().map_or(Ok(()), Err)?;
        }
        let stats = self.cache.stats();
        ensure!(stats.used <= stats.bound, "{stats:?}");
        let blocks = self.cache.lists().iter().map(|list| list.blocks).sum::<usize>();
        self.blocks.set(self.blocks.get() + blocks);
        Ok(())
    }

    /// With the disk whole again all reaches it and lasts, and what is read is what is there.
    fn end(&self, handles: &[Handle<E>; 2]) -> Result<(), String> {
        self.set_faulty(false);
        for (handle, one) in handles.iter().zip(&self.files) {
            // Once to be told of what went wrong before.
            let _ = handle.sync();
            let began = one.model.borrow_mut().look(0);
            handle.sync().map_err(|error| format!("the last sync: {error}"))?;
            let (len, lost) = (handle.len(), handle.lost_pages());
            let (mut model, durable) = (one.model.borrow_mut(), one.disk.durable());
            model.is_long(len)?;
            ensure!(durable.len() as u64 == len, "{} of {len} bytes last", durable.len());
            model.lasts(Some(began), &durable, lost)?;
            // From memory, and when nothing is in memory any more.
            for turn in 0..2 {
                let mut bytes = vec![0; len as usize];
                ensure!(handle.read_at(&mut bytes, 0) == Ok(bytes.len()), "the last read");
                model.saw(0, 0, (&bytes, len), false)?;
                ensure!(bytes == one.disk.volatile(), "turn {turn}: not what the disk has");
                let _ = handle.invalidate(0..u64::MAX);
            }
        }
        self.check()
    }
}

/// What a virtual CPU does.
impl<'w, E: Evict> Worker<'w, E> {
    fn step(&mut self) -> Result<(), String> {
        let which = usize::from(self.dice.u8(..3) == 0);
        let file = &self.handles[which];
        let at = self.dice.u64(..END);
        let long = at..at + self.dice.u64(1..END);
        match self.dice.u32(..100) {
            0..26 => self.write(which),
            26..52 => self.read(which),
            52..58 => self.pin(which),
            58..63 if !self.pins.is_empty() => unpin(self.pins.swap_remove(0)),
            63..68 => self.sync(which),
            68..70 => {
                let _ = file.sync_range(long);
                self.lasted(which)
            }
            70..75 => self.truncate(which),
            75..80 => self.zero(which),
            80..85 => {
                let _ = file.invalidate(long);
                Ok(())
            }
            85..88 => {
                file.will_need(long);
                Ok(())
            }
            88..90 => {
                let all = [Advice::Normal, Advice::Sequential, Advice::Random, Advice::UseOnce];
                file.advise(all[self.dice.usize(..4)]);
                Ok(())
            }
            90..92 => {
                self.world.cache.reclaim(self.dice.usize(1..8));
                Ok(())
            }
            92..94 => self.bound(),
            94..96 => self.sync_all(),
            96..98 => {
                file.write_older(Duration::from_millis(self.dice.u64(..4)));
                self.lasted(which)
            }
            98 => file.write_back().or_else(|error| self.refused(error)),
            _ => self.lasted(which),
        }
    }

    fn one(&self, which: usize) -> &'w One {
        &self.world.files[which]
    }

    /// Reads that had failed when the steps began that are on their way: what failed since may be what a read waits for that
    /// begins now.
    fn failed_since(&self, which: usize) -> u64 {
        let all = self.world.since.iter().map(|since| since.get()[which]);
        all.min().unwrap_or(u64::MAX)
    }

    /// An error that is none where the disk has faults.
    fn refused(&self, error: CacheError) -> Result<(), String> {
        match error {
            CacheError::Store(StoreError::IO | StoreError::NO_SPACE)
            | CacheError::NoRoom { .. }
            | CacheError::InUse { .. }
                if self.world.case.faulty =>
            {
                Ok(())
            }
            // What others have pinned or have on its way.
            CacheError::InUse { .. } => Ok(()),
            _ => Err(error.to_string()),
        }
    }

    /// Some pieces, seldom more than four pages.
    fn some_pieces(&mut self, which: usize) -> Range<usize> {
        let count = self.one(which).model.borrow().count();
        let first = self.dice.usize(..count);
        let most = [2, 6, 20][self.dice.usize(..3)];
        first..(first + self.dice.usize(1..=most)).min(count)
    }

    fn ends_of(&self, which: usize, pieces: &Range<usize>) -> Range<u64> {
        let model = self.one(which).model.borrow();
        model.start_of(pieces.start)..model.start_of(pieces.end)
    }

    fn write(&mut self, which: usize) -> Result<(), String> {
        let (one, file, cpu) = (self.one(which), &self.handles[which], self.cpu);
        let pieces = self.some_pieces(which);
        let place = self.ends_of(which, &pieces);
        let data = one.model.borrow_mut().change(cpu, Change::Write, pieces.clone());
        let done = file.write_at(&data, place.start);
        let whole = done == Ok(data.len());
        let done = match done {
            Ok(done) => done as u64,
            Err(error) => self.refused(error).map(|()| 0)?,
        };
        ensure!(whole || self.world.case.faulty, "{done} of {place:?} were written");
        let upto = if done == 0 { 0 } else { place.start + done };
        one.model.borrow_mut().changed(cpu, pieces, Ended::Upto(upto));
        self.is_long(which)
    }

    fn is_long(&self, which: usize) -> Result<(), String> {
        let len = self.handles[which].len();
        self.one(which).model.borrow_mut().is_long(len)
    }

    fn read(&mut self, which: usize) -> Result<(), String> {
        let (one, file, cpu) = (self.one(which), &self.handles[which], self.cpu);
        let at = self.dice.u64(..END);
        let most = [200, 5_000, 5 * PAGE][self.dice.usize(..3)];
        let mut bytes = vec![0xAA; self.dice.usize(1..most)];
        let asked = bytes.len() as u64;
        one.model.borrow_mut().look(cpu);
        let failed = self.failed_since(which);
        let done = match file.read_at(&mut bytes, at) {
            Ok(done) => done,
            Err(error) => self.refused(error).map(|()| 0)?,
        };
        bytes.truncate(done);
        let may_stop = one.disk.counts().reads > failed;
        let mut model = one.model.borrow_mut();
        model.saw(cpu, at, (&bytes, asked), may_stop)?;
        model.looked(cpu);
        Ok(())
    }

    fn pin(&mut self, which: usize) -> Result<(), String> {
        if self.pins.len() == PINS {
            unpin(self.pins.swap_remove(0))?;
        }
        let (one, file, cpu) = (self.one(which), &self.handles[which], self.cpu);
        let at = self.dice.u64(..END);
        let asked = self.dice.u64(1..PAGE as u64);
        one.model.borrow_mut().look(cpu);
        let failed = self.failed_since(which);
        let (pin, had) = match file.pin(at..at + asked) {
            Ok(pin) => {
                let had = pin.pieces().flatten().copied().collect::<Vec<u8>>();
                (Some(pin), had)
            }
            Err(error) => self.refused(error).map(|()| (None, Vec::new()))?,
        };
        let mut model = one.model.borrow_mut();
        let may_stop = pin.is_none() && one.disk.counts().reads > failed;
        model.saw(cpu, at, (&had, asked), may_stop)?;
        model.looked(cpu);
        self.pins.extend(pin.map(|pin| (pin, had)));
        Ok(())
    }

    fn truncate(&mut self, which: usize) -> Result<(), String> {
        let (one, file, cpu) = (self.one(which), &self.handles[which], self.cpu);
        let count = one.model.borrow().count();
        let pieces = self.dice.usize(..count)..count;
        let len = self.ends_of(which, &pieces).start;
        let _ = one.model.borrow_mut().change(cpu, Change::Cut, pieces.clone());
        let gone = one.disk.go(len..END);
        let upto = match file.truncate(len) {
            Ok(()) => END,
            Err(error) => self.refused(error).map(|()| 0)?,
        };
        one.disk.are_gone(gone);
        one.model.borrow_mut().changed(cpu, pieces, Ended::Upto(upto));
        self.is_long(which)
    }

    fn zero(&mut self, which: usize) -> Result<(), String> {
        let (one, file, cpu) = (self.one(which), &self.handles[which], self.cpu);
        let pieces = self.some_pieces(which);
        let place = self.ends_of(which, &pieces);
        let _ = one.model.borrow_mut().change(cpu, Change::Zero, pieces.clone());
        let gone = one.disk.go(place.clone());
        let ended = match file.zero_range(place) {
            Ok(()) => Ended::Upto(END),
            Err(error) => self.refused(error).map(|()| Ended::Perhaps)?,
        };
        one.disk.are_gone(gone);
        one.model.borrow_mut().changed(cpu, pieces, ended);
        self.is_long(which)
    }

    fn sync(&mut self, which: usize) -> Result<(), String> {
        let (one, file, cpu) = (self.one(which), &self.handles[which], self.cpu);
        let began = one.model.borrow_mut().look(cpu);
        let done = file.sync();
        self.synced(which, began, done)
    }

    fn synced(&self, which: usize, began: u64, done: Result<(), CacheError>) -> Result<(), String> {
        let (one, lost) = (self.one(which), self.handles[which].lost_pages());
        let (mut model, durable) = (one.model.borrow_mut(), one.disk.durable());
        let (least, most) = model.lens(self.cpu);
        model.looked(self.cpu);
        if let Err(error) = done {
            self.refused(error)?;
            return model.lasts(None, &durable, lost);
        }
        let len = durable.len() as u64;
        ensure!((least..=most).contains(&len), "{len} bytes last, not {least} to {most}");
        model.lasts(Some(began), &durable, lost)
    }

    fn sync_all(&mut self) -> Result<(), String> {
        let began = self.world.files.each_ref().map(|one| one.model.borrow_mut().look(self.cpu));
        let done = self.world.cache.sync();
        self.synced(0, began[0], done)?;
        self.synced(1, began[1], done)
    }

    /// What lasted by the last sync that went well does so still, or what was written since.
    fn lasted(&self, which: usize) -> Result<(), String> {
        let (one, lost) = (self.one(which), self.handles[which].lost_pages());
        let durable = one.disk.durable();
        one.model.borrow_mut().lasts(None, &durable, lost)
    }

    fn bound(&mut self) -> Result<(), String> {
        let pages = self.dice.usize(BOUND - 4..MOST);
        self.world.cache.set_bound(pages).or_else(|error| self.refused(error))
    }
}

fn unpin<E: Evict>((pin, had): (Pinned<'_, WithBytes<E>>, Vec<u8>)) -> Result<(), String> {
    let has: Vec<u8> = pin.pieces().flatten().copied().collect();
    ensure!(has == had, "what was pinned has changed");
    Ok(())
}

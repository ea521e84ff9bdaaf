//! Commands, the model, and what is compared after each.

mod faults;
mod file;
mod kinds;

pub(crate) use kinds::{Kind, Lie, ring};

use faults::{Faults, Liar};
use file::{Model, byte};
use proptest::prelude::*;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use tempfile::TempDir;
use zonal::ZoneId;
use zonal_cache::cache::LEAST_PAGES;
use zonal_cache::evict::Evict;
use zonal_cache::lru::LruLock;
use zonal_cache::store::{Store, StoreError};
use zonal_cache::{Advice, Cache, CacheError, CacheFile, FaultyStore, MemoryStore, Pinned, Ring};

/// Pages that files have at most.
const PAGES: u64 = 40;
const PAGE: u64 = 4096;
/// The bound at first.
const BOUND: usize = 20;
/// Blocks on lists, after each step of all runs.
pub(crate) static BLOCKS: AtomicUsize = AtomicUsize::new(0);
/// Reads of all runs that went into registered buffers, and memory that was registered for them.
pub(crate) static FIXED: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];

#[derive(Clone, Debug)]
pub(crate) enum Command {
    Write { at: u64, len: usize, byte: u8 },
    Read { at: u64, len: usize },
    Pin { at: u64, len: u64 },
    Unpin,
    Sync { handle: usize },
    SyncRange { at: u64, len: u64 },
    WriteOlder,
    Truncate { len: u64 },
    Zero { page: u64, pages: u64 },
    Invalidate { at: u64, len: u64 },
    WillNeed { at: u64, len: u64 },
    Advise(u8),
    Bound { pages: usize },
    FailReads { page: u64, count: u64 },
    ShortReads { most: u64 },
    FailWrites { page: u64, count: u64 },
    FailFlush,
    FailLen,
    Heal,
    CutPower { keep: u64 },
}

fn command() -> impl Strategy<Value = Command> {
    use Command as C;
    let at = 0..PAGES * PAGE;
    let len = prop_oneof![1_usize..200, 4000_usize..4200, 1_usize..40_000];
    let long = prop_oneof![1_u64..9000, 1..PAGES * PAGE];
    prop_oneof![
        10 => (at.clone(), len.clone(), 1_u8..)
            .prop_map(|(at, len, byte)| C::Write { at, len, byte }),
        10 => (at.clone(), len).prop_map(|(at, len)| C::Read { at, len }),
        2 => (at.clone(), 1_u64..20_000).prop_map(|(at, len)| C::Pin { at, len }),
        2 => Just(C::Unpin),
        2 => (0_usize..2).prop_map(|handle| C::Sync { handle }),
        1 => (at.clone(), long.clone()).prop_map(|(at, len)| C::SyncRange { at, len }),
        1 => Just(C::WriteOlder),
        2 => at.clone().prop_map(|len| C::Truncate { len }),
        2 => (0..PAGES, 1..PAGES / 2).prop_map(|(page, pages)| C::Zero { page, pages }),
        1 => (at.clone(), long.clone()).prop_map(|(at, len)| C::Invalidate { at, len }),
        1 => (at, long).prop_map(|(at, len)| C::WillNeed { at, len }),
        1 => (0_u8..4).prop_map(C::Advise),
        1 => (LEAST_PAGES..30).prop_map(|pages| C::Bound { pages }),
        1 => (0..PAGES, 1_u64..4).prop_map(|(page, count)| C::FailReads { page, count }),
        1 => (PAGE..3 * PAGE).prop_map(|most| C::ShortReads { most }),
        1 => (0..PAGES, 1_u64..4).prop_map(|(page, count)| C::FailWrites { page, count }),
        1 => Just(C::FailFlush),
        1 => Just(C::FailLen),
        2 => Just(C::Heal),
        1 => any::<u64>().prop_map(|keep| C::CutPower { keep }),
    ]
}

/// Half of them begin with a file that is longer than the bound, of which as much was read ahead as may be, so that there
/// are blocks: windows of so small a bound are none.
pub(crate) fn commands() -> impl Strategy<Value = Vec<Command>> {
    use Command as C;
    let len = (PAGES * PAGE) as usize;
    let begin = [
        C::Write { at: 0, len, byte: 1 },
        C::Sync { handle: 0 },
        C::Invalidate { at: 0, len: len as u64 },
        C::WillNeed { at: 0, len: len as u64 / 4 },
    ];
    (any::<bool>(), prop::collection::vec(command(), 1..60)).prop_map(move |(begins, commands)| {
        let begin = begin.iter().filter(|_| begins).cloned();
        begin.chain(commands).collect()
    })
}

type Handles<E, L> = [CacheFile<E, L>; 2];

/// A cache and what belongs to it.
struct World<E: Evict, L: LruLock> {
    cache: Cache<E, L>,
    handles: Handles<E, L>,
    faults: Arc<Mutex<Faults>>,
    memory: Option<Arc<Liar<MemoryStore>>>,
    ring: Option<Arc<Ring>>,
    directory: TempDir,
    kind: Kind,
    lie: Lie,
}

impl<E: Evict, L: LruLock> World<E, L> {
    /// The file is empty, or has these bytes if it is in memory.
    fn new(kind: Kind, lie: Lie, bytes: Vec<u8>) -> Self {
        let builder = Cache::<E, L>::builder().memory(BOUND << 12).most_memory(30 << 12);
        let builder = builder.window(8).block(4).io_threads(kind.io_threads());
        let cache = builder.open().expect("a cache");
        let faults = Arc::new(Mutex::new(Faults::default()));
        let directory = tempfile::tempdir().expect("a directory");
        let memory = kind.memory(bytes, lie);
        let ring = kind.ring(cache.frames().arena());
        let store: Box<dyn Store> = match &memory {
            Some(memory) => Box::new(memory.clone()),
            None => kind.file(&directory.path().join("file"), lie, ring.clone()),
        };
        let fault = {
            let faults = faults.clone();
            move |operation| faults.lock().expect("whole").fault(operation)
        };
        let file = cache.open(FaultyStore::new(store, fault)).expect("a file");
        Self { cache, handles: [file.clone(), file], faults, memory, ring, directory, kind, lie }
    }

    /// Whether the store may refuse to write, or to be longer.
    fn refuses(&self) -> bool {
        let faults = self.faults.lock().expect("whole");
        faults.len || !faults.writes.is_empty()
    }

    /// Frames that the arena has given away.
    fn frames(&self) -> u64 {
        let arena = self.cache.frames().arena();
        let zone = arena.zone_info(ZoneId(0)).expect("a zone");
        zone.managed - zone.free - zone.cached
    }
}

/// A range that is pinned, and what it had.
type Pins<'a, E, L> = Vec<(Pinned<'a, zonal_cache::threads::OnThreads<E, L>>, Vec<u8>)>;

fn pinned_pages<E: Evict, L: LruLock>(pins: &Pins<'_, E, L>) -> usize {
    let pages = |piece: &[u8]| {
        let from = piece.as_ptr().addr() % PAGE as usize;
        (from + piece.len()).div_ceil(PAGE as usize)
    };
    pins.iter().flat_map(|(pin, _)| pin.pieces().map(pages)).sum()
}

/// Runs commands; what went wrong.
pub(crate) fn run<E: Evict, L: LruLock>(
    kind: Kind,
    lie: Lie,
    commands: &[Command],
) -> Result<(), String> {
    let mut world = World::<E, L>::new(kind, lie, Vec::new());
    let mut model = Model { now: Vec::new(), was: vec![Vec::new()] };
    let mut rest = commands;
    loop {
        // Pins borrow the handles, which a power cut replaces.
        let cut = rest.iter().position(|it| matches!(it, Command::CutPower { .. }));
        let (now, later) = rest.split_at(cut.unwrap_or(rest.len()));
        stretch(&world, &mut model, now)?;
        let Some((Command::CutPower { keep }, later)) = later.split_first() else { break };
        rest = later;
        if world.memory.is_some() {
            cut_power(&mut world, &mut model, *keep)?;
        }
    }
    end(world, &model)
}

fn stretch<E: Evict, L: LruLock>(
    world: &World<E, L>,
    model: &mut Model,
    commands: &[Command],
) -> Result<(), String> {
    let mut pins = Vec::new();
    for (number, command) in commands.iter().enumerate() {
        let done = step(world, model, &mut pins, command)
            .and_then(|()| world.kind.at_rest(|| bound(world)));
        done.map_err(|error| format!("step {number}, {command:?}: {error}"))?;
    }
    pins.into_iter().try_for_each(|(pin, had)| unpin(&pin, &had))
}

fn unpin<E: Evict, L: LruLock>(
    pin: &Pinned<'_, zonal_cache::threads::OnThreads<E, L>>,
    had: &[u8],
) -> Result<(), String> {
    let has: Vec<u8> = pin.pieces().flatten().copied().collect();
    if has == had { Ok(()) } else { Err("what was pinned has changed".into()) }
}

fn bound<E: Evict, L: LruLock>(world: &World<E, L>) -> Result<(), String> {
    let stats = world.cache.stats();
    let frames = world.frames();
    if stats.used > stats.bound || frames > stats.bound as u64 {
        return Err(format!("{frames} frames, {stats:?}"));
    }
    // What is pinned and was copied is on no list.
    let lists = world.cache.lists();
    let listed: usize = lists.iter().map(|list| list.file + list.anon + list.unevictable).sum();
    let blocks: usize = lists.iter().map(|list| list.blocks).sum();
    if blocks * 2 > listed {
        return Err(format!("{blocks} blocks of {listed} pages"));
    }
    BLOCKS.fetch_add(blocks, Relaxed);
    let on_none = stats.used.checked_sub(listed + world.cache.waiting());
    if on_none.is_none_or(|pages| pages as u64 > stats.copied) {
        return Err(format!("{listed} pages are listed, {on_none:?} are nowhere: {stats:?}"));
    }
    if frames != stats.used as u64 {
        return Err(format!("{frames} frames for {stats:?}"));
    }
    Ok(())
}

/// Whether it may be that there is no room.
fn may_be_full<E: Evict, L: LruLock>(world: &World<E, L>, pins: &Pins<'_, E, L>) -> bool {
    let faulty = !world.faults.lock().expect("whole").writes.is_empty();
    let stuck = if faulty { world.cache.stats().dirty as usize } else { 0 };
    // A copy for a write counts too.
    pinned_pages(pins) + stuck + 2 >= world.cache.stats().bound
}

/// Whether a request may stop at byte `at`.
fn may_stop<E: Evict, L: LruLock>(world: &World<E, L>, pins: &Pins<'_, E, L>, at: u64) -> bool {
    world.faults.lock().expect("whole").reads.contains(&(at / PAGE)) || may_be_full(world, pins)
}

fn step<'a, E: Evict, L: LruLock>(
    world: &'a World<E, L>,
    model: &mut Model,
    pins: &mut Pins<'a, E, L>,
    command: &Command,
) -> Result<(), String> {
    let file = &world.handles[0];
    let end_of = |at: u64, len: u64| at..at + len;
    match *command {
        Command::Write { at, len, byte } => return write(world, model, pins, (at, len, byte)),
        Command::Read { at, len } => return read(world, model, pins, (at, len)),
        Command::Pin { at, len } => return pin(world, model, pins, at..at + len),
        Command::Unpin => {
            if !pins.is_empty() {
                let (pin, had) = pins.remove(0);
                return unpin(&pin, &had);
            }
        }
        Command::Sync { handle } => return sync(world, model, handle),
        Command::SyncRange { at, len } => {
            let _ = file.sync_range(end_of(at, len));
        }
        Command::WriteOlder => {
            file.write_older(std::time::Duration::ZERO);
        }
        Command::Truncate { len } => match file.truncate(len) {
            Ok(()) => model.change(|bytes| bytes.resize(len as usize, 0)),
            Err(CacheError::Store(_)) if world.faults.lock().expect("whole").len => {}
            Err(CacheError::NoRoom { .. }) if may_be_full(world, pins) => {}
            Err(error) => return Err(error.to_string()),
        },
        Command::Zero { page, pages } => {
            // Whole pages: then an error says that nothing has changed.
            let end = (page + pages).min(file.len() / PAGE) * PAGE;
            let range = (page * PAGE).min(end)..end;
            match file.zero_range(range.clone()) {
                Ok(()) => model.change(|bytes| bytes[range.start as usize..end as usize].fill(0)),
                Err(CacheError::Store(_)) if world.refuses() => {}
                Err(error) => return Err(error.to_string()),
            }
        }
        Command::Invalidate { at, len } => {
            file.invalidate(end_of(at, len));
        }
        Command::WillNeed { at, len } => file.will_need(end_of(at, len)),
        Command::Advise(number) => file.advise(
            [Advice::Normal, Advice::Sequential, Advice::Random, Advice::UseOnce]
                [usize::from(number)],
        ),
        Command::Bound { pages } => match world.cache.set_bound(pages) {
            Ok(()) => {}
            Err(CacheError::InUse { bound, .. }) => {
                let stuck = pinned_pages(pins) + world.cache.stats().dirty as usize;
                if bound <= pages || bound > stuck + 2 {
                    return Err(format!("bound {bound} with {stuck} stuck"));
                }
            }
            Err(error) => return Err(error.to_string()),
        },
        _ => fault(world, command),
    }
    let len = file.len();
    if len == model.now.len() as u64 { Ok(()) } else { Err(format!("it is {len} long")) }
}

fn fault<E: Evict, L: LruLock>(world: &World<E, L>, command: &Command) {
    let mut faults = world.faults.lock().expect("whole");
    match *command {
        Command::FailReads { page, count } => faults.reads.extend(page..page + count),
        Command::ShortReads { most } => faults.short = Some(most),
        Command::FailWrites { page, count } => faults.writes.extend(page..page + count),
        Command::FailFlush => faults.flush = true,
        Command::FailLen => faults.len = true,
        _ => *faults = Faults::default(),
    }
}

fn write<E: Evict, L: LruLock>(
    world: &World<E, L>,
    model: &mut Model,
    pins: &Pins<'_, E, L>,
    (at, len, byte): (u64, usize, u8),
) -> Result<(), String> {
    let data: Vec<u8> = (0..len).map(|place| byte.wrapping_add(place as u8) | 1).collect();
    let done = match world.handles[0].write_at(&data, at) {
        Ok(done) => done,
        Err(CacheError::Store(StoreError::IO) | CacheError::NoRoom { .. }) => 0,
        Err(error) => return Err(error.to_string()),
    };
    if done < len && !may_stop(world, pins, at + done as u64) {
        return Err(format!("only {done} were written"));
    }
    if done > 0 {
        model.write(at as usize, &data[..done]);
    }
    Ok(())
}

fn read<E: Evict, L: LruLock>(
    world: &World<E, L>,
    model: &Model,
    pins: &Pins<'_, E, L>,
    (at, len): (u64, usize),
) -> Result<(), String> {
    let mut got = vec![0xAA; len];
    let done = match world.handles[0].read_at(&mut got, at) {
        Ok(done) => done,
        Err(CacheError::Store(StoreError::IO) | CacheError::NoRoom { .. }) => 0,
        Err(error) => return Err(error.to_string()),
    };
    let want = model.now.get(at as usize..).unwrap_or(&[]);
    let want = &want[..want.len().min(len)];
    if done < want.len() && !may_stop(world, pins, at + done as u64) {
        return Err(format!("only {done} of {} were read", want.len()));
    }
    if done > want.len() {
        return Err(format!("{done} of {} were read", want.len()));
    }
    match (0..done).find(|&place| got[place] != want[place]) {
        Some(place) => Err(format!("byte {} is wrong", at + place as u64)),
        None => Ok(()),
    }
}

fn pin<'a, E: Evict, L: LruLock>(
    world: &'a World<E, L>,
    model: &Model,
    pins: &mut Pins<'a, E, L>,
    range: Range<u64>,
) -> Result<(), String> {
    let end = (range.end as usize).min(model.now.len());
    let had = model.now.get(range.start as usize..end).unwrap_or(&[]).to_vec();
    match world.handles[1].pin(range.clone()) {
        Ok(pin) => {
            unpin(&pin, &had).map_err(|_| "what was pinned is wrong".to_owned())?;
            pins.push((pin, had));
            Ok(())
        }
        Err(error) => {
            let pages = range.start / PAGE..range.end.div_ceil(PAGE);
            let bad = world.faults.lock().expect("whole").reads.range(pages).next().is_some();
            let need = (range.end / PAGE - range.start / PAGE + 1) as usize;
            let full = pinned_pages(pins) + need + 2 >= world.cache.stats().bound;
            if bad || full || may_be_full(world, pins) { Ok(()) } else { Err(error.to_string()) }
        }
    }
}

fn sync<E: Evict, L: LruLock>(
    world: &World<E, L>,
    model: &mut Model,
    handle: usize,
) -> Result<(), String> {
    if world.handles[handle].sync().is_err() {
        return Ok(());
    }
    if let Some(memory) = &world.memory
        && memory.0.durable() != model.now
    {
        return Err("a sync went well and not all lasts".into());
    }
    let dirty = world.handles[handle].dirty_pages();
    if dirty > 0 {
        return Err(format!("{dirty} pages are dirty after a sync that went well"));
    }
    model.was = vec![model.now.clone()];
    Ok(())
}

fn cut_power<E: Evict, L: LruLock>(
    world: &mut World<E, L>,
    model: &mut Model,
    keep: u64,
) -> Result<(), String> {
    let Some(memory) = &world.memory else { return Ok(()) };
    // What the old handles would still write comes to nothing.
    *world.faults.lock().expect("whole") =
        Faults { writes: (0..2 * PAGES).collect(), flush: true, len: true, ..Faults::default() };
    let mut random = keep;
    memory.0.cut_power(|_| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        random >> 63 == 0
    });
    let durable = memory.0.durable();
    model.may_be(&durable)?;
    // Another cache, as after a start.
    *world = World::new(world.kind, world.lie, durable.clone());
    *model = Model { now: durable.clone(), was: vec![durable] };
    Ok(())
}

/// With the faults gone all reaches the store, and all frames go back.
fn end<E: Evict, L: LruLock>(world: World<E, L>, model: &Model) -> Result<(), String> {
    *world.faults.lock().expect("whole") = Faults::default();
    for handle in &world.handles {
        // Once to be told of what went wrong before.
        let _ = handle.sync();
        handle.sync().map_err(|error| format!("the last sync: {error}"))?;
    }
    let stored = match &world.memory {
        Some(memory) => memory.0.durable(),
        None => std::fs::read(world.directory.path().join("file")).expect("it is there"),
    };
    if stored != model.now {
        let at = (0..).find(|&at| byte(&stored, at) != byte(&model.now, at) || at > stored.len());
        return Err(format!("the store is not what was written, first at {at:?}"));
    }
    let (arena, kind) = (world.cache.frames().arena().clone(), world.kind);
    if let Some(ring) = &world.ring {
        FIXED[0].fetch_add(ring.fixed_reads(), Relaxed);
        FIXED[1].fetch_add(ring.registered() as u64, Relaxed);
    }
    drop(world);
    kind.at_rest(|| {
        let zone = arena.zone_info(ZoneId(0)).expect("a zone");
        let whole = zone.free + zone.cached == zone.managed;
        if whole { Ok(()) } else { Err(format!("lost: {zone:?}")) }
    })
}

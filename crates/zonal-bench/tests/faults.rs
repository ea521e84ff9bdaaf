//! Allocation refused inside the workloads: at many indexes, once and from there on. Nothing is lost, nothing
//! is freed twice or with another order, no thread panics, and the sample says what it ran out of.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use zonal_bench::case::{CaseError, Spec, open};
use zonal_bench::loops::Halt;
use zonal_bench::options::Options;
use zonal_bench::pool::Pool;
use zonal_bench::program::Every;
use zonal_bench::subject::{FrameThread, Group, Path, Profile, Setup, Subject, SubjectError};
use zonal_bench::workload::Workload;

/// Enough for two tasks of 128 MiB.
const FRAMES: usize = 70_000;

/// What is free and what is not, by the number of a block.
struct Table {
    /// Numbers that no block has.
    unused: Vec<u32>,
    /// The order of the block of that number.
    live: Vec<Option<u8>>,
    frames_left: usize,
}

/// Blocks that are counted, and the fault.
struct World {
    table: Mutex<Table>,
    /// Requests so far.
    asked: AtomicU64,
    /// The request that is refused; with `onwards`, all from there on.
    refused: u64,
    onwards: bool,
}

impl World {
    fn new(refused: u64, onwards: bool) -> Arc<Self> {
        let table = Table {
            unused: (0..FRAMES as u32).rev().collect(),
            live: vec![None; FRAMES],
            frames_left: FRAMES,
        };
        Arc::new(Self { table: Mutex::new(table), asked: AtomicU64::new(0), refused, onwards })
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn alloc(&self, order: u8) -> Option<u32> {
        // Relaxed: only that the numbers differ.
        let at = self.asked.fetch_add(1, Ordering::Relaxed);
        if at == self.refused || (self.onwards && at > self.refused) {
            return None;
        }
        let mut table = self.table();
        table.frames_left = table.frames_left.checked_sub(1 << order)?;
        let block = table.unused.pop()?;
        table.live[block as usize] = Some(order);
        Some(block)
    }

    fn free(&self, block: u32, order: u8) {
        let mut table = self.table();
        let was = table.live[block as usize].take();
        assert_eq!(was, Some(order), "block {block} is freed twice, or with another order");
        table.unused.push(block);
        table.frames_left += 1 << order;
    }

    fn lost(&self) -> usize {
        FRAMES - self.table().frames_left
    }
}

thread_local! {
    /// What is opened next by this thread.
    static NEXT: RefCell<Option<Arc<World>>> = const { RefCell::new(None) };
}

/// A subject that refuses.
struct Refusing(Arc<World>);

struct RefusingThread<'a>(&'a World);

impl Subject for Refusing {
    const PROFILE: Profile = Profile {
        name: "refusing",
        path: Path::Shared,
        group: Group::Reference,
        note: "counts, and refuses on demand",
        max_order: 10,
        managed: true,
        bulk: false,
    };

    type Block = u32;
    type Thread<'a> = RefusingThread<'a>;

    fn open(_: &Setup) -> Result<Self, SubjectError> {
        let next = NEXT.with_borrow_mut(Option::take);
        next.map(Self).ok_or_else(|| SubjectError::Init("nothing to open".to_owned()))
    }

    fn thread(&self, _: usize) -> Result<RefusingThread<'_>, SubjectError> {
        Ok(RefusingThread(&self.0))
    }

    fn frames(&self) -> Option<usize> {
        Some(FRAMES)
    }
}

impl FrameThread for RefusingThread<'_> {
    type Block = u32;

    fn alloc(&mut self, order: u8) -> Option<u32> {
        self.0.alloc(order)
    }

    unsafe fn free(&mut self, block: u32, order: u8) {
        self.0.free(block, order);
    }

    unsafe fn touch(&mut self, _: u32) {}
}

/// A sample of one repetition after one that warms up.
fn sample(pool: &Pool, workload: Workload, by_cpu: bool, world: &Arc<World>) -> Option<Halt> {
    let options = Options { by_cpu, ..Options::default() };
    let threads = pool.len();
    let setup = Setup { memory: FRAMES << 12, threads, touch: false, regions: None };
    NEXT.set(Some(world.clone()));
    let case = open::<Refusing, Every>(&Spec { workload, setup, seed: 1, options });
    match case.expect("it opens").sample(pool, 1) {
        Ok(_) => None,
        Err(CaseError::Halt(halt)) => Some(halt),
        Err(other) => panic!("{}: {other}", workload.name()),
    }
}

/// The first and the last requests of `asked`, and some between them.
fn indexes(asked: u64) -> impl Iterator<Item = u64> {
    let between = (0..12).map(move |at| asked / 12 * at + 7 * at % 31);
    (0..12).chain(between).chain(asked.saturating_sub(4)..asked)
}

/// Refuses a request, or all from there on, and sees that nothing is lost; whether that was the end.
fn refuse(pool: &Pool, workload: Workload, by_cpu: bool, index: u64, onwards: bool) -> bool {
    let world = World::new(index, onwards);
    let halt = sample(pool, workload, by_cpu, &world);
    let (name, threads) = (workload.name(), pool.len());
    let at = format!("{name} on {threads}: request {index} ({onwards}): {halt:?}");
    assert_eq!(world.lost(), 0, "{at}");
    // A thread whose turn is over may not ask again; one refusal of a large block is no end.
    assert!(matches!(halt, None | Some(Halt::OutOfFrames { .. })), "{at}");
    halt.is_some()
}

/// Requests that a workload makes if none is refused.
fn requests(pool: &Pool, workload: Workload, by_cpu: bool) -> u64 {
    let world = World::new(u64::MAX, false);
    assert!(sample(pool, workload, by_cpu, &world).is_none(), "{}", workload.name());
    assert_eq!(world.lost(), 0);
    world.asked.load(Ordering::Relaxed)
}

fn refuse_some(threads: usize, workload: Workload, by_cpu: bool) {
    let cpus = zonal_bench::machine::cpus().expect("there are some");
    if cpus.len() < threads {
        eprintln!("{} is not run: it needs {threads} CPUs", workload.name());
        return;
    }
    let pool = Pool::new(&cpus[..threads]).expect("threads");
    let asked = requests(&pool, workload, by_cpu);
    println!("{} on {threads}: some of {asked} requests refused", workload.name());
    for index in indexes(asked) {
        refuse(&pool, workload, by_cpu, index, false);
        refuse(&pool, workload, by_cpu, index, true);
    }
}

#[test]
fn nothing_is_lost_on_one_thread() {
    let alone = Workload::ALL.into_iter().filter(|it| it.runs_on(1, Options::default()));
    for workload in alone {
        refuse_some(1, workload, false);
    }
}

#[test]
fn nothing_is_lost_on_two_threads() {
    for workload in Workload::ALL {
        // It opens an arena of its own.
        if workload.runs_on(2, Options::default()) && workload != Workload::StressHighalloc {
            refuse_some(2, workload, false);
        }
    }
    refuse_some(2, Workload::Fragment, true);
}

/// Every request of a workload, in one thread each of this computer's CPUs; `WORKLOAD=NAME` for one of them. Where the
/// first refusal is the end, all from there on are the same, and are not run.
#[test]
#[ignore = "five minutes, in a release build"]
fn nothing_is_lost_at_any_request() {
    let named = std::env::var("WORKLOAD").ok();
    let asked = |it: &Workload| named.as_ref().is_none_or(|name| name == it.name());
    for workload in Workload::ALL.into_iter().filter(asked) {
        if workload.runs_on(1, Options::default()) {
            every_request(workload);
        }
    }
}

fn every_request(workload: Workload) {
    let cpus = zonal_bench::machine::cpus().expect("there are some");
    let pool = |cpu: usize| Pool::new(&cpus[cpu..=cpu]).expect("a thread");
    let (asked, next) = (requests(&pool(0), workload, false), AtomicU64::new(0));
    let work = |cpu| {
        let pool = pool(cpu);
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= asked {
                return;
            }
            let ends = refuse(&pool, workload, false, index, false);
            if !ends {
                refuse(&pool, workload, false, index, true);
            }
        }
    };
    std::thread::scope(|scope| {
        let work = &work;
        (0..cpus.len()).for_each(|cpu| drop(scope.spawn(move || work(cpu))));
    });
    println!("{}: all of {asked} requests refused", workload.name());
}

#[test]
fn canary_a_block_that_is_kept_is_counted() {
    let world = World::new(1, false);
    assert_eq!((world.alloc(3), world.alloc(0)), (Some(0), None));
    assert_eq!(world.lost(), 8);
    world.free(0, 3);
    assert_eq!(world.lost(), 0);
    assert!(std::panic::catch_unwind(|| world.free(0, 3)).is_err(), "twice");
}

//! The allocator on the model checker loom: every interleaving of a small program, and every
//! stale value that the memory model lets a load return, of the shipped source.
//!
//! ```no_run
//! use zonal::platform::{AtomicWord, Lock};
//! use zonal_testkit::loom_platform::{LoomLock, explore};
//! explore("two add", None, || {
//!     let lock = std::rc::Rc::new(LoomLock::new(0));
//!     let theirs = lock.clone();
//!     let other = loom::thread::spawn(move || theirs.try_with(|n| *n += 1).is_some());
//!     lock.with(|n| *n += 1);
//!     let added = u32::from(other.join().unwrap());
//!     assert_eq!(lock.with(|n| *n), 1 + added);
//! });
//! ```

use loom::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, fence};
use loom::thread::{self, JoinHandle, Thread};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use zonal::Host;
use zonal::map::{MemoryMap, PhysAddr, Region};
use zonal::plan::{Config, Plan};
use zonal::platform::shared_slot::{Guarded, SharedSlot};
use zonal::platform::{AtomicByte, AtomicHalf, AtomicWord, FenceUnsupported, Lock, Platform};
use zonal::watermark::MinFree;
use zonal::{CpuId, Order, Pfn};

/// Tells loom that a load is about to happen.
///
/// Loom compares an access with the last one only, and two loads are nothing to it: in
/// `A.load, B.load, B.store` it does not see that `A` might come last. An exchange of nothing
/// before each load is seen by all; being relaxed, and on a word of its own, it orders nothing
/// and hides no stale value. While a run has one thread there is no other to tell.
#[derive(Debug)]
struct Announced(AtomicBool);

impl Announced {
    fn new() -> Self {
        Self(AtomicBool::new(false))
    }
    fn announce(&self) {
        if TOGETHER.get() {
            self.0.swap(false, Ordering::Relaxed);
        }
    }
}

/// A state byte on loom's atomic.
#[derive(Debug)]
pub struct Byte(AtomicU8, Announced);

impl AtomicByte for Byte {
    fn new(value: u8) -> Self {
        Self(AtomicU8::new(value), Announced::new())
    }
    fn load(&self, order: Ordering) -> u8 {
        self.1.announce();
        self.0.load(order)
    }
    zonal::forward_atomic!(u8, 0: store swap compare_exchange);
}

/// A half word on loom's atomic.
#[derive(Debug)]
pub struct Half(AtomicU32, Announced);

impl AtomicHalf for Half {
    fn new(value: u32) -> Self {
        Self(AtomicU32::new(value), Announced::new())
    }
    fn load(&self, order: Ordering) -> u32 {
        self.1.announce();
        self.0.load(order)
    }
    zonal::forward_atomic!(u32, 0: store);
}

/// A word on loom's atomic.
#[derive(Debug)]
pub struct Word(AtomicU64, Announced);

impl AtomicWord for Word {
    fn new(value: u64) -> Self {
        Self(AtomicU64::new(value), Announced::new())
    }
    fn load(&self, order: Ordering) -> u64 {
        self.1.announce();
        self.0.load(order)
    }
    zonal::forward_atomic!(u64, 0: store fetch_add fetch_or fetch_and swap compare_exchange);
}

/// A word whose loads return what was written last, for models in which much happens: in them
/// every interleaving is explored, but not every stale value of every counter that is only a
/// hint. What happened before what is still as the orderings say.
#[derive(Debug)]
pub struct Newest(AtomicU64);

impl AtomicWord for Newest {
    fn new(value: u64) -> Self {
        Self(AtomicU64::new(value))
    }
    fn load(&self, order: Ordering) -> u64 {
        // An exchange sees the newest value, and changes nothing here.
        let seen = self.0.compare_exchange(u64::MAX, u64::MAX, order, order);
        seen.unwrap_or_else(|value| value)
    }
    zonal::forward_atomic!(u64, 0: store fetch_add fetch_or fetch_and swap compare_exchange);
}

/// A lock made of one loom atomic, with waiters parked.
///
/// Not loom's mutex: its `try_lock` never fails, because loom keeps a thread that is about to
/// try asleep until the holder is done; and a try that fails is what is to be explored here.
/// Loom runs one thread at a time, so what is not a loom object changes together with the
/// atomic next to it.
#[derive(Debug)]
pub struct LoomLock<T> {
    held: AtomicBool,
    waiting: RefCell<Vec<Thread>>,
    value: RefCell<T>,
}

impl<T> LoomLock<T> {
    fn acquire(&self) -> bool {
        self.held.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    fn run<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        // Panics if two are inside: then the lock itself is broken.
        let result = f(&mut self.value.borrow_mut());
        self.held.store(false, Ordering::Release);
        self.waiting.borrow_mut().drain(..).for_each(|thread| thread.unpark());
        result
    }
}

impl<T> Lock<T> for LoomLock<T> {
    fn new(value: T) -> Self {
        Self {
            held: AtomicBool::new(false),
            waiting: RefCell::new(Vec::new()),
            value: RefCell::new(value),
        }
    }
    fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        while !self.acquire() {
            self.waiting.borrow_mut().push(thread::current());
            thread::park();
        }
        self.run(f)
    }
    fn try_with<R>(&self, f: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.acquire().then(|| self.run(f))
    }
    fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }
}

/// Loom as a host. `W` is the word it gives the allocator, so that a model with a planted bug
/// can give it a word that breaks its promise and run the same allocator source.
///
/// It cannot write frames: a request with `zero` fails after the block was taken.
pub struct LoomPlatform<W = Word>(PhantomData<fn() -> W>);

impl<W> LoomPlatform<W> {
    /// The host.
    #[must_use]
    pub const fn new() -> Self {
        Self(PhantomData)
    }
}

impl<W> Default for LoomPlatform<W> {
    fn default() -> Self {
        Self::new()
    }
}

impl<W> fmt::Debug for LoomPlatform<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LoomPlatform")
    }
}

impl<W: AtomicWord> Platform for LoomPlatform<W> {
    type Byte = Byte;
    type Half = Half;
    type Word = W;
    type Lock<T: Send> = LoomLock<T>;
    type Slot<T: Send> = SharedSlot<T, LoomLock<Guarded<T>>>;

    fn cpu(&self) -> CpuId {
        CPU.with(|cpu| CpuId(cpu.get()))
    }

    /// Lets the others go on, or a wait would be explored for ever.
    fn relax() {
        thread::yield_now();
    }

    fn light_fence() {
        fence(Ordering::SeqCst);
    }

    fn heavy_fence() -> Result<(), FenceUnsupported> {
        fence(Ordering::SeqCst);
        Ok(())
    }
}

impl<W: AtomicWord> Host for LoomPlatform<W> {}

thread_local! {
    /// Whether the run has reached its part with several threads. All model threads of a
    /// model are on one thread of the machine.
    static TOGETHER: Cell<bool> = const { Cell::new(false) };
}

loom::thread_local! {
    static CPU: Cell<u32> = Cell::new(0);
}

/// Moves the calling model thread to `cpu`. Threads start on CPU 0.
pub fn move_to(cpu: u32) {
    CPU.with(|own| own.set(cpu));
}

/// Starts a model thread on `cpu`.
pub fn spawn<R: 'static>(cpu: u32, f: impl FnOnce() -> R + 'static) -> JoinHandle<R> {
    TOGETHER.set(true);
    thread::spawn(move || {
        move_to(cpu);
        f()
    })
}

/// As [`spawn`], with a stack four times as large: for online and offline, which look at all zones
/// that there could be.
///
/// # Panics
/// If loom has no thread left.
pub fn spawn_with_room<R: Send + 'static>(
    cpu: u32,
    f: impl FnOnce() -> R + Send + 'static,
) -> JoinHandle<R> {
    TOGETHER.set(true);
    let thread = thread::Builder::new().stack_size(STACK_WORDS).spawn(move || {
        move_to(cpu);
        f()
    });
    thread.expect("a model thread")
}

const STACK_WORDS: usize = 1 << 14;

/// Runs `f` by [`spawn_with_room`], for models whose first thread needs it. That thread waits
/// meanwhile, so this adds nothing to explore.
///
/// # Panics
/// If `f` does.
pub fn with_room(f: impl FnOnce() + Send + 'static) {
    let roomy = spawn_with_room(0, || {
        alone();
        f();
    });
    roomy.join().expect("the model's first thread");
}

/// Says that all other threads of the run have ended.
pub fn alone() {
    TOGETHER.set(false);
}

/// The preemptions of a model that takes long: at most `few`, and where `ZONAL_LOOM_WIDE` is set, as `cargo xtask loom
/// --wide` does, at most `wide` (`None`: all there are).
#[must_use]
pub fn bound(few: usize, wide: Option<usize>) -> Option<usize> {
    match std::env::var_os("ZONAL_LOOM_WIDE") {
        Some(_) => wide,
        None => Some(few),
    }
}

/// Explores `model` with at most `preemptions` of them in a run (`None`: all there are), and
/// prints how many runs that took.
///
/// # Panics
/// If the model fails, or did not branch at all.
pub fn explore(name: &str, preemptions: Option<usize>, model: impl Fn() + Send + Sync + 'static) {
    let runs = Arc::new(AtomicUsize::new(0));
    let count = runs.clone();
    let start = Instant::now();
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(preemptions);
    builder.max_branches = 50_000;
    builder.check(move || {
        count.fetch_add(1, Ordering::Relaxed);
        alone();
        model();
    });
    let runs = runs.load(Ordering::Relaxed);
    println!("{name}: {runs} runs, {:.1?}", start.elapsed());
    assert!(runs > 10, "the model did not branch");
}

/// A plan over `frames` frames from address 0 in one Normal zone, with the smallest pageblocks
/// and no watermarks.
///
/// # Panics
/// If there is no such plan.
#[must_use]
pub fn small_plan(frames: u64, cpus: u32) -> &'static Plan {
    plan_of(frames, Config::new(cpus))
}

/// As [`small_plan`], for presets with per-CPU lists: `batch` frames move at once.
///
/// # Panics
/// If there is no such plan.
#[must_use]
pub fn batch_plan(frames: u64, cpus: u32, batch: u32) -> &'static Plan {
    plan_of(frames, Config { pcp_batch: Some(batch), ..Config::new(cpus) })
}

/// As [`small_plan`], with `later` frames behind the others that come online when they are asked to.
///
/// # Panics
/// If there is no such plan.
#[must_use]
pub fn later_plan(frames: u64, later: u64, cpus: u32) -> &'static Plan {
    let now = Region::usable(PhysAddr(0), frames << 12);
    let later = Region::offline(PhysAddr(frames << 12), later << 12);
    plan_over(&[now, later], small(Config { pcp_batch: Some(2), ..Config::new(cpus) }))
}

fn plan_of(frames: u64, config: Config) -> &'static Plan {
    plan_over(&[Region::usable(PhysAddr(0), frames << 12)], small(config))
}

/// `config` with the smallest pageblocks, one zone and nothing kept back.
#[must_use]
pub fn small(mut config: Config) -> Config {
    config.pageblock_order = Order::new(3).expect("an order");
    (config.dma_limit, config.dma32_limit) = (Pfn::new(0), Pfn::new(0));
    config.watermarks.min_free = MinFree::None;
    config.lowmem_ratio = [0; 4];
    config.highatomic = false;
    config
}

/// A plan that is never freed.
///
/// # Panics
/// If there is no such plan.
#[must_use]
pub fn plan_over(regions: &[Region], config: Config) -> &'static Plan {
    let map = MemoryMap::from_regions(regions).expect("regions").sanitise().expect("sane");
    let plan = Plan::new(map, config, |_, _, _| 1).expect("a plan");
    Box::leak(Box::new(plan))
}

//! Larger instances than the model checker can exhaust, under random schedules: four threads
//! on three CPUs, stacks of a few frames over a map, refills, spills, drains, bulk, and requests
//! that fail. Every access to an atomic is a point where the schedule may change; values are
//! sequentially consistent here, stale ones are the business of the `loom_*` tests.
//!
//! ```text
//! RUSTFLAGS="--cfg shuttle" cargo test --release -p zonal-testkit --test shuttle_threads
//! ```
//!
//! The presets that cut clusters off their lists run the same, with batches of three, and with
//! pageblocks that change their type, compaction, and clusters disabled and enabled.
//!
//! 500 schedules of each kind, and 2000 by `cargo xtask shuttle --wide`, 16 s for all. A failure prints a schedule that `shuttle::replay` runs again.
#![cfg(shuttle)]

use shuttle::Runner;
use shuttle::rand::{Rng, thread_rng};
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::sync::Mutex;
use shuttle::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, fence};
use shuttle::thread;
use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::TryLockError;
use std::sync::atomic::{AtomicBool, Ordering};
use zonal::info::ZoneInfo;
use zonal::map::{MemoryMap, PhysAddr, Region};
use zonal::pcp::Stacks;
use zonal::plan::{Config, Plan};
use zonal::platform::shared_slot::{Guarded, SharedSlot};
use zonal::platform::stay::{InPieces, Stay, Unbounded};
use zonal::platform::{AtomicByte, AtomicHalf, AtomicWord, FenceUnsupported, Lock, Platform};
use zonal::policy::FreeMemory;
use zonal::policy::{Policy, dirty::Unlimited};
use zonal::preset::{Cluster, ClusterFree, Zonal};
use zonal::watermark::MinFree;
use zonal::{CompactMode, CpuId, MigrateType, Order, Pfn, Request, ZoneId};
use zonal_testkit::checkers::{Rules, check_all};
use zonal_testkit::cluster_check::check_clusters;
use zonal_testkit::host::TestHost;
use zonal_testkit::model::Model;
use zonal_testkit::shape::Shape;
use zonal_testkit::snapshot::Snapshot;
use zonal_testkit::world::{World, with_plan};

struct Byte(AtomicU8);

impl AtomicByte for Byte {
    fn new(value: u8) -> Self {
        Self(AtomicU8::new(value))
    }
    zonal::forward_atomic!(u8, 0: load store swap compare_exchange);
}

struct Half(AtomicU32);

impl AtomicHalf for Half {
    fn new(value: u32) -> Self {
        Self(AtomicU32::new(value))
    }
    zonal::forward_atomic!(u32, 0: load store);
}

struct Word(AtomicU64);

impl AtomicWord for Word {
    fn new(value: u64) -> Self {
        Self(AtomicU64::new(value))
    }
    zonal::forward_atomic!(u64, 0: load store fetch_add fetch_or fetch_and swap compare_exchange);
}

/// Planted bug: a bit is set and cleared by a load and a store.
struct Torn(Word);

impl AtomicWord for Torn {
    fn new(value: u64) -> Self {
        Self(Word::new(value))
    }
    zonal::forward_atomic!(u64, 0: load store fetch_add swap compare_exchange);
    fn fetch_or(&self, mask: u64, order: Ordering) -> u64 {
        let before = self.0.load(order);
        self.0.store(before | mask, order);
        before
    }
    fn fetch_and(&self, mask: u64, order: Ordering) -> u64 {
        let before = self.0.load(order);
        self.0.store(before & mask, order);
        before
    }
}

struct ShuttleLock<T>(Mutex<T>);

impl<T> Lock<T> for ShuttleLock<T> {
    fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }
    fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        f(&mut self.0.lock().unwrap())
    }
    fn try_with<R>(&self, f: impl FnOnce(&mut T) -> R) -> Option<R> {
        match self.0.try_lock() {
            Ok(mut value) => Some(f(&mut value)),
            Err(TryLockError::WouldBlock) => None,
            Err(error @ TryLockError::Poisoned(_)) => panic!("{error}"),
        }
    }
    fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap()
    }
}

struct ShuttlePlatform<W, Y>(PhantomData<fn() -> (W, Y)>);

shuttle::thread_local! {
    static CPU: Cell<u32> = const { Cell::new(0) };
}

impl<W: AtomicWord, Y: Stay + 'static> Platform for ShuttlePlatform<W, Y> {
    type Byte = Byte;
    type Half = Half;
    type Word = W;
    type Lock<T: Send> = ShuttleLock<T>;
    type Slot<T: Send> = SharedSlot<T, ShuttleLock<Guarded<T>>, Y>;

    fn cpu(&self) -> CpuId {
        CPU.with(|cpu| CpuId(cpu.get()))
    }

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

impl<W: AtomicWord, Y: Stay + 'static> zonal::Host for ShuttlePlatform<W, Y> {}

impl<W: AtomicWord, Y: Stay + 'static> TestHost for ShuttlePlatform<W, Y> {
    const NAME: &'static str = "Shuttle";

    fn for_shape(_: Shape) -> Self {
        Self(PhantomData)
    }

    fn switch_cpu(&self, cpu: CpuId) -> bool {
        CPU.with(|own| own.set(cpu.0));
        true
    }
}

zonal::preset! {
    /// The default preset with stacks of a frame and more, and no dirty limits.
    Mapped = "Mapped", over Zonal { Pcp = Stacks<1, 4>, Dirty = Unlimited }
}

const FRAMES: u64 = 288;
const CPUS: u32 = 3;
const THREADS: u32 = 4;
const STEPS: usize = 40;
/// As many as find what is planted; four times as many by `cargo xtask shuttle --wide`.
const SCHEDULES: usize = if option_env!("ZONAL_SHUTTLE_WIDE").is_some() { 2000 } else { 500 };
/// The schedules of a model are those of one seed, so that a failure comes again and a canary is no matter of luck;
/// `SHUTTLE_RANDOM_SEED=N` gives others.
const SEED: u64 = 1;
const MOVABLE: Request = Request::frame().migrate(MigrateType::Movable);

fn plan() -> Plan {
    let mut config = Config::new(CPUS);
    config.pageblock_order = Order::new(3).unwrap();
    (config.dma_limit, config.dma32_limit) = (Pfn::new(0), Pfn::new(0));
    config.watermarks.min_free = MinFree::None;
    config.lowmem_ratio = [0; 4];
    config.highatomic = false;
    config.pcp_batch = Some(3);
    let map = MemoryMap::from_regions(&[Region::usable(PhysAddr(0), FRAMES << 12)]).unwrap();
    Plan::new(map.sanitise().unwrap(), config, |_, _, _| 1).unwrap()
}

/// Who holds which frame; not a scheduling point.
struct Ledger(Vec<AtomicBool>);

impl Ledger {
    fn set(&self, pfn: Pfn, order: Order, held: bool) {
        let first = pfn.get() as usize;
        for frame in &self.0[first..][..order.frames() as usize] {
            let before = frame.swap(held, Ordering::SeqCst);
            assert_ne!(before, held, "I-3: {pfn:?} of {order:?}");
        }
    }
}

/// One step of a thread that keeps at most `quota` frames, and six more by a bulk request; what
/// it cannot have, it goes without.
fn step<P: TestHost, S: Policy>(
    world: &World<'_, P, S>,
    ledger: &Ledger,
    held: &mut Vec<(Pfn, Order)>,
    quota: u64,
) {
    let frames: u64 = held.iter().map(|(_, order)| order.frames()).sum();
    let choice = thread_rng().gen_range(0..16);
    let mixed = S::Free::SKIPS_MERGES;
    let allocator = &world.allocator;
    match choice {
        0 => {
            allocator.drain_cpu(CpuId(thread_rng().gen_range(0..CPUS)));
        }
        1 => {
            let mut out = [Pfn::default(); 6];
            if frames <= quota && allocator.alloc_bulk(&MOVABLE, &mut out).is_ok() {
                out.iter().for_each(|&pfn| ledger.set(pfn, Order::ZERO, true));
                held.extend(out.map(|pfn| (pfn, Order::ZERO)));
            }
        }
        2 => assert!(allocator.alloc(&MOVABLE.zero()).is_err(), "the host cannot zero"),
        3 => {
            let order = Order::new(thread_rng().gen_range(1..4)).unwrap();
            let fits = frames + order.frames() <= quota;
            if fits && let Ok(pfn) = allocator.alloc_raw(&MOVABLE.with_order(order)) {
                ledger.set(pfn, order, true);
                held.push((pfn, order));
            }
        }
        4 if mixed => {
            let off = allocator.disable_clusters(ZoneId(0));
            if let Some((pfn, order)) = held.pop() {
                ledger.set(pfn, order, false);
                allocator.free_raw(pfn, order).expect("I-3: what is held can be freed");
            }
            drop(off);
        }
        5 if mixed => {
            let _ = allocator.compact_zone(ZoneId(0), Order::new(3).unwrap(), CompactMode::Sync);
        }
        4..=9 if frames < quota => {
            // A type that has nothing claims a pageblock or steals.
            let ty = thread_rng().gen_range(0..3);
            let pfn = allocator
                .alloc_raw(&MOVABLE.migrate(MigrateType::ALL[ty]))
                .expect("I-6: the quotas leave some free");
            ledger.set(pfn, Order::ZERO, true);
            held.push((pfn, Order::ZERO));
        }
        _ if !held.is_empty() => {
            let (pfn, order) = held.swap_remove(thread_rng().gen_range(0..held.len()));
            ledger.set(pfn, order, false);
            allocator.free_raw(pfn, order).expect("I-3: what is held can be freed");
        }
        _ => {}
    }
}

/// All threads take steps, then give all back; but `orders` is there for them.
fn run<W: AtomicWord, Y: Stay + 'static, S: Policy>(plan: &Plan, orders: &[u8]) {
    with_plan::<ShuttlePlatform<W, Y>, S, _>(Shape::Blocks3, plan, |world| {
        let allocator = &world.allocator;
        let fresh = allocator.zone_info(ZoneId(0)).unwrap();
        let ledger = Ledger((0..FRAMES).map(|_| AtomicBool::new(false)).collect());
        let rest: Vec<_> = orders
            .iter()
            .map(|&order| allocator.alloc(&MOVABLE.with_order(Order::new(order).unwrap())).unwrap())
            .collect();
        let free = allocator.zone_info(ZoneId(0)).unwrap().free;
        // With the six frames of a bulk request for each, less than all.
        let quota = (free - 1) / u64::from(THREADS) - 6;
        thread::scope(|scope| {
            for number in 0..THREADS {
                let ledger = &ledger;
                scope.spawn(move || {
                    allocator.platform().switch_cpu(CpuId(number % CPUS));
                    let mut held = Vec::new();
                    (0..STEPS).for_each(|_| step(world, ledger, &mut held, quota));
                    for (pfn, order) in held {
                        ledger.set(pfn, order, false);
                        allocator.free_raw(pfn, order).expect("I-3: what is held can be freed");
                    }
                });
            }
        });
        rest.into_iter()
            .for_each(|block| allocator.free(block).expect("I-3: what is held can be freed"));
        let before = allocator.zone_info(ZoneId(0)).unwrap();
        assert_eq!(before.free + before.cached, FRAMES, "I-2");
        assert_eq!(allocator.drain_all(), before.cached);
        let after = allocator.zone_info(ZoneId(0)).unwrap();
        assert_eq!((after.free, after.cached), (FRAMES, 0), "I-3");
        if !S::Free::SKIPS_MERGES {
            // Whatever the types of their pageblocks are by now.
            let by_order = |zone: &ZoneInfo| zone.blocks.map(|of| of.into_iter().sum::<u32>());
            assert_eq!(by_order(&after), by_order(&fresh), "I-5");
        }
        let (seen, model) = (Snapshot::of(allocator), Model::new(plan));
        check_all(&seen, &model, &Rules::of::<S>()).expect("all invariants hold");
        check_clusters(allocator).expect("clusters are what the array says");
    });
}

/// Runs under the schedules of `scheduler`.
fn explore<W: AtomicWord + 'static, Y: Stay + 'static, S: Policy>(
    scheduler: impl Scheduler + 'static,
    orders: &'static [u8],
) {
    let mut config = shuttle::Config::new();
    // Plans and errors are large, and shuttle's stacks are small.
    config.stack_size = 1 << 20;
    config.silence_warnings = true;
    let plan = plan();
    Runner::new(scheduler, config).run(move || run::<W, Y, S>(&plan, orders));
}

fn random() -> RandomScheduler {
    RandomScheduler::new_from_seed(SEED, SCHEDULES)
}

/// Few changes of thread, at arbitrary points.
fn few_switches() -> PctScheduler {
    PctScheduler::new_from_seed(SEED, 3, SCHEDULES)
}

/// 48 frames are left.
const SCARCE: &[u8] = &[7, 6, 5, 4];

/// Much is free: refills and spills.
#[test]
fn plenty() {
    explore::<Word, Unbounded, Mapped>(random(), &[]);
}

/// 48 frames are free for all four: caches are drained, and what others look for is on its way.
#[test]
fn scarce() {
    explore::<Word, Unbounded, Mapped>(random(), SCARCE);
}

/// As [`scarce`], with few changes of thread, at arbitrary points.
#[test]
fn scarce_few_switches() {
    explore::<Word, Unbounded, Mapped>(few_switches(), SCARCE);
}

/// Canary: [`scarce`] with torn words.
#[test]
#[should_panic(expected = "I-")]
fn canary_torn_words_are_found() {
    explore::<Torn, Unbounded, Mapped>(random(), SCARCE);
}

/// As [`scarce`], with a CPU's stays in its slot in pieces: others come in between them.
#[test]
fn scarce_in_pieces() {
    explore::<Word, InPieces, Mapped>(random(), SCARCE);
}

/// As [`scarce_in_pieces`], with few changes of thread.
#[test]
fn scarce_in_pieces_few_switches() {
    explore::<Word, InPieces, Mapped>(few_switches(), SCARCE);
}

/// Canary: [`scarce_in_pieces`] with torn words.
#[test]
#[should_panic(expected = "I-")]
fn canary_torn_words_in_pieces_are_found() {
    explore::<Torn, InPieces, Mapped>(random(), SCARCE);
}

/// Batches are cut off, merged, claimed and compacted by all four at once.
#[test]
fn clusters() {
    explore::<Word, Unbounded, Cluster>(random(), SCARCE);
}

/// As [`clusters`], with few changes of thread.
#[test]
fn clusters_few_switches() {
    explore::<Word, Unbounded, Cluster>(few_switches(), SCARCE);
}

/// As [`clusters`], with full batches that join.
#[test]
fn joined_clusters() {
    explore::<Word, Unbounded, ClusterFree>(random(), SCARCE);
}

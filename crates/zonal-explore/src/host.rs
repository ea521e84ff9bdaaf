//! The host under the explored allocator: virtual CPUs, with locks and callbacks watched.

use crate::ledger::Ledger;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::marker::PhantomData;
use zonal::platform::shared_slot::{Guarded, SharedSlot};
use zonal::platform::{AtomicWord, FenceUnsupported, Lock, Platform, Slot};
use zonal::policy::Policy;
use zonal::slow_path::Shortage;
use zonal::{Allocator, CpuId, NodeId, Order, Pfn, ZoneId};
use zonal::{CannotZero, Immovable, Migration};
use zonal_sim::explore;
use zonal_sim::lock::SimLock;
use zonal_sim::platform::{SimByte, SimHalf, SimWord};
use zonal_sim::slot::SimSlot;
use zonal_testkit::host::TestHost;
use zonal_testkit::shape::Shape;

thread_local! {
    /// Zone locks and slots that each virtual CPU is inside of; 8 stands for no CPU.
    static DEPTH: RefCell<[[u32; 9]; 2]> = const { RefCell::new([[0; 9]; 2]) };
    static NESTED: Cell<u32> = const { Cell::new(0) };
}

fn here() -> usize {
    explore::current().map_or(8, |cpu| cpu as usize)
}

/// Locks that the running CPU is inside of.
fn held() -> u32 {
    DEPTH.with_borrow(|depth| depth.iter().map(|of| of[here()]).sum())
}

/// Being inside a lock of a kind, to the end of the scope.
struct Inside<const KIND: usize>(usize);

impl<const KIND: usize> Inside<KIND> {
    fn new() -> Self {
        let cpu = here();
        DEPTH.with_borrow_mut(|depth| {
            NESTED.set(NESTED.get() + u32::from(depth[KIND][cpu] > 0));
            depth[KIND][cpu] += 1;
        });
        Self(cpu)
    }
}

impl<const KIND: usize> Drop for Inside<KIND> {
    fn drop(&mut self) {
        DEPTH.with_borrow_mut(|depth| depth[KIND][self.0] = depth[KIND][self.0].saturating_sub(1));
    }
}

/// A lock that is watched. `KIND` 0: zone lock; 1: slot.
#[derive(Debug)]
pub(crate) struct Watched<L, const KIND: usize>(L);

impl<T, L: Lock<T>, const KIND: usize> Lock<T> for Watched<L, KIND> {
    fn new(value: T) -> Self {
        Self(L::new(value))
    }
    fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        self.0.with(|value| {
            let _inside = Inside::<KIND>::new();
            f(value)
        })
    }
    fn try_with<R>(&self, f: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.0.try_with(|value| {
            let _inside = Inside::<KIND>::new();
            f(value)
        })
    }
    fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }
}

/// What a host is made of: sound parts, or a planted bug.
pub(crate) trait Parts: 'static {
    type Word: AtomicWord;
    type Lock<T: Send>: Lock<T>;
    type Slot<T: Send>: Slot<T>;
}

/// The simulator's words and locks, and the core's own slots over those.
pub(crate) struct Sound;

impl Parts for Sound {
    type Word = SimWord;
    type Lock<T: Send> = Watched<SimLock<T>, 0>;
    type Slot<T: Send> = SharedSlot<T, Watched<SimLock<Guarded<T>>, 1>>;
}

/// The simulator's slots.
pub(crate) struct WithSimSlots;

impl Parts for WithSimSlots {
    type Word = SimWord;
    type Lock<T: Send> = Watched<SimLock<T>, 0>;
    type Slot<T: Send> = SimSlot<T>;
}

/// What the host may do, drawn by the seed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Manners {
    /// It moves pages.
    pub(crate) moves: bool,
    /// It frees what was posted when memory is short.
    pub(crate) reclaims: bool,
    /// Its CPU numbers are wrong most of the time, as with threads that migrate.
    pub(crate) wanders: bool,
}

/// The host, and the ledger of what it holds.
pub(crate) struct Explored<K: Parts> {
    shape: Shape,
    pub(crate) manners: Cell<Manners>,
    pub(crate) ledger: Ledger,
    /// Names of blocks that one CPU has left for another.
    pub(crate) post: RefCell<Vec<u64>>,
    /// Calls of the allocator that have not returned, and all that were made; one that gets in
    /// the way of others more than once counts as often.
    pub(crate) inside: Cell<u64>,
    pub(crate) calls: Cell<u64>,
    /// Commands done, each with its checks.
    pub(crate) steps: Cell<u64>,
    /// A CPU has set pageblocks apart, or moves what is in them: what is free there is not
    /// for every request.
    pub(crate) apart: Cell<u32>,
    /// Frames that are out, or may be in the hands of a call that has not returned.
    committed: Cell<u64>,
    /// The most of them since each CPU's last [`commit`](Self::commit).
    peaks: RefCell<[u64; 8]>,
    /// Refusals that were checked: no other CPU was inside, or it does not matter (I-6).
    pub(crate) alone: Cell<u32>,
    pub(crate) among: Cell<u32>,
    hint: Cell<u32>,
    parts: PhantomData<fn() -> K>,
}

impl<K: Parts> fmt::Debug for Explored<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Explored").field("shape", &self.shape).finish_non_exhaustive()
    }
}

impl<K: Parts> Explored<K> {
    /// The running CPU asks for `frames` frames.
    pub(crate) fn commit(&self, frames: u64) {
        let committed = self.committed.get() + frames;
        self.committed.set(committed);
        let mut peaks = self.peaks.borrow_mut();
        peaks.iter_mut().for_each(|peak| *peak = committed.max(*peak));
        if let Some(own) = peaks.get_mut(here()) {
            *own = committed;
        }
    }

    /// `frames` frames did not come, or are back. Returns the peak since the CPU's last request.
    pub(crate) fn uncommit(&self, frames: u64) -> u64 {
        self.committed.set(self.committed.get() - frames);
        self.peaks.borrow().get(here()).copied().unwrap_or(u64::MAX)
    }

    /// The node that a request of the running CPU, or of the owner of a CPU's caches, comes from;
    /// `None` if the host does not tell where that is.
    pub(crate) fn node_asked(&self, caches: u32, owned: Option<CpuId>) -> Option<NodeId> {
        let wanders = self.manners.get().wanders && owned.is_none();
        let cpu = owned.unwrap_or_else(|| self.cpu());
        (!wanders).then(|| self.node(CpuId(cpu.0 % caches)))
    }

    /// A callback: never with a lock held (I-7). Others may go on meanwhile.
    fn called(&self, what: &str) {
        let held = held();
        if held > 0 {
            self.ledger.fail("I-7", format!("{what} with {held} lock(s) held"));
        }
        explore::yield_now();
    }
}

impl<K: Parts> Platform for Explored<K> {
    type Byte = SimByte;
    type Half = SimHalf;
    type Word = K::Word;
    type Lock<T: Send> = K::Lock<T>;
    type Slot<T: Send> = K::Slot<T>;

    fn cpu(&self) -> CpuId {
        let cpu = explore::current().unwrap_or(0);
        if !self.manners.get().wanders {
            return CpuId(cpu);
        }
        let next = self.hint.get().wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        self.hint.set(next);
        CpuId(next >> 24)
    }

    fn node(&self, cpu: CpuId) -> NodeId {
        self.shape.node_of(cpu)
    }

    fn relax() {
        zonal_sim::platform::Sim::relax();
    }

    fn prefetch<T>(what: &T) {
        zonal_sim::platform::Sim::prefetch(what);
    }

    fn light_fence() {
        zonal_sim::platform::Sim::light_fence();
    }

    fn heavy_fence() -> Result<(), FenceUnsupported> {
        zonal_sim::platform::Sim::heavy_fence()
    }
}

impl<K: Parts> zonal::Host for Explored<K> {
    fn zero(&self, _: Pfn, _: Order) -> Result<(), CannotZero> {
        self.called("zero");
        Ok(())
    }

    fn wake_reclaim(&self, _: ZoneId) {
        self.called("wake_reclaim");
    }

    fn reclaim<S: Policy>(&self, allocator: &Allocator<'_, Self, S>, _: &Shortage) -> u64 {
        self.called("reclaim");
        if !self.manners.get().reclaims {
            return 0;
        }
        let name = self.post.borrow_mut().pop();
        name.map_or(0, |name| {
            let (pfn, order) = self.ledger.leave(name);
            if let Err(error) = allocator.free_raw(pfn, order) {
                self.ledger.fail("I-4", format!("a good free in reclaim: {error}"));
            }
            self.uncommit(order.frames());
            order.frames()
        })
    }

    fn wake_compaction(&self, _: ZoneId, _: Order) {
        self.called("wake_compaction");
    }

    fn can_migrate(&self) -> bool {
        self.manners.get().moves
    }

    fn migrate<S: Policy>(
        &self,
        _: &Allocator<'_, Self, S>,
        page: &Migration,
    ) -> Result<(), Immovable> {
        self.called("migrate");
        let moved =
            self.manners.get().moves && self.ledger.relocate(page.from, page.to, page.order);
        // The owner of the moved page may free it before the allocator hears of the move.
        explore::yield_now();
        if moved { Ok(()) } else { Err(Immovable) }
    }
}

impl<K: Parts> TestHost for Explored<K> {
    const NAME: &'static str = "Explored";

    fn for_shape(shape: Shape) -> Self {
        DEPTH.set([[0; 9]; 2]);
        NESTED.set(0);
        Self {
            shape,
            manners: Cell::default(),
            ledger: Ledger::default(),
            post: RefCell::default(),
            inside: Cell::default(),
            calls: Cell::default(),
            steps: Cell::default(),
            apart: Cell::default(),
            committed: Cell::default(),
            peaks: RefCell::default(),
            alone: Cell::default(),
            among: Cell::default(),
            hint: Cell::new(1),
            parts: PhantomData,
        }
    }

    fn faults(&self) -> Vec<String> {
        let nested = NESTED.take();
        let fault = format!("{nested} lock(s) taken inside a lock of the same kind");
        (nested > 0).then_some(fault).into_iter().collect()
    }
}

//! User-space threads as the allocator's host.
//!
//! CPUs are the machine's; zone locks [spin, then park](crate::park_lock); per-CPU caches are
//! [biased towards an owner](crate::biased_slot). With an [`Arena`](crate::Arena) behind it,
//! the host can fill frames with zero bytes; without, frames are numbers only. With a
//! [pager](crate::pager) it can give pages up and move them.
//!
//! ```
//! use zonal::{Host, platform::Platform};
//! use zonal_host::threads::Threads;
//! let host = Threads::new();
//! assert!(host.cpu().0 < zonal_host::cpu::possible());
//! assert!(host.zero(zonal::Pfn::new(0), zonal::Order::ZERO).is_err(), "no memory behind it");
//! ```

use crate::alarm::Alarm;
use crate::biased_slot::BiasedSlot;
use crate::cpu;
use crate::fence::{Fence, Membarrier};
use crate::gate::Gate;
use crate::numa::Topology;
use crate::pager::{Pager, Registered};
use crate::park_lock::ParkLock;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use zonal::Host;
use zonal::frame::FrameState;
use zonal::platform::{FenceUnsupported, Platform};
use zonal::policy::Policy;
use zonal::slow_path::Shortage;
use zonal::units::FRAME_SHIFT;
use zonal::{Allocator, CpuId, NodeId, Order, Pfn, ZoneId};
use zonal::{CannotZero, Immovable, Migration};

/// The host: see the [module](self).
#[derive(Debug)]
pub struct Threads {
    /// CPUs whose caches are reached by number; higher numbers wrap round.
    shared: u32,
    /// The node of each CPU of the allocator; `None`: one node.
    nodes: Option<Box<[AtomicU8]>>,
    /// The machine's own nodes, if it has several. A CPU of the allocator may stand for many of its CPUs.
    machine: Option<Topology>,
    memory: Option<Memory>,
    pager: Option<Registered>,
    /// In an arena from the start, for its compactors.
    pub(crate) alarm: OnceLock<Arc<Alarm>>,
    pub(crate) gate: Gate,
}

/// The memory behind the frames.
#[derive(Debug)]
struct Memory {
    base: NonNull<u8>,
    first: Pfn,
    frames: u64,
}

// SAFETY: an address and two numbers; what is written through it is settled by the contract of
// `Threads::with_memory`.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Default for Threads {
    fn default() -> Self {
        Self::new()
    }
}

impl Threads {
    /// Every CPU by its number; frames without memory.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            shared: u32::MAX,
            nodes: None,
            machine: None,
            memory: None,
            pager: None,
            alarm: OnceLock::new(),
            gate: Gate::new(),
        }
    }

    /// The same with memory: frame `first` starts at `base`, and `frames` follow in a row.
    ///
    /// # Safety
    /// For as long as the host lives, the memory must be readable and writable; and
    /// [`zero`](zonal::Host::zero) must be called for a block in it only while there is no
    /// reference into that block.
    #[must_use]
    pub const unsafe fn with_memory(mut self, base: NonNull<u8>, first: Pfn, frames: u64) -> Self {
        self.memory = Some(Memory { base, first, frames });
        self
    }

    /// The same with a pager, which gives pages up and moves them.
    ///
    /// # Safety
    /// For as long as the host lives, [`migrate`](zonal::Host::migrate) must be called only by the
    /// allocator that the host belongs to, whose frames are an open arena's (as far as the pager
    /// moves any).
    #[must_use]
    pub unsafe fn with_pager(mut self, pager: Arc<dyn Pager>) -> Self {
        self.pager = Some(Registered::new(pager));
        self
    }

    /// The same for an allocator whose caches from number `shared` on are for owners only.
    /// `shared` must not be 0; 0 counts as 1.
    #[must_use]
    pub const fn with_shared(mut self, shared: u32) -> Self {
        self.shared = if shared == 0 { 1 } else { shared };
        self
    }

    /// The same on a machine with nodes, for an allocator with `cpus` CPUs. Those beyond the
    /// machine's are on its first node until [`set_node`](Self::set_node) says otherwise.
    #[must_use]
    pub fn with_nodes(mut self, machine: &Topology, cpus: u32) -> Self {
        let node = |cpu| AtomicU8::new(machine.node_of(CpuId(cpu)).0);
        self.nodes = Some((0..cpus).map(node).collect());
        self.machine = Some(machine.clone());
        self
    }

    /// The node of the CPU that the caller runs on, this moment.
    pub(crate) fn node_here(&self) -> NodeId {
        self.machine.as_ref().map_or(NodeId(0), |machine| machine.node_of(cpu::current()))
    }

    /// Makes what is made once, while there is one thread: in a child of `fork` none waits for another then.
    pub(crate) fn ready(self) -> Self {
        self.gate.ready();
        self.alarm.get_or_init(Arc::default);
        self
    }

    /// Moves a CPU of the allocator to another node, for an owner's CPU. Nothing happens on a
    /// machine without nodes. Relaxed: a hint.
    pub fn set_node(&self, cpu: CpuId, node: NodeId) {
        let entry = self.nodes.as_ref().and_then(|nodes| nodes.get(cpu.0 as usize));
        if let Some(entry) = entry {
            entry.store(node.0, Ordering::Relaxed);
        }
    }
}

impl Platform for Threads {
    type Byte = AtomicU8;
    type Half = AtomicU32;
    type Word = AtomicU64;
    type Lock<T: Send> = ParkLock<T>;
    type Slot<T: Send> = BiasedSlot<T>;

    /// Spins a little, then lets others run: who is waited for may not have a CPU.
    fn relax() {
        for _ in 0..64 {
            core::hint::spin_loop();
        }
        std::thread::yield_now();
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn prefetch<T>(what: &T) {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let line = core::ptr::from_ref(what).cast();
        // SAFETY: every x86-64 CPU has the instruction, and it only hints: it never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line) };
    }

    #[inline(always)]
    fn light_fence() {
        Membarrier::light();
    }

    fn heavy_fence() -> Result<(), FenceUnsupported> {
        Membarrier::available().map_err(FenceUnsupported)?;
        Membarrier::heavy().map_err(|_| FenceUnsupported("membarrier is refused now"))
    }

    zonal_runs::forward!();

    #[inline]
    fn cpu(&self) -> CpuId {
        let CpuId(cpu) = cpu::current();
        CpuId(if cpu < self.shared { cpu } else { cpu % self.shared })
    }

    #[inline]
    fn node(&self, cpu: CpuId) -> NodeId {
        let Some(nodes) = &self.nodes else { return NodeId(0) };
        NodeId(nodes.get(cpu.0 as usize).map_or(0, |node| node.load(Ordering::Relaxed)))
    }
}

impl Host for Threads {
    fn zero(&self, pfn: Pfn, order: Order) -> Result<(), CannotZero> {
        let Some(memory) = &self.memory else { return Err(CannotZero) };
        let frame = pfn.get().checked_sub(memory.first.get()).ok_or(CannotZero)?;
        let end = frame.checked_add(order.frames()).ok_or(CannotZero)?;
        if end > memory.frames {
            return Err(CannotZero);
        }
        // SAFETY: `frame` is one of the memory's, so the address is inside it.
        let start = unsafe { memory.base.add((frame as usize) << FRAME_SHIFT) };
        // SAFETY: the whole block is inside the memory, which is writable, and there is no
        // reference into it: the contract of `with_memory`.
        unsafe { start.write_bytes(0, order.bytes()) };
        Ok(())
    }

    /// Tells the pager.
    fn wake_reclaim(&self, zone: ZoneId) {
        if let Some(pager) = &self.pager {
            pager.wake_reclaim(zone);
        }
    }

    /// Wakes the [compactor](crate::compactor), and tells the pager.
    fn wake_compaction(&self, zone: ZoneId, order: Order) {
        if let Some(alarm) = self.alarm.get() {
            alarm.ring(order);
        }
        if let Some(pager) = &self.pager {
            pager.wake_compaction(zone, order);
        }
    }

    /// Waits for a [give-back](crate::Arena::give_back) that holds free blocks just now; if
    /// that was not it, and every other time at least, asks the pager: beside a thread that gives
    /// back again and again that may be it each time, and the allocator does not ask for ever.
    fn reclaim<S: Policy>(&self, allocator: &Allocator<'_, Self, S>, shortage: &Shortage) -> u64 {
        let held = self.gate.wait(shortage.attempt);
        if held && shortage.attempt.is_multiple_of(2) {
            return 1;
        }
        let freed = self.pager.as_ref().map_or(0, |pager| pager.reclaim(allocator, shortage));
        freed.max(u64::from(held))
    }

    /// Whether there is a pager, and the thread is not inside it already.
    fn can_migrate(&self) -> bool {
        self.pager.as_ref().is_some_and(Registered::can_migrate)
    }

    /// Asks the pager, unless `page.from` is no block of this order any more: the allocator
    /// looked a moment ago. The pager compares again, under its own lock.
    fn migrate<S: Policy>(
        &self,
        allocator: &Allocator<'_, Self, S>,
        page: &Migration,
    ) -> Result<(), Immovable> {
        let pager = self.pager.as_ref().ok_or(Immovable)?;
        if allocator.frame_state(page.from) != Some(FrameState::allocated(page.order)) {
            return Err(Immovable);
        }
        // SAFETY: by the contract of `with_pager` the caller is our allocator, and it promises
        // (at `Platform::migrate`) that `to` is allocated, of this order, and no other holder's,
        // and leaves it to the pager if that says `Ok`.
        unsafe { pager.migrate(page) }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::Arena;
    use crate::pager::FreeFrames;
    use crate::region::Region;
    use zonal::Request;

    #[test]
    fn numbers_wrap_round_below_the_owners() {
        for shared in [0, 1, 2, 3] {
            let host = Threads::new().with_shared(shared);
            assert!(host.cpu().0 < shared.max(1));
        }
        let here = cpu::allowed().unwrap().pop().unwrap();
        cpu::pin_to(here).unwrap();
        assert_eq!(Threads::new().cpu(), here);
    }

    #[test]
    fn the_heavy_fence_works_where_owned_slots_do() {
        Threads::light_fence();
        let again = [Threads::heavy_fence(), Threads::heavy_fence()];
        assert_eq!(again, [Membarrier::available().map_err(FenceUnsupported); 2]);
    }

    #[test]
    fn nodes() {
        let host = Threads::new();
        host.set_node(CpuId(0), NodeId(3));
        assert_eq!(host.node(CpuId(0)), NodeId(0), "one node");
        let machine = Topology::flat();
        let host = host.with_nodes(&machine, 2);
        host.set_node(CpuId(1), NodeId(3));
        host.set_node(CpuId(2), NodeId(3));
        assert_eq!([0, 1, 2].map(|cpu| host.node(CpuId(cpu)).0), [0, 3, 0]);
    }

    /// Counts how often it is asked, and gives nothing up.
    struct Asked(AtomicU32);

    // SAFETY: it moves nothing.
    unsafe impl Pager for Asked {
        fn reclaim(&self, _: &dyn FreeFrames, _: &Shortage) -> u64 {
            self.0.fetch_add(1, Ordering::Relaxed);
            0
        }
    }

    #[test]
    fn the_pager_is_asked_beside_a_thread_that_gives_back() {
        let pager = Arc::new(Asked(AtomicU32::new(0)));
        let arena = Arena::builder().bytes(4 << 20).pager(pager.clone()).open().unwrap();
        // SAFETY: nothing is freed, zeroed or migrated through it.
        let allocator = unsafe { arena.allocator() };
        let host = allocator.platform();
        let reclaim =
            |attempt| host.reclaim(allocator, &Shortage { request: Request::frame(), attempt });
        for attempt in 0..16 {
            host.gate.hold(|| ());
            assert_eq!(reclaim(attempt), 1, "there may be more than before");
        }
        assert_eq!(pager.0.load(Ordering::Relaxed), 8);
        assert_eq!(reclaim(16), 0);
        assert_eq!(pager.0.load(Ordering::Relaxed), 9);
    }

    #[test]
    fn zeroes_whole_blocks_inside_its_memory_only() {
        let region = Region::zeroed(4 << FRAME_SHIFT).unwrap();
        let bytes = region.len();
        // SAFETY: committed, and no other thread has the address.
        unsafe { region.base().write_bytes(1, bytes) };
        let first = Pfn::new(100);
        // SAFETY: `region` outlives the host, and the references below live while it is idle.
        let host = unsafe { Threads::new().with_memory(region.base(), first, 4) };
        let order = Order::new(1).unwrap();
        for (pfn, order) in [
            (99, Order::ZERO),
            (104, Order::ZERO),
            (103, order),
            (u64::MAX, order),
            (0, Order::MAX),
        ] {
            assert_eq!(host.zero(Pfn::new(pfn), order), Err(CannotZero), "{pfn} {order}");
        }
        assert_eq!(host.zero(Pfn::new(101), order), Ok(()));
        // SAFETY: committed, and no thread writes while the slice lives.
        let seen = unsafe { std::slice::from_raw_parts(region.base().as_ptr(), bytes) };
        let frames: Vec<u8> = seen.chunks(4096).map(|frame| frame[7]).collect();
        assert_eq!(frames, [1, 0, 0, 1]);
        assert_eq!(seen.iter().filter(|&&byte| byte == 1).count(), 2 * 4096);
    }
}

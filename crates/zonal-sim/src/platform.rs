//! The [`Platform`] of virtual CPUs.
//!
//! ```
//! use zonal::platform::{AtomicWord, Platform};
//! use zonal_sim::platform::Sim;
//! let word = <Sim as Platform>::Word::new(1);
//! // Without a running machine an access costs nothing.
//! assert_eq!(word.fetch_add(2, core::sync::atomic::Ordering::Relaxed), 1);
//! ```

use crate::coroutine;
use crate::engine::{self, Access, Before};
use crate::host;
use crate::lock::SimLock;
use crate::machine::Topology;
use crate::memory;
use crate::slot::SimSlot;
use crate::ticks::Ticks;
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use zonal::Host;
use zonal::platform::{AtomicByte, AtomicHalf, AtomicWord, FenceUnsupported, Platform};
use zonal::policy::Policy;
use zonal::slow_path::Shortage;
use zonal::{Allocator, CpuId, NodeId, Order, ZoneId};
use zonal::{Immovable, Migration};

/// One turn of a loop that waits for another CPU: a `pause` and the test.
const RELAX: Ticks = Ticks(50 * Ticks::PER_CYCLE);

/// A system call that interrupts the other CPUs and waits for them: about two microseconds of
/// `membarrier` on a machine with few of them.
const HEAVY_FENCE: Ticks = Ticks(5_000 * Ticks::PER_CYCLE);

/// The host of virtual CPUs.
#[derive(Clone, Copy, Debug)]
pub struct Sim {
    topology: Topology,
}

impl Sim {
    /// The host on a machine.
    #[must_use]
    pub const fn new(topology: Topology) -> Self {
        Self { topology }
    }
}

impl Platform for Sim {
    type Byte = SimByte;
    type Half = SimHalf;
    type Word = SimWord;
    type Lock<T: Send> = SimLock<T>;
    type Slot<T: Send> = SimSlot<T>;

    fn cpu(&self) -> CpuId {
        CpuId(engine::cpu())
    }

    fn node(&self, cpu: CpuId) -> NodeId {
        NodeId(self.topology.socket_of(cpu.0) as u8)
    }

    fn relax() {
        let waits = engine::with_cpu(|engine, cpu| {
            engine.spend(cpu, RELAX);
            let clock = *engine.clock(cpu);
            engine.schedule.push(cpu, clock);
        });
        if waits.is_some() {
            coroutine::switch();
        } else {
            // While the stacks of a broken run are unwound no other CPU runs: better to abort.
            assert!(!std::thread::panicking(), "waits for a CPU that will never go on");
        }
    }

    /// Charges the instruction, and a line that comes from elsewhere as one of many under way at once.
    fn prefetch<T>(what: &T) {
        let address = core::ptr::from_ref(what).addr();
        memory::prefetch(address);
        engine::with_cpu(|engine, cpu| engine.prefetch_charged(cpu, address));
    }

    /// A note to the compiler, as in user space and in a kernel; nothing is reordered here.
    fn light_fence() {}

    /// Charges what the caller pays; the interrupts on the other CPUs are left out.
    fn heavy_fence() -> Result<(), FenceUnsupported> {
        let others_first = engine::with_cpu(|engine, cpu| {
            engine.spend(cpu, HEAVY_FENCE);
            let clock = *engine.clock(cpu);
            engine.schedule.push(cpu, clock);
        });
        if others_first.is_some() {
            coroutine::switch();
        }
        Ok(())
    }
}

impl Host for Sim {
    fn wake_reclaim(&self, _: ZoneId) {
        host::call((), |host| host.wake_reclaim());
    }

    fn reclaim<S: Policy>(&self, allocator: &Allocator<'_, Self, S>, shortage: &Shortage) -> u64 {
        host::call(0, |host| host.reclaim(allocator, shortage))
    }

    fn wake_compaction(&self, _: ZoneId, order: Order) {
        host::call((), |host| host.wake_compaction(order));
    }

    fn can_migrate(&self) -> bool {
        host::call(false, |_| true)
    }

    fn migrate<S: Policy>(
        &self,
        _: &Allocator<'_, Self, S>,
        page: &Migration,
    ) -> Result<(), Immovable> {
        host::call(Err(Immovable), |host| host.migrate(page))
    }
}

/// Charges an access, and lets others go on if they are before it.
#[inline]
fn touch<T>(what: &T, access: Access) {
    touch_at(core::ptr::from_ref(what).addr(), access);
}

#[inline(never)]
fn touch_at(address: usize, access: Access) {
    if engine::is_quiet() {
        return;
    }
    // It is not read before its line has been looked up, which the host has elsewhere.
    memory::prefetch(address);
    let before = engine::with_cpu(|engine, cpu| engine.touch::<true>(cpu, address, access));
    do_before(before, address, access);
}

/// What comes before an access to a line that other CPUs have.
#[inline]
fn do_before(before: Option<Before>, address: usize, access: Access) {
    match before {
        None | Some(Before::Goes) => {}
        Some(Before::Pauses) => coroutine::pause(),
        Some(Before::Asks) => {
            coroutine::pause();
            engine::with_cpu(|engine, cpu| engine.ask(cpu, address, access));
        }
    }
}

/// The same for a word that is loaded. `now` is what it is before others go on.
#[inline(never)]
fn touch_word(address: usize, now: u64) {
    if engine::is_quiet() {
        return;
    }
    let before = engine::with_cpu(|engine, cpu| {
        engine.prefetch_linked(address, now);
        engine.touch::<true>(cpu, address, Access::Load)
    });
    do_before(before, address, Access::Load);
}

/// A byte whose accesses are charged to the CPU that makes them.
#[derive(Debug)]
#[repr(transparent)]
pub struct SimByte(AtomicU8);

impl AtomicByte for SimByte {
    fn new(value: u8) -> Self {
        Self(AtomicU8::new(value))
    }
    fn load(&self, _: Ordering) -> u8 {
        touch(self, Access::Load);
        self.0.load(Ordering::Relaxed)
    }
    fn store(&self, value: u8, _: Ordering) {
        touch(self, Access::Store);
        self.0.store(value, Ordering::Relaxed);
    }
    fn swap(&self, value: u8, _: Ordering) -> u8 {
        touch(self, Access::Update);
        self.0.swap(value, Ordering::Relaxed)
    }
    fn compare_exchange(&self, current: u8, new: u8, _: Ordering, _: Ordering) -> Result<u8, u8> {
        touch(self, Access::Update);
        self.0.compare_exchange(current, new, Ordering::Relaxed, Ordering::Relaxed)
    }
}

/// Half a word whose accesses are charged to the CPU that makes them.
#[derive(Debug)]
#[repr(transparent)]
pub struct SimHalf(AtomicU32);

impl AtomicHalf for SimHalf {
    fn new(value: u32) -> Self {
        Self(AtomicU32::new(value))
    }
    fn load(&self, _: Ordering) -> u32 {
        touch(self, Access::Load);
        self.0.load(Ordering::Relaxed)
    }
    fn store(&self, value: u32, _: Ordering) {
        touch(self, Access::Store);
        self.0.store(value, Ordering::Relaxed);
    }
}

/// A word whose accesses are charged to the CPU that makes them.
#[derive(Debug)]
#[repr(transparent)]
pub struct SimWord(AtomicU64);

impl AtomicWord for SimWord {
    fn new(value: u64) -> Self {
        Self(AtomicU64::new(value))
    }
    fn load(&self, _: Ordering) -> u64 {
        touch_word(core::ptr::from_ref(self).addr(), self.0.load(Ordering::Relaxed));
        self.0.load(Ordering::Relaxed)
    }
    fn store(&self, value: u64, _: Ordering) {
        touch(self, Access::Store);
        self.0.store(value, Ordering::Relaxed);
    }
    fn fetch_add(&self, value: u64, _: Ordering) -> u64 {
        touch(self, Access::Update);
        let old = self.0.load(Ordering::Relaxed);
        self.0.store(old.wrapping_add(value), Ordering::Relaxed);
        old
    }
    fn fetch_or(&self, mask: u64, _: Ordering) -> u64 {
        touch(self, Access::Update);
        self.0.fetch_or(mask, Ordering::Relaxed)
    }
    fn fetch_and(&self, mask: u64, _: Ordering) -> u64 {
        touch(self, Access::Update);
        self.0.fetch_and(mask, Ordering::Relaxed)
    }
    fn swap(&self, value: u64, _: Ordering) -> u64 {
        touch(self, Access::Update);
        self.0.swap(value, Ordering::Relaxed)
    }
    fn compare_exchange(
        &self,
        current: u64,
        new: u64,
        _: Ordering,
        _: Ordering,
    ) -> Result<u64, u64> {
        touch(self, Access::Update);
        let there = self.0.load(Ordering::Relaxed);
        if there != current {
            return Err(there);
        }
        self.0.store(new, Ordering::Relaxed);
        Ok(there)
    }
}

#[cfg(test)]
#[path = "platform_tests.rs"]
mod tests;

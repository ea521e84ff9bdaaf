//! Giving the memory of idle blocks back to the kernel.

use super::Arena;
use crate::region::{GiveBack, RegionError};
use std::convert::Infallible;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use zonal::inspect::Place;
use zonal::plan::ZoneSpec;
use zonal::policy::Policy;
use zonal::{MigrateType, NodePolicy, Order, Pfn, Request};

/// What [`Arena::give_back`] did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[must_use]
pub struct GivenBack {
    /// Free blocks looked at.
    pub examined: usize,
    /// Bytes of them that were in memory and were given back.
    pub bytes: usize,
}

/// The blocks that are worth a system call, largest first.
const ORDERS: [Order; 2] = [Order::MAX, Order::HUGE];
/// Whose blocks can be asked for.
const TYPES: [MigrateType; 3] =
    [MigrateType::Movable, MigrateType::Unmovable, MigrateType::Reclaimable];

/// Free blocks that are kept from others; free again when this is dropped, by a panic too.
struct Held<'a, S: Policy> {
    arena: &'a Arena<S>,
    /// Each with whether nothing of it is in memory any more.
    blocks: Vec<(Pfn, Order, bool)>,
}

impl<S: Policy> Drop for Held<'_, S> {
    fn drop(&mut self) {
        let allocator = self.arena.inner();
        let mut panicked = None;
        for &(pfn, order, gone) in self.blocks.iter().rev() {
            let free = || {
                let freed = match gone {
                    true => allocator.free_given_back(pfn, order),
                    false => allocator.free_raw(pfn, order),
                };
                debug_assert!(freed.is_ok(), "a block just allocated can be freed");
            };
            // A trace sink that panics has freed nothing: once more, and then the others.
            if let Err(panic) = catch_unwind(AssertUnwindSafe(free)) {
                panicked = catch_unwind(AssertUnwindSafe(free)).err().or(Some(panic));
            }
        }
        // Blocks of order 9 have gone to a cache.
        allocator.drain_all();
        if let Some(panic) = panicked.filter(|_| !std::thread::panicking()) {
            resume_unwind(panic);
        }
    }
}

/// While it lives no memory of the arena goes back to the kernel: see [`Arena::keep`].
pub struct Kept<S: Policy> {
    arena: Arc<Arena<S>>,
}

impl<S: Policy> Kept<S> {
    /// The arena.
    #[must_use]
    pub const fn arena(&self) -> &Arc<Arena<S>> {
        &self.arena
    }
}

impl<S: Policy> Drop for Kept<S> {
    fn drop(&mut self) {
        // Relaxed: who gives back after it has nothing to see but that it may.
        self.arena.kept.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<S: Policy> fmt::Debug for Kept<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kept").field("arena", &self.arena).finish()
    }
}

impl<S: Policy> Arena<S> {
    /// Has no memory go back to the kernel until what it returns is dropped: [`give_back`](Self::give_back) gives nothing,
    /// and [`visit_free`](Self::visit_free) shows nothing. For who has the kernel or a device know pages of memory by
    /// more than their addresses, as the registered buffers of an `io_uring` do: memory that comes back at an address
    /// after it was given back is other memory. Waits for a thread that gives back.
    #[must_use = "memory is kept while it lives"]
    pub fn keep(self: &Arc<Self>) -> Kept<S> {
        // Held: who gives back now has ended when this returns, and who does so later has the lock after this.
        self.inner().platform().gate.hold(|| self.kept.fetch_add(1, Ordering::Relaxed));
        Kept { arena: self.clone() }
    }

    /// Gives the memory of free blocks of orders 10 and 9 back to the kernel, at most
    /// `max_blocks` of them; they stay free and come back zeroed when next used. Memory that
    /// was never used is left alone.
    ///
    /// First drains the caches, so that free frames merge: for idle moments. While it runs, a
    /// request that finds nothing because blocks are held here waits and looks again (unless it
    /// must not wait). Blocks freed last come first, so that a call with the same small limit
    /// may look at the same blocks again.
    ///
    /// # Errors
    /// [`RegionError::Advice`] if the kernel refuses, and always for an arena of huge pages
    /// from the pool. The blocks are free all the same.
    pub fn give_back(&self, max_blocks: usize, how: GiveBack) -> Result<GivenBack, RegionError> {
        if how == GiveBack::WhenNeeded {
            // Before any such block is freed: see `settle`.
            self.lazy.store(true, Ordering::Relaxed);
        }
        let mut done = GivenBack::default();
        self.each_free(max_blocks, |pfn, order| {
            done.examined += 1;
            done.bytes += self.give_back_block(pfn, order, how)?;
            Ok(how == GiveBack::Now)
        })?;
        Ok(done)
    }

    /// Shows `visit` the free blocks of orders 10 and 9 that were in use before, at most
    /// `max_blocks` of them, and returns how many. No request gets one of them until this returns: so
    /// others may be told of them that are to take them for free, such as the hypervisor below (free
    /// page reporting). `visit` must not read or write them.
    ///
    /// As [`give_back`](Self::give_back) it drains the caches first, and requests wait for it. If
    /// `visit` panics, the blocks are free again; if it has memory [kept](Self::keep), no more are shown.
    pub fn visit_free(&self, max_blocks: usize, mut visit: impl FnMut(Pfn, Order)) -> usize {
        let mut count = 0;
        let all = self.each_free::<Infallible>(max_blocks, |pfn, order| {
            count += 1;
            visit(pfn, order);
            Ok(false)
        });
        match all {
            Ok(()) => count,
        }
    }

    /// Runs `f` on free blocks, which are held meanwhile, until it fails; it says whether nothing of the block is
    /// in memory any more.
    fn each_free<E>(
        &self,
        max_blocks: usize,
        mut f: impl FnMut(Pfn, Order) -> Result<bool, E>,
    ) -> Result<(), E> {
        self.inner().platform().gate.hold(|| {
            self.inner().drain_all();
            // Relaxed: with the lock held, which orders it.
            let kept = || self.kept.load(Ordering::Relaxed) > 0;
            if kept() {
                return Ok(());
            }
            let mut held = Held { arena: self, blocks: Vec::new() };
            for zone in self.inner().plan().zones() {
                let listed = self.listed(zone);
                for (order, counts) in ORDERS.into_iter().zip(listed) {
                    for (migrate, count) in TYPES.into_iter().zip(counts) {
                        let request = Request::new(order).migrate(migrate).no_wait().this_node();
                        // Not bound to it: `this_node` would ask whether that is the caller's.
                        let here = NodePolicy::Preferred(zone.node);
                        let request = request.nodes(here).zone_limit(zone.zone_type);
                        for _ in 0..count.min(max_blocks - held.blocks.len()) {
                            // Again: `f` may have the memory kept.
                            if kept() {
                                return Ok(());
                            }
                            let Ok(pfn) = self.inner().alloc_raw(&request) else { break };
                            held.blocks.push((pfn, order, false));
                            let gone = f(pfn, order)?;
                            held.blocks.last_mut().into_iter().for_each(|last| last.2 = gone);
                        }
                    }
                }
            }
            Ok(())
        })
    }

    /// Gives back a block that is allocated to us; returns the bytes that were in memory.
    fn give_back_block(&self, pfn: Pfn, order: Order, how: GiveBack) -> Result<usize, RegionError> {
        let start = (pfn.address() as usize).wrapping_sub(self.memory.base().addr().get());
        let part = start..start + order.bytes();
        // To be counted only: what is swapped out is not in memory, and goes all the same.
        let resident = self.memory.resident(part.clone())?;
        // SAFETY: the block is allocated to us, so no other code has references into it, and
        // we keep nothing there. Who gets it next finds initialised bytes of any value, and
        // `settle` makes them last.
        unsafe { self.memory.give_back(part, how) }?;
        Ok(resident)
    }

    /// Free blocks of the zone that may have something in memory, by order and type, as it looks now: not largest
    /// blocks that were never used, or not since they were given back. O(pageblocks and free blocks).
    fn listed(&self, zone: &ZoneSpec) -> [[usize; TYPES.len()]; ORDERS.len()] {
        let mut counts = [[0; TYPES.len()]; ORDERS.len()];
        self.inner().visit_free(zone.id, &mut |_, place| {
            let Place::Listed { order, migrate } = place else { return };
            let at = ORDERS.iter().position(|&one| one == order);
            let ty = TYPES.iter().position(|&one| one == migrate);
            if let (Some(at), Some(ty)) = (at, ty) {
                counts[at][ty] += 1;
            }
        });
        counts
    }
}

//! Clusters in arrays, owned by per-CPU caches and exchanged whole with a depot.
//!
//! - Source: zonal's own (design: Bonwick's magazines and depot; Lu 2018 for what it replaces).
//! - Mechanism: a CPU keeps up to two clusters of frames a migrate type in one array. Empty, it
//!   takes a whole cluster: from its shard of the depot, from the zone's shared part, else from
//!   the buddy lists; full, its colder half goes to the shard, else to the shared part, else it
//!   is merged into the buddy lists. No frame's metadata is touched to hand a cluster over.
//! - State: the arrays are guarded by the CPU's slot; shards and shared part are lock-free
//!   stacks of cluster numbers (`stack`).
//! - Conflicts with linked lists per CPU: it takes their place. Merging is deferred while a
//!   frame is in a cluster; `coalesce` undoes that a cluster at a time.
//! - Self-tuning: a shard may hold one more cluster for every time that its CPU found it
//!   empty, and the shared part one more for every time that any CPU did, within the depot's
//!   share of the zone. A drain takes that back. What no CPU missed is merged at once: frames
//!   from all over the zone that wait in clusters would keep every pageblock in pieces.
//! - Little is free: lists near the low watermark are scattered frames, and to pick them up one by
//!   one is long work under the lock. Then another CPU's shard comes before the lists; what shards
//!   hold counts above the watermark.
//! - Locality: what comes from the buddy lists is every free frame of one pageblock, so that two
//!   CPUs do not share pageblocks (the idea: `LLFree`, Wrenger 2023).

mod cpu;
pub(crate) mod stack;

use crate::boot::tuning::Tuning;
use crate::frame::CACHED;
use crate::frame::PageblockWord;
use crate::platform::{AtomicWord, Platform};
use crate::policy::pcp::{Bulk, PcpPolicy, ZoneContext};
use crate::trace::Trace;
use crate::types::mark::Mark;
use crate::types::migrate_type::{MigrateType, NR_CACHED_TYPES};
use crate::types::units::{Order, Pfn};
use crate::zone::lists::BuddyLists;
use crate::zone::lists::clusters::Clusters;
use crate::zone::lists::merge::Merge;
use crate::zone::tables::ZoneTables;
use core::sync::atomic::Ordering::Relaxed;
use cpu::{DepotCpu, high_row};
use stack::{ClusterId, MAX_CLUSTERS, Stack};

/// Per-CPU pages with clusters of `N` frames. `N` is 256 in the presets: 254 or more frames an
/// exchange make the exchange itself cheap, and an order-8 block fills it exactly.
#[derive(Clone, Copy, Debug)]
pub struct Depot<const N: usize>;

impl<const N: usize> crate::policy::sound::sealed::Own for Depot<N> {}

/// A zone with buddy lists, seen from a CPU that keeps clusters.
type Context<'a, P, M, C, const N: usize> = ZoneContext<'a, P, BuddyLists<M, C>, Depot<N>>;

/// A zone's part: the clusters that any CPU may take.
pub struct DepotZone<P: Platform> {
    shared: [Stack<P>; NR_CACHED_TYPES],
    /// Clusters that the shards together are allowed to hold so far.
    reserved: P::Word,
    /// Clusters that the shared part may hold so far, over all types: one more for every time
    /// that a CPU found it empty.
    shared_high: P::Word,
}

/// Clusters taken from the buddy lists at once by a CPU that keeps asking. With 256 frames a
/// cluster that is a largest block.
const RUN: u64 = 4;
/// Such blocks taken at most in one go: 16 MiB.
const MOST_BLOCKS: usize = 4;
/// A refill takes at most one in `SCARCE` of the frames that the zone has above its watermark, but
/// always an eighth of a cluster.
const SCARCE: u64 = 16;
/// Clusters every shard may hold from the start.
const SHARD_BASE: u32 = 2;

impl<const N: usize> Depot<N> {
    /// Takes a full cluster for `migrate`: shard first, then the shared part.
    fn take_cluster<P: Platform, M: Merge, C: Clusters>(
        ctx: &Context<'_, P, M, C, N>,
        cpu: &mut DepotCpu<N>,
        migrate: MigrateType,
        headroom: u64,
    ) -> bool {
        let own = ctx.depot.own_exchange();
        let at = migrate.index();
        if let Some(id) = own.full[at].pop(ctx.depot.pool) {
            Self::load(ctx, cpu, &id, at);
            own.empty.push(ctx.depot.pool, id);
            return true;
        }
        cpu.shard_missed[at] = cpu.shard_missed[at].saturating_add(1);
        if headroom == 0 {
            return false;
        }
        let Some(id) = ctx.part.shared[at].pop(ctx.depot.pool) else {
            ctx.part.shared_missed(u64::from(cpu.shared_limit));
            return false;
        };
        Self::load(ctx, cpu, &id, at);
        ctx.depot.pool.put_empty(id);
        true
    }

    /// Whether the buddy lists have so little above the low watermark that one CPU should not fill
    /// its stacks from them.
    fn is_scarce<P: Platform, M: Merge, C: Clusters>(
        ctx: &Context<'_, P, M, C, N>,
        cpu: &DepotCpu<N>,
    ) -> bool {
        let above = ctx.zone.free().saturating_sub(ctx.zone.mark(Mark::Low));
        above / SCARCE < u64::from(cpu.high)
    }

    /// Takes a full cluster from another CPU's shard.
    fn steal_cluster<P: Platform, M: Merge, C: Clusters>(
        ctx: &Context<'_, P, M, C, N>,
        cpu: &mut DepotCpu<N>,
        migrate: MigrateType,
    ) -> bool {
        let at = migrate.index();
        let Some(id) =
            ctx.depot.all_exchanges().find_map(|shard| shard.full[at].pop(ctx.depot.pool))
        else {
            return false;
        };
        Self::load(ctx, cpu, &id, at);
        ctx.depot.pool.put_empty(id);
        true
    }

    /// Takes whole blocks of [`RUN`] clusters for a CPU that keeps asking, the more the more it
    /// asked: the lowest cluster becomes its stack, the others go to its shard. The CPU then
    /// works in a stretch of its own: a page of state bytes describes 16 MiB, and where two
    /// CPUs share one, the prefetcher of each pulls lines away from the other.
    fn take_run<P: Platform, M: Merge, C: Clusters, T: Trace>(
        ctx: &Context<'_, P, M, C, N>,
        cpu: &mut DepotCpu<N>,
        migrate: MigrateType,
        headroom: u64,
    ) -> bool {
        let (at, frames) = (migrate.index(), RUN * N as u64);
        let order = Order::for_frames(frames).filter(|order| order.frames() == frames);
        let Some(order) = order else { return false };
        let wanted = (u64::from(cpu.shard_missed[at]) / RUN).min(headroom / frames);
        let mut blocks = [0; MOST_BLOCKS];
        let want = MOST_BLOCKS.min(wanted as usize);
        let taken = ctx.take_own_blocks::<T>(&mut blocks[..want], order, migrate);
        // Each cluster is one that the shard did not have.
        let clusters = (taken as u64 * RUN) as u32;
        cpu.shard_missed[at] = cpu.shard_missed[at].saturating_add(clusters);
        // Highest first, descending within: handed out in ascending order.
        let parts = (0..RUN as u32).rev().map(|part| part * N as u32);
        let starts =
            blocks[..taken].iter().rev().flat_map(|block| parts.clone().map(move |p| block + p));
        for (n, start) in starts.enumerate() {
            if n > 0 {
                <Self as PcpPolicy<BuddyLists<M, C>>>::spill(ctx, cpu, Order::ZERO, migrate);
            }
            cpu.singles.fill(at, |slots| {
                for (slot, index) in slots.iter_mut().zip((start..start + N as u32).rev()) {
                    ctx.table.set_state(index, CACHED);
                    *slot = index;
                }
                N
            });
        }
        taken > 0
    }

    fn load<P: Platform, M: Merge, C: Clusters>(
        ctx: &Context<'_, P, M, C, N>,
        cpu: &mut DepotCpu<N>,
        id: &ClusterId,
        at: usize,
    ) {
        cpu.singles.fill(at, |slots| {
            ctx.depot.pool.read(id, slots);
            N
        });
    }

    /// Where the colder half of a full stack may go: an empty cluster, and whether it belongs
    /// to the shard (or to the shared part).
    fn room<P: Platform, M: Merge, C: Clusters>(
        ctx: &Context<'_, P, M, C, N>,
        cpu: &mut DepotCpu<N>,
        at: usize,
    ) -> Option<(ClusterId, bool)> {
        let own = ctx.depot.own_exchange();
        let zone = ctx.part;
        let mut private = own.full[at].len() < u64::from(cpu.shard_high[at]);
        if !private && cpu.shard_missed[at] > 0 && zone.reserve_one(u64::from(cpu.reserved_limit)) {
            cpu.shard_missed[at] -= 1;
            cpu.shard_high[at] += 1;
            private = true;
        }
        let room = zone.shared_room(u64::from(cpu.shared_limit));
        if !private && zone.shared.iter().map(Stack::len).sum::<u64>() >= room {
            return None;
        }
        let id = own.empty.pop(ctx.depot.pool).or_else(|| ctx.depot.pool.take_empty(&own.empty))?;
        Some((id, private))
    }
}

impl<P: Platform> DepotZone<P> {
    /// A CPU wanted a cluster of the shared part and there was none: it may hold one more.
    /// Relaxed: a hint; what the bound is exceeded by in a race is cut off by
    /// [`shared_room`](Self::shared_room).
    fn shared_missed(&self, limit: u64) {
        if self.shared_high.load(Relaxed) < limit {
            self.shared_high.fetch_add(1, Relaxed);
        }
    }

    /// Clusters that the shared part may hold.
    fn shared_room(&self, limit: u64) -> u64 {
        self.shared_high.load(Relaxed).min(limit)
    }

    /// Allows the shards one more cluster, if they have fewer than `limit`. Relaxed: a counter.
    ///
    /// Public for the model checker's tests only.
    #[doc(hidden)]
    pub fn reserve_one(&self, limit: u64) -> bool {
        if self.reserved.load(Relaxed) >= limit {
            return false;
        }
        if self.reserved.fetch_add(1, Relaxed) < limit {
            return true;
        }
        self.release(1);
        false
    }

    /// Takes back what [`reserve_one`](Self::reserve_one) allowed. Public as that is.
    #[doc(hidden)]
    pub fn release(&self, clusters: u64) {
        self.reserved.fetch_add(clusters.wrapping_neg(), Relaxed);
    }
}

impl<M: Merge, C: Clusters, const N: usize> PcpPolicy<BuddyLists<M, C>> for Depot<N> {
    const CLUSTER: usize = N;
    type Cpu = DepotCpu<N>;
    type Zone<P: Platform> = DepotZone<P>;

    fn new_cpu() -> DepotCpu<N> {
        DepotCpu::EMPTY
    }

    fn new_zone<P: Platform>() -> DepotZone<P> {
        DepotZone {
            shared: core::array::from_fn(|_| Stack::new()),
            reserved: P::Word::new(0),
            shared_high: P::Word::new(0),
        }
    }

    fn tune_cpu(cpu: &mut DepotCpu<N>, tuning: Tuning) {
        // All the stacks of all CPUs together: no more than a quarter of the zone.
        let part = tuning.managed / u64::from(tuning.cpus.max(1)) / 4;
        cpu.batch = (part / (2 * NR_CACHED_TYPES as u64)).clamp(1, N as u64) as u32;
        cpu.high = 2 * cpu.batch;
        cpu.shard_high = [if cpu.batch == N as u32 { SHARD_BASE } else { 0 }; NR_CACHED_TYPES];
        for (row, stacks) in cpu.blocks.iter_mut().enumerate() {
            let limit = DepotCpu::<N>::block_limit(row, tuning);
            stacks.iter_mut().for_each(|stack| stack.bound(limit));
        }
        let share = u64::from(tuning.depot_share.max(1));
        let clusters = (tuning.managed / share / N as u64).min(MAX_CLUSTERS) as u32;
        cpu.shared_limit = clusters / 4;
        cpu.reserved_limit = clusters - cpu.shared_limit;
    }

    #[inline(always)]
    fn caches(order: Order) -> bool {
        order == Order::ZERO || high_row(order).is_some()
    }

    fn limits(cpu: &DepotCpu<N>) -> (u32, u32) {
        (cpu.batch, cpu.high)
    }

    #[inline(always)]
    fn pop<P: Platform>(
        cpu: &mut DepotCpu<N>,
        table: &ZoneTables<'_, P>,
        order: Order,
        migrate: MigrateType,
    ) -> Option<u32> {
        if order == Order::ZERO {
            return cpu.singles.pop(table, migrate);
        }
        cpu.blocks.get_mut(high_row(order)?)?.get_mut(migrate.index())?.pop(table, order)
    }

    #[inline(always)]
    fn push<P: Platform>(
        cpu: &mut DepotCpu<N>,
        _table: &ZoneTables<'_, P>,
        order: Order,
        migrate: MigrateType,
        index: u32,
    ) -> bool {
        if order == Order::ZERO {
            return cpu.singles.push(migrate, index) >= cpu.high;
        }
        let Some(row) = high_row(order) else { return false };
        let stack = &mut cpu.blocks[row][migrate.index()];
        stack.push(index);
        stack.len >= stack.high
    }

    #[inline(always)]
    fn pop_bulk<P: Platform>(
        cpu: &mut DepotCpu<N>,
        table: &ZoneTables<'_, P>,
        migrate: MigrateType,
        out: &mut [Pfn],
    ) -> usize {
        cpu.singles.pop_bulk(table, migrate, out)
    }

    #[inline(always)]
    fn push_bulk<P: Platform>(
        cpu: &mut DepotCpu<N>,
        table: &ZoneTables<'_, P>,
        migrate: MigrateType,
        word: Option<PageblockWord>,
        frames: &[Pfn],
    ) -> Bulk {
        cpu.singles.push_bulk(table, migrate, word, frames, cpu.high)
    }

    fn refill<P: Platform, T: Trace>(
        ctx: &Context<'_, P, M, C, N>,
        cpu: &mut DepotCpu<N>,
        order: Order,
        migrate: MigrateType,
        headroom: u64,
    ) -> bool {
        let at = migrate.index();
        if order != Order::ZERO {
            let Some(row) = high_row(order) else { return false };
            let stack = &mut cpu.blocks[row][at];
            stack.grow();
            let blocks = u64::from(stack.high / 2).clamp(1, 8).min(headroom >> order.get());
            let taken = ctx.take_blocks::<T>(&mut stack.slots[..blocks as usize], order, migrate);
            stack.len = taken as u32;
            return taken > 0;
        }
        let deposits = cpu.batch == N as u32;
        if deposits && Self::take_cluster(ctx, cpu, migrate, headroom) {
            return true;
        }
        if deposits
            && Self::is_scarce(ctx, cpu)
            && headroom > 0
            && Self::steal_cluster(ctx, cpu, migrate)
        {
            return true;
        }
        if deposits && Self::take_run::<P, M, C, T>(ctx, cpu, migrate, headroom) {
            return true;
        }
        // The scarcer memory is, the less one CPU takes at once.
        let most = if deposits { cpu.high } else { cpu.batch };
        let fair = (headroom / SCARCE).max(u64::from(cpu.batch) / 8).max(1);
        let want = u64::from(most).min(fair).min(headroom) as usize;
        if !deposits {
            let taken = ctx.take_frames::<T>(cpu.singles.room(at, want), migrate);
            return cpu.singles.filled(at, taken);
        }
        let taken = ctx.take_pageblocks::<T>(cpu.singles.room(at, want), migrate);
        if cpu.singles.filled(at, taken) || (headroom > 0 && Self::steal_cluster(ctx, cpu, migrate))
        {
            return true;
        }
        // Another type's memory last: what that spoils for large blocks stays spoilt.
        let taken = ctx.take_others::<T>(cpu.singles.room(at, want), migrate);
        cpu.singles.filled(at, taken)
    }

    fn spill<P: Platform>(
        ctx: &Context<'_, P, M, C, N>,
        cpu: &mut DepotCpu<N>,
        order: Order,
        migrate: MigrateType,
    ) {
        let at = migrate.index();
        if let Some(row) = high_row(order) {
            let stack = &mut cpu.blocks[row][at];
            let gone = (stack.len as usize).div_ceil(2);
            ctx.free_cached_blocks(&stack.slots[..gone], order);
            stack.slots.copy_within(gone.., 0);
            stack.len -= gone as u32;
            return;
        }
        let batch = cpu.batch as usize;
        let room = if batch == N { Self::room(ctx, cpu, at) } else { None };
        match room {
            Some((id, private)) => {
                ctx.depot.pool.write(&id, cpu.singles.oldest(at));
                let own = &ctx.depot.own_exchange().full[at];
                let to = if private { own } else { &ctx.part.shared[at] };
                to.push(ctx.depot.pool, id);
                cpu.singles.shed(at, batch, |_| ());
            }
            None => {
                cpu.singles.shed(at, batch, |frames| ctx.free_cached(frames));
            }
        }
    }

    fn drain<P: Platform>(ctx: &Context<'_, P, M, C, N>, cpu: &mut DepotCpu<N>) -> u64 {
        let mut given = 0;
        for at in 0..NR_CACHED_TYPES {
            let all = cpu.singles.len(at) as usize;
            given += cpu.singles.shed(at, all, |frames| ctx.free_cached(frames));
        }
        cpu::drain_blocks(cpu, |blocks, order| {
            given += ctx.free_cached_blocks(blocks, order);
        });
        // Memory is wanted: shard and shared part start again from their base.
        ctx.part.shared_high.store(0, Relaxed);
        for high in &mut cpu.shard_high {
            let grown = high.saturating_sub(SHARD_BASE);
            ctx.part.release(u64::from(grown));
            *high -= grown;
        }
        cpu.shard_missed = [0; NR_CACHED_TYPES];
        given
    }

    fn coalesce<P: Platform>(ctx: &Context<'_, P, M, C, N>) -> u64 {
        let shared = ctx.part.shared.iter();
        let shards = ctx.depot.all_exchanges().flat_map(|shard| shard.full.iter());
        let Some(id) = shared.chain(shards).find_map(|stack| stack.pop(ctx.depot.pool)) else {
            return 0;
        };
        let mut frames = [0; N];
        ctx.depot.pool.read(&id, &mut frames);
        ctx.depot.pool.put_empty(id);
        ctx.free_cached(&mut frames);
        N as u64
    }

    fn cached(cpu: &DepotCpu<N>) -> u64 {
        cpu.frames()
    }

    fn deferred<P: Platform>(ctx: &Context<'_, P, M, C, N>) -> u64 {
        let shared = ctx.part.shared.iter();
        let shards = ctx.depot.all_exchanges().flat_map(|shard| shard.full.iter());
        shared.chain(shards).map(Stack::len).sum::<u64>() * N as u64
    }

    fn shared<P: Platform>(zone: &DepotZone<P>) -> u64 {
        zone.shared.iter().map(Stack::len).sum::<u64>() * N as u64
    }

    fn visit<P: Platform>(
        cpu: &DepotCpu<N>,
        _table: &ZoneTables<'_, P>,
        visit: &mut dyn FnMut(u32, Order),
    ) {
        cpu.visit(visit);
    }

    fn visit_deferred<P: Platform>(
        ctx: &Context<'_, P, M, C, N>,
        visit: &mut dyn FnMut(u32, Order),
    ) {
        let shared = ctx.part.shared.iter();
        let shards = ctx.depot.all_exchanges().flat_map(|shard| shard.full.iter());
        for stack in shared.chain(shards) {
            stack.visit(ctx.depot.pool, |id| {
                let mut frames = [0; N];
                ctx.depot.pool.read(id, &mut frames);
                frames.iter().for_each(|&index| visit(index, Order::ZERO));
            });
        }
    }
}

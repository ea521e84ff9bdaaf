//! Per-CPU lists through the frame table, as Linux 4.16 keeps order-0 pages.
//!
//! - Source: Linux 4.16, the base of Lu's 2018 series.
//! - Mechanism: three lists a CPU and zone; an empty list is filled with `batch` frames taken
//!   one by one under the zone lock; when `high` frames are kept, `batch` of them go back one
//!   by one, coldest first, taking turns between the lists.
//! - State: the lists and the frames' link words, guarded by the CPU's slot.
//! - Conflicts with nothing. Orders above 0 are not cached.
//! - Counters: `batch` and `high` in `zoneinfo`.

use crate::boot::plan::MAX_PCP_BATCH;
use crate::boot::tuning::Tuning;
use crate::frame::links::{FreeList, Links};
use crate::frame::{ALLOCATED, CACHED};
use crate::platform::Platform;
use crate::policy::pcp::{Drainer, PcpPolicy, ZoneContext};
use crate::trace::Trace;
use crate::types::migrate_type::{MigrateType, NR_CACHED_TYPES};
use crate::types::units::Order;
use crate::zone::lists::clusters::Clusters;
use crate::zone::lists::merge::Merge;
use crate::zone::lists::{BuddyLists, link_words};
use crate::zone::tables::ZoneTables;

/// A zone with buddy lists, seen from a CPU whose frames are on lists too.
type Context<'a, P, M, C> = ZoneContext<'a, P, BuddyLists<M, C>>;

/// Per-CPU pages on linked lists.
#[derive(Clone, Copy, Debug)]
pub struct Linked;

impl crate::policy::sound::sealed::Own for Linked {}

/// One CPU's lists of one zone.
#[derive(Debug)]
pub struct LinkedCpu {
    lists: [FreeList; NR_CACHED_TYPES],
    count: u32,
    batch: u32,
    high: u32,
    /// List that the next spill starts with.
    turn: usize,
}

impl LinkedCpu {
    /// The type of all frames that are cached, if they are of one.
    fn only_type(&self) -> Option<MigrateType> {
        let mut filled = (0..NR_CACHED_TYPES).filter(|&at| !self.lists[at].is_empty());
        let only = filled.next()?;
        filled.next().is_none().then_some(MigrateType::ALL[only])
    }
}

/// The thousandth that Linux 4.16 looks at, at most: 512 KiB.
const MOST: u64 = 128;

/// Linux's batch for a zone of `managed` frames: a thousandth of the zone, at most `most`, of that a
/// quarter, then 2^n − 1.
pub(super) fn linux_batch(managed: u64, most: u64) -> u32 {
    let quarter = ((managed / 1024).min(most) / 4).max(1);
    let rounded = quarter + quarter / 2;
    (1u32 << rounded.ilog2()).saturating_sub(1).max(1)
}

/// What the configuration asks for, else Linux's formula with its own maximum.
pub(super) fn batch_of(tuning: Tuning, most: u64) -> u32 {
    let asked = tuning.pcp_batch.map(|batch| batch.clamp(1, MAX_PCP_BATCH));
    asked.unwrap_or_else(|| linux_batch(tuning.managed, most))
}

impl<M: Merge, C: Clusters> PcpPolicy<BuddyLists<M, C>> for Linked {
    type Cpu = LinkedCpu;
    type Outside<P: Platform> = ();
    type Window<'m, P: Platform + 'm> = ();
    type Passage<'m, P: Platform + 'm> = ();

    fn new_cpu() -> LinkedCpu {
        LinkedCpu {
            lists: [FreeList::EMPTY; NR_CACHED_TYPES],
            count: 0,
            batch: 1,
            high: 6,
            turn: 0,
        }
    }

    fn new_outside<P: Platform>() {}

    fn shut<P: Platform>((): &()) {}

    fn tune_cpu<P: Platform>(cpu: &mut LinkedCpu, (): &(), tuning: Tuning) {
        cpu.batch = batch_of(tuning, MOST);
        cpu.high = tuning.pcp_high.unwrap_or(6 * cpu.batch).max(cpu.batch);
    }

    fn batch(tuning: Tuning) -> u32 {
        batch_of(tuning, MOST)
    }

    fn limits(cpu: &LinkedCpu) -> (u32, u32) {
        (cpu.batch, cpu.high)
    }

    #[inline(always)]
    fn pop<P: Platform>(
        cpu: &mut LinkedCpu,
        (): &(),
        table: &ZoneTables<'_, P>,
        migrate: MigrateType,
    ) -> Option<u32> {
        let list = cpu.lists.get_mut(migrate.index())?;
        while let Some(index) = list.pop_head(link_words(table)) {
            cpu.count -= 1;
            if table.replace_state(index, CACHED, ALLOCATED) {
                return Some(index);
            }
        }
        None
    }

    #[inline(always)]
    fn push<P: Platform>(
        cpu: &mut LinkedCpu,
        (): &(),
        table: &ZoneTables<'_, P>,
        migrate: MigrateType,
        index: u32,
    ) -> bool {
        cpu.lists[migrate.index()].push_head(link_words(table), index);
        cpu.count += 1;
        cpu.count >= cpu.high
    }

    fn refill<P: Platform, T: Trace>(
        ctx: &Context<'_, P, M, C>,
        cpu: &mut LinkedCpu,
        (): &(),
        migrate: MigrateType,
        headroom: u64,
    ) -> bool {
        let batch = u64::from(cpu.batch).min(headroom);
        let list = &mut cpu.lists[migrate.index()];
        let before = list.len();
        if C::CUT {
            ctx.cut_batch(list, migrate, batch as u32, headroom);
        }
        let batch = batch.saturating_sub(u64::from(list.len() - before));
        if batch > 0 {
            ctx.take_batch::<T>(list, migrate, batch);
        }
        cpu.count += list.len() - before;
        ctx.tell_refill::<T>(list, before, Order::ZERO, migrate);
        !list.is_empty()
    }

    fn spill<P: Platform>(
        ctx: &Context<'_, P, M, C>,
        cpu: &mut LinkedCpu,
        (): &(),
        _: MigrateType,
    ) -> u64 {
        free_batch(ctx, cpu)
    }

    fn drain<P: Platform>(
        ctx: &Context<'_, P, M, C>,
        cpu: &mut LinkedCpu,
        (): &(),
        _: Drainer,
    ) -> u64 {
        let mut given = 0;
        while cpu.count > 0 {
            given += free_batch(ctx, cpu);
        }
        given
    }

    fn cached<P: Platform>(cpu: &LinkedCpu, (): &()) -> u64 {
        u64::from(cpu.count)
    }

    fn visit<P: Platform>(
        cpu: &LinkedCpu,
        (): &(),
        table: &ZoneTables<'_, P>,
        visit: &mut dyn FnMut(u32, Order),
    ) {
        for list in &cpu.lists {
            list.iter(link_words(table)).for_each(|index| visit(index, Order::ZERO));
        }
    }
}

/// Frees `batch` frames in one hold, coldest first, from each list in turn.
fn free_batch<P: Platform, M: Merge, C: Clusters>(
    ctx: &Context<'_, P, M, C>,
    cpu: &mut LinkedCpu,
) -> u64 {
    let mut batch = [0u32; MAX_PCP_BATCH as usize];
    let want = cpu.batch.min(cpu.count) as usize;
    let full = want == cpu.batch as usize;
    let only = cpu.only_type();
    let mut chain = None;
    let taken = match only {
        // Patch 4: they are linked as they will be on the zone's list. The other types are rarely
        // alone: the source leaves them as they are.
        Some(migrate) if C::JOIN && full && migrate == MigrateType::Movable => {
            cpu.turn = migrate.index();
            let cut = cpu.lists[cpu.turn].cut_tail(ctx.links(), &mut batch[..want]);
            chain = Some(cut);
            cut.len() as usize
        }
        _ => pop_in_turn(ctx.links(), cpu, &mut batch[..want]),
    };
    cpu.count -= taken as u32;
    ctx.free_linked(&mut batch[..taken], chain, only, full);
    taken as u64
}

/// Fills `batch` from the tails of the lists: a list gives as many in its turn as lists were passed
/// to come to it, so the more are empty, the more the others give.
fn pop_in_turn<P: Platform>(links: Links<'_, P>, cpu: &mut LinkedCpu, batch: &mut [u32]) -> usize {
    let (mut taken, want) = (0, batch.len());
    while taken < want {
        let mut burst = 1;
        cpu.turn = (cpu.turn + 1) % NR_CACHED_TYPES;
        while cpu.lists[cpu.turn].is_empty() {
            cpu.turn = (cpu.turn + 1) % NR_CACHED_TYPES;
            burst += 1;
        }
        if burst == NR_CACHED_TYPES {
            burst = want;
        }
        let list = &mut cpu.lists[cpu.turn];
        for place in batch.iter_mut().skip(taken).take(burst) {
            let Some(index) = list.pop_tail(links) else { break };
            *place = index;
            taken += 1;
        }
    }
    taken
}

#[cfg(test)]
mod tests {
    use super::{MAX_PCP_BATCH, MOST, linux_batch};

    #[test]
    fn batch_follows_the_formula() {
        assert_eq!(linux_batch(u64::MAX, MOST), MAX_PCP_BATCH, "what a spill has room for");
        assert_eq!(linux_batch(1 << 20, MOST), 31, "4 GiB");
        assert_eq!(linux_batch(1 << 28, MOST), 31, "1 TiB");
        assert_eq!(linux_batch(16 << 10, MOST), 3, "64 MiB");
        assert_eq!(linux_batch(512, MOST), 1, "2 MiB");
    }
}

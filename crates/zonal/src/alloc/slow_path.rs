//! When the caches have nothing: the walk over the zones, and everything that is tried when
//! the walk finds nothing either.
//!
//! Walk above the low watermark → wake reclaim → walk above min → drain every CPU's cache, open the
//! high-atomic reserve → asynchronous compaction → synchronous compaction and direct reclaim by the
//! host, as long as there is progress → an error that explains itself. Compaction is for more than one frame. No step holds a lock while the next begins (I-7).
//!
//! ```
//! use zonal::slow_path::Shortage;
//! fn wanted(shortage: &Shortage) -> u64 { shortage.request.order().frames() }
//! ```

use super::undo::InHand;
use super::zones::Zones;
use crate::alloc::allocator::Allocator;
use crate::alloc::entry::Entry;
use crate::alloc::host::Host;
use crate::pcp::per_cpu_pages::InSlot;
use crate::policy::FreeMemory;
use crate::policy::compact::effort::Effort;
use crate::policy::pcp::Drainer;
use crate::policy::walk::{Miss, Pass};
use crate::policy::zone::Zone;
use crate::policy::{Compact, Dirty, Policy, Walk};
use crate::types::block::Block;
use crate::types::error::AllocReason;
use crate::types::mark::Mark;
use crate::types::request::Request;
use crate::types::units::{CpuId, Order};
use crate::zone::compaction::Count;
use crate::zone::{CompactMode, CompactOutcome};

/// What the host's callbacks are told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shortage {
    /// The request that cannot be served.
    pub request: Request,
    /// How often the host was asked for it before.
    pub attempt: u32,
}

/// How often the host is asked to reclaim for one request, as long as it makes progress.
const RECLAIM_ATTEMPTS: u32 = 16;
/// How often a single frame is looked for while other CPUs move frames about, over a map and over lists, and how many looks in a
/// row see nothing before it is refused. Of frames that move while one goes on it may miss all, as it looks at one place after
/// the other; lists have one place for all but a few, and their sources look once.
const SEARCHES: [(u32, u32); 2] = [(32, 3), (8, 1)];
/// CPUs beside its own that a request which may not wait looks at.
const A_FEW: u32 = 4;

impl<'m, P: Host, S: Policy> Allocator<'m, P, S> {
    /// What the home zone's per-CPU pages of single frames and huge pages did not serve.
    #[inline(never)]
    pub(super) fn slow_path<E: Entry<'m, P, S>>(
        &self,
        entry: &mut E,
        request: &Request,
    ) -> Result<Block, AllocReason> {
        let (order, migrate) = (request.order(), request.migrate_type());
        if let Some(index) = self.pop_further(entry, request) {
            return Ok(self.handed_out(self.table.pfn(index), order, request));
        }
        if let Some(migrate) = request.single_zeroed()
            && let Some(index) = self.pop_home(entry, request.limit(), migrate)
        {
            return self.zeroed(index, request);
        }
        if !migrate.is_requestable() {
            return Err(AllocReason::NotRequestable);
        }
        let zones = self.zones_for(entry.seat(), request);
        if zones.slice().is_empty() {
            return Err(AllocReason::NoZone);
        }
        let limited = S::Dirty::LIMITS && request.is_write();
        let found = match limited {
            true => self.walk_within_dirty_limits(entry, &zones, request),
            // As `walk`, written out: the way of every miss is kept short (ADR 34).
            false => {
                let limit = request.limit();
                S::Walk::find(&self.walk, zones.slice(), limit, Mark::Low, |zone| {
                    self.alloc_from(entry, zone, request, Mark::Low)
                })
            }
        };
        let found = found.or_else(|| self.try_everything(entry, &zones, request));
        let index = found.ok_or(AllocReason::Exhausted)?;
        let in_hand = InHand::new(self, self.table.pfn(index), order);
        self.stay_ahead(index, order);
        self.hand_out(in_hand, request)
    }

    /// Hands a block out that was just taken, filled with zero bytes.
    pub(super) fn zeroed(&self, index: u32, request: &Request) -> Result<Block, AllocReason> {
        let in_hand = InHand::new(self, self.table.pfn(index), request.order());
        self.hand_out(in_hand, request)
    }

    /// Hands a block out, filled with zero bytes if that is asked for; otherwise it goes back.
    fn hand_out(
        &self,
        in_hand: InHand<'_, 'm, P, S>,
        request: &Request,
    ) -> Result<Block, AllocReason> {
        if request.is_zero() && self.platform.zero(in_hand.pfn(), request.order()).is_err() {
            return Err(AllocReason::CannotZero);
        }
        let (pfn, order) = in_hand.hand_out().into_raw();
        Ok(self.handed_out(pfn, order, request))
    }

    /// The home zone's per-CPU pages for a page that will be written, or where another zone stands
    /// in for the home zone.
    fn pop_further<E: Entry<'m, P, S>>(&self, entry: &mut E, request: &Request) -> Option<u32> {
        if request.order() > Order::ZERO {
            return None;
        }
        if request.is_plain_write() {
            let home = self.home(entry, request.limit());
            let zone = self.zones.get(home).filter(|zone| self.may_be_dirtied(zone, request));
            if zone.is_some()
                && let Some(index) = self.pop_at(entry, home, request.migrate_type())
            {
                return Some(index);
            }
        }
        if self.plan.has_vacant() { self.pop_stand_in(entry, request) } else { None }
    }

    /// What the cache of the home zone would have for a plain request, from that of the zone that
    /// stands in for it while it has no memory.
    #[cold]
    #[inline(never)]
    fn pop_stand_in<E: Entry<'m, P, S>>(&self, entry: &mut E, request: &Request) -> Option<u32> {
        let home = self.zones.get(self.home(entry, request.limit()))?;
        if !request.is_plain() || self.has_memory(home) {
            return None;
        }
        let zone = self.first_zone(entry.seat(), request)?;
        entry.enter(zone.id, |own| self.pop(own, Some(zone), request.migrate_type()))?
    }

    /// The steps after the first walk.
    fn try_everything<E: Entry<'m, P, S>>(
        &self,
        entry: &mut E,
        zones: &Zones<'m, P, S>,
        request: &Request,
    ) -> Option<u32> {
        for zone in zones.iter() {
            if zone.free() <= zone.mark(Mark::Low) {
                self.platform.wake_reclaim(zone.id);
            }
            if request.order() > Order::ZERO && self.can_compact() {
                self.platform.wake_compaction(zone.id, request.order());
            }
        }
        let found = self.walk(entry, zones, request, Mark::Min);
        let found = found.or_else(|| self.search(entry, zones, request));
        let found = found.or_else(|| self.ask_host(entry, zones, request));
        let found = found.or_else(|| self.open_reserves(entry, zones, request));
        found.or_else(|| self.last_search(entry, zones, request))
    }

    /// Wakes background compaction if the block at `index`, just taken, was the zone's last of a
    /// large order: the next request should find one.
    pub(super) fn stay_ahead(&self, index: u32, order: Order) {
        if !S::Compact::STAYS_AHEAD || !order.is_costly() || !self.can_compact() {
            return;
        }
        let zone = self.table.pageblock(index).zone().and_then(|id| self.zone(id));
        if let Some(zone) = zone.filter(|zone| !S::Free::has_block(self.view(zone), order, true)) {
            self.platform.wake_compaction(zone.id, order);
        }
    }

    fn walk<E: Entry<'m, P, S>>(
        &self,
        entry: &mut E,
        zones: &Zones<'m, P, S>,
        request: &Request,
        mark: Mark,
    ) -> Option<u32> {
        S::Walk::find(&self.walk, zones.slice(), request.limit(), mark, |zone| {
            self.alloc_from(entry, zone, request, mark)
        })
    }

    /// The walk above the low watermark for what will be written: it goes to the zones within
    /// their dirty limit. If it was in vain and one was beyond, the policy may have all zones above the
    /// mark tried without the limit: in the rescan that follows a fair pass in vain, or else by itself.
    fn walk_within_dirty_limits<E: Entry<'m, P, S>>(
        &self,
        entry: &mut E,
        zones: &Zones<'m, P, S>,
        request: &Request,
    ) -> Option<u32> {
        let (mut over_at_first, mut over, mut dropped) = (false, false, false);
        let limit = request.limit();
        let found =
            S::Walk::find_by_pass(&self.walk, zones.slice(), limit, Mark::Low, |zone, pass| {
                // Both restrictions go at once, as in the source.
                dropped |= S::Dirty::SECOND_PASS && over_at_first && pass == Pass::Rescan;
                if !dropped && !self.may_be_dirtied(zone, request) {
                    (over, over_at_first) = (true, over_at_first || pass == Pass::First);
                    self.passed_over_as_dirty(zone);
                    return Err(Miss::OverDirtyLimit);
                }
                self.alloc_from(entry, zone, request, Mark::Low)
            });
        if found.is_some() || !S::Dirty::SECOND_PASS || !over || dropped {
            return found;
        }
        // No pass was fair, or none of its zones was beyond its limit.
        zones.iter().find_map(|zone| self.alloc_from(entry, zone, request, Mark::Low).ok())
    }

    /// Looks where frames may be hidden: empties every cache.
    ///
    /// Other CPUs go on meanwhile, and may move frames to a place that was looked at already:
    /// out of the zone into a cache. So a single frame is looked
    /// for again as long as there are signs of one (I-6). Where free memory is a map,
    /// requests for larger blocks empty the caches [now and then](crate::zone::ZoneInstance::is_search_due)
    /// only, or where that alone [keeps a block from them](Self::search_uncounted).
    fn search<E: Entry<'m, P, S>>(
        &self,
        entry: &mut E,
        zones: &Zones<'m, P, S>,
        request: &Request,
    ) -> Option<u32> {
        let large = request.order() > Order::ZERO;
        let limited = large && !S::Free::LOCKED;
        let due = !limited || zones.iter().next().is_some_and(|zone| zone.is_search_due(request));
        let (most, empty) = SEARCHES[usize::from(S::Free::LOCKED)];
        let mut in_vain = 0;
        for _ in 0..most {
            let mut seen = self.open(entry, zones, request, due);
            // For less than a pageblock it looks at all memory of the zones: not for those who are
            // in a hurry.
            for zone in zones.iter().filter(|_| !request.may_not_wait()) {
                seen += u64::from(S::Free::look_again(self.view(zone), request));
            }
            if let Some(index) = self.walk(entry, zones, request, Mark::Min) {
                if limited {
                    zones.iter().for_each(|zone| zone.search_found());
                }
                return Some(index);
            }
            if large || (request.may_not_wait() && !S::Free::LOCKED) {
                break;
            }
            for zone in zones.iter() {
                // Freed to the zone, or drained to it by another CPU, since the walk.
                seen += self.cached_in(zone) + self.headroom(zone, request, Mark::Min);
            }
            in_vain = if seen == 0 { in_vain + 1 } else { 0 };
            if in_vain == empty {
                break;
            }
        }
        let gathers = limited && !due && !request.may_not_wait();
        if gathers { self.search_uncounted(entry, zones, request) } else { None }
    }

    /// A larger block that is there, where the counts that CPUs keep to themselves hide it from the marks:
    /// emptying the caches gathers them.
    #[cold]
    fn search_uncounted<E: Entry<'m, P, S>>(
        &self,
        entry: &mut E,
        zones: &Zones<'m, P, S>,
        request: &Request,
    ) -> Option<u32> {
        let is_hidden = |zone: &'m Zone<P, S>| {
            self.is_undercounted(zone, request) && S::Free::look_again(self.view(zone), request)
        };
        if !zones.iter().any(is_hidden) {
            return None;
        }
        self.open(entry, zones, request, true);
        self.walk(entry, zones, request, Mark::Min)
    }

    /// Before a request for a larger block is refused: what compaction or others have made free since the
    /// [search](Self::search), in places that no hint leads to, or uncounted.
    fn last_search<E: Entry<'m, P, S>>(
        &self,
        entry: &mut E,
        zones: &Zones<'m, P, S>,
        request: &Request,
    ) -> Option<u32> {
        let looks = request.order() > Order::ZERO && !S::Free::LOCKED && !request.may_not_wait();
        if !looks {
            return None;
        }
        let moved = self.can_compact();
        let found = |zone: &'m Zone<P, S>| moved && S::Free::look_again(self.view(zone), request);
        // All of them: a look raises hints.
        let seen = zones.iter().filter(|zone| found(zone)).count() > 0;
        let again = if seen { self.walk(entry, zones, request, Mark::Min) } else { None };
        again.or_else(|| self.search_uncounted(entry, zones, request))
    }

    /// Drains every CPU's cache and opens a pageblock of the high-atomic reserve, zone by zone;
    /// returns the frames drained. For those who may not wait it looks at a few CPUs only; where a search is not `due`,
    /// at its own, which no other pays for.
    fn open<E: Entry<'m, P, S>>(
        &self,
        entry: &mut E,
        zones: &Zones<'m, P, S>,
        request: &Request,
        due: bool,
    ) -> u64 {
        let mut drained = 0;
        for zone in zones.iter() {
            // What an owner has itself goes without the fences that others need to reach it.
            if E::OUTSIDE || !S::Free::LOCKED {
                drained += self.drain_own(entry, zone);
            }
            if !due {
                continue;
            }
            drained += match request.may_not_wait() && !S::Free::LOCKED {
                true => self.drain_a_few(entry.cpu() as u32, zone),
                false if E::OUTSIDE => self.drain_others(entry.cpu() as u32, zone),
                false => self.drain_zone(zone),
            };
            let migrate = request.migrate_type();
            S::Free::unreserve_high_atomic(self.view(zone), migrate);
            if request.order() == Order::ZERO {
                S::Free::rejoin(self.view(zone));
            }
        }
        drained
    }

    /// Gives what every CPU but `own` caches of the zone back. Returns the frames.
    fn drain_others(&self, own: u32, zone: &'m Zone<P, S>) -> u64 {
        let others = (0..self.cpus()).filter(|&cpu| cpu != own);
        others.map(|cpu| self.drain_cache(CpuId(cpu), zone, |_| ())).sum()
    }

    /// Gives what this CPU caches of the zone back, if its slot is free or the caller's.
    fn drain_own<E: Entry<'m, P, S>>(&self, entry: &mut E, zone: &'m Zone<P, S>) -> u64 {
        // Who shares the CPU's slot is not its owner.
        let by = if E::OUTSIDE { Drainer::Owner } else { Drainer::Other };
        let context = self.context(zone, entry.cpu());
        entry.enter(zone.id, |pages| self.drain_pages(pages, &context, by)).unwrap_or(0)
    }

    /// Gives what the next few CPUs cache of the zone back, as far as their slots
    /// are free: without a fence that others have to answer. O(1) CPUs.
    fn drain_a_few(&self, own: u32, zone: &'m Zone<P, S>) -> u64 {
        let (cpus, mut drained) = (self.cpus(), 0);
        for cpu in (1..cpus.min(A_FEW + 1)).map(|step| (own + step) % cpus) {
            let context = self.context(zone, cpu as usize);
            let drain =
                |pages: &mut InSlot<'_, P, S>| self.drain_pages(pages, &context, Drainer::Other);
            let cache = self.cache_of(CpuId(cpu), zone.id);
            drained += cache.and_then(|cache| cache.try_with(drain)).unwrap_or(0);
        }
        drained
    }

    /// Before a request is refused: opens what is left of the high-atomic reserve and walks again.
    /// O(pageblocks of the reserve), each in a hold of its own. Where a request that may not wait looks at
    /// a fixed number of places, the one that [`search`](Self::search) opened was its share.
    fn open_reserves<E: Entry<'m, P, S>>(
        &self,
        entry: &mut E,
        zones: &Zones<'m, P, S>,
        request: &Request,
    ) -> Option<u32> {
        if request.may_not_wait() && !S::Free::LOCKED {
            return None;
        }
        let (migrate, mut opened) = (request.migrate_type(), false);
        for zone in zones.iter() {
            // Others may reserve meanwhile, but no more than there is.
            let most = zone.managed() >> self.table.pageblock_order().get();
            opened |= (0..most)
                .take_while(|_| S::Free::unreserve_high_atomic(self.view(zone), migrate))
                .count()
                > 0;
        }
        if opened { self.walk(entry, zones, request, Mark::Min) } else { None }
    }

    /// Compaction, then reclaim, as long as there is progress. A single frame needs no
    /// compaction.
    fn ask_host<E: Entry<'m, P, S>>(
        &self,
        entry: &mut E,
        zones: &Zones<'m, P, S>,
        request: &Request,
    ) -> Option<u32> {
        if request.may_not_wait() {
            return None;
        }
        let effort = Effort::of_request::<S::Compact>();
        let compact =
            |entry: &mut E, mode| self.compact_zones(entry, zones, request, mode, &effort);
        if let Some(index) = compact(entry, CompactMode::Async) {
            return Some(index);
        }
        for attempt in 0..RECLAIM_ATTEMPTS {
            if let Some(index) = compact(entry, CompactMode::Sync) {
                return Some(index);
            }
            let shortage = Shortage { request: *request, attempt };
            if self.platform.reclaim(self, &shortage) == 0 {
                return None;
            }
            if let Some(index) = self.look_again(entry, zones, request) {
                return Some(index);
            }
        }
        None
    }

    /// Compacts the zones one after the other until the request can be served.
    fn compact_zones<E: Entry<'m, P, S>>(
        &self,
        entry: &mut E,
        zones: &Zones<'m, P, S>,
        request: &Request,
        mode: CompactMode,
        effort: &Effort,
    ) -> Option<u32> {
        if request.order() == Order::ZERO || !self.can_compact() {
            return None;
        }
        for zone in zones.iter() {
            let (outcome, taken) = self.compact_for(zone, request, mode, effort);
            let found = match outcome {
                CompactOutcome::Success => {
                    taken.or_else(|| self.walk(entry, zones, request, Mark::Min))
                }
                CompactOutcome::Complete | CompactOutcome::PartialSkipped => None,
                // It waited: who compacts may have left a block, or others freed one.
                CompactOutcome::Contended => self.walk(entry, zones, request, Mark::Min),
                _ => continue,
            };
            zone.compaction.count(Count::Stall, 1);
            zone.compaction.count(if found.is_some() { Count::Success } else { Count::Fail }, 1);
            if found.is_some() {
                return found;
            }
        }
        None
    }

    /// Looks for what the host freed: it may sit in any cache.
    fn look_again<E: Entry<'m, P, S>>(
        &self,
        entry: &mut E,
        zones: &Zones<'m, P, S>,
        request: &Request,
    ) -> Option<u32> {
        let found = self.walk(entry, zones, request, Mark::Min);
        found.or_else(|| self.search(entry, zones, request))
    }
}

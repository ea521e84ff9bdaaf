//! Commands on frames in a row, and what the model says of each.

use super::{Runner, expect};
use crate::checkers::{Checked, Violation};
use crate::command::{Ask, Command};
use crate::host::TestHost;
use std::ops::Range;
use zonal::error::{ContiguousError, RangeError, ResizeError};
use zonal::map::RangeKind;
use zonal::plan::ZoneSpec;
use zonal::policy::Policy;
use zonal::{Bounds, FreeError, Order, Pfn};

fn violation(detail: String) -> Checked {
    Err(Violation { rule: "pages", detail })
}

fn each(range: &Range<Pfn>) -> impl DoubleEndedIterator<Item = Pfn> + use<> {
    (range.start.get()..range.end.get()).map(Pfn::new)
}

impl<P: TestHost, S: Policy> Runner<'_, '_, P, S> {
    /// Frames in a row, from that frame of the table on.
    fn row(&self, frame: u64, count: u64) -> Range<Pfn> {
        let plan = self.model.plan();
        let start = plan.base().get() + frame % plan.frames();
        Pfn::new(start)..Pfn::new(start + count)
    }

    /// Commands on frames in a row; nothing for any other.
    pub(super) fn act_on_pages(&mut self, command: &Command) -> Checked {
        match *command {
            Command::AllocPages { ask, count, align, below } => {
                self.alloc_pages(ask, u64::from(count), align, u64::from(below))
            }
            Command::FreePages { nth, count } => {
                self.free_pages(usize::from(nth), u64::from(count))
            }
            Command::AllocAt { frame, count } => self.alloc_at(u64::from(frame), u64::from(count)),
            Command::Release { frame, count } => self.release(u64::from(frame), u64::from(count)),
            _ => Ok(()),
        }
    }

    fn alloc_pages(&mut self, ask: Ask, count: u64, align: u8, below: u64) -> Checked {
        let request = Ask { order: 0, ..ask }.request();
        let (count, align) = (count % 1200 + 1, 1 << (align % 12));
        let base = self.model.plan().base().get();
        let mut bounds = Bounds::ANY.aligned(align);
        if below > 0 {
            bounds = bounds.below(Pfn::new(base + below));
        }
        let found = self.world.allocator.alloc_pages(count, &request, &bounds);
        self.note_redeemed();
        let zeroes = self.zeroes();
        let start = match found {
            Ok(start) => start,
            // What else a refusal may not do the checkers see after the step.
            Err(ContiguousError::Request(reason)) => {
                return zeroes.check_refused(&self.model, reason);
            }
            Err(_) => return Ok(()),
        };
        let range = start..Pfn::new(start.get() + count);
        zeroes.check_served(&self.model, &request, std::slice::from_ref(&range))?;
        let fits = start.get().is_multiple_of(align) && range.end <= bounds.limit();
        expect(fits, "frames in a row are within their bounds")?;
        for pfn in each(&range) {
            // A range may be of CMA memory, whatever the request's type.
            if self.model.kind_at(pfn) == Some(RangeKind::Cma) {
                expect(self.model.containing(pfn).is_none(), "a frame of CMA is not out already")?;
            } else {
                self.model.check_served_raw(&request, self.node(), pfn)?;
            }
            self.model.insert(pfn, Order::ZERO);
        }
        Ok(())
    }

    fn free_pages(&mut self, nth: usize, count: u64) -> Checked {
        let Some((start, _)) = self.model.nth(nth) else { return Ok(()) };
        let range = start..Pfn::new(start.get() + count);
        if each(&range).any(|pfn| self.pledged.contains(&pfn)) {
            return Ok(());
        }
        let good = each(&range).all(|pfn| self.model.verdict(pfn, Order::ZERO) == Ok(()));
        let good = good && count > 0 && self.is_of_one_type(&range);
        let got = self.world.allocator.free_pages(start, count);
        if got.is_ok() != good {
            return violation(format!("free of {count} pages at {start}: {got:?}, not {good}"));
        }
        if !good {
            return self.check_unchanged();
        }
        each(&range).for_each(|pfn| self.model.remove(pfn));
        Ok(())
    }

    fn alloc_at(&mut self, frame: u64, count: u64) -> Checked {
        let range = self.row(frame, count);
        let is_free = |pfn| {
            let free = FreeError::DoubleFree { pfn, order: Order::ZERO };
            self.model.verdict(pfn, Order::ZERO) == Err(free)
        };
        let good = count > 0 && each(&range).all(is_free) && self.is_of_one_type(&range);
        let got = self.world.allocator.alloc_at(range.clone());
        if got.is_ok() != good {
            return violation(format!("allocation of just {range:?}: {got:?}, not {good}"));
        }
        if let Ok(found) = got {
            let range = found.range();
            each(&range).for_each(|pfn| self.model.insert(pfn, Order::ZERO));
        }
        Ok(())
    }

    fn release(&mut self, frame: u64, count: u64) -> Checked {
        let range = self.row(frame, count);
        let expected = self.verdict_on_release(&range);
        let got = self.world.allocator.release(range.clone());
        if got.map(|_| ()) != expected || got.is_ok_and(|frames| frames != count) {
            return violation(format!("release of {range:?}: {got:?}, not {expected:?}"));
        }
        if got.is_err() {
            return self.check_unchanged();
        }
        for pfn in each(&range) {
            let Some((zone, _)) = self.world.allocator.pageblock_of(pfn) else {
                return violation(format!("pfn {pfn} was released, and is no zone's"));
            };
            let spans = self.spec(pfn).is_none_or(|spec| spec.id == zone);
            expect(spans, "a frame is released to the zone of its pageblock")?;
            self.model.release(pfn, zone);
        }
        Ok(())
    }

    /// What a release must answer, pageblock by pageblock.
    fn verdict_on_release(&self, range: &Range<Pfn>) -> Result<(), ResizeError> {
        let plan = self.model.plan();
        let end = plan.base().get() + plan.frames();
        if range.is_empty() {
            return Err(RangeError::Empty.into());
        }
        if range.end.get() > end {
            return Err(RangeError::Frame(FreeError::Foreign { pfn: Pfn::new(end) }).into());
        }
        let size = plan.config().pageblock_order.frames();
        let allocator = &self.world.allocator;
        for pfn in each(range) {
            let first = pfn == range.start || pfn.get().is_multiple_of(size);
            if allocator.is_online(pfn) {
                if self.model.kind_at(pfn).is_some_and(RangeKind::is_usable) {
                    return Err(ResizeError::Online { pfn });
                }
            } else if first && plan.map().kind_at(pfn) == Some(RangeKind::Offline) {
                return Err(RangeError::Frame(FreeError::Offline { pfn }).into());
            } else if first && !plan.zones().iter().any(|zone| zone.span().contains(pfn)) {
                return Err(RangeError::Frame(FreeError::Hole { pfn }).into());
            }
        }
        Ok(())
    }

    /// The plan's zone of a frame.
    fn spec(&self, pfn: Pfn) -> Option<&ZoneSpec> {
        let plan = self.model.plan();
        plan.zones().get(usize::from(self.model.zone_at(pfn)?.0))
    }

    /// Whether they are all of one zone type of one node.
    fn is_of_one_type(&self, range: &Range<Pfn>) -> bool {
        let mut zones = each(range).map(|pfn| self.spec(pfn));
        let first = zones.next().flatten();
        zones.all(|zone| first.zip(zone).is_some_and(|(first, zone)| first.is_sibling(zone)))
    }
}

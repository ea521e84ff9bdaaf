//! Taking blocks below the pageblock order: best fit by the hints, or a whole pageblock split.

use super::bits::{low_bits, order_at};
use super::hints::{Kind, Start, is_hinted};
use super::layout::Transit;
use super::line::Orders;
use super::shape::{Frame, Pageblock, WORD_ORDER};
use super::whole::WholeClass;
use super::{Current, FreeMap};
use crate::platform::stay::{Stay, cost};
use crate::platform::{Platform, StayOf};
use crate::types::migrate_type::MigrateType;
use crate::types::units::Order;

/// Which runs of a line will do.
#[derive(Clone, Copy)]
struct Fit {
    least: u32,
    most: u32,
    /// The rest of a larger run stays without hints.
    holds: bool,
}

impl<'m, P: Platform> FreeMap<'m, P> {
    /// Takes a block of `order`, below the pageblock order, from lines of the type: from `current`
    /// if it has one, otherwise from the first pageblock that has a maximal run of that order, or
    /// of the next larger one that any has; that one becomes current, and the one before is
    /// released. Without `current` nothing is held. Order 0 is taken from the first pageblock that
    /// has a free frame.
    ///
    /// `None`: no hint of the type led to a run. There may be whole pageblocks
    /// ([`split_whole`](Self::split_whole)), other types, and stale hints
    /// ([`last_look`](Self::last_look)). O(orders × words that a search reads).
    #[must_use]
    pub fn take_block(
        &self,
        migrate: MigrateType,
        order: Order,
        start: Start,
        mut current: Option<&mut Current>,
    ) -> Option<Frame> {
        let (p, least) = (self.shape().p(), u32::from(order.get()));
        if !is_hinted(migrate) || least >= p {
            return None;
        }
        let holds = current.is_some();
        if let Some(held) = current.as_deref_mut() {
            match self.take_current(held, migrate, order) {
                Ok(frame) => return Some(frame),
                Err(orders) => self.release_seen(held, orders),
            }
        }
        // A hint of order 0 says that there are frames, whatever runs they are in.
        let steps = if least == 0 { 0..1 } else { least..p };
        let first = Kind::of_order(migrate, steps.start).number(self.shape());
        if self.stay.skips_all(first, steps.end - steps.start) {
            return None;
        }
        for step in steps {
            let kind = Kind::Run(migrate, step);
            let most = if step == 0 { p } else { step };
            if self.stay.skips(kind.number(self.shape())) {
                continue;
            }
            while let Some(pageblock) = self.find(kind, start).filter(|&own| start.is_own(own)) {
                if !self.stay.affords(cost::BLOCK) {
                    return None;
                }
                if StayOf::<P>::COPIES && least > 0 {
                    let wanted = (migrate, order, step);
                    if let Some(frame) = self.take_led(current.as_deref_mut(), pageblock, wanted) {
                        return Some(frame);
                    }
                } else {
                    let fit = Fit { least: step, most, holds };
                    if let Some(frame) = self.take_from(pageblock, migrate, order, fit) {
                        if let Some(held) = current {
                            self.hold(held, pageblock, migrate);
                        }
                        return Some(frame);
                    }
                }
                // It may be of another type, too; then it is filed there.
                self.lower_stale(kind, pageblock, (migrate, self.orders_in(pageblock)));
                self.stay.spend(cost::BLOCK);
            }
        }
        None
    }

    /// Takes a whole pageblock, gives it the type `migrate` and takes the block of `order`, below
    /// the pageblock order, at its start; the rest is free in its line. With `current` that is the
    /// CPU's current pageblock now, the one before is released, and no hint has to be raised.
    /// Touched pageblocks come before untouched ones. `None` if there is none. O(words that a
    /// search reads + of a line).
    #[must_use]
    pub fn split_whole(
        &self,
        migrate: MigrateType,
        order: Order,
        start: Start,
        current: Option<&mut Current>,
    ) -> Option<Frame> {
        let shape = self.shape();
        if order >= shape.order() {
            return None;
        }
        let (pageblock, (_, _transit)) = self.open_whole_in_part(migrate, start)?;
        self.put_around(pageblock, pageblock.first_frame(shape), order.size());
        if let Some(held) = current {
            self.release(held);
            held.set(pageblock);
        } else {
            self.settle(pageblock);
        }
        Some(pageblock.first_frame(shape))
    }

    /// Takes a whole pageblock and gives it the type `migrate`: all of it is the caller's. Untouched
    /// ones from `home` up.
    #[must_use]
    pub fn open_whole(
        &self,
        migrate: MigrateType,
        start: Start,
        home: Pageblock,
    ) -> Option<Pageblock> {
        self.open_whole_inside(migrate, start, home, |_| ()).map(|(pageblock, ())| pageblock)
    }

    /// The same for who frees a part of it at once (M-1), with the type that it had, which is a hint.
    #[inline]
    pub(super) fn open_whole_in_part(
        &self,
        migrate: MigrateType,
        start: Start,
    ) -> Option<(Pageblock, (MigrateType, Transit<'m, P>))> {
        let inside = |pageblock| (self.type_of(pageblock), self.in_transit(pageblock));
        self.open_whole_inside(migrate, start.anywhere(), start.home(), inside)
    }

    /// The same with something done before each try.
    fn open_whole_inside<G>(
        &self,
        migrate: MigrateType,
        start: Start,
        home: Pageblock,
        enter: impl Fn(Pageblock) -> G,
    ) -> Option<(Pageblock, G)> {
        for &class in WholeClass::for_type(migrate) {
            let untouched = class == WholeClass::Untouched;
            let start = if untouched { Start { pageblock: home, ..start } } else { start };
            while let Some((pageblock, guard)) = self.take_whole_inside(class, start, &enter) {
                if self.claim_whole(pageblock, migrate) {
                    return Some((pageblock, guard));
                }
            }
        }
        None
    }

    /// As [`open_whole`](Self::open_whole), an untouched one of the section of `home`. `None` also if other
    /// CPUs were faster.
    #[must_use]
    pub fn open_untouched_near(&self, migrate: MigrateType, home: Pageblock) -> Option<Pageblock> {
        let class = WholeClass::Untouched;
        let start = Start::new(home, home.0 as u16);
        let found = self.find(Kind::Whole(class), start).filter(|found| found.is_beside(home))?;
        let taken = self.clear(Kind::Whole(class), found) && self.keep_whole(class, found);
        (taken && self.claim_whole(found, migrate)).then_some(found)
    }

    /// Gives a whole pageblock that was taken the type `migrate`. `false`: it was isolated since, and
    /// is back where it belongs.
    #[inline]
    pub(super) fn claim_whole(&self, pageblock: Pageblock, migrate: MigrateType) -> bool {
        let claimed = self.claim_owned(pageblock, migrate);
        if !claimed {
            self.put_whole_back(pageblock);
        }
        claimed
    }

    /// Takes a block of `order` from a run of the line that fits, if the pageblock is of the type.
    fn take_from(
        &self,
        pageblock: Pageblock,
        migrate: MigrateType,
        order: Order,
        fit: Fit,
    ) -> Option<Frame> {
        let frame = loop {
            let (line, count) = self.read_line(pageblock);
            let (_, at) = Self::best_run(&line[..count], fit.least, fit.most)?;
            let frame = Frame(pageblock.first_frame(self.shape()).0 + at);
            // Another CPU was faster: what it left is looked at again.
            if self.take_at(pageblock, frame, order, fit.holds) {
                break frame;
            }
        };
        self.keep_typed(pageblock, migrate, frame, order)
    }

    /// Takes a block from the current pageblock. If it has none, the orders of its maximal runs, where they were seen.
    fn take_current(
        &self,
        held: &mut Current,
        migrate: MigrateType,
        order: Order,
    ) -> Result<Frame, Option<Orders>> {
        let pageblock = held.pageblock().ok_or(None)?;
        let orders = self.remember(held);
        if let Some(frame) = self.take_beside(held, migrate, order) {
            return Ok(frame);
        }
        if StayOf::<P>::COPIES && orders.is_some_and(|orders| orders >> WORD_ORDER == 0) {
            return Err(orders);
        }
        // A run of words, or of a line that is not remembered.
        let any = Fit { least: u32::from(order.get()), most: self.shape().p(), holds: true };
        let frame = self.take_from(pageblock, migrate, order, any).ok_or(None)?;
        self.remember_opened(held, frame, order);
        Ok(frame)
    }

    /// Takes this block, all or nothing, and files what it leaves of a larger run (M-3).
    pub(super) fn take_at(
        &self,
        pageblock: Pageblock,
        frame: Frame,
        order: Order,
        holds: bool,
    ) -> bool {
        let (word, bit) = frame.word();
        let order_bits = u32::from(order.get());
        if order_bits > WORD_ORDER {
            let transit = self.in_transit(pageblock);
            let taken = self.take_words(word, order.size() / 64);
            if !taken || !holds {
                // M-6 if it was not; what is left of a larger run if it was.
                self.settle(pageblock);
            }
            drop(transit);
            return taken;
        }
        let mask = low_bits(order.size()) << bit.trailing_zeros();
        let Some(before) = self.take_bits(word, mask) else { return false };
        if holds {
            return true;
        }
        if before == u64::MAX && self.shape().p() > WORD_ORDER {
            // It may have been in a run of words.
            self.settle(pageblock);
            return true;
        }
        // Of what the word was when it was taken, not of what a look had shown before.
        let (frames, at) = (self.shape().pageblock_frames().min(64), bit.trailing_zeros());
        let own = before >> (at / frames * frames) & low_bits(frames);
        let run = order_at(own, at % frames);
        if run > order_bits {
            self.file_rarely(pageblock, (1 << run) - (1 << order_bits));
        }
        true
    }

    /// A hint of the type led to a pageblock that has none of its kind, but runs of these orders: it is lowered (M-4).
    #[inline(always)]
    pub(super) fn lower_stale(
        &self,
        kind: Kind,
        pageblock: Pageblock,
        (migrate, orders): (MigrateType, Orders),
    ) {
        if orders == 0 {
            // Not one after the other, each with a look at the line.
            self.lower_all(pageblock, migrate);
        } else {
            self.clear(kind, pageblock);
        }
        self.settle(pageblock);
    }

    /// Makes a pageblock a CPU's current one: lowers its hints.
    pub(super) fn hold(&self, held: &mut Current, pageblock: Pageblock, migrate: MigrateType) {
        held.set(pageblock);
        self.lower_all(pageblock, migrate);
    }

    /// [Gives up](Self::release) a current pageblock whose runs were of these orders: what is freed into it later raises its
    /// hints itself.
    fn release_seen(&self, held: &mut Current, seen: Option<Orders>) {
        match (held.pageblock(), seen) {
            // Once, where code is: a look more at the line costs less than that.
            (Some(pageblock), Some(orders))
                if StayOf::<P>::COPIES && orders >> self.shape().p() == 0 =>
            {
                *held = Current::NONE;
                if orders != 0 {
                    self.file_rarely(pageblock, orders);
                }
            }
            _ => self.release(held),
        }
    }

    /// Gives a current pageblock up: what it lacks of hints is raised (M-2). For a CPU that idles,
    /// that has used it up, or that goes. O(words of a line).
    pub fn release(&self, held: &mut Current) {
        if let Some(pageblock) = core::mem::take(held).pageblock() {
            self.settle(pageblock);
        }
    }
}

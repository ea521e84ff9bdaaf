//! The map as where frames with states come from and go to.

use super::frames::FrameStack;
use super::{Home, in_word};
use crate::frame::{CACHED, FrameState, Release};
use crate::platform::stay::Stay;
use crate::platform::{Platform, StayOf};
use crate::trace::{Event, Point, Trace};
use crate::types::migrate_type::MigrateType;
use crate::types::units::Order;
use crate::zone::free_map::{AlreadyFree, Current, Frame, FreeMap, MapView, Singles, WordIndex};
use core::cell::Cell;
use core::marker::PhantomData;

/// Marks the frames of a word that a refill brought.
#[inline]
pub(super) fn came<P: Platform>(view: MapView<'_, P>, word: WordIndex, bits: u64) {
    view.table.set_states(view.index(word.first_frame()), bits, CACHED);
}

/// Tells of the frames that a refill brought, or of blocks that came at once, once they are on the stack: if the sink panics
/// they are there.
#[inline(always)]
pub(super) fn tell<P: Platform, T: Trace, const N: usize>(
    view: MapView<'_, P>,
    kind: (Order, MigrateType),
    stack: &FrameStack<P, N>,
) {
    if T::is_on(Point::AllocZoneLocked) {
        tell_each::<P, T, N>(view, kind, stack);
    }
}

#[cold]
#[inline(never)]
fn tell_each<P: Platform, T: Trace, const N: usize>(
    view: MapView<'_, P>,
    (order, migrate): (Order, MigrateType),
    stack: &FrameStack<P, N>,
) {
    for index in stack.frames() {
        T::emit(Point::AllocZoneLocked, || Event::AllocZoneLocked {
            pfn: view.table.pfn(index),
            order,
            migrate,
            percpu_refill: true,
        });
    }
}

/// The map as the home of frames with states, which were freed in the way `R`.
pub(super) struct MapHome<'a, P: Platform, R> {
    view: MapView<'a, P>,
    map: FreeMap<'a, P>,
    /// Where the code for single frames stands in its place.
    singles: Option<Singles<'a, P>>,
    /// Frames that were free there already, or are no longer cached: none, but for damage, or where a frame may be cached
    /// twice.
    refused: Cell<u32>,
    way: PhantomData<R>,
}

impl<'a, P: Platform, R: Release> MapHome<'a, P, R> {
    #[inline]
    pub(super) fn new(view: MapView<'a, P>) -> Self {
        let singles = if StayOf::<P>::COPIES { Some(view.singles()) } else { None };
        Self { view, map: view.map(), singles, refused: Cell::new(0), way: PhantomData }
    }
}

impl<P: Platform, R: Release> MapHome<'_, P, R> {
    /// Of frames of a word those that are cached still, which are the caller's to free from now on.
    #[inline(never)]
    fn still_cached(&self, word: WordIndex, mask: u64) -> u64 {
        let first = self.view.index(word.first_frame()) as usize;
        let (mut rest, mut cached) = (mask, 0);
        while rest != 0 {
            let at = rest.trailing_zeros();
            let len = (rest >> at).trailing_ones();
            let from = first + at as usize;
            let done = self.view.table.replace_run_at(from, len as usize, CACHED, FrameState::INNER)
                as u32;
            let run = |len| u64::MAX >> (u64::BITS - len) << at;
            if done > 0 {
                cached |= run(done);
            }
            // The one that is not is passed over.
            rest &= !run(len.min(done + 1));
        }
        self.view.refused(u64::from((mask & !cached).count_ones()));
        cached
    }

    /// The same of one frame, by a look as when it was freed.
    #[inline(always)]
    fn is_still_cached(&self, frame: Frame) -> bool {
        let index = self.view.index(frame) as usize;
        let cached = self.view.table.release_at::<R>(index, CACHED, FrameState::INNER);
        self.view.refused(u64::from(!cached));
        cached
    }

    #[inline(always)]
    fn put_here(&self, word: WordIndex, mask: u64) {
        let own = if R::ONCE { mask } else { self.still_cached(word, mask) };
        self.put_own(word, mask, own);
    }

    /// Of the frames `mask` those that are `own`.
    #[inline(always)]
    fn put_own(&self, word: WordIndex, mask: u64, own: u64) {
        let freed = if own == 0 { 0 } else { self.view.put_cached(&self.map, word, own) };
        if freed != mask {
            let refused = (mask & !freed).count_ones();
            self.refused.set(self.refused.get() + refused);
        }
    }

    #[inline(never)]
    fn put_apart(&self, word: WordIndex, mask: u64) {
        self.put_here(word, mask);
    }

    /// How many frames were freed of those given.
    #[inline]
    pub(super) fn freed(&self, given: Result<u32, AlreadyFree>) -> i64 {
        // `put` says of none that it was free already: it counts them.
        i64::from(given.unwrap_or(0)) - i64::from(self.refused.get())
    }
}

impl<P: Platform, R: Release> Home for MapHome<'_, P, R> {
    #[inline(always)]
    fn put(&self, word: WordIndex, mask: u64) -> Result<(), AlreadyFree> {
        match StayOf::<P>::COPIES {
            true => self.put_here(word, mask),
            false => self.put_apart(word, mask),
        }
        Ok(())
    }

    #[inline]
    fn put_block(&self, frame: Frame, order: Order) -> Result<(), AlreadyFree> {
        // Such blocks are freed by an exchange in every way: they are the caller's.
        let (word, mask) = in_word(frame, order);
        self.put_own(word, mask, mask);
        Ok(())
    }

    #[inline(always)]
    fn put_one(&self, frame: Frame) -> Result<(), AlreadyFree> {
        if !StayOf::<P>::COPIES {
            let (word, bit) = frame.word();
            return self.put(word, bit);
        }
        if let Some(singles) = &self.singles {
            let is_own = R::ONCE || self.is_still_cached(frame);
            if !is_own || !singles.put(frame) {
                self.refused.set(self.refused.get() + 1);
            }
        }
        Ok(())
    }

    fn release(&self, current: &mut Current) {
        self.map.release(current);
    }
}

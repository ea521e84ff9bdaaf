//! The map as where frames with states come from and go to.

use super::Home;
use super::frames::FrameStack;
use crate::frame::CACHED;
use crate::platform::stay::Stay;
use crate::platform::{Platform, StayOf};
use crate::trace::{Event, Point, Trace};
use crate::types::migrate_type::MigrateType;
use crate::types::units::Order;
use crate::zone::free_map::{AlreadyFree, Current, Frame, FreeMap, MapView, Singles, WordIndex};
use core::cell::Cell;

/// Marks the frames of a word that a refill brought.
#[inline]
pub(super) fn came<P: Platform>(view: MapView<'_, P>, word: WordIndex, bits: u64) {
    view.table.set_states(view.index(word.first_frame()), bits, CACHED);
}

/// Tells of the frames that a refill brought, once they are on the stack: if the sink panics they are
/// there.
#[inline(always)]
pub(super) fn tell<P: Platform, T: Trace, const N: usize>(
    view: MapView<'_, P>,
    migrate: MigrateType,
    stack: &FrameStack<P, N>,
) {
    if T::is_on(Point::AllocZoneLocked) {
        tell_each::<P, T, N>(view, migrate, stack);
    }
}

#[cold]
#[inline(never)]
fn tell_each<P: Platform, T: Trace, const N: usize>(
    view: MapView<'_, P>,
    migrate: MigrateType,
    stack: &FrameStack<P, N>,
) {
    for index in stack.frames() {
        T::emit(Point::AllocZoneLocked, || Event::AllocZoneLocked {
            pfn: view.table.pfn(index),
            order: Order::ZERO,
            migrate,
            percpu_refill: true,
        });
    }
}

/// The map as the home of frames with states.
pub(super) struct MapHome<'a, P: Platform> {
    view: MapView<'a, P>,
    map: FreeMap<'a, P>,
    /// Where the code for single frames stands in its place.
    singles: Option<Singles<'a, P>>,
    /// Frames that were free there already: none, but for damage.
    refused: Cell<u32>,
}

impl<'a, P: Platform> MapHome<'a, P> {
    #[inline]
    pub(super) fn new(view: MapView<'a, P>) -> Self {
        let singles = if StayOf::<P>::COPIES { Some(view.singles()) } else { None };
        Self { view, map: view.map(), singles, refused: Cell::new(0) }
    }
}

impl<P: Platform> MapHome<'_, P> {
    #[inline(always)]
    fn put_here(&self, word: WordIndex, mask: u64) {
        let freed = self.view.put_cached(&self.map, word, mask);
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

impl<P: Platform> Home for MapHome<'_, P> {
    #[inline(always)]
    fn put(&self, word: WordIndex, mask: u64) -> Result<(), AlreadyFree> {
        match StayOf::<P>::COPIES {
            true => self.put_here(word, mask),
            false => self.put_apart(word, mask),
        }
        Ok(())
    }

    #[inline(always)]
    fn put_one(&self, frame: Frame) -> Result<(), AlreadyFree> {
        if !StayOf::<P>::COPIES {
            let (word, bit) = frame.word();
            return self.put(word, bit);
        }
        if let Some(singles) = &self.singles
            && !singles.put(frame)
        {
            self.refused.set(self.refused.get() + 1);
        }
        Ok(())
    }

    fn release(&self, current: &mut Current) {
        self.map.release(current);
    }
}

//! Physically contiguous frames: exactly these, or as many as wanted anywhere.

mod find;
mod take;

use crate::alloc::allocator::Allocator;
use crate::alloc::entry::Entry;
use crate::alloc::host::Host;
use crate::compact::clusters_off::ClustersOff;
use crate::frame::ALLOCATED;
use crate::frame::FrameState;
use crate::policy::Policy;
use crate::types::error::{AllocReason, ContiguousError, RangeError, RefusedRange};
use crate::types::request::Request;
use crate::types::units::largest_piece;
use crate::types::units::{Order, Pfn};
use core::ops::Range;

/// Contiguous frames, each allocated with order 0. It moves and does not copy, so it can be
/// freed once; dropping it without freeing leaks the frames.
///
/// ```
/// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/report/example.rs")); }
/// use zonal::{Pfn, Request};
/// # example::with_small::<zonal::preset::Zonal>(|allocator| {
/// let ring = allocator.alloc_contiguous(3000, &Request::frame()).unwrap();
/// assert_eq!(ring.frames(), 3000);
/// allocator.free_contiguous(ring).unwrap();
/// let these = allocator.alloc_range(Pfn::new(0x1234)..Pfn::new(0x1250)).unwrap();
/// assert_eq!(these.start(), Pfn::new(0x1234));
/// allocator.free_contiguous(these).unwrap();
/// # });
/// ```
#[derive(PartialEq, Eq, Debug)]
#[must_use = "dropping it leaks its frames"]
pub struct Contiguous {
    start: Pfn,
    frames: u64,
}

impl Contiguous {
    /// The first frame.
    #[must_use]
    pub const fn start(&self) -> Pfn {
        self.start
    }

    /// How many frames.
    #[must_use]
    pub const fn frames(&self) -> u64 {
        self.frames
    }

    /// All of them.
    #[must_use]
    pub const fn range(&self) -> Range<Pfn> {
        self.start..Pfn::new(self.start.get() + self.frames)
    }

    /// Gives the token up for its numbers; each frame is then freed by itself, with order 0.
    #[must_use = "the numbers are all that is left of it"]
    pub const fn into_raw(self) -> (Pfn, u64) {
        (self.start, self.frames)
    }
}

impl<'m, P: Host, S: Policy> Allocator<'m, P, S> {
    /// Allocates exactly the frames of `range`: isolates their pageblocks, empties caches, has the
    /// host move what is allocated there to other memory of the zone type or a lower one, and takes
    /// the frames. The range may reach from one instance of a zone type
    /// into the next, not into another type or node. Meanwhile no request gets what else is free in
    /// those pageblocks. May wait for the host; must not be called where a request could not wait.
    /// O(frames of the pageblocks + cached frames), and as many calls of the host as there are
    /// blocks in the way.
    ///
    /// # Errors
    /// [`RangeError`]; then no caller has lost or gained a frame, but blocks may have been moved.
    pub fn alloc_range(&self, range: Range<Pfn>) -> Result<Contiguous, RangeError> {
        let frames = self.check_range(&range)?;
        self.while_isolated(frames.clone(), &mut || self.take_parts(&frames))?;
        Ok(Contiguous { start: range.start, frames: range.end.get() - range.start.get() })
    }

    /// Allocates `frames` contiguous frames; the order of `request` does not matter. Up to a
    /// largest block they come from the smallest block that holds them, and the rest of it is
    /// given back; beyond that, or when there is no such block, by
    /// [`alloc_range`](Self::alloc_range) from the range that needs the fewest frames moved (none
    /// at all if the request may not wait). Such a range begins at a pageblock, and may be CMA
    /// memory: that is lent to others until a caller asks for it like this.
    ///
    /// # Errors
    /// [`ContiguousError`].
    pub fn alloc_contiguous(
        &self,
        frames: u64,
        request: &Request,
    ) -> Result<Contiguous, ContiguousError> {
        if frames == 0 {
            return Err(ContiguousError::Empty);
        }
        if let Some(order) = Order::for_frames(frames) {
            match self.alloc(&request.with_order(order)) {
                Ok(block) => return Ok(self.cut_to_size(block.into_raw().0, order, frames as u32)),
                Err(error) => match error.reason {
                    AllocReason::Exhausted => {}
                    AllocReason::NoZone => return Err(ContiguousError::NoZone),
                    AllocReason::NotRequestable => return Err(ContiguousError::NotRequestable),
                    AllocReason::CannotZero => return Err(ContiguousError::CannotZero),
                },
            }
        }
        if !request.migrate_type().is_requestable() {
            return Err(ContiguousError::NotRequestable);
        }
        let cpu = self.shared_entry().cpu();
        let found = self.find_contiguous(cpu, frames, request)?;
        if request.is_zero() {
            let (start, frames) = found.into_raw();
            let in_hand = InHand { allocator: self, start, frames };
            let mut pfns = (start.get()..).map(Pfn::new).take(frames as usize);
            if pfns.any(|pfn| self.platform.zero(pfn, Order::ZERO).is_err()) {
                return Err(ContiguousError::CannotZero);
            }
            return Ok(in_hand.hand_out());
        }
        Ok(found)
    }

    /// Frees contiguous frames, merged, to the buddy lists.
    ///
    /// # Errors
    /// [`RefusedRange`] gives the token back if a frame of it is not allocated with order 0;
    /// then none was freed.
    pub fn free_contiguous(&self, token: Contiguous) -> Result<(), RefusedRange<Contiguous>> {
        let checked = self.check_range(&token.range()).and_then(|frames| {
            match frames.clone().find(|&at| self.table.state(at) != ALLOCATED) {
                Some(at) => Err(RangeError::NotAllocated { pfn: self.table.pfn(at) }),
                None => Ok(frames),
            }
        });
        match checked {
            Ok(frames) => {
                self.parts(frames).for_each(|(zone, part)| self.free_frames_of(zone, part));
                Ok(())
            }
            Err(error) => Err(RefusedRange { token, error }),
        }
    }

    /// Calls `then` with the pageblocks of `frames` isolated, in every instance of their zone type
    /// that they reach into. Calls itself once for each.
    fn while_isolated(
        &self,
        frames: Range<u32>,
        then: &mut dyn FnMut() -> Result<(), RangeError>,
    ) -> Result<(), RangeError> {
        let Some((zone, part)) = self.parts(frames.clone()).next() else { return then() };
        let _clusters_off = ClustersOff::new(zone, self);
        let _isolation = self.isolate_pageblocks(zone, &part)?;
        self.while_isolated(part.end..frames.end, then)
    }

    /// Makes a block single frames and frees those after the first `frames`.
    fn cut_to_size(&self, start: Pfn, order: Order, frames: u32) -> Contiguous {
        let token = Contiguous { start, frames: u64::from(frames) };
        // The block was handed out, and no other caller has it: its states are ours to write.
        let Some(first) = self.table.index(start) else { return token };
        (first..first + frames).for_each(|at| self.table.set_state(at, ALLOCATED));
        let mut at = first + frames;
        let end = first + order.size();
        while at < end {
            let piece = largest_piece(at, end, Order::MAX);
            self.table.set_state(at, FrameState::allocated(piece));
            let freed = self.free_direct(self.table.pfn(at), piece);
            debug_assert!(freed.is_ok(), "a part of a block just allocated can be freed");
            at += piece.size();
        }
        token
    }
}

/// Frames that the caller does not know of yet. Dropped, they are freed: so it is when the host
/// panics (I-3).
struct InHand<'a, 'm, P: Host, S: Policy> {
    allocator: &'a Allocator<'m, P, S>,
    start: Pfn,
    frames: u64,
}

impl<P: Host, S: Policy> InHand<'_, '_, P, S> {
    const fn token(&self) -> Contiguous {
        Contiguous { start: self.start, frames: self.frames }
    }

    /// The caller gets them.
    fn hand_out(self) -> Contiguous {
        let token = self.token();
        core::mem::forget(self);
        token
    }
}

impl<P: Host, S: Policy> Drop for InHand<'_, '_, P, S> {
    fn drop(&mut self) {
        let freed = self.allocator.free_contiguous(self.token());
        debug_assert!(freed.is_ok(), "frames just allocated can be freed");
    }
}

//! Physically contiguous frames: exactly these, or as many as wanted anywhere.

mod find;
mod pages;
mod take;

use crate::alloc::allocator::Allocator;
use crate::alloc::entry::Entry;
use crate::alloc::host::Host;
use crate::compact::clusters_off::ClustersOff;
use crate::frame::{ALLOCATED, FrameState};
use crate::policy::Policy;
use crate::trace::or_undo;
use crate::types::bounds::Bounds;
use crate::types::error::{AllocReason, ContiguousError, RangeError, RefusedRange};
use crate::types::request::Request;
use crate::types::units::largest_piece;
use crate::types::units::{Order, Pfn};
use crate::types::zone_type::ZoneType;
use core::ops::Range;

/// Whether the host is asked to move what stands in the way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Moves {
    Yes,
    No,
}

/// Contiguous frames, each allocated with order 0. It moves and does not copy, so it can be
/// freed once; dropping it without freeing leaks the frames. Another allocator may take it for its
/// own, as with a [`Block`](crate::Block).
///
/// ```
/// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example/mod.rs")); }
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
        self.take_range(&range, Moves::Yes)
    }

    /// Allocates exactly the frames of `range`, if all of them are free: nothing is moved, the host is not
    /// called. Otherwise as [`alloc_range`](Self::alloc_range): caches are emptied, so not from a
    /// handler of interrupts. Watermarks are not looked at.
    ///
    /// # Errors
    /// [`RangeError`], of which [`InUse`](RangeError::InUse) names an allocated frame; then nothing has
    /// changed.
    pub fn alloc_at(&self, range: Range<Pfn>) -> Result<Contiguous, RangeError> {
        self.take_range(&range, Moves::No).map_err(|error| match error {
            RangeError::Unmovable { pfn } => RangeError::InUse { pfn },
            error => error,
        })
    }

    /// Takes a range as [`alloc_range`](Self::alloc_range) does, for good: its frames are in no place from
    /// the moment they are not free any more, so that a block of it that is freed twice is not taken for
    /// the frames that the caller has.
    pub(crate) fn take_away(&self, range: &Range<Pfn>) -> Result<(), RangeError> {
        let frames = self.check_range(range)?;
        self.while_isolated(frames.clone(), &mut || {
            self.take_parts(&frames, Moves::Yes, FrameState::INNER)
        })
    }

    fn take_range(&self, range: &Range<Pfn>, moves: Moves) -> Result<Contiguous, RangeError> {
        let frames = self.check_range(range)?;
        if moves == Moves::No {
            self.check_unused(&frames)?;
        }
        self.while_isolated(frames.clone(), &mut || self.take_parts(&frames, moves, ALLOCATED))?;
        Ok(Contiguous { start: range.start, frames: range.end.get() - range.start.get() })
    }

    /// Allocates `frames` contiguous frames; the order of `request` does not matter. As
    /// [`alloc_contiguous_in`](Self::alloc_contiguous_in), anywhere.
    ///
    /// # Errors
    /// [`ContiguousError`].
    pub fn alloc_contiguous(
        &self,
        frames: u64,
        request: &Request,
    ) -> Result<Contiguous, ContiguousError> {
        self.alloc_contiguous_in(frames, request, &Bounds::ANY)
    }

    /// Allocates `frames` contiguous frames within `bounds`; the order of `request` does not matter. Up to a
    /// largest block they come from the smallest block that holds them, and the rest of it is
    /// given back; beyond that, when there is no such block, or when it could lie beyond the bounds, by
    /// [`alloc_range`](Self::alloc_range): if there are bounds from the first range that is free, and else
    /// from the one that needs the fewest frames moved (none at all if the request may not wait). The latter
    /// begins at a pageblock. Such a range may be CMA
    /// memory: that is lent to others until a caller asks for it like this.
    /// O(1) for a block, else O(frames of the zones).
    ///
    /// # Errors
    /// [`ContiguousError`]. Where the host refuses to zero a range that was taken, pageblocks of the high-atomic reserve
    /// in it do not go back there.
    pub fn alloc_contiguous_in(
        &self,
        frames: u64,
        request: &Request,
        bounds: &Bounds,
    ) -> Result<Contiguous, ContiguousError> {
        if frames == 0 {
            return Err(ContiguousError::Empty);
        }
        if !bounds.align().is_power_of_two() {
            return Err(ContiguousError::BadAlignment { frames: bounds.align() });
        }
        if !request.migrate_type().is_requestable() {
            return Err(ContiguousError::Request(AllocReason::NotRequestable));
        }
        if let Some(found) = self.part_of_block(frames, request, bounds)? {
            return Ok(found);
        }
        let seat = self.shared_entry().seat();
        let found = self.find_contiguous(seat, frames, request, bounds)?;
        if request.is_zero() {
            let (start, frames) = found.into_raw();
            let in_hand = InHand { allocator: self, start, frames };
            let mut pfns = (start.get()..).map(Pfn::new).take(frames as usize);
            if pfns.any(|pfn| self.platform.zero(pfn, Order::ZERO).is_err()) {
                return Err(ContiguousError::Request(AllocReason::CannotZero));
            }
            return Ok(in_hand.hand_out());
        }
        Ok(found)
    }

    /// The frames as the start of a block, if there is one that large and all such blocks are within the bounds.
    fn part_of_block(
        &self,
        frames: u64,
        request: &Request,
        bounds: &Bounds,
    ) -> Result<Option<Contiguous>, ContiguousError> {
        let Some(order) = Order::for_frames(frames.max(bounds.align())) else { return Ok(None) };
        let Some(within) = self.request_within(request, bounds) else { return Ok(None) };
        match self.alloc(&within.with_order(order)) {
            Ok(block) => Ok(Some(self.cut_to_size(block.into_raw().0, order, frames as u32))),
            Err(error) => match error.reason {
                // Of the types within the bounds there may be none.
                AllocReason::NoZone if within != *request => Ok(None),
                AllocReason::Exhausted => Ok(None),
                reason => Err(ContiguousError::Request(reason)),
            },
        }
    }

    /// The request, for the zone types that lie below the limit; `None` if none has to.
    fn request_within(&self, request: &Request, bounds: &Bounds) -> Option<Request> {
        let (config, limit) = (self.plan.config(), bounds.limit());
        if limit.get() >= self.plan.base().get() + self.plan.frames() {
            return Some(*request);
        }
        let types = [(config.dma32_limit, ZoneType::Dma32), (config.dma_limit, ZoneType::Dma)];
        let (_, below) = types.into_iter().find(|(end, _)| *end <= limit)?;
        Some(request.zone_limit(request.asked().min(below)))
    }

    /// Frees contiguous frames, merged, to the buddy lists.
    ///
    /// # Errors
    /// [`RefusedRange`] gives the token back if a frame of it is not allocated with order 0;
    /// then none was freed.
    pub fn free_contiguous(&self, token: Contiguous) -> Result<(), RefusedRange<Contiguous>> {
        self.free_range(&token.range()).map_err(|error| RefusedRange { token, error })
    }

    /// Frees frames that are allocated by themselves, all or none.
    fn free_range(&self, range: &Range<Pfn>) -> Result<(), RangeError> {
        let frames = self.check_range(range)?;
        let (first, len) = (frames.start as usize, frames.len());
        // Each in one atomic step: of two callers that free a frame at the same instant one is refused.
        let mine = self.table.replace_run_at(first, len, ALLOCATED, FrameState::INNER);
        if mine < len {
            self.table.fill_states(frames.start, mine, ALLOCATED);
            return Err(RangeError::NotAllocated {
                pfn: self.table.pfn(frames.start + mine as u32),
            });
        }
        self.parts(frames).for_each(|(zone, part)| self.free_frames_of(zone, part));
        Ok(())
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
        let mut isolation = self.isolate_pageblocks(zone, &part)?;
        let done = self.while_isolated(part.end..frames.end, then);
        isolation.in_vain = done.is_err();
        done
    }

    /// Makes a block single frames and frees those after the first `frames`.
    fn cut_to_size(&self, start: Pfn, order: Order, frames: u32) -> Contiguous {
        let token = Contiguous { start, frames: u64::from(frames) };
        // The block was handed out, and no other caller has it: its states are ours to write.
        let Some(first) = self.table.index(start) else { return token };
        self.table.fill_states(first, frames as usize, ALLOCATED);
        let mut at = first + frames;
        let end = first + order.size();
        while at < end {
            let piece = largest_piece(at, end, Order::MAX);
            self.table.set_state(at, FrameState::allocated(piece));
            let mut freed = Ok(());
            or_undo(
                || freed = self.free_direct(self.table.pfn(at), piece, false),
                || {
                    self.table.fill_states(at, (end - at) as usize, ALLOCATED);
                    for rest in [first..first + frames, at..end] {
                        self.parts(rest).for_each(|(zone, part)| self.free_frames_of(zone, part));
                    }
                },
            );
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

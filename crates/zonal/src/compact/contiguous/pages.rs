//! Pages by their number: allocated in any count, freed in any parts.

use crate::alloc::allocator::Allocator;
use crate::alloc::host::Host;
use crate::policy::Policy;
use crate::types::bounds::Bounds;
use crate::types::error::{AllocReason, ContiguousError, FreeError, RangeError};
use crate::types::request::Request;
use crate::types::units::{Order, Pfn};

impl<'m, P: Host, S: Policy> Allocator<'m, P, S> {
    /// Allocates `frames` frames in a row within `bounds`, for callers that keep their number; the order of
    /// `request` does not matter. A single frame without bounds is [`alloc_raw`](Self::alloc_raw); all
    /// others are [`alloc_contiguous_in`](Self::alloc_contiguous_in). Each frame is allocated by itself: any
    /// part is freed by [`free_pages`](Self::free_pages).
    ///
    /// # Errors
    /// [`ContiguousError`].
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example/mod.rs")); }
    /// use zonal::{Bounds, Pfn, Request};
    /// # example::with_small::<zonal::preset::Zonal>(|allocator| {
    /// let stack = allocator.alloc_pages(12, &Request::frame(), &Bounds::ANY.aligned(4)).unwrap();
    /// assert_eq!(stack.get() % 4, 0);
    /// // Its lowest frame becomes a guard, and the rest goes later.
    /// allocator.free_pages(stack, 1).unwrap();
    /// allocator.free_pages(Pfn::new(stack.get() + 1), 11).unwrap();
    /// # });
    /// ```
    #[inline]
    pub fn alloc_pages(
        &self,
        frames: u64,
        request: &Request,
        bounds: &Bounds,
    ) -> Result<Pfn, ContiguousError> {
        if frames == 1 && *bounds == Bounds::ANY {
            let found = self.alloc_raw(&request.with_order(Order::ZERO));
            return found.map_err(|error| match error.reason {
                AllocReason::Exhausted => ContiguousError::NoRange { frames, tried: 0, last: None },
                reason => ContiguousError::Request(reason),
            });
        }
        self.alloc_contiguous_in(frames, request, bounds).map(|found| found.into_raw().0)
    }

    /// Frees `frames` frames from `start` on, each of which is allocated by itself, with order 0: any part of what
    /// [`alloc_pages`](Self::alloc_pages), [`alloc_at`](Self::alloc_at) and their like gave, or several
    /// neighbours of one zone. A single one stays with the CPU, as by [`free_raw`](Self::free_raw); the others go to the
    /// zone, merged. O(frames).
    ///
    /// # Errors
    /// [`RangeError`]; then none was freed.
    #[inline]
    pub fn free_pages(&self, start: Pfn, frames: u64) -> Result<(), RangeError> {
        if frames == 1 && self.free_raw(start, Order::ZERO).is_ok() {
            return Ok(());
        }
        let end = start
            .get()
            .checked_add(frames)
            .ok_or(RangeError::Frame(FreeError::Foreign { pfn: start }))?;
        self.free_range(&(start..Pfn::new(end)))
    }
}

//! Keeping a part that is being evacuated apart: what is freed in it stays out of the lists that
//! requests see, or others would take it as fast as pages move out.
//!
//! A pageblock that is set apart has the type isolate, so frees into it go to lists of its own.
//! Unlike an isolation, which a caller holds a token of, this one may be revoked at any moment, by
//! a request that finds no single frame anywhere else (I-6), or by who isolates the pageblock.

use crate::alloc::allocator::Allocator;
use crate::alloc::host::Host;
use crate::policy::FreeMemory;
use crate::policy::Policy;
use crate::policy::zone::Zone;

/// A pageblock is set apart, if no request has revoked it; ends when dropped, whatever the host
/// did.
pub(super) struct Apart<'a, 'm, P: Host, S: Policy> {
    allocator: &'a Allocator<'m, P, S>,
    zone: &'m Zone<P, S>,
}

impl<'a, 'm, P: Host, S: Policy> Apart<'a, 'm, P, S> {
    /// Sets the pageblock that starts at `start` apart. There is one at most in a zone: where
    /// parts are set apart one compaction runs at a time, and this one is it.
    pub(super) fn new(
        allocator: &'a Allocator<'m, P, S>,
        zone: &'m Zone<P, S>,
        start: u32,
    ) -> Self {
        S::Free::set_apart(allocator.view(zone), start);
        Self { allocator, zone }
    }
}

impl<P: Host, S: Policy> Drop for Apart<'_, '_, P, S> {
    fn drop(&mut self) {
        S::Free::rejoin(self.allocator.view(self.zone));
    }
}

//! How much work the compactions of one request may be. The request's CPU alone has it, on its stack.

use super::Compact;
use crate::zone::CompactMode;
use core::cell::Cell;

/// What is left of what a request may have its compactions do, in all its zones.
pub(crate) struct Effort {
    /// Frames to look at. Asynchronous compaction leaves half of them to synchronous compaction.
    sight: Cell<u32>,
    half: u32,
    /// Frames to offer to the host.
    offers: Cell<u32>,
}

impl Effort {
    /// That of one request.
    pub(crate) const fn of_request<C: Compact>() -> Self {
        Self::new(C::SIGHT, C::OFFERS)
    }

    /// All that there is to look at, and `offers` frames to offer.
    pub(crate) const fn offering(offers: u32) -> Self {
        Self::new(u32::MAX, offers)
    }

    const fn new(sight: u32, offers: u32) -> Self {
        // Without a bound there is nothing to share.
        let half = if sight == u32::MAX { 0 } else { sight / 2 };
        Self { sight: Cell::new(sight), half, offers: Cell::new(offers) }
    }

    /// Frames were looked at.
    pub(crate) fn looked(&self, frames: u32) {
        if self.half > 0 {
            self.sight.set(self.sight.get().saturating_sub(frames));
        }
    }

    /// Whether enough was looked at.
    pub(crate) fn is_blind(&self, mode: CompactMode) -> bool {
        let keeps = if mode == CompactMode::Async { self.half } else { 0 };
        self.half > 0 && self.sight.get() <= keeps
    }

    /// Frames are offered to the host.
    pub(crate) fn offers(&self, frames: u32) {
        self.offers.set(self.offers.get().saturating_sub(frames));
    }

    /// Nothing more is.
    pub(crate) fn call_off(&self) {
        self.offers.set(0);
    }

    /// Whether nothing more may be offered.
    pub(crate) fn is_spent(&self) -> bool {
        self.offers.get() == 0
    }
}

//! What the allocator calls its host back for: [`Host`].

use super::allocator::Allocator;
use super::slow_path::Shortage;
use crate::platform::Platform;
use crate::platform::single::SingleThread;
use crate::policy::Policy;
use crate::types::migration::{CannotZero, Immovable, Migration};
use crate::types::units::{Order, Pfn, ZoneId};

/// A platform with the callbacks of an allocator: what it asks of its host beyond the
/// [`Platform`], that is zeroed frames, frames given back, pages moved.
///
/// Every callback has a default that does nothing or refuses, so a host implements what it can do.
/// None is called with a lock of the allocator held (I-7).
///
/// ```
/// use zonal::Host;
/// use zonal::platform::single::SingleThread;
/// assert!(!SingleThread.can_migrate(), "nothing to move pages with");
/// ```
pub trait Host: Platform {
    /// Fills a block that was just allocated, and that no other code knows of, with zero bytes.
    ///
    /// # Errors
    /// [`CannotZero`] if this host cannot write frames (the default).
    fn zero(&self, pfn: Pfn, order: Order) -> Result<(), CannotZero> {
        let _ = (pfn, order);
        Err(CannotZero)
    }

    /// The zone fell below its low watermark: wake the thread that reclaims in the background.
    /// Must not block. The default does nothing.
    fn wake_reclaim(&self, zone: ZoneId) {
        let _ = zone;
    }

    /// Gives frames back to `allocator`, because the request in `shortage` cannot be served.
    /// Called without any allocator lock held (I-7), on the CPU of the request.
    /// Returns how many frames it freed; the default frees none.
    fn reclaim<S: Policy>(&self, allocator: &Allocator<'_, Self, S>, shortage: &Shortage) -> u64 {
        let _ = (allocator, shortage);
        0
    }

    /// A request for a block of `order`, larger than one frame, found none at once: a
    /// background thread may call
    /// [`compact_in_background`](crate::Allocator::compact_in_background). Must not block.
    fn wake_compaction(&self, zone: ZoneId, order: Order) {
        let _ = (zone, order);
    }

    /// Whether [`migrate`](Self::migrate) can move anything. The default: no; compaction then
    /// only merges.
    fn can_migrate(&self) -> bool {
        false
    }

    /// Moves what the block `page.from` holds to `page.to`, which is allocated with the same
    /// order and known to no other code, and makes its owner use that from now on. Called without
    /// any allocator lock held (I-7). A request for a large block from in here should be
    /// [`no_wait`](crate::Request::no_wait): it would wait, in vain, for the compaction that it is inside,
    /// or begin one itself and come here again.
    ///
    /// Called on several CPUs at once. Where compactions run
    /// [side by side](crate::policy::Compact::SIDE_BY_SIDE) also for one page and two places: who wins
    /// the page from the host moves it.
    ///
    /// `Ok`: `from` is not in use any more; it is the allocator's, and `to` is its owner's, who
    /// may free it at once. The host must be sure that the owner neither frees nor uses `from`
    /// meanwhile; the allocator knows only that it was allocated a moment ago.
    ///
    /// # Errors
    /// [`Immovable`] if the page stays where it is: nothing has changed, and `to` was not given
    /// to anyone. The default refuses everything.
    fn migrate<S: Policy>(
        &self,
        allocator: &Allocator<'_, Self, S>,
        page: &Migration,
    ) -> Result<(), Immovable> {
        let _ = (allocator, page);
        Err(Immovable)
    }
}

impl Host for SingleThread {}

//! Words with one bug each, for the models of [truncations](super::truncations): an access that orders nothing, and a
//! check that is not made.

use std::sync::atomic::{AtomicU64, Ordering};
use zonal::CpuId;
use zonal::platform::{AtomicWord, Platform};
use zonal_testkit::loom_platform::{LoomPlatform, Word};

/// Readers at the word of a slot.
const READERS: u64 = (1 << 20) - 1;
/// Where the flags of a slot begin.
const FLAGS: u32 = 40;

/// Whether an exchange counts a reader in at the word.
const fn comes(current: u64, new: u64) -> bool {
    new == current + 1
}

/// Whether an exchange sets one flag and changes nothing else: only who claims a page that is spread does that here.
const fn flags(current: u64, new: u64) -> bool {
    !comes(current, new) && new & current == current && new.count_ones() == current.count_ones() + 1
}

/// Accesses that [`Weak`] is about: a reader counts itself in, by whichever way,
pub(crate) const COMES: u8 = 0;
/// one is counted out,
pub(crate) const LEAVES: u8 = 1;
/// a page is taken from the others,
pub(crate) const TAKES: u8 = 2;
/// a lane is asked whether readers are there.
pub(crate) const ASKS: u8 = 3;

/// A word of which these accesses order nothing, and all others do.
pub(crate) struct Weak<const WHICH: u8>(Word);

impl<const WHICH: u8> AtomicWord for Weak<WHICH> {
    fn new(value: u64) -> Self {
        Self(Word::new(value))
    }
    fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
        let which = match value {
            0 => ASKS,
            _ if value >> 63 != 0 => LEAVES,
            _ => COMES,
        };
        self.0.fetch_add(value, if which == WHICH { Ordering::Relaxed } else { order })
    }
    fn compare_exchange(
        &self,
        current: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64> {
        let which = if comes(current, new) { COMES } else { TAKES };
        let success = if which == WHICH { Ordering::Relaxed } else { success };
        self.0.compare_exchange(current, new, success, failure)
    }
    zonal::forward_atomic!(u64, 0: load store fetch_or fetch_and swap);
}

/// A word that says that no reader is there, and that is taken from those who are.
pub(crate) struct Unasked(Word);

impl AtomicWord for Unasked {
    fn new(value: u64) -> Self {
        Self(Word::new(value))
    }
    fn load(&self, order: Ordering) -> u64 {
        let now = self.0.load(order);
        // Not of a key or a lane, which have no flags.
        if now >> FLAGS == 0 { now } else { now & !READERS }
    }
    fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
        let before = self.0.fetch_add(value, order);
        if value == 0 { 0 } else { before }
    }
    fn compare_exchange(
        &self,
        current: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64> {
        match self.0.compare_exchange(current, new, success, failure) {
            Err(now) if now & !READERS == current && !comes(current, new) => {
                self.0.compare_exchange(now, new, success, failure)
            }
            said => said,
        }
    }
    zonal::forward_atomic!(u64, 0: store fetch_or fetch_and swap);
}

/// A word of a page that is spread, which is claimed only after the lanes have been asked.
pub(crate) struct Unflagged(Word);

impl AtomicWord for Unflagged {
    fn new(value: u64) -> Self {
        Self(Word::new(value))
    }
    fn compare_exchange(
        &self,
        current: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64> {
        if flags(current, new) {
            return self.0.compare_exchange(current, current, success, failure);
        }
        self.0.compare_exchange(current, new, success, failure)
    }
    zonal::forward_atomic!(u64, 0: load store fetch_add fetch_or fetch_and swap);
}

/// A word that stays claimed where readers were found at the lanes.
pub(crate) struct Stays(Word);

impl AtomicWord for Stays {
    fn new(value: u64) -> Self {
        Self(Word::new(value))
    }
    fn fetch_and(&self, _: u64, order: Ordering) -> u64 {
        self.0.fetch_and(u64::MAX, order)
    }
    zonal::forward_atomic!(u64, 0: load store fetch_add fetch_or swap compare_exchange);
}

/// Looks that [`Recalls`] is about: at the key of a slot in which a reader has counted itself,
pub(crate) const KEY: u8 = 0;
/// at the word of a slot after counting in at a lane,
pub(crate) const COMING: u8 = 1;
/// and after counting out there.
pub(crate) const LEAVING: u8 = 2;

/// A word at which CPU 0 does not look again, but takes what it saw when it looked before.
pub(crate) struct Recalls<const WHICH: u8>(Word, AtomicU64);

impl<const WHICH: u8> AtomicWord for Recalls<WHICH> {
    fn new(value: u64) -> Self {
        Self(Word::new(value), AtomicU64::new(0))
    }
    fn load(&self, order: Ordering) -> u64 {
        let now = self.0.load(order);
        if LoomPlatform::<Word>::new().cpu() != CpuId(0) {
            return now;
        }
        // Not loom's atomic: one thread of the machine has all of a model's.
        let before = self.1.load(Ordering::Relaxed);
        let (keeps, recalls) = match WHICH {
            KEY => (before == 0 && matches!(now, 1..8), true),
            COMING => (order == Ordering::Relaxed, order == Ordering::Acquire),
            _ => (order == Ordering::Acquire, order == Ordering::Relaxed),
        };
        if keeps {
            self.1.store(now, Ordering::Relaxed);
        }
        if recalls && before != 0 { before } else { now }
    }
    zonal::forward_atomic!(u64, 0: store fetch_add fetch_or fetch_and swap compare_exchange);
}

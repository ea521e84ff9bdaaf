//! Planted bugs: words that break a promise, under the same allocator source.
#![allow(dead_code, reason = "not every model plants every bug")]

use std::sync::atomic::Ordering;
use zonal::platform::AtomicWord;
use zonal_testkit::loom_platform::Word;

/// A word whose orderings `$order` changes, or whose exchanged value `$new` changes.
macro_rules! broken_word {
    ($(#[$doc:meta])* $name:ident, order: $order:expr, new: $new:expr) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub(crate) struct $name(Word);
        impl AtomicWord for $name {
            fn new(value: u64) -> Self {
                Self(Word::new(value))
            }
            fn load(&self, order: Ordering) -> u64 {
                self.0.load($order(order))
            }
            fn store(&self, value: u64, order: Ordering) {
                self.0.store(value, $order(order));
            }
            fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
                self.0.fetch_add(value, $order(order))
            }
            fn fetch_or(&self, mask: u64, order: Ordering) -> u64 {
                self.0.fetch_or(mask, $order(order))
            }
            fn fetch_and(&self, mask: u64, order: Ordering) -> u64 {
                self.0.fetch_and(mask, $order(order))
            }
            fn swap(&self, value: u64, order: Ordering) -> u64 {
                self.0.swap($new(value), $order(order))
            }
            fn compare_exchange(
                &self,
                current: u64,
                new: u64,
                success: Ordering,
                failure: Ordering,
            ) -> Result<u64, u64> {
                self.0.compare_exchange(current, $new(new), $order(success), $order(failure))
            }
        }
    };
}

fn without(left_out: Ordering) -> impl Fn(Ordering) -> Ordering {
    move |order| if order == left_out { Ordering::Relaxed } else { order }
}

broken_word!(
    /// Planted bug: a push that does not release.
    NoRelease, order: without(Ordering::Release), new: |new| new
);
broken_word!(
    /// Planted bug: a pop that does not acquire.
    NoAcquire, order: without(Ordering::Acquire), new: |new| new
);
broken_word!(
    /// Planted bug: a head without a tag. Only heads are exchanged, and the number is in their
    /// low 24 bits.
    NoTag, order: |order| order, new: |new: u64| new & 0xff_ffff
);

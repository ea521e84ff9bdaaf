//! Planted bugs: words that break a promise, under the same allocator source.
#![allow(dead_code, reason = "not every model plants every bug")]

use std::sync::atomic::Ordering;
use zonal::platform::AtomicWord;
use zonal_testkit::loom_platform::Word;

/// A word whose orderings `$order` changes.
macro_rules! broken_word {
    ($(#[$doc:meta])* $name:ident, $order:expr) => {
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
                self.0.swap(value, $order(order))
            }
            fn compare_exchange(
                &self,
                current: u64,
                new: u64,
                success: Ordering,
                failure: Ordering,
            ) -> Result<u64, u64> {
                self.0.compare_exchange(current, new, $order(success), $order(failure))
            }
        }
    };
}

fn without(left_out: Ordering) -> impl Fn(Ordering) -> Ordering {
    move |order| if order == left_out { Ordering::Relaxed } else { order }
}

broken_word!(
    /// Planted bug: a push that does not release.
    NoRelease, without(Ordering::Release)
);
broken_word!(
    /// Planted bug: a pop that does not acquire.
    NoAcquire, without(Ordering::Acquire)
);

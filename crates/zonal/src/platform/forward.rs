//! Atomics that pass most of what is asked of them on to another.

/// Methods of an [`AtomicByte`](crate::platform::AtomicByte),
/// [`AtomicHalf`](crate::platform::AtomicHalf) or [`AtomicWord`](crate::platform::AtomicWord) that a field answers unchanged, for hosts that
/// add something to the others: a cost, a count, a planted bug.
///
/// ```
/// use core::cell::Cell;
/// use core::sync::atomic::{AtomicU64, Ordering};
/// use zonal::platform::AtomicWord;
///
/// /// A word that counts how often it is read.
/// struct Counted(AtomicU64, AtomicU64);
///
/// impl AtomicWord for Counted {
///     fn new(value: u64) -> Self {
///         Self(AtomicU64::new(value), AtomicU64::new(0))
///     }
///     fn load(&self, order: Ordering) -> u64 {
///         self.1.fetch_add(1, Ordering::Relaxed);
///         self.0.load(order)
///     }
///     zonal::forward_atomic!(u64, 0: store fetch_add fetch_or fetch_and swap compare_exchange);
/// }
///
/// let word = Counted::new(7);
/// assert_eq!(AtomicWord::swap(&word, 8, Ordering::Relaxed), 7);
/// assert_eq!(word.load(Ordering::Relaxed) + word.1.into_inner(), 9);
/// ```
#[macro_export]
macro_rules! forward_atomic {
    ($value:ty, $field:tt: $($method:ident)*) => {
        $($crate::forward_atomic!(@$method $value, $field);)*
    };
    (@load $value:ty, $field:tt) => {
        #[inline(always)]
        fn load(&self, order: ::core::sync::atomic::Ordering) -> $value {
            self.$field.load(order)
        }
    };
    (@store $value:ty, $field:tt) => {
        #[inline(always)]
        fn store(&self, value: $value, order: ::core::sync::atomic::Ordering) {
            self.$field.store(value, order);
        }
    };
    (@compare_exchange $value:ty, $field:tt) => {
        #[inline(always)]
        fn compare_exchange(
            &self,
            current: $value,
            new: $value,
            success: ::core::sync::atomic::Ordering,
            failure: ::core::sync::atomic::Ordering,
        ) -> Result<$value, $value> {
            self.$field.compare_exchange(current, new, success, failure)
        }
    };
    // The read-modify-writes with one operand.
    (@$method:ident $value:ty, $field:tt) => {
        #[inline(always)]
        fn $method(&self, value: $value, order: ::core::sync::atomic::Ordering) -> $value {
            self.$field.$method(value, order)
        }
    };
}

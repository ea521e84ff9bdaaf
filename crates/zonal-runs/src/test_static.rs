//! A bit of a word in a static, looked at without a register.

/// Whether a byte of a static has any of the bits of `mask`: `test_static!(WORDS, 64, 1 << 2)` is about the byte 64 bytes
/// behind the begin of `WORDS`, an array of atomic words, as by a relaxed load of it. `offset` and `mask` are constants.
///
/// On x86-64 it is one instruction that reads memory, and one branch, where a load of an atomic, which the compiler
/// does not make a part of the instruction that needs it, makes three of it. Elsewhere it is that load.
///
/// The macro has a block of unsafe code. Sound for a static of atomics, which is not unsafe to name; with a byte beyond it,
/// or a mask of more than a byte, it does not compile.
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
/// static WORDS: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
/// let is_on = || zonal_runs::test_static!(WORDS, 8, 1 << 3);
/// assert!(!is_on());
/// WORDS[1].store(1 << 3, Relaxed);
/// assert!(is_on());
/// ```
#[macro_export]
macro_rules! test_static {
    ($words:path, $offset:expr, $mask:expr) => {{
        const OFFSET: usize = $offset;
        const MASK: u8 = $mask;
        const {
            assert!(OFFSET < ::core::mem::size_of_val(&$words), "a byte of the static");
        };
        $crate::test_static_byte!($words, OFFSET, MASK)
    }};
}

/// What [`test_static!`](crate::test_static) is here.
#[doc(hidden)]
#[macro_export]
#[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
macro_rules! test_static_byte {
    ($words:path, $offset:expr, $mask:expr) => {{
        let _: &[::core::sync::atomic::AtomicU64] = &$words;
        let mut is_set = false;
        // SAFETY: the byte is one of the static's, which is mapped for as long as the program is; other threads access it as a
        // part of an atomic word, and a byte is read at once. The instruction writes nothing but flags, and what is jumped to is
        // this block's own.
        unsafe {
            ::core::arch::asm!(
                "test byte ptr [rip + {words} + {offset}], {mask}",
                "jne {set}",
                words = sym $words,
                offset = const $offset,
                mask = const $mask,
                set = label { is_set = true },
                options(nostack, readonly),
            );
        }
        is_set
    }};
}

/// What [`test_static!`](crate::test_static) is here.
#[doc(hidden)]
#[macro_export]
#[cfg(not(all(target_arch = "x86_64", not(loom), not(miri))))]
macro_rules! test_static_byte {
    ($words:path, $offset:expr, $mask:expr) => {{
        let word = $words[$offset / 8].load(::core::sync::atomic::Ordering::Relaxed);
        word.to_ne_bytes()[$offset % 8] & $mask != 0
    }};
}

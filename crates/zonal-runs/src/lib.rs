//! Several atomics that lie side by side, at once.
//!
//! On x86-64 the instructions move 16 bytes, or eight where a kernel is built without SSE2, and exchange eight;
//! elsewhere, and under a checker that knows single atomics only (loom, Miri), each is accessed by itself. What the
//! caller sees is the same: no access of another CPU to one of them meets half of a change, because each lies within
//! one of those that the processor makes by whole bytes (or whole halves, which are aligned), and an exchange is a
//! locked one.
//!
//! ```
//! use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
//! let bytes: [AtomicU8; 40] = std::array::from_fn(|_| AtomicU8::new(1));
//! bytes[30].store(7, Relaxed);
//! assert_eq!(zonal_runs::replace(&bytes, 1, 2), 30, "up to one that is something else");
//! assert_eq!((bytes[29].load(Relaxed), bytes[31].load(Relaxed)), (2, 1));
//! ```
#![no_std]

#[cfg(test)]
extern crate std;

#[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
mod exchange;
mod single;
#[cfg(all(target_arch = "x86_64", target_feature = "sse2", not(loom), not(miri)))]
mod sse2;
mod test_static;
#[cfg(all(target_arch = "x86_64", any(test, not(target_feature = "sse2")), not(loom), not(miri)))]
mod words;

use core::sync::atomic::{AtomicU8, AtomicU32};
use zonal::platform::Direction;

#[cfg(not(all(target_arch = "x86_64", not(loom), not(miri))))]
use single as way;
#[cfg(all(target_arch = "x86_64", target_feature = "sse2", not(loom), not(miri)))]
use sse2 as way;
#[cfg(all(target_arch = "x86_64", not(target_feature = "sse2"), not(loom), not(miri)))]
use words as way;

/// The functions of a [`Platform`](zonal::platform::Platform) on the standard library's atomics that are made of
/// those of this crate.
///
/// ```
/// use std::sync::atomic::{AtomicU8, AtomicU32};
///
/// /// Some of what a platform has.
/// trait Runs {
///     fn fill(bytes: &[AtomicU8], value: u8);
///     fn replace_run(bytes: &[AtomicU8], from: u8, to: u8) -> usize;
///     fn write_run(halves: &[AtomicU32], first: u32, direction: zonal::platform::Direction);
///     fn is_run(halves: &[AtomicU32], direction: zonal::platform::Direction) -> bool;
/// }
///
/// struct Mine;
/// impl Runs for Mine {
///     zonal_runs::forward!();
/// }
///
/// let bytes = [AtomicU8::new(0), AtomicU8::new(0)];
/// Mine::fill(&bytes, 3);
/// assert_eq!(Mine::replace_run(&bytes, 3, 4), 2);
/// ```
#[macro_export]
macro_rules! forward {
    () => {
        #[inline(always)]
        fn fill(bytes: &[::core::sync::atomic::AtomicU8], value: u8) {
            $crate::fill(bytes, value);
        }

        #[inline(always)]
        fn replace_run(bytes: &[::core::sync::atomic::AtomicU8], from: u8, to: u8) -> usize {
            $crate::replace(bytes, from, to)
        }

        #[inline(always)]
        fn write_run(
            halves: &[::core::sync::atomic::AtomicU32],
            first: u32,
            direction: ::zonal::platform::Direction,
        ) {
            $crate::write(halves, first, direction);
        }

        #[inline(always)]
        fn is_run(
            halves: &[::core::sync::atomic::AtomicU32],
            direction: ::zonal::platform::Direction,
        ) -> bool {
            $crate::is_run(halves, direction)
        }
    };
}

/// Writes `value` to each, as by relaxed stores in any order.
#[inline(always)]
pub fn fill(bytes: &[AtomicU8], value: u8) {
    way::fill(bytes, value);
}

/// Replaces `from` by `to` in each, the first one first, up to one that is something else; returns how many.
/// Each is replaced as by a relaxed compare-exchange.
#[inline(always)]
#[must_use]
pub fn replace(bytes: &[AtomicU8], from: u8, to: u8) -> usize {
    way::replace(bytes, from, to)
}

/// Writes numbers that follow each other, from `first` on, as by relaxed stores in any order.
#[inline(always)]
pub fn write(halves: &[AtomicU32], first: u32, direction: Direction) {
    way::write(halves, first, direction);
}

/// Whether they are numbers that follow each other, as by relaxed loads in any order.
#[inline(always)]
#[must_use]
pub fn is_run(halves: &[AtomicU32], direction: Direction) -> bool {
    way::is_run(halves, direction)
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::Ordering::Relaxed;
    use core::sync::atomic::{AtomicBool, AtomicU64};
    use std::vec::Vec;

    /// Slices of all lengths and places: this way and each by itself do the same.
    /// Each bit of each byte, beside a load.
    #[test]
    fn a_bit_of_a_static_is_what_a_load_says() {
        static WORDS: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];
        macro_rules! same {
            ($byte:expr, $($bit:expr)*) => {$(
                let seen = crate::test_static!(WORDS, $byte, 1 << $bit);
                let word = WORDS[$byte / 8].load(Relaxed);
                assert_eq!(seen, word.to_ne_bytes()[$byte % 8] >> $bit & 1 != 0, "{word:x}");
            )*};
        }
        for bit in 0..192 {
            WORDS.iter().for_each(|word| word.store(0, Relaxed));
            WORDS[bit / 64].store(1 << (bit % 64), Relaxed);
            same!(0, 0 1 2 3 4 5 6 7);
            same!(7, 0 7);
            same!(9, 0 1 2 3 4 5 6 7);
            same!(23, 0 7);
        }
        WORDS[1].store(0x0a00, Relaxed);
        assert!(crate::test_static!(WORDS, 9, 0x0f) && !crate::test_static!(WORDS, 9, 0x05));
    }

    macro_rules! compare {
        ($way:ident) => {
            #[test]
            fn $way() {
                use crate::$way::{fill, is_run, replace, write};
                use Direction::{Down, Up};
                let bytes = || -> [AtomicU8; 64] { std::array::from_fn(|_| AtomicU8::new(3)) };
                let halves = || -> [AtomicU32; 64] { std::array::from_fn(|_| AtomicU32::new(0)) };
                for (start, len) in (0..24).flat_map(|start| (0..40).map(move |len| (start, len))) {
                    let part = start..start + len;
                    let both = [bytes(), bytes()];
                    fill(&both[0][part.clone()], 9);
                    single::fill(&both[1][part.clone()], 9);
                    assert_eq!(read(&both[0]), read(&both[1]), "{part:?}");
                    for other in part.clone().chain([63]) {
                        both.iter().for_each(|bytes| bytes[other].store(1, Relaxed));
                        let done = replace(&both[0][part.clone()], 9, 5);
                        assert_eq!(done, single::replace(&both[1][part.clone()], 9, 5));
                        assert_eq!(read(&both[0]), read(&both[1]), "{part:?}, {other} is another");
                        both.iter().for_each(|bytes| single::fill(&bytes[part.clone()], 9));
                    }
                    for (direction, first) in [(Up, u32::MAX - 7), (Down, 7), (Up, 40), (Down, 900)]
                    {
                        let both = [halves(), halves()];
                        write(&both[0][part.clone()], first, direction);
                        single::write(&both[1][part.clone()], first, direction);
                        assert!(
                            both[0]
                                .iter()
                                .zip(&both[1])
                                .all(|(a, b)| a.load(Relaxed) == b.load(Relaxed))
                        );
                        let run = &both[0][part.clone()];
                        assert!(is_run(run, direction), "{part:?}");
                        for other in run.iter().skip(1) {
                            let before = other.swap(77_777, Relaxed);
                            assert!(!is_run(run, direction), "{part:?}");
                            other.store(before, Relaxed);
                        }
                    }
                }
            }
        };
    }

    #[cfg(all(target_arch = "x86_64", target_feature = "sse2", not(loom), not(miri)))]
    compare!(sse2);
    #[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
    compare!(words);

    fn read(bytes: &[AtomicU8]) -> Vec<u8> {
        bytes.iter().map(|byte| byte.load(Relaxed)).collect()
    }

    /// Of two threads that replace one byte at the same instant, one by several at once and one alone, one is
    /// told that it did.
    #[test]
    fn a_byte_is_replaced_once() {
        let bytes: Vec<AtomicU8> = (0..4096).map(|_| AtomicU8::new(1)).collect();
        let (alone, at_once) = std::thread::scope(|scope| {
            let alone = scope.spawn(|| {
                let replaces =
                    |byte: &&AtomicU8| single::replace(std::slice::from_ref(byte), 1, 2) == 1;
                bytes.iter().rev().filter(replaces).count()
            });
            let at_once = bytes.chunks(32).map(|run| replace(run, 1, 2)).sum::<usize>();
            (alone.join().expect("it counts"), at_once)
        });
        let replaced = bytes.iter().filter(|byte| byte.load(Relaxed) == 2).count();
        assert_eq!(alone + at_once, replaced, "{alone} alone, {at_once} at once");
    }

    /// Where it ends there was another byte, also if that of a word became the one looked for meanwhile.
    #[test]
    fn it_ends_at_a_byte_that_is_another() {
        #[repr(align(64))]
        struct Line([AtomicU8; 16]);
        let Line(bytes) = &Line(std::array::from_fn(|_| AtomicU8::new(1)));
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Relaxed) {
                    bytes[7].store(7, Relaxed);
                    bytes[7].store(1, Relaxed);
                }
            });
            let ended: Vec<usize> = (0..200_000)
                .map(|_| {
                    fill(&bytes[..7], 1);
                    fill(&bytes[8..], 1);
                    replace(bytes, 1, 2)
                })
                .collect();
            done.store(true, Relaxed);
            assert!(ended.iter().all(|at| [7, 16].contains(at)), "no other byte is another");
        });
    }
}
